/* How many files this process has open: the same before and after where nothing leaks. */
#ifndef TESTS_SUPPORT_OPEN_FDS_H
#define TESTS_SUPPORT_OPEN_FDS_H

#include <dirent.h>

static inline int open_fds(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int  count = 0;

    while (readdir(directory) != NULL) {
        count++;
    }
    closedir(directory);
    return count;
}

#endif

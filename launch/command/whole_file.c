/* Whole files. */
#include "launch/command/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/error.h"

static KvgStatus fail_file(KvgStatus status, const char *option, const char *path, int error)
{
    return kvg_fail(status, "%s: %s cannot be written: %s", option, path, strerror(error));
}

/* A device or a pipe. */
static int is_special(const char *path)
{
    struct stat found;

    return stat(path, &found) == 0 && !S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode);
}

static int is_directory(const char *path)
{
    struct stat found;

    return stat(path, &found) == 0 && S_ISDIR(found.st_mode);
}

/* A pipe that nobody reads is refused (ENXIO) instead of waited for; one that is read may be waited for. */
static int open_special(const char *path)
{
    const int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);

    if (fd >= 0) {
        fcntl(fd, F_SETFL, O_WRONLY);
    }
    return fd;
}

/* The file that a link names is replaced, not the link; a link to nothing is. `path` is then `place`, which has PATH_MAX bytes. */
static const char *follow(const char *path, char *place)
{
    struct stat found;

    return lstat(path, &found) == 0 && S_ISLNK(found.st_mode) && realpath(path, place) != NULL ? place : path;
}

/* A file of the folder that `path` is in, without a name of its own; -1 where its file system has none such. */
static int open_unnamed(const char *path)
{
    char folder[PATH_MAX + 2];

    snprintf(folder, sizeof folder, "%s%s", path[0] == '/' ? "" : "./", path);
    strrchr(folder, '/')[1] = '\0';
    return open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
}

/* Where the text goes; its descriptor, or -1 with errno set. A link that lies there already is not followed. */
static int open_beside(const char *path, char *beside, size_t bytes, int *unnamed)
{
    const size_t length = strlen(path);
    struct stat  found;
    int          fd;

    beside[0] = '\0';
    *unnamed = 0;
    if (is_special(path)) {
        return open_special(path);
    }
    if (length == 0 || path[length - 1] == '/' || is_directory(path)) {
        errno = length == 0 ? ENOENT : EISDIR;
        return -1;
    }
    if ((size_t)snprintf(beside, bytes, "%s.tmp", path) >= bytes) {
        beside[0] = '\0';
        errno = ENAMETOOLONG;
        return -1;
    }
    if (lstat(beside, &found) == 0 ? S_ISREG(found.st_mode) : errno == ENOENT) { /* else opening it says what is wrong */
        fd = open_unnamed(path);
        *unnamed = fd >= 0;
        if (fd >= 0) {
            return fd;
        }
    }
    return open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
}

KvgStatus kvg_whole_file_check(const char *option, const char *path)
{
    char beside[PATH_MAX], place[PATH_MAX];
    int  unnamed, fd;

    if (is_special(path)) { /* to open a pipe and go away again would be an end to its reader */
        return access(path, W_OK) == 0 ? KVG_OK : fail_file(KVG_EINVAL, option, path, errno);
    }
    fd = open_beside(follow(path, place), beside, sizeof beside, &unnamed);
    if (fd < 0) {
        return fail_file(KVG_EINVAL, option, path, errno);
    }
    close(fd);
    if (!unnamed) {
        unlink(beside);
    }
    return KVG_OK;
}

KvgStatus kvg_whole_file_begin(const char *option, const char *path, WholeFile *file)
{
    int fd;

    file->option = option;
    file->path = path;
    file->target = follow(path, file->place);
    fd = open_beside(file->target, file->beside, sizeof file->beside, &file->unnamed);
    file->stream = fd < 0 ? NULL : fdopen(fd, "w");
    if (file->stream == NULL) {
        KvgStatus status = fail_file(KVG_EIO, option, path, errno);
        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    return KVG_OK;
}

/* Gives what is whole the name beside the path, in the place of what an earlier run has left there. 1 if it has it. */
static int name_it(WholeFile *file)
{
    char proc[64];

    snprintf(proc, sizeof proc, "/proc/self/fd/%d", fileno(file->stream));
    if ((unlink(file->beside) != 0 && errno != ENOENT) || linkat(AT_FDCWD, proc, AT_FDCWD, file->beside, AT_SYMLINK_FOLLOW) != 0) {
        return 0;
    }
    file->unnamed = 0;
    return 1;
}

KvgStatus kvg_whole_file_end(WholeFile *file, KvgStatus status)
{
    int wrong = ferror(file->stream) | (fflush(file->stream) != 0);

    if (!wrong && status == KVG_OK && file->unnamed) {
        wrong = !name_it(file);
    }
    const int error = errno;
    if ((fclose(file->stream) != 0 || wrong) && status == KVG_OK) {
        status = fail_file(KVG_EIO, file->option, file->path, wrong ? error : errno);
    }
    if (status == KVG_OK && file->beside[0] != '\0' && rename(file->beside, file->target) != 0) {
        status = fail_file(KVG_EIO, file->option, file->path, errno);
    }
    if (status != KVG_OK && file->beside[0] != '\0' && !file->unnamed) {
        unlink(file->beside);
    }
    file->stream = NULL;
    return status;
}

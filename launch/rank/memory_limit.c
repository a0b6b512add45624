#include "launch/rank/memory_limit.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "runtime/base/checked.h"

/* A file's first number; UINT64_MAX: "max", or it cannot be read. */
static uint64_t read_number(const char *root, const char *path, const char *name)
{
    char     file_name[PATH_MAX];
    uint64_t value = UINT64_MAX;

    const int length = snprintf(file_name, sizeof file_name, "%s%s/%s", root, path, name);
    FILE     *file = length > 0 && (size_t)length < sizeof file_name ? fopen(file_name, "r") : NULL;
    if (file != NULL) {
        value = fscanf(file, "%" SCNu64, &value) == 1 ? value : UINT64_MAX;
        fclose(file);
    }
    return value;
}

uint64_t kvg_memory_limit_cgroup(const char *root, const char *path)
{
    char     at[PATH_MAX];
    uint64_t least = UINT64_MAX;

    snprintf(at, sizeof at, "%s", strcmp(path, "/") == 0 ? "" : path);
    for (;;) {
        uint64_t limit = read_number(root, at, "memory.max"), used = read_number(root, at, "memory.current");

        if (limit != UINT64_MAX) {
            least = kvg_min_u64(least, kvg_monus_u64(limit, used == UINT64_MAX ? 0 : used));
        }
        char *slash = strrchr(at, '/');
        if (slash == NULL) {
            return least;
        }
        *slash = '\0';
    }
}

static uint64_t read_cgroups(void)
{
    char     line[PATH_MAX];
    uint64_t left = UINT64_MAX;
    FILE    *file = fopen("/proc/self/cgroup", "r");

    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "0::", 3) == 0) { /* cgroup v2's one line */
            line[strcspn(line, "\n")] = '\0';
            left = kvg_memory_limit_cgroup("/sys/fs/cgroup", line + 3);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return left;
}

static uint64_t read_machine(void)
{
    char     line[128];
    uint64_t kib = UINT64_MAX;
    FILE    *file = fopen("/proc/meminfo", "r");

    while (file != NULL && kib == UINT64_MAX && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "MemAvailable: %" SCNu64 " kB", &kib) != 1) {
            kib = UINT64_MAX;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return kib > UINT64_MAX / 1024 ? UINT64_MAX : kib * 1024;
}

uint64_t kvg_memory_limit_here(void)
{
    return kvg_min_u64(read_machine(), read_cgroups());
}

uint64_t kvg_memory_limit_addresses(void)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY ? (uint64_t)limit.rlim_cur : UINT64_MAX;
}

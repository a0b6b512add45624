/* Host memory, what is left: read from the kernel's own files. Limits that are not set do not bound it. */
#include "runtime/dev/host.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/base/mix.h"

#define CGROUPS "/sys/fs/cgroup"

/* The file's first line without its newline; 0 if it cannot be read. */
static int read_line(const char *path, char *line, int room)
{
    FILE *file = fopen(path, "re");
    int   got = file != NULL && fgets(line, room, file) != NULL;

    if (file != NULL) fclose(file);
    if (got) line[strcspn(line, "\n")] = '\0';
    return got;
}

static int read_number(const char *path, uint64_t *number)
{
    char line[64], *end = line;

    if (!read_line(path, line, sizeof line)) return 0;
    *number = strtoull(line, &end, 10);
    return end != line; /* "max" is no number */
}

/* MemAvailable: free memory and what the kernel would give up for it. */
static int read_available(uint64_t *bytes)
{
    char     line[128];
    uint64_t kib = 0;
    int      found = 0;
    FILE    *file = fopen("/proc/meminfo", "re");

    if (file == NULL) return 0;
    while (!found && fgets(line, sizeof line, file) != NULL) found = sscanf(line, "MemAvailable: %" SCNu64 " kB", &kib) == 1;
    fclose(file);
    *bytes = kib << 10;
    return found;
}

/* ---- control groups: version 2's of this process and every one above it; of version 1 what is mounted, which in a container is its own */

static uint64_t left_in_group(const char *group, const char *limit, const char *usage)
{
    char     path[640];
    uint64_t most, used;

    snprintf(path, sizeof path, CGROUPS "%s/%s", group, limit);
    if (!read_number(path, &most)) return UINT64_MAX;
    snprintf(path, sizeof path, CGROUPS "%s/%s", group, usage);
    return read_number(path, &used) ? kvg_monus_u64(most, used) : most;
}

static uint64_t left_in_v2(const char *group)
{
    return left_in_group(group, "memory.max", "memory.current");
}

static uint64_t left_in_groups(void)
{
    char     line[512];
    uint64_t left = left_in_group("/memory", "memory.limit_in_bytes", "memory.usage_in_bytes");

    if (!read_line("/proc/self/cgroup", line, sizeof line) || strncmp(line, "0::/", 4) != 0) return left;
    for (char *group = line + 3, *cut; (cut = strrchr(group, '/')) != NULL; *cut = '\0') {
        left = kvg_min_u64(left, left_in_v2(strcmp(group, "/") == 0 ? "" : group));
        if (cut == group && cut[1] != '\0') left = kvg_min_u64(left, left_in_v2(""));
    }
    return left;
}

/* ---- ulimit -v */

static uint64_t left_of_addresses(void)
{
    struct rlimit limit;
    char          line[128];

    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || !read_line("/proc/self/statm", line, sizeof line)) return UINT64_MAX;
    return kvg_monus_u64(limit.rlim_cur, strtoull(line, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE));
}

/* One number for this machine since it started. */
static uint64_t machine(void)
{
    char     line[64] = "";
    uint64_t sum = 1;

    (void)read_line("/proc/sys/kernel/random/boot_id", line, sizeof line);
    for (const char *c = line; *c != '\0'; c++) sum = kvg_mix64(sum + (uint8_t)*c);
    return sum;
}

KvgStatus kvg_host_available(KvAvailable *available)
{
    uint64_t bytes;

    if (!read_available(&bytes)) {
        return kvg_fail(KVG_ENOTSUP, "/proc/meminfo does not say what memory is available: say how many bytes to take (memory_bytes)");
    }
    bytes = kvg_min_u64(bytes, kvg_min_u64(left_in_groups(), left_of_addresses()));
    *available = (KvAvailable){.bytes = bytes, .memory = machine()};
    return KVG_OK;
}

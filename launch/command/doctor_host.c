#include "launch/command/doctor_host.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "launch/rank/topology.h"

#define GIB          ((double)(1ull << 30))
#define PROBE_BYTES  (1ull << 40) /* addresses only: pools reserve for what a later resize may reach */
#define MAPS_WANTED  65530u       /* Linux's default: a slab is a mapping at worst */
#define MEMORY_LITTLE (1ull << 30)

void kvg_finding(Finding *finding, Verdict verdict, const char *format, ...)
{
    va_list arguments;

    finding->verdict = verdict;
    va_start(arguments, format);
    vsnprintf(finding->text, sizeof finding->text, format, arguments);
    va_end(arguments);
}

int kvg_finding_print(const Finding *finding, const char *name)
{
    static const char *const verdicts[] = { [VERDICT_OK] = "ok", [VERDICT_WARN] = "warn", [VERDICT_FAIL] = "FAIL" };

    printf("%-5s %-11s %s\n", verdicts[finding->verdict], name, finding->text);
    return finding->verdict == VERDICT_FAIL;
}

/* The number that stands in a file of /proc, after `key` if there is one; 0 if it cannot be read. */
static int read_number(const char *path, const char *key, unsigned long long *number)
{
    FILE *file = fopen(path, "r");
    char  line[256];
    int   found = 0;

    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
        size_t skip = key != NULL ? strlen(key) : 0;

        found = (key == NULL || strncmp(line, key, skip) == 0) && sscanf(line + skip, "%llu", number) == 1;
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

void kvg_doctor_proc(Finding *finding)
{
    if (access("/proc/self/maps", R_OK) == 0) {
        kvg_finding(finding, VERDICT_OK, "/proc is mounted: taken bytes can be checked against the system's figure");
    } else {
        kvg_finding(finding, VERDICT_WARN, "/proc/self/maps cannot be read (%s): mount /proc to have taken bytes checked",
                    strerror(errno));
    }
}

void kvg_doctor_memory(Finding *finding)
{
    unsigned long long available, total;
    Verdict            verdict;

    if (!read_number("/proc/meminfo", "MemAvailable:", &available) || !read_number("/proc/meminfo", "MemTotal:", &total)) {
        kvg_finding(finding, VERDICT_WARN, "/proc/meminfo cannot be read: say the memory of a rank yourself with --memory");
        return;
    }
    verdict = available * 1024 < MEMORY_LITTLE ? VERDICT_WARN : VERDICT_OK;
    kvg_finding(finding, verdict, "%.1f GiB of %.1f GiB available%s", (double)available * 1024 / GIB, (double)total * 1024 / GIB,
                verdict == VERDICT_OK ? "" : ": little; close other programs or pass a small --memory");
}

void kvg_doctor_addresses(Finding *finding)
{
    struct rlimit      limit;
    unsigned long long overcommit = 0;
    void              *probe = mmap(NULL, PROBE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    (void)read_number("/proc/sys/vm/overcommit_memory", NULL, &overcommit);
    if (probe == MAP_FAILED) {
        if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
            kvg_finding(finding, VERDICT_FAIL, "1 TiB of addresses cannot be reserved, the limit is %.1f GiB: run ulimit -v unlimited",
                        (double)limit.rlim_cur / GIB);
        } else {
            kvg_finding(finding, VERDICT_FAIL, "1 TiB of addresses cannot be reserved (%s): lift the container's limit on address space",
                        strerror(errno));
        }
        return;
    }
    munmap(probe, PROBE_BYTES);
    if (overcommit == 2) {
        kvg_finding(finding, VERDICT_WARN, "vm.overcommit_memory is 2: slabs count against the commit limit when taken; pass a --memory "
                                           "within it, or set it to 0");
        return;
    }
    kvg_finding(finding, VERDICT_OK, "1 TiB of addresses can be reserved; vm.overcommit_memory is %llu", overcommit);
}

void kvg_doctor_maps(Finding *finding)
{
    unsigned long long maps;

    if (!read_number("/proc/sys/vm/max_map_count", NULL, &maps)) {
        kvg_finding(finding, VERDICT_WARN, "vm.max_map_count cannot be read: %u mappings are assumed", MAPS_WANTED);
    } else if (maps < MAPS_WANTED) {
        kvg_finding(finding, VERDICT_WARN, "vm.max_map_count is %llu: raise it by sysctl -w vm.max_map_count=%u for large models", maps,
                    MAPS_WANTED);
    } else {
        kvg_finding(finding, VERDICT_OK, "vm.max_map_count is %llu", maps);
    }
}

void kvg_doctor_cores(Finding *finding)
{
    long      online = sysconf(_SC_NPROCESSORS_ONLN);
    cpu_set_t allowed;

    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        kvg_finding(finding, VERDICT_OK, "%ld processors online", online);
        return;
    }
    int count = CPU_COUNT(&allowed);
    if (count < 2) {
        kvg_finding(finding, VERDICT_WARN, "%d of %ld processors may be used: several ranks will take turns on it; widen the binding "
                                           "(mpirun --bind-to none, srun --cpus-per-task)", count, online);
        return;
    }
    kvg_finding(finding, VERDICT_OK, "%d of %ld processors may be used; more ranks than that need mpirun --oversubscribe", count, online);
}

void kvg_doctor_topology(Finding *finding)
{
    RankTopology *topology = NULL;

    if (kvg_topology_open(NULL, 0, &topology) != KVG_OK) {
        kvg_finding(finding, VERDICT_WARN, "%s; ranks are not bound", kvg_last_error());
        return;
    }
    const TopologyCounts counts = kvg_topology_counts(topology);
    kvg_finding(finding, VERDICT_OK, "hwloc sees %d package(s), %d NUMA node(s), %d core(s)%s", counts.packages, counts.nodes, counts.cores,
                counts.is_this ? "" : ", of another machine (HWLOC_XMLFILE): nothing is bound by it");
    kvg_topology_close(topology);
}

void kvg_doctor_avx2(Finding *finding)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        kvg_finding(finding, VERDICT_OK, "AVX2 is here: q8_0 rows are encoded by it");
        return;
    }
#endif
    kvg_finding(finding, VERDICT_OK, "no AVX2: rows are encoded by plain C, the same bytes more slowly");
}

/* Doctor, the ranks: the table, and what is wrong in it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "launch/command/doctor_ranks.h"
#include "launch/command/plan_report.h"

/* ---- the table */

static const char *device_words(const DoctorRank *rank, char *text, size_t bytes)
{
    if (rank->device < 0) {
        snprintf(text, bytes, "%s", rank->seat.devices.count == 0 ? "host" : "none");
        return text;
    }
    const RankDevice *device = &rank->seat.devices.device[rank->device];
    snprintf(text, bytes, "%d %s %s", device->ordinal, device->bus, device->name);
    return text;
}

void kvg_doctor_table(const DoctorRank *ranks, int count)
{
    printf("\n%-5s %-16s %-8s %-7s %-36s %-20s %-6s %s\n", "rank", "host", "pid", "local", "device", "allowed cpus", "node", "binding");
    for (int rank = 0; rank < count; rank++) {
        const DoctorRank *at = &ranks[rank];
        char              local[32], device[80], allowed[24], on[INDEX_SET_TEXT], pid[16], words[RANK_WORDS];

        snprintf(local, sizeof local, "%d of %d", at->local, at->locals);
        snprintf(pid, sizeof pid, at->seat.pid != 0 ? "%d" : "-", at->seat.pid);
        printf("%-5d %-16s %-8s %-7s %-36s %-20s %-6s %s\n", rank, at->seat.host, pid, local, device_words(at, device, sizeof device),
               kvg_index_set_text(&at->seat.allowed, allowed, sizeof allowed), kvg_index_set_count(&at->binding.on) > 0 ? kvg_index_set_text(&at->binding.on, on, sizeof on) : "-",
               kvg_binding_words(&at->binding, words, sizeof words));
    }
    printf("\n");
}

/* ---- its checks */

static void check_places(const DoctorRank *ranks, int count, const DoctorAsk *ask, Finding *finding)
{
    int hosts = 0;

    (void)ask;
    for (int rank = 0; rank < count; rank++) {
        if (ranks[rank].status != KVG_OK) {
            kvg_finding(finding, VERDICT_FAIL, "rank %d: %s", rank, ranks[rank].sentence);
            return;
        }
        hosts += ranks[rank].local == 0;
    }
    kvg_finding(finding, VERDICT_OK, "%d rank%s on %d machine%s, local ranks by %s", count, count == 1 ? "" : "s", hosts, hosts == 1 ? "" : "s",
                ranks[0].source);
}

static int share_device(const DoctorRank *left, const DoctorRank *right)
{
    return left->device >= 0 && right->device >= 0 && kvg_rank_same_machine(&left->seat, &right->seat) &&
           memcmp(left->seat.devices.device[left->device].id, right->seat.devices.device[right->device].id, RANK_DEVICE_ID) == 0;
}

static void check_devices(const DoctorRank *ranks, int count, const DoctorAsk *ask, Finding *finding)
{
    int on_devices = 0;

    (void)ask;
    for (int rank = 0; rank < count; rank++) {
        if (ranks[rank].device < 0 && ranks[rank].seat.devices.count > 0) {
            kvg_finding(finding, VERDICT_WARN, "rank %d sees %u device(s) and has none: the line of the ranks says why", rank, ranks[rank].seat.devices.count);
            return;
        }
    }
    for (int right = 0; right < count; right++) {
        on_devices += ranks[right].device >= 0;
        for (int left = 0; left < right; left++) {
            const uint32_t sees[2] = { ranks[left].seat.devices.count, ranks[right].seat.devices.count };

            if (kvg_rank_same_machine(&ranks[left].seat, &ranks[right].seat) && sees[0] != sees[1]) {
                kvg_finding(finding, VERDICT_WARN, "on %s rank %d sees %u device(s) and rank %d sees %u: let all see all of them (srun --gpu-bind=none, one "
                                                   "CUDA_VISIBLE_DEVICES), so that they reach each other's memory",
                            ranks[left].seat.host, left, sees[0], right, sees[1]);
                return;
            }
            if (share_device(&ranks[left], &ranks[right])) {
                kvg_finding(finding, VERDICT_WARN, "on %s ranks %d and %d share a device: give each a --memory for its part, and know that they take turns; NCCL "
                                                   "refuses such ranks",
                            ranks[left].seat.host, left, right);
                return;
            }
        }
    }
    kvg_finding(finding, VERDICT_OK, on_devices > 0 ? "%d of %d ranks on a device of their own" : "no rank on a device: %d of %d; state lives in host memory",
                on_devices, count);
}

/* Ranks of its machine that may use the very processors that it may. */
static int count_crowd(const DoctorRank *ranks, int count, const DoctorRank *at)
{
    int crowd = 0;

    for (int rank = 0; rank < count; rank++) {
        crowd += kvg_rank_same_machine(&ranks[rank].seat, &at->seat) && kvg_index_set_equal(&ranks[rank].seat.allowed, &at->seat.allowed);
    }
    return crowd;
}

static void check_cores(const DoctorRank *ranks, int count, const DoctorAsk *ask, Finding *finding)
{
    (void)ask;
    for (int rank = 0; rank < count; rank++) {
        const DoctorRank *at = &ranks[rank];
        const int         crowd = count_crowd(ranks, count, at);

        if (at->seat.cores > 0 && crowd > at->seat.cores) {
            char cpus[INDEX_SET_TEXT];
            kvg_finding(finding, VERDICT_WARN, "%d ranks of %s share %d core(s) (cpus %s) and take turns: start fewer there, or let them use more (mpirun --bind-to "
                                               "none, srun --cpus-per-task)",
                        crowd, at->seat.host, at->seat.cores, kvg_index_set_text(&at->seat.allowed, cpus, sizeof cpus));
            return;
        }
    }
    kvg_finding(finding, VERDICT_OK, "no more ranks than cores that they may use");
}

static void check_binding(const DoctorRank *ranks, int count, const DoctorAsk *ask, Finding *finding)
{
    int bound = 0;

    (void)ask;
    for (int rank = 0; rank < count; rank++) {
        const RankBinding *binding = &ranks[rank].binding;

        if (binding->amiss) {
            kvg_finding(finding, VERDICT_WARN, "rank %d: %s; what a launcher has bound is not widened: mpirun --bind-to none and srun --cpu-bind=none leave it to kvgrid", rank,
                        binding->why);
            return;
        }
        bound += binding->kind == BINDING_SET;
    }
    kvg_finding(finding, VERDICT_OK, "%d of %d ranks bound%s", bound, count, bound < count ? "; others run where they were started" : "");
}

/* The least that any rank of `at`'s machine says is left, shared by all of them. */
static uint64_t memory_left(const DoctorRank *ranks, int count, const DoctorRank *at, int *sharers)
{
    uint64_t left = UINT64_MAX;

    *sharers = 0;
    for (int rank = 0; rank < count; rank++) {
        if (kvg_rank_same_machine(&ranks[rank].seat, &at->seat)) {
            left = ranks[rank].seat.memory < left ? ranks[rank].seat.memory : left;
            (*sharers)++;
        }
    }
    return left;
}

static void check_memory(const DoctorRank *ranks, int count, const DoctorAsk *ask, Finding *finding)
{
    uint64_t least = UINT64_MAX;
    char     asked[32], left[32];

    for (int rank = 0; rank < count; rank++) {
        const DoctorRank *at = &ranks[rank];
        int               sharers = 0;
        const uint64_t    here = memory_left(ranks, count, at, &sharers), each = here == UINT64_MAX ? here : here / (uint64_t)sharers;

        if (ask->memory != 0 && at->seat.addresses < ask->memory) {
            kvg_finding(finding, VERDICT_FAIL, "rank %d on %s is to take %s and may map %s (RLIMIT_AS): run ulimit -v unlimited", rank, at->seat.host,
                        kvg_plan_size(ask->memory, asked), kvg_plan_size(at->seat.addresses, left));
            return;
        }
        if (ask->memory != 0 && each < ask->memory && at->device < 0) { /* a GPU's state takes none of it */
            kvg_finding(finding, VERDICT_FAIL, "%d rank(s) of %s are to take %s each, and %s are left there by the machine and its cgroups: start fewer, ask for "
                                               "more (srun --mem), or lower --memory",
                        sharers, at->seat.host, kvg_plan_size(ask->memory, asked), kvg_plan_size(here, left));
            return;
        }
        least = each < least ? each : least;
    }
    if (least == UINT64_MAX) {
        kvg_finding(finding, VERDICT_OK, "what the machine leaves is not known");
        return;
    }
    kvg_finding(finding, VERDICT_OK, "at least %s of host memory a rank%s", kvg_plan_size(least, left), ask->memory == 0 ? "; --memory SIZE asks whether that will do" : "");
}

int kvg_doctor_table_checks(const DoctorRank *ranks, int count, const DoctorAsk *ask)
{
    static const struct {
        const char *name;
        void (*check)(const DoctorRank *ranks, int count, const DoctorAsk *ask, Finding *finding);
    } checks[] = { { "ranks", check_places },  { "devices", check_devices }, { "cores", check_cores },
                   { "binding", check_binding }, { "rank memory", check_memory } };
    int failed = 0;

    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        Finding finding;

        checks[i].check(ranks, count, ask, &finding);
        failed |= kvg_finding_print(&finding, checks[i].name);
    }
    return failed;
}

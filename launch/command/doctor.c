#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvgrid/format.h>
#include <kvgrid/policy.h>

#if KVG_HAVE_CUDA
#include <kvgrid/kvgrid_cuda.h>
#endif
#if KVG_HAVE_MPI
#include <mpi.h>
#endif
#include <xxhash.h>

#include "launch/command/command.h"
#include "launch/command/doctor_host.h"
#include "launch/command/doctor_nccl.h"
#include "launch/command/doctor_network.h"
#include "launch/command/doctor_ranks.h"
#include "launch/command/options.h"
#include "launch/command/slurm.h"

extern char **environ;

/* ---- launching */

static int in_path(const char *program, char *found, size_t found_bytes)
{
    const char *path = getenv("PATH");

    for (const char *at = path != NULL ? path : ""; *at != '\0';) {
        size_t count = strcspn(at, ":");

        snprintf(found, found_bytes, "%.*s/%s", (int)count, at, program);
        if (access(found, X_OK) == 0) {
            return 1;
        }
        at += count + (at[count] == ':');
    }
    return 0;
}

static void check_mpi(Finding *finding)
{
#if KVG_HAVE_MPI
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int  count = 0;

    MPI_Get_library_version(version, &count); /* legal before MPI_Init */
    version[strcspn(version, ",\n")] = '\0';
    kvg_finding(finding, VERDICT_OK, "%s", version);
#else
    kvg_finding(finding, VERDICT_WARN, "built without MPI: kvgrid replay serves one process only; install libopenmpi-dev and rebuild");
#endif
}

static void check_launcher(Finding *finding)
{
    char found[256];

    if (in_path("mpirun", found, sizeof found) || in_path("srun", found, sizeof found)) {
        kvg_finding(finding, VERDICT_OK, "%s starts the ranks", found);
    } else {
        kvg_finding(finding, VERDICT_WARN, "neither mpirun nor srun is in PATH: install openmpi-bin to start more than one rank");
    }
}

/* By the rule that replay refuses by. In a job's shell nothing has been started yet, and in a task MPI is not asked: PMIx will count right. */
static void check_slurm(Finding *finding)
{
    const SlurmView view = kvg_slurm_view();
    const char     *world = getenv("OMPI_COMM_WORLD_SIZE");

    if (view.tasks == NULL || *view.tasks == '\0') {
        kvg_finding(finding, VERDICT_OK, "not in a SLURM job");
    } else if (kvg_slurm_is_launched()) {
        const int differs = world != NULL && !view.in_step && strcmp(world, view.tasks) != 0; /* in a step the count is mpirun's daemons' */

        kvg_finding(finding, differs ? VERDICT_WARN : VERDICT_OK, "SLURM_NTASKS is %s%s%s%s", view.tasks, differs ? " and mpirun started " : "",
                    differs ? world : "", differs ? " ranks: as many as tasks use the whole job" : "");
    } else if (!view.in_step) {
        kvg_finding(finding, VERDICT_OK, "SLURM_NTASKS is %s, in the job's shell: srun --mpi=pmix or mpirun starts the ranks", view.tasks);
    } else if (kvg_slurm_check(&view, 1) != KVG_OK) {
        kvg_finding(finding, VERDICT_FAIL, "%s", kvg_last_error());
    } else {
        kvg_finding(finding, VERDICT_OK, "SLURM_NTASKS is %s", view.tasks);
    }
}

/* ---- devices */

static int has_driver(void)
{
    return access("/proc/driver/nvidia/version", R_OK) == 0;
}

static void check_cuda(Finding *finding)
{
#if KVG_HAVE_CUDA
    char why[512];
    int  usable = kvg_cuda_probe(why, sizeof why);

    if (usable > 0) {
        kvg_finding(finding, why[0] != '\0' ? VERDICT_WARN : VERDICT_OK, "%d CUDA device%s can be used%s%s", usable, usable == 1 ? "" : "s",
                    why[0] != '\0' ? ", others cannot: " : "", why);
    } else if (has_driver()) { /* worth a look: too old, or a device that there is no code for */
        kvg_finding(finding, VERDICT_WARN, "CUDA is compiled in, and %s; state lives in host memory, which is all plan and replay need", why);
    } else {
        kvg_finding(finding, VERDICT_OK, "CUDA is compiled in; no driver here, so state lives in host memory, which is all plan and replay need");
    }
#else
    kvg_finding(finding, has_driver() ? VERDICT_WARN : VERDICT_OK,
                has_driver() ? "a CUDA driver is loaded, but this build has no CUDA parts: state lives in host memory"
                       : "no CUDA driver here, and no CUDA parts in this build: state lives in host memory, which is all plan and replay need");
#endif
}

/* ---- the library itself */

/* Whether the `count` letters at `name` are a knob's variable or its alias. */
static int is_knob(const char *name, size_t count)
{
    KvgKnob knob;

    for (int i = 0; i < kvg_knob_count(); i++) {
        if (kvg_knob_get(i, &knob) == KVG_OK &&
            ((strlen(knob.name) == count && strncmp(knob.name, name, count) == 0) ||
             (knob.alias != NULL && strlen(knob.alias) == count && strncmp(knob.alias, name, count) == 0))) {
            return 1;
        }
    }
    return 0;
}

/* The first variable that looks like a knob's and is none; its name's length, 0 if there is none. */
static int find_stranger(const char **name)
{
    for (char **at = environ; at != NULL && *at != NULL; at++) {
        size_t count = strcspn(*at, "=");

        if ((strncmp(*at, "KVGRID_", 7) == 0 || strncmp(*at, "MEMRA_", 6) == 0) && !is_knob(*at, count)) {
            *name = *at;
            return (int)count;
        }
    }
    return 0;
}

static void check_knobs(Finding *finding)
{
    KvgPolicy   policy;
    const char *stranger = NULL;
    int         count = find_stranger(&stranger);

    if (kvg_policy_from_env(&policy) != KVG_OK) {
        kvg_finding(finding, VERDICT_FAIL, "%s", kvg_last_error());
        return;
    }
    if (count != 0) {
        kvg_finding(finding, VERDICT_WARN, "%.*s is set and is no knob: nothing reads it; kvgrid knobs lists those there are", count,
                    stranger);
        return;
    }
    for (int i = 0; i < kvg_knob_count(); i++) {
        KvgKnob knob;

        if (kvg_knob_get(i, &knob) == KVG_OK && knob.unread) {
            kvg_finding(finding, VERDICT_WARN, "%s is \"%s\", which cannot be read and counts as unset: %s", knob.source, knob.value,
                        knob.meaning);
            return;
        }
    }
    kvg_finding(finding, VERDICT_OK, "every knob can be read; kvgrid knobs shows them");
}

#define SELF_ELEMENTS 256
#define SELF_DIGEST   0xe9ac3e723e2808aaull /* XXH3-64 of the rows below, by the codec that passes the vectors */

static void self_rows(float *source)
{
    for (int i = 0; i < SELF_ELEMENTS; i++) { /* exact in float32: no rounding of the test's own */
        source[i] = (float)((i * 37 + 11) % 101 - 50) * 0.125f;
    }
}

static uint64_t self_digest(void (*encode)(KvFormat, const float *, size_t, void *, KvEncodeCounts *))
{
    static const KvFormat formats[] = { KVG_Q8_0, KVG_Q5_1, KVG_Q4_0, KVG_FP8, KVG_BF16, KVG_F16 };
    float                 source[SELF_ELEMENTS];
    uint8_t               rows[sizeof formats / sizeof formats[0] * SELF_ELEMENTS * 2];
    size_t                used = 0;

    self_rows(source);
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++) {
        encode(formats[f], source, SELF_ELEMENTS, rows + used, NULL);
        used += SELF_ELEMENTS / KVG_BLOCK_ELEMENTS * kvg_format_bytes_per_32(formats[f]);
    }
    return XXH3_64bits(rows, used);
}

static void check_encoding(Finding *finding)
{
    uint64_t plain = self_digest(kvg_encode_f32_ref), chosen = self_digest(kvg_encode_f32);

    if (plain != SELF_DIGEST || chosen != plain) {
        kvg_finding(finding, VERDICT_FAIL,
                    "encoded rows have digest %016llx (plain C) and %016llx (chosen), not %016llx: rebuild without -ffast-math and "
                    "-march=native, or report this processor",
                    (unsigned long long)plain, (unsigned long long)chosen, (unsigned long long)SELF_DIGEST);
        return;
    }
    kvg_finding(finding, VERDICT_OK, "encoded rows of every format have the right digest (%016llx)", (unsigned long long)plain);
}

/* ---- the list */

static const struct Check {
    const char *name;
    void (*check)(Finding *finding);
} checks[] = {
    { "MPI", check_mpi },
    { "launcher", check_launcher },
    { "SLURM", check_slurm },
    { "memory", kvg_doctor_memory },
    { "addresses", kvg_doctor_addresses },
    { "mappings", kvg_doctor_maps },
    { "network", kvg_doctor_network },
    { "processors", kvg_doctor_cores },
    { "topology", kvg_doctor_topology },
    { "AVX2", kvg_doctor_avx2 },
    { "CUDA", check_cuda },
    { "NCCL", kvg_doctor_nccl },
    { "/proc", kvg_doctor_proc },
    { "knobs", check_knobs },
    { "self test", check_encoding },
};

int kvg_command_doctor(int argc, char **argv)
{
    int       help = 0, failed = 0;
    DoctorAsk ask = DOCTOR_ASK_INIT;
    Option    options[] = {
        { .name = "--ranks", .kind = OPTION_COUNT, .target = &ask.ranks, .value = "N", .help = "what N ranks of this machine would be given", .least = 1, .most = 1024 },
        { .name = "--topology", .kind = OPTION_TEXT, .target = &ask.topology, .value = "FILE", .help = "the same of another machine, by lstopo's XML or hwloc's words: "
          "\"synthetic:NUMANode:2 Core:4 PU:1\"" },
        { .name = "--ranks-per-device", .kind = OPTION_COUNT, .target = &ask.per_device, .value = "N", .help = "ranks that may share a GPU (1)", .least = 1, .most = 64 },
        { .name = "--bind", .kind = OPTION_TEXT, .target = &ask.bind, .value = "auto|none", .help = "as replay's (auto)" },
        { .name = "--memory", .kind = OPTION_BYTES, .target = &ask.memory, .value = "SIZE", .help = "what each rank is to take: does every machine leave that?", .least = 1 },
        { .name = "--help", .kind = OPTION_FLAG, .target = &help, .help = "this text" },
    };

    KvgStatus status = kvg_options_parse(options, sizeof options / sizeof *options, argc, argv);
    if (status == KVG_OK) {
        status = kvg_doctor_ask_check(&ask);
    }
    if (status != KVG_OK) {
        return kvg_command_refuse("doctor", status);
    }
    if (help) {
        printf("usage: kvgrid doctor [options]\n"
               "       mpirun -n RANKS kvgrid doctor [options]     (or srun) adds a table of the ranks\n\n"
               "What this machine can run, a line a check: ok, warn, or FAIL with the cure. Exit status 1 if a check failed.\n\n");
        kvg_options_print(stdout, options, sizeof options / sizeof *options);
        return KVG_EXIT_DONE;
    }
    for (size_t i = 0; ask.topology == NULL && i < sizeof checks / sizeof checks[0]; i++) {
        Finding finding;

        checks[i].check(&finding);
        failed |= kvg_finding_print(&finding, checks[i].name);
    }
    failed |= kvg_doctor_ranks(&ask);
    return failed ? KVG_EXIT_FAILED : KVG_EXIT_DONE;
}

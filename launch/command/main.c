#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvgrid/kvgrid.h>

#include "launch/command/command.h"
#include "launch/command/options.h"
#include "runtime/base/error.h"

typedef struct Part {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *what;
} Part;

static const Part parts[] = {
    { "plan", kvg_command_plan, "how a model falls on a grid, and what fits (no MPI, no root)" },
    { "replay", kvg_command_replay, "serve a request trace from the cache of a model, on one rank or on a grid" },
    { "doctor", kvg_command_doctor, "what this machine can run, a line a check" },
    { "knobs", kvg_command_knobs, "every knob with its value, source and meaning" },
};

#define PART_COUNT (sizeof parts / sizeof parts[0])

int kvg_command_exit_status(KvgStatus status)
{
    switch (status) {
    case KVG_OK: return KVG_EXIT_DONE;
    case KVG_EINVAL:
    case KVG_EGEOM:
    case KVG_EOVERFLOW:
    case KVG_ELAYOUT:
    case KVG_EIO:
    case KVG_EFORMAT:
    case KVG_ENOTSUP: return KVG_EXIT_USE;
    default: return KVG_EXIT_FAILED;
    }
}

KvgStatus kvg_command_name_model(KvgStatus status, const char *path)
{
    if (status != KVG_EOVERFLOW || strncmp(kvg_last_error(), path, strlen(path)) == 0) {
        return status;
    }
    return kvg_fail(status, "%s: %s", path, kvg_last_error());
}

int kvg_command_refuse(const char *part, KvgStatus status)
{
    fprintf(stderr, "kvgrid %s: %s\n", part, kvg_last_error());
    return kvg_command_exit_status(status);
}

int kvg_command_finish(const char *part, int exit_status)
{
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "kvgrid %s: the output could not be written: %s\n", part, strerror(errno));
        return exit_status != KVG_EXIT_DONE ? exit_status : KVG_EXIT_FAILED;
    }
    return exit_status;
}

static void print_help(FILE *stream)
{
    fprintf(stream, "kvgrid: the sequence state of large language models over a grid of TP x PP ranks\n\n"
                    "usage: kvgrid PART [options]\n\n");
    for (size_t i = 0; i < PART_COUNT; i++) {
        fprintf(stream, "  %-8s %s\n", parts[i].name, parts[i].what);
    }
    fprintf(stream, "\n  kvgrid PART --help   the options of a part\n"
                    "  kvgrid --version     the version\n\n"
                    "exit status: 0 done, 1 a run failed, 2 bad use, input, geometry or grid\n");
}

static const char *nearest_part(const char *word)
{
    const char *names[PART_COUNT];

    for (size_t i = 0; i < PART_COUNT; i++) {
        names[i] = parts[i].name;
    }
    return kvg_nearest_word(word, names, PART_COUNT);
}

/* Whether a launcher started this process as another rank than 0; SLURM's number counts where there is no rank. */
static int is_later_rank(void)
{
    static const char *const variables[] = { "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID" };

    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const char *rank = getenv(variables[i]);

        if (rank != NULL) {
            return strcmp(rank, "0") != 0;
        }
    }
    return 0;
}

/* Parts that are not collective say the same on every rank: one of them says it. */
static void speak_once(void)
{
    if (is_later_rank() && (freopen("/dev/null", "w", stdout) == NULL || freopen("/dev/null", "w", stderr) == NULL)) {
        exit(KVG_EXIT_FAILED);
    }
}

int main(int argc, char **argv)
{
    signal(SIGXFSZ, SIG_IGN); /* a file over its limit is a write that fails, with a sentence, and not a death with half a file */
    if (argc < 2 || strcmp(argv[1], "replay") != 0) {
        speak_once();
    }
    if (argc < 2) {
        print_help(stderr);
        return KVG_EXIT_USE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return kvg_command_finish("--help", KVG_EXIT_DONE);
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("kvgrid %s\n", kvg_version(NULL, NULL, NULL));
        return kvg_command_finish("--version", KVG_EXIT_DONE);
    }
    for (size_t i = 0; i < PART_COUNT; i++) {
        if (strcmp(argv[1], parts[i].name) == 0) {
            return kvg_command_finish(parts[i].name, parts[i].run(argc - 1, argv + 1));
        }
    }
    const char *nearest = nearest_part(argv[1]);
    if (nearest != NULL) {
        fprintf(stderr, "kvgrid: there is no part \"%s\": did you mean \"%s\"? kvgrid --help lists them\n", argv[1], nearest);
    } else {
        fprintf(stderr, "kvgrid: there is no part \"%s\": kvgrid --help lists those there are\n", argv[1]);
    }
    return KVG_EXIT_USE;
}

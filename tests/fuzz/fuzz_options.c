/* Options: a line an argument; the first word chooses the part of the command, or a parser of values. Nothing is opened, run or printed. */
#include <kvgrid/grid_plan.h>

#include "launch/command/options.h"
#include "launch/command/plan_arguments.h"
#include "launch/command/replay_options.h"
#include "tests/fuzz/fuzz.h"

#define ARGUMENTS_MAX 48
#define LIST_MAX      16

static void try_plan(int argc, char **argv)
{
    PlanArguments arguments = { .tp = 77 };
    KvgStatus     status = kvg_plan_arguments_parse(argc, argv, &arguments);

    if (status != KVG_OK) {
        FUZZ_CHECK(status == KVG_EINVAL && arguments.tp == 77);
        fuzz_check_failure(status);
        return;
    }
    FUZZ_CHECK(arguments.tp <= 4096 && arguments.pp <= 4096 && arguments.gpus <= 4096 && arguments.ctx <= INT32_MAX);
    FUZZ_CHECK(arguments.ring >= -1 && arguments.ring <= 1);
}

static void try_replay(int argc, char **argv)
{
    ReplayOptions options = { .tp = 77777 };
    KvgStatus     status = kvg_replay_options_parse(argc, argv, &options);

    if (status != KVG_OK) {
        FUZZ_CHECK(status == KVG_EINVAL && options.tp == 77777);
        fuzz_check_failure(status);
        return;
    }
    FUZZ_CHECK(options.help || (options.model != NULL && options.trace != NULL && options.tp >= 1 && options.pp >= 1));
    FUZZ_CHECK(options.help || (options.concurrency >= 1 && options.chunk >= 1 && options.columns >= 2));
}

/* The library's sentences get the options' names: whatever they quote. */
static void try_values(const char *text)
{
    static const char *const words[] = { "plan", "replay", "doctor", "knobs" };
    static const OptionWord  spoken[] = { { "max", "--memory" }, { "a", "--a-name-that-is-much-longer-than-what-it-stands-for" } };
    uint64_t                 number = 5;
    uint32_t                 list[LIST_MAX];
    size_t                   count = 0;
    KvFormat                 format;

    if (kvg_parse_count("--n", text, 3, 99, &number) == KVG_OK) {
        FUZZ_CHECK(number >= 3 && number <= 99);
    } else {
        FUZZ_CHECK(number == 5 && kvg_options_speak(KVG_EINVAL, spoken, 2) == KVG_EINVAL);
    }
    if (kvg_parse_bytes("--b", text, &number) == KVG_OK) {
        FUZZ_CHECK(number <= INT64_MAX);
    }
    if (kvg_parse_list("--l", text, list, LIST_MAX, &count) == KVG_OK) {
        FUZZ_CHECK(count >= 1 && count <= LIST_MAX);
    }
    if (kvg_format_parse(text, &format) != KVG_OK) {
        FUZZ_CHECK(kvg_options_speak(KVG_EINVAL, spoken, 2) == KVG_EINVAL);
    }
    kvg_nearest_word(text, words, 4);
}

/* Cuts the text into arguments at line ends, as a shell would hand them over. */
static int cut(char *text, char *argv[ARGUMENTS_MAX + 1])
{
    int argc = 0;

    for (char *line = text; line != NULL && argc < ARGUMENTS_MAX; argc++) {
        argv[argc] = line;
        line = strchr(line, '\n');
        if (line != NULL) {
            *line++ = '\0';
        }
    }
    argv[argc] = NULL;
    return argc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzCount count = fuzz_begin();
    char     *argv[ARGUMENTS_MAX + 1], *text = malloc(size + 1);

    FUZZ_CHECK(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    int argc = cut(text, argv);

    if (strcmp(argv[0], "plan") == 0) {
        try_plan(argc, argv);
    } else if (strcmp(argv[0], "replay") == 0) {
        try_replay(argc, argv);
    } else {
        try_values(text);
    }
    free(text);
    fuzz_end(&count, size, 0, 0); /* arguments point into argv */
    return 0;
}

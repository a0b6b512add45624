/* Tests of replay's options and its fault words. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "launch/command/replay_options.h"
#include "launch/command/replay_schedule.h"

enum { WORDS_MAX = 16 };

/* Parses "replay" and the words of `line`. */
static KvgStatus parse(const char *line, ReplayOptions *options)
{
    static char text[512];
    char       *argv[WORDS_MAX] = { "replay" };
    int         argc = 1;
    ck_assert_uint_lt(strlen(line), sizeof text);
    strcpy(text, line);
    for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " ")) {
        ck_assert_int_lt(argc, WORDS_MAX);
        argv[argc++] = word;
    }
    return kvg_replay_options_parse(argc, argv, options);
}

START_TEST(test_the_defaults_are_one_rank_all_requests_and_no_drafts)
{
    ReplayOptions options;
    ck_assert_int_eq(parse("--model m --trace t", &options), KVG_OK);
    ck_assert(options.tp == 1 && options.pp == 1 && options.spec == 0 && options.ring == -1 && options.layout == KVG_LAYOUT_POOL);
    ck_assert(options.requests == REPLAY_NO_LIMIT && options.max_tokens == REPLAY_NO_LIMIT && options.memory == 0);
    ck_assert(options.columns == 2 && !options.mtp);
    ck_assert(options.fault.kind == REPLAY_FAULT_NONE && !options.verify && !options.json && !options.help);
}
END_TEST

START_TEST(test_every_option_lands_in_its_place)
{
    ReplayOptions options;
    ck_assert_int_eq(parse("--model m --trace t --tp 2 --pp=3 --requests 7 --max-tokens 90 --concurrency 5", &options), KVG_OK);
    ck_assert(options.tp == 2 && options.pp == 3 && options.requests == 7 && options.max_tokens == 90 && options.concurrency == 5);
    ck_assert_int_eq(parse("--model m --trace t --chunk 33 --spec 4 --seed 99 --format-k bf16 --format-v f16", &options), KVG_OK);
    ck_assert(options.chunk == 33 && options.spec == 4 && options.seed == 99);
    ck_assert(options.format_k == KVG_BF16 && options.format_v == KVG_F16 && options.format_latent == KVG_POLICY);
    ck_assert_int_eq(parse("--model m --trace t --format-latent bf16", &options), KVG_OK);
    ck_assert(options.format_latent == KVG_BF16 && options.format_k == KVG_POLICY && options.format_v == KVG_POLICY);
    ck_assert_int_eq(parse("--model m --trace t --ring off --layout flat --memory 3MiB --verify --json", &options), KVG_OK);
    ck_assert(options.ring == 0 && options.layout == KVG_LAYOUT_FLAT && options.memory == 3u << 20 && options.verify && options.json);
}
END_TEST

START_TEST(test_columns_follow_the_rounds_unless_they_are_given)
{
    static const struct { const char *words; uint32_t columns; } lines[] = {
        { "--spec 0", 2 }, { "--spec 1", 2 }, { "--spec 2", 3 }, { "--spec 3", 4 }, { "--spec 1024", 1025 }, { "--spec 3 --columns 2", 2 },
        { "--columns 3 --spec 3", 3 }, { "--columns 7", 7 }, { "--spec 3 --columns 4096", 4096 },
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        ReplayOptions options;
        char          line[80];
        snprintf(line, sizeof line, "--model m --trace t --mtp %s", lines[i].words);
        ck_assert_int_eq(parse(line, &options), KVG_OK);
        ck_assert_uint_eq(options.columns, lines[i].columns);
        ck_assert_int_eq(options.mtp, 1);
    }
}
END_TEST

START_TEST(test_the_vote_is_the_hosts_unless_it_is_named)
{
    static const struct { const char *words; ReplayVoteKind vote; } lines[] = {
        { "", REPLAY_VOTE_AUTO }, { "--vote auto", REPLAY_VOTE_AUTO }, { "--vote host", REPLAY_VOTE_HOST }, { "--vote=nccl", REPLAY_VOTE_NCCL },
        { "--vote device", REPLAY_VOTE_DEVICE }, { "--vote nccl --vote host", REPLAY_VOTE_HOST },
    };
    static const char *const wrong[] = { "--vote", "--vote NCCL", "--vote mpi", "--vote auto,host", "--vote=" };
    char line[128];
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        ReplayOptions options;
        snprintf(line, sizeof line, "--model m --trace t %s", lines[i].words);
        ck_assert_msg(parse(line, &options) == KVG_OK, "%s: %s", line, kvg_last_error());
        ck_assert_int_eq(options.vote, lines[i].vote);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ReplayOptions options;
        snprintf(line, sizeof line, "--model m --trace t %s", wrong[i]);
        ck_assert_msg(parse(line, &options) == KVG_EINVAL, "%s was taken", line);
    }
}
END_TEST

START_TEST(test_bad_use_is_refused_and_changes_nothing)
{
    static const char *const lines[] = {
        "", "--model m", "--trace t", "--model m --trace t --tp 0", "--model m --trace t --pp 0", "--model m --trace t --requests 0",
        "--model m --trace t --concurrency 0", "--model m --trace t --chunk 0", "--model m --trace t --spec -1",
        "--model m --trace t --spec 1025", "--model m --trace t --columns 1", "--model m --trace t --columns 0", "--model m --trace t --columns 4097", "--model m --trace t --layout ring", "--model m --trace t --ring yes",
        "--model m --trace t --memory 0", "--model m --trace t --memory lots", "--model m --trace t --format-k q9",
        "--model m --trace t --format-latent", "--model m --trace t --format-latent half",
        "--model m --trace t --wat",
        "--model m --trace t --ranks 2", "--model m --trace t --ranks 0", "--model m --trace t --ranks 4 --tp 2", "--model m --trace t --ranks 65 --tp 65",
        "--model m --trace t stray", "--model m --trace t --fault flip:1@step1", "--model m --trace t --fault flip:0@step0",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        ReplayOptions options = { .seed = 4711 };
        ck_assert_msg(parse(lines[i], &options) == KVG_EINVAL, "\"%s\" was taken", lines[i]);
        ck_assert_uint_eq(options.seed, 4711);
        ck_assert_uint_gt(strlen(kvg_last_error()), 0);
    }
}
END_TEST

START_TEST(test_fault_words_are_read_and_near_misses_are_not)
{
    ReplayFault fault = { 0 };
    ck_assert_int_eq(kvg_replay_fault_parse("flip:3@step12", &fault), KVG_OK);
    ck_assert(fault.kind == REPLAY_FAULT_FLIP && fault.rank == 3 && fault.step == 12);
    ck_assert_int_eq(kvg_replay_fault_parse("refuse:0@step1", &fault), KVG_OK);
    ck_assert(fault.kind == REPLAY_FAULT_REFUSE && fault.rank == 0 && fault.step == 1);
    ck_assert_int_eq(kvg_replay_fault_parse("oom:1@grow3", &fault), KVG_OK);
    ck_assert(fault.kind == REPLAY_FAULT_OOM && fault.rank == 1 && fault.step == 3);
    static const struct { const char *text; ReplayFaultKind kind; uint64_t ms; } timed[] = {
        { "kill:2@5s", REPLAY_FAULT_KILL, 5000 }, { "stall:2@4s", REPLAY_FAULT_STALL, 4000 }, { "exit:2@0s", REPLAY_FAULT_EXIT, 0 },
        { "kill:2@0.5s", REPLAY_FAULT_KILL, 500 }, { "kill:2@1.25s", REPLAY_FAULT_KILL, 1250 }, { "kill:2@0.001s", REPLAY_FAULT_KILL, 1 },
    };
    for (size_t i = 0; i < sizeof timed / sizeof *timed; i++) {
        ck_assert_int_eq(kvg_replay_fault_parse(timed[i].text, &fault), KVG_OK);
        ck_assert(fault.kind == timed[i].kind && fault.rank == 2 && fault.step == timed[i].ms && kvg_replay_fault_is_timed(&fault));
    }
    ck_assert_int_eq(kvg_replay_fault_parse("refuse:0@step1", &fault), KVG_OK);
    ck_assert(!kvg_replay_fault_is_timed(&fault));
    static const char *const wrong[] = { "kill:1@step3", "kill:1@5", "kill:1@.5s", "kill:1@5.s", "kill:1@0.0001s", "kill:1@-1s", "kill:1@5ss", "oom:1@step3",
                                         "oom:1@grow0", "oom:1@3s", "flip:1@3s", "stall:1@", "exit:@1s", "leave:1@1s", "", "flip", "flip:", "flip:1", "flip:1@step", "flip:1@step0", "flip:-1@step1", "flip:1@step-1",
                                         "flip:1@step1x", "flop:1@step1", "flip:1@stop1", " flip:1@step1", "refuse:1 @step1",
                                         "flip: 1@step1" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ck_assert_msg(kvg_replay_fault_parse(wrong[i], &fault) == KVG_EINVAL, "\"%s\" was taken", wrong[i]);
        ck_assert(fault.kind == REPLAY_FAULT_REFUSE && fault.rank == 0 && fault.step == 1);
    }
}
END_TEST

START_TEST(test_a_fault_that_a_run_outlives_is_told_in_the_words_that_asked_for_it)
{
    static const char *const said[][2] = {
        { "flip:3@step12", "flip:3@step12 struck: one stored bit of that rank is another, and so is the digest; --verify finds it" },
        { "refuse:0@step1", "refuse:0@step1 struck: that rank voted no; the step was rolled back on every rank and made again" },
        { "oom:1@grow3", "oom:1@grow3 struck: that rank had no memory to grow; the step was rolled back on every rank and made again" },
        { "kill:1@2.5s", "" }, { "exit:1@2s", "" }, { "stall:1@2s", "" },
    };
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        ReplayFault fault = { 0 };
        char        text[REPLAY_FAULT_WORDS];
        ck_assert_int_eq(kvg_replay_fault_parse(said[i][0], &fault), KVG_OK);
        ck_assert_str_eq(kvg_replay_fault_words(&fault, text), said[i][1]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("replay_options");
    TCase *cases = tcase_create("options");
    tcase_add_test(cases, test_the_defaults_are_one_rank_all_requests_and_no_drafts);
    tcase_add_test(cases, test_every_option_lands_in_its_place);
    tcase_add_test(cases, test_columns_follow_the_rounds_unless_they_are_given);
    tcase_add_test(cases, test_the_vote_is_the_hosts_unless_it_is_named);
    tcase_add_test(cases, test_bad_use_is_refused_and_changes_nothing);
    tcase_add_test(cases, test_fault_words_are_read_and_near_misses_are_not);
    tcase_add_test(cases, test_a_fault_that_a_run_outlives_is_told_in_the_words_that_asked_for_it);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed == 0 && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

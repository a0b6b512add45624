/* The embedding's tokens: the same on every grid, with drafts and without, however prompts are cut, whether the shared prompt is forked or computed anew, with
 * requests that are preempted and steps that are voted down; and the same as those of the transformer alone over plain arrays. */
#include "tests/embed/client.h"
#include "tests/embed/reference.h"

enum { ASKED = 10, MORE_MAX = 48 };

/* 150 tokens: two full chunks, which forks share, and 22 rows of a third, which they copy. */
static const char shared_prompt[] = "you are a helpful cat that sits on a mat and answers every question of the dog with patience, whatever the weather "
                                    "is, and you never run, not even now";
_Static_assert(sizeof shared_prompt - 1 == 150, "as said");

static const struct {
    const char *prompt;
    uint32_t    repeat, more;
    int         system;
} asked[ASKED] = {
    { "a", 1, 1, 0 },                 { "the cat sat on ", 1, 30, 1 }, { "rain rain go away ", 5, 12, 0 }, { "x", 1, 2, 1 },
    { "0123456789abcdef", 2, 9, 0 },  { "why? ", 1, 40, 1 },           { "the mat the mat ", 5, 20, 1 },   { "one two three ", 2, 12, 0 },
    { "z", 63, 9, 0 },                { "dog", 1, 24, 1 },
};

typedef struct Answers {
    uint16_t token[ASKED][MORE_MAX];
    uint32_t count[ASKED];
    int      done[ASKED];
    uint64_t bits;     /* over all residuals that tokens were taken from */
    json_t  *summary;
} Answers;

static Answers expected[2]; /* by the reference: bf16, and q8_0 with q5_1 */

static void expect(Answers *answers, KvFormat format_k, KvFormat format_v)
{
    Reference *reference = reference_create(1, format_k, format_v);

    for (int i = 0; i < ASKED; i++) {
        uint16_t tokens[MODEL_CONTEXT];
        uint32_t count = 0;
        for (const char *at = shared_prompt; asked[i].system && *at != '\0'; at++) tokens[count++] = (uint8_t)*at;
        for (uint32_t turn = 0; turn < asked[i].repeat; turn++) {
            for (const char *at = asked[i].prompt; *at != '\0'; at++) tokens[count++] = (uint8_t)*at;
        }
        reference_serve(reference, tokens, count, asked[i].more);
        memcpy(answers->token[i], tokens + count, asked[i].more * sizeof *tokens);
        answers->count[i] = asked[i].more;
        answers->done[i] = 1;
    }
    answers->bits = reference->bits;
    reference_free(reference);
}

static void take_answer(const json_t *line, Answers *answers)
{
    const json_t *tokens = json_object_get(line, "tokens");
    const int     i = atoi(client_text(line, "id"));

    ck_assert_msg(json_array_size(tokens) > 0 && i >= 0 && i < ASKED && !answers->done[i], "an answer of request %d is not expected", i);
    for (size_t at = 0; at < json_array_size(tokens) && answers->count[i] < MORE_MAX; at++) {
        answers->token[i][answers->count[i]++] = (uint16_t)json_integer_value(json_array_get(tokens, at));
    }
    answers->done[i] = json_is_true(json_object_get(line, "done"));
}

/* Asks everything at once and waits for the end; the summary is the caller's. */
static void serve(const char *arguments, Answers *answers)
{
    char    all[256];
    Client *client;

    memset(answers, 0, sizeof *answers);
    snprintf(all, sizeof all, "--summary %s", arguments);
    client = client_start(all, shared_prompt);
    for (int i = 0; i < ASKED; i++) {
        client_say(client, "{\"id\": \"%d\", \"max_tokens\": %u, \"system\": %s, \"prompt\": \"", i, asked[i].more, asked[i].system ? "true" : "false");
        for (uint32_t turn = 0; turn < asked[i].repeat; turn++) client_say(client, "%s", asked[i].prompt);
        client_say(client, "\"}\n");
    }
    client_hang_up(client);
    for (json_t *line; (line = client_line(client)) != NULL; json_decref(line)) {
        if (json_object_get(line, "summary") != NULL) answers->summary = json_incref(line);
        else take_answer(line, answers);
    }
    ck_assert_int_eq(client_end(client), 0);
    ck_assert_msg(answers->summary != NULL, "%s: no summary", arguments);
}

/* Serves, compares with the reference, sees that nothing is booked at the end; gives the summary's number `key`. */
static double compare(const char *arguments, const Answers *with, const char *key)
{
    static Answers answers;
    double         number;

    serve(arguments, &answers);
    for (int i = 0; i < ASKED; i++) {
        ck_assert_msg(answers.done[i] && answers.count[i] == with->count[i] && memcmp(answers.token[i], with->token[i], with->count[i] * sizeof(uint16_t)) == 0,
                      "%s: request %d has other tokens than the reference", arguments, i);
    }
    ck_assert_msg((uint64_t)client_number(answers.summary, "bits") == with->bits, "%s: the tokens are right, and their residuals are not the same bits", arguments);
    ck_assert_msg(client_number(answers.summary, "booked_bytes") == 0, "%s: bytes are still booked", arguments);
    ck_assert_double_eq(client_number(answers.summary, "served"), ASKED);
    number = client_number(answers.summary, key);
    json_decref(answers.summary);
    return number;
}

START_TEST(test_every_grid_gives_the_reference_tokens)
{
    static const char *const grids[] = { "", "--tp 2", "--pp 2", "--tp 2 --pp 2", "--tp 4", "--tp 8", "--pp 4 --lanes 8 --places 2" };

    ck_assert_double_eq(compare(grids[_i], &expected[0], "kept"), 0);
}
END_TEST

START_TEST(test_whatever_the_workers_meet_by_gives_the_same_tokens)
{
    static const char *const grids[] = { "--transport callback", "--transport callback --tp 2 --pp 2 --spec 3", "--transport tcp", "--transport tcp --tp 2 --pp 2",
                                         "--transport shm" };

    compare(grids[_i], &expected[0], "steps");
}
END_TEST

START_TEST(test_drafts_change_no_token_and_some_are_kept)
{
    static const char *const grids[] = { "--spec 3", "--tp 2 --spec 3", "--pp 2 --spec 3", "--tp 2 --pp 2 --spec 3", "--tp 4 --spec 3", "--spec 1", "--spec 8" };

    ck_assert_double_gt(compare(grids[_i], &expected[0], "kept"), 0);
}
END_TEST

START_TEST(test_chunks_of_any_size_give_the_same_tokens)
{
    static const char *const chunks[] = { "--chunk 1", "--chunk 7 --spec 3", "--chunk 63", "--chunk 65 --pp 2", "--chunk 512 --places 16", "--places 1 --spec 2" };

    compare(chunks[_i], &expected[0], "steps");
}
END_TEST

START_TEST(test_the_shared_prompt_is_forked_or_computed_anew_with_the_same_tokens)
{
    ck_assert_double_eq(compare("--no-fork", &expected[0], "forked"), 0);
    ck_assert_double_eq(compare("--tp 2 --pp 2 --places 16", &expected[0], "forked"), 5);
}
END_TEST

/* Room for the shared prompt and a little more: what grows takes chunks from the youngest. */
START_TEST(test_preempted_requests_are_computed_again_with_the_same_tokens)
{
    static const char *const grids[] = { "--memory 1000000", "--memory 1000000 --spec 3 --chunk 16", "--memory 280000 --tp 2 --pp 2 --places 5 --spec 3",
                                         "--memory 460000 --pp 2 --lanes 4 --chunk 8" };

    ck_assert_double_gt(compare(grids[_i], &expected[0], "preempted"), 0);
}
END_TEST

START_TEST(test_blocks_give_the_tokens_of_the_decoded_planes)
{
    static const char *const grids[] = { "--format-k q8_0 --format-v q5_1", "--format-k q8_0 --format-v q5_1 --tp 2 --pp 2 --spec 3" };

    compare(grids[_i], &expected[1], "steps");
}
END_TEST

START_TEST(test_a_step_that_a_rank_votes_down_is_staged_again)
{
    static const char *const ranks[] = { "--refuse 0@5", "--tp 2 --pp 2 --refuse 0@5", "--tp 2 --pp 2 --spec 3 --refuse 3@9" };

    ck_assert_double_eq(compare(ranks[_i], &expected[0], "refused"), 1);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("embed tokens");
    TCase   *tcase = tcase_create("tokens");
    SRunner *sr;

    expect(&expected[0], KVG_BF16, KVG_BF16);
    expect(&expected[1], KVG_Q8_0, KVG_Q5_1);
    tcase_set_timeout(tcase, 2 * CLIENT_MS / 1000);
    tcase_add_loop_test(tcase, test_every_grid_gives_the_reference_tokens, 0, 7);
    tcase_add_loop_test(tcase, test_whatever_the_workers_meet_by_gives_the_same_tokens, 0, 5);
    tcase_add_loop_test(tcase, test_drafts_change_no_token_and_some_are_kept, 0, 7);
    tcase_add_loop_test(tcase, test_chunks_of_any_size_give_the_same_tokens, 0, 6);
    tcase_add_test(tcase, test_the_shared_prompt_is_forked_or_computed_anew_with_the_same_tokens);
    tcase_add_loop_test(tcase, test_preempted_requests_are_computed_again_with_the_same_tokens, 0, 4);
    tcase_add_loop_test(tcase, test_blocks_give_the_tokens_of_the_decoded_planes, 0, 2);
    tcase_add_loop_test(tcase, test_a_step_that_a_rank_votes_down_is_staged_again, 0, 3);
    suite_add_tcase(suite, tcase);
    sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr), run = srunner_ntests_run(sr);
    srunner_free(sr);
    return failed == 0 && run > 0 ? 0 : 1;
}

/* The embedding when something goes wrong: clients that abort, write nonsense or go away, requests that never fit, workers that are killed or stopped. */
#include "tests/embed/client.h"

enum { RANKS_MAX = 4, PEER_MS = 1000, SILENT_MS = 600 };

/* A request that runs for long: the context is 1024. */
static void ask_long(Client *client, const char *id)
{
    client_say(client, "{\"id\": \"%s\", \"prompt\": \"go on and on\", \"max_tokens\": 1000}\n", id);
}

/* The first line that has `key`; lines of tokens are passed over. */
static json_t *line_with(Client *client, const char *key)
{
    json_t *line;

    while ((line = client_line(client)) != NULL && json_object_get(line, key) == NULL) {
        ck_assert_msg(json_object_get(line, "tokens") != NULL, "an unexpected line before one with %s", key);
        json_decref(line);
    }
    ck_assert_msg(line != NULL, "the answers end before one with %s", key);
    return line;
}

static void check_line(Client *client, const char *key, const char *id, const char *words)
{
    json_t *line = line_with(client, key);

    ck_assert_msg(strcmp(client_text(line, "id"), id) == 0 && strstr(json_is_string(json_object_get(line, key)) ? client_text(line, key) : "", words) != NULL,
                  "%s of \"%s\" with \"%s\" was expected, not \"%s\": \"%s\"", key, id, words, client_text(line, "id"), client_text(line, key));
    json_decref(line);
}

/* ---- clients */

START_TEST(test_an_abort_in_the_middle_of_steps_gives_all_chunks_back)
{
    static const char *const grids[] = { "--summary", "--summary --tp 2 --pp 2 --spec 3" };
    Client                  *client = client_start(grids[_i], NULL);
    json_t                  *summary;

    for (int round = 0; round < 5; round++) {
        ask_long(client, "long");
        ask_long(client, "other");
        json_decref(line_with(client, "tokens")); /* it runs, and its next step is on the way */
        client_say(client, "{\"abort\": \"long\"}\n{\"abort\": \"other\"}\n");
        check_line(client, "aborted", "long", "");
        check_line(client, "aborted", "other", "");
    }
    client_say(client, "{\"id\": \"after\", \"prompt\": \"ab\", \"max_tokens\": 3}\n{\"abort\": \"long\"}\n");
    check_line(client, "error", "long", "no request of that id is open");
    check_line(client, "done", "after", "");
    client_hang_up(client);
    summary = line_with(client, "summary");
    ck_assert_double_eq(client_number(summary, "aborted"), 10);
    ck_assert_double_eq(client_number(summary, "served"), 1);
    ck_assert_double_eq(client_number(summary, "booked_bytes"), 0);
    json_decref(summary);
    ck_assert_int_eq(client_end(client), 0);
}
END_TEST

START_TEST(test_bad_lines_are_answered_and_the_next_is_served)
{
    static const struct {
        const char *line, *id, *words;
    } bad[] = {
        { "nonsense", "", "no JSON object" },
        { "[1]", "", "no JSON object" },
        { "{\"id\": \"a\"", "", "no JSON object" },
        { "{\"id\": \"a\", \"id\": \"b\", \"prompt\": \"x\"}", "", "no JSON object" },
        { "{\"prompt\": \"x\"}", "", "\"id\" is wanted" },
        { "{\"id\": \"\", \"prompt\": \"x\"}", "", "\"id\" is wanted" },
        { "{\"id\": \"a\"}", "a", "\"prompt\" is wanted" },
        { "{\"id\": \"a\", \"prompt\": \"\"}", "a", "\"prompt\" is empty" },
        { "{\"id\": \"a\", \"prompt\": []}", "a", "\"prompt\" is empty" },
        { "{\"id\": \"a\", \"prompt\": [0, 255, 256]}", "a", "element 2 is no token" },
        { "{\"id\": \"a\", \"prompt\": [-1]}", "a", "element 0 is no token" },
        { "{\"id\": \"a\", \"prompt\": [1.5]}", "a", "element 0 is no token" },
        { "{\"id\": \"a\", \"prompt\": \"x\", \"max_tokens\": 0}", "a", "\"max_tokens\"" },
        { "{\"id\": \"a\", \"prompt\": \"x\", \"max_tokens\": 65536}", "a", "\"max_tokens\"" },
        { "{\"id\": \"a\", \"prompt\": \"x\", \"system\": 1}", "a", "\"system\"" },
        { "{\"id\": \"a\", \"prompt\": \"x\", \"system\": true}", "a", "no shared prompt" },
        { "{\"id\": \"a\", \"prompt\": \"x\", \"temperature\": 1}", "a", "\"temperature\" is no field" },
        { "{\"abort\": 7}", "", "names no request" },
        { "{\"abort\": \"nobody\"}", "nobody", "no request of that id" },
        { "{\"id\": \"a\", \"prompt\": \"x\", \"max_tokens\": 1024}", "a", "more than the context of 1024" },
    };
    Client *client = client_start("", NULL);

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        client_say(client, "%s\n", bad[i].line);
        check_line(client, "error", bad[i].id, bad[i].words);
    }
    client_say(client, "\n   \t\r\n{\"id\": \"good\", \"prompt\": \"x\", \"max_tokens\": 2}"); /* no newline: the end is one */
    client_hang_up(client);
    check_line(client, "done", "good", "");
    ck_assert_int_eq(client_end(client), 0);
}
END_TEST

START_TEST(test_a_line_without_end_is_skipped_and_the_next_is_served)
{
    static char longest[(64 << 10) + 1];
    Client     *client = client_start("", NULL);

    memset(longest, 'x', sizeof longest - 1);
    for (int part = 0; part < 5; part++) client_say(client, "%s", longest);
    client_say(client, "\n{\"id\": \"good\", \"prompt\": \"x\", \"max_tokens\": 2}\n");
    check_line(client, "error", "", "a line has more than 65536 bytes");
    client_hang_up(client);
    check_line(client, "done", "good", "");
    ck_assert_int_eq(client_end(client), 0);
}
END_TEST

START_TEST(test_what_never_fits_is_refused_by_name_and_others_go_on)
{
    Client *client = client_start("--memory 500000 --summary", NULL); /* three chunks of 64 rows */
    json_t *summary;

    client_say(client, "{\"id\": \"large\", \"prompt\": \"x\", \"max_tokens\": 192}\n{\"id\": \"fits\", \"prompt\": \"x\", \"max_tokens\": 191}\n");
    client_say(client, "{\"id\": \"fits\", \"prompt\": \"x\"}\n");
    check_line(client, "error", "large", "it never fits");
    check_line(client, "error", "fits", "open already");
    client_hang_up(client);
    check_line(client, "done", "fits", "");
    summary = line_with(client, "summary");
    ck_assert_double_eq(client_number(summary, "errors"), 2);
    ck_assert_double_eq(client_number(summary, "booked_bytes"), 0);
    json_decref(summary);
    ck_assert_int_eq(client_end(client), 0);
}
END_TEST

START_TEST(test_a_client_that_goes_away_ends_the_frontend_and_its_workers)
{
    pid_t   pids[RANKS_MAX];
    Client *client = client_start("--tp 2 --pp 2", NULL);

    ask_long(client, "long");
    json_decref(line_with(client, "tokens"));
    ck_assert_int_eq(client_workers(client, pids, RANKS_MAX), 4);
    close(client->out);
    client->out = open("/dev/null", O_RDONLY);
    ck_assert_int_eq(client_end(client), 1);
    ck_assert(client_are_gone(pids, 4));
}
END_TEST

/* Requests whose answers are more than a pipe takes. */
static void ask_much(Client *client)
{
    for (int i = 0; i < 40; i++) client_say(client, "{\"id\": \"%d\", \"prompt\": \"go on and on\", \"max_tokens\": 150}\n", i);
}

static Client *start_impatient(const char *arguments)
{
    Client *client;

    setenv("KVGRID_TIMEOUT_MS", "400", 1);
    setenv("KVGRID_PEER_MS", "300", 1);
    client = client_start(arguments, NULL);
    unsetenv("KVGRID_TIMEOUT_MS");
    unsetenv("KVGRID_PEER_MS");
    return client;
}

/* Its outcomes waited in the sockets longer than any step may take, because nobody read or because the frontend was stopped; nothing is wrong with the workers. */
START_TEST(test_a_client_that_reads_late_and_a_frontend_that_was_stopped_lose_nothing)
{
    Client *client = start_impatient("--pp 2");
    json_t *line;
    int     done = 0;

    ask_much(client);
    client_hang_up(client);
    if (_i > 0) {
        json_decref(line_with(client, "tokens"));
        kill(client->pid, SIGSTOP);
    }
    nanosleep(&(struct timespec){ .tv_sec = 1, .tv_nsec = 200000000 }, NULL);
    if (_i > 0) kill(client->pid, SIGCONT);
    while ((line = client_line(client)) != NULL) {
        ck_assert_msg(json_object_get(line, "fault") == NULL, "%s", client_text(line, "fault"));
        done += json_is_true(json_object_get(line, "done"));
        json_decref(line);
    }
    ck_assert_int_eq(done, 40);
    ck_assert_int_eq(client_end(client), 0);
}
END_TEST

START_TEST(test_a_frontend_whose_client_has_stopped_reading_can_be_asked_to_stop)
{
    pid_t   pids[RANKS_MAX];
    Client *client = client_start("--pp 2", NULL);
    int     status = 0, waited_ms = 0;

    ck_assert_int_ge(fcntl(client->out, F_SETPIPE_SZ, 4096), 4096);
    ask_much(client);
    nanosleep(&(struct timespec){ .tv_sec = 1 }, NULL); /* the pipe is full, and stays so */
    ck_assert_int_eq(client_workers(client, pids, RANKS_MAX), 2);
    kill(client->pid, SIGTERM);
    for (; waitpid(client->pid, &status, WNOHANG | WNOWAIT) == 0 && waited_ms < 10000; waited_ms += 10) nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    ck_assert_int_lt(waited_ms, 10000);
    ck_assert_int_eq(client_end(client), 1);
    ck_assert(client_are_gone(pids, 2));
}
END_TEST

/* A job's end sends it to everybody: workers are needed until all is told and given back. */
START_TEST(test_workers_leave_the_end_to_their_frontend)
{
    pid_t   pids[RANKS_MAX];
    Client *client = client_start("--pp 2 --summary", NULL);
    json_t *summary;

    ask_long(client, "long");
    json_decref(line_with(client, "tokens"));
    ck_assert_int_eq(client_workers(client, pids, RANKS_MAX), 2);
    for (int i = 0; i < 2; i++) kill(pids[i], SIGTERM);
    kill(client->pid, SIGTERM);
    check_line(client, "error", "long", "asked to stop");
    summary = line_with(client, "summary");
    ck_assert_double_eq(client_number(summary, "booked_bytes"), 0);
    json_decref(summary);
    ck_assert_int_eq(client_end(client), 0);
}
END_TEST

START_TEST(test_closed_and_unreadable_standard_files_are_no_workers_sockets)
{
    static const struct {
        const char *files, *transport;
        int         status;
    } cases[] = { { "</", "shm", 1 }, { "<&-", "shm", 0 }, { "<&- 2>&-", "tcp", 0 }, { ">&-", "shm", 1 }, { ">&- 2>&-", "tcp", 1 } };
    char command[400];

    snprintf(command, sizeof command, "echo '{\"id\": \"1\", \"prompt\": \"x\"}' | { timeout 20 %s/kvgrid_embed --tp 2 --transport %s %s; }%s", KVG_BUILD_DIR,
             cases[_i].transport, cases[_i].files, strchr(cases[_i].files, '>') == NULL || cases[_i].files[0] == '<' ? " > /dev/null" : "");
    ck_assert_int_eq(WEXITSTATUS(system(command)), cases[_i].status);
}
END_TEST

/* A full disk; nothing to write to; a client that went away, which is no news to anybody. */
START_TEST(test_answers_that_cannot_be_written_are_told_on_stderr_once)
{
    static const struct {
        const char *out, *says;
    } cases[] = { { "> /dev/full", "kvgrid_embed: the answers cannot be written: No space left on device\n" },
                  { ">&-", "kvgrid_embed: the answers cannot be written: Bad file descriptor\n" },
                  { "| true", "" } };
    char  command[400], said[400] = "";
    FILE *pipe;

    snprintf(command, sizeof command, "exec 2>&1 3>&1; { echo '{\"id\": \"1\", \"prompt\": \"x\", \"max_tokens\": 9}' | { timeout 20 %s/kvgrid_embed --tp 2 2>&3; } %s; }",
             KVG_BUILD_DIR, cases[_i].out);
    pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    said[fread(said, 1, sizeof said - 1, pipe)] = '\0';
    pclose(pipe);
    ck_assert_str_eq(said, cases[_i].says);
}
END_TEST

START_TEST(test_a_frontend_that_is_asked_to_stop_tells_its_clients)
{
    pid_t   pids[RANKS_MAX];
    Client *client = client_start("--pp 2 --summary", _i == 0 ? NULL : "a shared prompt");
    json_t *summary;

    ask_long(client, "long");
    json_decref(line_with(client, "tokens"));
    ck_assert_int_eq(client_workers(client, pids, RANKS_MAX), 2);
    kill(client->pid, SIGTERM);
    check_line(client, "error", "long", "asked to stop");
    summary = line_with(client, "summary");
    ck_assert_double_eq(client_number(summary, "booked_bytes"), 0);
    json_decref(summary);
    ck_assert_int_eq(client_end(client), 0);
    ck_assert(client_are_gone(pids, 2));
}
END_TEST

/* ---- workers */

/* What the frontend says once rank `rank` has been sent `signal_number`: one line that names it, an error for each who waits, exit status 1, nobody left. */
static void lose(Client *client, int rank, int ranks, int signal_number, uint64_t within_ms)
{
    pid_t    pids[RANKS_MAX];
    uint64_t from_ms;
    json_t  *line;

    ask_long(client, "a");
    ask_long(client, "b");
    json_decref(line_with(client, "tokens"));
    ck_assert_int_eq(client_workers(client, pids, RANKS_MAX), ranks);
    from_ms = client_now_ms();
    kill(pids[rank], signal_number);
    line = line_with(client, "fault");
    ck_assert_msg(json_integer_value(json_object_get(line, "rank")) == rank, "rank %d was lost, and this was said: %s", rank, client_text(line, "fault"));
    json_decref(line);
    check_line(client, "error", "a", "a worker was lost");
    check_line(client, "error", "b", "a worker was lost");
    ck_assert_msg((line = client_line(client)) == NULL, "something is said after the last error");
    ck_assert_int_eq(client_end(client), 1);
    ck_assert_uint_le(client_now_ms() - from_ms, within_ms);
    ck_assert(client_are_gone(pids, ranks));
}

START_TEST(test_a_worker_that_is_killed_is_named_and_nothing_is_left)
{
    static const char *const transports[] = { "--tp 2 --pp 2 --spec 2", "--tp 2 --pp 2 --transport callback", "--tp 2 --pp 2 --transport tcp" };

    setenv("KVGRID_PEER_MS", "1000", 1);
    lose(client_start(transports[_i / 4], NULL), _i % 4, 4, SIGKILL, PEER_MS + 1000);
}
END_TEST

START_TEST(test_the_only_worker_that_is_killed_is_named)
{
    lose(client_start("", NULL), 0, 1, SIGKILL, PEER_MS + 1000);
}
END_TEST

START_TEST(test_an_idle_worker_that_is_killed_is_named)
{
    Client *client = client_start("--tp 2", NULL);
    pid_t   pids[RANKS_MAX];
    json_t *line;

    client_say(client, "{\"id\": \"a\", \"prompt\": \"x\", \"max_tokens\": 1}\n");
    check_line(client, "done", "a", "");
    ck_assert_int_eq(client_workers(client, pids, RANKS_MAX), 2);
    kill(pids[1], SIGKILL);
    line = line_with(client, "fault");
    ck_assert_int_eq(json_integer_value(json_object_get(line, "rank")), 1);
    json_decref(line);
    ck_assert_int_eq(client_end(client), 1);
    ck_assert(client_are_gone(pids, 2));
}
END_TEST

START_TEST(test_a_worker_that_is_stopped_is_named_at_the_deadline)
{
    static const char *const grids[] = { "", "--tp 2", "--pp 2" };
    const int                ranks = _i == 0 ? 1 : 2;

    setenv("KVGRID_TIMEOUT_MS", "600", 1);
    lose(client_start(grids[_i], NULL), ranks - 1, ranks, SIGSTOP, SILENT_MS + 2 * PEER_MS + 1000);
}
END_TEST

START_TEST(test_no_worker_outlives_a_frontend_that_is_killed)
{
    Client *client = client_start("--tp 2 --pp 2", NULL);
    pid_t   pids[RANKS_MAX];

    ask_long(client, "long");
    json_decref(line_with(client, "tokens"));
    ck_assert_int_eq(client_workers(client, pids, RANKS_MAX), 4);
    kill(client->pid, SIGKILL);
    ck_assert_int_eq(client_end(client), -SIGKILL);
    ck_assert(client_are_gone(pids, 4));
}
END_TEST

START_TEST(test_a_grid_that_cannot_be_placed_is_said_so)
{
    static const char *const wrong[] = { "--memory 1", "--memory 1000" };
    Client                  *client = client_start(wrong[_i], NULL);
    json_t                  *line = line_with(client, "fault");

    ck_assert_msg(strlen(client_text(line, "fault")) > 20, "%s", client_text(line, "fault"));
    json_decref(line);
    ck_assert_int_eq(client_end(client), 1);
}
END_TEST

START_TEST(test_wrong_arguments_are_refused)
{
    static const char *const wrong[] = { "--tp 0", "--tp", "--tp 2x", "--lanes 3", "--chunk 513", "--spec 9", "--format-k q9", "--transport pigeon", "--what",
                                         "--tp 3", "--tp 5 --pp 4", "--refuse 2@1 --tp 2", "--refuse -1@1", "--refuse 0@1x", "--seed 18446744073709551616" };
    static char              text[1026];

    ck_assert_int_eq(client_end(client_start(wrong[_i], NULL)), 2);
    memset(text, 'x', sizeof text - 1); /* the model's context has 1024 */
    if (_i == 0) ck_assert_int_eq(client_end(client_start("", text)), 2);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("embed faults");
    TCase   *tcase = tcase_create("faults");
    SRunner *sr;

    tcase_set_timeout(tcase, 2 * CLIENT_MS / 1000);
    tcase_add_loop_test(tcase, test_an_abort_in_the_middle_of_steps_gives_all_chunks_back, 0, 2);
    tcase_add_test(tcase, test_bad_lines_are_answered_and_the_next_is_served);
    tcase_add_test(tcase, test_a_line_without_end_is_skipped_and_the_next_is_served);
    tcase_add_test(tcase, test_what_never_fits_is_refused_by_name_and_others_go_on);
    tcase_add_test(tcase, test_a_client_that_goes_away_ends_the_frontend_and_its_workers);
    tcase_add_loop_test(tcase, test_a_client_that_reads_late_and_a_frontend_that_was_stopped_lose_nothing, 0, 4);
    tcase_add_test(tcase, test_a_frontend_whose_client_has_stopped_reading_can_be_asked_to_stop);
    tcase_add_test(tcase, test_workers_leave_the_end_to_their_frontend);
    tcase_add_loop_test(tcase, test_closed_and_unreadable_standard_files_are_no_workers_sockets, 0, 5);
    tcase_add_loop_test(tcase, test_answers_that_cannot_be_written_are_told_on_stderr_once, 0, 3);
    tcase_add_loop_test(tcase, test_a_frontend_that_is_asked_to_stop_tells_its_clients, 0, 2);
    tcase_add_loop_test(tcase, test_a_worker_that_is_killed_is_named_and_nothing_is_left, 0, 12);
    tcase_add_test(tcase, test_the_only_worker_that_is_killed_is_named);
    tcase_add_test(tcase, test_an_idle_worker_that_is_killed_is_named);
    tcase_add_loop_test(tcase, test_a_worker_that_is_stopped_is_named_at_the_deadline, 0, 3);
    tcase_add_test(tcase, test_no_worker_outlives_a_frontend_that_is_killed);
    tcase_add_loop_test(tcase, test_a_grid_that_cannot_be_placed_is_said_so, 0, 2);
    tcase_add_loop_test(tcase, test_wrong_arguments_are_refused, 0, 15);
    suite_add_tcase(suite, tcase);
    sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr), run = srunner_ntests_run(sr);
    srunner_free(sr);
    return failed == 0 && run > 0 ? 0 : 1;
}

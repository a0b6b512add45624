/* The built command, but for what `plan` answers: help, doctor, knobs, and that it speaks once. */
#include "tests/launch/command_run.h"

START_TEST(test_command_help_and_version)
{
    int  major, minor, patch;
    char after;

    ck_assert_int_eq(run("--version"), 0);
    ck_assert_int_eq(sscanf(out, "kvgrid %d.%d.%d%c", &major, &minor, &patch, &after), 4);
    ck_assert_int_eq(after, '\n');
    ck_assert_int_eq(run("--help"), 0);
    ck_assert_ptr_nonnull(strstr(out, "plan"));
    ck_assert_ptr_nonnull(strstr(out, "doctor"));
    ck_assert_int_eq(run("plan --help"), 0);
    ck_assert_ptr_nonnull(strstr(out, "--device-memory"));
    ck_assert_str_eq(err, "");
    ck_assert_int_eq(run(""), 2);
    ck_assert_str_eq(out, "");
}
END_TEST

/* On a terminal of 120 columns, with what begins a line of its own in view. */
START_TEST(test_command_help_has_short_lines_and_says_how_to_call_each_part)
{
    static const char *const parts[] = { "plan", "replay", "doctor", "knobs" };
    char                     asked[32], usage[32];

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        snprintf(asked, sizeof asked, "%s --help", parts[i]);
        snprintf(usage, sizeof usage, "usage: kvgrid %s", parts[i]);
        ck_assert_int_eq(run(asked), 0);
        ck_assert_int_eq(strncmp(out, usage, strlen(usage)), 0);
        for (const char *line = out; *line != '\0'; line += strcspn(line, "\n") + 1) {
            ck_assert_msg(strcspn(line, "\n") <= 120, "kvgrid %s: %.*s", asked, (int)strcspn(line, "\n"), line);
        }
    }
}
END_TEST

START_TEST(test_command_speaks_once_not_once_a_rank)
{
    ck_assert_int_eq(setenv("OMPI_COMM_WORLD_RANK", "1", 1), 0);
    ck_assert_int_eq(run_model("llama-3.1-8b", "--tp 3"), 2);
    ck_assert_str_eq(err, "");
    ck_assert_int_eq(run_model("llama-3.1-8b", "--tp 2 --json"), 0);
    ck_assert_str_eq(out, "");
    ck_assert_int_eq(setenv("OMPI_COMM_WORLD_RANK", "0", 1), 0);
    ck_assert_int_eq(run_model("llama-3.1-8b", "--tp 3"), 2);
    ck_assert_str_ne(err, "");
    ck_assert_int_eq(unsetenv("OMPI_COMM_WORLD_RANK"), 0);
}
END_TEST

START_TEST(test_command_doctor_has_a_line_a_check)
{
    int lines = 0;

    ck_assert_msg(run("doctor") == 0, "%s%s", out, err);
    for (char *line = strtok(out, "\n"); line != NULL; line = strtok(NULL, "\n"), lines++) {
        ck_assert_msg(strncmp(line, "ok ", 3) == 0 || strncmp(line, "warn ", 5) == 0, "%s", line);
    }
    ck_assert_int_ge(lines, 12);
    ck_assert_int_eq(setenv("KVGRID_KV_K", "q3_9", 1), 0);
    ck_assert_int_eq(run("doctor"), 1);
    ck_assert_ptr_nonnull(strstr(out, "FAIL  knobs"));
    ck_assert_int_eq(unsetenv("KVGRID_KV_K"), 0);
    static const char *const strange[] = { "KVGRID_SWA_RINGS", "KVGRID_", "MEMRA_KV", "MEMRA_TIMEOUT_MS" }; /* the last has no alias */
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        char sentence[80];

        snprintf(sentence, sizeof sentence, "warn  knobs       %s is set and is no knob", strange[i]);
        ck_assert_int_eq(setenv(strange[i], "1", 1), 0);
        ck_assert_int_eq(run("doctor"), 0);
        ck_assert_int_eq(unsetenv(strange[i]), 0);
        ck_assert_msg(strstr(out, sentence) != NULL, "%s: %s", strange[i], out);
    }
    ck_assert_int_eq(setenv("KVGRID_DSA_INDEX_RING", "many", 1), 0);
    ck_assert_int_eq(run("doctor"), 0);
    ck_assert_int_eq(unsetenv("KVGRID_DSA_INDEX_RING"), 0);
    ck_assert_ptr_nonnull(strstr(out, "warn  knobs       KVGRID_DSA_INDEX_RING is \"many\""));
    ck_assert_int_eq(setenv("MEMRA_SWA_RING", "1", 1), 0);
    ck_assert_int_eq(run("doctor"), 0);
    ck_assert_int_eq(unsetenv("MEMRA_SWA_RING"), 0);
    ck_assert_ptr_nonnull(strstr(out, "ok    knobs"));
    ck_assert_int_eq(setenv("SLURM_NTASKS", "4", 1), 0); /* B96 */
    ck_assert_int_eq(setenv("SLURM_STEP_ID", "0", 1), 0);
    ck_assert_int_eq(run("doctor"), 1);
    ck_assert_ptr_nonnull(strstr(out, "FAIL  SLURM       SLURM_NTASKS is 4 but MPI counts 1 rank"));
    ck_assert_ptr_nonnull(strstr(out, "--mpi=pmix"));
    ck_assert_int_eq(unsetenv("SLURM_STEP_ID"), 0);
    ck_assert_int_eq(run("doctor"), 0);
    ck_assert_ptr_nonnull(strstr(out, "ok    SLURM       SLURM_NTASKS is 4, in the job's shell"));
    char leaks[256] = ""; /* as a rank doctor asks MPI, which keeps memory to its end */
    if (getenv("ASAN_OPTIONS") != NULL) {
        snprintf(leaks, sizeof leaks, "%s", getenv("ASAN_OPTIONS"));
    }
    ck_assert_int_eq(setenv("ASAN_OPTIONS", "detect_leaks=0", 1), 0);
    ck_assert_int_eq(setenv("OMPI_COMM_WORLD_SIZE", "3", 1), 0);
    ck_assert_int_eq(run("doctor"), 0);
    ck_assert_ptr_nonnull(strstr(out, "warn  SLURM       SLURM_NTASKS is 4 and mpirun started 3 ranks"));
    ck_assert_int_eq(setenv("OMPI_COMM_WORLD_SIZE", "4", 1), 0);
    ck_assert_int_eq(run("doctor"), 0);
    ck_assert_ptr_nonnull(strstr(out, "ok    SLURM       SLURM_NTASKS is 4\n"));
    ck_assert_int_eq(unsetenv("OMPI_COMM_WORLD_SIZE"), 0);
    ck_assert_int_eq(setenv("ASAN_OPTIONS", leaks, 1), 0);
    ck_assert_int_eq(unsetenv("SLURM_NTASKS"), 0);
    check_refused("doctor --verbose", 2, "there is no option --verbose");
}
END_TEST

START_TEST(test_command_knobs_show_value_and_source)
{
    ck_assert_int_eq(setenv("MEMRA_KV_V", "q8_0", 1), 0);
    ck_assert_int_eq(run("knobs"), 0);
    ck_assert_int_eq(unsetenv("MEMRA_KV_V"), 0);
    char *line = strstr(out, "KVGRID_KV_V");
    ck_assert_ptr_nonnull(line);
    *strchr(line, '\n') = '\0';
    ck_assert_ptr_nonnull(strstr(line, "q8_0"));
    ck_assert_ptr_nonnull(strstr(line, "MEMRA_KV_V"));
    ck_assert_int_eq(setenv("KVGRID_TIMEOUT_MS", "soon", 1), 0);
    ck_assert_int_eq(run("knobs"), 2);
    ck_assert_int_eq(unsetenv("KVGRID_TIMEOUT_MS"), 0);
    ck_assert_ptr_nonnull(strstr(err, "KVGRID_TIMEOUT_MS"));
    ck_assert_ptr_nonnull(strstr(out, "soon")); /* shown as it stands */
    ck_assert_ptr_nonnull(strstr(out, "(this value cannot be read)"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("command");
    TCase *tcase = tcase_create("command");

    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_command_help_and_version);
    tcase_add_test(tcase, test_command_help_has_short_lines_and_says_how_to_call_each_part);
    tcase_add_test(tcase, test_command_speaks_once_not_once_a_rank);
    tcase_add_test(tcase, test_command_doctor_has_a_line_a_check);
    tcase_add_test(tcase, test_command_knobs_show_value_and_source);
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* The bootstrap over shared memory between forked processes: all-gathers, refusals, death, departure, and nothing left behind. */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kvgrid/shm.h>

#include "runtime/base/memory.h"
#include "runtime/comm/shm_segment.h"
#include "tests/support/fork_bootstrap.h"
#include "tests/support/open_fds.h"

#define PIECE 65536u /* of an all-gather; as in shm_bootstrap.c */

typedef struct Plan {
    int  fd;       /* -1: by name */
    char name[40];
    int  which;
} Plan;

static Plan plan_of(int by_name, int ranks)
{
    static int count;
    Plan       plan = { .fd = -1 };

    snprintf(plan.name, sizeof plan.name, "test-%d-%d", (int)getpid(), count++);
    if (!by_name) {
        ck_assert_int_eq(kvg_shm_memory(ranks, &plan.fd), KVG_OK);
    }
    return plan;
}

static KvShmOptions options_of(const Plan *plan, int rank, int ranks)
{
    KvShmOptions options = KVG_SHM_OPTIONS_INIT;

    options.fd = plan->fd;
    options.name = plan->fd == -1 ? plan->name : NULL;
    options.rank = rank;
    options.ranks = ranks;
    options.timeout_ms = 5000;
    return options;
}

static KvgStatus create(const ForkRank *rank, KvgBootstrap *bootstrap)
{
    KvShmOptions options = options_of(rank->argument, rank->bootstrap.rank, rank->bootstrap.ranks);

    return kvg_shm_bootstrap_create(&options, bootstrap);
}

static KvgStatus gather(const KvgBootstrap *bootstrap, const void *mine, void *all, size_t bytes, uint32_t timeout_ms)
{
    return bootstrap->allgather(bootstrap->user, mine, all, bytes, timeout_ms);
}

static void run(int ranks, ForkBody body)
{
    for (int by_name = 0; by_name < 2; by_name++) {
        Plan plan = plan_of(by_name, ranks);

        ck_assert_int_eq(fork_ranks(ranks, 20000, body, &plan, NULL), 0);
        if (plan.fd != -1) {
            close(plan.fd);
        }
    }
}

/* ---- all-gathers */

static int body_gathers(ForkRank *rank)
{
    static const size_t sizes[] = { 0, 1, 8, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 7, 3 };
    KvgBootstrap        bootstrap = KVG_BOOTSTRAP_INIT;
    int                 ranks = rank->bootstrap.ranks, fds = open_fds();
    uint8_t            *mine = malloc(6 * PIECE), *all = malloc(6 * PIECE * (size_t)ranks);

    FORK_CHECK(create(rank, &bootstrap) == KVG_OK);
    FORK_CHECK(bootstrap.rank == rank->bootstrap.rank && bootstrap.ranks == ranks);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            memset(mine, 16 * round + bootstrap.rank + 1, sizes[i]);
            memset(all, 0, sizes[i] * (size_t)ranks);
            FORK_CHECK(gather(&bootstrap, mine, all, sizes[i], 5000) == KVG_OK);
            for (size_t at = 0; at < sizes[i] * (size_t)ranks; at++) {
                FORK_CHECK(all[at] == 16 * round + (int)(at / sizes[i]) + 1);
            }
        }
    }
    rank->bootstrap.allgather(rank->bootstrap.user, mine, all, 1, 5000); /* nobody leaves before all have read */
    kvg_shm_bootstrap_destroy(&bootstrap);
    kvg_shm_bootstrap_destroy(&bootstrap); /* there is none */
    FORK_CHECK(kvg_live_allocations() == 0 && open_fds() == fds);
    free(mine);
    free(all);
    return 0;
}

START_TEST(test_shm_all_gathers_of_every_size_round_after_round)
{
    run(1, body_gathers);
    run(2, body_gathers);
    run(5, body_gathers);
}
END_TEST

/* ---- refusals */

static void refused(const KvShmOptions *options, const char *words)
{
    KvgBootstrap bootstrap = KVG_BOOTSTRAP_INIT;

    ck_assert_int_eq(kvg_shm_bootstrap_create(options, &bootstrap), KVG_EINVAL);
    ck_assert_msg(strstr(kvg_last_error(), words) != NULL, "%s", kvg_last_error());
    ck_assert_ptr_null(bootstrap.user);
}

START_TEST(test_shm_refuses_bad_options_by_name)
{
    Plan         plan = plan_of(0, 2);
    KvShmOptions good = options_of(&plan, 0, 2), bad;
    int          fd = -1;
    char         longest[KVG_SHM_RANKS_MAX];

    bad = good, bad.size--;
    refused(&bad, "KvShmOptions.size");
    bad = good, bad.ranks = 0;
    refused(&bad, "0 ranks");
    bad = good, bad.ranks = KVG_SHM_RANKS_MAX + 1;
    refused(&bad, "1025 ranks");
    bad = good, bad.rank = 2;
    refused(&bad, "rank 2 of 2");
    bad = good, bad.rank = -1;
    refused(&bad, "rank -1 of 2");
    bad = good, bad.name = "x";
    refused(&bad, "not both");
    bad = good, bad.fd = -1;
    refused(&bad, "neither");
    bad = good, bad.fd = -1, bad.name = "";
    refused(&bad, "letters");
    bad.name = "a/b";
    refused(&bad, "letters");
    memset(longest, 'a', 65);
    longest[65] = '\0';
    bad.name = longest;
    refused(&bad, "letters");
    bad = good, bad.fd = open("/dev/null", O_RDWR);
    refused(&bad, "none that kvg_shm_memory gave");
    close(bad.fd);
    bad = good, bad.ranks = 3;
    refused(&bad, "is for 2 ranks");
    bad = good, bad.fd = memfd_create("other", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    ck_assert_int_eq(ftruncate(bad.fd, 100000), 0);
    refused(&bad, "none that kvg_shm_memory gave"); /* another could cut it */
    ck_assert_int_eq(fcntl(bad.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    refused(&bad, "of this version");
    close(bad.fd);
    ck_assert_int_eq(kvg_shm_bootstrap_create(NULL, NULL), KVG_EINVAL);
    ck_assert_int_eq(kvg_shm_memory(0, &fd), KVG_EINVAL);
    ck_assert_int_eq(kvg_shm_memory(2, NULL), KVG_EINVAL);
    ck_assert_int_eq(fd, -1);
    close(plan.fd);
    ck_assert_uint_eq(kvg_live_allocations(), 0);
}
END_TEST

/* Rank 2 says it is rank 1. Rank 2 is missing, then. */
static int body_twice(ForkRank *rank)
{
    KvShmOptions options = options_of(rank->argument, rank->bootstrap.rank, rank->bootstrap.ranks);
    KvgBootstrap bootstrap = KVG_BOOTSTRAP_INIT;

    options.timeout_ms = 600;
    if (rank->bootstrap.rank == 2) {
        options.rank = 1;
        fork_sleep_ms(200);
        FORK_CHECK(kvg_shm_bootstrap_create(&options, &bootstrap) == KVG_EINVAL);
        FORK_CHECK(strstr(kvg_last_error(), "rank 1 is taken by process") != NULL);
    } else {
        FORK_CHECK(kvg_shm_bootstrap_create(&options, &bootstrap) == KVG_EINDOUBT); /* by the own clock, or as the other says */
        FORK_CHECK(strstr(kvg_last_error(), "rank 2 of 3 did not come within 600 ms") != NULL);
    }
    FORK_CHECK(kvg_live_allocations() == 0);
    return 0;
}

START_TEST(test_shm_a_rank_is_taken_once_and_the_missing_one_is_named)
{
    run(3, body_twice);
}
END_TEST

static int body_name_held(ForkRank *rank)
{
    KvShmOptions options = options_of(rank->argument, 0, 2); /* both say rank 0 */
    KvgBootstrap bootstrap = KVG_BOOTSTRAP_INIT;
    char         pid[32];

    options.timeout_ms = 500;
    if (rank->bootstrap.rank == 1) {
        fork_sleep_ms(200);
        FORK_CHECK(kvg_shm_bootstrap_create(&options, &bootstrap) == KVG_EINVAL);
        snprintf(pid, sizeof pid, "taken by process %d", (int)rank->shared->pids[0]);
        FORK_CHECK(strstr(kvg_last_error(), pid) != NULL);
    } else {
        FORK_CHECK(kvg_shm_bootstrap_create(&options, &bootstrap) == KVG_EINDOUBT);
    }
    return 0;
}

START_TEST(test_shm_a_name_has_one_owner_who_is_named)
{
    Plan plan = plan_of(1, 2);

    ck_assert_int_eq(fork_ranks(2, 10000, body_name_held, &plan, NULL), 0);
}
END_TEST

/* which 0: the caller is another user; 1: the owner is. */
static int body_other_user(ForkRank *rank)
{
    const Plan  *plan = rank->argument;
    KvShmOptions options = options_of(plan, rank->bootstrap.rank, 2);
    KvgBootstrap bootstrap = KVG_BOOTSTRAP_INIT;
    int          me = rank->bootstrap.rank;

    options.timeout_ms = 600;
    if (me != plan->which) {
        FORK_CHECK(setresuid(65534, 65534, 65534) == 0);
    }
    KvgStatus status = kvg_shm_bootstrap_create(&options, &bootstrap);

    FORK_CHECK(status == (me == 0 ? KVG_EINDOUBT : KVG_EINVAL));
    FORK_CHECK(me == 0 || strstr(kvg_last_error(), plan->which == 1 ? "of user 65534, this is user 0" : "of user 0, this is user 65534") != NULL);
    FORK_CHECK(me == 1 || strstr(kvg_last_error(), "rank 1 of 2 did not come") != NULL);
    return 0;
}

START_TEST(test_shm_another_user_is_refused_by_name_on_either_side)
{
    if (geteuid() != 0) {
        printf("skipped: only root can be another user\n");
        return;
    }
    for (int which = 0; which < 2; which++) {
        Plan plan = plan_of(1, 2);

        plan.which = which;
        ck_assert_int_eq(fork_ranks(2, 10000, body_other_user, &plan, NULL), 0);
    }
}
END_TEST

static int body_uneven(ForkRank *rank)
{
    KvgBootstrap bootstrap = KVG_BOOTSTRAP_INIT;
    uint8_t      mine[64] = { 0 }, all[3 * 64];
    size_t       bytes = rank->bootstrap.rank == 1 ? 33 : 32;

    FORK_CHECK(create(rank, &bootstrap) == KVG_OK);
    KvgStatus status = gather(&bootstrap, mine, all, bytes, 5000);

    FORK_CHECK(status == KVG_ELAYOUT);
    FORK_CHECK(strstr(kvg_last_error(), "33") != NULL && strstr(kvg_last_error(), "32") != NULL);
    kvg_shm_bootstrap_destroy(&bootstrap);
    return 0;
}

START_TEST(test_shm_an_all_gather_of_uneven_sizes_names_both)
{
    run(3, body_uneven);
}
END_TEST

static int body_too_much(ForkRank *rank)
{
    KvgBootstrap bootstrap = KVG_BOOTSTRAP_INIT;

    FORK_CHECK(create(rank, &bootstrap) == KVG_OK);
    KvgStatus status = gather(&bootstrap, NULL, NULL, KVG_SHM_BYTES_MAX + 1, 5000);

    FORK_CHECK(status == KVG_EINVAL && strstr(kvg_last_error(), "at most 67108864") != NULL);
    kvg_shm_bootstrap_destroy(&bootstrap);
    return 0;
}

START_TEST(test_shm_an_all_gather_is_bounded)
{
    run(2, body_too_much);
}
END_TEST

/* ---- loss. Rank 1 of 3: which 0 is killed, 1 stops, 2 leaves, 3 is killed before it comes, 4 never comes */

static int body_loss(ForkRank *rank)
{
    const Plan  *plan = rank->argument;
    KvShmOptions options = options_of(plan, rank->bootstrap.rank, 3);
    KvgBootstrap bootstrap = KVG_BOOTSTRAP_INIT;
    uint64_t     mine = 3, all[3];
    char         first[400];
    int          fds = open_fds(), early = plan->which >= 3;

    options.timeout_ms = early ? 500 : 5000;
    if (early && rank->bootstrap.rank == 1) {
        return plan->which == 3 ? raise(SIGKILL) : 0;
    }
    double    begin = fork_seconds();
    KvgStatus status = kvg_shm_bootstrap_create(&options, &bootstrap);

    FORK_CHECK(status == KVG_OK || early);
    if (rank->bootstrap.rank == 1) {
        FORK_CHECK(gather(&bootstrap, &mine, all, sizeof mine, 5000) == KVG_OK);
        if (plan->which == 2) {
            kvg_shm_bootstrap_destroy(&bootstrap);
            return 0;
        }
        raise(plan->which == 0 ? SIGKILL : SIGSTOP);
        fork_sleep_ms(20000);
    }
    if (!early) {
        FORK_CHECK(gather(&bootstrap, &mine, all, sizeof mine, 5000) == KVG_OK);
        begin = fork_seconds();
        status = gather(&bootstrap, &mine, all, sizeof mine, plan->which == 1 ? 400 : 5000);
    }
    FORK_CHECK(fork_seconds() - begin < 1.5);
    FORK_CHECK(status == (plan->which == 0 || plan->which == 2 ? KVG_EPEER : KVG_EINDOUBT));
    FORK_CHECK(strstr(kvg_last_error(), "rank 1 ") != NULL);
    snprintf(first, sizeof first, "%s", kvg_last_error());
    if (!early) { /* it is over, for good and with one sentence */
        FORK_CHECK(gather(&bootstrap, &mine, all, sizeof mine, 5000) == status);
        FORK_CHECK(strcmp(first, kvg_last_error()) == 0);
    }
    kvg_shm_bootstrap_destroy(&bootstrap);
    FORK_CHECK(kvg_live_allocations() == 0 && open_fds() == fds);
    return 0;
}

START_TEST(test_shm_a_rank_that_is_lost_is_named_on_all)
{
    static const int expected[] = { FORK_KILLED, FORK_OVERDUE, 0, FORK_KILLED, 0 };

    for (int by_name = 0; by_name < 2; by_name++) {
        Plan plan = plan_of(by_name, 3);
        int  codes[3];

        plan.which = _i;
        fork_ranks(3, 2500, body_loss, &plan, codes);
        ck_assert_msg(codes[0] == 0 && codes[2] == 0 && codes[1] == expected[_i], "case %d: %d %d %d", _i, codes[0], codes[1], codes[2]);
        if (plan.fd != -1) {
            close(plan.fd);
        }
    }
}
END_TEST

/* ---- nothing is left */

/* MPI programs of other tests come and go meanwhile: theirs are passed over. */
static int entries(const char *path)
{
    DIR           *directory = opendir(path);
    struct dirent *entry;
    int            count = 0;

    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        count += strncmp(entry->d_name, "vader_segment", 13) != 0 && strncmp(entry->d_name, "osc_", 4) != 0;
    }
    if (directory != NULL) {
        closedir(directory);
    }
    return count;
}

/* B111: seven segments of 9,637,888 bytes, written from end to end, where a /dev/shm of 64 MiB has room for six: none of it is taken from there. */
START_TEST(test_shm_segments_take_nothing_of_dev_shm)
{
    struct stat dev_shm, about;
    int         fds[7];

    ck_assert_int_eq(stat("/dev/shm", &dev_shm), 0);
    for (int i = 0; i < 7; i++) {
        void  *memory;
        size_t bytes;

        ck_assert_int_eq(kvg_shm_segment_create(9637888, &fds[i]), KVG_OK);
        ck_assert_int_eq(kvg_shm_segment_map(fds[i], &memory, &bytes), KVG_OK);
        ck_assert_uint_eq(bytes, 9637888);
        memset(memory, 1, bytes);
        ck_assert_int_eq(fstat(fds[i], &about), 0);
        ck_assert(about.st_blocks * 512 >= 9637888 && about.st_dev != dev_shm.st_dev);
        kvg_shm_segment_unmap(memory, bytes);
    }
    for (int i = 0; i < 7; i++) {
        close(fds[i]);
    }
}
END_TEST

/* All are killed at a moment of the parent's choosing. */
static int body_until_killed(ForkRank *rank)
{
    KvgBootstrap bootstrap = KVG_BOOTSTRAP_INIT;
    KvComm       comm;
    KvLiveness   live;

    while (create(rank, &bootstrap) != KVG_OK || kvg_comm_shm_create(&bootstrap, NULL, &comm, &live) != KVG_OK) {
        kvg_shm_bootstrap_destroy(&bootstrap);
    }
    fork_sleep_ms(20000);
    return 0;
}

START_TEST(test_shm_ranks_killed_at_any_moment_leave_nothing_and_the_name_is_free)
{
    int  before = entries("/dev/shm"), codes[3];
    Plan plan = plan_of(1, 3);

    for (int i = 0; i < 12; i++) {
        fork_ranks(3, (uint32_t)(i * 2), body_until_killed, &plan, codes); /* overdue ones are killed, one after the other */
        ck_assert_int_eq(entries("/dev/shm"), before);
    }
    ck_assert_int_eq(fork_ranks(3, 10000, body_gathers, &plan, codes), 0); /* the same name again, at once */
}
END_TEST

/* Every acquisition of rank 1 fails once; the others leave with it, and nothing leaks. */
static int body_nth_failure(ForkRank *rank)
{
    int fds = open_fds();

    for (int nth = 0, done = 0; !done; nth++) {
        KvShmOptions options = options_of(rank->argument, rank->bootstrap.rank, 2);
        KvgBootstrap bootstrap = KVG_BOOTSTRAP_INIT;
        char         name[64];
        int          hit = 0, hits[2];

        snprintf(name, sizeof name, "%s-%d", options.name, nth);
        options.name = name;
        options.timeout_ms = 150;
        if (rank->bootstrap.rank == 1) {
            kvg_fault_arm((uint64_t)nth);
        }
        KvgStatus status = kvg_shm_bootstrap_create(&options, &bootstrap);

        if (rank->bootstrap.rank == 1) {
            hit = kvg_fault_disarm();
        }
        FORK_CHECK(!hit || status != KVG_OK);
        kvg_shm_bootstrap_destroy(&bootstrap);
        FORK_CHECK(rank->bootstrap.allgather(rank->bootstrap.user, &hit, hits, sizeof hit, 5000) == KVG_OK);
        FORK_CHECK(hits[1] || status == KVG_OK || status == KVG_EPEER); /* EPEER: rank 1 has left already */
        FORK_CHECK(kvg_live_allocations() == 0 && open_fds() == fds);
        done = !hits[1];
        FORK_CHECK(!done || nth > 3);
    }
    return 0;
}

START_TEST(test_shm_every_failure_of_one_rank_leaks_nothing)
{
    Plan plan = plan_of(1, 2);

    ck_assert_int_eq(fork_ranks(2, 20000, body_nth_failure, &plan, NULL), 0);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("shm_bootstrap");
    TCase   *cases = tcase_create("shm_bootstrap");
    SRunner *runner = srunner_create(suite);

    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, test_shm_all_gathers_of_every_size_round_after_round);
    tcase_add_test(cases, test_shm_refuses_bad_options_by_name);
    tcase_add_test(cases, test_shm_a_rank_is_taken_once_and_the_missing_one_is_named);
    tcase_add_test(cases, test_shm_a_name_has_one_owner_who_is_named);
    tcase_add_test(cases, test_shm_another_user_is_refused_by_name_on_either_side);
    tcase_add_test(cases, test_shm_an_all_gather_of_uneven_sizes_names_both);
    tcase_add_test(cases, test_shm_an_all_gather_is_bounded);
    tcase_add_loop_test(cases, test_shm_a_rank_that_is_lost_is_named_on_all, 0, 5);
    tcase_add_test(cases, test_shm_segments_take_nothing_of_dev_shm);
    tcase_add_test(cases, test_shm_ranks_killed_at_any_moment_leave_nothing_and_the_name_is_free);
    tcase_add_test(cases, test_shm_every_failure_of_one_rank_leaks_nothing);
    suite_add_tcase(suite, cases);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), ran = srunner_ntests_run(runner);

    srunner_free(runner);
    return failed != 0 || ran == 0;
}

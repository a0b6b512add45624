/* The rendezvous over TCP between forked processes: all-gathers, who is turned away and what for, loss, bounds, and nothing left behind. */
#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <kvgrid/rendezvous.h>

#include "runtime/base/memory.h"
#include "runtime/comm/rendezvous_internal.h"
#include "tests/support/fork_bootstrap.h"
#include "tests/support/open_fds.h"

#define SECRET "0123456789abcdef0123456789abcdef"

typedef struct Plan {
    int         listen_fd; /* rank 0's */
    char        address[32];
    const char *secret;
    int         which;
} Plan;

/* A socket of the parent listens, so that the port is known before anybody starts. */
static Plan plan_of(const char *secret)
{
    struct sockaddr_in any = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t          bytes = sizeof any;
    Plan               plan = { .listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), .secret = secret }; /* a launcher's may be a blocking one */

    ck_assert(bind(plan.listen_fd, (struct sockaddr *)&any, bytes) == 0 && listen(plan.listen_fd, 64) == 0);
    ck_assert_int_eq(getsockname(plan.listen_fd, (struct sockaddr *)&any, &bytes), 0);
    snprintf(plan.address, sizeof plan.address, ":%d", ntohs(any.sin_port));
    return plan;
}

static KvRendezvousOptions options_of(const Plan *plan, int rank, int ranks)
{
    KvRendezvousOptions options = KVG_RENDEZVOUS_OPTIONS_INIT;

    options.address = plan->address;
    options.secret = plan->secret;
    options.rank = rank;
    options.ranks = ranks;
    options.timeout_ms = 5000;
    options.listen_fd = rank == 0 ? plan->listen_fd : -1;
    return options;
}

static void leave_listening(const Plan *plan, int rank)
{
    if (rank != 0) {
        close(plan->listen_fd); /* or rank 0's end would not be the end of it */
    }
}

static KvgStatus create(const ForkRank *rank, KvgBootstrap *bootstrap)
{
    KvRendezvousOptions options = options_of(rank->argument, rank->bootstrap.rank, rank->bootstrap.ranks);

    leave_listening(rank->argument, rank->bootstrap.rank);
    return kvg_rendezvous_create(&options, bootstrap);
}

static KvgStatus gather(const KvgBootstrap *bootstrap, const void *mine, void *all, size_t bytes, uint32_t timeout_ms)
{
    return bootstrap->allgather(bootstrap->user, mine, all, bytes, timeout_ms);
}

static int run_codes(int ranks, ForkBody body, const char *secret, int which, uint32_t deadline_ms, int *codes)
{
    Plan plan = plan_of(secret);

    plan.which = which;
    int bad = fork_ranks(ranks, deadline_ms, body, &plan, codes);

    close(plan.listen_fd);
    return bad;
}

static void run(int ranks, ForkBody body, int which)
{
    ck_assert_int_eq(run_codes(ranks, body, SECRET, which, 15000, NULL), 0);
}

/* ---- all-gathers */

static int body_gathers(ForkRank *rank)
{
    static const size_t sizes[] = { 0, 1, 160, 65537, KVG_RENDEZVOUS_BYTES_MAX, 3 };
    KvgBootstrap        bootstrap = KVG_BOOTSTRAP_INIT;
    int                 ranks = rank->bootstrap.ranks, fds = open_fds();
    uint8_t            *mine = malloc(KVG_RENDEZVOUS_BYTES_MAX), *all = malloc(KVG_RENDEZVOUS_BYTES_MAX * (size_t)ranks);

    FORK_CHECK(create(rank, &bootstrap) == KVG_OK);
    FORK_CHECK(bootstrap.rank == rank->bootstrap.rank && bootstrap.ranks == ranks);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            memset(mine, 16 * round + bootstrap.rank + 1, sizes[i]);
            memset(all, 0, sizes[i] * (size_t)ranks);
            FORK_CHECK(gather(&bootstrap, mine, all, sizes[i], 5000) == KVG_OK);
            for (int from = 0; sizes[i] > 0 && from < ranks; from++) {
                const uint8_t *part = all + (size_t)from * sizes[i];

                FORK_CHECK(part[0] == 16 * round + from + 1 && memcmp(part, part + 1, sizes[i] - 1) == 0);
            }
        }
    }
    kvg_rendezvous_destroy(&bootstrap);
    kvg_rendezvous_destroy(&bootstrap); /* there is none */
    FORK_CHECK(kvg_live_allocations() == 0 && open_fds() == fds - 1); /* the listening socket is gone */
    free(mine);
    free(all);
    return 0;
}

START_TEST(test_rendezvous_all_gathers_of_every_size_round_after_round)
{
    run(1, body_gathers, 0);
    run(2, body_gathers, 0);
    run(5, body_gathers, 0);
    ck_assert_int_eq(run_codes(3, body_gathers, NULL, 0, 15000, NULL), 0); /* loopback needs no secret */
}
END_TEST

/* Fewer files than there are chairs for guests (32 and one a rank): the chairs are empty, and cost none. */
static int body_few_files(ForkRank *rank)
{
    const struct rlimit limit = { 20, 20 };

    FORK_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    return body_gathers(rank);
}

START_TEST(test_rendezvous_needs_no_more_open_files_than_it_opens)
{
    run(3, body_few_files, 0);
}
END_TEST

/* Ranks that nobody asked for: rank 2 of 4 asks for its own, the others for any. */
static int body_any(ForkRank *rank)
{
    KvRendezvousOptions options = options_of(rank->argument, rank->bootstrap.rank, 4);
    KvgBootstrap        bootstrap = KVG_BOOTSTRAP_INIT;
    int                 all[4] = { 0 };

    leave_listening(rank->argument, options.rank);
    options.rank = options.rank % 2 == 1 ? KVG_RENDEZVOUS_ANY_RANK : options.rank;
    FORK_CHECK(kvg_rendezvous_create(&options, &bootstrap) == KVG_OK);
    FORK_CHECK(rank->bootstrap.rank % 2 == 0 ? bootstrap.rank == rank->bootstrap.rank : bootstrap.rank % 2 == 1);
    FORK_CHECK(gather(&bootstrap, &bootstrap.rank, all, sizeof(int), 5000) == KVG_OK);
    for (int i = 0; i < 4; i++) {
        FORK_CHECK(all[i] == i); /* each rank once, in its place */
    }
    kvg_rendezvous_destroy(&bootstrap);
    return 0;
}

START_TEST(test_rendezvous_deals_out_the_ranks_that_nobody_asked_for)
{
    run(4, body_any, 0);
}
END_TEST

/* Rank 0 listens by itself, the others come before it; then again at the same address at once. */
static int body_address(ForkRank *rank)
{
    KvRendezvousOptions options = options_of(rank->argument, rank->bootstrap.rank, 3);

    close(((const Plan *)rank->argument)->listen_fd);
    options.listen_fd = -1;
    for (int round = 0; round < 3; round++) {
        KvgBootstrap bootstrap = KVG_BOOTSTRAP_INIT;
        int          all[3];

        fork_sleep_ms(options.rank == 0 ? 60 : 0);
        FORK_CHECK(kvg_rendezvous_create(&options, &bootstrap) == KVG_OK);
        FORK_CHECK(gather(&bootstrap, &round, all, sizeof round, 5000) == KVG_OK && all[2] == round);
        kvg_rendezvous_destroy(&bootstrap);
    }
    FORK_CHECK(kvg_live_allocations() == 0);
    return 0;
}

START_TEST(test_rendezvous_ranks_may_come_before_rank_0_and_again_at_the_same_address)
{
    Plan plan = plan_of(SECRET);

    close(plan.listen_fd);
    plan.listen_fd = -1;
    ck_assert_int_eq(fork_ranks(3, 15000, body_address, &plan, NULL), 0);
}
END_TEST

/* ---- options */

static void refused(const KvRendezvousOptions *options, const char *words)
{
    KvgBootstrap bootstrap = KVG_BOOTSTRAP_INIT;

    ck_assert_msg(kvg_rendezvous_create(options, &bootstrap) == KVG_EINVAL, "%s", words);
    ck_assert_msg(strstr(kvg_last_error(), words) != NULL, "%s", kvg_last_error());
    ck_assert_ptr_null(bootstrap.user);
}

START_TEST(test_rendezvous_refuses_bad_options_by_name)
{
    static const char  *bad_addresses[] = { "", "host", "127.0.0.1", ":", ":0", ":65536", ":99999", ":123456", ":-1", ":1x", "::1:4000", "[::1:4000",
                                            "[]:4000", "127.0.0.1:", "no such host:4000" };
    KvRendezvousOptions good = KVG_RENDEZVOUS_OPTIONS_INIT, bad;
    char                secret[300];
    int                 listener = socket(AF_INET, SOCK_STREAM, 0);

    good.ranks = 2;
    for (int rank = 0; rank < 2; rank++) {
        good.rank = rank;
        good.address = NULL;
        refused(&good, "(none)");
        for (size_t i = 0; i < sizeof bad_addresses / sizeof bad_addresses[0]; i++) {
            good.address = bad_addresses[i];
            refused(&good, bad_addresses[i]);
        }
    }
    good.address = ":4000";
    bad = good, bad.size--;
    refused(&bad, "KvRendezvousOptions.size");
    bad = good, bad.ranks = 0;
    refused(&bad, "of 0");
    bad = good, bad.ranks = 65536;
    refused(&bad, "of 65536");
    bad = good, bad.rank = 2;
    refused(&bad, "rank 2 of 2");
    bad = good, bad.rank = -2;
    refused(&bad, "rank -2 of 2");
    memset(secret, 's', sizeof secret - 1);
    secret[sizeof secret - 1] = '\0';
    bad = good, bad.secret = secret + sizeof secret - 16;
    refused(&bad, "15 bytes");
    bad.secret = secret + sizeof secret - 258;
    refused(&bad, "at least 257 bytes");
    for (int rank = 0; rank < 2; rank++) { /* who listens for others, and who goes to others, without a secret */
        bad = good, bad.rank = rank, bad.address = "0.0.0.0:4000", bad.timeout_ms = 200;
        refused(&bad, "0.0.0.0:4000 is not loopback and there is no secret");
        bad.address = "192.0.2.1:4000";
        refused(&bad, "192.0.2.1:4000 is not loopback and there is no secret");
    }
    bad = good, bad.rank = 0, bad.listen_fd = 0;
    refused(&bad, "descriptor 0 is no TCP socket that listens");
    bad.listen_fd = listener; /* it does not listen yet */
    refused(&bad, "no TCP socket that listens");
    ck_assert_int_eq(listen(listener, 1), 0); /* at every address there is */
    refused(&bad, "is not loopback and there is no secret");
    bad.rank = 1;
    refused(&bad, "that is rank 0's");
    close(listener);
    ck_assert_int_eq(kvg_rendezvous_create(&good, NULL), KVG_EINVAL);
    ck_assert_uint_eq(kvg_live_allocations(), 0);
}
END_TEST

START_TEST(test_rendezvous_an_address_in_use_is_named)
{
    Plan                plan = plan_of(SECRET);
    KvRendezvousOptions options = options_of(&plan, 0, 2);
    KvgBootstrap        bootstrap = KVG_BOOTSTRAP_INIT;

    options.listen_fd = -1;
    ck_assert_int_eq(kvg_rendezvous_create(&options, &bootstrap), KVG_EIO);
    ck_assert_msg(strstr(kvg_last_error(), "127.0.0.1:") != NULL, "%s", kvg_last_error());
    close(plan.listen_fd);
    ck_assert_uint_eq(kvg_live_allocations(), 0);
}
END_TEST

/* ---- strangers, of a process that knows the wire. The last rank is the stranger; it begins before the others do */

static int stranger_connect(const Plan *plan)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(plan->address + 1)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int                fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    return connect(fd, (struct sockaddr *)&to, sizeof to) == 0 ? fd : -1;
}

static RvHello stranger_hello(int rank, int ranks)
{
    RvHello hello = { .version = RV_VERSION, .rank = rank, .ranks = ranks, .pid = getpid(), .host = "elsewhere" };

    return hello;
}

static int stranger_says(const Plan *plan, RvKind kind, const void *payload, size_t bytes)
{
    int fd = stranger_connect(plan);

    kvg_rv_say(fd, kind, payload, bytes);
    return fd;
}

/* What rank 0 answers: 1 a verdict, with its words; 0 the connection ends without. */
static int stranger_hears(int fd, uint32_t kinds, RvLink *link)
{
    RvNews news;

    *link = (RvLink){ .fd = fd };
    while ((news = kvg_rv_read(link, kinds, NULL, 0)) == RV_NOTHING) {
        kvg_rv_wait(fd, 1 /* POLLIN */, UINT64_MAX);
    }
    return news == RV_FRAME;
}

static int expect_refusal(int fd, const char *words)
{
    RvLink link;

    FORK_CHECK(stranger_hears(fd, 1u << RV_VERDICT, &link));
    FORK_CHECK(link.in.verdict.status == KVG_EPEER);
    if (strstr(link.in.verdict.why, words) == NULL) {
        fprintf(stderr, "not \"%s\" but \"%s\"\n", words, link.in.verdict.why);
        return 1;
    }
    close(fd);
    return 0;
}

static int be_strange(const Plan *plan, int ranks)
{
    RvHello  hello = stranger_hello(1, ranks);
    RvHeader header = kvg_rv_header(RV_HELLO, sizeof hello);
    RvProof  proof = { { 0 } };
    RvLink   link;
    int      fd;

    hello.version = 99;
    FORK_CHECK(expect_refusal(stranger_says(plan, RV_HELLO, &hello, sizeof hello), "speaks version 99, rank 0 speaks 1") == 0);
    hello = stranger_hello(1, ranks + 1);
    FORK_CHECK(expect_refusal(stranger_says(plan, RV_HELLO, &hello, sizeof hello), "one of 4 ranks, rank 0 as one of 3") == 0);
    for (int rank = -2; rank <= ranks; rank += rank == -2 ? 2 : ranks) { /* -2, 0, ranks */
        hello = stranger_hello(rank, ranks);
        FORK_CHECK(expect_refusal(stranger_says(plan, RV_HELLO, &hello, sizeof hello), "it says that it is rank") == 0);
    }
    hello = stranger_hello(1, ranks);
    FORK_CHECK(expect_refusal(stranger_says(plan, RV_PROOF, &proof, sizeof proof), "it sent what is no hello") == 0);
    FORK_CHECK(expect_refusal(stranger_says(plan, RV_GATHER, &hello, sizeof hello), "it sent what is no hello") == 0);
    fd = stranger_connect(plan);
    FORK_CHECK(send(fd, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27, MSG_NOSIGNAL) == 27);
    FORK_CHECK(expect_refusal(fd, "it sent what is no hello (magic 0x20544547") == 0);
    fd = stranger_connect(plan);
    header.bytes = 0x7fffffff; /* oversize: not one byte of it is waited for */
    FORK_CHECK(send(fd, &header, sizeof header, MSG_NOSIGNAL) == sizeof header);
    FORK_CHECK(expect_refusal(fd, "2147483647 bytes") == 0);
    fd = stranger_says(plan, RV_HELLO, &hello, sizeof hello); /* sound, but for the secret */
    FORK_CHECK(stranger_hears(fd, 1u << RV_CHALLENGE, &link));
    kvg_rv_say(fd, RV_PROOF, &proof, sizeof proof);
    FORK_CHECK(expect_refusal(fd, "it has another secret") == 0);
    fd = stranger_says(plan, RV_HELLO, &hello, sizeof hello); /* a second hello where a proof is due */
    FORK_CHECK(stranger_hears(fd, 1u << RV_CHALLENGE, &link));
    kvg_rv_say(fd, RV_HELLO, &hello, sizeof hello);
    FORK_CHECK(expect_refusal(fd, "it sent what is no proof") == 0);
    return 0;
}

/* Rank 0 and 1 meet rank 2 of 3, while rank 3 of the test's, the stranger, does what it can. */
static int body_strangers(ForkRank *rank)
{
    const Plan         *plan = rank->argument;
    KvRendezvousOptions options = options_of(plan, rank->bootstrap.rank, 3);
    KvgBootstrap        bootstrap = KVG_BOOTSTRAP_INIT;
    int                 all[3];

    leave_listening(plan, options.rank);
    if (options.rank == 3) {
        int code = be_strange(plan, 3), silent = 0;

        for (int i = 0; i < 120; i++) { /* more than there are chairs, and none says a word; some say half of one */
            int fd = stranger_connect(plan);

            silent += fd != -1 && (i % 3 != 0 || send(fd, "KGR1", 3, MSG_NOSIGNAL) == 3);
        }
        atomic_store(&rank->shared->words[0], 1);
        FORK_CHECK(code == 0 && silent == 120);
        FORK_CHECK(fork_await(rank->shared, 1, 3));
        return 0;
    }
    FORK_CHECK(options.rank != 2 || fork_await(rank->shared, 0, 1)); /* rank 2 comes last */
    double begin = fork_seconds();

    FORK_CHECK(kvg_rendezvous_create(&options, &bootstrap) == KVG_OK);
    FORK_CHECK(options.rank != 2 || fork_seconds() - begin < 1.5);
    FORK_CHECK(gather(&bootstrap, &options.rank, all, sizeof(int), 5000) == KVG_OK && all[1] == 1 && all[2] == 2);
    atomic_fetch_add(&rank->shared->words[1], 1);
    FORK_CHECK(fork_await(rank->shared, 1, 3));
    kvg_rendezvous_destroy(&bootstrap);
    FORK_CHECK(kvg_live_allocations() == 0);
    return 0;
}

START_TEST(test_rendezvous_strangers_are_turned_away_with_a_reason_and_harm_nobody)
{
    run(4, body_strangers, 0);
}
END_TEST

/* Rank 2 has: which 0 another secret, 1 none, 2 says it is rank 1, 3 another world size, 4 says nothing and stays. Rank 0 and 1 miss it by name. */
static int body_turned_away(ForkRank *rank)
{
    static const char  *reasons[] = { "it has another secret", "it has another secret", "rank 1 is taken by host ", "one of 4 ranks", "said nothing for 2000 ms" };
    const Plan         *plan = rank->argument;
    KvRendezvousOptions options = options_of(plan, rank->bootstrap.rank, 3);
    KvgBootstrap        bootstrap = KVG_BOOTSTRAP_INIT;
    int                 odd = options.rank == 2, fds = open_fds();

    leave_listening(plan, options.rank);
    options.timeout_ms = plan->which == 4 ? 2600 : 700;
    if (odd) {
        fork_sleep_ms(150); /* so that the others are there */
        options.secret = plan->which == 0 ? "another secret of enough bytes" : plan->which == 1 ? NULL : plan->secret;
        options.rank = plan->which == 2 ? 1 : 2;
        options.ranks = plan->which == 3 ? 4 : 3;
        if (plan->which == 4) {
            stranger_connect(plan);
            return fork_await(rank->shared, 0, 2) ? 0 : 1;
        }
    }
    KvgStatus status = kvg_rendezvous_create(&options, &bootstrap);

    FORK_CHECK(status == (odd ? KVG_EPEER : KVG_EINDOUBT));
    FORK_CHECK(odd || strstr(kvg_last_error(), "rank 2 of 3 did not come to rank 0 within") != NULL);
    FORK_CHECK(odd || strstr(kvg_last_error(), "1 turned away, the last 127.0.0.1:") != NULL);
    FORK_CHECK(strstr(kvg_last_error(), reasons[plan->which]) != NULL);
    FORK_CHECK(kvg_live_allocations() == 0 && open_fds() == fds - 1);
    atomic_fetch_add(&rank->shared->words[0], 1);
    return 0;
}

START_TEST(test_rendezvous_who_is_turned_away_is_told_and_named_at_the_deadline)
{
    run(3, body_turned_away, _i);
}
END_TEST

/* Rank 0 is an impostor: it takes every proof and welcomes. */
static int body_impostor(ForkRank *rank)
{
    const Plan  *plan = rank->argument;
    KvgBootstrap bootstrap = KVG_BOOTSTRAP_INIT;

    if (rank->bootstrap.rank == 0) {
        RvChallenge challenge = { { 7 } };
        RvVerdict   verdict = { .status = KVG_OK, .rank = 1 };
        int         fd = -1;
        RvLink      link;

        fd = accept(plan->listen_fd, NULL, NULL);
        FORK_CHECK(stranger_hears(fd, 1u << RV_HELLO, &link));
        kvg_rv_say(fd, plan->which == 0 ? RV_CHALLENGE : RV_VERDICT, plan->which == 0 ? (void *)&challenge : (void *)&verdict,
                   plan->which == 0 ? sizeof challenge : sizeof verdict);
        FORK_CHECK(plan->which == 1 || stranger_hears(fd, 1u << RV_PROOF, &link));
        kvg_rv_say(fd, RV_VERDICT, &verdict, sizeof verdict);
        FORK_CHECK(fork_await(rank->shared, 0, 1));
        return 0;
    }
    FORK_CHECK(create(rank, &bootstrap) == KVG_EPEER);
    FORK_CHECK(strstr(kvg_last_error(), "does not know the secret") != NULL);
    atomic_store(&rank->shared->words[0], 1);
    return 0;
}

START_TEST(test_rendezvous_rank_0_must_prove_itself_too)
{
    run(2, body_impostor, _i);
}
END_TEST

/* A rank that comes and dies before all are here leaves its place free for the next. */
static int body_came_and_went(ForkRank *rank)
{
    const Plan         *plan = rank->argument;
    KvRendezvousOptions options = options_of(plan, rank->bootstrap.rank, 3);
    KvgBootstrap        bootstrap = KVG_BOOTSTRAP_INIT;

    leave_listening(plan, options.rank);
    if (options.rank == 3) { /* it is rank 1, at first */
        options.rank = 1;
        options.timeout_ms = 500;
        FORK_CHECK(kvg_rendezvous_create(&options, &bootstrap) == KVG_EINDOUBT);
        FORK_CHECK(strstr(kvg_last_error(), "rank 2 of 3 did not come to rank 0 within ") != NULL);
        atomic_store(&rank->shared->words[0], 1);
        return 0;
    }
    FORK_CHECK(options.rank == 0 || fork_await(rank->shared, 0, 1));
    FORK_CHECK(kvg_rendezvous_create(&options, &bootstrap) == KVG_OK);
    kvg_rendezvous_destroy(&bootstrap);
    return 0;
}

START_TEST(test_rendezvous_a_rank_that_goes_before_all_are_here_can_be_replaced)
{
    run(4, body_came_and_went, 0);
}
END_TEST

/* ---- loss. which: rank * 10 + 0 killed, 1 stopped, 2 leaves, 3 never comes */

static int body_loss(ForkRank *rank)
{
    const Plan         *plan = rank->argument;
    int                 victim = plan->which / 10, how = plan->which % 10, me = rank->bootstrap.rank, fds = open_fds();
    KvRendezvousOptions options = options_of(plan, me, 3);
    KvgBootstrap        bootstrap = KVG_BOOTSTRAP_INIT;
    uint64_t            mine = 3, all[3];
    char                first[500], name[24];

    leave_listening(plan, me);
    options.timeout_ms = how == 3 ? 500 : 5000;
    if (how == 3 && me == victim) {
        return 0;
    }
    double    begin = fork_seconds();
    KvgStatus status = kvg_rendezvous_create(&options, &bootstrap);

    FORK_CHECK(status == (how == 3 ? KVG_EINDOUBT : KVG_OK));
    if (how != 3) {
        FORK_CHECK(gather(&bootstrap, &mine, all, sizeof mine, 5000) == KVG_OK);
        if (me == victim && how == 2) {
            kvg_rendezvous_destroy(&bootstrap);
            return 0;
        }
        if (me == victim) {
            raise(how == 0 ? SIGKILL : SIGSTOP);
            fork_sleep_ms(20000);
        }
        begin = fork_seconds();
        status = gather(&bootstrap, &mine, all, sizeof mine, how == 1 ? 600 : 5000);
        FORK_CHECK(status == (how == 1 ? KVG_EINDOUBT : KVG_EPEER));
        FORK_CHECK(how != 1 || fork_seconds() - begin < 1.0);
    }
    FORK_CHECK(fork_seconds() - begin < 1.5);
    snprintf(name, sizeof name, "rank %d ", victim);
    FORK_CHECK(strstr(kvg_last_error(), name) != NULL);
    snprintf(first, sizeof first, "%s", kvg_last_error());
    if (how != 3) { /* it is over, for good and with one sentence */
        FORK_CHECK(gather(&bootstrap, &mine, all, sizeof mine, 5000) == status);
        FORK_CHECK(strcmp(first, kvg_last_error()) == 0);
    }
    kvg_rendezvous_destroy(&bootstrap);
    FORK_CHECK(kvg_live_allocations() == 0 && open_fds() == fds - 1);
    return 0;
}

START_TEST(test_rendezvous_a_rank_that_is_lost_is_named_on_all)
{
    static const int which[] = { 0, 10, 20, 1, 11, 2, 12, 3, 13 };
    static const int expected[] = { FORK_KILLED, FORK_OVERDUE, 0, 0 };
    int              victim = which[_i] / 10, how = which[_i] % 10, codes[3];

    run_codes(3, body_loss, SECRET, which[_i], how == 1 ? 2200 : 5000, codes);
    for (int rank = 0; rank < 3; rank++) {
        ck_assert_msg(codes[rank] == (rank == victim ? expected[how] : 0), "case %d: rank %d left with %d", which[_i], rank, codes[rank]);
    }
}
END_TEST

static int body_uneven(ForkRank *rank)
{
    const Plan  *plan = rank->argument;
    KvgBootstrap bootstrap = KVG_BOOTSTRAP_INIT;
    uint8_t      mine[64] = { 0 }, all[3 * 64];

    FORK_CHECK(create(rank, &bootstrap) == KVG_OK);
    KvgStatus status = gather(&bootstrap, mine, all, rank->bootstrap.rank == plan->which ? 33 : 32, 5000);

    FORK_CHECK(status == KVG_ELAYOUT);
    FORK_CHECK(strstr(kvg_last_error(), "33") != NULL && strstr(kvg_last_error(), "32") != NULL);
    kvg_rendezvous_destroy(&bootstrap);
    return 0;
}

START_TEST(test_rendezvous_an_all_gather_of_uneven_sizes_names_both)
{
    run(3, body_uneven, _i);
}
END_TEST

/* One rank is asked for too much: it says so, and the others need not wait. */
static int body_too_much(ForkRank *rank)
{
    KvgBootstrap bootstrap = KVG_BOOTSTRAP_INIT;
    int          odd = rank->bootstrap.rank == ((const Plan *)rank->argument)->which;
    uint8_t      mine[8] = { 0 }, all[24];

    FORK_CHECK(create(rank, &bootstrap) == KVG_OK);
    double    begin = fork_seconds();
    KvgStatus status = gather(&bootstrap, mine, all, odd ? KVG_RENDEZVOUS_BYTES_MAX + 1 : 8, 5000);

    FORK_CHECK(status == (odd ? KVG_EINVAL : KVG_EPEER) && fork_seconds() - begin < 2);
    FORK_CHECK(strstr(kvg_last_error(), "1048577 bytes a rank") != NULL);
    kvg_rendezvous_destroy(&bootstrap);
    return 0;
}

START_TEST(test_rendezvous_an_all_gather_is_bounded)
{
    run(3, body_too_much, _i);
}
END_TEST

/* Each acquisition of one rank fails once; nothing leaks, and the other ends at its deadline or before. */
static int body_nth_failure(ForkRank *rank)
{
    const Plan *plan = rank->argument;
    int         me = rank->bootstrap.rank;

    close(plan->listen_fd);
    int fds = open_fds();

    for (int nth = 0, done = 0; !done; nth++) {
        KvRendezvousOptions options = options_of(plan, me, 2);
        KvgBootstrap        bootstrap = KVG_BOOTSTRAP_INIT;
        int                 hit = 0, hits[2], all[2];

        options.listen_fd = -1;
        options.timeout_ms = 250;
        if (me == plan->which) {
            kvg_fault_arm((uint64_t)nth);
        }
        KvgStatus status = kvg_rendezvous_create(&options, &bootstrap);

        if (status == KVG_OK) {
            status = gather(&bootstrap, &me, all, sizeof me, 250);
        }
        if (me == plan->which) {
            hit = kvg_fault_disarm();
        }
        kvg_rendezvous_destroy(&bootstrap);
        FORK_CHECK(rank->bootstrap.allgather(rank->bootstrap.user, &hit, hits, sizeof hit, 5000) == KVG_OK);
        FORK_CHECK(me != plan->which || !hit || status != KVG_OK);
        FORK_CHECK(kvg_live_allocations() == 0 && open_fds() == fds);
        done = !hits[plan->which];
        FORK_CHECK(!done || nth > 2);
        FORK_CHECK(!done || status == KVG_OK || nth > 20); /* the last round, in which nothing fails */
    }
    return 0;
}

START_TEST(test_rendezvous_every_failure_of_one_rank_leaks_nothing)
{
    Plan plan = plan_of(SECRET);

    close(plan.listen_fd);
    plan.which = _i;
    plan.listen_fd = dup(0);
    ck_assert_int_eq(fork_ranks(2, 15000, body_nth_failure, &plan, NULL), 0);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("rendezvous");
    TCase   *cases = tcase_create("rendezvous");
    SRunner *runner = srunner_create(suite);

    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, test_rendezvous_all_gathers_of_every_size_round_after_round);
    if (getenv("KVG_UNDER_VALGRIND") == NULL) { /* which keeps some files for itself, and lowers no such limit */
        tcase_add_test(cases, test_rendezvous_needs_no_more_open_files_than_it_opens);
    }
    tcase_add_test(cases, test_rendezvous_deals_out_the_ranks_that_nobody_asked_for);
    tcase_add_test(cases, test_rendezvous_ranks_may_come_before_rank_0_and_again_at_the_same_address);
    tcase_add_test(cases, test_rendezvous_refuses_bad_options_by_name);
    tcase_add_test(cases, test_rendezvous_an_address_in_use_is_named);
    tcase_add_test(cases, test_rendezvous_strangers_are_turned_away_with_a_reason_and_harm_nobody);
    tcase_add_loop_test(cases, test_rendezvous_who_is_turned_away_is_told_and_named_at_the_deadline, 0, 5);
    tcase_add_loop_test(cases, test_rendezvous_rank_0_must_prove_itself_too, 0, 2);
    tcase_add_test(cases, test_rendezvous_a_rank_that_goes_before_all_are_here_can_be_replaced);
    tcase_add_loop_test(cases, test_rendezvous_a_rank_that_is_lost_is_named_on_all, 0, 9);
    tcase_add_loop_test(cases, test_rendezvous_an_all_gather_of_uneven_sizes_names_both, 0, 2);
    tcase_add_loop_test(cases, test_rendezvous_an_all_gather_is_bounded, 0, 2);
    tcase_add_loop_test(cases, test_rendezvous_every_failure_of_one_rank_leaks_nothing, 0, 2);
    suite_add_tcase(suite, cases);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), ran = srunner_ntests_run(runner);

    srunner_free(runner);
    return failed != 0 || ran == 0;
}

/* Where ranks of the socket mesh listen: interfaces and addresses that are chosen, that are none, and that cannot be read. */
#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <kvgrid/mesh.h>

#include "runtime/base/memory.h"
#include "runtime/comm/mesh_internal.h"
#include "tests/support/comm_wait.h"
#include "tests/support/fork_bootstrap.h"
#include "tests/support/mesh_ranks.h"

/* The address of this end of the connection to `peer`, or of the other end. */
static const char *ip_of(const KvComm *comm, int peer, int other_end, char text[INET6_ADDRSTRLEN])
{
    const Mesh             *mesh = comm->self;
    struct sockaddr_storage address;
    socklen_t               bytes = sizeof address;
    int (*name)(int, struct sockaddr *, socklen_t *) = other_end ? getpeername : getsockname;

    if (name(mesh->peers[peer].fd, (struct sockaddr *)&address, &bytes) != 0) {
        return "?";
    }
    const void *ip = address.ss_family == AF_INET ? (const void *)&((struct sockaddr_in *)&address)->sin_addr
                                                   : (const void *)&((struct sockaddr_in6 *)&address)->sin6_addr;
    return inet_ntop(address.ss_family, ip, text, INET6_ADDRSTRLEN);
}

/* Each rank's own; the higher rank calls. */
static const struct { const char *interface, *listens_at; } interfaces[][2] = {
    { { "127.0.0.2", "127.0.0.2" }, { "127.0.0.3", "127.0.0.3" } },
    { { NULL, "127.0.0.1" }, { "127.0.0.2", "127.0.0.2" } },
    { { "lo", "127.0.0.1" }, { "127.0.0.1", "127.0.0.1" } },
    { { "::1", "::1" }, { "127.0.0.9", "127.0.0.9" } },
};

static int body_interface(ForkRank *rank)
{
    const Plan   *plan = rank->argument;
    KvMeshOptions options = options_of(plan);
    KvComm        comm;
    KvLiveness    live;
    char          text[INET6_ADDRSTRLEN];
    int           me = rank->bootstrap.rank;

    options.interface = interfaces[plan->which][me].interface;
    FORK_CHECK(kvg_mesh_create(&rank->bootstrap, &options, &comm, &live) == KVG_OK);
    FORK_CHECK(strcmp(ip_of(&comm, 1 - me, me == 1, text), interfaces[plan->which][0].listens_at) == 0);
    FORK_CHECK(rank->bootstrap.allgather(rank->bootstrap.user, &me, (int[2]){ 0 }, sizeof me, 5000) == KVG_OK);
    close_both(&comm, &live);
    return 0;
}

static int has_ipv6(void)
{
    struct sockaddr_in6 loopback = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    int                 fd = socket(AF_INET6, SOCK_STREAM, 0), has = fd >= 0 && bind(fd, (struct sockaddr *)&loopback, sizeof loopback) == 0;

    if (fd >= 0) {
        close(fd);
    }
    return has;
}

START_TEST(test_mesh_listens_on_the_interface_or_address_that_each_rank_is_told)
{
    if (strcmp(interfaces[_i][0].listens_at, "::1") == 0 && !has_ipv6()) {
        puts("no IPv6 here");
        return;
    }
    ck_assert_int_eq(fork_ranks(2, 20000, body_interface, &(Plan){ .tcp = 1, .which = _i }, NULL), 0);
}
END_TEST

static const struct { const char *interface; const char *says[3]; } no_interfaces[] = {
    { "no-such-address", { "\"no-such-address\" is no interface of host ", "lo 127.0.0.1", "KVGRID_INTERFACE" } },
    { "eth77", { "\"eth77\" is no interface", "lo 127.0.0.1", "by name or address" } },
    { "", { "\"\" is no interface", "lo 127.0.0.1", "KVGRID_INTERFACE" } },
    { "0.0.0.0", { "\"0.0.0.0\" is no interface", "no address to be told to others", "KVGRID_INTERFACE" } },
    { "::", { "\"::\" is no interface", "no address to be told to others", "KVGRID_INTERFACE" } },
    { "203.0.113.77", { "203.0.113.77 is no address of this host", "lo 127.0.0.1", "KVGRID_INTERFACE" } }, /* of documentation: nobody's */
    { "127.0.0.1:4711", { "\"127.0.0.1:4711\" is no interface", "lo 127.0.0.1", "KVGRID_INTERFACE" } },
};
enum { NO_INTERFACES = sizeof no_interfaces / sizeof *no_interfaces };

static int body_no_interface(ForkRank *rank)
{
    const Plan   *plan = rank->argument;
    KvMeshOptions options = options_of(plan);
    KvComm        comm = { 0 };
    KvLiveness    live = { 0 };
    double        begin = fork_seconds();

    options.interface = rank->bootstrap.rank == 1 ? no_interfaces[plan->which].interface : NULL;
    KvgStatus status = kvg_mesh_create(&rank->bootstrap, &options, &comm, &live);

    FORK_CHECK(fork_seconds() - begin < 3); /* long before the timeout: they leave together */
    FORK_CHECK(status == (rank->bootstrap.rank == 1 ? KVG_EINVAL : KVG_EPEER));
    FORK_CHECK(comm.ops == NULL && live.ops == NULL && kvg_live_allocations() == 0);
    for (int i = 0; i < 3 && rank->bootstrap.rank == 1; i++) {
        FORK_CHECK(strstr(kvg_last_error(), no_interfaces[plan->which].says[i]) != NULL);
    }
    FORK_CHECK(rank->bootstrap.rank == 1 || strstr(kvg_last_error(), "rank 1 could not set up (EINVAL)") != NULL);
    return 0;
}

START_TEST(test_mesh_interface_that_is_none_is_refused_by_name_with_those_there_are)
{
    ck_assert_int_eq(fork_ranks(2, 20000, body_no_interface, &(Plan){ .tcp = 1, .which = _i }, NULL), 0);
}
END_TEST

START_TEST(test_mesh_interfaces_that_cannot_be_read_are_not_taken_for_none)
{
    struct sockaddr_storage chosen;
    struct rlimit           limit;
    char                    place[KVG_MESH_PLACE_BYTES];

    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = 0; /* no more descriptors */
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    KvgStatus by_name = kvg_mesh_choose("lo", 0, &chosen), by_address = kvg_mesh_choose("127.0.0.2", 0, &chosen);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    ck_assert_int_eq(by_address, KVG_OK);
    kvg_mesh_place(&chosen, place);
    ck_assert_str_eq(place, "127.0.0.2");
    ck_assert_int_eq(by_name, KVG_EIO);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "to find \"lo\": Too many open files"));
    ck_assert_int_eq(kvg_mesh_choose("lo", 0, &chosen), KVG_OK);
}
END_TEST

START_TEST(test_mesh_places_and_lists_fit_where_they_are_written)
{
    struct sockaddr_in  four = { .sin_family = AF_INET, .sin_port = htons(4711), .sin_addr.s_addr = htonl(0x0a000007) };
    struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(80), .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    char                place[KVG_MESH_PLACE_BYTES], whole[KVG_MESH_INTERFACES_BYTES], list[KVG_MESH_INTERFACES_BYTES];

    kvg_mesh_place(&four, place);
    ck_assert_str_eq(place, "10.0.0.7:4711");
    kvg_mesh_place(&six, place);
    ck_assert_str_eq(place, "[::1]:80");
    six.sin6_port = 0; /* not bound yet */
    kvg_mesh_place(&six, place);
    ck_assert_str_eq(place, "::1");
    four.sin_family = AF_UNIX;
    kvg_mesh_place(&four, place);
    ck_assert_str_eq(place, "?");
    kvg_mesh_interfaces(whole, sizeof whole);
    ck_assert_ptr_nonnull(strstr(whole, "lo 127.0.0.1"));
    for (size_t bytes = 32; bytes < sizeof list; bytes++) { /* cut between entries, never within, and said */
        kvg_mesh_interfaces(list, bytes);
        ck_assert_uint_lt(strlen(list), bytes);
        const char *dots = strstr(list, ", ..");
        ck_assert(strcmp(list, whole) == 0 ||
                  (dots != NULL && dots[4] == '\0' && strncmp(list, whole, (size_t)(dots - list)) == 0 && strncmp(whole + (dots - list), ", ", 2) == 0));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mesh_address");
    TCase *tcase = tcase_create("mesh_address");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, test_mesh_listens_on_the_interface_or_address_that_each_rank_is_told, 0, sizeof interfaces / sizeof *interfaces);
    tcase_add_loop_test(tcase, test_mesh_interface_that_is_none_is_refused_by_name_with_those_there_are, 0, NO_INTERFACES);
    if (getenv("KVG_UNDER_VALGRIND") == NULL) { /* which lowers no limit of open files */
        tcase_add_test(tcase, test_mesh_interfaces_that_cannot_be_read_are_not_taken_for_none);
    }
    tcase_add_test(tcase, test_mesh_places_and_lists_fit_where_they_are_written);
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

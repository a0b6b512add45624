/* Rebuilding and joining, what is refused: calls that lack something, and accounts that cannot be. Everybody holds afterwards what they held, and nothing is
 * kept. */
#include "pp/rebuild_impl.h"
#include "tests/support/rebuild_pair.h"
#include "tests/support/wire_edit.h"

static void refused(KvgStatus status, KvgStatus code, const char *part)
{
    ck_assert_msg(status == code && strstr(kvg_last_error(), part) != NULL, "%s, not %s with '%s': %s", kvg_status_name(status), kvg_status_name(code), part,
                  kvg_last_error());
}

/* ---- calls */

/* A bootstrap of two ranks whose other rank answers as told, until it comes no more. */
static struct {
    KvgStatus other;
    int       rounds; /* that it takes part in */
} gathering;

static KvgStatus gather_of_two(void *user, const void *mine, void *all, size_t bytes, uint32_t timeout_ms)
{
    const KvgBootstrap *bootstrap = user;
    uint64_t            status = (uint64_t)gathering.other;

    (void)timeout_ms;
    if (gathering.rounds-- <= 0 || bootstrap->rank > 1) return kvg_fail(KVG_EPEER, "the test's other rank is gone");
    memcpy((uint8_t *)all + (size_t)bootstrap->rank * bytes, mine, bytes);
    memcpy((uint8_t *)all + (size_t)(1 - bootstrap->rank) * bytes, mine, bytes);
    if (bytes == sizeof status) memcpy((uint8_t *)all + (size_t)(1 - bootstrap->rank) * bytes, &status, sizeof status);
    return KVG_OK;
}

static KvgBootstrap two_ranks(KvgBootstrap *self, int rank)
{
    *self = (KvgBootstrap)KVG_BOOTSTRAP_INIT;
    self->user = self;
    self->rank = rank;
    self->ranks = 2;
    self->allgather = gather_of_two;
    return *self;
}

START_TEST(test_a_newcomer_that_is_refused_keeps_nothing)
{
    KvgGridOptions   options = KVG_GRID_OPTIONS_INIT;
    KvgBootstrap     self, alone = KVG_BOOTSTRAP_INIT;
    KvgPlaceOptions  place = life_options(2, 1u << 20);
    KvgJoin          join = {NULL, &place, NULL};
    KvgGrid         *grid = NULL;
    KvgRebuildReport *report = NULL;
    KvgSetup        *setup = NULL;
    KvInproc        *hub;
    KvComm           comm;
    KvLiveness       liveness;
    uint64_t         live = kvg_live_allocations();

    options.tp = 2;
    two_ranks(&self, 1);
    refused(kvg_grid_join(NULL, &options, NULL, 0, &grid, &report), KVG_EINVAL, "bootstrap");
    refused(kvg_grid_join(&alone, &options, NULL, 0, &grid, &report), KVG_EINVAL, "bootstrap");
    alone.size = 0;
    refused(kvg_grid_join(&alone, &options, NULL, 0, &grid, &report), KVG_EINVAL, "KvgBootstrap");
    gathering.rounds = 1;
    gathering.other = KVG_ENOMEM; /* a survivor could not come: all leave */
    refused(kvg_grid_join(&self, &options, NULL, 0, &grid, &report), KVG_EREFUSED, "rank 0 answers ENOMEM");
    gathering.rounds = 1;
    gathering.other = KVG_OK; /* and one that is gone when the two connect */
    ck_assert_int_ne(kvg_grid_join(&self, &options, NULL, 0, &grid, &report), KVG_OK);
    self.rank = 2;
    refused(kvg_grid_join(&self, &options, NULL, 0, &grid, &report), KVG_EINVAL, "rank 2 of 2");
    ck_assert_int_eq(kvg_inproc_create(2, &hub), KVG_OK);
    ck_assert_int_eq(kvg_inproc_attach(hub, 1, &comm, &liveness), KVG_OK);
    refused(kvg_grid_join_start(1, 2, &options, NULL, 0, &grid, &report, &setup), KVG_EINVAL, "a comm and a liveness");
    options.comm = &comm;
    options.liveness = &liveness;
    refused(kvg_grid_join_start(1, 2, &options, NULL, 0, &grid, &report, NULL), KVG_EINVAL, "place for the operation");
    for (uint64_t nth = 0;; nth++) {
        uint64_t before = kvg_live_allocations();
        kvg_fault_arm(nth);
        KvgStatus status = kvg_grid_join_start(1, 2, &options, NULL, 0, &grid, &report, &setup);
        if (!kvg_fault_disarm()) {
            ck_assert_int_eq(status, KVG_OK);
            break;
        }
        if (status == KVG_OK) break; /* what its placements want is told to the others, who do not wait */
        ck_assert_int_eq(status, KVG_ENOMEM);
        ck_assert_uint_eq(kvg_live_allocations(), before); /* comm and liveness are the caller's still */
    }
    kvg_setup_free(setup);
    ck_assert_int_eq(kvg_inproc_attach(hub, 0, &comm, &liveness), KVG_OK);
    ck_assert_int_eq(kvg_grid_join_start(0, 2, &options, &join, 1, &grid, &report, &setup), KVG_OK); /* a placement without a config: said, not waited for */
    kvg_setup_free(setup);
    ck_assert_ptr_null(grid);
    kvg_inproc_destroy(hub);
    ck_assert_uint_eq(kvg_live_allocations(), live);
}
END_TEST

/* Whose a comm and a liveness are is seen by the hub, which attaches a rank again once both are closed. */
static void given_ends(KvInproc *hub, int rank, KvComm *comm, KvLiveness *liveness)
{
    ck_assert_msg(kvg_inproc_attach(hub, rank, comm, liveness) == KVG_OK, "%s", kvg_last_error());
}

static int are_closed(KvInproc *hub, int rank)
{
    KvComm     comm;
    KvLiveness liveness;
    if (kvg_inproc_attach(hub, rank, &comm, &liveness) != KVG_OK) return 0;
    comm.ops->close(comm.self);
    liveness.ops->close(liveness.self);
    return 1;
}

START_TEST(test_the_ends_that_a_newcomer_gave_are_closed_wherever_it_fails)
{
    enum { BOOTSTRAP_ALONE, NO_PLACE, REFUSED, GONE, OTHER_SHAPE, NO_CONFIG, CASES };
    static const KvgStatus expected[CASES] = {KVG_EINVAL, KVG_EINVAL, KVG_EREFUSED, KVG_EPEER, KVG_EINVAL, KVG_EINDOUBT /* it says so to a rank that never answers */};
    KvgGridOptions options = KVG_GRID_OPTIONS_INIT;
    KvgBootstrap   self, alone = KVG_BOOTSTRAP_INIT;
    KvgJoin        join = {NULL, NULL, NULL};
    KvgGrid       *grid = NULL;
    KvInproc      *hub;
    KvComm         comm;
    KvLiveness     liveness;
    uint64_t       live = kvg_live_allocations();

    ck_assert_int_eq(kvg_inproc_create(2, &hub), KVG_OK);
    two_ranks(&self, 1);
    options.comm = &comm;
    options.liveness = &liveness;
    for (int where = 0; where < CASES; where++) {
        options.tp = where == OTHER_SHAPE ? 3 : 2;
        gathering.rounds = where != GONE;
        gathering.other = where == REFUSED ? KVG_ENOMEM : KVG_OK;
        given_ends(hub, 1, &comm, &liveness);
        KvgStatus status = kvg_grid_join(where == BOOTSTRAP_ALONE ? &alone : &self, &options, &join, where == NO_CONFIG, where == NO_PLACE ? NULL : &grid, NULL);
        ck_assert_msg(status == expected[where], "%d: %s: %s", where, kvg_status_name(status), kvg_last_error());
        ck_assert_msg(are_closed(hub, 1), "%d", where);
        ck_assert_ptr_null(grid);
    }
    kvg_inproc_destroy(hub);
    ck_assert_uint_eq(kvg_live_allocations(), live);
}
END_TEST

START_TEST(test_the_ends_that_a_survivor_gave_are_its_own_after_a_list_that_cannot_be)
{
    KvgRebuildOptions options = KVG_REBUILD_OPTIONS_INIT;
    KvgBootstrap      self;
    KvInproc         *hub;
    KvComm            comm;
    KvLiveness        liveness;

    open_pair();
    kill_rank(&scene, 1);
    ck_assert_int_eq(kvg_inproc_create(2, &hub), KVG_OK);
    given_ends(hub, 0, &comm, &liveness);
    two_ranks(&self, 0);
    options.comm = &comm;
    options.liveness = &liveness;
    gathering.other = KVG_OK;
    gathering.rounds = 1;
    refused(kvg_grid_rebuild(scene.g.grid[0], &self, (int[]){0, 0}, 2, &options, NULL), KVG_EINVAL, "named twice");
    gathering.rounds = 1;
    refused(kvg_grid_rebuild(scene.g.grid[0], &self, (int[]){1}, 1, &options, NULL), KVG_EINVAL, "this rank");
    ck_assert(!are_closed(hub, 0));
    gathering.rounds = 0;
    refused(kvg_grid_rebuild(scene.g.grid[0], &self, (int[]){0}, 1, &options, NULL), KVG_EPEER, "is gone");
    ck_assert(are_closed(hub, 0));
    kvg_inproc_destroy(hub);
    ck_assert_int_eq(rebuild_empty(&scene, NULL), KVG_OK);
    close_scene(&scene);
}
END_TEST

START_TEST(test_newcomers_without_a_survivor_are_refused)
{
    KvgGridOptions options = KVG_GRID_OPTIONS_INIT;
    KvgGrid       *grid[2] = {0};
    KvgSetup      *setups[2];
    KvInproc      *hub;
    KvComm         comm[2];
    KvLiveness     liveness[2];
    KvgStatus      each[2] = {KVG_OK};
    int            done[2] = {0};

    options.tp = 2;
    ck_assert_int_eq(kvg_inproc_create(2, &hub), KVG_OK);
    for (int r = 0; r < 2; r++) {
        ck_assert_int_eq(kvg_inproc_attach(hub, r, &comm[r], &liveness[r]), KVG_OK);
        options.comm = &comm[r];
        options.liveness = &liveness[r];
        ck_assert_int_eq(kvg_grid_join_start(r, 2, &options, NULL, 0, &grid[r], NULL, &setups[r]), KVG_OK);
    }
    for (int rounds = 0; !done[0] || !done[1]; rounds++) {
        ck_assert_int_lt(rounds, 100000);
        for (int r = 0; r < 2; r++) {
            if (!done[r]) each[r] = kvg_setup_test(setups[r], &done[r]);
        }
        kvg_inproc_advance_ns(hub, 100000);
    }
    for (int r = 0; r < 2; r++) {
        ck_assert_int_eq(each[r], KVG_EINVAL);
        ck_assert_ptr_null(grid[r]);
        kvg_setup_free(setups[r]);
    }
    kvg_inproc_destroy(hub);
}
END_TEST

START_TEST(test_survivors_that_are_refused_hold_what_they_held)
{
    KvgRebuildOptions options = KVG_REBUILD_OPTIONS_INIT;
    KvgBootstrap      self;
    KvgSetup         *setup = NULL;
    KvComm            comm;
    KvLiveness        liveness;

    open_pair();
    kill_rank(&scene, 1);
    options.comm = &comm;
    refused(kvg_grid_rebuild_start(scene.g.grid[0], (int[]){0}, 1, &options, NULL, &setup), KVG_EINVAL, "both a comm and a liveness");
    options.comm = NULL;
    refused(kvg_grid_rebuild_start(scene.g.grid[0], (int[]){0}, 1, &options, NULL, NULL), KVG_EINVAL, "place for the operation");
    two_ranks(&self, 1);
    refused(kvg_grid_rebuild(scene.g.grid[0], &self, (int[]){0}, 1, NULL, NULL), KVG_EINVAL, "survivors keep their places");
    two_ranks(&self, 0);
    gathering.rounds = 1;
    gathering.other = KVG_ENOMEM;
    refused(kvg_grid_rebuild(scene.g.grid[0], &self, (int[]){0}, 1, NULL, NULL), KVG_EREFUSED, "rank 1 answers ENOMEM");
    ck_assert_int_eq(kvg_comm_self(&comm, &liveness), KVG_OK);
    options.comm = &comm;
    options.liveness = &liveness; /* taken over and closed, where it fails too */
    gathering.rounds = 0;
    refused(kvg_grid_rebuild(scene.g.grid[0], &self, (int[]){0}, 1, &options, NULL), KVG_EPEER, "is gone");
    for (int q = 0; q < SEQUENCES; q++) ck_assert_uint_eq(life_info(scene.s[0][q]).rows, scene.rows[q]);
    ck_assert_int_eq(rebuild_empty(&scene, NULL), KVG_OK);
    check_goes_on(&scene, 1);
    close_scene(&scene);
}
END_TEST

/* ---- accounts that cannot be: a survivor's, when the others rebuild with it */

static size_t few_bytes(const KvMessageHeader *header, uint8_t *body, size_t bytes)
{
    (void)body;
    return header->kind == KVG_MESSAGE_SETUP ? sizeof(RebuildHello) - 1 : bytes;
}

static size_t one_less(const KvMessageHeader *header, uint8_t *body, size_t bytes)
{
    (void)body;
    return header->kind == KVG_MESSAGE_SETUP && bytes > sizeof(RebuildHello) ? bytes - 1 : bytes;
}

static size_t says_it_joins(const KvMessageHeader *header, uint8_t *body, size_t bytes)
{
    if (header->kind == KVG_MESSAGE_SETUP && bytes >= sizeof(RebuildHello)) ((RebuildHello *)(void *)body)->joins = 1;
    return bytes;
}

static size_t another_epoch(const KvMessageHeader *header, uint8_t *body, size_t bytes)
{
    if (header->kind == KVG_MESSAGE_SETUP && bytes >= sizeof(RebuildHello)) ((RebuildHello *)(void *)body)->epoch++;
    return bytes;
}

START_TEST(test_accounts_of_survivors_that_cannot_be_are_refused)
{
    static const struct { WireEdit edit; KvgStatus status; const char *part; } bad[] = {
        {few_bytes, KVG_ELAYOUT, "run one version"}, {one_less, KVG_EFORMAT, "no account of its sequences"},
        {says_it_joins, KVG_ELAYOUT, "the list of survivors has it"}, {another_epoch, KVG_ELAYOUT, "the epoch"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        KvgSetup *setups[2] = {0};
        KvgStatus status = KVG_OK;
        int       done[2] = {0};

        scene = (Scene){0};
        open_scene(&scene, &some_models[1], 3, 1, KVG_LAYOUT_POOL);
        kill_rank(&scene, 2);
        edit_messages_of(&scene.g.grid[1]->comm, bad[i].edit);
        for (int r = 0; r < 2; r++) ck_assert_int_eq(kvg_grid_rebuild_start(scene.g.grid[r], (int[]){0, 1}, 2, NULL, NULL, &setups[r]), KVG_OK);
        for (int rounds = 0; !done[0]; rounds++) {
            ck_assert_int_lt(rounds, 100000);
            if (!done[1]) kvg_setup_test(setups[1], &done[1]);
            status = kvg_setup_test(setups[0], &done[0]);
            kvg_inproc_advance_ns(scene.g.hub, 100000);
        }
        refused(status, bad[i].status, bad[i].part);
        for (int r = 0; r < 2; r++) kvg_setup_free(setups[r]);
        for (int q = 0; q < SEQUENCES; q++) ck_assert_uint_eq(life_info(scene.s[0][q]).rows, scene.rows[q]);
        close_scene(&scene);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rebuild_refusals");
    TCase *tcase = tcase_create("rebuild_refusals");

    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, test_a_newcomer_that_is_refused_keeps_nothing);
    tcase_add_test(tcase, test_newcomers_without_a_survivor_are_refused);
    tcase_add_test(tcase, test_the_ends_that_a_newcomer_gave_are_closed_wherever_it_fails);
    tcase_add_test(tcase, test_the_ends_that_a_survivor_gave_are_its_own_after_a_list_that_cannot_be);
    tcase_add_test(tcase, test_survivors_that_are_refused_hold_what_they_held);
    tcase_add_test(tcase, test_accounts_of_survivors_that_cannot_be_are_refused);
    suite_add_tcase(suite, tcase);
    return life_run(suite);
}

/* Rebuilding and joining, what is refused: calls that lack something, accounts that cannot be, ranks that could not come, and memory that fails before anything
 * has begun. Everybody holds afterwards what they held, and nothing is kept. With several placements, one of them asleep. */
#include "pp/rebuild_impl.h"
#include "tests/support/rebuild_scene.h"
#include "tests/support/wire_edit.h"

static Scene scene;

static void open_pair(void)
{
    scene = (Scene){0};
    open_scene(&scene, &some_models[1], 2, 1, KVG_LAYOUT_POOL); /* latent: each rank has a copy of all */
}

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
    static const struct { WireEdit edit; const char *part; } bad[] = {
        {few_bytes, "run one version"}, {one_less, "no account of its sequences"}, {says_it_joins, "the list of survivors has it"}, {another_epoch, "the epoch"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        KvgSetup *setups[2] = {0};
        KvgStatus status = KVG_OK;
        int       done[2] = {0};

        scene = (Scene){0};
        open_scene(&scene, &some_models[1], 3, 1, KVG_LAYOUT_POOL);
        kill_rank(&scene, 2);
        edit_messages_of(scene.g.grid[1], bad[i].edit);
        for (int r = 0; r < 2; r++) ck_assert_int_eq(kvg_grid_rebuild_start(scene.g.grid[r], (int[]){0, 1}, 2, NULL, NULL, &setups[r]), KVG_OK);
        for (int rounds = 0; !done[0]; rounds++) {
            ck_assert_int_lt(rounds, 100000);
            if (!done[1]) kvg_setup_test(setups[1], &done[1]);
            status = kvg_setup_test(setups[0], &done[0]);
            kvg_inproc_advance_ns(scene.g.hub, 100000);
        }
        refused(status, KVG_ELAYOUT, bad[i].part);
        for (int r = 0; r < 2; r++) kvg_setup_free(setups[r]);
        for (int q = 0; q < SEQUENCES; q++) ck_assert_uint_eq(life_info(scene.s[0][q]).rows, scene.rows[q]);
        close_scene(&scene);
    }
}
END_TEST

LIFE_MAIN("rebuild_refusals", test_a_newcomer_that_is_refused_keeps_nothing, test_newcomers_without_a_survivor_are_refused,
          test_survivors_that_are_refused_hold_what_they_held, test_accounts_of_survivors_that_cannot_be_are_refused)

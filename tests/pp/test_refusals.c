/* Calls that are asked wrongly: each is refused by its code with a sentence that says what is wrong, allocates nothing and changes nothing. */
#include <kvgrid/taps.h>

#include "pp/internal.h"
#include "tests/support/grid_life.h"
#include "tests/support/kinds_run.h"

/* One call: `live` is what was allocated before it. */
#define REFUSED(call, code, part)                                          \
    do {                                                                   \
        uint64_t  live_ = kvg_live_allocations();                          \
        KvgStatus status_ = (call);                                        \
        refused(#call, live_, status_, (code), (part));                    \
    } while (0)

static void refused(const char *call, uint64_t live, KvgStatus status, KvgStatus code, const char *part)
{
    ck_assert_msg(status == code, "%s answers %s, not %s: %s", call, kvg_status_name(status), kvg_status_name(code), kvg_last_error());
    ck_assert_msg(strstr(kvg_last_error(), part) != NULL, "%s: no '%s' in: %s", call, part, kvg_last_error());
    ck_assert_msg(kvg_live_allocations() == live, "%s keeps memory", call);
}

static TestGrid      g;
static LifeSequences s;

/* One rank, a windowed and a full layer, two batches, sequence 1 open with `rows` rows. */
static void open_one(uint32_t rows)
{
    KvgPolicy       policy = life_policy(1);
    KvgPlaceOptions options = life_options(3, 4u << 20);

    options.max_step_sequences = 2;
    grid_open(&g, 1, 1, (uint32_t[]){2, 2, 64}, &options, &policy, 2);
    ck_assert_int_eq(life_open(&g, s, 0, 1, 0), KVG_OK);
    if (rows > 0) ck_assert_int_eq(life_grow(&g, s, 0, rows), KVG_OK);
}

/* What the sequence has is what it had. */
static void close_one(uint64_t rows)
{
    ck_assert_uint_eq(life_info(s[0][0]).rows, rows);
    ck_assert_int_eq(life_grow(&g, s, 0, 1), KVG_OK);
    ck_assert_uint_eq(life_info(s[0][0]).rows, rows + 1);
    grid_close(&g);
}

START_TEST(test_grids_that_are_asked_wrongly_are_refused)
{
    KvgBootstrap   alone = KVG_BOOTSTRAP_INIT, other = KVG_BOOTSTRAP_INIT;
    KvgGridOptions options = KVG_GRID_OPTIONS_INIT;
    KvgGrid       *grid = NULL;
    KvInproc      *hub;
    KvComm         comm;
    KvLiveness     liveness;

    ck_assert_int_eq(kvg_inproc_create(1, &hub), KVG_OK);
    ck_assert_int_eq(kvg_comm_self(&comm, &liveness), KVG_OK);
    REFUSED(kvg_grid_create(NULL, &options, &grid), KVG_EINVAL, "bootstrap");
    REFUSED(kvg_grid_create(&alone, NULL, &grid), KVG_EINVAL, "options");
    REFUSED(kvg_grid_create(&alone, &options, NULL), KVG_EINVAL, "place");
    other.ranks = 0;
    REFUSED(kvg_grid_create(&other, &options, &grid), KVG_EINVAL, "ranks");
    other.ranks = 2; /* and no all-gather */
    REFUSED(kvg_grid_create(&other, &options, &grid), KVG_EINVAL, "all-gather");
    other.ranks = 1;
    other.rank = 1;
    REFUSED(kvg_grid_create(&other, &options, &grid), KVG_EINVAL, "rank 1 of 1");
    REFUSED(kvg_grid_create_inproc(NULL, 1, &options, &grid), KVG_EINVAL, "hub");
    REFUSED(kvg_grid_create_inproc(hub, 0, &options, &grid), KVG_EINVAL, "hub");
    options.comm = &comm;
    REFUSED(kvg_grid_create_inproc(hub, 1, &options, &grid), KVG_EINVAL, "without comm");
    ck_assert_ptr_null(grid);
    ck_assert_int_eq(kvg_grid_create(&alone, &options, &grid), KVG_OK); /* records by the caller's way, signs of life by the grid's own */
    ck_assert_uint_eq(kvg_grid_tp(grid), 1);
    ck_assert_uint_eq(kvg_grid_pp(grid), 1);
    ck_assert_int_eq(kvg_grid_progress(grid), KVG_OK);
    kvg_grid_destroy(grid);
    kvg_inproc_destroy(hub);
    REFUSED(kvg_setup_wait(NULL), KVG_EINVAL, "no set-up operation");
    REFUSED(kvg_setup_test(NULL, &(int){ 0 }), KVG_EINVAL, "kvg_setup_test");
}
END_TEST

START_TEST(test_placements_that_are_asked_wrongly_are_refused)
{
    KvgPlaceOptions options = life_options(2, 1u << 20);
    KvgPlacement   *placement = NULL;
    KvgSetup       *setup = NULL;
    KvgStats        stats = {0};

    open_one(0);
    REFUSED(kvg_place_start(NULL, &g.config, &options, &placement, &setup), KVG_EINVAL, "a grid");
    REFUSED(kvg_place_start(g.grid[0], NULL, &options, &placement, &setup), KVG_EINVAL, "config");
    REFUSED(kvg_place_start(g.grid[0], &(ModelConfig){0}, &options, &placement, &setup), KVG_EINVAL, "loaded config");
    REFUSED(kvg_place_start(g.grid[0], &g.config, NULL, &placement, &setup), KVG_EINVAL, "options");
    REFUSED(kvg_place_start(g.grid[0], &g.config, &options, NULL, &setup), KVG_EINVAL, "places");
    options.max_step_sequences = 3;
    REFUSED(kvg_place(g.grid[0], &g.config, &options, &placement), KVG_EINVAL, "more than max_sequences 2");
    options.max_step_sequences = 2; /* a neighbour that is served */
    ck_assert_msg(kvg_place(g.grid[0], &g.config, &options, &placement) == KVG_OK, "%s", kvg_last_error());
    kvg_placement_destroy(placement);
    placement = NULL;
    options.max_step_sequences = 0; /* as many as there are sequences, but records have room for 2: fixed by the first placement */
    options.max_sequences = 5;
    ck_assert_msg(kvg_place(g.grid[0], &g.config, &options, &placement) == KVG_OK, "%s", kvg_last_error());
    KvgBatch *batch = NULL;
    REFUSED(kvg_batch_create(placement, 3, &batch), KVG_EINVAL, "1 to 2");
    kvg_placement_destroy(placement);
    placement = NULL;
    REFUSED(kvg_batch_create(NULL, 1, &batch), KVG_EINVAL, "needs a placement");
    REFUSED(kvg_batch_create(g.placement[0], 0, &batch), KVG_EINVAL, "a batch of 0");
    REFUSED(kvg_stats(g.placement[0], &stats), KVG_EINVAL, "size is set");
    REFUSED(kvg_stats(NULL, &stats), KVG_EINVAL, "placement");
    ck_assert_ptr_null(placement);
    ck_assert_ptr_null(batch);
    close_one(0);
}
END_TEST

START_TEST(test_sequences_default_to_64)
{
    KvgPlaceOptions options = life_options(0, 8u << 20);
    KvgLedger       ledger;

    grid_open(&g, 1, 1, (uint32_t[]){2, 2, 0}, &options, NULL, 64); /* as many places a step, too */
    kvg_placement_ledger(g.placement[0], &ledger);
    ck_assert_uint_eq(ledger.slots_total, 64);
    ck_assert_uint_eq(ledger.slots_free, 64);
    grid_close(&g);
}
END_TEST

START_TEST(test_a_model_of_slots_alone_that_do_not_fit_is_refused)
{
    KvgPlaceOptions options = life_options(4, 4096);
    StatePlan      *layers;

    grid_connect(&g, 1, 1, NULL, 0);
    ck_assert_int_eq(kvg_model_config_parse_json(glm_next, strlen(glm_next), "slots", &g.config), KVG_OK);
    layers = g.config.plan.layers;
    ck_assert_int_eq(layers[0].kind, KVG_STATE_RECURRENT);
    layers[1] = layers[3] = layers[0];
    REFUSED(kvg_place(g.grid[0], &g.config, &options, &g.placement[0]), KVG_ENOMEM, "the slots of 4 sequences take");
    options.memory_bytes = 1u << 20; /* a neighbour that fits */
    ck_assert_msg(kvg_place(g.grid[0], &g.config, &options, &g.placement[0]) == KVG_OK, "%s", kvg_last_error());
    grid_close(&g);
}
END_TEST

START_TEST(test_indexers_of_unlike_pools_are_refused)
{
    KvgPlaceOptions options = life_options(4, 8u << 20);
    StatePlan      *layers;
    KvgPolicy       policy = life_policy(1);

    grid_connect(&g, 1, 1, &policy, 0);
    ck_assert_int_eq(kvg_model_config_parse_json(glm_next, strlen(glm_next), "unlike", &g.config), KVG_OK);
    layers = g.config.plan.layers;
    ck_assert_uint_eq(layers[1].u.latent.index_pool, 4);
    layers[3].u.latent.index_pool = 8;
    REFUSED(kvg_place(g.grid[0], &g.config, &options, &g.placement[0]), KVG_ENOTSUP, "layer 3 of unlike pools 8 rows a key and an earlier layer 4");
    layers[1].u.latent.index_pool = layers[3].u.latent.index_pool = 12; /* alike, and no divisor of 64 */
    REFUSED(kvg_place(g.grid[0], &g.config, &options, &g.placement[0]), KVG_EGEOM, "divide the 64 rows");
    layers[1].u.latent.index_pool = layers[3].u.latent.index_pool = 8;
    ck_assert_msg(kvg_place(g.grid[0], &g.config, &options, &g.placement[0]) == KVG_OK, "%s", kvg_last_error());
    grid_close(&g);
}
END_TEST

START_TEST(test_sequences_that_are_asked_wrongly_are_refused)
{
    KvgSequence    *other = NULL;
    KvgSnapshot    *snapshot = NULL;
    KvgSequenceInfo info = {0};
    KvDigest        digest;
    KvLeaf          leaf;
    size_t          leaves = 0;
    KvgSetup       *setup = NULL;
    float           row[64];
    float           logits[2] = {1, 2};

    open_one(300);
    REFUSED(kvg_sequence_open(NULL, 5, 0, &other), KVG_EINVAL, "placement");
    REFUSED(kvg_sequence_open(g.placement[0], 5, 0, NULL), KVG_EINVAL, "place");
    REFUSED(kvg_sequence_fork(s[0][0], 0, 5, NULL), KVG_EINVAL, "place");
    REFUSED(kvg_sequence_info(s[0][0], &info), KVG_EINVAL, "KvgSequenceInfo.size is 0");
    REFUSED(kvg_sequence_info(s[0][0], NULL), KVG_EINVAL, "a KvgSequenceInfo is needed");
    REFUSED(kvg_sequence_info(NULL, &info), KVG_ESTALE, "closed");
    REFUSED(kvg_sequence_snapshot(s[0][0], NULL), KVG_EINVAL, "place");
    REFUSED(kvg_sequence_snapshot_into(s[0][0], NULL), KVG_EINVAL, "kvg_sequence_snapshot made");
    REFUSED(kvg_sequence_digest_start(NULL, &digest, &setup), KVG_EINVAL, "open sequence");
    REFUSED(kvg_sequence_leaves(s[0][0], &leaf, 1, &leaves), KVG_EINVAL, "room for 1 leaves is too little");
    ck_assert_uint_eq(leaves, 8); /* said, so that the caller knows: K and V of two layers of two heads */
    REFUSED(kvg_sequence_park_logits(s[0][0], NULL, 2), KVG_EINVAL, "2 logits");
    REFUSED(kvg_sequence_park_logits(NULL, logits, 2), KVG_ESTALE, "closed");
    REFUSED(kvg_sequence_read(s[0][0], 2, 0, 0, 1, row), KVG_EINVAL, "layer 2");
    REFUSED(kvg_sequence_read(s[0][0], 0, 2, 290, 1, row), KVG_EINVAL, "plane 2");
    REFUSED(kvg_sequence_read(s[0][0], 0, 0, 300, 1, row), KVG_EINVAL, "has 300 rows");
    ck_assert_int_eq(kvg_sequence_read(s[0][0], 1, 0, 0, 1, row), KVG_OK);
    ck_assert_int_eq(kvg_sequence_read(s[0][0], 0, 0, 299, 1, row), KVG_OK);
    ck_assert_ptr_null(kvg_sequence_row(s[0][0], 1, 0, 2, 0));
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "head 2: layer 1 has 2 heads"));
    ck_assert_ptr_nonnull(kvg_sequence_row(s[0][0], 1, 0, 1, 0));
    ck_assert_ptr_null(other);
    ck_assert_ptr_null(snapshot);
    close_one(300);
}
END_TEST

START_TEST(test_rows_behind_a_window_have_lapsed)
{
    KvgPolicy       policy = life_policy(1);
    KvgPlaceOptions options = life_options(1, 4u << 20);
    float           row[64];

    options.prefill_chunk_max = 128;
    grid_open(&g, 1, 1, (uint32_t[]){2, 2, 64}, &options, &policy, 1);
    ck_assert_int_eq(life_open(&g, s, 0, 1, 0), KVG_OK);
    for (int n = 0; n < 10; n++) ck_assert_int_eq(life_grow(&g, s, 0, 128), KVG_OK);
    REFUSED(kvg_sequence_read(s[0][0], 0, 0, 0, 1, row), KVG_ELAPPED, "row 0 of layer 0 fell behind the window");
    ck_assert_int_eq(kvg_sequence_read(s[0][0], 0, 0, 1279, 1, row), KVG_OK);
    ck_assert_int_eq(kvg_sequence_read(s[0][0], 1, 0, 0, 1, row), KVG_OK); /* a full layer's */
    close_one(1280);
}
END_TEST

START_TEST(test_a_snapshot_belongs_to_its_placement)
{
    KvgPlaceOptions options = life_options(2, 1u << 20);
    KvgPlacement   *second = NULL;
    KvgSequence    *there = NULL;
    KvgSnapshot    *snapshot = NULL;

    open_one(5);
    options.max_step_sequences = 2;
    ck_assert_msg(kvg_place(g.grid[0], &g.config, &options, &second) == KVG_OK, "%s", kvg_last_error());
    ck_assert_int_eq(kvg_sequence_open(second, 1, 0, &there), KVG_OK);
    ck_assert_int_eq(kvg_sequence_snapshot(s[0][0], &snapshot), KVG_OK);
    REFUSED(kvg_sequence_snapshot_into(there, snapshot), KVG_EINVAL, "another placement");
    REFUSED(kvg_sequence_rollback(there, snapshot, 0), KVG_ESTALE, "another sequence's");
    ck_assert(kvg_sequence_can_rollback(s[0][0], snapshot, 0));
    kvg_snapshot_free(snapshot);
    kvg_placement_destroy(second);
    close_one(5);
}
END_TEST

START_TEST(test_steps_that_are_asked_wrongly_are_refused)
{
    const uint32_t  rows[2] = {1, 0};
    const uint32_t *both[] = {rows, rows}, *half[] = {rows, NULL};
    KvgPlaceOptions options = life_options(1, 1u << 20);
    KvgPlacement   *second = NULL;
    KvgBatch       *batches[2] = {0}, *twice[2];
    KvgStep        *step = NULL;
    KvgSetup       *setup = NULL;
    KvDigest        digest;

    open_one(0);
    ck_assert_int_eq(kvg_place(g.grid[0], &g.config, &options, &second), KVG_OK);
    batches[0] = g.batch[0];
    ck_assert_int_eq(kvg_batch_create(second, 1, &batches[1]), KVG_OK);
    twice[0] = twice[1] = g.batch[0];
    REFUSED(kvg_step_begin(g.batch[0], rows, NULL), KVG_EINVAL, "place for the step");
    REFUSED(kvg_step_begin(NULL, rows, &step), KVG_EINVAL, "batch 0");
    REFUSED(kvg_step_begin(g.batch[0], NULL, &step), KVG_EINVAL, "rows");
    REFUSED(kvg_step_begin_joint(batches, both, 0, &step), KVG_EINVAL, "1 to 4 batches");
    REFUSED(kvg_step_begin_joint(batches, half, 2, &step), KVG_EINVAL, "batch 1");
    REFUSED(kvg_step_begin_joint(twice, both, 2, &step), KVG_EINVAL, "twice");
    REFUSED(kvg_step_begin_joint(batches, both, 2, &step), KVG_EINVAL, "3 places; records have room for 2");
    ck_assert_ptr_null(step);
    ck_assert_int_eq(kvg_batch_set(g.batch[0], 0, s[0][0]), KVG_OK);
    ck_assert_int_eq(kvg_step_begin(g.batch[0], rows, &step), KVG_OK);
    REFUSED(kvg_sequence_digest_start(s[0][0], &digest, &setup), KVG_EBUSY, "begun and not posted");
    grid_write(&g, 0, step, s[0], 2, 0);
    grid_post(&g, 0, step, NULL, KVG_OK);
    ck_assert_int_eq(grid_decide(&g, &step, NULL), KVG_OK);
    kvg_batch_destroy(batches[1]);
    kvg_placement_destroy(second);
    close_one(1);
}
END_TEST

/* Rows of every kind of layer, refused outside a step and where something is missing. */
START_TEST(test_writes_that_are_asked_wrongly_are_refused)
{
    const uint32_t   rows[2] = {1, 0};
    KvgRows          kv = KVG_ROWS_INIT;
    KvgLatentRows    latent = KVG_LATENT_ROWS_INIT;
    KvgRecurrentRows recurrent = KVG_RECURRENT_ROWS_INIT;
    static float     given[4096];
    Run              run;
    KvgBatch        *batch;

    open_run(&run, glm_next, 1, 1, KVG_LAYOUT_POOL, 2, -1, 0); /* recurrent, latent, recurrent, latent */
    batch = run.g.batch[0];
    kv.k = kv.v = latent.latent = latent.index = given;
    latent.key = pool_key;
    recurrent.fill = fill;
    recurrent.scratch = given;
    REFUSED(kvg_write_latent(batch, 1, &latent, NULL), KVG_ESTALE, "no step of this batch");
    REFUSED(kvg_recurrent_update(batch, 0, &recurrent, NULL), KVG_ESTALE, "no step of this batch");
    REFUSED(kvg_write_kv(batch, 1, &kv, NULL), KVG_EINVAL, "layer 1 has no K/V rows on rank 0, whose layers are [0, 4): a latent layer is written by kvg_write_latent");
    ck_assert_ptr_null(kvg_plane_view(batch, 0));
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "layer 0 has no K/V rows on rank 0"));
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "a recurrent one by kvg_recurrent_update"));
    REFUSED(kvg_write_latent(batch, 0, &latent, NULL), KVG_EINVAL, "layer 0 is no latent layer");
    REFUSED(kvg_recurrent_update(batch, 1, &recurrent, NULL), KVG_EINVAL, "layer 1 is no recurrent layer");
    REFUSED(kvg_write_latent(batch, 1, NULL, NULL), KVG_EINVAL, "KVG_LATENT_ROWS_INIT");
    latent.dtype = KVG_Q8_0;
    REFUSED(kvg_write_latent(batch, 1, &latent, NULL), KVG_EINVAL, "dtype");
    latent.dtype = KVG_F32;
    latent.index = NULL;
    REFUSED(kvg_write_latent(batch, 1, &latent, NULL), KVG_EINVAL, "indexer");
    latent.index = given;
    latent.key = NULL;
    REFUSED(kvg_write_latent(batch, 1, &latent, NULL), KVG_EINVAL, "builds a pool's key");
    recurrent.fill = NULL;
    REFUSED(kvg_recurrent_update(batch, 0, &recurrent, NULL), KVG_EINVAL, "fill and scratch");
    recurrent.fill = fill;
    recurrent.scratch = NULL;
    REFUSED(kvg_recurrent_update(batch, 0, &recurrent, NULL), KVG_EINVAL, "fill and scratch");
    ck_assert_int_eq(run_step(&run, rows, 1, 1, -1), KVG_OK);
    grid_close(&run.g);
    open_one(0);
    REFUSED(kvg_write_kv(g.batch[0], 0, &kv, NULL), KVG_ESTALE, "no step of this batch");
    kv.v = NULL;
    REFUSED(kvg_write_kv(g.batch[0], 0, &kv, NULL), KVG_EINVAL, "k and v");
    REFUSED(kvg_write_kv(g.batch[0], 0, NULL, NULL), KVG_EINVAL, "KVG_ROWS_INIT");
    close_one(0);
}
END_TEST

/* Places may stand anywhere in what the caller gives. */
START_TEST(test_tokens_stand_where_first_token_says)
{
    static float packed[4 * 64], apart[8 * 64];
    float        read[64];
    KvgRows      rows = KVG_ROWS_INIT;
    KvgStep     *step;

    for (uint32_t i = 0; i < 4 * 64; i++) packed[i] = apart[i < 64 ? 6 * 64 + i : i] = (float)(i % 13) - 6; /* token 0 stands sixth, the others first to third */
    open_one(0);
    ck_assert_int_eq(life_open(&g, s, 1, 2, 0), KVG_OK);
    for (uint32_t slot = 0; slot < 2; slot++) ck_assert_int_eq(kvg_batch_set(g.batch[0], slot, s[0][slot]), KVG_OK);
    ck_assert_int_eq(kvg_step_begin(g.batch[0], (uint32_t[]){1, 3}, &step), KVG_OK);
    rows.first_token = (uint32_t[]){6, 1};
    rows.k = rows.v = grid_lend(&g, 0, apart, sizeof apart);
    for (uint32_t il = 0; il < 2; il++) ck_assert_int_eq(kvg_write_kv(g.batch[0], il, &rows, NULL), KVG_OK);
    grid_post(&g, 0, step, NULL, KVG_OK);
    ck_assert_int_eq(grid_decide(&g, &step, NULL), KVG_OK);
    for (uint32_t token = 0; token < 4; token++) {
        ck_assert_int_eq(kvg_sequence_read(s[0][token > 0], 1, 0, token > 0 ? token - 1 : 0, 1, read), KVG_OK);
        for (uint32_t e = 0; e < 64; e++) { /* within half a step of q8_0: 6 / 127 / 2 */
            ck_assert_msg(read[e] - packed[token * 64 + e] < 0.03f && packed[token * 64 + e] - read[e] < 0.03f, "token %u element %u", token, e);
        }
    }
    close_one(1);
}
END_TEST

START_TEST(test_sleep_and_wake_that_are_asked_wrongly_are_refused)
{
    KvgSetup *setup = NULL;
    char      before[33], after[33];

    open_one(0);
    REFUSED(kvg_placement_sleep_start(NULL, &setup), KVG_EINVAL, "placement");
    REFUSED(kvg_placement_sleep_start(g.placement[0], NULL), KVG_EINVAL, "place for the operation");
    REFUSED(kvg_placement_wake(g.placement[0]), KVG_EINVAL, "asleep");
    ck_assert_int_eq(life_grow(&g, s, 0, 9), KVG_OK);
    life_digest(&g, s, 0, before);
    ck_assert_int_eq(life_close(&g, s, 0), KVG_OK);
    ck_assert_int_eq(kvg_placement_sleep(g.placement[0]), KVG_OK);
    ck_assert_int_eq(kvg_placement_wake(g.placement[0]), KVG_OK);
    ck_assert_int_eq(life_open(&g, s, 0, 1, 0), KVG_OK);
    ck_assert_int_eq(life_grow(&g, s, 0, 9), KVG_OK);
    life_digest(&g, s, 0, after);
    ck_assert_str_eq(before, after);
    close_one(9);
}
END_TEST

START_TEST(test_taint_drops_taps_of_both_kinds)
{
    const uint32_t layers[] = {0, 1};
    HcTapSink     *hc;
    KvDev          dev;
    float          streams[2 * 4] = {0};
    KvLeaf         leaf[8];
    size_t         leaves;

    open_one(3);
    ck_assert_int_eq(kvg_dev_host(&dev), KVG_OK);
    ck_assert_int_eq(kvg_hc_tap_new(&dev, layers, 2, 0, 2, 4, 2, 8, 0, 0, &hc), KVG_OK);
    ck_assert_int_eq(kvg_hc_tap_arm(hc, 0), KVG_OK);
    ck_assert_int_eq(kvg_hc_tap_write(hc, 1, 0, 1, streams, NULL), KVG_OK);
    ck_assert_int_eq(kvg_sequence_attach_taps(s[0][0], NULL, hc), KVG_OK);
    ck_assert_int_eq(kvg_sequence_taint(s[0][0]), KVG_OK);
    REFUSED(kvg_sequence_leaves(s[0][0], leaf, 8, &leaves), KVG_ETAINTED, "not provably intact");
    ck_assert_int_eq(life_grow(&g, s, 0, 1), KVG_ETAINTED);
    ck_assert_int_eq(kvg_hc_tap_write(hc, 1, 0, 1, streams, NULL), KVG_ESTALE);
    kvg_hc_tap_free(hc);
    kvg_dev_close(&dev);
    grid_close(&g);
}
END_TEST

/* What was asked for under way: in another call than the others, with a step that is posted and undecided, while a settle begins. */
START_TEST(test_set_up_calls_meet_each_other)
{
    KvgPlaceOptions options = life_options(2, 4u << 20);
    KvgPolicy       policy = life_policy(0);
    KvgStep        *steps[2];
    KvgSetup       *setups[TEST_RANKS_MAX] = {0};
    KvDigest        digests[2];
    KvgStatus       each[TEST_RANKS_MAX];
    int             done = 0;

    grid_open(&g, 2, 1, (uint32_t[]){2, 2, 0}, &options, &policy, 1);
    ck_assert_int_eq(life_open(&g, s, 0, 1, 0), KVG_OK);
    for (int r = 0; r < 2; r++) {
        steps[r] = grid_begin(&g, r, s[r], (uint32_t[]){3}, 1, 0);
        if (r == 1) { /* rank 0's is posted and rank 1's is not */
            ck_assert_int_eq(kvg_sequence_digest_start(s[0][0], &digests[0], &setups[0]), KVG_OK);
            for (int n = 0; n < 3; n++) {
                ck_assert_int_eq(kvg_setup_test(setups[0], &done), KVG_OK);
                ck_assert_int_eq(done, 0); /* it waits for the step */
            }
        }
        grid_post(&g, r, steps[r], NULL, KVG_OK);
    }
    ck_assert_int_eq(kvg_sequence_digest_start(s[1][0], &digests[1], &setups[1]), KVG_OK);
    ck_assert_int_eq(grid_finish(&g, setups, NULL), KVG_OK);
    ck_assert_mem_eq(&digests[0], &digests[1], sizeof digests[0]);
    ck_assert_int_eq(kvg_sequence_digest_start(s[0][0], &digests[0], &setups[0]), KVG_OK);
    ck_assert_int_eq(kvg_placement_resize_start(g.placement[1], 8u << 20, &setups[1]), KVG_OK);
    grid_finish(&g, setups, each);
    for (int r = 0; r < 2; r++) ck_assert_int_eq(each[r], KVG_ELAYOUT);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "another set-up call"));
    setups[1] = NULL;
    ck_assert_int_eq(kvg_sequence_digest_start(s[0][0], &digests[0], &setups[0]), KVG_OK);
    ck_assert_int_eq(kvg_setup_test(setups[0], &done), KVG_OK);
    KvgSetup *settles[TEST_RANKS_MAX] = {0};
    for (int r = 0; r < 2; r++) ck_assert_int_eq(kvg_grid_settle_start(g.grid[r], (int[]){0, 1}, 2, &settles[r]), KVG_OK);
    ck_assert_int_eq(kvg_setup_test(setups[0], &done), KVG_EPEER);
    ck_assert_int_eq(done, 1);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "a settle has begun"));
    kvg_setup_free(setups[0]);
    ck_assert_int_eq(grid_finish(&g, settles, NULL), KVG_OK);
    ck_assert_int_eq(life_grow(&g, s, 0, 2), KVG_OK);
    ck_assert_uint_eq(life_info(s[1][0]).rows, 5);
    grid_close(&g);
}
END_TEST

/* A grid settles before anything is placed on it, too. */
START_TEST(test_a_grid_without_placements_settles)
{
    KvgSetup *setups[TEST_RANKS_MAX] = {0};

    grid_connect(&g, 2, 1, NULL, 0);
    for (int r = 0; r < 2; r++) ck_assert_int_eq(kvg_grid_settle_start(g.grid[r], (int[]){0, 1}, 2, &setups[r]), KVG_OK);
    ck_assert_msg(grid_finish(&g, setups, NULL) == KVG_OK, "%s", kvg_last_error());
    for (int r = 0; r < 2; r++) ck_assert_uint_eq(kvg_grid_epoch(g.grid[r]), 2);
    grid_close(&g);
}
END_TEST

LIFE_MAIN("refusals", test_grids_that_are_asked_wrongly_are_refused, test_placements_that_are_asked_wrongly_are_refused, test_sequences_default_to_64,
          test_a_model_of_slots_alone_that_do_not_fit_is_refused, test_indexers_of_unlike_pools_are_refused,
          test_sequences_that_are_asked_wrongly_are_refused, test_rows_behind_a_window_have_lapsed, test_a_snapshot_belongs_to_its_placement, test_steps_that_are_asked_wrongly_are_refused,
          test_writes_that_are_asked_wrongly_are_refused, test_tokens_stand_where_first_token_says, test_sleep_and_wake_that_are_asked_wrongly_are_refused,
          test_taint_drops_taps_of_both_kinds, test_set_up_calls_meet_each_other, test_a_grid_without_placements_settles)

/* Stats: each counter against a scene whose counts are known; many ranks as one; structs of other sizes. */
#include <math.h>
#include <stddef.h>

#include "tests/support/grid_life.h"

static KvgStats zeroed(void)
{
    return (KvgStats){.size = sizeof(KvgStats)};
}

START_TEST(test_latencies_fall_into_buckets_of_powers_of_two)
{
    ck_assert_uint_eq(kvg_latency_bucket(0), 0);
    ck_assert_uint_eq(kvg_latency_bucket(1000), 0);
    ck_assert_uint_eq(kvg_latency_bucket(1001), 1);
    for (uint32_t i = 1; i + 1 < KVG_LATENCY_BUCKETS; i++) {
        uint64_t most_ns = kvg_latency_bucket_us(i) * 1000;
        ck_assert_uint_eq(kvg_latency_bucket_us(i), UINT64_C(1) << i);
        ck_assert_uint_eq(kvg_latency_bucket(most_ns - 1), i);
        ck_assert_uint_eq(kvg_latency_bucket(most_ns), i);
        ck_assert_uint_eq(kvg_latency_bucket(most_ns + 1), i + 1);
    }
    ck_assert_uint_eq(kvg_latency_bucket(UINT64_MAX), KVG_LATENCY_BUCKETS - 1);
    ck_assert_uint_eq(kvg_latency_bucket_us(KVG_LATENCY_BUCKETS - 1), 0);
    ck_assert_uint_eq(kvg_latency_bucket_us(KVG_LATENCY_BUCKETS), 0);
    ck_assert_uint_eq(kvg_latency_bucket_us(UINT32_MAX), 0);
}
END_TEST

/* ---- steps, refusals, growths */

/* One step of `rows` rows in place 0, ended as asked on each rank; decided everywhere. */
static KvgStatus step_once(TestGrid *g, LifeSequences s, uint32_t rows, int refuser, KvgStatus code, int accepts)
{
    KvgStep *steps[TEST_RANKS_MAX];
    for (int r = 0; r < g->ranks; r++) {
        KvgCommit commit = KVG_COMMIT_INIT;
        steps[r] = grid_begin(g, r, s[r], &rows, 1, 0);
        commit.accept_all = accepts;
        commit.refuse = r == refuser ? code : KVG_OK;
        commit.user_digest = refuser == -2 ? 7 + (uint64_t)r : 0;
        ck_assert_int_eq(kvg_step_post(steps[r], &commit), KVG_OK);
    }
    return grid_decide(g, steps, NULL);
}

static uint64_t sum_of(const uint64_t *counts, int count)
{
    uint64_t sum = 0;
    for (int i = 0; i < count; i++) sum += counts[i];
    return sum;
}

static void check_identities(const KvgStats *stats)
{
    ck_assert_uint_eq(stats->steps, stats->commits + stats->rollbacks);
    ck_assert_uint_eq(sum_of(stats->outcomes, KVG_OUTCOME_KINDS), stats->steps);
    ck_assert_uint_eq(stats->outcomes[KVG_OUTCOME_PUBLISHED], stats->commits);
    ck_assert_uint_eq(sum_of(stats->vote_refusals, KVG_STATUS_COUNT), stats->outcomes[KVG_OUTCOME_REFUSED] + stats->outcomes[KVG_OUTCOME_TAINTED]);
    ck_assert_uint_eq(sum_of(stats->vote_latency, KVG_LATENCY_BUCKETS), stats->votes);
    ck_assert_uint_le(stats->content_bytes, stats->booked_bytes);
    ck_assert_uint_le(stats->booked_bytes, stats->taken_bytes);
    ck_assert_uint_le(stats->chunks_booked, stats->chunks);
}

START_TEST(test_every_outcome_of_a_step_is_counted_by_kind_and_reason)
{
    static const uint32_t model[3] = {4, 4, 0};
    KvgPlaceOptions       options = life_options(2, 8u << 20);
    LifeSequences         s;
    TestGrid              g;

    grid_open(&g, 2, 2, model, &options, NULL, 1);
    ck_assert_int_eq(life_open(&g, s, 0, 1, 64), KVG_OK);
    ck_assert_int_eq(step_once(&g, s, 3, -1, KVG_OK, 1), KVG_OK);
    ck_assert_int_eq(step_once(&g, s, 5, 2, KVG_ENOMEM, 1), KVG_EREFUSED);
    ck_assert_int_eq(step_once(&g, s, 5, 0, KVG_EIO, 1), KVG_EREFUSED);
    ck_assert_int_eq(step_once(&g, s, 5, 3, KVG_EIO, 1), KVG_EREFUSED);
    ck_assert_int_eq(step_once(&g, s, 1, -2, KVG_OK, 1), KVG_ELAYOUT); /* user digests differ */
    ck_assert_int_eq(step_once(&g, s, 1, -1, KVG_OK, 0), KVG_EINVAL);  /* nobody passes counts */
    ck_assert_int_eq(step_once(&g, s, 4, -1, KVG_OK, 1), KVG_OK);
    for (int r = 0; r < g.ranks; r++) {
        KvgStats stats = life_stats(g.placement[r]);
        check_identities(&stats);
        ck_assert_uint_eq(stats.steps, 7);
        ck_assert_uint_eq(stats.commits, 2);
        ck_assert_uint_eq(stats.outcomes[KVG_OUTCOME_REFUSED], 3);
        ck_assert_uint_eq(stats.outcomes[KVG_OUTCOME_DISAGREE], 1);
        ck_assert_uint_eq(stats.outcomes[KVG_OUTCOME_UNACCEPTED], 1);
        ck_assert_uint_eq(stats.vote_refusals[KVG_ENOMEM], 1);
        ck_assert_uint_eq(stats.vote_refusals[KVG_EIO], 2);
        ck_assert_uint_eq(stats.votes, 7);
        ck_assert_uint_eq(stats.rows, 7);
        ck_assert_uint_eq(stats.rank, (uint64_t)r);
        ck_assert_uint_eq(stats.stage, (uint64_t)r / 2);
        ck_assert_uint_eq(stats.slots, 2);
        ck_assert_uint_eq(stats.ranks, 1);
    }
    grid_close(&g);
}
END_TEST

START_TEST(test_a_taint_is_an_outcome_and_a_refusal)
{
    static const uint32_t model[3] = {4, 4, 0};
    KvgPlaceOptions       options = life_options(1, 8u << 20);
    LifeSequences         s;
    TestGrid              g;

    grid_open(&g, 2, 1, model, &options, NULL, 1);
    ck_assert_int_eq(life_open(&g, s, 0, 1, 64), KVG_OK);
    ck_assert_int_eq(kvg_sequence_taint(s[1][0]), KVG_OK);
    ck_assert_int_eq(step_once(&g, s, 1, -1, KVG_OK, 1), KVG_ETAINTED);
    for (int r = 0; r < g.ranks; r++) {
        KvgStats stats = life_stats(g.placement[r]);
        check_identities(&stats);
        ck_assert_uint_eq(stats.outcomes[KVG_OUTCOME_TAINTED], 1);
        ck_assert_uint_eq(stats.vote_refusals[KVG_ETAINTED], 1);
    }
    grid_close(&g);
}
END_TEST

START_TEST(test_sequences_that_are_refused_are_counted_by_code)
{
    static const uint32_t model[3] = {2, 2, 0};
    KvgPlaceOptions       options = life_options(2, 4u << 20);
    LifeSequences         s;
    KvgStep              *steps[TEST_RANKS_MAX];
    KvgStats              stats;
    TestGrid              g;

    grid_open(&g, 1, 2, model, &options, NULL, 1);
    ck_assert_int_eq(life_open(&g, s, 0, 1, 0), KVG_OK);
    ck_assert_int_eq(life_open(&g, s, 1, 1, 0), KVG_EINVAL); /* the id is open */
    ck_assert_int_eq(life_open(&g, s, 1, 2, 2049), KVG_ECAPACITY); /* past the context */
    ck_assert_int_eq(life_open(&g, s, 1, 2, 0), KVG_OK);
    ck_assert_int_eq(life_open(&g, s, 2, 3, 0), KVG_EBUSY); /* both slots are taken */
    for (int r = 0; r < g.ranks; r++) { /* left out of a step, which goes on without rows */
        uint32_t  rows = 2049;
        KvgCommit commit = KVG_COMMIT_INIT;
        ck_assert_int_eq(kvg_batch_set(g.batch[r], 0, s[r][0]), KVG_OK);
        ck_assert_int_eq(kvg_step_begin(g.batch[r], &rows, &steps[r]), KVG_OK);
        ck_assert_int_eq(kvg_step_refusal(steps[r], 0), KVG_ECAPACITY);
        commit.accept_all = 1;
        ck_assert_int_eq(kvg_step_post(steps[r], &commit), KVG_OK);
    }
    ck_assert_int_eq(grid_decide(&g, steps, NULL), KVG_OK);
    life_agree(&g);
    stats = life_stats(g.placement[1]);
    check_identities(&stats);
    ck_assert_uint_eq(stats.refusals[KVG_EINVAL], 1);
    ck_assert_uint_eq(stats.refusals[KVG_ECAPACITY], 2);
    ck_assert_uint_eq(stats.refusals[KVG_EBUSY], 1);
    ck_assert_uint_eq(sum_of(stats.refusals, KVG_STATUS_COUNT), 4);
    ck_assert_uint_eq(sum_of(stats.vote_refusals, KVG_STATUS_COUNT), 0);
    grid_close(&g);
}
END_TEST

START_TEST(test_growths_chunks_and_bytes_rise_and_come_back_to_nothing)
{
    static const uint32_t model[3] = {2, 2, 0};
    KvgPlaceOptions       options = life_options(2, 4u << 20);
    LifeSequences         s;
    TestGrid              g;
    KvgStats              empty, one, two;

    grid_open(&g, 1, 1, model, &options, NULL, 1);
    empty = life_stats(g.placement[0]);
    ck_assert_uint_eq(empty.content_bytes + empty.booked_bytes + empty.chunks_booked + empty.sequences_open + empty.grows, 0);
    ck_assert_uint_gt(empty.chunks, 4);
    ck_assert_uint_gt(empty.taken_bytes, 0);
    ck_assert_uint_gt(empty.memory_bytes, 0);
    ck_assert_int_eq(life_open(&g, s, 0, 1, 64), KVG_OK);
    ck_assert_int_eq(life_grow(&g, s, 0, 64), KVG_OK);
    one = life_stats(g.placement[0]);
    ck_assert_uint_eq(one.chunks_booked, 1);
    ck_assert_uint_eq(one.grows, 0);
    ck_assert_uint_ge(one.content_bytes, 64 * 2 * 2 * (34 + 24)); /* layers, heads, a block of K and of V, and what an open slot holds */
    ck_assert_uint_lt(one.content_bytes, 65 * 2 * 2 * (34 + 24));
    ck_assert_int_eq(life_grow(&g, s, 0, 1), KVG_OK); /* the 65th row */
    two = life_stats(g.placement[0]);
    ck_assert_uint_eq(two.chunks_booked, 2);
    ck_assert_uint_eq(two.grows, 1);
    ck_assert_uint_gt(two.booked_bytes, one.booked_bytes);
    ck_assert_uint_eq(two.content_bytes - one.content_bytes, 2 * 2 * (34 + 24));
    ck_assert_uint_eq(two.taken_bytes, empty.taken_bytes);
    check_identities(&two);
    ck_assert_int_eq(life_close(&g, s, 0), KVG_OK);
    two = life_stats(g.placement[0]);
    ck_assert_uint_eq(two.content_bytes + two.booked_bytes + two.chunks_booked + two.sequences_open, 0);
    ck_assert_uint_eq(two.chunks, empty.chunks);
    ck_assert_uint_eq(two.rows, 65);
    grid_close(&g);
}
END_TEST

/* Two batches of one placement in a joint step are one step. */
START_TEST(test_a_joint_step_counts_once)
{
    static const uint32_t model[3] = {2, 2, 0};
    KvgPlaceOptions       options = life_options(4, 4u << 20);
    KvgBatch             *batches[2];
    const uint32_t        rows[2] = {0, 0}, *each[2] = {rows, rows};
    KvgStep              *step = NULL;
    KvgStats              stats;
    TestGrid              g;

    grid_open(&g, 1, 1, model, &options, NULL, 2);
    batches[0] = g.batch[0];
    ck_assert_int_eq(kvg_batch_create(g.placement[0], 2, &batches[1]), KVG_OK);
    ck_assert_int_eq(kvg_step_begin_joint(batches, each, 2, &step), KVG_OK);
    grid_post(&g, 0, step, NULL, KVG_OK);
    ck_assert_int_eq(grid_decide(&g, &step, NULL), KVG_OK);
    stats = life_stats(g.placement[0]);
    check_identities(&stats);
    ck_assert_uint_eq(stats.steps, 1);
    ck_assert_uint_eq(stats.votes, 1);
    kvg_batch_destroy(batches[1]);
    grid_close(&g);
}
END_TEST

/* The hub's clock moves only when it is told to: the latency is known. */
START_TEST(test_a_vote_takes_as_long_as_its_last_record)
{
    static const uint32_t model[3] = {2, 2, 0};
    KvgPlaceOptions       options = life_options(1, 4u << 20);
    uint32_t              rows = 0;
    KvgStep              *steps[2];
    KvgStats              early, late;
    TestGrid              g;

    grid_open(&g, 2, 1, model, &options, NULL, 1);
    for (int r = 0; r < 2; r++) {
        ck_assert_int_eq(kvg_step_begin(g.batch[r], &rows, &steps[r]), KVG_OK);
        grid_post(&g, r, steps[r], NULL, KVG_OK);
        kvg_inproc_advance_ns(g.hub, r == 0 ? 3000000 : 40000);
    }
    ck_assert_int_eq(grid_decide(&g, steps, NULL), KVG_OK);
    early = life_stats(g.placement[0]);
    late = life_stats(g.placement[1]);
    ck_assert_uint_eq(early.votes, 1);
    ck_assert_uint_ge(early.vote_latency_ns, 3040000);
    ck_assert_uint_eq(early.vote_latency[kvg_latency_bucket(early.vote_latency_ns)], 1);
    ck_assert_uint_ge(late.vote_latency_ns, 40000);
    ck_assert_uint_eq(early.vote_latency_ns - late.vote_latency_ns, 3000000);
    ck_assert_uint_ge(early.uptime_ns, 3040000);
    grid_close(&g);
}
END_TEST

/* ---- elements */

static void write_row(TestGrid *g, KvgSequence *s, const float *k, const float *v)
{
    uint32_t rows = 1;
    KvgStep *step = NULL;
    KvgRows  in = KVG_ROWS_INIT;

    ck_assert_int_eq(kvg_batch_set(g->batch[0], 0, s), KVG_OK);
    ck_assert_int_eq(kvg_step_begin(g->batch[0], &rows, &step), KVG_OK);
    in.k = grid_lend(g, 0, k, 64 * sizeof *k);
    in.v = grid_lend(g, 1, v, 64 * sizeof *v);
    for (uint32_t il = 0; il < 2; il++) ck_assert_int_eq(kvg_write_kv(g->batch[0], il, &in, NULL), KVG_OK);
    grid_post(g, 0, step, NULL, KVG_OK);
    ck_assert_int_eq(grid_decide(g, &step, NULL), KVG_OK);
}

START_TEST(test_elements_beyond_a_format_are_counted_where_they_are_stored)
{
    static const struct {
        KvFormat format;
        float    limit; /* the largest that is stored as it is */
    } cases[] = {{KVG_FP8, 448.0f}, {KVG_Q8_0, 65504.0f * 127}, {KVG_Q4_0, 65504.0f * 8}, {KVG_F16, 65504.0f}};

    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        static const uint32_t model[3] = {2, 2, 0};
        KvgPlaceOptions       options = life_options(1, 4u << 20);
        LifeSequences         s;
        float                 k[64], v[64];
        TestGrid              g;

        options.format_k = options.format_v = cases[c].format;
        grid_open(&g, 1, 1, model, &options, NULL, 1);
        ck_assert_int_eq(life_open(&g, s, 0, 1, 0), KVG_OK);
        for (int i = 0; i < 64; i++) k[i] = v[i] = 1.0f;
        k[0] = cases[c].limit;
        k[1] = -cases[c].limit;
        write_row(&g, s[0][0], k, v);
        ck_assert_uint_eq(life_stats(g.placement[0]).saturated + life_stats(g.placement[0]).nonfinite, 0);
        k[1] = nextafterf(-cases[c].limit, -INFINITY);
        k[33] = 3e38f;
        v[0] = NAN;
        v[1] = INFINITY;
        v[63] = -INFINITY;
        write_row(&g, s[0][0], k, v);
        ck_assert_uint_eq(life_stats(g.placement[0]).saturated, 2 * 2); /* in each of two layers */
        ck_assert_uint_eq(life_stats(g.placement[0]).nonfinite, 2 * 3);
        KvgStats quick = zeroed();
        ck_assert_int_eq(kvg_stats_quick(g.placement[0], &quick), KVG_OK);
        ck_assert_uint_eq(quick.nonfinite, g.device.ops == NULL ? 6 : 0); /* host memory: nobody need be asked */
        ck_assert_int_eq(life_close(&g, s, 0), KVG_OK);
        ck_assert_uint_eq(life_stats(g.placement[0]).nonfinite, 6); /* counters, not state */
        grid_close(&g);
    }
}
END_TEST

/* Latent rows are encoded too; f32 clamps nothing finite, so it is an infinity and a NaN that are given. */
START_TEST(test_latent_layers_count_what_they_store)
{
    static const char config[] =
        "{\"model_type\":\"deepseek_v3\",\"hidden_size\":64,\"num_attention_heads\":2,\"num_key_value_heads\":2,\"kv_lora_rank\":32,\"qk_rope_head_dim\":32,"
        "\"qk_nope_head_dim\":32,\"v_head_dim\":32,\"num_hidden_layers\":2,\"vocab_size\":100,\"intermediate_size\":64,\"max_position_embeddings\":2048}";
    KvgPlaceOptions options = life_options(1, 4u << 20);
    KvgLatentRows   in = KVG_LATENT_ROWS_INIT;
    uint32_t        rows = 1;
    float           latent[64] = {0};
    KvEncodeCounts  counts;
    LifeSequences   s;
    KvgStep        *step = NULL;
    TestGrid        g;

    grid_connect(&g, 1, 1, NULL, 0);
    ck_assert_msg(kvg_model_config_parse_json(config, strlen(config), "test", &g.config) == KVG_OK, "%s", kvg_last_error());
    ck_assert_msg(grid_place(&g, &g.config, &options, NULL) == KVG_OK, "%s", kvg_last_error());
    ck_assert_int_eq(kvg_batch_create(g.placement[0], 1, &g.batch[0]), KVG_OK);
    ck_assert_int_eq(life_open(&g, s, 0, 1, 0), KVG_OK);
    ck_assert_int_eq(kvg_batch_set(g.batch[0], 0, s[0][0]), KVG_OK);
    ck_assert_int_eq(kvg_step_begin(g.batch[0], &rows, &step), KVG_OK);
    latent[0] = INFINITY;
    latent[63] = NAN;
    in.latent = grid_lend(&g, 0, latent, sizeof latent);
    ck_assert_msg(kvg_write_latent(g.batch[0], 1, &in, NULL) == KVG_OK, "%s", kvg_last_error());
    grid_post(&g, 0, step, NULL, KVG_OK);
    ck_assert_int_eq(grid_decide(&g, &step, NULL), KVG_OK);
    ck_assert_uint_eq(life_stats(g.placement[0]).nonfinite, 2);
    ck_assert_int_eq(kvg_layer_counts(g.placement[0], 1, &counts), KVG_OK);
    ck_assert_uint_eq(counts.nonfinite, 2);
    ck_assert_int_eq(kvg_layer_counts(g.placement[0], 0, &counts), KVG_OK);
    ck_assert_uint_eq(counts.nonfinite, 0);
    ck_assert_int_eq(kvg_layer_counts(g.placement[0], 2, &counts), KVG_EINVAL);
    grid_close(&g);
}
END_TEST

/* ---- over the grid */

static KvgStatus over_grid(TestGrid *g, KvgStats ranks[][TEST_RANKS_MAX], KvgStats *totals)
{
    KvgSetup *setups[TEST_RANKS_MAX] = {0};
    for (int r = 0; r < g->ranks; r++) {
        ranks[r][0].size = totals[r].size = sizeof(KvgStats);
        ck_assert_msg(kvg_stats_over_grid_start(g->placement[r], ranks[r], r == 1 ? NULL : &totals[r], &setups[r]) == KVG_OK, "%s", kvg_last_error());
    }
    return grid_finish(g, setups, NULL);
}

START_TEST(test_every_rank_hears_every_ranks_counters)
{
    static const uint32_t model[3] = {4, 4, 0};
    static KvgStats       ranks[4][TEST_RANKS_MAX], totals[4];
    KvgPlaceOptions       options = life_options(2, 8u << 20);
    LifeSequences         s;
    KvgStats              sum = zeroed();
    TestGrid              g;

    grid_open(&g, 2, 2, model, &options, NULL, 1);
    ck_assert_int_eq(life_open(&g, s, 0, 1, 0), KVG_OK);
    ck_assert_int_eq(life_grow(&g, s, 0, 70), KVG_OK);
    ck_assert_int_eq(step_once(&g, s, 5, 2, KVG_ENOMEM, 1), KVG_EREFUSED);
    ck_assert_int_eq(over_grid(&g, ranks, totals), KVG_OK);
    for (int r = 0; r < 4; r++) {
        for (int other = 0; other < 4; other++) {
            KvgStats here = life_stats(g.placement[other]);
            here.uptime_ns = ranks[r][other].uptime_ns; /* the clock has moved on */
            ck_assert_mem_eq(&ranks[r][other], &here, sizeof here);
        }
    }
    ck_assert_int_eq(kvg_stats_total(ranks[3], 4, &sum), KVG_OK);
    for (int r = 0; r < 4; r++) {
        if (r != 1) ck_assert_mem_eq(&totals[r], &sum, sizeof sum);
    }
    ck_assert_uint_eq(sum.ranks, 4);
    ck_assert_uint_eq(sum.steps, 2); /* counted alike: not 8 */
    ck_assert_uint_eq(sum.vote_refusals[KVG_ENOMEM], 1);
    ck_assert_uint_eq(sum.rows, 70);
    ck_assert_uint_eq(sum.votes, 8);
    ck_assert_uint_eq(sum.content_bytes, 4 * ranks[0][2].content_bytes);
    ck_assert_int_eq(kvg_stats_over_grid(NULL, NULL, &sum), KVG_EINVAL);
    sum.size = 8;
    ck_assert_int_eq(kvg_stats_over_grid(g.placement[0], NULL, &sum), KVG_EINVAL);
    grid_close(&g);
}
END_TEST

START_TEST(test_a_rank_that_a_settle_left_out_counts_nothing)
{
    static const uint32_t model[3] = {2, 2, 0};
    static KvgStats       ranks[TEST_RANKS_MAX];
    KvgPlaceOptions       options = life_options(1, 4u << 20);
    const int             survivors[] = {0, 2};
    KvgSetup             *setups[TEST_RANKS_MAX] = {0};
    KvgStats              total = zeroed();
    LifeSequences         s;
    TestGrid              g;

    options.fence = (uint32_t[]){0, 1, 2};
    grid_open(&g, 2, 2, model, &options, NULL, 1);
    ck_assert_int_eq(life_open(&g, s, 0, 1, 64), KVG_OK);
    kvg_inproc_kill(g.hub, 1);
    kvg_inproc_kill(g.hub, 3);
    for (int i = 0; i < 2; i++) ck_assert_int_eq(kvg_grid_settle_start(g.grid[survivors[i]], survivors, 2, &setups[survivors[i]]), KVG_OK);
    ck_assert_int_eq(grid_finish(&g, setups, NULL), KVG_OK);
    memset(setups, 0, sizeof setups);
    ranks[0].size = sizeof ranks[0];
    ck_assert_int_eq(kvg_stats_over_grid_start(g.placement[0], ranks, &total, &setups[0]), KVG_OK);
    ck_assert_int_eq(kvg_stats_over_grid_start(g.placement[2], NULL, NULL, &setups[2]), KVG_OK);
    ck_assert_int_eq(grid_finish(&g, setups, NULL), KVG_OK);
    ck_assert_uint_eq(total.ranks, 2);
    ck_assert_uint_eq(ranks[1].ranks + ranks[1].taken_bytes + ranks[3].ranks, 0);
    ck_assert_uint_eq(total.booked_bytes, ranks[0].booked_bytes + ranks[2].booked_bytes);
    grid_close(&g);
}
END_TEST

/* ---- structs of other sizes */

START_TEST(test_an_older_struct_is_filled_as_far_as_it_goes_and_a_newer_one_padded)
{
    static const uint32_t model[3] = {2, 2, 0};
    static const size_t   first = offsetof(KvgStats, saturated) + sizeof(uint64_t);
    KvgPlaceOptions       options = life_options(1, 4u << 20);
    union {
        KvgStats stats;
        uint8_t  bytes[sizeof(KvgStats) + 16];
    } other;
    KvgStats now;
    TestGrid g;

    grid_open(&g, 1, 1, model, &options, NULL, 1);
    memset(&other, 0xee, sizeof other);
    other.stats.size = first;
    ck_assert_int_eq(kvg_stats(g.placement[0], &other.stats), KVG_OK);
    now = life_stats(g.placement[0]);
    ck_assert_uint_eq(other.stats.size, first);
    ck_assert_uint_eq(other.stats.taken_bytes, now.taken_bytes);
    ck_assert_uint_eq(other.stats.ranks, UINT64_C(0xeeeeeeeeeeeeeeee));
    memset(&other, 0xee, sizeof other);
    other.stats.size = sizeof other;
    ck_assert_int_eq(kvg_stats(g.placement[0], &other.stats), KVG_OK);
    ck_assert_uint_eq(other.stats.slots, 1);
    ck_assert_mem_eq(other.bytes + sizeof(KvgStats), (uint8_t[16]){0}, 16);
    for (size_t wrong = 0; wrong < first; wrong += first - 8) { /* 0, and one counter less */
        other.stats.size = wrong;
        ck_assert_int_eq(kvg_stats(g.placement[0], &other.stats), KVG_EINVAL);
        ck_assert_int_eq(kvg_stats_total(&other.stats, 1, &now), KVG_EINVAL);
    }
    other.stats.size = first + 4;
    ck_assert_int_eq(kvg_stats(g.placement[0], &other.stats), KVG_EINVAL);
    ck_assert_int_eq(kvg_stats(NULL, &now), KVG_EINVAL);
    ck_assert_int_eq(kvg_stats(g.placement[0], NULL), KVG_EINVAL);
    grid_close(&g);
}
END_TEST

START_TEST(test_totals_of_older_structs_stand_at_their_own_distance)
{
    static const size_t first = offsetof(KvgStats, saturated) + sizeof(uint64_t);
    uint64_t            old[2][sizeof(KvgStats) / 8] = {{0}};
    uint8_t            *at = (uint8_t *)old;
    KvgStats            total = zeroed();

    for (uint64_t i = 0; i < 2; i++) {
        memcpy(at + i * first, &(KvgStats){.size = first, .content_bytes = 10 + i, .steps = 3 + i}, first);
    }
    ck_assert_int_eq(kvg_stats_total((const KvgStats *)old, 2, &total), KVG_OK);
    ck_assert_uint_eq(total.content_bytes, 21);
    ck_assert_uint_eq(total.steps, 4);
    ck_assert_uint_eq(total.ranks, 2);
    ck_assert_int_eq(kvg_stats_total((const KvgStats *)old, 0, &total), KVG_EINVAL);
}
END_TEST

LIFE_MAIN("stats", test_latencies_fall_into_buckets_of_powers_of_two, test_every_outcome_of_a_step_is_counted_by_kind_and_reason,
          test_a_taint_is_an_outcome_and_a_refusal, test_sequences_that_are_refused_are_counted_by_code,
          test_growths_chunks_and_bytes_rise_and_come_back_to_nothing, test_a_joint_step_counts_once, test_a_vote_takes_as_long_as_its_last_record,
          test_elements_beyond_a_format_are_counted_where_they_are_stored, test_latent_layers_count_what_they_store, test_every_rank_hears_every_ranks_counters,
          test_a_rank_that_a_settle_left_out_counts_nothing, test_an_older_struct_is_filled_as_far_as_it_goes_and_a_newer_one_padded,
          test_totals_of_older_structs_stand_at_their_own_distance)

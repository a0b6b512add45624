/* A grid over MPI on 1, 2 and 4 ranks: records by MPI, liveness by the mesh; the digest is that of one rank in this process. */
#include <mpi.h>

#include <kvgrid/kvgrid_mpi.h>

#include "tests/support/grid_life.h"

#define SEQUENCES 4
#define STEPS     40

static int ranks, world_rank;

typedef struct Side { /* one rank of a grid: of the MPI one, or the reference */
    TestGrid     one;
    KvgGrid     *grid;
    KvgBatch    *batch[2];
    KvgSequence *sequences[SEQUENCES];
} Side;

static void place_side(Side *side, KvLayout layout)
{
    KvgPlaceOptions options = life_options(SEQUENCES, 4u << 20);
    ModelConfig     config = test_model(4, 4, 64, 2048);
    options.layout = layout;
    ck_assert_msg(kvg_place(side->grid, &config, &options, &side->one.placement[0]) == KVG_OK, "%s", kvg_last_error());
    kvg_model_config_free(&config);
    side->one.ranks = 1;
    for (int b = 0; b < 2; b++) ck_assert_int_eq(kvg_batch_create(side->one.placement[0], 2, &side->batch[b]), KVG_OK);
    for (uint32_t q = 0; q < SEQUENCES; q++) {
        ck_assert_msg(kvg_sequence_open(side->one.placement[0], q + 1, 0, &side->sequences[q]) == KVG_OK, "%s", kvg_last_error());
    }
}

static void open_mpi_side(Side *side, uint32_t tp, KvLayout layout)
{
    KvgBootstrap   bootstrap = KVG_BOOTSTRAP_INIT;
    KvgGridOptions options = KVG_GRID_OPTIONS_INIT;
    KvgPolicy      policy;
    KvComm         comm;
    memset(side, 0, sizeof *side);
    kvg_policy_default(&policy);
    policy.swa_ring = 1;
    options.tp = tp;
    options.pp = (uint32_t)ranks / tp;
    options.policy = &policy;
    options.comm = &comm;
    ck_assert_msg(kvg_mpi_bootstrap(MPI_COMM_WORLD, &bootstrap) == KVG_OK, "%s", kvg_last_error());
    ck_assert_msg(kvg_mpi_comm_create(MPI_COMM_WORLD, &comm) == KVG_OK, "%s", kvg_last_error());
    ck_assert_msg(kvg_grid_create(&bootstrap, &options, &side->grid) == KVG_OK, "%s", kvg_last_error());
    kvg_mpi_bootstrap_free(&bootstrap);
    place_side(side, layout);
}

static void close_side(Side *side)
{
    for (int b = 0; b < 2; b++) kvg_batch_destroy(side->batch[b]);
    kvg_placement_destroy(side->one.placement[0]);
    kvg_grid_destroy(side->grid);
}

static KvgStep *begin(Side *side, int b, const uint32_t rows[2])
{
    KvgStep *step = NULL;
    for (uint32_t slot = 0; slot < 2; slot++) ck_assert_int_eq(kvg_batch_set(side->batch[b], slot, side->sequences[2 * b + (int)slot]), KVG_OK);
    ck_assert_msg(kvg_step_begin(side->batch[b], rows, &step) == KVG_OK, "%s", kvg_last_error());
    side->one.batch[0] = side->batch[b];
    grid_write(&side->one, 0, step, side->sequences + 2 * b, 2, 0);
    return step;
}

static void post(Side *side, KvgStep *step, const uint32_t keep[2], KvgStatus refuse)
{
    KvgCommit commit = KVG_COMMIT_INIT;
    commit.accepted = kvg_grid_stage(side->grid) + 1 == kvg_grid_pp(side->grid) ? keep : NULL;
    commit.refuse = refuse;
    ck_assert_msg(kvg_step_post(step, &commit) == KVG_OK, "%s", kvg_last_error());
}

/* Steps of two batches in flight, partial commits, and a refusal by each rank in turn; the reference leaves refused steps out. */
static void live(Side *side, int refuse)
{
    for (int n = 0; n < STEPS; n++) {
        uint32_t   rows[2] = {1 + (uint32_t)n % 5, 3}, keep[2] = {(uint32_t)n % 2, 3};
        int        no = n % 8 == 7;
        KvgStep   *first, *second;
        KvgOutcome outcome;
        if (!no || refuse) {
            first = begin(side, 0, rows);
            second = begin(side, 1, rows);
            post(side, second, keep, KVG_OK);
            post(side, first, keep, no && refuse && world_rank == n / 8 % ranks ? KVG_EIO : KVG_OK);
            ck_assert_int_eq(kvg_step_wait(second, &outcome), KVG_OK);
            ck_assert_uint_eq(outcome.accepted[0], keep[0]);
            KvgStatus status = kvg_step_wait(first, &outcome);
            ck_assert_int_eq(status, no ? KVG_EREFUSED : KVG_OK);
            if (no) {
                ck_assert_int_eq(outcome.rank, n / 8 % ranks);
                ck_assert_int_eq(outcome.reason, KVG_EIO);
            }
        } else { /* only the second batch's step counts */
            second = begin(side, 1, rows);
            post(side, second, keep, KVG_OK);
            ck_assert_int_eq(kvg_step_wait(second, &outcome), KVG_OK);
        }
    }
}

static void digests(Side *side, char hex[SEQUENCES][33])
{
    for (uint32_t q = 0; q < SEQUENCES; q++) {
        KvDigest digest;
        ck_assert_msg(kvg_sequence_digest(side->sequences[q], &digest) == KVG_OK, "%s", kvg_last_error());
        kvg_digest_hex(&digest, hex[q]);
    }
}

START_TEST(test_mpi_grid_has_the_digest_of_one_rank)
{
    Side           alone = {0};
    KvInproc      *hub;
    KvgGridOptions options = KVG_GRID_OPTIONS_INIT;
    KvgPolicy      policy;
    char           expected[SEQUENCES][33], hex[SEQUENCES][33];
    uint64_t       live_before = kvg_live_allocations();
    kvg_policy_default(&policy);
    policy.swa_ring = 1;
    options.policy = &policy;
    ck_assert_int_eq(kvg_inproc_create(1, &hub), KVG_OK);
    ck_assert_int_eq(kvg_grid_create_inproc(hub, 1, &options, &alone.grid), KVG_OK);
    place_side(&alone, KVG_LAYOUT_POOL);
    live(&alone, 0);
    digests(&alone, expected);
    close_side(&alone);
    kvg_inproc_destroy(hub);
    for (int tp = 1; tp <= ranks; tp *= 2) { /* every shape that the ranks allow, in both layouts */
        for (int layout = 0; layout <= 1; layout++) {
            Side side;
            open_mpi_side(&side, (uint32_t)tp, layout ? KVG_LAYOUT_FLAT : KVG_LAYOUT_POOL);
            live(&side, 1);
            digests(&side, hex);
            for (uint32_t q = 0; q < SEQUENCES; q++) ck_assert_str_eq(hex[q], expected[q]);
            for (uint32_t q = 0; q < SEQUENCES; q++) ck_assert_int_eq(kvg_sequence_close(side.sequences[q], NULL), KVG_OK);
            ck_assert_uint_eq(life_stats(side.one.placement[0]).booked_bytes, 0);
            close_side(&side);
            MPI_Barrier(MPI_COMM_WORLD);
        }
    }
    ck_assert_uint_eq(kvg_live_allocations(), live_before);
}
END_TEST

START_TEST(test_mpi_ranks_that_differ_are_named_everywhere)
{
    KvgBootstrap   bootstrap = KVG_BOOTSTRAP_INIT;
    KvgGridOptions options = KVG_GRID_OPTIONS_INIT;
    KvgPolicy      policy;
    KvgGrid       *grid = NULL;
    Side           side;
    if (ranks == 1) return;
    kvg_policy_default(&policy);
    policy.kv_fp8 = world_rank == ranks - 1;
    options.tp = (uint32_t)ranks;
    options.policy = &policy;
    ck_assert_int_eq(kvg_mpi_bootstrap(MPI_COMM_WORLD, &bootstrap), KVG_OK);
    ck_assert_int_eq(kvg_grid_create(&bootstrap, &options, &grid), KVG_ELAYOUT);
    ck_assert_msg(strstr(kvg_last_error(), "KVGRID_KV_FP8") != NULL, "%s", kvg_last_error());
    kvg_mpi_bootstrap_free(&bootstrap);
    /* different rows on one rank: the step is taken back on all, and the grid goes on */
    open_mpi_side(&side, (uint32_t)ranks, KVG_LAYOUT_POOL);
    KvgOutcome outcome;
    KvgStep   *step = begin(&side, 0, (uint32_t[]){world_rank == 1 ? 2u : 3u, 1});
    post(&side, step, (uint32_t[]){1, 1}, KVG_OK);
    ck_assert_int_eq(kvg_step_wait(step, &outcome), KVG_ELAYOUT);
    ck_assert_str_eq(outcome.field, "targets");
    ck_assert_int_eq(outcome.rank_b, 1);
    step = begin(&side, 0, (uint32_t[]){3, 1});
    post(&side, step, (uint32_t[]){1, 1}, KVG_OK);
    ck_assert_int_eq(kvg_step_wait(step, &outcome), KVG_OK);
    close_side(&side);
    MPI_Barrier(MPI_COMM_WORLD);
}
END_TEST

START_TEST(test_mpi_resize_and_a_digest_after_it)
{
    Side side;
    char before[SEQUENCES][33], after[SEQUENCES][33];
    open_mpi_side(&side, (uint32_t)ranks, KVG_LAYOUT_POOL);
    live(&side, 1);
    digests(&side, before);
    ck_assert_msg(kvg_placement_resize(side.one.placement[0], (5u + (unsigned)world_rank) << 20) == KVG_OK, "%s", kvg_last_error());
    digests(&side, after);
    for (uint32_t q = 0; q < SEQUENCES; q++) ck_assert_str_eq(before[q], after[q]);
    close_side(&side);
    MPI_Barrier(MPI_COMM_WORLD);
}
END_TEST

int main(int argc, char **argv)
{
    int bad, all_bad = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    Suite *suite = suite_create("mpi grid");
    TCase *tc = tcase_create("mpi grid");
    tcase_add_test(tc, test_mpi_grid_has_the_digest_of_one_rank);
    tcase_add_test(tc, test_mpi_ranks_that_differ_are_named_everywhere);
    tcase_add_test(tc, test_mpi_resize_and_a_digest_after_it);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK); /* MPI does not cross a fork */
    srunner_run_all(runner, CK_ENV);
    bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    MPI_Allreduce(&bad, &all_bad, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Finalize();
    return all_bad;
}

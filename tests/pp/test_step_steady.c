/* A steady decode loop allocates nothing: neither in a step that commits nor in one that is refused, whatever the layers keep. */
#include <kvgrid/kvgrid.h>

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define COUNTS_ALLOCATIONS 0 /* the sanitizer has malloc to itself */
#else
#define COUNTS_ALLOCATIONS 1
#endif

static size_t allocations;

#if COUNTS_ALLOCATIONS
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);

void *malloc(size_t bytes)
{
    allocations++;
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    allocations++;
    return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    allocations++;
    return __libc_realloc(memory, bytes);
}
#endif

enum { SEQUENCES = 4, ROWS = 3, STEPS = 300 };

static const char *const models[] = {
    "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_attention_heads\":2,\"num_key_value_heads\":2,\"head_dim\":32,\"num_hidden_layers\":4,"
    "\"vocab_size\":100,\"intermediate_size\":64,\"max_position_embeddings\":4096,\"sliding_window\":64,"
    "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\",\"full_attention\"]}",
    "{\"model_type\":\"qwen3_next\",\"hidden_size\":64,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":32,\"num_hidden_layers\":4,"
    "\"full_attention_interval\":4,\"linear_conv_kernel_dim\":4,\"linear_key_head_dim\":8,\"linear_num_key_heads\":2,\"linear_num_value_heads\":4,"
    "\"linear_value_head_dim\":8,\"vocab_size\":100,\"intermediate_size\":64,\"max_position_embeddings\":4096}",
    "{\"model_type\":\"deepseek_v32\",\"hidden_size\":64,\"num_attention_heads\":4,\"num_key_value_heads\":4,\"kv_lora_rank\":64,\"qk_rope_head_dim\":32,"
    "\"qk_nope_head_dim\":32,\"v_head_dim\":32,\"index_head_dim\":32,\"index_n_heads\":4,\"num_hidden_layers\":4,\"vocab_size\":100,\"intermediate_size\":64,"
    "\"max_position_embeddings\":4096}",
};

/* Check's own asserts allocate: the loop counts what went wrong, and the test asks once. */
static size_t wrong;

static float values[1 << 14];

static void fill(void *user, uint32_t il, uint32_t slot, uint64_t row, float *x, float *u)
{
    (void)user;
    x[0] = (float)(il + slot);
    u[0] = (float)row;
}

static void write_layers(KvgPlacement *placement, KvgBatch *batch)
{
    uint32_t lo, hi;
    kvg_placement_layers(placement, &lo, &hi);
    for (uint32_t il = lo; il < hi; il++) {
        KvgRows          kv = KVG_ROWS_INIT;
        KvgLatentRows    latent = KVG_LATENT_ROWS_INIT;
        KvgRecurrentRows recurrent = KVG_RECURRENT_ROWS_INIT;
        KvgStatus        status;
        kv.k = kv.v = latent.latent = latent.index = values;
        recurrent.fill = fill;
        recurrent.scratch = values;
        status = kvg_plane_view(batch, il) != NULL    ? kvg_write_kv(batch, il, &kv, NULL) :
                 kvg_latent_view(batch, il) != NULL   ? kvg_write_latent(batch, il, &latent, NULL) :
                                                        kvg_recurrent_update(batch, il, &recurrent, NULL);
        wrong += status != (KVG_OK);
    }
}

static void step(KvgPlacement *placement, KvgBatch *batch, uint32_t number)
{
    uint32_t   rows[SEQUENCES], accepted[SEQUENCES];
    KvgCommit  commit = KVG_COMMIT_INIT;
    KvgStep   *begun;
    KvgOutcome outcome = {.size = sizeof outcome};
    for (uint32_t i = 0; i < SEQUENCES; i++) rows[i] = ROWS, accepted[i] = 1 + (number + i) % ROWS;
    wrong += kvg_step_begin(batch, rows, &begun) != (KVG_OK);
    write_layers(placement, batch);
    commit.accepted = accepted;
    commit.refuse = number % 10 == 9 ? KVG_EDEVICE : KVG_OK;
    wrong += kvg_step_post(begun, &commit) != (KVG_OK);
    wrong += kvg_step_wait(begun, &outcome) != (number % 10 == 9 ? KVG_EREFUSED : KVG_OK);
}

START_TEST(test_a_steady_decode_loop_allocates_nothing)
{
    KvgBootstrap    bootstrap = KVG_BOOTSTRAP_INIT;
    KvgGridOptions  options = KVG_GRID_OPTIONS_INIT;
    KvgPlaceOptions place = KVG_PLACE_OPTIONS_INIT;
    ModelConfig     config;
    KvgGrid        *grid;
    KvgPlacement   *placement;
    KvgBatch       *batch;
    size_t          before;
    ck_assert_msg(kvg_model_config_parse_json(models[_i], strlen(models[_i]), "steady", &config) == KVG_OK, "%s", kvg_last_error());
    ck_assert_int_eq(kvg_grid_create(&bootstrap, &options, &grid), KVG_OK);
    place.max_sequences = SEQUENCES;
    place.spec_columns = ROWS + 1;
    place.memory_bytes = 64u << 20;
    ck_assert_msg(kvg_place(grid, &config, &place, &placement) == KVG_OK, "%s", kvg_last_error());
    ck_assert_int_eq(kvg_batch_create(placement, SEQUENCES, &batch), KVG_OK);
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        KvgSequence *sequence;
        ck_assert_int_eq(kvg_sequence_open(placement, i, 0, &sequence), KVG_OK);
        ck_assert_int_eq(kvg_batch_set(batch, i, sequence), KVG_OK);
    }
    for (uint32_t i = 0; i < 20; i++) step(placement, batch, i); /* sequences have crossed into a second chunk afterwards, too */
    ck_assert_uint_gt(allocations, 0); /* the counter counts */
    before = allocations;
    for (uint32_t i = 20; i < STEPS; i++) step(placement, batch, i);
    before = allocations - before;
    ck_assert_uint_eq(before, 0);
    ck_assert_uint_eq(wrong, 0);
    kvg_batch_destroy(batch);
    kvg_placement_destroy(placement);
    kvg_grid_destroy(grid);
    kvg_model_config_free(&config);
}
END_TEST

int main(void)
{
    if (!COUNTS_ALLOCATIONS) {
        puts("skipped: under a sanitizer allocations cannot be counted");
        return 77;
    }
    Suite *suite = suite_create("steady");
    TCase *tc = tcase_create("steady");
    tcase_add_loop_test(tc, test_a_steady_decode_loop_allocates_nothing, 0, (int)(sizeof models / sizeof *models));
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK); /* asserts in a child write to a pipe; here they would count */
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner) + (srunner_ntests_run(runner) == 0);
    srunner_free(runner);
    return failed != 0;
}

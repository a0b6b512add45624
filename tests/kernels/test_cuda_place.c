/* A placement on a CUDA device: which calls it makes of the driver, sleep, resize, measured memory, and memory from the engine. */
#include "tests/kernels/cuda_test.h"

#ifdef KVG_TEST_CUDA

#include <stdint.h>

#include <kvgrid/kvgrid.h>

#include "tests/kernels/cuda_driver_seen.h"

static KvgPlacement *place(KvInproc **hub, KvgGrid **grid, ModelConfig *config, KvgPlaceOptions *options)
{
    static const char text[] = "{\"model_type\":\"llama\",\"hidden_size\":1024,\"num_attention_heads\":8,\"num_key_value_heads\":8,\"head_dim\":128,"
                               "\"num_hidden_layers\":4,\"vocab_size\":100,\"intermediate_size\":64,\"max_position_embeddings\":8192}";
    KvgGridOptions grid_options = KVG_GRID_OPTIONS_INIT;
    KvgPlacement  *placement = NULL;

    OK(kvg_model_config_parse_json(text, sizeof text - 1, "test", config));
    OK(kvg_inproc_create(1, hub));
    OK(kvg_grid_create_inproc(*hub, 1, &grid_options, grid));
    options->device = &dev;
    options->max_sequences = 8;
    OK(kvg_place(*grid, config, options, &placement));
    return placement;
}

static void unplace(KvInproc *hub, KvgGrid *grid, ModelConfig *config, KvgPlacement *placement)
{
    kvg_placement_destroy(placement);
    kvg_grid_destroy(grid);
    kvg_inproc_destroy(hub);
    kvg_model_config_free(config);
}

static void run_some(KvgPlacement *placement, KvgBatch *batch)
{
    KvgSequence *sequences[4];
    KvgStep     *step = NULL;
    KvgCommit    commit = KVG_COMMIT_INIT;

    commit.accept_all = 1;
    for (uint32_t i = 0; i < 4; i++) {
        OK(kvg_sequence_open(placement, i + 1, 0, &sequences[i]));
        OK(kvg_batch_set(batch, i, sequences[i]));
    }
    for (int round = 0; round < 5; round++) {
        OK(kvg_step_begin(batch, (uint32_t[]){500, 1, 70, 200}, &step));
        OK(kvg_step_post(step, &commit));
        OK(kvg_step_wait(step, NULL));
    }
    for (uint32_t i = 0; i < 4; i++) OK(kvg_sequence_close(sequences[i], NULL));
}

START_TEST(test_sequences_on_the_device_open_grow_and_close_with_no_call_that_takes_or_maps_memory)
{
    KvInproc       *hub;
    KvgGrid        *grid;
    ModelConfig     config;
    KvgBatch       *batch = NULL;
    KvgPlaceOptions options = KVG_PLACE_OPTIONS_INIT;

    options.memory_bytes = 512 * MIB;
    KvgPlacement *placement = place(&hub, &grid, &config, &options);
    OK(kvg_batch_create(placement, 4, &batch));
    run_some(placement, batch);
    uint64_t taken = dev.ops->taken_bytes(dev.self);
    count_calls(&dev);
    run_some(placement, batch);
    ck_assert_uint_eq(calls.create + calls.map + calls.set_access + calls.unmap + calls.release, 0);
    ck_assert_uint_eq(dev.ops->taken_bytes(dev.self), taken);
    kvg_batch_destroy(batch);
    unplace(hub, grid, &config, placement);
}
END_TEST

START_TEST(test_a_placement_sleeps_and_wakes_and_the_driver_says_so_too)
{
    KvInproc       *hub;
    KvgGrid        *grid;
    ModelConfig     config;
    KvgBatch       *batch = NULL;
    KvgPlaceOptions options = KVG_PLACE_OPTIONS_INIT;
    size_t          before = free_bytes();

    options.memory_bytes = 1024 * MIB;
    KvgPlacement *placement = place(&hub, &grid, &config, &options);
    OK(kvg_batch_create(placement, 4, &batch));
    run_some(placement, batch);
    KvPlaneView view = *kvg_placement_view(placement, 0);
    size_t      taken = dev.ops->taken_bytes(dev.self);
    expect_taken(before, taken);
    for (int round = 0; round < 2; round++) {
        OK(kvg_placement_sleep(placement));
        ck_assert_uint_le(dev.ops->taken_bytes(dev.self), 2 * MIB);
        expect_taken(before, dev.ops->taken_bytes(dev.self));
        int refused = 0;
        for (uint64_t nth = 0; refused < 5; nth++) { /* first what the call itself needs, then one handle after the other */
            kvg_fault_arm(nth);
            KvgStatus status = kvg_placement_wake(placement);
            ck_assert_int_eq(kvg_fault_disarm(), 1);
            ck_assert(status == KVG_ENOMEM || status == KVG_EREFUSED);
            refused += status == KVG_EREFUSED;
            ck_assert_int_eq(kvg_placement_asleep(placement), 1);
        }
        expect_taken(before, dev.ops->taken_bytes(dev.self));
        OK(kvg_placement_wake(placement));
        ck_assert_uint_eq(dev.ops->taken_bytes(dev.self), taken);
        expect_taken(before, taken);
        ck_assert_mem_eq(&view, kvg_placement_view(placement, 0), sizeof view); /* the same addresses */
        fill(view.k.base, 0x21, MIB);
        run_some(placement, batch);
    }
    kvg_batch_destroy(batch);
    unplace(hub, grid, &config, placement);
    expect_taken(before, 0);
}
END_TEST

START_TEST(test_a_resize_finds_what_was_made_ahead_and_calls_nothing)
{
    KvInproc       *hub;
    KvgGrid        *grid;
    ModelConfig     config;
    KvgPlaceOptions options = KVG_PLACE_OPTIONS_INIT;

    options.memory_bytes = 256 * MIB;
    KvgPlacement *placement = place(&hub, &grid, &config, &options);
    count_calls(&dev);
    OK(kvg_placement_prepare(placement, 768 * MIB));
    ck_assert_uint_ge(calls.create, 8); /* a handle a plane at least */
    uint64_t taken = dev.ops->taken_bytes(dev.self);
    count_calls(&dev);
    OK(kvg_placement_resize(placement, 768 * MIB));
    ck_assert_uint_eq(calls.create + calls.map + calls.set_access + calls.unmap + calls.release, 0);
    ck_assert_uint_eq(dev.ops->taken_bytes(dev.self), taken);
    OK(kvg_placement_resize(placement, 256 * MIB));
    ck_assert_uint_lt(dev.ops->taken_bytes(dev.self), taken);
    unplace(hub, grid, &config, placement);
}
END_TEST

START_TEST(test_measured_memory_is_what_is_free_less_the_reserve)
{
    KvInproc       *hub;
    KvgGrid        *grid;
    ModelConfig     config;
    KvgPlaceOptions options = KVG_PLACE_OPTIONS_INIT;
    KvgStats        stats = {.size = sizeof stats};
    size_t          before = free_bytes();

    ck_assert_uint_gt(before, 512 * MIB);
    options.memory_reserve_bytes = before - 256 * MIB; /* most of a large device is left alone */
    KvgPlacement *placement = place(&hub, &grid, &config, &options);
    OK(kvg_stats(placement, &stats));
    ck_assert_uint_le(stats.memory_bytes, 260 * MIB);
    ck_assert_uint_ge(stats.memory_bytes, 250 * MIB);
    ck_assert_uint_le(stats.taken_bytes, stats.memory_bytes + 2 * MIB);
    unplace(hub, grid, &config, placement);
}
END_TEST

static void *engine_alloc(void *user, size_t bytes)
{
    void *memory = NULL;
    *(size_t *)user += bytes;
    return cudaMalloc(&memory, bytes) == cudaSuccess ? memory : NULL;
}

static void engine_free(void *user, void *memory, size_t bytes)
{
    *(size_t *)user -= bytes;
    cudaFree(memory);
}

START_TEST(test_memory_may_come_from_the_engine)
{
    size_t         held = 0;
    KvMemory       memory = {engine_alloc, engine_free, &held};
    KvgCudaOptions options = KVG_CUDA_OPTIONS_INIT;
    KvDev          other;
    void          *zeros = NULL;

    options.memory = &memory;
    OK(kvg_dev_cuda(&options, &other));
    ck_assert_ptr_null((void *)(uintptr_t)other.ops->reserve);
    OK(other.ops->zeros(other.self, 1000, &zeros));
    ck_assert_uint_eq(held, 1000);
    ck_assert_int_eq(kvg_cuda_sleep(&other), KVG_EINVAL);
    other.ops->free(other.self, zeros);
    ck_assert_uint_eq(held, 0);
    kvg_dev_close(&other);
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_test(tcase, test_memory_may_come_from_the_engine);
    tcase_add_test(tcase, test_sequences_on_the_device_open_grow_and_close_with_no_call_that_takes_or_maps_memory);
    tcase_add_test(tcase, test_a_placement_sleeps_and_wakes_and_the_driver_says_so_too);
    tcase_add_test(tcase, test_a_resize_finds_what_was_made_ahead_and_calls_nothing);
    tcase_add_test(tcase, test_measured_memory_is_what_is_free_less_the_reserve);
}
#else
static void add(TCase *tcase) { (void)tcase; }
#endif

int main(void)
{
    return cuda_suite("cuda_place", add);
}

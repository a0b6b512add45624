/* The CUDA device: ranges against what the driver says is free, moves that overlap, order between streams, patches, sleep and wake. */
#include "tests/kernels/cuda_test.h"

#ifdef KVG_TEST_CUDA

#include <stdint.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static size_t free_bytes(void)
{
    size_t spare = 0, total = 0;
    CU(cudaMemGetInfo(&spare, &total));
    return spare;
}

/* What the driver says is gone is what was taken, page tables of its own apart. */
static void expect_taken(size_t before, size_t taken)
{
    size_t gone = before - free_bytes();
    ck_assert_msg(gone + 4 * MIB >= taken && gone <= taken + 4 * MIB, "%zu bytes are taken, the driver says %zd", taken, (ptrdiff_t)gone);
}

static void fill(void *memory, int value, size_t bytes)
{
    CU(cudaMemset(memory, value, bytes));
    CU(cudaDeviceSynchronize());
}

static void expect_bytes(const void *memory, int value, size_t bytes)
{
    uint8_t *got = malloc(bytes);
    from_device(got, memory, bytes);
    size_t first = 0; /* asserted once: Check logs every assertion, and these are millions of bytes */
    while (first < bytes && got[first] == (uint8_t)value) first++;
    ck_assert_msg(first == bytes, "byte %zu of %zu is not %02x", first, bytes, value);
    free(got);
}

START_TEST(test_a_range_takes_what_the_driver_says_and_keeps_its_address_and_bytes)
{
    size_t  grain = dev.ops->granularity(dev.self), before = free_bytes();
    KvRange range;

    ck_assert_uint_ge(grain, 4096);
    OK(dev.ops->reserve(dev.self, 64ull << 30, &range));
    expect_taken(before, 0); /* addresses alone */
    OK(dev.ops->extend(dev.self, &range, 100 * MIB + 1));
    ck_assert_uint_eq(range.taken, (100 * MIB + 1 + grain - 1) / grain * grain);
    ck_assert_uint_eq(dev.ops->taken_bytes(dev.self), range.taken);
    expect_taken(before, range.taken);
    fill(range.base, 0x37, range.taken);
    uint8_t *base = range.base;
    size_t   had = range.taken;
    OK(dev.ops->extend(dev.self, &range, 300 * MIB));
    ck_assert_ptr_eq(range.base, base);
    expect_taken(before, 300 * MIB);
    expect_bytes(base, 0x37, had);
    fill(range.base + had, 0x11, range.taken - had); /* all of it can be used */
    OK(dev.ops->extend(dev.self, &range, 1)); /* less than it has: nothing */
    ck_assert_uint_eq(range.taken, 300 * MIB);
    OK(dev.ops->give_back(dev.self, &range, had)); /* whole handles from the end */
    ck_assert_uint_ge(range.taken, had);
    ck_assert_uint_lt(range.taken, had + 64 * MIB);
    expect_taken(before, range.taken);
    expect_bytes(base, 0x37, had);
    ck_assert_int_eq(dev.ops->extend(dev.self, &range, (64ull << 30) + 1), KVG_ECAPACITY);
    dev.ops->release(dev.self, &range);
    expect_taken(before, 0);
}
END_TEST

/* To the byte: where other ranges have been before, the driver has its page tables, so that nothing but the memory itself is gone. */
START_TEST(test_a_fresh_range_takes_exactly_what_the_driver_says)
{
    static const size_t sizes[] = {1, 2 * MIB, 2 * MIB + 1, 64 * MIB, 101 * MIB, 300 * MIB};
    KvRange             around;

    OK(dev.ops->reserve(dev.self, (size_t)8 << 30, &around));
    OK(dev.ops->extend(dev.self, &around, 400 * MIB));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t  before = free_bytes();
        KvRange range;
        OK(dev.ops->reserve(dev.self, (size_t)1 << 30, &range));
        OK(dev.ops->extend(dev.self, &range, sizes[i]));
        size_t gone = before - free_bytes();
        ck_assert_msg(gone == range.taken, "%zu bytes asked for, %zu taken, the driver says %zd", sizes[i], range.taken, (ptrdiff_t)gone);
        dev.ops->release(dev.self, &range);
        ck_assert_msg(free_bytes() == before, "%zu bytes: %zd are not back", sizes[i], (ptrdiff_t)(before - free_bytes()));
    }
    dev.ops->release(dev.self, &around);
}
END_TEST

START_TEST(test_slices_of_a_range_grow_for_themselves)
{
    KvRange range, slice[3];
    size_t  each = 32 * MIB;

    OK(dev.ops->reserve(dev.self, 3 * each, &range));
    for (int i = 0; i < 3; i++) slice[i] = (KvRange){.base = range.base + (size_t)i * each, .reserved = each};
    OK(dev.ops->extend(dev.self, &slice[1], 5 * MIB));
    OK(dev.ops->extend(dev.self, &slice[0], each));
    OK(dev.ops->extend(dev.self, &slice[2], 2 * MIB));
    fill(slice[0].base, 1, slice[0].taken);
    fill(slice[1].base, 2, slice[1].taken);
    fill(slice[2].base, 3, slice[2].taken);
    OK(dev.ops->give_back(dev.self, &slice[0], 0));
    ck_assert_uint_eq(slice[0].taken, 0);
    expect_bytes(slice[1].base, 2, slice[1].taken);
    expect_bytes(slice[2].base, 3, slice[2].taken);
    OK(dev.ops->extend(dev.self, &slice[0], 2 * MIB));
    fill(slice[0].base, 4, slice[0].taken);
    range.taken = slice[0].taken + slice[1].taken + slice[2].taken;
    dev.ops->release(dev.self, &range);
}
END_TEST

START_TEST(test_an_extension_that_cannot_be_had_changes_nothing)
{
    size_t  before = free_bytes();
    KvRange range;

    OK(dev.ops->reserve(dev.self, (size_t)1 << 40, &range));
    OK(dev.ops->extend(dev.self, &range, 8 * MIB));
    ck_assert_int_eq(dev.ops->extend(dev.self, &range, before + ((size_t)8 << 30)), KVG_ENOMEM);
    ck_assert_uint_eq(range.taken, 8 * MIB);
    expect_taken(before, 8 * MIB);
    kvg_fault_arm(1); /* the second handle */
    ck_assert_int_eq(dev.ops->extend(dev.self, &range, 300 * MIB), KVG_ENOMEM);
    ck_assert_int_eq(kvg_fault_disarm(), 1);
    expect_taken(before, 8 * MIB);
    dev.ops->release(dev.self, &range);
}
END_TEST

START_TEST(test_sleep_gives_the_memory_up_and_wake_brings_it_to_the_same_addresses)
{
    size_t  before = free_bytes();
    KvRange range;

    OK(dev.ops->reserve(dev.self, (size_t)1 << 30, &range));
    OK(dev.ops->extend(dev.self, &range, 200 * MIB));
    OK(kvg_cuda_sleep(&dev));
    expect_taken(before, 0);
    ck_assert_uint_eq(dev.ops->taken_bytes(dev.self), 0);
    ck_assert_int_eq(kvg_cuda_sleep(&dev), KVG_EBUSY);
    ck_assert_int_eq(dev.ops->extend(dev.self, &range, 300 * MIB), KVG_EBUSY);
    kvg_fault_arm(2);
    ck_assert_int_eq(kvg_cuda_wake(&dev), KVG_ENOMEM);
    ck_assert_int_eq(kvg_fault_disarm(), 1);
    expect_taken(before, 0);
    OK(kvg_cuda_wake(&dev));
    ck_assert_int_eq(kvg_cuda_wake(&dev), KVG_EINVAL);
    expect_taken(before, 200 * MIB);
    fill(range.base, 9, range.taken);
    expect_bytes(range.base, 9, range.taken);
    OK(kvg_cuda_sleep(&dev));
    dev.ops->release(dev.self, &range); /* asleep */
    OK(kvg_cuda_wake(&dev));
    expect_taken(before, 0);
}
END_TEST

START_TEST(test_a_graph_replays_over_memory_that_was_mapped_after_its_capture)
{
    KvRange         range;
    cudaStream_t    stream;
    cudaGraph_t     graph;
    cudaGraphExec_t replay;

    OK(dev.ops->reserve(dev.self, 64 * MIB, &range));
    CU(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CU(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    OK(kvg_tap_store_launch(range.base + 16 * MIB, MIB, range.base, MIB, MIB, 4, stream));
    CU(cudaStreamEndCapture(stream, &graph));
    CU(cudaGraphInstantiate(&replay, graph, 0));
    OK(dev.ops->extend(dev.self, &range, 32 * MIB));
    fill(range.base, 0x42, 32 * MIB);
    fill(range.base + 16 * MIB, 0, 16 * MIB);
    CU(cudaGraphLaunch(replay, stream));
    CU(cudaStreamSynchronize(stream));
    expect_bytes(range.base + 16 * MIB, 0x42, 4 * MIB);
    CU(cudaGraphExecDestroy(replay));
    CU(cudaGraphDestroy(graph));
    CU(cudaStreamDestroy(stream));
    dev.ops->release(dev.self, &range);
}
END_TEST

START_TEST(test_memory_can_be_exported_as_a_descriptor)
{
    KvRange range;
    void   *base = NULL;
    size_t  bytes = 0;
    int     fd = -1;

    OK(dev.ops->reserve(dev.self, 64 * MIB, &range));
    OK(dev.ops->extend(dev.self, &range, 4 * MIB));
    OK(kvg_cuda_export(&dev, range.base + 3 * MIB, &fd, &base, &bytes));
    ck_assert_int_ge(fd, 0);
    ck_assert_ptr_eq(base, range.base);
    ck_assert_uint_eq(bytes, 4 * MIB);
    close(fd);
    ck_assert_int_eq(kvg_cuda_export(&dev, range.base + 5 * MIB, &fd, &base, &bytes), KVG_EINVAL);
    dev.ops->release(dev.self, &range);
}
END_TEST

START_TEST(test_allocations_are_zeroed_aligned_and_counted)
{
    void *zeros = NULL, *other = NULL;

    OK(dev.ops->zeros(dev.self, 3 * MIB + 1, &zeros));
    OK(dev.ops->uninit(dev.self, 1, &other));
    ck_assert_uint_eq((uintptr_t)zeros % 256, 0);
    ck_assert_uint_eq(dev.ops->taken_bytes(dev.self), 3 * MIB + 2);
    expect_bytes(zeros, 0, 3 * MIB + 1);
    device_free(zeros);
    device_free(other);
    device_free(NULL);
    void *never = NULL;
    ck_assert_int_eq(dev.ops->uninit(dev.self, SIZE_MAX - 5, &never), KVG_EOVERFLOW);
    kvg_fault_arm(0);
    ck_assert_int_eq(dev.ops->uninit(dev.self, 100, &never), KVG_ENOMEM);
    ck_assert_int_eq(kvg_fault_disarm(), 1);
}
END_TEST

START_TEST(test_moves_have_memmoves_meaning)
{
    enum { BYTES = 3 << 20 };
    static const struct { size_t target, source, bytes; } moves[] = {
        {0, 32, 1 << 20}, {32, 0, 1 << 20}, {0, 1 << 19, 1 << 20}, {1 << 19, 0, 1 << 20}, {0, 1, 70001}, {1, 0, 70001}, {0, 4, 65536}, {100, 100, 50},
        {0, 2 << 20, 1 << 20}, {0, 4352, 2 << 20}, {4352, 0, 2 << 20}, {16, 0, 16}, {0, 48, 100}};
    uint8_t *expected = malloc(BYTES), *got = malloc(BYTES);

    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        for (size_t b = 0; b < BYTES; b++) expected[b] = (uint8_t)bits_at(i, b);
        uint8_t *memory = to_device(expected, BYTES);
        memmove(expected + moves[i].target, expected + moves[i].source, moves[i].bytes);
        OK(dev.ops->move(dev.self, memory + moves[i].target, memory + moves[i].source, moves[i].bytes, NULL));
        from_device(got, memory, BYTES);
        ck_assert_msg(memcmp(got, expected, BYTES) == 0, "move %zu", i);
        device_free(memory);
    }
    free(got);
    free(expected);
}
END_TEST

START_TEST(test_the_devices_own_stream_comes_after_and_before_the_callers)
{
    enum { WORDS = 8 << 20 };
    cudaStream_t a, b;
    uint8_t     *memory = NULL, *other = NULL, got[4];

    CU(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    CU(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    OK(dev.ops->zeros(dev.self, WORDS * 4, (void **)&memory));
    OK(dev.ops->zeros(dev.self, WORDS * 4, (void **)&other));
    for (int round = 1; round <= 20; round++) {
        /* a long write on a, a copy by the runtime, a write on b over what was copied from */
        CU(cudaMemsetAsync(memory, round, WORDS * 4, a));
        OK(dev.ops->move(dev.self, memory + 64, memory, 64, a)); /* the device knows of a from here */
        OK(dev.ops->move(dev.self, other, memory, WORDS * 4, NULL));
        OK(dev.ops->clear(dev.self, memory, WORDS * 4, b));
        OK(dev.ops->dtoh(dev.self, got, other + WORDS * 4 - 4, 4, NULL));
        OK(dev.ops->synchronize(dev.self, NULL));
        ck_assert_uint_eq(got[0], round);
        ck_assert_uint_eq(got[3], round);
    }
    OK(kvg_cuda_forget_stream(&dev, a));
    CU(cudaStreamDestroy(a));
    OK(dev.ops->move(dev.self, other, memory, 64, NULL)); /* asks nothing of the stream that is gone */
    OK(kvg_cuda_forget_stream(&dev, b));
    CU(cudaStreamDestroy(b));
    device_free(memory);
    device_free(other);
}
END_TEST

START_TEST(test_patches_and_host_copies_may_change_at_once)
{
    enum { WORDS = 200000 };
    uint32_t *expected = calloc(WORDS, sizeof *expected), *got = calloc(WORDS, sizeof *got);
    KvPatch  *pairs = calloc(WORDS, sizeof *pairs);
    uint32_t *words = to_device(expected, WORDS * sizeof *expected);

    for (uint32_t i = 0; i < WORDS; i++) pairs[i] = (KvPatch){(i * 7919u) % WORDS, bits_at(1, i)};
    for (uint32_t i = 0; i < 70000; i++) expected[pairs[i].index] = pairs[i].value;
    OK(dev.ops->patch(dev.self, words, pairs, 70000, NULL));
    memset(pairs, 0, WORDS * sizeof *pairs); /* the caller's again */
    OK(dev.ops->set_i32_one(dev.self, (int32_t *)words + 5, -7, NULL));
    expected[5] = (uint32_t)-7;
    from_device(got, words, WORDS * sizeof *got);
    ck_assert_int_eq(memcmp(got, expected, WORDS * sizeof *got), 0);
    for (int round = 0; round < 40; round++) { /* more than the ring of pinned pieces holds */
        for (uint32_t i = 0; i < WORDS; i++) expected[i] = (uint32_t)round + i;
        OK(dev.ops->htod(dev.self, words, expected, WORDS * sizeof *expected, NULL));
        memset(expected, 0, WORDS * sizeof *expected);
    }
    from_device(got, words, WORDS * sizeof *got);
    uint32_t right = 0;
    while (right < WORDS && got[right] == 39 + right) right++;
    ck_assert_uint_eq(right, WORDS);
    device_free(words);
    free(pairs);
    free(got);
    free(expected);
}
END_TEST

START_TEST(test_events_order_streams)
{
    cudaStream_t a, b;
    KvEvent      event = NULL;
    uint8_t     *memory = NULL, got = 0;

    CU(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    CU(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    OK(dev.ops->zeros(dev.self, 64 * MIB, (void **)&memory));
    OK(dev.ops->event_create(dev.self, &event));
    CU(cudaMemsetAsync(memory, 1, 64 * MIB, a));
    OK(dev.ops->event_record(dev.self, event, a));
    OK(dev.ops->stream_wait(dev.self, b, event));
    CU(cudaMemsetAsync(memory, 2, 64 * MIB, b));
    OK(dev.ops->synchronize(dev.self, b));
    from_device(&got, memory + 64 * MIB - 1, 1);
    ck_assert_uint_eq(got, 2);
    dev.ops->event_destroy(dev.self, event);
    OK(kvg_cuda_forget_stream(&dev, a));
    OK(kvg_cuda_forget_stream(&dev, b));
    CU(cudaStreamDestroy(a));
    CU(cudaStreamDestroy(b));
    device_free(memory);
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
    KvCudaMemory   memory = {engine_alloc, engine_free, &held};
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

START_TEST(test_a_device_that_is_not_there_is_named)
{
    KvgCudaOptions options = KVG_CUDA_OPTIONS_INIT;
    KvDev          other;
    int            count = kvg_cuda_probe(NULL, 0);

    options.device = 1000;
    ck_assert_int_eq(kvg_dev_cuda(&options, &other), KVG_ENOTSUP);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "1000"));
    ck_assert_int_ge(count, 1);
    options.size = 1;
    ck_assert_int_eq(kvg_dev_cuda(&options, &other), KVG_EINVAL);
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_test(tcase, test_a_range_takes_what_the_driver_says_and_keeps_its_address_and_bytes);
    tcase_add_test(tcase, test_a_fresh_range_takes_exactly_what_the_driver_says);
    tcase_add_test(tcase, test_slices_of_a_range_grow_for_themselves);
    tcase_add_test(tcase, test_an_extension_that_cannot_be_had_changes_nothing);
    tcase_add_test(tcase, test_sleep_gives_the_memory_up_and_wake_brings_it_to_the_same_addresses);
    tcase_add_test(tcase, test_a_graph_replays_over_memory_that_was_mapped_after_its_capture);
    tcase_add_test(tcase, test_memory_can_be_exported_as_a_descriptor);
    tcase_add_test(tcase, test_allocations_are_zeroed_aligned_and_counted);
    tcase_add_test(tcase, test_moves_have_memmoves_meaning);
    tcase_add_test(tcase, test_the_devices_own_stream_comes_after_and_before_the_callers);
    tcase_add_test(tcase, test_patches_and_host_copies_may_change_at_once);
    tcase_add_test(tcase, test_events_order_streams);
    tcase_add_test(tcase, test_memory_may_come_from_the_engine);
    tcase_add_test(tcase, test_a_device_that_is_not_there_is_named);
}
#else
static void add(TCase *tcase) { (void)tcase; }
#endif

int main(void)
{
    return cuda_suite("cuda_dev", add);
}

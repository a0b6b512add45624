/* The CUDA device: allocations, moves that overlap, order between streams, patches, events, and what is free. */
#include "tests/kernels/cuda_test.h"

#ifdef KVG_TEST_CUDA

#include <stdint.h>

#include "tests/kernels/cuda_driver_seen.h"

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

/* ---- spares: handles made ahead */

START_TEST(test_what_is_free_is_what_the_driver_says_and_names_its_device)
{
    KvAvailable now = {0, 0}, again = {0, 0};
    KvRange     range;

    OK(dev.ops->available(dev.self, &now));
    ck_assert_uint_le(now.bytes, free_bytes() + 4 * MIB);
    ck_assert_uint_ge(now.bytes + 4 * MIB, free_bytes());
    OK(dev.ops->reserve(dev.self, 256 * MIB, &range));
    OK(dev.ops->extend(dev.self, &range, 256 * MIB));
    OK(dev.ops->available(dev.self, &again));
    ck_assert_uint_eq(again.memory, now.memory);
    ck_assert_uint_le(again.bytes + 252 * MIB, now.bytes);
    dev.ops->release(dev.self, &range);
}
END_TEST

/* ---- a placement on the device */

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
    tcase_add_test(tcase, test_allocations_are_zeroed_aligned_and_counted);
    tcase_add_test(tcase, test_moves_have_memmoves_meaning);
    tcase_add_test(tcase, test_the_devices_own_stream_comes_after_and_before_the_callers);
    tcase_add_test(tcase, test_patches_and_host_copies_may_change_at_once);
    tcase_add_test(tcase, test_events_order_streams);
    tcase_add_test(tcase, test_what_is_free_is_what_the_driver_says_and_names_its_device);
    tcase_add_test(tcase, test_a_device_that_is_not_there_is_named);
}
#else
static void add(TCase *tcase) { (void)tcase; }
#endif

int main(void)
{
    return cuda_suite("cuda_dev", add);
}

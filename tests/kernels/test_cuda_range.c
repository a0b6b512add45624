/* CUDA ranges: held against what the driver says is free, grown, captured over, put to sleep and woken; handles made ahead. */
#include "tests/kernels/cuda_test.h"

#ifdef KVG_TEST_CUDA

#include <stdint.h>
#include <unistd.h>

#include <kvgrid/kvgrid.h>

#include "tests/kernels/cuda_driver_seen.h"

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

START_TEST(test_memory_is_taken_and_given_back_while_a_stream_is_captured_in_any_mode)
{
    const enum cudaStreamCaptureMode modes[] = {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed};
    enum { TIMES = CUDA_STAGE_PIECES + 4 };
    void        *memory[TIMES], *host = NULL, *seen = NULL;
    uint8_t      bytes[4096];
    cudaStream_t stream;
    cudaGraph_t  graph;
    size_t       nodes = 1;

    CU(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CU(cudaStreamBeginCapture(stream, modes[_i]));
    for (int n = 0; n < TIMES; n++) { /* so that pinned pieces are waited for */
        OK(dev.ops->zeros(dev.self, sizeof bytes, &memory[n]));
        memset(bytes, n, sizeof bytes);
        OK(dev.ops->htod(dev.self, memory[n], bytes, sizeof bytes / 2, NULL));
    }
    dev.ops->free(dev.self, memory[0]);
    OK(dev.ops->run->words_new(dev.self, 64, &host, &seen));
    dev.ops->run->words_free(dev.self, host);
    CU(cudaStreamEndCapture(stream, &graph)); /* nothing has broken it */
    CU(cudaGraphGetNodes(graph, NULL, &nodes));
    ck_assert_uint_eq(nodes, 0);
    for (int n = 1; n < TIMES; n++) {
        expect_bytes(memory[n], n, sizeof bytes / 2);
        expect_bytes((uint8_t *)memory[n] + sizeof bytes / 2, 0, sizeof bytes / 2);
        dev.ops->free(dev.self, memory[n]);
    }
    CU(cudaGraphDestroy(graph));
    CU(cudaStreamDestroy(stream));
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

/* ---- spares: handles made ahead */

START_TEST(test_ranges_grow_into_handles_made_ahead_with_no_memory_asked_for)
{
    KvgCudaOptions options = KVG_CUDA_OPTIONS_INIT;
    size_t         before = free_bytes();
    KvDev          other;
    KvRange        range;

    options.spare_bytes = 32 * MIB;
    OK(kvg_dev_cuda(&options, &other));
    ck_assert_uint_eq(other.ops->taken_bytes(other.self), 32 * MIB);
    ck_assert_uint_ge(before - free_bytes() + 4 * MIB, 32 * MIB);
    OK(other.ops->reserve(other.self, 256 * MIB, &range));
    count_calls(&other);
    OK(other.ops->extend(other.self, &range, 20 * MIB));
    ck_assert_uint_eq(calls.create, 0);
    ck_assert_uint_eq(calls.map, 20 * MIB / other.ops->granularity(other.self));
    ck_assert_uint_eq(other.ops->taken_bytes(other.self), 32 * MIB); /* counted before, and not twice */
    fill(range.base, 0x3c, range.taken);
    expect_bytes(range.base, 0x3c, range.taken);
    OK(other.ops->extend(other.self, &range, 52 * MIB)); /* 12 MiB are at hand, 20 are not */
    ck_assert_uint_eq(calls.create, 1);
    ck_assert_uint_eq(other.ops->taken_bytes(other.self), 52 * MIB);
    expect_bytes(range.base, 0x3c, 20 * MIB);
    OK(other.ops->give_back(other.self, &range, 0)); /* the 20 MiB are kept, and what fits beside them */
    ck_assert_uint_eq(range.taken, 0);
    ck_assert_uint_eq(other.ops->taken_bytes(other.self), 32 * MIB);
    count_calls(&other);
    OK(other.ops->extend(other.self, &range, 32 * MIB));
    ck_assert_uint_eq(calls.create, 0);
    OK(kvg_cuda_refill(&other));
    ck_assert_uint_eq(other.ops->taken_bytes(other.self), 64 * MIB);
    other.ops->trim(other.self);
    ck_assert_uint_eq(other.ops->taken_bytes(other.self), 32 * MIB);
    other.ops->release(other.self, &range);
    ck_assert_uint_eq(other.ops->taken_bytes(other.self), 0);
    OK(kvg_cuda_refill(&other));
    OK(kvg_cuda_sleep(&other));
    ck_assert_uint_eq(other.ops->taken_bytes(other.self), 0);
    ck_assert_int_eq(kvg_cuda_refill(&other), KVG_EBUSY);
    OK(kvg_cuda_wake(&other));
    kvg_dev_close(&other);
}
END_TEST

START_TEST(test_a_device_can_be_opened_without_ranges)
{
    KvgCudaOptions options = KVG_CUDA_OPTIONS_INIT;
    KvDev          other;
    void          *memory = NULL;

    options.plain = 1;
    OK(kvg_dev_cuda(&options, &other));
    ck_assert_ptr_null((void *)(uintptr_t)other.ops->reserve);
    OK(other.ops->zeros(other.self, MIB, &memory));
    other.ops->free(other.self, memory);
    ck_assert_int_eq(kvg_cuda_refill(&other), KVG_EINVAL);
    kvg_dev_close(&other);
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
    tcase_add_loop_test(tcase, test_memory_is_taken_and_given_back_while_a_stream_is_captured_in_any_mode, 0, 3);
    tcase_add_test(tcase, test_memory_can_be_exported_as_a_descriptor);
    tcase_add_test(tcase, test_ranges_grow_into_handles_made_ahead_with_no_memory_asked_for);
    tcase_add_test(tcase, test_a_device_can_be_opened_without_ranges);
}
#else
static void add(TCase *tcase) { (void)tcase; }
#endif

int main(void)
{
    return cuda_suite("cuda_range", add);
}

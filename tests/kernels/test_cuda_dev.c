/* The CUDA device: ranges against what the driver says is free, moves that overlap, order between streams, patches, sleep and wake, spare
 * handles, a placement's memory. */
#include "tests/kernels/cuda_test.h"

#ifdef KVG_TEST_CUDA

#include <stdint.h>
#include <unistd.h>

#include <kvgrid/kvgrid.h>

#include "kernels/cuda_dev.h"

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

static struct {
    CudaDriver real;
    uint64_t   create, map, set_access, unmap, release;
} calls;

static CUresult count_create(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags)
{
    calls.create++;
    return calls.real.create(handle, bytes, prop, flags);
}

static CUresult count_map(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    calls.map++;
    return calls.real.map(at, bytes, offset, handle, flags);
}

static CUresult count_set_access(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    calls.set_access++;
    return calls.real.set_access(at, bytes, access, count);
}

static CUresult count_unmap(CUdeviceptr at, size_t bytes)
{
    calls.unmap++;
    return calls.real.unmap(at, bytes);
}

static CUresult count_release(CUmemGenericAllocationHandle handle)
{
    calls.release++;
    return calls.real.release(handle);
}

/* The driver's calls that take and map memory, counted from here. */
static void count_calls(KvDev *on)
{
    CudaDev *cuda = on->self;

    if (cuda->driver.create != count_create) calls.real = cuda->driver;
    calls.create = calls.map = calls.set_access = calls.unmap = calls.release = 0;
    cuda->driver.create = count_create;
    cuda->driver.map = count_map;
    cuda->driver.set_access = count_set_access;
    cuda->driver.unmap = count_unmap;
    cuda->driver.release = count_release;
}

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

/* ---- a placement on the device */

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
    tcase_add_loop_test(tcase, test_memory_is_taken_and_given_back_while_a_stream_is_captured_in_any_mode, 0, 3);
    tcase_add_test(tcase, test_memory_can_be_exported_as_a_descriptor);
    tcase_add_test(tcase, test_allocations_are_zeroed_aligned_and_counted);
    tcase_add_test(tcase, test_moves_have_memmoves_meaning);
    tcase_add_test(tcase, test_the_devices_own_stream_comes_after_and_before_the_callers);
    tcase_add_test(tcase, test_patches_and_host_copies_may_change_at_once);
    tcase_add_test(tcase, test_events_order_streams);
    tcase_add_test(tcase, test_memory_may_come_from_the_engine);
    tcase_add_test(tcase, test_ranges_grow_into_handles_made_ahead_with_no_memory_asked_for);
    tcase_add_test(tcase, test_what_is_free_is_what_the_driver_says_and_names_its_device);
    tcase_add_test(tcase, test_a_device_can_be_opened_without_ranges);
    tcase_add_test(tcase, test_sequences_on_the_device_open_grow_and_close_with_no_call_that_takes_or_maps_memory);
    tcase_add_test(tcase, test_a_placement_sleeps_and_wakes_and_the_driver_says_so_too);
    tcase_add_test(tcase, test_a_resize_finds_what_was_made_ahead_and_calls_nothing);
    tcase_add_test(tcase, test_measured_memory_is_what_is_free_less_the_reserve);
    tcase_add_test(tcase, test_a_device_that_is_not_there_is_named);
}
#else
static void add(TCase *tcase) { (void)tcase; }
#endif

int main(void)
{
    return cuda_suite("cuda_dev", add);
}

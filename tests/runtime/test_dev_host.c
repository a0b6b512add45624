/* The host device: memory that the system agrees about, in-place growth, failures that change nothing. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <kvgrid/dev.h>

#include "runtime/base/memory.h"
#include "tests/runtime/maps.h"

enum { PAGE = 4096 };

static KvDev dev;

static void setup(void)
{
    ck_assert_int_eq(kvg_dev_host(&dev), KVG_OK);
}

static void teardown(void)
{
    ck_assert_uint_eq(dev.ops->taken_bytes(dev.self), 0);
    kvg_dev_close(&dev);
    ck_assert_uint_eq(kvg_live_allocations(), 0);
}

START_TEST(test_an_allocation_is_zeroed_aligned_and_counted_as_the_system_counts_it)
{
    static const size_t sizes[] = {1, 255, 256, 3840, 3841, 4096, 100000};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint8_t *memory = NULL;

        ck_assert_int_eq(dev.ops->zeros(dev.self, sizes[i], (void **)&memory), KVG_OK);
        ck_assert_uint_eq((uintptr_t)memory % 256, 0);
        for (size_t b = 0; b < sizes[i]; b++) ck_assert_uint_eq(memory[b], 0);
        memset(memory, 0xab, sizes[i]);
        ck_assert_uint_eq(dev.ops->taken_bytes(dev.self), maps_backed_bytes(memory - 256, (256 + sizes[i] + PAGE - 1) / PAGE * PAGE));
        dev.ops->free(dev.self, memory);
        ck_assert_uint_eq(dev.ops->taken_bytes(dev.self), 0);
    }
    dev.ops->free(dev.self, NULL);
}
END_TEST

START_TEST(test_a_range_is_extended_in_place_and_its_bytes_stay)
{
    KvRange range = {0};

    ck_assert_int_eq(dev.ops->reserve(dev.self, 1000 * PAGE + 1, &range), KVG_OK);
    uint8_t *base = range.base;
    ck_assert_uint_eq(range.taken, 0);
    ck_assert_uint_ge(range.reserved, 1000 * PAGE + 1);
    ck_assert_uint_eq(maps_backed_bytes(base, range.reserved), 0);
    for (size_t bytes = 1; bytes <= range.reserved; bytes = bytes * 2 + PAGE) {
        size_t before = range.taken;

        ck_assert_int_eq(dev.ops->extend(dev.self, &range, bytes), KVG_OK);
        ck_assert_ptr_eq(range.base, base);
        ck_assert_uint_ge(range.taken, bytes);
        ck_assert_uint_lt(range.taken, bytes + PAGE);
        ck_assert_uint_eq(maps_backed_bytes(base, range.reserved), range.taken);
        ck_assert_uint_eq(dev.ops->taken_bytes(dev.self), range.taken);
        if (before > 0) ck_assert_uint_eq(base[before - 1], 7);
        memset(base, 7, range.taken);
    }
    dev.ops->release(dev.self, &range);
    ck_assert_ptr_null(range.base);
}
END_TEST

START_TEST(test_what_is_given_back_is_gone_from_the_system_and_comes_back_zeroed)
{
    KvRange range = {0};

    ck_assert_int_eq(dev.ops->reserve(dev.self, 64 * PAGE, &range), KVG_OK);
    ck_assert_int_eq(dev.ops->extend(dev.self, &range, 64 * PAGE), KVG_OK);
    memset(range.base, 9, 64 * PAGE);
    ck_assert_int_eq(dev.ops->give_back(dev.self, &range, 10 * PAGE - 1), KVG_OK);
    ck_assert_uint_eq(range.taken, 10 * PAGE);
    ck_assert_uint_eq(maps_backed_bytes(range.base, range.reserved), 10 * PAGE);
    ck_assert_uint_eq(dev.ops->taken_bytes(dev.self), 10 * PAGE);
    ck_assert_int_eq(dev.ops->give_back(dev.self, &range, 20 * PAGE), KVG_OK); /* more than there is: nothing to do */
    ck_assert_uint_eq(range.taken, 10 * PAGE);
    ck_assert_int_eq(dev.ops->extend(dev.self, &range, 11 * PAGE), KVG_OK);
    ck_assert_uint_eq(range.base[10 * PAGE - 1], 9);
    ck_assert_uint_eq(range.base[10 * PAGE], 0);
    ck_assert_int_eq(dev.ops->give_back(dev.self, &range, 0), KVG_OK);
    ck_assert_uint_eq(maps_backed_bytes(range.base, range.reserved), 0);
    dev.ops->release(dev.self, &range);
}
END_TEST

START_TEST(test_a_slice_in_the_middle_of_a_range_is_backed_for_itself)
{
    KvRange range = {0};

    ck_assert_int_eq(dev.ops->reserve(dev.self, 30 * PAGE, &range), KVG_OK);
    KvRange slice = {.base = range.base + 10 * PAGE, .reserved = 10 * PAGE};
    ck_assert_int_eq(dev.ops->extend(dev.self, &slice, 3 * PAGE), KVG_OK);
    ck_assert_uint_eq(maps_backed_bytes(range.base, 10 * PAGE), 0);
    ck_assert_uint_eq(maps_backed_bytes(range.base + 10 * PAGE, 20 * PAGE), 3 * PAGE);
    ck_assert_int_eq(dev.ops->extend(dev.self, &slice, 10 * PAGE + 1), KVG_ECAPACITY); /* never into its neighbour */
    ck_assert_uint_eq(slice.taken, 3 * PAGE);
    range.taken = slice.taken;
    dev.ops->release(dev.self, &range);
}
END_TEST

START_TEST(test_refused_requests_name_the_cure_and_change_nothing)
{
    KvRange range = {0};

    ck_assert_int_eq(dev.ops->reserve(dev.self, (size_t)1 << 60, &range), KVG_ENOMEM);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "free memory"));
    ck_assert_ptr_null(range.base);
    ck_assert_int_eq(dev.ops->reserve(dev.self, 0, &range), KVG_EINVAL);
    ck_assert_int_eq(dev.ops->reserve(dev.self, 4 * PAGE, &range), KVG_OK);
    ck_assert_int_eq(dev.ops->extend(dev.self, &range, 4 * PAGE + 1), KVG_ECAPACITY);
    ck_assert_uint_eq(range.taken, 0);
    dev.ops->release(dev.self, &range);
    void *memory = NULL;
    ck_assert_int_eq(dev.ops->zeros(dev.self, SIZE_MAX - 10, &memory), KVG_EOVERFLOW);
    ck_assert_ptr_null(memory);
}
END_TEST

START_TEST(test_every_acquisition_can_be_made_to_fail_and_then_changes_nothing)
{
    KvRange range = {0};
    void   *memory = NULL;

    ck_assert_int_eq(dev.ops->reserve(dev.self, 8 * PAGE, &range), KVG_OK);
    ck_assert_int_eq(dev.ops->extend(dev.self, &range, 2 * PAGE), KVG_OK);
    KvRange before = range, other = {0};
    kvg_fault_arm(0);
    ck_assert_int_eq(dev.ops->extend(dev.self, &range, 3 * PAGE), KVG_ENOMEM);
    ck_assert_int_eq(kvg_fault_disarm(), 1);
    kvg_fault_arm(0);
    ck_assert_int_eq(dev.ops->give_back(dev.self, &range, PAGE), KVG_ENOMEM);
    ck_assert_int_eq(kvg_fault_disarm(), 1);
    kvg_fault_arm(0);
    ck_assert_int_eq(dev.ops->reserve(dev.self, PAGE, &other), KVG_ENOMEM);
    ck_assert_int_eq(kvg_fault_disarm(), 1);
    kvg_fault_arm(0);
    ck_assert_int_eq(dev.ops->uninit(dev.self, PAGE, &memory), KVG_ENOMEM);
    ck_assert_int_eq(kvg_fault_disarm(), 1);
    ck_assert_mem_eq(&range, &before, sizeof range);
    ck_assert(other.base == NULL && memory == NULL);
    ck_assert_uint_eq(dev.ops->taken_bytes(dev.self), 2 * PAGE);
    ck_assert_uint_eq(maps_backed_bytes(range.base, range.reserved), 2 * PAGE);
    dev.ops->release(dev.self, &range);
}
END_TEST

#ifndef __SANITIZE_ADDRESS__ /* its allocator maps too, and stops the process when it cannot */
START_TEST(test_too_many_mappings_name_max_map_count_as_the_cure)
{
    enum { MAPS_MOST = 1 << 18 };
    size_t    count = 0;
    KvRange   range = {0};
    KvgStatus status = KVG_OK;
    /* every other page read-only: each page is a mapping of its own */
    uint8_t  *area = mmap(NULL, (size_t)MAPS_MOST * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    ck_assert(area != MAP_FAILED);
    while (count < MAPS_MOST && mprotect(area + count * PAGE, PAGE, PROT_READ) == 0) count += 2;
    if (count < MAPS_MOST) {
        for (int i = 0; i < 4 && status == KVG_OK; i++) status = dev.ops->reserve(dev.self, PAGE << i, &range);
    }
    munmap(area, (size_t)MAPS_MOST * PAGE);
    if (count >= MAPS_MOST) return; /* this system allows more mappings than the test is ready to make */
    ck_assert_int_eq(status, KVG_ENOMEM);
    ck_assert_msg(strstr(kvg_last_error(), "vm.max_map_count") != NULL, "%s", kvg_last_error());
}
END_TEST

static double cpu_seconds(void)
{
    struct rusage used;

    ck_assert_int_eq(getrusage(RUSAGE_SELF, &used), 0);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + 1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/* A flat layout closes by giving back thousands of slices; where the limit on addresses has fallen below what is in use, none of them can be. */
START_TEST(test_what_cannot_be_given_back_stays_taken_and_costs_no_look_at_all_mappings)
{
    enum { MAPPINGS = 20000, TRIES = 300 };
    uint8_t      *many = mmap(NULL, (size_t)MAPPINGS * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct rlimit before, tight;
    KvRange       range;

    ck_assert(many != MAP_FAILED);
    for (size_t i = 0; i < MAPPINGS; i += 2) {
        if (mprotect(many + i * PAGE, PAGE, PROT_READ) != 0) ck_abort_msg("mapping %zu", i);
    }
    ck_assert_int_eq(dev.ops->reserve(dev.self, 16 * PAGE, &range), KVG_OK);
    ck_assert_int_eq(dev.ops->extend(dev.self, &range, 8 * PAGE), KVG_OK);
    ck_assert_int_eq(getrlimit(RLIMIT_AS, &before), 0);
    tight = before;
    tight.rlim_cur = PAGE;
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &tight), 0);
    double    from = cpu_seconds();
    KvgStatus status = KVG_ENOMEM;

    for (int i = 0; i < TRIES && status == KVG_ENOMEM; i++) status = dev.ops->give_back(dev.self, &range, PAGE);
    double took = cpu_seconds() - from;

    ck_assert_int_eq(setrlimit(RLIMIT_AS, &before), 0);
    ck_assert_int_eq(status, KVG_ENOMEM);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "cannot give back 28672 bytes of host memory, which stay taken"));
    ck_assert_uint_eq(range.taken, 8 * PAGE);
    ck_assert_uint_eq(dev.ops->taken_bytes(dev.self), 8 * PAGE);
    ck_assert_msg(took < 0.3, "%d refusals took %.3f s of a processor", TRIES, took);
    ck_assert_int_eq(dev.ops->give_back(dev.self, &range, PAGE), KVG_OK);
    ck_assert_uint_eq(dev.ops->taken_bytes(dev.self), PAGE);
    dev.ops->release(dev.self, &range);
    ck_assert_int_eq(munmap(many, (size_t)MAPPINGS * PAGE), 0);
}
END_TEST
#endif

START_TEST(test_a_copy_between_ranges_is_checked_on_both_sides_and_may_overlap)
{
    uint8_t a[16], b[16];

    for (uint8_t i = 0; i < 16; i++) a[i] = i;
    memset(b, 0xff, sizeof b);
    ck_assert_int_eq(kvg_dev_copy_range_into(&dev, b, 16, 8, a, 16, 0, 8, NULL), KVG_OK);
    ck_assert_uint_eq(b[7], 0xff);
    ck_assert_uint_eq(b[8], 0);
    ck_assert_uint_eq(b[15], 7);
    ck_assert_int_eq(kvg_dev_copy_range_into(&dev, b, 16, 8, a, 16, 0, 9, NULL), KVG_EINVAL);
    ck_assert_int_eq(kvg_dev_copy_range_into(&dev, b, 16, 0, a, 16, 9, 8, NULL), KVG_EINVAL);
    ck_assert_int_eq(kvg_dev_copy_range_into(&dev, b, 16, 17, a, 16, 0, 0, NULL), KVG_EINVAL);
    ck_assert_int_eq(kvg_dev_copy_range_into(&dev, b, 16, 16, a, 16, 16, 0, NULL), KVG_OK);
    ck_assert_int_eq(kvg_dev_copy_range_into(&dev, b, 16, SIZE_MAX, a, 16, 0, 2, NULL), KVG_EOVERFLOW);
    ck_assert_int_eq(kvg_dev_copy_range_into(&dev, a, 16, 1, a, 16, 0, 15, NULL), KVG_OK);
    for (uint8_t i = 1; i < 16; i++) ck_assert_uint_eq(a[i], i - 1);
}
END_TEST

START_TEST(test_a_clone_is_a_copy_of_its_own)
{
    uint8_t  source[5000];
    uint8_t *clone = NULL;

    for (size_t i = 0; i < sizeof source; i++) source[i] = (uint8_t)(i * 7);
    ck_assert_int_eq(kvg_dev_clone(&dev, source, sizeof source, NULL, (void **)&clone), KVG_OK);
    source[0] ^= 1;
    ck_assert_uint_eq(clone[0], 0);
    ck_assert_mem_eq(clone + 1, source + 1, sizeof source - 1);
    dev.ops->free(dev.self, clone);
    clone = NULL;
    kvg_fault_arm(0);
    ck_assert_int_eq(kvg_dev_clone(&dev, source, sizeof source, NULL, (void **)&clone), KVG_ENOMEM);
    kvg_fault_disarm();
    ck_assert_ptr_null(clone);
}
END_TEST

START_TEST(test_rows_are_encoded_alike_whatever_the_strides)
{
    enum { HEADS = 3, DIM = 64, ROWS = 5, GAP = 11 };
    static float   packed[ROWS * HEADS * DIM], spread[ROWS * (HEADS * (DIM + GAP) + GAP)], decoded[ROWS * HEADS * DIM];
    static uint8_t chunk[HEADS * ROWS * 136], flat[ROWS * HEADS * 136], one[136];
    KvFormat       formats[] = {KVG_Q8_0, KVG_Q5_1, KVG_Q4_0, KVG_FP8, KVG_BF16, KVG_F16};
    const int64_t  token = HEADS * (DIM + GAP) + GAP;

    for (int i = 0; i < ROWS * HEADS * DIM; i++) {
        packed[i] = (float)((i * 37) % 101) / 17.0f - 3.0f;
        spread[i / (HEADS * DIM) * token + i / DIM % HEADS * (DIM + GAP) + i % DIM] = packed[i];
    }
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++) {
        uint64_t head_bytes;
        ck_assert_int_eq(kvg_format_row_bytes(formats[f], DIM, &head_bytes), KVG_OK);
        KvRowsIn in_packed = {.data = packed, .type = KVG_F32, .token_stride = HEADS * DIM, .head_stride = DIM};
        KvRowsIn in_spread = {.data = spread, .type = KVG_F32, .token_stride = token, .head_stride = DIM + GAP};
        KvRowsAt at_flat = {.target = flat, .head_stride = head_bytes, .row_stride = HEADS * head_bytes};
        KvRowsAt at_chunk = {.target = chunk, .head_stride = ROWS * head_bytes, .row_stride = head_bytes};
        KvEncodeCounts counts = {0, 0};

        ck_assert_int_eq(dev.ops->encode_rows(dev.self, formats[f], &in_packed, at_flat, HEADS, DIM, ROWS, &counts, NULL), KVG_OK);
        ck_assert_int_eq(dev.ops->encode_rows(dev.self, formats[f], &in_spread, at_chunk, HEADS, DIM, ROWS, &counts, NULL), KVG_OK);
        for (int row = 0; row < ROWS; row++) {
            for (int head = 0; head < HEADS; head++) {
                kvg_encode_f32_ref(formats[f], packed + (row * HEADS + head) * DIM, DIM, one, NULL);
                ck_assert_mem_eq(flat + (size_t)(row * HEADS + head) * head_bytes, one, head_bytes);
                ck_assert_mem_eq(chunk + (size_t)(head * ROWS + row) * head_bytes, one, head_bytes);
            }
        }
        ck_assert_int_eq(dev.ops->decode_rows(dev.self, formats[f], at_chunk, HEADS, DIM, ROWS, decoded, NULL), KVG_OK);
        for (int i = 0; i < ROWS * HEADS * DIM; i++) ck_assert_float_eq_tol(decoded[i], packed[i], 0.5f);
        ck_assert_uint_eq(counts.nonfinite + counts.saturated, 0);
    }
}
END_TEST

START_TEST(test_one_head_in_one_run_encodes_as_row_by_row)
{
    enum { DIM = 32, ROWS = 7 };
    float    data[ROWS * DIM];
    uint8_t  run[ROWS * 34], single[34];
    KvRowsIn in = {.data = data, .type = KVG_F32, .token_stride = DIM, .head_stride = DIM};

    for (int i = 0; i < ROWS * DIM; i++) data[i] = (float)(i % 23) - 11.0f;
    KvRowsAt at = {.target = run, .head_stride = sizeof run, .row_stride = 34};
    ck_assert_int_eq(dev.ops->encode_rows(dev.self, KVG_Q8_0, &in, at, 1, DIM, ROWS, NULL, NULL), KVG_OK);
    for (int row = 0; row < ROWS; row++) {
        kvg_encode_f32_ref(KVG_Q8_0, data + row * DIM, DIM, single, NULL);
        ck_assert_mem_eq(run + row * 34, single, 34);
    }
    run[0] = 0xee;
    ck_assert_int_eq(dev.ops->encode_rows(dev.self, KVG_Q8_0, &in, at, 1, DIM, 0, NULL, NULL), KVG_OK); /* no rows: nothing written */
    ck_assert_uint_eq(run[0], 0xee);
}
END_TEST

START_TEST(test_streams_events_and_small_copies_work_at_once)
{
    KvEvent event = NULL;
    int32_t word = 1;
    uint8_t from[3] = {1, 2, 3}, to[3] = {0};

    ck_assert_int_eq(dev.ops->event_create(dev.self, &event), KVG_OK);
    ck_assert_int_eq(dev.ops->event_record(dev.self, event, NULL), KVG_OK);
    ck_assert_int_eq(dev.ops->stream_wait(dev.self, NULL, event), KVG_OK);
    ck_assert_int_eq(dev.ops->synchronize(dev.self, NULL), KVG_OK);
    dev.ops->event_destroy(dev.self, event);
    ck_assert_int_eq(dev.ops->set_i32_one(dev.self, &word, -5, NULL), KVG_OK);
    ck_assert_int_eq(word, -5);
    ck_assert_int_eq(dev.ops->htod(dev.self, to, from, 3, NULL), KVG_OK);
    ck_assert_mem_eq(to, from, 3);
    ck_assert_int_eq(dev.ops->dtoh(dev.self, from, to + 1, 2, NULL), KVG_OK);
    ck_assert_uint_eq(from[0], 2);
}
END_TEST

START_TEST(test_the_plain_device_has_all_of_the_range_calls_or_none)
{
    KvDev plain = {0};

    ck_assert_int_eq(kvg_dev_host_plain(&plain), KVG_OK);
    ck_assert(plain.ops->reserve == NULL && plain.ops->extend == NULL && plain.ops->give_back == NULL && plain.ops->release == NULL);
    ck_assert(dev.ops->reserve != NULL && dev.ops->extend != NULL && dev.ops->give_back != NULL && dev.ops->release != NULL);
    kvg_dev_close(&plain);
    kvg_dev_close(&plain); /* closed already: nothing */
    kvg_fault_arm(0);
    ck_assert_int_eq(kvg_dev_host(&plain), KVG_ENOMEM);
    kvg_fault_disarm();
    ck_assert_ptr_null(plain.ops);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dev_host");
    TCase *all = tcase_create("host");

    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, test_an_allocation_is_zeroed_aligned_and_counted_as_the_system_counts_it);
    tcase_add_test(all, test_a_range_is_extended_in_place_and_its_bytes_stay);
    tcase_add_test(all, test_what_is_given_back_is_gone_from_the_system_and_comes_back_zeroed);
    tcase_add_test(all, test_a_slice_in_the_middle_of_a_range_is_backed_for_itself);
    tcase_add_test(all, test_refused_requests_name_the_cure_and_change_nothing);
    tcase_add_test(all, test_every_acquisition_can_be_made_to_fail_and_then_changes_nothing);
#ifndef __SANITIZE_ADDRESS__
    tcase_add_test(all, test_too_many_mappings_name_max_map_count_as_the_cure);
    tcase_add_test(all, test_what_cannot_be_given_back_stays_taken_and_costs_no_look_at_all_mappings);
#endif
    tcase_add_test(all, test_a_copy_between_ranges_is_checked_on_both_sides_and_may_overlap);
    tcase_add_test(all, test_a_clone_is_a_copy_of_its_own);
    tcase_add_test(all, test_rows_are_encoded_alike_whatever_the_strides);
    tcase_add_test(all, test_one_head_in_one_run_encodes_as_row_by_row);
    tcase_add_test(all, test_streams_events_and_small_copies_work_at_once);
    tcase_add_test(all, test_the_plain_device_has_all_of_the_range_calls_or_none);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad;
}

/* Store: addresses, units, sharing, resize, and what the system says about the memory, in every layout. */
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/state/store_impl.h"
#include "tests/runtime/maps.h"
#include "tests/runtime/state_fixture.h"

#define WINDOW  40u
#define PREFILL 100u
#define MAX_CTX 2000u
#define UNITS   48u

enum { LAYOUTS = 3 }; /* 0 pool, 1 flat in reserved ranges, 2 flat that grows by copying */

static Fixture fixture;

static void open_layout(int layout)
{
    fixture_open(&fixture, layout == 0 ? KVG_LAYOUT_POOL : KVG_LAYOUT_FLAT, layout != 2, WINDOW, PREFILL, MAX_CTX, 4, UNITS);
}

static void release_all(void)
{
    for (uint32_t slot = 0; slot < fixture.options.slots; slot++) kvg_store_release(fixture.store, slot, NULL);
    ck_assert_int_eq(kvg_store_check(fixture.store), KVG_OK);
    ck_assert_uint_eq(kvg_store_bytes(fixture.store).booked, 0);
    fixture_close(&fixture);
}

static void book(uint32_t class_index, uint32_t slot, uint32_t end)
{
    ck_assert_msg(kvg_store_book(fixture.store, class_index, slot, end) == KVG_OK, "%s", kvg_last_error());
}

/* Ring planes are held whole. */
static uint32_t units_for(uint32_t class_index, uint32_t rows)
{
    const KvClassGeometry *class = kvg_store_class(fixture.store, class_index);
    int ring = kvg_store_layout(fixture.store) == KVG_LAYOUT_FLAT && class->ring;
    return (uint32_t)kvg_ceil_div_u64(ring ? class->row_cap : rows, KVG_CHUNK_ROWS);
}

static void book_all(uint32_t slot, uint32_t rows)
{
    for (uint32_t c = 0; c < FIXTURE_CLASSES; c++) book(c, slot, units_for(c, rows));
}

START_TEST(test_rows_stand_where_the_views_formula_says)
{
    open_layout(_i);
    book_all(2, 200);
    for (uint64_t row = 0; row < 200; row++) fixture_write(&fixture, 2, row, row);
    for (uint64_t row = 0; row < 200; row++) ck_assert(fixture_row_is(&fixture, 2, 0, row, row));
    const KvPlaneView *view = kvg_store_view(fixture.store, 0);
    ck_assert_uint_eq(view->k.head_bytes, 34);
    if (_i == 0) {
        ck_assert_uint_eq(view->k.chunk_bytes, 2 * 64 * 34);
        ck_assert_uint_eq(view->k.head_stride, 64 * 34);
        ck_assert_uint_eq(view->k.row_stride, 34);
        ck_assert_ptr_eq(kvg_plane_row(view, &view->k, 2, 1, 130),
                         view->k.base + (size_t)view->table[2 * view->table_stride + 2] * 2 * 64 * 34 + 64 * 34 + 2 * 34);
    } else {
        ck_assert_ptr_null(view->table);
        ck_assert_uint_eq(view->k.row_stride, 68);
        ck_assert_ptr_eq(kvg_plane_row(view, &view->k, 2, 1, 130), view->k.base + 2 * view->k.slot_bytes + 130 * 68 + 34);
    }
    release_all();
}
END_TEST

START_TEST(test_a_sharing_layer_reads_its_sources_planes_and_writes_none)
{
    float    row[FIXTURE_ROW_FLOATS] = {0};
    KvRowsIn in = {.data = row, .type = KVG_F32, .token_stride = 64, .head_stride = 32};

    open_layout(_i);
    book_all(0, 1);
    const KvPlaneView *own = kvg_store_view(fixture.store, 0), *shared = kvg_store_view(fixture.store, 2);
    ck_assert_ptr_eq(own->k.base, shared->k.base); /* after a copying grow too */
    ck_assert_ptr_nonnull(own->k.base);
    ck_assert_uint_eq(shared->layer, 0);
    ck_assert(own->owns && !shared->owns);
    ck_assert_int_eq(kvg_store_write(fixture.store, 2, 0, 0, 1, &in, &in, NULL), KVG_EINVAL);
    ck_assert_int_eq(kvg_store_write(fixture.store, 5, 0, 0, 1, &in, &in, NULL), KVG_EINVAL);
    ck_assert_ptr_null(kvg_store_view(fixture.store, 5)); /* the model has it, this rank has not */
    ck_assert_ptr_null(kvg_store_view(fixture.store, 6));
    release_all();
}
END_TEST

START_TEST(test_runs_of_rows_cross_chunks_and_come_back_decoded)
{
    enum { ROWS = 150, FLOATS = 64 };
    static float k[ROWS * FLOATS], v[ROWS * FLOATS], read[ROWS * FLOATS];

    open_layout(_i);
    book_all(1, 30 + ROWS);
    const KvPlaneView *view = kvg_store_view(fixture.store, 0);
    for (uint64_t r = 0; r < ROWS; r++) {
        fixture_row(view, &view->k, 0, r, k + r * FLOATS);
        fixture_row(view, &view->v, 1, r, v + r * FLOATS);
    }
    k[0] = 1e30f; /* clamped, and counted */
    KvRowsIn in_k = fixture_rows_in(k, &view->k, 2), in_v = fixture_rows_in(v, &view->v, 2);
    ck_assert_int_eq(kvg_store_write(fixture.store, 0, 1, 30, ROWS, &in_k, &in_v, NULL), KVG_OK);
    ck_assert_uint_eq(kvg_store_counts(fixture.store, 0).saturated, 1);
    ck_assert_uint_eq(kvg_store_counts(fixture.store, 2).saturated, 1);
    ck_assert_uint_eq(kvg_store_counts(fixture.store, 3).saturated, 0);
    for (uint64_t r = 1; r < ROWS; r++) {
        ck_assert(fixture_plane_row_is(view, &view->k, 0, 1, 30 + r, r));
        ck_assert(fixture_plane_row_is(view, &view->v, 1, 1, 30 + r, r));
    }
    ck_assert_int_eq(kvg_store_read(fixture.store, 2, 1, 1, 30, ROWS, read), KVG_OK);
    for (int i = 0; i < ROWS * FLOATS; i++) ck_assert_float_eq_tol(read[i], v[i], 0.2f);
    ck_assert_int_eq(kvg_store_read(fixture.store, 0, 2, 1, 30, 1, read), KVG_EINVAL);
    in_k.type = KVG_Q8_0;
    ck_assert_int_eq(kvg_store_write(fixture.store, 0, 1, 30, 1, &in_k, &in_v, NULL), KVG_EINVAL);
    release_all();
}
END_TEST

START_TEST(test_rows_that_are_not_booked_are_refused_with_neighbours)
{
    float    row[FIXTURE_ROW_FLOATS] = {0}, back[FIXTURE_ROW_FLOATS * 2];
    KvRowsIn in = {.data = row, .type = KVG_F32, .token_stride = 64, .head_stride = 32};

    open_layout(_i);
    ck_assert_int_eq(kvg_store_write(fixture.store, 0, 0, 0, 1, &in, &in, NULL), KVG_ECAPACITY);
    book_all(0, 65);
    ck_assert_int_eq(kvg_store_write(fixture.store, 0, 0, 127, 1, &in, &in, NULL), KVG_OK);
    ck_assert_int_eq(kvg_store_write(fixture.store, 0, 0, 128, 1, &in, &in, NULL), KVG_ECAPACITY);
    ck_assert_int_eq(kvg_store_read(fixture.store, 0, 0, 0, 127, 2, back), KVG_ECAPACITY);
    ck_assert_int_eq(kvg_store_write(fixture.store, 0, 1, 0, 1, &in, &in, NULL), KVG_ECAPACITY); /* another slot has none */
    release_all();
}
END_TEST

START_TEST(test_booking_is_counted_once_however_often_it_is_asked)
{
    open_layout(_i);
    book(0, 3, 10);
    book(0, 3, 10);
    book(0, 3, 4);
    ck_assert_uint_eq(kvg_store_end(fixture.store, 0, 3), 10);
    ck_assert_uint_eq(kvg_store_units_free(fixture.store, 0), UNITS - 10);
    ck_assert_uint_eq(kvg_store_units_free(fixture.store, 1), UNITS);
    kvg_store_trim(fixture.store, 0, 3, 7);
    kvg_store_trim(fixture.store, 0, 3, 9);
    ck_assert_uint_eq(kvg_store_held(fixture.store, 0, 3), 7);
    ck_assert_uint_eq(kvg_store_units_free(fixture.store, 0), UNITS - 7);
    KvStoreBytes bytes = kvg_store_bytes(fixture.store);
    uint64_t     row = 2 * (34 + 24) + (16 + 8); /* layers 0 and 3 */
    ck_assert_uint_eq(kvg_store_row_bytes(fixture.store, 0), row);
    ck_assert_uint_eq(kvg_store_unit_bytes(fixture.store, 0), 64 * row);
    ck_assert_uint_eq(bytes.booked, 7 * 64 * row + (_i == 0 ? 7 * 4 : 0));
    ck_assert_uint_le(bytes.booked, bytes.taken);
    ck_assert_int_eq(kvg_store_check(fixture.store), KVG_OK);
    release_all();
}
END_TEST

/* Bytes the system shows read-write in all planes' ranges, and in the arena. */
static uint64_t system_taken(void)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < fixture.store->layer_count; i++) {
        for (int p = 0; p < 2; p++) {
            const KvRange *range = &fixture.store->layers[i].planes[p].range;
            if (range->base != NULL) sum += maps_backed_bytes(range->base, range->reserved);
        }
    }
    return sum;
}

START_TEST(test_taken_is_what_the_system_shows_before_and_after_growth)
{
    open_layout(_i);
    for (uint32_t rows = 1; rows <= MAX_CTX; rows += 333) {
        book_all(1, rows);
        ck_assert_uint_eq(kvg_store_bytes(fixture.store).taken - fixture.store->arena_bytes, system_taken());
        ck_assert_uint_le(kvg_store_bytes(fixture.store).booked, kvg_store_bytes(fixture.store).taken);
        uint64_t arena_mapped = (fixture.store->arena_bytes + 256 + 4095) / 4096 * 4096;
        ck_assert_uint_eq(fixture.dev.ops->taken_bytes(fixture.dev.self), system_taken() + arena_mapped);
    }
    kvg_store_release(fixture.store, 1, NULL);
    if (_i == 1) ck_assert_uint_eq(system_taken(), 0); /* flat planes go back at once, pools stay */
    release_all();
}
END_TEST

START_TEST(test_a_flat_booking_that_fails_part_way_unmaps_all_and_can_be_tried_again)
{
    open_layout(1);
    book(0, 0, 2); /* class 0 has four planes: of layers 0 and 3 */
    uint64_t before = system_taken();
    for (uint64_t nth = 0; nth < 4; nth++) {
        kvg_fault_arm(nth);
        ck_assert_int_eq(kvg_store_book(fixture.store, 0, 0, 9), KVG_ENOMEM);
        ck_assert_int_eq(kvg_fault_disarm(), 1);
        ck_assert_uint_eq(system_taken(), before);
        ck_assert_uint_eq(kvg_store_end(fixture.store, 0, 0), 9); /* counted: counts are agreed, memory is not */
        ck_assert_uint_eq(kvg_store_units_free(fixture.store, 0), UNITS - 9);
        ck_assert_int_eq(kvg_store_check(fixture.store), KVG_OK);
    }
    book(0, 0, 9);
    ck_assert_uint_gt(system_taken(), before);
    for (uint64_t row = 0; row < 9 * 64; row += 63) fixture.store->layers[0].view.k.base[row * 68] = 1;
    release_all();
}
END_TEST

START_TEST(test_a_copying_grow_that_fails_changes_nothing_and_one_that_succeeds_keeps_every_slot)
{
    open_layout(2);
    for (uint32_t slot = 0; slot < 3; slot++) {
        book_all(slot, 64);
        for (uint64_t row = 0; row < 64; row++) fixture_write(&fixture, slot, row, slot * 1000 + row);
    }
    KvPlaneView before = *kvg_store_view(fixture.store, 0);
    uint64_t    taken = fixture.dev.ops->taken_bytes(fixture.dev.self);
    for (uint64_t nth = 0; nth < 4; nth++) {
        kvg_fault_arm(nth);
        ck_assert_int_eq(kvg_store_book(fixture.store, 0, 1, 3), KVG_ENOMEM);
        ck_assert_int_eq(kvg_fault_disarm(), 1);
        ck_assert_mem_eq(kvg_store_view(fixture.store, 0), &before, sizeof before);
        ck_assert_uint_eq(fixture.dev.ops->taken_bytes(fixture.dev.self), taken);
    }
    book(0, 1, 3);
    ck_assert_ptr_ne(kvg_store_view(fixture.store, 0)->k.base, before.k.base);
    ck_assert_ptr_eq(kvg_store_view(fixture.store, 2)->k.base, kvg_store_view(fixture.store, 0)->k.base);
    for (uint32_t slot = 0; slot < 3; slot++) {
        for (uint64_t row = 0; row < 64; row++) ck_assert(fixture_row_is(&fixture, slot, 0, row, slot * 1000 + row));
    }
    release_all();
}
END_TEST

START_TEST(test_every_allocation_of_a_store_can_fail_and_unwinds)
{
    KvStore *store = NULL;

    fixture_describe(&fixture, _i == 0 ? KVG_LAYOUT_POOL : KVG_LAYOUT_FLAT, WINDOW, PREFILL, MAX_CTX, 4, UNITS);
    ck_assert_int_eq(_i == 2 ? kvg_dev_host_plain(&fixture.dev) : kvg_dev_host(&fixture.dev), KVG_OK);
    for (uint64_t nth = 0;; nth++) {
        kvg_fault_arm(nth);
        KvgStatus status = kvg_store_create(&fixture.options, &store);
        if (!kvg_fault_disarm()) {
            ck_assert_uint_gt(nth, 6);
            break;
        }
        ck_assert_int_eq(status, KVG_ENOMEM);
        ck_assert_ptr_null(store);
        ck_assert_uint_eq(fixture.dev.ops->taken_bytes(fixture.dev.self), 0);
        ck_assert_uint_eq(kvg_live_allocations(), 1); /* the device */
    }
    fixture.store = store;
    release_all();
}
END_TEST

START_TEST(test_a_fork_shares_full_chunks_and_copies_the_partial_one)
{
    open_layout(0);
    book(0, 0, 4);
    for (uint32_t c = 1; c < FIXTURE_CLASSES; c++) book(c, 0, 4);
    for (uint64_t row = 0; row < 200; row++) fixture_write(&fixture, 0, row, row);
    ck_assert_uint_eq(kvg_store_fork_units(fixture.store, 0, 0, 0, 191), 1);
    ck_assert_uint_eq(kvg_store_fork_units(fixture.store, 0, 0, 0, 192), 0);
    ck_assert_uint_eq(kvg_store_fork_units(fixture.store, 0, 0, 0, 193), 1);
    ck_assert_uint_eq(kvg_store_fork_units(fixture.store, 0, 0, 0, 0), 0);
    for (uint32_t c = 0; c < FIXTURE_CLASSES; c++) {
        ck_assert_int_eq(kvg_store_fork(fixture.store, c, 0, 1, 0, 130, NULL), KVG_OK);
    }
    const KvPlaneView *view = kvg_store_view(fixture.store, 0);
    const int32_t     *a = view->table, *b = view->table + view->table_stride;
    ck_assert(a[0] == b[0] && a[1] == b[1] && a[2] != b[2] && b[3] == -1);
    ck_assert_uint_eq(kvg_store_units_free(fixture.store, 0), UNITS - 5);
    for (uint64_t row = 0; row < 130; row++) ck_assert(fixture_row_is(&fixture, 1, 0, row, row));
    fixture_write(&fixture, 1, 130, 9000);
    ck_assert(fixture_row_is(&fixture, 1, 0, 130, 9000));
    ck_assert(fixture_row_is(&fixture, 0, 0, 130, 130));
    kvg_store_release(fixture.store, 0, NULL); /* the child outlives its parent */
    for (uint64_t row = 0; row < 130; row++) ck_assert(fixture_row_is(&fixture, 1, 0, row, row));
    ck_assert_uint_eq(kvg_store_units_free(fixture.store, 0), UNITS - 3);
    release_all();
}
END_TEST

START_TEST(test_unsharing_copies_the_rows_below_and_leaves_the_other_alone)
{
    open_layout(0);
    book_all(0, 256);
    for (uint64_t row = 0; row < 256; row++) fixture_write(&fixture, 0, row, row);
    for (uint32_t c = 0; c < FIXTURE_CLASSES; c++) kvg_store_fork(fixture.store, c, 0, 1, 0, 256, NULL);
    ck_assert_uint_eq(kvg_store_unshare_units(fixture.store, 0, 1, 128), 0); /* chunk borders need no copy */
    ck_assert_uint_eq(kvg_store_unshare_units(fixture.store, 0, 1, 127), 1);
    ck_assert_uint_eq(kvg_store_unshare_units(fixture.store, 0, 1, 129), 1);
    for (uint32_t c = 0; c < FIXTURE_CLASSES; c++) kvg_store_unshare(fixture.store, c, 1, 100, NULL);
    ck_assert_uint_eq(kvg_store_end(fixture.store, 0, 1), 2);
    ck_assert_int_eq(kvg_store_check(fixture.store), KVG_OK);
    fixture_write(&fixture, 1, 100, 7777);
    for (uint64_t row = 0; row < 100; row++) ck_assert(fixture_row_is(&fixture, 1, 0, row, row));
    for (uint64_t row = 0; row < 256; row++) ck_assert(fixture_row_is(&fixture, 0, 0, row, row));
    release_all();
}
END_TEST

START_TEST(test_writing_into_a_shared_chunk_stops_the_program)
{
    open_layout(0);
    book_all(0, 64);
    for (uint32_t c = 0; c < FIXTURE_CLASSES; c++) kvg_store_fork(fixture.store, c, 0, 1, 0, 64, NULL);
    fixture_write(&fixture, 1, 63, 1);
}
END_TEST

START_TEST(test_chunks_behind_a_window_go_and_a_guarantee_slides_along)
{
    open_layout(0);
    book(1, 0, 4);
    const KvPlaneView *view = kvg_store_view(fixture.store, 1);
    int32_t            first = view->table[0];
    kvg_store_drop_below(fixture.store, 1, 0, 63, 0); /* not wholly below */
    ck_assert_uint_eq(kvg_store_held(fixture.store, 1, 0), 4);
    kvg_store_drop_below(fixture.store, 1, 0, 64, 6); /* two more were guaranteed */
    ck_assert_uint_eq(kvg_store_end(fixture.store, 1, 0), 5);
    ck_assert_int_eq(view->table[4], first);
    ck_assert_int_eq(view->table[0], -1);
    kvg_store_drop_below(fixture.store, 1, 0, 200, 6);
    ck_assert_uint_eq(kvg_store_end(fixture.store, 1, 0), 6);
    ck_assert_uint_eq(kvg_store_held(fixture.store, 1, 0), 3);
    ck_assert_uint_eq(kvg_store_units_free(fixture.store, 1), UNITS - 3);
    ck_assert_int_eq(kvg_store_check(fixture.store), KVG_OK);
    release_all();
}
END_TEST

START_TEST(test_a_shared_chunk_behind_a_window_does_not_slide)
{
    open_layout(0);
    book(1, 0, 2);
    kvg_store_fork(fixture.store, 1, 0, 1, 0, 128, NULL);
    kvg_store_drop_below(fixture.store, 1, 0, 64, 9);
    ck_assert_uint_eq(kvg_store_held(fixture.store, 1, 0), 1);
    ck_assert_uint_eq(kvg_store_held(fixture.store, 1, 1), 2);
    ck_assert_int_eq(kvg_store_check(fixture.store), KVG_OK);
    release_all();
}
END_TEST

START_TEST(test_a_flat_ring_moves_its_rows_to_the_front_and_they_may_overlap)
{
    open_layout(_i);
    book_all(3, 1);
    const KvPlaneView *view = kvg_store_view(fixture.store, 1);
    for (uint64_t row = 0; row < view->ring_rows; row++) {
        float    k[FIXTURE_ROW_FLOATS], v[FIXTURE_ROW_FLOATS];
        fixture_row(view, &view->k, 0, row, k);
        fixture_row(view, &view->v, 1, row, v);
        KvRowsIn in_k = fixture_rows_in(k, &view->k, 1), in_v = fixture_rows_in(v, &view->v, 1);
        ck_assert_int_eq(kvg_store_write(fixture.store, 1, 3, row, 1, &in_k, &in_v, NULL), KVG_OK);
    }
    uint64_t keep = view->ring_rows - 32; /* more than it moves: overlapping */
    ck_assert_int_eq(kvg_store_rebase(fixture.store, 1, 3, 32, keep, 32, NULL), KVG_OK);
    ck_assert_uint_eq(view->base_row[3], 32);
    for (uint64_t row = 32; row < view->ring_rows; row++) {
        ck_assert(fixture_plane_row_is(view, &view->k, 0, 3, row, row));
        ck_assert(fixture_plane_row_is(view, &view->v, 1, 3, row, row));
    }
    float back[FIXTURE_ROW_FLOATS];
    ck_assert_int_eq(kvg_store_read(fixture.store, 1, 0, 3, 31, 1, back), KVG_ELAPPED);
    ck_assert_int_eq(kvg_store_read(fixture.store, 1, 0, 3, view->ring_rows + 31, 1, back), KVG_OK);
    ck_assert_int_eq(kvg_store_read(fixture.store, 1, 0, 3, view->ring_rows + 32, 1, back), KVG_ECAPACITY);
    release_all();
}
END_TEST

START_TEST(test_a_resize_extends_in_place_counts_at_publish_and_cancel_leaves_no_trace)
{
    uint32_t more[FIXTURE_CLASSES] = {UNITS + 20, UNITS, UNITS * 2}, past[FIXTURE_CLASSES] = {UNITS * 2 + 1, UNITS, UNITS};

    open_layout(0);
    book_all(0, 640);
    uint8_t *base = kvg_store_view(fixture.store, 0)->k.base;
    uint64_t taken = kvg_store_bytes(fixture.store).taken;
    ck_assert_int_eq(kvg_store_resize_prepare(fixture.store, past), KVG_EINVAL);
    ck_assert_int_eq(kvg_store_resize_prepare(fixture.store, more), KVG_OK);
    ck_assert_int_eq(kvg_store_resize_prepare(fixture.store, more), KVG_EBUSY);
    ck_assert_uint_gt(kvg_store_bytes(fixture.store).taken, taken);
    ck_assert_uint_eq(kvg_store_units_total(fixture.store, 0), UNITS);
    kvg_store_resize_cancel(fixture.store);
    ck_assert_uint_eq(kvg_store_bytes(fixture.store).taken, taken);
    ck_assert_int_eq(kvg_store_resize_prepare(fixture.store, more), KVG_OK);
    kvg_store_resize_publish(fixture.store);
    ck_assert_uint_eq(kvg_store_units_total(fixture.store, 0), UNITS + 20);
    ck_assert_uint_eq(kvg_store_units_free(fixture.store, 0), UNITS + 20 - 10);
    ck_assert_ptr_eq(kvg_store_view(fixture.store, 0)->k.base, base);
    ck_assert_uint_eq(kvg_store_bytes(fixture.store).taken - fixture.store->arena_bytes, system_taken());
    for (uint32_t slot = 1; slot < 3; slot++) book(0, slot, 29); /* all there is, and every chunk has memory */
    for (uint64_t row = 0; row < 29 * 64; row += 64) *kvg_plane_row(kvg_store_view(fixture.store, 0), &kvg_store_view(fixture.store, 0)->k, 2, 1, row) = 1;
    release_all();
}
END_TEST

START_TEST(test_shrinking_gives_memory_back_and_never_takes_a_chunk_in_use)
{
    uint32_t less[FIXTURE_CLASSES] = {9, 10, 10}, fits[FIXTURE_CLASSES] = {10, 10, 10};

    open_layout(0);
    book_all(0, 640); /* chunks 0..9 */
    uint64_t taken = kvg_store_bytes(fixture.store).taken;
    ck_assert_int_eq(kvg_store_resize_prepare(fixture.store, less), KVG_EBUSY);
    ck_assert_int_eq(kvg_store_resize_prepare(fixture.store, fits), KVG_OK);
    kvg_store_resize_publish(fixture.store);
    ck_assert_uint_lt(kvg_store_bytes(fixture.store).taken, taken);
    ck_assert_uint_eq(kvg_store_bytes(fixture.store).taken - fixture.store->arena_bytes, system_taken());
    ck_assert_uint_eq(kvg_store_units_free(fixture.store, 0), 0);
    ck_assert_int_eq(kvg_store_check(fixture.store), KVG_OK);
    release_all();
}
END_TEST

START_TEST(test_a_resize_without_memory_changes_nothing)
{
    uint32_t more[FIXTURE_CLASSES] = {UNITS * 2, UNITS * 2, UNITS * 2};

    open_layout(0);
    uint64_t taken = system_taken();
    for (uint64_t nth = 0;; nth++) {
        kvg_fault_arm(nth);
        KvgStatus status = kvg_store_resize_prepare(fixture.store, more);
        if (!kvg_fault_disarm()) {
            ck_assert_uint_eq(nth, 8); /* four owning layers of two planes */
            break;
        }
        ck_assert_int_eq(status, KVG_ENOMEM);
        ck_assert_uint_eq(system_taken(), taken);
        ck_assert_uint_eq(kvg_store_units_total(fixture.store, 0), UNITS);
    }
    kvg_store_resize_cancel(fixture.store);
    release_all();
}
END_TEST

START_TEST(test_a_pool_on_a_device_without_ranges_works_and_refuses_to_grow)
{
    uint32_t more[FIXTURE_CLASSES] = {UNITS + 1, UNITS, UNITS};

    fixture_open(&fixture, KVG_LAYOUT_POOL, 0, WINDOW, PREFILL, MAX_CTX, 4, UNITS);
    book_all(0, 70);
    fixture_write(&fixture, 0, 69, 5);
    ck_assert(fixture_row_is(&fixture, 0, 0, 69, 5));
    ck_assert_int_eq(kvg_store_resize_prepare(fixture.store, more), KVG_ENOTSUP);
    release_all();
}
END_TEST

START_TEST(test_a_rank_without_layers_in_a_class_counts_all_the_same)
{
    fixture_describe(&fixture, KVG_LAYOUT_POOL, WINDOW, PREFILL, MAX_CTX, 4, UNITS);
    fixture.options.layer_count = 1; /* layer 0 alone: classes 1 and 2 have no layer here */
    ck_assert_int_eq(kvg_dev_host(&fixture.dev), KVG_OK);
    ck_assert_int_eq(kvg_store_create(&fixture.options, &fixture.store), KVG_OK);
    book(1, 0, 5);
    kvg_store_fork(fixture.store, 1, 0, 1, 0, 100, NULL);
    ck_assert_uint_eq(kvg_store_units_free(fixture.store, 1), UNITS - 6);
    ck_assert_uint_eq(kvg_store_unit_bytes(fixture.store, 1), 0);
    ck_assert_ptr_null(kvg_store_view(fixture.store, 1));
    ck_assert_int_eq(kvg_store_check(fixture.store), KVG_OK);
    release_all();
}
END_TEST

/* In strict mode the kernel kills the child at its first system call other than read, write and exit. */
static int child_without_system_calls(void)
{
    if (getenv("KVG_UNDER_VALGRIND") != NULL) _exit(77); /* tests/valgrind.sh: its own system calls are not ours */
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) _exit(77);
    for (int i = 0; i < 100; i++) {
        for (uint32_t c = 0; c < FIXTURE_CLASSES; c++) kvg_store_book(fixture.store, c, 0, 31);
        kvg_store_release(fixture.store, 0, NULL);
    }
    syscall(SYS_exit, 0);
    return 0;
}

START_TEST(test_opening_growing_and_closing_in_pools_make_no_system_call)
{
    int status = 0;

    open_layout(0);
    pid_t child = fork();
    if (child == 0) child_without_system_calls();
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        fprintf(stderr, "test_store: this system has no strict seccomp; system calls were not watched\n");
    } else {
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with wait status %d", status);
    }
    release_all();
}
END_TEST

START_TEST(test_broken_bookkeeping_is_found)
{
    open_layout(0);
    book(0, 0, 3);
    StoreClass *class = &fixture.store->classes[0];
    int32_t    *table = kvg_store_table(fixture.store, class, 0);
    class->entries++;
    ck_assert_int_eq(kvg_store_check(fixture.store), KVG_ETAINTED);
    class->entries--;
    class->pool.refs[table[1]]++;
    ck_assert_int_eq(kvg_store_check(fixture.store), KVG_ETAINTED);
    class->pool.refs[table[1]]--;
    int32_t kept = table[1];
    table[1] = table[0];
    ck_assert_int_eq(kvg_store_check(fixture.store), KVG_ETAINTED);
    table[1] = kept;
    table[5] = 1;
    ck_assert_int_eq(kvg_store_check(fixture.store), KVG_ETAINTED);
    table[5] = -1;
    ck_assert_int_eq(kvg_store_check(fixture.store), KVG_OK);
    release_all();
}
END_TEST

static KvgStatus try_create(void)
{
    KvStore  *store = NULL;
    KvgStatus status = kvg_store_create(&fixture.options, &store);

    ck_assert_int_ne(status, KVG_OK);
    ck_assert_ptr_null(store);
    ck_assert_uint_eq(kvg_live_allocations(), 1);
    return status;
}

START_TEST(test_impossible_geometry_is_refused_by_name)
{
    fixture_describe(&fixture, KVG_LAYOUT_POOL, WINDOW, PREFILL, MAX_CTX, 4, UNITS);
    ck_assert_int_eq(kvg_dev_host(&fixture.dev), KVG_OK);
    fixture.options.class_count = KVG_CLASSES_MAX + 1;
    ck_assert_int_eq(try_create(), KVG_EINVAL);
    fixture.options.class_count = 0;
    ck_assert_int_eq(try_create(), KVG_EINVAL);
    fixture.options.class_count = FIXTURE_CLASSES;
    fixture.options.max_ctx = INT32_MAX;
    ck_assert_int_eq(try_create(), KVG_EOVERFLOW);
    fixture.options.max_ctx = MAX_CTX;
    fixture.layers[2].source = 1;
    fixture.layers[1].source = 0; /* sharing a sharer */
    ck_assert_int_eq(try_create(), KVG_EGEOM);
    fixture.layers[1].source = -1;
    fixture.layers[2].source = 5; /* not on this rank */
    ck_assert_int_eq(try_create(), KVG_EGEOM);
    fixture.layers[2].source = 0;
    fixture.layers[0].head_dim_k = 48; /* a block would be cut */
    ck_assert_int_eq(try_create(), KVG_EGEOM);
    fixture.layers[0].head_dim_k = 32;
    fixture.layers[3].layer = 1; /* twice */
    ck_assert_int_eq(try_create(), KVG_EINVAL);
    fixture.layers[3].layer = 6; /* past the model */
    ck_assert_int_eq(try_create(), KVG_EINVAL);
    fixture.layers[3].layer = 3;
    fixture.classes[0].units = UNITS * 2 + 1; /* above units_max */
    ck_assert_int_eq(try_create(), KVG_EINVAL);
    fixture.classes[0].units = UNITS;
    ck_assert_int_eq(kvg_store_create(&fixture.options, &fixture.store), KVG_OK);
    release_all();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("store");
    TCase *all = tcase_create("store");

    tcase_add_loop_test(all, test_rows_stand_where_the_views_formula_says, 0, LAYOUTS);
    tcase_add_loop_test(all, test_a_sharing_layer_reads_its_sources_planes_and_writes_none, 0, LAYOUTS);
    tcase_add_loop_test(all, test_runs_of_rows_cross_chunks_and_come_back_decoded, 0, LAYOUTS);
    tcase_add_loop_test(all, test_rows_that_are_not_booked_are_refused_with_neighbours, 0, LAYOUTS);
    tcase_add_loop_test(all, test_booking_is_counted_once_however_often_it_is_asked, 0, LAYOUTS);
    tcase_add_loop_test(all, test_taken_is_what_the_system_shows_before_and_after_growth, 0, 2);
    tcase_add_test(all, test_a_flat_booking_that_fails_part_way_unmaps_all_and_can_be_tried_again);
    tcase_add_test(all, test_a_copying_grow_that_fails_changes_nothing_and_one_that_succeeds_keeps_every_slot);
    tcase_add_loop_test(all, test_every_allocation_of_a_store_can_fail_and_unwinds, 0, LAYOUTS);
    tcase_add_test(all, test_a_fork_shares_full_chunks_and_copies_the_partial_one);
    tcase_add_test(all, test_unsharing_copies_the_rows_below_and_leaves_the_other_alone);
    tcase_add_test_raise_signal(all, test_writing_into_a_shared_chunk_stops_the_program, 6);
    tcase_add_test(all, test_chunks_behind_a_window_go_and_a_guarantee_slides_along);
    tcase_add_test(all, test_a_shared_chunk_behind_a_window_does_not_slide);
    tcase_add_loop_test(all, test_a_flat_ring_moves_its_rows_to_the_front_and_they_may_overlap, 1, LAYOUTS);
    tcase_add_test(all, test_a_resize_extends_in_place_counts_at_publish_and_cancel_leaves_no_trace);
    tcase_add_test(all, test_shrinking_gives_memory_back_and_never_takes_a_chunk_in_use);
    tcase_add_test(all, test_a_resize_without_memory_changes_nothing);
    tcase_add_test(all, test_a_pool_on_a_device_without_ranges_works_and_refuses_to_grow);
    tcase_add_test(all, test_a_rank_without_layers_in_a_class_counts_all_the_same);
    tcase_add_test(all, test_opening_growing_and_closing_in_pools_make_no_system_call);
    tcase_add_test(all, test_broken_bookkeeping_is_found);
    tcase_add_test(all, test_impossible_geometry_is_refused_by_name);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad;
}

/* The serving path on a device that is not the host's memory: which of its calls sequences and steps make, and when a chunk is written again.
 *
 * The device counts its calls and keeps a clock a stream: how far each stream is known to come after each other one. A device's own stream (NULL) comes
 * after all that it was given before and before all that it is given later (dev.h). Stream READER is the engine's own, which the device never sees. */
#define KVG_TEST_INDIRECT 1
#include "tests/support/grid_life.h"

enum { OWN, FIRST, SECOND, READER, STREAMS };
#define STREAM(index) ((KvgStream)(uintptr_t)(index))

typedef struct Clock {
    uint64_t at[STREAMS];
} Clock;

static struct {
    uint64_t memory, patches, htod, encodes;
    Clock    clock[STREAMS];
    Clock    event[64];
    int      events;
    Clock    written; /* of the stream that an encode was last given to, just before it */
} seen;

static void join(Clock *clock, const Clock *other)
{
    for (int s = 0; s < STREAMS; s++) clock->at[s] = clock->at[s] > other->at[s] ? clock->at[s] : other->at[s];
}

/* Work for a stream: the device puts it in order with its own. READER is unknown to it. */
static Clock *enter(KvgStream stream)
{
    int index = (int)(uintptr_t)stream;

    if (index == OWN) {
        for (int s = OWN; s < READER; s++) join(&seen.clock[OWN], &seen.clock[s]);
    } else if (index != READER) {
        join(&seen.clock[index], &seen.clock[OWN]);
    }
    seen.clock[index].at[index]++;
    return &seen.clock[index];
}

/* ---- the device */

static KvgStatus on_zeros(void *self, size_t bytes, void **memory) { return seen.memory++, indirect_zeros(self, bytes, memory); }
static KvgStatus on_uninit(void *self, size_t bytes, void **memory) { return seen.memory++, indirect_uninit(self, bytes, memory); }
static void      on_free(void *self, void *memory) { seen.memory++, indirect_free(self, memory); }
static KvgStatus on_reserve(void *self, size_t bytes, KvRange *range) { return seen.memory++, indirect_reserve(self, bytes, range); }
static KvgStatus on_extend(void *self, KvRange *range, size_t bytes) { return seen.memory++, indirect_extend(self, range, bytes); }
static KvgStatus on_give_back(void *self, KvRange *range, size_t bytes) { return seen.memory++, indirect_give_back(self, range, bytes); }

static KvgStatus on_htod(void *self, void *target, const void *source, size_t bytes, KvgStream stream)
{
    seen.htod++;
    enter(stream);
    return indirect_htod(self, target, source, bytes, stream);
}

static KvgStatus on_patch(void *self, uint32_t *words, const KvPatch *pairs, uint32_t count, KvgStream stream)
{
    seen.patches++;
    enter(stream);
    return indirect_patch(self, words, pairs, count, stream);
}

static KvgStatus on_encode_batch(void *self, const KvRowsBatch *batch, KvgStream stream)
{
    seen.encodes++;
    seen.written = *enter(stream);
    return indirect_encode_batch(self, batch, stream);
}

static KvgStatus on_event_create(void *self, KvEvent *event)
{
    (void)self;
    ck_assert_int_lt(seen.events, 64);
    *event = &seen.event[seen.events++];
    return KVG_OK;
}

static void on_event_destroy(void *self, KvEvent event) { (void)self, (void)event; }

static KvgStatus on_event_record(void *self, KvEvent event, KvgStream stream)
{
    (void)self;
    *(Clock *)event = *enter(stream);
    return KVG_OK;
}

static KvgStatus on_stream_wait(void *self, KvgStream stream, KvEvent event)
{
    (void)self;
    join(enter(stream), event);
    return KVG_OK;
}

static KvDevOps serving_ops;

static void open_serving(TestGrid *g, uint32_t window, uint32_t slots, uint64_t bytes)
{
    KvgPlaceOptions options = life_options(slots, bytes);
    KvgPolicy       policy = life_policy(1);

    grid_connect(g, 1, 1, &policy, 0);
    g->config = test_model(4, 2, window, 2048);
    memset(&seen, 0, sizeof seen);
    ck_assert_int_eq(indirect_dev_open(1, &g->device), KVG_OK);
    serving_ops = indirect_ops;
    serving_ops.zeros = on_zeros, serving_ops.uninit = on_uninit, serving_ops.free = on_free, serving_ops.reserve = on_reserve;
    serving_ops.extend = on_extend, serving_ops.give_back = on_give_back, serving_ops.htod = on_htod, serving_ops.patch = on_patch;
    serving_ops.encode_batch = on_encode_batch, serving_ops.event_create = on_event_create, serving_ops.event_destroy = on_event_destroy;
    serving_ops.event_record = on_event_record, serving_ops.stream_wait = on_stream_wait;
    g->device.ops = &serving_ops;
    options.device = &g->device;
    options.prefill_chunk_max = 128;
    ck_assert_msg(grid_place(g, &g->config, &options, NULL) == KVG_OK, "%s", kvg_last_error());
    ck_assert_int_eq(kvg_batch_create(g->placement[0], slots, &g->batch[0]), KVG_OK);
}

/* Begins, writes on `stream`, posts and decides a step. */
static void step_on(TestGrid *g, LifeSequences s, uint32_t slots, const uint32_t *rows, const void *data, KvgStream stream)
{
    KvgStep *step = NULL;
    uint32_t lo, hi;

    for (uint32_t slot = 0; slot < slots; slot++) ck_assert_int_eq(kvg_batch_set(g->batch[0], slot, rows[slot] > 0 ? s[0][slot] : NULL), KVG_OK);
    uint64_t patches = seen.patches, htod = seen.htod;
    ck_assert_msg(kvg_step_begin(g->batch[0], rows, &step) == KVG_OK, "%s", kvg_last_error());
    for (uint32_t slot = 0; slot < slots; slot++) ck_assert_int_eq(kvg_step_refusal(step, slot), KVG_OK);
    kvg_placement_layers(g->placement[0], &lo, &hi);
    for (uint32_t il = lo; il < hi; il++) {
        KvgRows in = KVG_ROWS_INIT;
        in.k = in.v = data;
        ck_assert_msg(kvg_write_kv(g->batch[0], il, &in, stream) == KVG_OK, "%s", kvg_last_error());
    }
    grid_post(g, 0, step, NULL, KVG_OK);
    ck_assert_msg(kvg_step_wait(step, NULL) == KVG_OK, "%s", kvg_last_error());
    /* all that changed for all sequences and layers went at once; beside it the batch's own places, where they differ from the last step's */
    ck_assert_uint_eq(seen.patches - patches, 1);
    ck_assert_uint_le(seen.htod - htod, 1);
}

static const void *some_rows(TestGrid *g, uint32_t rows)
{
    static float values[128 * 4 * 2 * 32];
    ck_assert_uint_le(rows * 64, sizeof values / sizeof *values);
    return grid_lend(g, 0, values, rows * 64 * sizeof *values);
}

START_TEST(test_sequences_open_grow_and_close_with_no_memory_call_and_one_copy_a_step)
{
    TestGrid      g;
    LifeSequences s;
    KvgSequence  *fork = NULL;
    open_serving(&g, 64, 8, 4u << 20);
    const void *data = some_rows(&g, 4 * 128);
    uint64_t    live = kvg_live_allocations();
    seen.memory = 0;
    for (int life = 0; life < 3; life++) {
        for (uint32_t q = 0; q < 4; q++) ck_assert_int_eq(life_open(&g, s, q, 10 * (uint64_t)life + q + 1, q == 3 ? 500 : 0), KVG_OK);
        for (int step = 0; step < 4; step++) step_on(&g, s, 8, (uint32_t[8]){128, 1, 70, 30}, data, STREAM(FIRST));
        for (int step = 0; step < 10; step++) step_on(&g, s, 8, (uint32_t[8]){1, 1, 3, 1}, data, STREAM(FIRST));
        ck_assert_int_eq(kvg_sequence_trim(s[0][3]), KVG_OK);
        ck_assert_int_eq(kvg_sequence_fork(s[0][0], 500, 99, &fork), KVG_OK);
        ck_assert_int_eq(kvg_sequence_close(fork, STREAM(FIRST)), KVG_OK);
        ck_assert_int_eq(kvg_sequence_rewind(s[0][2], 290), KVG_OK);
        for (uint32_t q = 0; q < 4; q++) ck_assert_int_eq(kvg_sequence_close(s[0][q], STREAM(FIRST)), KVG_OK);
    }
    ck_assert_uint_eq(seen.memory, 0);
    ck_assert_uint_eq(kvg_live_allocations(), live);
    ck_assert_uint_gt(seen.encodes, 100);
    grid_close(&g);
}
END_TEST

START_TEST(test_a_chunk_of_a_closed_sequence_is_written_only_after_the_stream_that_read_it_last)
{
    for (int told = 0; told < 2; told++) { /* closed with the reader's stream, or with none: then nothing is known of it */
        TestGrid      g;
        LifeSequences s;
        open_serving(&g, 0, 2, 420u << 10); /* few chunks: those that the first sequence had come again */
        const void *data = some_rows(&g, 128);
        uint32_t    units = life_units_free(&g, 0);
        ck_assert_int_eq(life_open(&g, s, 0, 1, 64 * (uint64_t)units), KVG_OK);
        step_on(&g, s, 2, (uint32_t[2]){128}, data, STREAM(FIRST));
        join(&seen.clock[READER], &seen.clock[FIRST]);
        uint64_t last_read = ++seen.clock[READER].at[READER]; /* the engine's attention, on a stream of its own */
        ck_assert_int_eq(kvg_sequence_close(s[0][0], told ? STREAM(READER) : NULL), KVG_OK);
        ck_assert_int_eq(life_open(&g, s, 0, 2, 64 * (uint64_t)units), KVG_OK);
        step_on(&g, s, 2, (uint32_t[2]){128}, data, STREAM(SECOND));
        ck_assert_int_eq(seen.written.at[READER] >= last_read, told);
        ck_assert_uint_gt(seen.written.at[FIRST], 0); /* the writer's is known in either case */
        grid_close(&g);
    }
}
END_TEST

START_TEST(test_a_chunk_that_fell_behind_a_window_is_written_only_after_the_stream_it_was_used_on)
{
    TestGrid      g;
    LifeSequences s;
    open_serving(&g, 64, 2, 2u << 20);
    const void *data = some_rows(&g, 128);
    ck_assert_int_eq(life_open(&g, s, 0, 1, 0), KVG_OK);
    ck_assert_int_eq(life_open(&g, s, 1, 2, 0), KVG_OK);
    for (int step = 0; step < 12; step++) { /* turn by turn on two streams: what the one drops the other may get */
        uint32_t  rows[2] = {step % 2 ? 0 : 128, step % 2 ? 128 : 0};
        KvgStream mine = STREAM(step % 2 ? SECOND : FIRST);
        int       other = step % 2 ? FIRST : SECOND;
        uint64_t  others = seen.clock[other].at[other];
        step_on(&g, s, 2, rows, data, mine);
        if (step > 1) ck_assert_uint_ge(seen.written.at[other], others);
    }
    grid_close(&g);
}
END_TEST

/* What shows that the clocks tell: without work on the device's own stream two streams are in no order. */
START_TEST(test_two_streams_alone_are_in_no_order)
{
    memset(&seen, 0, sizeof seen);
    enter(STREAM(FIRST));
    ck_assert_uint_eq(enter(STREAM(SECOND))->at[FIRST], 0);
    enter(STREAM(OWN));
    ck_assert_uint_eq(enter(STREAM(SECOND))->at[FIRST], 1);
}
END_TEST

LIFE_MAIN("serving", test_sequences_open_grow_and_close_with_no_memory_call_and_one_copy_a_step,
          test_a_chunk_of_a_closed_sequence_is_written_only_after_the_stream_that_read_it_last,
          test_a_chunk_that_fell_behind_a_window_is_written_only_after_the_stream_it_was_used_on, test_two_streams_alone_are_in_no_order)

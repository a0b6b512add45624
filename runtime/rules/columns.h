/* Columns: where the slot state of one sequence stands, and what a step does to it (S8). Private; compiled into the step's loop and,
 * having no pointers and no calls, fit for a device.
 *
 * Slot state is what cannot be cut at any row: the recurrent layers' columns and the pooled indexers' ring. It stands at row `at`.
 * A step's passes run from there on; afterwards it stands at the accepted row if that row's state is held, else it stays, and the
 * rows between are owed as a replay: replay = committed - at.
 *
 *   columns, each pass row in its own       columns, end alone               index ring
 *     current +1  +2  ...  +rows              current  +1                      [low ......... at)  rows that stand in it
 *       at   at+1 at+2 ... at+rows              at     at+rows                 a key's pool begins at a multiple of `pool`
 *
 * Everything here is agreed: it follows from facts of the whole model and from the rows of each pass, so all ranks, also those
 * without such layers and those where a step failed, hold equal values. */
#ifndef KVG_COLUMNS_H
#define KVG_COLUMNS_H

#include <stdint.h>

#include "runtime/base/checked.h"

typedef struct KvSlotState {
    /* facts of the model */
    uint32_t columns; /* 0: the model has no recurrent layer; else at least 2 */
    uint32_t pool;    /* rows of one pooled index key; 0: the model has no pooled indexer */
    uint64_t ring;    /* rows of the index ring; 0: every index row is kept */
    /* between steps */
    uint64_t at;
    uint32_t current; /* the column that holds the state at `at` */
    uint32_t back;    /* so many columns before it hold the states of so many rows before */
    uint64_t low;     /* index rows from here on stand in the ring */
    /* of the open step */
    uint32_t passes;
    uint32_t end;       /* columns written: the last pass's end is in current + end */
    uint32_t each_rows; /* rows whose states stand in columns of their own */
    uint64_t rows;      /* of all passes so far */
} KvSlotState;

typedef struct KvPassColumns {
    uint32_t read, write, each; /* as KvRecurrentView says */
} KvPassColumns;

static inline KvSlotState kvg_slot_open(uint32_t columns, uint32_t pool, uint64_t ring)
{
    return (KvSlotState){.columns = columns, .pool = pool, .ring = pool != 0 ? ring : 0};
}

static inline uint32_t kvg_slot_column(const KvSlotState *s, uint32_t distance)
{
    return s->columns == 0 ? 0 : (s->current + distance) % s->columns;
}

/* One more pass of `rows` rows (at least 1). Only the first pass of a step, and only if it is short enough, has a column for each row. */
static inline KvPassColumns kvg_slot_pass(KvSlotState *s, uint32_t rows)
{
    KvPassColumns pass;

    if (s->passes++ == 0) {
        pass.each = rows < s->columns;
        pass.read = kvg_slot_column(s, 0);
        pass.write = kvg_slot_column(s, 1);
        s->end = pass.each ? rows : s->columns != 0;
        s->each_rows = pass.each ? rows : 0;
    } else {
        pass.each = 0;
        pass.read = pass.write = kvg_slot_column(s, s->end); /* the pass before's end goes on in place */
        if (s->each_rows == s->end && s->end > 0) s->each_rows--;
    }
    s->rows += rows;
    return pass;
}

/* The first row of the pool that row `len` would belong to: index rows [start, len) have no key yet. */
static inline uint64_t kvg_slot_tail_start(const KvSlotState *s, uint64_t len)
{
    return s->pool == 0 ? len : len - len % s->pool;
}

static inline uint64_t kvg_slot_low(const KvSlotState *s)
{
    uint64_t end = s->at + s->rows;
    return s->ring == 0 ? 0 : kvg_max_u64(s->low, kvg_monus_u64(end, s->ring));
}

static inline int kvg_slot_tail_held(const KvSlotState *s, uint64_t len)
{
    uint64_t start = kvg_slot_tail_start(s, len);
    return start == len || start >= kvg_slot_low(s);
}

/* 1 if the step's rows have gone over index rows that the state at `at` needs: whoever stays there restores them. */
static inline int kvg_slot_overwritten(const KvSlotState *s)
{
    return !kvg_slot_tail_held(s, s->at);
}

/* 1 if the state `taken` rows into the step is held, in a column and in the ring. */
static inline int kvg_slot_can_take(const KvSlotState *s, uint64_t taken)
{
    int in_column = s->columns == 0 || taken == 0 || taken == s->rows || taken <= s->each_rows;
    return in_column && taken <= s->rows && kvg_slot_tail_held(s, s->at + taken);
}

static inline void kvg_slot_end_step(KvSlotState *s)
{
    s->passes = s->end = s->each_rows = 0;
    s->rows = 0;
}

/* The step ends `taken` rows further. Only where can_take. */
static inline void kvg_slot_take(KvSlotState *s, uint64_t taken)
{
    uint64_t distance = taken == s->rows ? s->end : taken;

    if (s->columns != 0 && distance == taken) {
        s->back = (uint32_t)(kvg_min_u64(s->back, s->columns - 1 - s->end) + taken);
    } else {
        s->back = 0; /* the column before holds an earlier state, not the row before's */
    }
    s->current = kvg_slot_column(s, (uint32_t)distance);
    s->low = kvg_min_u64(kvg_slot_low(s), s->at + taken);
    s->at += taken;
    kvg_slot_end_step(s);
}

/* The step ends where it began: refused, or nothing further is held. The caller restores the tail first, if it is overwritten. */
static inline void kvg_slot_stay(KvSlotState *s)
{
    if (s->columns != 0) s->back = (uint32_t)kvg_min_u64(s->back, s->columns - 1 - s->end);
    s->low = kvg_min_u64(kvg_slot_low(s), kvg_slot_tail_start(s, s->at));
    kvg_slot_end_step(s);
}

/* 1 if the state at row `len` <= at is held, with no step open. Row 0 always is: everything is zero there. */
static inline int kvg_slot_column_held(const KvSlotState *s, uint64_t len)
{
    return s->columns == 0 || len == 0 || s->at - len <= s->back;
}

static inline int kvg_slot_holds(const KvSlotState *s, uint64_t len)
{
    return len == s->at || (kvg_slot_column_held(s, len) && kvg_slot_tail_held(s, len));
}

/* Goes back to a row that is held; at row 0 the caller zeroes the current column. */
static inline void kvg_slot_rewind(KvSlotState *s, uint64_t len)
{
    uint64_t rows = s->at - len;

    if (s->columns != 0 && rows <= s->back) {
        s->current = (uint32_t)((s->current + s->columns - rows) % s->columns);
        s->back -= (uint32_t)rows;
    } else {
        s->back = 0;
    }
    s->low = kvg_min_u64(s->low, len);
    s->at = len;
}

/* No step is open: what is held beyond the state at `at` is given up, since another rank may have tried steps that went over it. */
static inline void kvg_slot_level(KvSlotState *s)
{
    s->back = 0;
    s->low = s->ring == 0 ? 0 : kvg_slot_tail_start(s, s->at);
}

/* The caller has put the state at `len` into the current column, and the tail into the ring: a restored snapshot, a fork. */
static inline void kvg_slot_restored(KvSlotState *s, uint64_t len)
{
    kvg_slot_end_step(s);
    s->back = 0;
    s->at = len;
    s->low = s->ring == 0 ? 0 : kvg_slot_tail_start(s, len);
}

#endif

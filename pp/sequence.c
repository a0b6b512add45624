/* Sequence: posted calls. Each checks agreed state, changes all classes or none, and is mixed into the running digest with its answer. */
#include "pp/internal.h"

#include <string.h>

int kvg_sequence_in_step(const KvgSequence *sequence)
{
    const KvgStep *step;
    KvgVotes      *votes = sequence->placement->grid->votes;

    if (sequence->last_step == 0 || sequence->last_step <= votes->decided) {
        return 0;
    }
    step = kvg_step_at(votes, sequence->last_step);
    if (step->number != sequence->last_step || step->state == KVG_STEP_DECIDED) {
        return 0;
    }
    return step->state == KVG_STEP_BEGUN ? 1 : 2;
}

static KvgStatus check_open(const KvgSequence *sequence)
{
    if (sequence == NULL || !sequence->open || sequence->close_pending) {
        return kvg_fail(KVG_ESTALE, "the sequence is closed; open it again and use the new handle");
    }
    return KVG_OK;
}

KvgStatus kvg_sequence_await_last(KvgSequence *sequence)
{
    KVG_TRY(check_open(sequence));
    KVG_TRY(kvg_grid_usable(sequence->placement->grid));
    KVG_TRY(kvg_grid_no_run(sequence->placement->grid));
    if (kvg_sequence_in_step(sequence) == 1) {
        return kvg_fail(KVG_EBUSY, "sequence %llu is in step %llu, which is begun and not posted", (unsigned long long)sequence->id,
                        (unsigned long long)sequence->last_step);
    }
    if (kvg_sequence_in_step(sequence) == 2) {
        KVG_TRY(kvg_step_await(kvg_step_at(sequence->placement->grid->votes, sequence->last_step)));
        KVG_TRY(kvg_grid_usable(sequence->placement->grid));
    }
    return KVG_OK;
}

KvgStatus kvg_sequence_settle_last(KvgSequence *sequence)
{
    KVG_TRY(kvg_sequence_await_last(sequence));
    kvg_kv_cache_release_behind(&sequence->cache);
    return KVG_OK;
}

/* ---- open and close */

static KvgStatus check_id(const KvgPlacement *placement, uint64_t id)
{
    KVG_TRY(kvg_placement_awake(placement));
    for (uint32_t i = 0; i < placement->options.max_sequences; i++) {
        if (placement->sequences[i].open && placement->sequences[i].id == id) {
            return kvg_fail(KVG_EINVAL, "a sequence with id %llu is open already; ids are unique among open sequences", (unsigned long long)id);
        }
    }
    if (placement->free_count == 0) {
        return kvg_fail(KVG_EBUSY, "all %u sequences (max_sequences) are open; close one first", placement->options.max_sequences);
    }
    return KVG_OK;
}

KvgSequence *kvg_sequence_take(KvgPlacement *placement, uint64_t id)
{
    uint32_t     slot = placement->free_slots[--placement->free_count];
    KvgSequence *sequence = &placement->sequences[slot];

    memset(sequence, 0, sizeof *sequence);
    sequence->placement = placement;
    sequence->id = id;
    sequence->open = 1;
    sequence->generation = (uint64_t)placement->grid->epoch << 32;
    kvg_kv_cache_open(placement->store, slot, ++placement->serial, &sequence->cache);
    return sequence;
}

void kvg_sequence_drop(KvgSequence *sequence, KvgStream stream)
{
    KvgPlacement *placement = sequence->placement;

    if (kvg_sequence_in_step(sequence) != 0) {
        kvg_step_at(placement->grid->votes, sequence->last_step)->entries[sequence->entry].sequence = NULL; /* the step goes on without it */
    } else if (sequence->last_step != 0 && kvg_step_at(placement->grid->votes, sequence->last_step)->number == sequence->last_step) {
        kvg_step_at(placement->grid->votes, sequence->last_step)->entries[sequence->entry].sequence = NULL; /* nothing is left to free behind it */
    }
    kvg_sequence_drop_attached(sequence);
    kvg_kv_cache_close(&sequence->cache, stream);
    sequence->open = 0;
    placement->free_slots[placement->free_count++] = sequence->cache.slot;
}

void kvg_sequence_reset(KvgSequence *sequence)
{
    KvgPlacement *placement = sequence->placement;
    uint32_t      slot = sequence->cache.slot;
    int           tainted = sequence->cache.tainted;

    kvg_sequence_drop_attached(sequence);
    kvg_kv_cache_close(&sequence->cache, NULL);
    kvg_kv_cache_open(placement->store, slot, ++placement->serial, &sequence->cache);
    sequence->cache.tainted = tainted; /* it never comes back; its memory does */
    sequence->taint_pending = 0;
    sequence->generation = (uint64_t)placement->grid->epoch << 32;
    sequence->last_step = 0;
    sequence->named_in = 0;
    sequence->counted_growth = 0;
}

/* Only a lack of memory on this rank alone is let pass: the sequence is open, its units are counted, and its next step votes no if the
 * rows still cannot be had. Everything else is the same on every rank. */
static int refused_for_all(KvgStatus status)
{
    return status != KVG_OK && status != KVG_ENOMEM && status != KVG_EDEVICE;
}

KvgStatus kvg_sequence_open(KvgPlacement *placement, uint64_t id, uint64_t rows, KvgSequence **sequence_p)
{
    KvgSequence *sequence = NULL;
    KvgStatus    status;

    if (placement == NULL || sequence_p == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_sequence_open needs a placement and a place for the sequence");
    }
    KVG_TRY(kvg_grid_usable(placement->grid));
    KVG_TRY(kvg_grid_no_run(placement->grid));
    status = check_id(placement, id);
    if (status == KVG_OK) {
        sequence = kvg_sequence_take(placement, id);
        status = kvg_kv_cache_book(&sequence->cache, rows);
        sequence->counted_growth = rows > 0;
        if (refused_for_all(status)) {
            kvg_sequence_drop(sequence, NULL);
        } else {
            status = KVG_OK;
        }
    }
    kvg_grid_posted(placement->grid, "open", kvg_placement_id(placement, id), rows, status);
    placement->stats.refusals[status] += status != KVG_OK;
    if (status == KVG_OK) {
        *sequence_p = sequence;
    }
    return status;
}

KvgStatus kvg_sequence_close(KvgSequence *sequence, KvgStream stream)
{
    KVG_TRY(check_open(sequence));
    kvg_grid_posted(sequence->placement->grid, "close", kvg_placement_id(sequence->placement, sequence->id), 0, KVG_OK);
    if (kvg_run_names(sequence)) {
        sequence->close_pending = 1; /* the device still writes its rows */
        return KVG_OK;
    }
    kvg_sequence_drop(sequence, stream);
    return KVG_OK;
}

/* ---- booking, cutting, giving back */

/* A failure of this rank alone is no answer of the call, which is the same on every rank: rows that want memory are asked for again by the
 * next step, which votes no if they still cannot be had; a copy that the device failed has left rows that are not provably intact. */
KvgStatus kvg_sequence_posted(KvgSequence *sequence, const char *call, uint64_t value, KvgStatus status)
{
    if (status == KVG_EDEVICE) {
        sequence->taint_pending = 1;
    }
    kvg_sequence_forget_logits(sequence);
    if (status == KVG_ENOMEM || status == KVG_EDEVICE) {
        status = KVG_OK;
    }
    kvg_grid_posted(sequence->placement->grid, call, kvg_placement_id(sequence->placement, sequence->id), value, status);
    return status;
}

KvgStatus kvg_sequence_book(KvgSequence *sequence, uint64_t rows)
{
    uint64_t  had;
    KvgStatus status;

    KVG_TRY(kvg_sequence_settle_last(sequence));
    had = kvg_store_end(sequence->placement->store, 0, sequence->cache.slot);
    status = kvg_sequence_posted(sequence, "book", rows, kvg_kv_cache_book(&sequence->cache, rows));
    sequence->placement->stats.grows += kvg_store_end(sequence->placement->store, 0, sequence->cache.slot) > had;
    return status;
}

KvgStatus kvg_sequence_rewind(KvgSequence *sequence, uint64_t rows)
{
    KVG_TRY(kvg_sequence_settle_last(sequence));
    return kvg_sequence_posted(sequence, "rewind", rows, kvg_kv_cache_rewind_to(&sequence->cache, rows, NULL));
}

KvgStatus kvg_sequence_trim(KvgSequence *sequence)
{
    KVG_TRY(kvg_sequence_settle_last(sequence));
    return kvg_sequence_posted(sequence, "trim", 0, kvg_kv_cache_trim(&sequence->cache));
}

KvgStatus kvg_sequence_fork(KvgSequence *sequence, uint64_t rows, uint64_t id, KvgSequence **fork)
{
    KvgSequence *child = NULL;
    KvgStatus    status;

    if (fork == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_sequence_fork needs a place for the new sequence");
    }
    KVG_TRY(kvg_sequence_settle_last(sequence));
    status = check_id(sequence->placement, id);
    if (status == KVG_OK) {
        child = kvg_sequence_take(sequence->placement, id);
        status = kvg_kv_cache_fork(&sequence->cache, rows, &child->cache, NULL);
        child->counted_growth = 1;
        child->taint_pending = sequence->taint_pending; /* it has the same rows */
        if (status == KVG_ENOMEM || status == KVG_EDEVICE) {
            child->taint_pending = 1; /* flat planes could not be copied here: the others have the child's rows, this rank has not */
            status = KVG_OK;
        } else if (status != KVG_OK) {
            kvg_sequence_drop(child, NULL);
        }
    }
    kvg_grid_posted(sequence->placement->grid, "fork", kvg_placement_id(sequence->placement, sequence->id) ^ kvg_mix64(id), rows, status);
    if (status == KVG_OK) {
        *fork = child;
    }
    return status;
}

KvgStatus kvg_sequence_restore(KvgSequence *sequence, uint64_t rows, uint64_t first_row)
{
    KVG_TRY(kvg_sequence_settle_last(sequence));
    return kvg_sequence_posted(sequence, "restore", kvg_mix64(rows) + first_row, kvg_kv_cache_hydrate(&sequence->cache, rows, first_row));
}

KvgStatus kvg_sequence_taint(KvgSequence *sequence)
{
    KVG_TRY(check_open(sequence));
    sequence->taint_pending = !sequence->cache.tainted;
    if (kvg_sequence_in_step(sequence) == 1) {
        kvg_step_at(sequence->placement->grid->votes, sequence->last_step)->any_taint |= sequence->taint_pending;
    }
    return KVG_OK;
}

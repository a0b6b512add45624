/* Snapshot: what a sequence can be taken back to. For K/V rows that is lengths: rows past them are overwritten in place; recurrent state and
 * index tails are copies in the placement's device memory, which goes with the placement: a snapshot that outlives it is empty. */
#include "pp/internal.h"

static void link_to(KvgSnapshot *snapshot, KvgPlacement *placement)
{
    snapshot->placement = placement;
    snapshot->next = placement->snapshots;
    snapshot->link = &placement->snapshots;
    if (snapshot->next != NULL) {
        snapshot->next->link = &snapshot->next;
    }
    placement->snapshots = snapshot;
}

static void unlink_from(KvgSnapshot *snapshot)
{
    if (snapshot->placement != NULL) {
        *snapshot->link = snapshot->next;
        if (snapshot->next != NULL) {
            snapshot->next->link = snapshot->link;
        }
        kvg_kv_cache_snapshot_free(snapshot->cache);
        snapshot->cache = NULL;
        snapshot->sequence = NULL;
        snapshot->placement = NULL;
    }
}

void kvg_snapshots_empty(KvgPlacement *placement)
{
    while (placement->snapshots != NULL) {
        unlink_from(placement->snapshots);
    }
}

KvgStatus kvg_sequence_snapshot_into(KvgSequence *sequence, KvgSnapshot *snapshot)
{
    if (snapshot == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_sequence_snapshot_into needs a snapshot that kvg_sequence_snapshot made");
    }
    KVG_TRY(kvg_sequence_await_last(sequence)); /* local: other ranks may take none, so no unit moves here */
    if (sequence->cache.tainted) {
        return kvg_fail(KVG_ETAINTED, "sequence %llu is tainted; close it", (unsigned long long)sequence->id);
    }
    if (snapshot->placement != NULL && snapshot->placement != sequence->placement) {
        return kvg_fail(KVG_EINVAL, "the snapshot was made for another placement; make one for this");
    }
    if (snapshot->cache == NULL) {
        KVG_TRY(kvg_kv_cache_snapshot_new(&sequence->cache, &snapshot->cache));
        link_to(snapshot, sequence->placement);
    } else {
        KVG_TRY(kvg_kv_cache_snapshot_into(&sequence->cache, snapshot->cache, NULL));
    }
    snapshot->sequence = sequence;
    return KVG_OK;
}

KvgStatus kvg_sequence_snapshot(KvgSequence *sequence, KvgSnapshot **snapshot_p)
{
    void     *memory = NULL;
    KvgStatus status;

    if (snapshot_p == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_sequence_snapshot needs a place for the snapshot");
    }
    KVG_TRY(kvg_calloc(1, sizeof(KvgSnapshot), "a snapshot", &memory));
    status = kvg_sequence_snapshot_into(sequence, memory);
    if (status != KVG_OK) {
        kvg_free(memory);
        return status;
    }
    *snapshot_p = memory;
    return KVG_OK;
}

void kvg_snapshot_free(KvgSnapshot *snapshot)
{
    if (snapshot != NULL) {
        unlink_from(snapshot);
    }
    kvg_free(snapshot);
}

int kvg_sequence_can_rollback(const KvgSequence *sequence, const KvgSnapshot *snapshot, uint64_t accept)
{
    return sequence != NULL && snapshot != NULL && sequence->open && snapshot->sequence == sequence &&
           kvg_sequence_in_step(sequence) == 0 && !sequence->taint_pending &&
           kvg_kv_cache_can_rollback(&sequence->cache, snapshot->cache, accept);
}

KvgStatus kvg_sequence_rollback(KvgSequence *sequence, const KvgSnapshot *snapshot, uint64_t accept)
{
    if (snapshot == NULL || snapshot->sequence != sequence) {
        return kvg_fail(KVG_ESTALE, "the snapshot is another sequence's, or there is none");
    }
    KVG_TRY(kvg_sequence_settle_last(sequence));
    return kvg_sequence_posted(sequence, "rollback", snapshot->cache->pos + accept,
                               kvg_kv_cache_rollback(&sequence->cache, snapshot->cache, accept, NULL));
}

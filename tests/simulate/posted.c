/* Posted calls: made on every rank at the same op, answered alike on all. What a tainted sequence, a snapshot of another life or an id that is taken must not
 * be given is known here; whether units suffice is the ledger's answer. */
#include "tests/simulate/sim.h"

/* ---- a failure planted in one call */

void op_arm(const Op *op, int r)
{
    if (op->oom_rank == r && !op->oom_hit) {
        kvg_fault_arm(op->oom_nth);
    }
}

int op_disarm(Op *op, int r)
{
    if (op->oom_rank != r || op->oom_hit || !kvg_fault_disarm()) {
        return 0;
    }
    op->oom_hit = 1;
    return 1;
}

/* ---- answers */

/* What is agreed must be the same on every rank at the same op. */
void op_compare(World *w, int r, Op *op, KvgStatus status, const KvgSequence *sequence)
{
    const KvgPlacement *placement = w->rank[r].placement;
    uint64_t            replay = sequence != NULL && sequence->open ? kvg_kv_cache_replay(&sequence->cache) : 0;

    if (op->done == 0) {
        op->status = status;
        op->slots_free = placement->free_count;
        op->replay = replay;
        for (uint32_t c = 0; c < kvg_store_class_count(placement->store); c++) op->units_free[c] = kvg_store_units_free(placement->store, c);
        return;
    }
    SIM_CHECK(w, status == op->status, "op %d on sequence %u: rank %d answers %s, the first rank %s (%s)", op->kind, op->seq, r, kvg_status_name(status),
              kvg_status_name(op->status), kvg_last_error());
    SIM_CHECK(w, placement->free_count == op->slots_free, "after op %d: rank %d has %u slots free, the first rank %u", op->kind, r, placement->free_count,
              op->slots_free);
    SIM_CHECK(w, replay == op->replay, "after op %d: rank %d owes a replay of %llu rows of sequence %u, the first rank %llu", op->kind, r,
              (unsigned long long)replay, op->seq, (unsigned long long)op->replay);
    for (uint32_t c = 0; c < kvg_store_class_count(placement->store); c++) {
        SIM_CHECK(w, kvg_store_units_free(placement->store, c) == op->units_free[c], "after op %d: class %u has %u units free on rank %d, %u on the first rank",
                  op->kind, c, kvg_store_units_free(placement->store, c), r, op->units_free[c]);
    }
}

/* ---- posted calls */

static KvgStatus expected_open(World *w, const Rank *rank, const Op *op)
{
    KvgLedger ledger;

    for (uint32_t i = 0; i < SIM_SEQS; i++) {
        if (w->front.seq[i].open && w->front.seq[i].id == op->id) {
            return KVG_EINVAL;
        }
    }
    kvg_placement_ledger(rank->placement, &ledger);
    return kvg_ledger_check(&ledger, op->rows);
}

static KvgStatus call_open(World *w, Rank *rank, const Op *op)
{
    KvgStatus expected = op->done == 0 ? expected_open(w, rank, op) : KVG_OK, status;

    op_arm(op, (int)(rank - w->rank));
    status = kvg_sequence_open(rank->placement, op->id, op->rows, &rank->seq[op->seq]);
    op_disarm((Op *)(uintptr_t)op, (int)(rank - w->rank));
    SIM_CHECK(w, op->done != 0 || status == expected || op_ends(w, status), "opening with %llu rows answers %s, the ledger %s", (unsigned long long)op->rows,
              kvg_status_name(status), kvg_status_name(expected));
    return status;
}

static KvgStatus call_close(World *w, Rank *rank, const Op *op)
{
    KvgStatus status = kvg_sequence_close(rank->seq[op->seq], NULL);

    (void)w;
    rank->seq[op->seq] = NULL;
    return status;
}

static KvgStatus call_rollback(World *w, Rank *rank, const Op *op)
{
    KvgSequence *sequence = rank->seq[op->seq];
    KvgSnapshot *snapshot = rank->snapshot[op->seq];
    int          can = kvg_sequence_can_rollback(sequence, snapshot, op->rows);
    KvgStatus    status = kvg_sequence_rollback(sequence, snapshot, op->rows);

    SIM_CHECK(w, op_doubt(status) || can == (status == KVG_OK) || (can && status == KVG_ECAPACITY) || sequence->taint_pending,
              "a rollback that was said to be %s answers %s", can ? "possible" : "impossible", kvg_status_name(status));
    SIM_CHECK(w, op->done != 0 || status != KVG_OK || w->front.snapshot[op->seq].id == sequence->id, "a snapshot of an earlier life was taken back to");
    return status;
}

static KvgStatus call_snapshot(World *w, Rank *rank, const Op *op)
{
    KvgSnapshot **snapshot = &rank->snapshot[op->seq];
    KvgStatus     status;

    if (*snapshot != NULL) {
        status = kvg_sequence_snapshot_into(rank->seq[op->seq], *snapshot);
    } else {
        op_arm(op, (int)(rank - w->rank));
        status = kvg_sequence_snapshot(rank->seq[op->seq], snapshot);
        if (op_disarm((Op *)(uintptr_t)op, (int)(rank - w->rank)) && status == KVG_ENOMEM) {
            status = kvg_sequence_snapshot(rank->seq[op->seq], snapshot); /* it is local: the caller tries again */
        }
    }
    if (status != KVG_OK && *snapshot != NULL) { /* what it was before may be another life's */
        kvg_snapshot_free(*snapshot);
        *snapshot = NULL;
    }
    return status;
}

static KvgStatus call_posted(World *w, Rank *rank, Op *op)
{
    int          r = (int)(rank - w->rank);
    KvgSequence *sequence = rank->seq[op->seq];
    KvgStatus    status;

    switch (op->kind) {
    case OP_OPEN:     return call_open(w, rank, op);
    case OP_CLOSE:    return call_close(w, rank, op);
    case OP_ROLLBACK: return call_rollback(w, rank, op);
    case OP_SNAPSHOT: return call_snapshot(w, rank, op);
    default: break;
    }
    op_arm(op, r);
    switch (op->kind) {
    case OP_BOOK:   status = kvg_sequence_book(sequence, op->rows); break;
    case OP_TRIM:   status = kvg_sequence_trim(sequence); break;
    case OP_REWIND: status = kvg_sequence_rewind(sequence, op->rows); break;
    default:        status = kvg_sequence_fork(sequence, op->rows, op->id, &rank->seq[op->other]); break;
    }
    op_disarm(op, r);
    return status;
}

Went op_posted(World *w, int r, Op *op)
{
    Rank        *rank = &w->rank[r];
    KvgSequence *sequence = rank->seq[op->seq];
    KvgStatus    status;

    if (op->only_rank >= 0 && op->only_rank != r) {
        return WENT_ON;
    }
    if (op->kind != OP_OPEN && sequence == NULL) { /* an op before it was refused */
        SIM_CHECK(w, !w->front.seq[op->seq].open || w->front_pc != rank->pc, "rank %d has lost sequence %u", r, op->seq);
        op->status = op->done == 0 ? KVG_ESTALE : op->status;
        op->skipped = 1;
        return WENT_ON;
    }
    status = call_posted(w, rank, op);
    if (op_doubt(status)) {
        return IN_DOUBT;
    }
    if (w->apart && status == KVG_ELAYOUT) {
        return IN_DOUBT;
    }
    SIM_CHECK(w, op->done != 0 || op->kind == OP_OPEN || op->kind == OP_CLOSE || !w->front.seq[op->seq].tainted || status != KVG_OK,
              "sequence %u is tainted, and op %d serves it on rank %d", op->seq, op->kind, r);
    if (status == KVG_OK) {
        op->well |= 1ull << r;
    }
    if (op->only_rank < 0 && !w->apart) {
        op_compare(w, r, op, status, rank->seq[op->seq]);
    } else if (op->only_rank < 0 && op->done == 0) { /* ranks whose calls went apart may answer otherwise, until a vote says so */
        op->status = status;
    }
    if (op->only_rank >= 0) {
        w->apart = 1;
        w->apart_rank = r;
        w->apart_pc = rank->pc;
    }
    return WENT_ON;
}

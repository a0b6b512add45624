/* Reference: what each op of the program means for lengths and keys, said as plainly as possible. */
#include "tests/simulate/sim.h"

#include <string.h>

void reference_apply_truth(Reference *ref, const Truth *truth)
{
    for (uint32_t p = 0; p < SIM_PLACES; p++) {
        RefSeq *seq = &ref->seq[truth->seq[p]];
        if (truth->rows[p] + truth->replay[p] == 0 || !truth->granted[p] || !seq->open || seq->id != truth->id[p]) {
            continue;
        }
        if (truth->kind == KVG_OUTCOME_PUBLISHED) {
            memcpy(&seq->key[truth->base[p]], &truth->key[p][truth->replay[p]], truth->accepted[p] * sizeof(uint64_t));
            seq->len = truth->base[p] + truth->accepted[p];
        } else if (truth->kind == KVG_OUTCOME_TAINTED) {
            seq->tainted = truth->accepted[p] != 0; /* flags, in that outcome */
        }
    }
}

static void cut(RefSeq *seq, uint64_t len)
{
    seq->len = len;
    seq->cuts++;
}

void reference_apply(World *w, Reference *ref, const Op *op)
{
    RefSeq *seq = &ref->seq[op->seq], *other = &ref->seq[op->other];

    if (op->kind == OP_WAIT) {
        reference_apply_truth(ref, &w->truth[op->truth]);
        return;
    }
    if (op->status != KVG_OK) {
        return;
    }
    switch (op->kind) {
    case OP_OPEN:
        seq->open = 1;
        seq->tainted = 0;
        seq->id = op->id;
        cut(seq, 0);
        break;
    case OP_CLOSE:
        seq->open = 0;
        seq->cuts++;
        break;
    case OP_REWIND:
        cut(seq, op->rows);
        break;
    case OP_ROLLBACK:
        cut(seq, ref->snapshot[op->seq].len + op->rows);
        break;
    case OP_SNAPSHOT:
        ref->snapshot[op->seq].held = 1;
        ref->snapshot[op->seq].id = seq->id;
        ref->snapshot[op->seq].len = seq->len;
        break;
    case OP_FORK:
        other->open = 1;
        other->tainted = 0;
        other->id = op->id;
        cut(other, op->rows);
        memcpy(other->key, seq->key, op->rows * sizeof(uint64_t));
        break;
    default:
        break;
    }
}

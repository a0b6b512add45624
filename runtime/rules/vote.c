/* Vote: the record's layout, the decision's public face and its sentences (S7). */
#include "runtime/rules/vote_decide.h"

#include <inttypes.h>

#include "runtime/base/error.h"

_Static_assert(sizeof(KvVoteRecord) == KVG_VOTE_HEADER_BYTES, "the record crosses the wire: no padding");
_Static_assert(offsetof(KvVoteRecord, status) == 12 && offsetof(KvVoteRecord, rank) == 14 &&
               offsetof(KvVoteRecord, targets) == 16 && offsetof(KvVoteRecord, accepted) == 24 &&
               offsetof(KvVoteRecord, layout) == 32 && offsetof(KvVoteRecord, user) == 40 &&
               offsetof(KvVoteRecord, decided) == 48 && offsetof(KvVoteRecord, count) == 56 &&
               offsetof(KvVoteRecord, accepted_rows) == 64, "the record's fields stand where S7 puts them");
_Static_assert(sizeof(KvVoteOutcome) == 8, "one word: a device writes it at once");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "records are sent as they lie in memory: little-endian");

size_t kvg_vote_record_bytes(uint32_t max_step_sequences)
{
    return KVG_VOTE_HEADER_BYTES + sizeof(uint16_t) * (size_t)max_step_sequences;
}

KvgStatus kvg_vote_accepted_pack(uint64_t accepted, uint64_t staged, uint16_t *stored)
{
    if (accepted > staged) {
        return kvg_fail(KVG_EINVAL, "accepted %" PRIu64 " rows of %" PRIu64 " staged ones; accept at most those", accepted,
                        staged);
    }
    if (accepted != staged && accepted >= KVG_VOTE_ACCEPTED_ALL) {
        return kvg_fail(KVG_EINVAL, "accepted %" PRIu64 " rows of %" PRIu64 ": a record says all, or at most %u; take a "
                        "long prompt in smaller steps", accepted, staged, KVG_VOTE_ACCEPTED_ALL - 1);
    }
    *stored = accepted == staged ? (uint16_t)KVG_VOTE_ACCEPTED_ALL : (uint16_t)accepted;
    return KVG_OK;
}

KvgStatus kvg_vote_accepted_unpack(uint16_t stored, uint64_t staged, uint64_t *accepted)
{
    if (stored != KVG_VOTE_ACCEPTED_ALL && stored > staged) {
        return kvg_fail(KVG_EFORMAT, "a record accepts %u rows of %" PRIu64 " staged ones: it does not belong to this step",
                        stored, staged);
    }
    *accepted = stored == KVG_VOTE_ACCEPTED_ALL ? staged : stored;
    return KVG_OK;
}

void kvg_vote_decide(const KvVoteRecord *const records[], uint32_t n, uint32_t tp, KvVoteOutcome *outcome)
{
    *outcome = kvg_vote_decide_inline(records, n, tp != 0 ? tp : 1);
}

const char *kvg_vote_field_name(KvVoteField field)
{
    static const char *const names[KVG_VOTE_FIELD_COUNT] = {"status", "epoch", "step", "targets", "accepted", "layout", "user"};
    return (unsigned)field < KVG_VOTE_FIELD_COUNT ? names[field] : "?";
}

const char *kvg_vote_kind_name(KvVoteKind kind)
{
    static const char *const names[] = {"publish", "refused", "disagree", "unaccepted"};
    return (unsigned)kind < sizeof names / sizeof names[0] ? names[kind] : "?";
}

static KvgStatus fail_disagree(const KvVoteOutcome *outcome, uint64_t step, const KvVoteRecord *const records[])
{
    const char *field = kvg_vote_field_name((KvVoteField)outcome->field);
    if (records == NULL) {
        return kvg_fail(KVG_ELAYOUT, "step %" PRIu64 " was rolled back: ranks %u and %u disagree in %s; both must make the "
                        "same calls with the same values", step, outcome->rank, outcome->rank_b, field);
    }
    return kvg_fail(KVG_ELAYOUT, "step %" PRIu64 " was rolled back: rank %u has %s %016" PRIx64 ", rank %u has %016" PRIx64
                    "; both must make the same calls with the same values", step, outcome->rank, field,
                    kvg_vote_field_of(records[outcome->rank], outcome->field), outcome->rank_b,
                    kvg_vote_field_of(records[outcome->rank_b], outcome->field));
}

KvgStatus kvg_vote_outcome_status(const KvVoteOutcome *outcome, uint64_t step, const KvVoteRecord *const records[])
{
    switch ((KvVoteKind)outcome->kind) {
    case KVG_VOTE_PUBLISH:
        return KVG_OK;
    case KVG_VOTE_REFUSED:
        return kvg_fail(KVG_EREFUSED, "step %" PRIu64 " was rolled back: rank %u refused it with %s; its own last error "
                        "says why", step, outcome->rank, kvg_status_name((KvgStatus)outcome->status));
    case KVG_VOTE_DISAGREE:
        return fail_disagree(outcome, step, records);
    case KVG_VOTE_UNACCEPTED:
        return kvg_fail(KVG_EINVAL, "step %" PRIu64 " was rolled back: no rank passed accepted counts; the last stage must",
                        step);
    }
    return kvg_fail(KVG_EFORMAT, "step %" PRIu64 ": outcome kind %u is none", step, outcome->kind);
}

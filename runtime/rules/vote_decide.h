/* Vote, the decision itself: plain code over values, so that host and device compile the same text. Private.
 *
 * The common case is one pass that ORs every difference together; only when that is not zero is the first thing wrong
 * looked for, in S7's order. */
#ifndef KVG_VOTE_DECIDE_H
#define KVG_VOTE_DECIDE_H

#include <kvgrid/vote.h>

#include "runtime/base/hd.h"

KVG_HD static inline uint64_t kvg_vote_field_of(const KvVoteRecord *record, int field)
{
    switch (field) {
    case KVG_VOTE_FIELD_EPOCH:    return record->epoch;
    case KVG_VOTE_FIELD_STEP:     return record->step;
    case KVG_VOTE_FIELD_TARGETS:  return record->targets;
    case KVG_VOTE_FIELD_ACCEPTED: return record->accepted;
    case KVG_VOTE_FIELD_LAYOUT:   return record->layout;
    case KVG_VOTE_FIELD_USER:     return record->user;
    default:                      return (uint64_t)(uint16_t)record->status;
    }
}

KVG_HD static inline KvVoteOutcome kvg_vote_outcome(int kind, int field, int status, uint32_t rank, uint32_t rank_b)
{
    KvVoteOutcome outcome;
    outcome.kind = (uint8_t)kind;
    outcome.field = (uint8_t)field;
    outcome.status = (int16_t)status;
    outcome.rank = (uint16_t)rank;
    outcome.rank_b = (uint16_t)rank_b;
    return outcome;
}

/* Compares `field` over ranks [lo, hi): with `passed_only`, among those that passed a value. 1 and an outcome if two differ. */
KVG_HD static inline int kvg_vote_differs(const KvVoteRecord *const records[], uint32_t lo, uint32_t hi, int field,
                                          int passed_only, KvVoteOutcome *outcome)
{
    uint32_t first = lo;
    while (passed_only && first < hi && kvg_vote_field_of(records[first], field) == 0) first++;
    for (uint32_t rank = first + 1; rank < hi; rank++) {
        uint64_t value = kvg_vote_field_of(records[rank], field);
        if (passed_only && value == 0) continue;
        if (value != kvg_vote_field_of(records[first], field)) {
            *outcome = kvg_vote_outcome(KVG_VOTE_DISAGREE, field, 0, first, rank);
            return 1;
        }
    }
    return 0;
}

/* 1 where every record is ready, all agree and somebody passed accepted counts. */
KVG_HD static inline int kvg_vote_unanimous(const KvVoteRecord *const records[], uint32_t n, uint32_t tp)
{
    const KvVoteRecord *first = records[0];
    uint64_t wrong = 0, accepted = 0, user = 0, layout = first->layout;
    uint32_t in_stage = 0;
    for (uint32_t rank = 0; rank < n; rank++) {
        const KvVoteRecord *record = records[rank];
        wrong |= (uint64_t)(uint16_t)record->status | (uint64_t)(record->epoch ^ first->epoch);
        wrong |= (record->step ^ first->step) | (record->targets ^ first->targets);
        if (record->accepted != 0) {
            if (accepted == 0) accepted = record->accepted;
            wrong |= record->accepted ^ accepted;
        }
        if (record->user != 0) {
            if (user == 0) user = record->user;
            wrong |= record->user ^ user;
        }
        if (in_stage == tp) in_stage = 0;
        if (in_stage++ == 0) layout = record->layout;
        wrong |= record->layout ^ layout;
    }
    return wrong == 0 && accepted != 0;
}

KVG_HD static inline KvVoteOutcome kvg_vote_first_wrong(const KvVoteRecord *const records[], uint32_t n, uint32_t tp)
{
    KvVoteOutcome outcome = kvg_vote_outcome(KVG_VOTE_PUBLISH, KVG_VOTE_FIELD_STATUS, 0, 0, 0);
    for (uint32_t rank = 0; rank < n; rank++) {
        if (records[rank]->status != 0) {
            return kvg_vote_outcome(KVG_VOTE_REFUSED, KVG_VOTE_FIELD_STATUS, records[rank]->status, rank, 0);
        }
    }
    for (int field = KVG_VOTE_FIELD_EPOCH; field <= KVG_VOTE_FIELD_TARGETS; field++) {
        if (kvg_vote_differs(records, 0, n, field, 0, &outcome)) return outcome;
    }
    uint32_t passed = 0;
    for (uint32_t rank = 0; rank < n; rank++) passed += records[rank]->accepted != 0;
    if (passed == 0) return kvg_vote_outcome(KVG_VOTE_UNACCEPTED, KVG_VOTE_FIELD_STATUS, 0, 0, 0);
    if (kvg_vote_differs(records, 0, n, KVG_VOTE_FIELD_ACCEPTED, 1, &outcome)) return outcome;
    for (uint32_t lo = 0; lo < n; lo += tp) {
        uint32_t hi = tp < n - lo ? lo + tp : n;
        if (kvg_vote_differs(records, lo, hi, KVG_VOTE_FIELD_LAYOUT, 0, &outcome)) return outcome;
    }
    kvg_vote_differs(records, 0, n, KVG_VOTE_FIELD_USER, 1, &outcome);
    return outcome;
}

KVG_HD static inline KvVoteOutcome kvg_vote_decide_inline(const KvVoteRecord *const records[], uint32_t n, uint32_t tp)
{
    if (n != 0 && kvg_vote_unanimous(records, n, tp)) {
        return kvg_vote_outcome(KVG_VOTE_PUBLISH, KVG_VOTE_FIELD_STATUS, 0, 0, 0);
    }
    return kvg_vote_first_wrong(records, n, tp);
}

#endif

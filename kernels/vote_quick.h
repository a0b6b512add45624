/* Vote, the quick kernel: post and decide at once, in a stage of its own. For .cu files alone. Private.
 *
 * Bound by latency: the launch, one round of loads, a digest over the accepted counts, one store across NVLink, the poll that sees the peers'.
 * So the block is cut in two kinds of warps that work side by side, and what can be done while records travel is done then:
 *
 *   entry warps, a thread an entry             unit warps, a thread a unit and peer
 *   1 load words, ahead, accepted, next rows   load words, ahead
 *   2 digest of the accepted counts            store what needs no digest: step, epoch, user, counts
 *   ---------------------------- barrier: the digest, and whether a count cannot be ----------------------------
 *   3 as if published: lengths, columns,       store what does: status, targets, accepted, layout; poll the peer's
 *     bases, the next record's sums            unit, and compare it with the own one in registers
 *   ---------------------------- barrier: do all agree? --------------------------------------------------------
 *   4 store all that                           outcome word, words
 *
 * What `ahead` holds was formed by the step before, so no load waits for another. A step that is not ready here, passes no counts, or was not
 * formed ahead goes through vote_step instead; one on which not all agree, or whose records do not come, is decided from shared memory by the
 * same functions. */
#ifndef KVG_VOTE_QUICK_H
#define KVG_VOTE_QUICK_H

#include "kernels/vote_device.h"

namespace {

enum { QUICK_WARPS_MAX = 24 }; /* more would leave a thread too few registers */

struct Quick { /* by value */
    KvVoteArrays arrays;
    Board        board;
    uint32_t     entry_warps, unit_warps, peers; /* unit warps a peer */
    uint32_t     one_peer;                       /* 2^16 / unit_warps, rounded up: warps are told apart by it */
    uint32_t     slot_bytes;
};

/* When and where: of the bench alone. */
struct NoMarks {
    __device__ __forceinline__ void at(int) const {}
};

/* ---- sizes, on the host */

__host__ uint32_t quick_warps(const KvVoteBoard &board, const KvVoteArrays &arrays)
{
    const uint32_t peers = board.ranks > 1 ? board.ranks - 1 : 1;
    return kvg_vote_warps(arrays.entries) + peers * kvg_vote_warps(kvg_vote_units(board.sequences_max));
}

/* One stage, all in registers, and a place for what is formed ahead. */
__host__ bool quick_serves(const KvVoteBoard &board, const KvVoteArrays &arrays)
{
    return arrays.ahead != nullptr && board.ranks == board.tp && arrays.entries > 0 && arrays.entries <= board.sequences_max &&
           board.sequences_max <= QUICK_WARPS_MAX * 32 && board.ranks <= QUICK_WARPS_MAX && quick_warps(board, arrays) <= QUICK_WARPS_MAX;
}

__host__ Quick quick_of(const KvVoteBoard &is, const KvVoteArrays &arrays)
{
    Quick quick = {};

    quick.arrays = arrays;
    quick.board = {is, kvg_vote_units(is.sequences_max), kvg_vote_record_words(is.sequences_max)};
    quick.entry_warps = kvg_vote_warps(arrays.entries);
    quick.unit_warps = kvg_vote_warps(quick.board.units);
    quick.peers = is.ranks > 1 ? is.ranks - 1 : 1;
    quick.one_peer = (0x10000u + quick.unit_warps - 1) / quick.unit_warps;
    quick.slot_bytes = is.ranks * quick.board.units * (uint32_t)sizeof(Unit);
    return quick;
}

__host__ uint32_t quick_threads(const Quick &quick)
{
    return 32 * (quick.entry_warps + quick.peers * quick.unit_warps);
}

__host__ size_t quick_shared_bytes(const Quick &quick)
{
    return sizeof(uint32_t) * quick.board.record_words * (quick.board.is.ranks + 1);
}

/* ---- 1: loads, all of them on their way before the first is used */

__device__ __forceinline__ KvVoteWords load_words(const KvVoteWords *at)
{
    union {
        KvVoteWords words;
        uint64_t    pair[sizeof(KvVoteWords) / 8];
    } all;
#pragma unroll
    for (uint32_t i = 0; i < sizeof(KvVoteWords) / 16; i++) load_pair((const uint8_t *)at + 16 * i, all.pair[2 * i], all.pair[2 * i + 1]);
    return all.words;
}

struct Seat { /* an entry warp's thread */
    KvVoteAheadTerm term;
    KvVoteAheadSpan span;
    int32_t         slot, read, each;
    uint32_t        accepted, next_rows, base; /* base: of the first class */
};

__device__ __forceinline__ Seat load_seat(const KvVoteArrays &arrays, uint32_t e)
{
    const KvVoteAhead at = kvg_vote_ahead_at(arrays.ahead, arrays.entries);
    const bool        within = e < arrays.entries;
    Seat              seat = {};

    load_pair(&at.term[e], seat.term.place, seat.term.mark);
    const uint64_t span = load_eight(&at.span[e]);
    seat.span = KvVoteAheadSpan{(uint32_t)span, (uint32_t)(span >> 32)};
    seat.accepted = arrays.accepted != nullptr && within ? load_four(&arrays.accepted[e]) : seat.span.staged;
    seat.slot = (int32_t)load_four(&at.slot[e]);
    seat.next_rows = arrays.next_rows != nullptr && within ? load_four(&arrays.next_rows[e]) : 0;
    return seat;
}

/* ---- 2: counts, as kvg_vote_stored and kvg_vote_count_bad have them, without branches */

__device__ __forceinline__ uint32_t stored_of(uint32_t staged, uint32_t accepted)
{
    const uint32_t part = accepted < staged && accepted < KVG_VOTE_ACCEPTED_ALL ? accepted : 0;
    const uint32_t stored = accepted == staged ? KVG_VOTE_ACCEPTED_ALL : part;
    return staged == KVG_VOTE_SPAN_NONE ? 0 : stored;
}

__device__ __forceinline__ bool count_bad(uint32_t staged, uint32_t accepted)
{
    const uint32_t most = staged < KVG_VOTE_ACCEPTED_ALL ? staged : KVG_VOTE_ACCEPTED_ALL - 1u;
    return (staged != KVG_VOTE_SPAN_NONE) & (accepted > most) & (accepted != staged);
}

/* ---- 3, entry warps: what a publish by the own counts leaves */

struct Plan {
    uint32_t     taken, len, next_rows, raised; /* raised: a bit a class */
    KvVoteColumn column;
    KvVoteSums   sums; /* of the next step, over the warp */
};

__device__ __forceinline__ uint32_t base_of(const KvVoteArrays &arrays, uint32_t c, int32_t slot)
{
    const uint32_t *base_row = arrays.class_at[c].base_row;
    return base_row != nullptr ? load_four(&base_row[slot]) : 0;
}

/* Loads that need the slot: they arrive while the digest is formed. */
__device__ __forceinline__ void load_by_slot(const KvVoteArrays &arrays, Seat &seat)
{
    if (seat.slot < 0) return;
    if (arrays.classes != 0) seat.base = base_of(arrays, 0, seat.slot);
    if (arrays.columns == 0) return;
    seat.read = (int32_t)load_four(&arrays.read[seat.slot]);
    seat.each = (int32_t)load_four(&arrays.each[seat.slot]);
}

__device__ __forceinline__ uint64_t plan_layout(const KvVoteArrays &arrays, const Seat &seat, uint32_t e, Plan &plan)
{
    uint64_t sum = 0;
    uint32_t base = seat.base;

#pragma unroll 1
    for (uint32_t c = 0; c < arrays.classes; c++) {
        const uint32_t after = c + 1 < arrays.classes ? base_of(arrays, c + 1, seat.slot) : 0;
        const uint32_t least = kvg_vote_base(arrays.class_at[c].keep, plan.len);
        if (arrays.class_at[c].base_row != nullptr && least > base && plan.column.behind == 0) plan.raised |= 1u << c, base = least;
        sum += kvg_mix_term(e, c, base, (uint64_t)plan.len + plan.next_rows);
        base = after;
    }
    return sum;
}

__device__ __forceinline__ Plan plan_publish(const KvVoteArrays &arrays, const KvVoteWords &words, const Seat &seat, uint32_t stored, uint32_t e)
{
    Plan plan = {};

    if (seat.slot >= 0) {
        plan.taken = stored == KVG_VOTE_ACCEPTED_ALL ? seat.span.staged : stored;
        plan.len = seat.span.len + plan.taken;
        plan.next_rows = words.step == words.last ? 0 : seat.next_rows;
        if (arrays.columns != 0) plan.column = kvg_vote_column(arrays.columns, seat.read, seat.each, seat.span.staged, plan.taken, plan.next_rows);
        plan.sums.targets = kvg_mix_joined(seat.term.place, seat.term.mark, (uint64_t)plan.len + plan.next_rows);
        plan.sums.layout = plan_layout(arrays, seat, e, plan);
    }
    plan.sums.targets = warp_sum(plan.sums.targets), plan.sums.layout = warp_sum(plan.sums.layout);
    return plan;
}

/* ---- 4, entry warps */

__device__ __forceinline__ void store_plan(const KvVoteArrays &arrays, const KvVoteWords &words, const Seat &seat, const Plan &plan, uint32_t e, bool runs)
{
    const KvVoteAhead at = kvg_vote_ahead_at(arrays.ahead, arrays.entries);

    if (e % 32 == 0) at.sums[e / 32] = KvVoteAheadSums{plan.sums.targets, plan.sums.layout};
    if (arrays.rows != nullptr && e < arrays.entries) arrays.rows[e] = runs ? plan.next_rows : 0;
    if (arrays.taken != nullptr && e < words.count) arrays.taken[e] = plan.taken;
    if (seat.slot < 0) return;
    arrays.len[seat.slot] = plan.len;
    arrays.len_staged[seat.slot] = plan.len + plan.next_rows;
    at.span[e] = KvVoteAheadSpan{plan.len, plan.next_rows};
    if (arrays.first_row != nullptr) arrays.first_row[e] = plan.len;
    if (arrays.columns != 0) {
        arrays.read[seat.slot] = plan.column.read;
        arrays.write[seat.slot] = plan.column.write;
        arrays.each[seat.slot] = plan.column.each;
    }
    for (uint32_t c = 0; plan.raised >> c != 0; c++) {
        if (plan.raised >> c & 1) arrays.class_at[c].base_row[seat.slot] = kvg_vote_base(arrays.class_at[c].keep, plan.len);
    }
}

/* ---- unit warps */

struct Post { /* a unit of the own record, where it goes, and where the peer's comes from */
    Unit     own;
    uint8_t *there, *home, *from; /* home: in the own block; NULL: another thread's to store. from: NULL: nothing comes */
    uint32_t unit, peer;          /* peer: its rank */
    bool     sends, late;
};

/* As of slot 0: what does not need the step. */
__device__ __forceinline__ Post post_of(const Quick &q)
{
    const KvVoteBoard &board = q.board.is;
    const uint32_t     lane = threadIdx.x % 32, warp = threadIdx.x / 32 - q.entry_warps, p = warp * q.one_peer >> 16;
    Post               post = {};

    post.unit = (warp - p * q.unit_warps) * 32 + lane;
    post.peer = board.rank + 1 + p;
    if (post.peer >= board.ranks) post.peer -= board.ranks;
    post.sends = post.unit < q.board.units;
    post.late = post.unit >= 1 && post.unit <= 3;
    const uint32_t own_at = (board.rank * q.board.units + post.unit) * (uint32_t)sizeof(Unit);
    const uint32_t peer_at = (post.peer * q.board.units + post.unit) * (uint32_t)sizeof(Unit);
    uint8_t       *block = board.base + board.rank * board.stride;
    post.there = board.base + post.peer * board.stride + own_at;
    post.home = p == 0 && post.sends && post.peer != board.rank ? block + own_at : nullptr;
    post.from = post.peer != board.rank && post.sends ? block + peer_at : nullptr;
    return post;
}

struct Six { /* a unit's counts, as loaded */
    uint32_t accepted[6], staged[6];
};

/* Unit u holds the counts of entries 6u - 32 to 6u - 27, as far as there are such. */
__device__ __forceinline__ Six load_counts(const Quick &q, uint32_t unit)
{
    const KvVoteAhead at = kvg_vote_ahead_at(q.arrays.ahead, q.arrays.entries);
    Six               six;

#pragma unroll
    for (int i = 0; i < 6; i++) {
        const uint32_t e = 6 * unit + i - 32; /* wraps for the header's units: then there is none */
        const bool     within = e < q.arrays.entries;
        six.staged[i] = within ? load_four(&at.span[e].staged) : KVG_VOTE_SPAN_NONE;
        six.accepted[i] = q.arrays.accepted != nullptr && within ? load_four(&q.arrays.accepted[e]) : six.staged[i];
    }
    return six;
}

/* The words of a unit that need no digest; without branches, since a warp holds all kinds. */
__device__ __forceinline__ Unit early_unit(const Quick &q, const KvVoteWords &words, const Six &six, uint32_t u)
{
    const bool     step = u == 0, user = u == 3, decided = u == 4;
    const uint64_t pair = step ? words.step : decided ? words.decided : 0; /* words 0 and 1 */
    Unit           unit;

    unit.word[0] = stored_of(six.staged[0], six.accepted[0]) | stored_of(six.staged[1], six.accepted[1]) << 16;
    unit.word[1] = stored_of(six.staged[2], six.accepted[2]) | stored_of(six.staged[3], six.accepted[3]) << 16;
    unit.word[2] = stored_of(six.staged[4], six.accepted[4]) | stored_of(six.staged[5], six.accepted[5]) << 16;
    unit.word[0] |= (uint32_t)pair | (u == 1 ? q.board.is.rank << 16 : 0); /* counts of the header's units are 0 */
    unit.word[1] |= (uint32_t)(pair >> 32) | (user ? (uint32_t)words.user : 0);
    unit.word[2] |= step ? words.epoch : user ? (uint32_t)(words.user >> 32) : decided ? words.count : 0;
    unit.tag = kvg_vote_tag(words.step, words.epoch);
    return unit;
}

/* The words that do, of units 1 to 3. */
__device__ __forceinline__ void late_unit(const KvVoteSums &sums, uint32_t u, bool bad, Unit &unit)
{
    const uint64_t accepted = bad ? 0 : sums.accepted;

    unit.word[0] = u == 1 ? unit.word[0] | (bad ? (uint32_t)(uint16_t)KVG_EINVAL : 0) : u == 2 ? (uint32_t)accepted : (uint32_t)(sums.layout >> 32);
    unit.word[1] = u == 1 ? (uint32_t)sums.targets : u == 2 ? (uint32_t)(accepted >> 32) : unit.word[1];
    unit.word[2] = u == 1 ? (uint32_t)(sums.targets >> 32) : u == 2 ? (uint32_t)sums.layout : unit.word[2];
}

/* Polls this thread's unit. A warp stays together. */
__device__ __forceinline__ uint32_t poll_unit(const Quick &q, const Post &post, Unit &unit, bool &here)
{
    const uint32_t awaited = post.own.tag;
    Patience       patience = {0, 0, false, 0};

    here = post.from == nullptr;
    for (uint32_t polls = 1;; polls++) {
        if (!here) {
            unit = load_unit(post.from);
            here = kvg_vote_tag_fits(unit.tag, awaited);
        }
        if (__all_sync(ALL, here)) return 0;
        if (patience.why != 0) return patience.why; /* what remained was looked at once more, to tell who is missing */
        if (polls % POLLS_A_LOOK == 0) patience = look(q.board.is.control, patience);
    }
}

/* ---- what is not the common case */

/* Not ready, no counts, or nothing formed ahead. */
__device__ __noinline__ void slow_step(const Quick &q, uint32_t *records, Shared &shared)
{
    const KvVoteWords words = *q.arrays.words;
    vote_step<true, true>(q.board, q.arrays, words, records, shared);
}

/* Records that differ, or are missing: all of them into shared memory, and decided on there. */
__device__ __noinline__ void slow_verdict(const Quick &q, const Post *post, const Unit *unit, Missed missed, uint32_t *records, Shared &shared)
{
    const KvVoteWords words = *q.arrays.words;
    KvVoteEntry       mine = {-1, 0, 0, 0, 0, 0};

    if (__syncthreads_or(missed.why != 0)) {
        give_up(q.board, q.arrays, words, missed, shared);
        return;
    }
    if (threadIdx.x < q.board.is.ranks) shared.record[threadIdx.x] = KVG_VOTE_RECORD_AT(records + threadIdx.x * q.board.record_words);
    if (post->sends && (post->home != nullptr || post->peer == q.board.is.rank)) {
        uint32_t *to = records + q.board.is.rank * q.board.record_words + post->unit * KVG_VOTE_UNIT_WORDS;
        to[0] = post->own.word[0], to[1] = post->own.word[1], to[2] = post->own.word[2];
    }
    if (post->from != nullptr) {
        uint32_t *to = records + post->peer * q.board.record_words + post->unit * KVG_VOTE_UNIT_WORDS;
        to[0] = unit->word[0], to[1] = unit->word[1], to[2] = unit->word[2];
    }
    __syncthreads();
    if (threadIdx.x < q.arrays.entries) mine = kvg_vote_entry(&q.arrays, threadIdx.x);
    decide(q.board, q.arrays, words, mine, shared);
}

/* ---- all of it */

template <class Marks>
__global__ void __launch_bounds__(QUICK_WARPS_MAX * 32) quick_kernel(const __grid_constant__ Quick q, const Marks marks)
{
    KVG_VOTE_DYNAMIC_SHARED(uint32_t, records); /* [ranks][record_words], and one more for vote_step; used by slow cases */
    __shared__ Shared   shared;
    __shared__ uint64_t accepted_sums[QUICK_WARPS_MAX];
    __shared__ uint32_t owed;
    const KvVoteArrays &arrays = q.arrays;
    const uint32_t      e = threadIdx.x, lane = threadIdx.x % 32;
    const bool          seated = e < 32 * q.entry_warps;
    KvVoteWords         words;
    KvVoteSums          sums = {0, 0, 0};
    Seat                seat = {};
    Post                post = {};
    Plan                plan = {};
    Unit                unit = {{0, 0, 0}, 0};
    uint32_t            stored = 0;
    bool                cannot = false;
    Missed              missed = {0, q.board.is.ranks};
    bool                agrees = true, here = true;

    marks.at(0);
    if (threadIdx.x == 0) owed = 0;
    if (seated) { /* 1, 2 */
        seat = load_seat(arrays, e);
        words = load_words(arrays.words);
        if (words.ahead == words.step) load_by_slot(arrays, seat); /* else slots are not known yet */
        stored = stored_of(seat.span.staged, seat.accepted);
        cannot = count_bad(seat.span.staged, seat.accepted);
        sums.accepted = kvg_mix_joined(seat.term.place, seat.term.mark, stored);
        if (seat.slot < 0) sums.accepted = 0;
        sums.accepted = warp_sum(sums.accepted);
        if (lane == 0) accepted_sums[e / 32] = sums.accepted;
    } else {
        const KvVoteAhead at = kvg_vote_ahead_at(arrays.ahead, arrays.entries);
        words = load_words(arrays.words);
        if (lane < q.entry_warps) load_pair(&at.sums[lane], sums.targets, sums.layout);
        post = post_of(q);
        const Six      six = load_counts(q, post.unit);
        const uint32_t slot = ((uint32_t)words.step & (q.board.is.slots - 1)) * q.slot_bytes;
        post.there += slot;
        if (post.home != nullptr) post.home += slot;
        if (post.from != nullptr) post.from += slot;
        post.own = early_unit(q, words, six, post.unit);
    }
    marks.at(1);
    if (words.stop != 0) return;
    if (words.status != 0 || words.accepts == 0 || words.ahead != words.step) {
        __syncthreads();
        slow_step(q, records, shared);
        return;
    }
    if (!seated) {
        if (post.sends && !post.late) store_unit(post.there, post.own);
        sums.targets = words.running + warp_sum(sums.targets), sums.layout = words.layout + warp_sum(sums.layout);
    }
    marks.at(2);
    const bool bad = __syncthreads_or(cannot);
    marks.at(3);
    if (seated) { /* 3 */
        plan = plan_publish(arrays, words, seat, stored, e);
        if (plan.column.behind) owed = 1;
    } else {
        sums.accepted = warp_sum(lane < q.entry_warps ? accepted_sums[lane] : 0);
        if (post.sends && post.late) {
            sums.targets = kvg_digest_seal(sums.targets), sums.accepted = kvg_digest_seal(sums.accepted), sums.layout = kvg_digest_seal(sums.layout);
            late_unit(sums, post.unit, bad, post.own);
            store_unit(post.there, post.own);
        }
        marks.at(4);
        if (post.home != nullptr) store_unit(post.home, post.own);
        missed.why = poll_unit(q, post, unit, here);
        if (!here) missed.rank = post.peer;
        agrees = here && missed.why == 0 && (post.from == nullptr || kvg_vote_unit_agrees(post.unit, post.own.word, unit.word) != 0);
        marks.at(5);
    }
    if (!__syncthreads_and(agrees && !bad)) {
        const Post post_copy = post; /* so that the common case keeps its own in registers */
        const Unit unit_copy = unit;
        slow_verdict(q, &post_copy, &unit_copy, missed, records, shared);
        return;
    }
    marks.at(6);
    const uint32_t stop = kvg_vote_stop_after(words.step, words.last, owed != 0);
    if (threadIdx.x == 32 * q.entry_warps) { /* 4 */
        KvVoteWords *to = arrays.words;
        store_host(arrays.outcome, kvg_vote_word_of(words.step, KVG_VOTE_PUBLISH + 1u, 0, 0, 0, 0));
        to->step = words.step + words.advance, to->decided = words.step;
        to->posted = 0, to->ahead = stop == KVG_VOTE_RUNS ? words.step + words.advance : 0;
        if (stop != KVG_VOTE_RUNS) to->stop = stop;
    }
    if (seated) store_plan(arrays, words, seat, plan, e, stop == KVG_VOTE_RUNS);
    marks.at(7);
}

} // namespace
#endif

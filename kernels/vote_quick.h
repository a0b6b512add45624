/* Vote, the quick kernels: post and decide at once, in a stage of its own; post alone and decide alone, whatever the stages. For .cu files alone.
 * Private.
 *
 * Bound by latency: the launch, one round of loads, a digest over the accepted counts, one store across NVLink, the poll that sees the peers';
 * and by instructions: code that is run once arrives at some fifty cycles for eight of them. So the block is cut in kinds of warps that each have
 * little to do before the record leaves, what can be done while records travel is done then, and what is done several times stands once.
 *
 *   entry warps         state warps           late warp               head warp              unit warps
 *   a thread an entry   a thread an entry     units 1 to 3 of all     words                  the other units of a peer
 *   1 load ahead,       load ahead, counts    load words, the sums    load words
 *     counts                                  formed ahead
 *   2 digest, counts                                                  header, verdict's
 *     to shared memory                                                words to shared memory
 *   ---------------------------- barrier: is there a count that cannot be? ------------------------------------------
 *   3 as if published:  columns, bases,       store status, targets,                         store step, epoch, counts
 *     lengths, targets  layout                accepted, layout, user
 *   4                                         poll the peer's unit, compare it with          likewise
 *                                             the own one
 *   ---------------------------- barrier: do all agree? -------------------------------------------------------------
 *   5 store that        store that                                    outcome word, words
 *
 * Post alone is steps 1 to 3 of it without state warps. Decide alone awaits all records in shared memory, decides by the rule itself, and then lets
 * entry and state warps do what is left of 3 and 5.
 *
 * What `ahead` holds was formed by the step before, so no load waits for another. A step that is not ready here, passes no counts, or was not
 * formed ahead goes through vote_step instead; one on which not all agree, or whose records do not come, is decided from shared memory by the
 * same functions. */
#ifndef KVG_VOTE_QUICK_H
#define KVG_VOTE_QUICK_H

#include "kernels/vote_device.h"

namespace {

enum { QUICK_WARPS_MAX = 32, QUICK_ENTRY_WARPS_MAX = 12 };
enum { LATE_UNITS = 3, LATE_FIRST = 1, QUICK_PEERS_MAX = 32 / LATE_UNITS };
enum { GO_STOPPED = 0, GO_QUICK = 1, GO_SLOW = 2 };
enum { IMAGE_DECIDED = 12, IMAGE_COUNTS = KVG_VOTE_HEADER_WORDS, IMAGE_WORDS = IMAGE_COUNTS + 32 * 16 + 2 * KVG_VOTE_UNIT_WORDS };

struct Quick { /* by value: what is needed first stands first, since it comes 64 bytes at a time */
    uint32_t           entry_warps, late_warp; /* late_warp: the first behind entry and state warps; then the head warp, then unit warps */
    KvVoteAhead        at;
    const KvVoteWords *words;
    uint32_t           unit_warps, one_peer;   /* unit warps a peer; 2^16 / unit_warps, rounded up: warps are told apart by it */
    uint32_t           peers, units, slots, slot_bytes;
    uint32_t           by_slot, threads;       /* by_slot: there are columns or bases */
    KvVoteArrays       arrays;
    uint8_t           *own;                    /* this rank's record in its own block, of slot 0 */
    uint8_t           *to[QUICK_PEERS_MAX];    /* the same in each peer's block */
    uint8_t           *from[QUICK_PEERS_MAX];  /* that peer's record in the own block; NULL: nothing comes */
    Board              board;
};

/* When and where: of the bench alone. */
struct NoMarks {
    __device__ __forceinline__ void at(int) const {}
};

/* ---- sizes, on the host */

__host__ uint32_t quick_unit_warps(const KvVoteBoard &board)
{
    return kvg_vote_warps(kvg_vote_units(board.sequences_max) - LATE_UNITS);
}

__host__ uint32_t quick_peers(const KvVoteBoard &board)
{
    return board.ranks > 1 ? board.ranks - 1 : 1; /* alone, a rank is its own peer and awaits nobody */
}

__host__ bool quick_shapes(const KvVoteBoard &board, const KvVoteArrays &arrays, uint32_t warps)
{
    return arrays.ahead != nullptr && arrays.entries > 0 && arrays.entries <= board.sequences_max && board.sequences_max <= 1024 &&
           kvg_vote_warps(arrays.entries) <= QUICK_ENTRY_WARPS_MAX && warps <= QUICK_WARPS_MAX;
}

__host__ uint32_t quick_post_warps(const KvVoteBoard &board, const KvVoteArrays &arrays, uint32_t warps_an_entry)
{
    return warps_an_entry * kvg_vote_warps(arrays.entries) + 2 + quick_peers(board) * quick_unit_warps(board);
}

/* Post and decide: one stage, all in registers. */
__host__ bool quick_serves(const KvVoteBoard &board, const KvVoteArrays &arrays)
{
    return board.ranks == board.tp && quick_peers(board) <= QUICK_PEERS_MAX && quick_shapes(board, arrays, quick_post_warps(board, arrays, 2));
}

__host__ bool quick_posts(const KvVoteBoard &board, const KvVoteArrays &arrays)
{
    return quick_peers(board) <= QUICK_PEERS_MAX && quick_shapes(board, arrays, quick_post_warps(board, arrays, 1));
}

__host__ bool quick_decides(const KvVoteBoard &board, const KvVoteArrays &arrays)
{
    return quick_shapes(board, arrays, 2 * kvg_vote_warps(arrays.entries));
}

__host__ Quick quick_of_any(const KvVoteBoard &is, const KvVoteArrays &arrays)
{
    Quick quick = {};

    quick.entry_warps = kvg_vote_warps(arrays.entries);
    quick.at = kvg_vote_ahead_at(arrays.ahead, arrays.entries);
    quick.words = arrays.words;
    quick.units = kvg_vote_units(is.sequences_max);
    quick.slots = is.slots;
    quick.slot_bytes = is.ranks * quick.units * (uint32_t)sizeof(Unit);
    quick.by_slot = arrays.columns != 0;
    for (uint32_t c = 0; c < arrays.classes; c++) quick.by_slot |= arrays.class_at[c].base_row != nullptr;
    quick.arrays = arrays;
    quick.board = {is, quick.units, kvg_vote_record_words(is.sequences_max)};
    return quick;
}

/* What posts: state: with state warps. */
__host__ Quick quick_of(const KvVoteBoard &is, const KvVoteArrays &arrays, bool state)
{
    const uint32_t record_bytes = kvg_vote_units(is.sequences_max) * (uint32_t)sizeof(Unit);
    uint8_t       *block = is.base + is.rank * is.stride;
    Quick          quick = quick_of_any(is, arrays);

    quick.late_warp = (state ? 2 : 1) * quick.entry_warps;
    quick.unit_warps = quick_unit_warps(is);
    quick.one_peer = (0x10000u + quick.unit_warps - 1) / quick.unit_warps;
    quick.peers = quick_peers(is);
    quick.threads = 32 * quick_post_warps(is, arrays, state ? 2 : 1);
    quick.own = block + is.rank * record_bytes;
    for (uint32_t p = 0; p < quick.peers; p++) {
        const uint32_t peer = (is.rank + 1 + p) % is.ranks;
        quick.to[p] = is.base + peer * is.stride + is.rank * record_bytes;
        quick.from[p] = peer != is.rank ? block + peer * record_bytes : nullptr;
    }
    return quick;
}

/* What decides alone: entry and state warps, and as many as there are units. */
__host__ Quick quick_decide_of(const KvVoteBoard &is, const KvVoteArrays &arrays)
{
    Quick          quick = quick_of_any(is, arrays);
    const uint32_t units = kvg_vote_warps(is.ranks * quick.units), warps = 2 * quick.entry_warps > units ? 2 * quick.entry_warps : units;

    quick.threads = 32 * (warps < QUICK_WARPS_MAX ? warps : (uint32_t)QUICK_WARPS_MAX);
    return quick;
}

/* Where slow cases decide: [ranks][record_words] and one more for vote_step. */
__host__ size_t quick_shared_bytes(const Quick &quick)
{
    return sizeof(uint32_t) * quick.board.record_words * (quick.board.is.ranks + 1);
}

/* ---- what stands once. Each time but the first it is there already */

__device__ __noinline__ uint64_t mix_once(uint64_t value)
{
    return kvg_mix64(value);
}

__device__ __noinline__ uint64_t sum_once(uint64_t value)
{
    return warp_sum(value);
}

/* Barriers that kinds of warps come to from different places, through one. */
__device__ __noinline__ bool meet_asking(bool mine) /* true where any says so */
{
    return __syncthreads_or(mine) != 0;
}

__device__ __noinline__ bool meet_agreeing(bool mine) /* true where all do */
{
    return __syncthreads_and(mine) != 0;
}

__device__ __forceinline__ uint64_t mix_joined(uint64_t place, uint64_t mark, uint64_t value) /* kvg_mix_joined */
{
    return mix_once(place ^ mix_once(mark + value));
}

/* ---- shared memory */

struct Head { /* of the step, for all warps */
    uint32_t tag, slot, go, count; /* slot: in bytes */
    uint32_t is_last, owed, passes; /* passes: accepted counts */
};

struct Front { /* from warps to warps */
    __align__(16) Head     head;
    __align__(16) uint32_t image[IMAGE_WORDS]; /* the own record: what unit warps send of it */
    __align__(16) uint64_t accepted[QUICK_ENTRY_WARPS_MAX];
};

/* ---- 1, 2: entry warps */

/* Counts, as kvg_vote_stored and kvg_vote_count_bad have them, without branches. */
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

struct Seat { /* a thread's entry */
    KvVoteAheadSpan span;
    uint32_t        accepted, next_rows;
    int32_t         slot;
};

__device__ __forceinline__ Seat load_seat(const Quick &q, uint32_t e)
{
    const KvVoteArrays &arrays = q.arrays;
    const bool          within = e < arrays.entries;
    const uint64_t      span = load_eight(&q.at.span[e]);
    Seat                seat;

    seat.span = KvVoteAheadSpan{(uint32_t)span, (uint32_t)(span >> 32)};
    seat.accepted = arrays.accepted != nullptr && within ? load_four(&arrays.accepted[e]) : seat.span.staged;
    seat.slot = (int32_t)load_four(&q.at.slot[e]);
    seat.next_rows = arrays.next_rows != nullptr && within ? load_four(&arrays.next_rows[e]) : 0;
    return seat;
}

__device__ __forceinline__ uint32_t taken_of(const Seat &seat, uint32_t stored)
{
    return stored == KVG_VOTE_ACCEPTED_ALL ? seat.span.staged : stored;
}

/* Lengths, as if taken; where they go. */
struct Lengths {
    uint32_t        *len, *len_staged, *rows, *first_row, *taken;
    KvVoteAheadSpan *span;
    uint32_t         has, has_rows, has_first, has_taken; /* 1: there is one */
    uint32_t         takes, to, next_rows;                /* to: the length */
};

__device__ __forceinline__ Lengths lengths_of(const Quick &q, const Seat &seat, uint32_t e, uint32_t stored, uint32_t count, bool last)
{
    const KvVoteArrays &arrays = q.arrays;
    const bool          has = seat.span.staged != KVG_VOTE_SPAN_NONE;
    const uint32_t      slot = has ? (uint32_t)seat.slot : 0;
    Lengths             to;

    to.has = has;
    to.has_rows = settled((uint32_t)(arrays.rows != nullptr && e < arrays.entries));
    to.has_first = settled((uint32_t)(arrays.first_row != nullptr && has));
    to.has_taken = settled((uint32_t)(arrays.taken != nullptr && e < count));
    to.takes = has ? taken_of(seat, stored) : 0;
    to.to = seat.span.len + to.takes;
    to.next_rows = has && !last ? seat.next_rows : 0;
    to.len = settled(arrays.len + slot);
    to.len_staged = settled(arrays.len_staged + slot);
    to.rows = settled(arrays.rows + e);
    to.first_row = settled(arrays.first_row + e);
    to.taken = settled(arrays.taken + e);
    to.span = settled(q.at.span + e);
    return to;
}

__device__ __forceinline__ void store_lengths(const Lengths &to, bool runs)
{
    store_four_if(to.has, to.len, to.to);
    store_four_if(to.has, to.len_staged, to.to + to.next_rows);
    store_two_if(to.has, to.span, to.to, to.next_rows);
    store_four_if(to.has_first, to.first_row, to.to);
    store_four_if(to.has_taken, to.taken, to.takes);
    store_four_if(to.has_rows, to.rows, runs ? to.next_rows : 0);
}

/* The targets of the next record, over a warp. */
__device__ __forceinline__ uint64_t next_targets(const KvVoteAheadTerm &term, const Lengths &to)
{
    const uint64_t next = mix_joined(term.place, term.mark, (uint64_t)to.to + to.next_rows);
    return sum_once(to.has != 0 ? next : 0);
}

struct Seated {
    KvVoteAheadTerm term;
    Seat            seat;
    uint32_t        stored;
};

/* The digest of a warp's counts, and the counts, to shared memory; up to the barrier. */
__device__ __forceinline__ Seated hand_counts(const Quick &q, uint32_t e, Front &front)
{
    Seated at;

    load_pair(&q.at.term[e], at.term.place, at.term.mark);
    at.seat = load_seat(q, e);
    at.stored = stored_of(at.seat.span.staged, at.seat.accepted);
    const uint64_t mixed = mix_joined(at.term.place, at.term.mark, at.stored), sum = sum_once(at.seat.span.staged != KVG_VOTE_SPAN_NONE ? mixed : 0);
    reinterpret_cast<uint16_t *>(front.image + IMAGE_COUNTS)[e] = (uint16_t)at.stored;
    if (e % 32 == 0) front.accepted[e / 32] = sum;
    return at;
}

/* False: this step is not decided here. */
template <class Marks> __device__ __forceinline__ bool entry_warp(const Quick &q, uint32_t e, Front &front, uint32_t &go, const Marks &marks)
{
    const Seated at = hand_counts(q, e, front);

    marks.at(1);
    meet_asking(count_bad(at.seat.span.staged, at.seat.accepted));
    marks.at(2);
    go = front.head.go;
    if (go != GO_QUICK) return false;
    const Lengths  to = lengths_of(q, at.seat, e, at.stored, front.head.count, front.head.is_last != 0);
    const uint64_t targets = next_targets(at.term, to);
    const uint32_t columns = settled(q.arrays.columns);
    marks.at(3);
    if (!meet_agreeing(true)) return false;
    marks.at(6);
    store_lengths(to, columns == 0 || front.head.owed == 0);
    if (e % 32 == 0) q.at.sums[e / 32].targets = targets;
    marks.at(7);
    return true;
}

/* ---- state warps: columns, bases and layout, as if published by the own counts; then for good */

struct Moved {
    KvVoteColumn column;
    uint32_t     raised; /* a bit a class */
    uint64_t     layout; /* this entry's part of the next record's */
};

__device__ __forceinline__ Moved move_state(const KvVoteArrays &arrays, const Seat &seat, uint32_t e, uint32_t taken, uint32_t next_rows)
{
    const uint32_t len = seat.span.len + taken;
    Moved          moved = {};

    if (arrays.columns != 0) {
        const int32_t read = (int32_t)load_four(&arrays.read[seat.slot]), each = (int32_t)load_four(&arrays.each[seat.slot]);
        moved.column = kvg_vote_column(arrays.columns, read, each, seat.span.staged, taken, next_rows);
    }
#pragma unroll 1
    for (uint32_t c = 0; c < arrays.classes; c++) {
        const KvVoteClass at = arrays.class_at[c];
        const uint64_t    place = mix_once(e * 0x9e3779b97f4a7c15u + c); /* kvg_mix_place */
        const uint32_t    least = kvg_vote_base(at.keep, len);
        uint32_t          base = at.base_row != nullptr ? load_four(&at.base_row[seat.slot]) : 0;
        if (at.base_row != nullptr && least > base && moved.column.behind == 0) moved.raised |= 1u << c, base = least;
        moved.layout += mix_joined(place, kvg_mix_mark(base), (uint64_t)len + next_rows);
    }
    return moved;
}

__device__ __forceinline__ void store_state(const KvVoteArrays &arrays, const Seat &seat, const Moved &moved, uint32_t len)
{
    if (arrays.columns != 0) {
        arrays.read[seat.slot] = moved.column.read;
        arrays.write[seat.slot] = moved.column.write;
        arrays.each[seat.slot] = moved.column.each;
    }
    for (uint32_t c = 0; moved.raised >> c != 0; c++) {
        if (moved.raised >> c & 1) arrays.class_at[c].base_row[seat.slot] = kvg_vote_base(arrays.class_at[c].keep, len);
    }
}

/* What `ahead` says of slots is only followed once it is known to be of this step. Where nothing goes by slot that need not be waited for: then
 * what comes of something else is thrown away. */
__device__ __forceinline__ bool state_warp(const Quick &q, uint32_t e, Front &front, uint32_t &go)
{
    const KvVoteArrays &arrays = q.arrays;
    const Seat          seat = load_seat(q, e);
    const bool          has = seat.span.staged != KVG_VOTE_SPAN_NONE;
    const uint32_t      taken = taken_of(seat, stored_of(seat.span.staged, seat.accepted));
    uint32_t            next_rows = seat.next_rows;
    Moved               moved = {};

    if (q.by_slot != 0) {
        meet_asking(false);
        go = front.head.go;
        if (go != GO_QUICK) return false;
        if (front.head.is_last != 0) next_rows = 0;
    }
    if (has) moved = move_state(arrays, seat, e, taken, next_rows);
    const uint64_t layout = sum_once(moved.layout);
    if (q.by_slot == 0) {
        meet_asking(false);
        go = front.head.go;
        if (go != GO_QUICK) return false;
    }
    if (moved.column.behind) atomicOr(&front.head.owed, 1u);
    if (!meet_agreeing(true)) return false;
    if (e % 32 == 0) q.at.sums[e / 32].layout = layout;
    if (has && q.by_slot != 0) store_state(arrays, seat, moved, seat.span.len + taken);
    return true;
}

/* ---- units */

struct Post { /* a unit of the own record, for the p-th peer */
    Unit     own;
    uint8_t *there;
    uint32_t unit, p, slot; /* slot: in bytes */
    bool     sends;
};

__device__ __forceinline__ uint32_t peer_of(const Quick &q, uint32_t p)
{
    const uint32_t peer = q.board.is.rank + 1 + p;
    return peer >= q.board.is.ranks ? peer - q.board.is.ranks : peer;
}

/* As of slot 0. */
__device__ __forceinline__ Post post_of(const Quick &q, uint32_t p, uint32_t unit)
{
    Post post = {};

    post.unit = unit;
    post.sends = p < q.peers && unit < q.units;
    post.p = post.sends ? p : 0;
    post.there = q.to[post.p] + unit * sizeof(Unit);
    return post;
}

__device__ __forceinline__ Post unit_warp_post(const Quick &q)
{
    const uint32_t warp = threadIdx.x / 32 - q.late_warp - 2, p = warp * q.one_peer >> 16;
    const uint32_t v = (warp - p * q.unit_warps) * 32 + threadIdx.x % 32;

    return post_of(q, p, v < LATE_FIRST ? v : v + LATE_UNITS);
}

/* ---- 1, 2: the late warp's units, as far as they do not depend on counts */

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

/* What decides at once wants counts of its own; what posts alone does not. */
template <bool DECIDES> __device__ __forceinline__ uint32_t go_of(const KvVoteWords &words)
{
    const bool ready = words.status == 0 && (!DECIDES || words.accepts != 0) && words.ahead == words.step;
    return words.stop != 0 ? GO_STOPPED : ready ? GO_QUICK : GO_SLOW;
}

__device__ __forceinline__ uint32_t slot_of(const Quick &q, uint64_t step)
{
    return ((uint32_t)step & (q.slots - 1)) * q.slot_bytes;
}

template <bool DECIDES> __device__ __forceinline__ Post form_late(const Quick &q, uint32_t &go, bool &passes)
{
    const uint32_t    lane = threadIdx.x % 32, u = LATE_FIRST + lane % LATE_UNITS;
    const KvVoteWords words = load_words(q.words);
    KvVoteAheadSums   part = {0, 0};

    if (lane < q.entry_warps) load_pair(&q.at.sums[lane], part.targets, part.layout);
    Post post = post_of(q, lane / LATE_UNITS, u);
    const uint64_t targets = kvg_digest_seal(words.running + sum_once(part.targets)), layout = kvg_digest_seal(words.layout + sum_once(part.layout));
    post.own.word[0] = u == 1 ? q.board.is.rank << 16 : (uint32_t)(layout >> 32);
    post.own.word[1] = (uint32_t)(u == 1 ? targets : words.user);
    post.own.word[2] = (uint32_t)(u == 1 ? targets >> 32 : u == 2 ? layout : words.user >> 32);
    post.own.tag = kvg_vote_tag(words.step, words.epoch);
    post.slot = slot_of(q, words.step);
    post.there += post.slot;
    passes = words.accepts != 0;
    go = go_of<DECIDES>(words);
    return post;
}

/* ---- 3: the record goes */

__device__ __forceinline__ uint64_t handed_sum(const Front &front, uint32_t warps)
{
    const uint32_t lane = threadIdx.x % 32;

    if (warps <= 2) return front.accepted[0] + (warps == 2 ? front.accepted[1] : 0);
    return sum_once(lane < warps ? front.accepted[lane] : 0);
}

/* The counts' digest into unit 2; a count that cannot be, into unit 1, and then there is no digest. */
__device__ __forceinline__ bool send_late(const Quick &q, const Front &front, uint32_t go, bool passes, Post &post)
{
    const bool     bad = meet_asking(false) && passes, none = bad || !passes;
    const uint64_t accepted = kvg_digest_seal(handed_sum(front, q.entry_warps));

    if (post.unit == 2) post.own.word[0] = none ? 0 : (uint32_t)accepted, post.own.word[1] = none ? 0 : (uint32_t)(accepted >> 32);
    if (post.unit == 1 && bad) post.own.word[0] |= (uint32_t)(uint16_t)KVG_EINVAL;
    store_unit_if(post.sends & (go == GO_QUICK), post.there, post.own);
    return bad;
}

__device__ __forceinline__ bool send_unit(const Quick &q, Front &front, uint32_t &go, Post &post)
{
    const uint32_t end = IMAGE_COUNTS + 16 * q.entry_warps, k = post.unit * KVG_VOTE_UNIT_WORDS;

#pragma unroll
    for (uint32_t w = 0; w < KVG_VOTE_UNIT_WORDS; w++) {
        if (post.sends && post.p == 0 && k + w >= end) front.image[k + w] = 0; /* there are no counts past it */
    }
    const bool bad = meet_asking(false);
    go = front.head.go;
    const bool counts = front.head.passes != 0; /* else there are none */
    post.own.tag = front.head.tag;
#pragma unroll
    for (uint32_t w = 0; w < KVG_VOTE_UNIT_WORDS; w++) post.own.word[w] = counts || k + w < IMAGE_COUNTS ? front.image[k + w] : 0;
    post.slot = front.head.slot;
    store_unit_if(post.sends & (go == GO_QUICK), post.there + post.slot, post.own);
    return bad;
}

/* ---- 4 */

/* Polls this thread's unit. A warp stays together. */
__device__ __forceinline__ uint32_t poll_unit(const Quick &q, const uint8_t *from, uint32_t awaited, Unit &unit, bool &here)
{
    Patience patience = {0, 0, false, 0};

    here = from == nullptr;
    for (uint32_t polls = 1;; polls++) {
        if (!here) {
            unit = load_unit(from);
            here = kvg_vote_tag_fits(unit.tag, awaited);
        }
        if (__all_sync(ALL, here)) return 0;
        if (patience.why != 0) return patience.why; /* what remained was looked at once more, to tell who is missing */
        if (polls % POLLS_A_LOOK == 0) patience = look(q.board.is.control, patience);
    }
}

struct Heard {
    Unit   unit; /* the peer's */
    Missed missed;
    bool   comes; /* there is a peer that sends one */
};

/* The own record into the own block; then the peer's. True: it is here and agrees. */
template <class Marks> __device__ __forceinline__ bool hear(const Quick &q, const Post &post, Heard &heard, const Marks &marks)
{
    const uint32_t at = post.slot + post.unit * (uint32_t)sizeof(Unit);
    const uint32_t mask0 = settled(kvg_vote_unit_mask(post.unit, 0)), mask = settled(kvg_vote_unit_mask(post.unit, 1));
    const uint8_t *from = q.from[post.p];
    bool           here;

    heard.comes = post.sends && from != nullptr;
    store_unit_if(heard.comes & (post.p == 0), q.own + at, post.own);
    heard.unit = post.own;
    heard.missed.why = poll_unit(q, heard.comes ? from + at : nullptr, post.own.tag, heard.unit, here);
    marks.at(5);
    const uint32_t wrong = ((heard.unit.word[0] ^ post.own.word[0]) & mask0) | ((heard.unit.word[1] ^ post.own.word[1]) & mask) |
                           ((heard.unit.word[2] ^ post.own.word[2]) & mask);
    heard.missed.rank = here ? q.board.is.ranks : peer_of(q, post.p);
    return (wrong | heard.missed.why) == 0;
}

/* ---- the head warp: for all warps what they need of the words; at the end the outcome word, and the words. Its first thread's to store */

__device__ __forceinline__ void put_head(const Quick &q, const KvVoteWords &words, uint32_t go, Front &front)
{
    front.head = Head{kvg_vote_tag(words.step, words.epoch), slot_of(q, words.step), go, words.count, words.step == words.last, 0, words.accepts};
    front.image[0] = (uint32_t)words.step, front.image[1] = (uint32_t)(words.step >> 32), front.image[2] = words.epoch;
    front.image[IMAGE_DECIDED] = (uint32_t)words.decided, front.image[IMAGE_DECIDED + 1] = (uint32_t)(words.decided >> 32);
    front.image[IMAGE_DECIDED + 2] = words.count, front.image[IMAGE_DECIDED + 3] = 0;
}

__device__ __forceinline__ bool head_warp(const Quick &q, Front &front, uint32_t &go)
{
    const KvVoteWords words = load_words(q.words);

    go = go_of<true>(words);
    if (threadIdx.x % 32 == 0) put_head(q, words, go, front);
    meet_asking(false);
    if (go != GO_QUICK) return false;

    const uint64_t next = words.step + words.advance, word = kvg_vote_word_of(words.step, KVG_VOTE_PUBLISH + 1u, 0, 0, 0, 0);
    KvVoteWords   *to = settled(q.arrays.words);
    uint64_t      *outcome = settled(q.arrays.outcome);
    const uint32_t columns = settled(q.arrays.columns);
    uint32_t       stop = settled(kvg_vote_stop_after(words.step, words.last, 0));

    if (!meet_agreeing(true)) return false;
    if (threadIdx.x % 32 != 0) return true;
    store_host(outcome, word);
    if (columns != 0) stop = kvg_vote_stop_after(words.step, words.last, front.head.owed != 0);
    store_pair_if(1, &to->step, next, words.step);
    store_pair_if(1, &to->posted, 0, stop == KVG_VOTE_RUNS ? next : 0);
    if (stop != KVG_VOTE_RUNS) to->stop = stop;
    return true;
}

/* ---- what is not the common case */

/* Not ready, no counts, or nothing formed ahead. */
__device__ __noinline__ void slow_step(const Quick &q, uint32_t *records, Shared &shared)
{
    const KvVoteWords words = *q.arrays.words;
    vote_step<true, true>(q.board, q.arrays, words, records, shared);
}

/* Records that differ, or are missing: all of them into shared memory, and decided on there. */
__device__ __noinline__ void slow_verdict(const Quick &q, const Post *post, const Heard *heard, uint32_t *records, Shared &shared)
{
    const KvVoteWords words = *q.arrays.words;
    KvVoteEntry       mine = {-1, 0, 0, 0, 0, 0};

    if (__syncthreads_or(heard->missed.why != 0)) {
        give_up(q.board, q.arrays, words, heard->missed, shared);
        return;
    }
    if (threadIdx.x < q.board.is.ranks) shared.record[threadIdx.x] = KVG_VOTE_RECORD_AT(records + threadIdx.x * q.board.record_words);
    if (post->sends && post->p == 0) {
        uint32_t *to = records + q.board.is.rank * q.board.record_words + post->unit * KVG_VOTE_UNIT_WORDS;
        to[0] = post->own.word[0], to[1] = post->own.word[1], to[2] = post->own.word[2];
    }
    if (heard->comes) {
        uint32_t *to = records + peer_of(q, post->p) * q.board.record_words + post->unit * KVG_VOTE_UNIT_WORDS;
        to[0] = heard->unit.word[0], to[1] = heard->unit.word[1], to[2] = heard->unit.word[2];
    }
    __syncthreads();
    if (threadIdx.x < q.arrays.entries) mine = kvg_vote_entry(&q.arrays, threadIdx.x);
    decide(q.board, q.arrays, words, mine, shared);
}

/* ---- all of it */

/* A step that the quick way was not for, or did not decide. post, heard: of those warps that have them. */
__device__ __noinline__ void go_slow(const Quick &q, uint32_t go, const Post *post, const Heard *heard, uint32_t *records, Shared &shared)
{
    const Post  none = {{{0, 0, 0}, 0}, nullptr, 0, 0, 0, false};
    const Heard nobody = {{{0, 0, 0}, 0}, {0, q.board.is.ranks}, false};

    if (go == GO_SLOW) slow_step(q, records, shared);
    else if (go == GO_QUICK) slow_verdict(q, post != nullptr ? post : &none, heard != nullptr ? heard : &nobody, records, shared);
}

template <class Marks>
__device__ __forceinline__ void unit_or_late_warp(const Quick &q, bool late, Front &front, uint32_t *records, Shared &shared, const Marks &marks)
{
    Heard    heard = {};
    Post     post;
    uint32_t go = GO_STOPPED;
    bool     bad;

    if (late) {
        bool passes = false;
        post = form_late<true>(q, go, passes);
        marks.at(1);
        bad = send_late(q, front, go, passes, post);
    } else {
        post = unit_warp_post(q);
        marks.at(1);
        bad = send_unit(q, front, go, post);
    }
    marks.at(4);
    if (go == GO_QUICK) {
        const bool agrees = hear(q, post, heard, marks);
        const bool all = meet_agreeing(agrees && !bad);
        marks.at(6);
        if (all) return;
    }
    const Post  post_copy = post; /* so that the common case keeps its own in registers */
    const Heard heard_copy = heard;
    go_slow(q, go, &post_copy, &heard_copy, records, shared);
}

template <class Marks>
__global__ void __launch_bounds__(QUICK_WARPS_MAX * 32) quick_kernel(const __grid_constant__ Quick q, const Marks marks)
{
    KVG_VOTE_DYNAMIC_SHARED(uint32_t, records);
    __shared__ Shared shared;
    __shared__ Front  front;
    const uint32_t    e = threadIdx.x, warp = threadIdx.x / 32, entry_warps = q.entry_warps, late_warp = q.late_warp;
    uint32_t          go = GO_STOPPED;

    marks.at(0);
    if (warp < entry_warps) {
        if (!entry_warp(q, e, front, go, marks)) go_slow(q, go, nullptr, nullptr, records, shared);
    } else if (warp < late_warp) {
        if (!state_warp(q, e - 32 * entry_warps, front, go)) go_slow(q, go, nullptr, nullptr, records, shared);
    } else if (warp == late_warp + 1) {
        if (!head_warp(q, front, go)) go_slow(q, go, nullptr, nullptr, records, shared);
    } else {
        unit_or_late_warp(q, warp == late_warp, front, records, shared, marks);
    }
}

/* ---- post alone */

__device__ __forceinline__ uint32_t post_entry_warp(const Quick &q, uint32_t e, Front &front)
{
    const Seated at = hand_counts(q, e, front);

    meet_asking(count_bad(at.seat.span.staged, at.seat.accepted));
    return front.head.go;
}

__device__ __forceinline__ uint32_t post_head_warp(const Quick &q, Front &front)
{
    const KvVoteWords words = load_words(q.words);
    const uint32_t    go = go_of<false>(words);

    if (threadIdx.x % 32 == 0) put_head(q, words, go, front);
    meet_asking(false);
    if (go == GO_QUICK && threadIdx.x % 32 == 0) q.arrays.words->posted = words.step;
    return go;
}

__device__ __forceinline__ uint32_t post_unit_or_late_warp(const Quick &q, bool late, Front &front)
{
    Post     post;
    uint32_t go = GO_STOPPED;

    if (late) {
        bool passes = false;
        post = form_late<false>(q, go, passes);
        send_late(q, front, go, passes, post);
    } else {
        post = unit_warp_post(q);
        send_unit(q, front, go, post);
    }
    const bool home = post.sends && post.p == 0 && q.from[0] != nullptr; /* alone, it is home already */
    store_unit_if(home & (go == GO_QUICK), q.own + post.slot + post.unit * sizeof(Unit), post.own);
    return go;
}

template <class Marks> /* of the test on a host, which tells blocks apart by it */
__global__ void __launch_bounds__(QUICK_WARPS_MAX * 32) quick_post_kernel(const __grid_constant__ Quick q, const Marks)
{
    KVG_VOTE_DYNAMIC_SHARED(uint32_t, records);
    __shared__ Shared shared;
    __shared__ Front  front;
    const uint32_t    warp = threadIdx.x / 32;
    uint32_t          go;

    if (warp < q.entry_warps) go = post_entry_warp(q, threadIdx.x, front);
    else if (warp == q.late_warp + 1) go = post_head_warp(q, front);
    else go = post_unit_or_late_warp(q, warp == q.late_warp, front);
    if (go != GO_SLOW) return;
    const KvVoteWords words = *q.arrays.words;
    vote_step<true, false>(q.board, q.arrays, words, records, shared);
}

/* ---- decide alone */

__device__ __forceinline__ void decide_entry(const Quick &q, const KvVoteWords &words, const Seat &seat, uint32_t e, const uint16_t *stored, bool runs)
{
    KvVoteAheadTerm term;

    load_pair(&q.at.term[e], term.place, term.mark);
    const Lengths  to = lengths_of(q, seat, e, e < q.arrays.entries ? stored[e] : 0, words.count, words.step == words.last);
    const uint64_t targets = next_targets(term, to);
    store_lengths(to, runs);
    if (e % 32 == 0) q.at.sums[e / 32].targets = targets;
}

__device__ __forceinline__ void tell_published(const KvVoteArrays &arrays, const KvVoteWords &words, uint32_t stop)
{
    const uint64_t next = words.step + words.advance;
    KvVoteWords   *to = arrays.words;

    store_host(arrays.outcome, kvg_vote_word_of(words.step, KVG_VOTE_PUBLISH + 1u, 0, 0, 0, 0));
    store_pair_if(1, &to->step, next, words.step);
    store_pair_if(1, &to->posted, 0, stop == KVG_VOTE_RUNS ? next : 0);
    if (stop != KVG_VOTE_RUNS) to->stop = stop;
}

/* All records are here and say publish; stored: the counts. seat: of the thread's entry, be it in an entry warp or in a state warp. */
__device__ __forceinline__ void publish_quick(const Quick &q, const KvVoteWords &words, const Seat &seat, const uint16_t *stored)
{
    const uint32_t entries = 32 * q.entry_warps, e = threadIdx.x < entries ? threadIdx.x : threadIdx.x - entries;
    const bool     entry = threadIdx.x < entries, state = !entry && threadIdx.x < 2 * entries, has = state && seat.span.staged != KVG_VOTE_SPAN_NONE;
    const uint32_t taken = has ? taken_of(seat, stored[e]) : 0;
    Moved          moved = {};
    int            owes = 0;

    if (has) moved = move_state(q.arrays, seat, e, taken, words.step == words.last ? 0 : seat.next_rows);
    if (q.arrays.columns != 0) owes = __syncthreads_or(moved.column.behind);
    const uint32_t stop = kvg_vote_stop_after(words.step, words.last, owes);
    if (threadIdx.x == 0) tell_published(q.arrays, words, stop);
    if (entry) decide_entry(q, words, seat, e, stored, stop == KVG_VOTE_RUNS);
    if (!state) return;
    const uint64_t layout = sum_once(moved.layout);
    if (e % 32 == 0) q.at.sums[e / 32].layout = layout;
    if (has && q.by_slot != 0) store_state(q.arrays, seat, moved, seat.span.len + taken);
}

/* Records in shared memory that say something else, or of a step that was not formed ahead. */
__device__ __noinline__ void decide_slow(const Quick &q, Shared &shared)
{
    KvVoteWords words = *q.arrays.words;
    KvVoteEntry mine = {-1, 0, 0, 0, 0, 0};

    words.step = words.posted;
    if (threadIdx.x < q.arrays.entries) mine = kvg_vote_entry(&q.arrays, threadIdx.x);
    __syncthreads(); /* all have read the words */
    decide(q.board, q.arrays, words, mine, shared);
}

template <class Marks>
__global__ void __launch_bounds__(QUICK_WARPS_MAX * 32) quick_decide_kernel(const __grid_constant__ Quick q, const Marks)
{
    KVG_VOTE_DYNAMIC_SHARED(uint32_t, records);
    __shared__ Shared shared;
    const uint32_t    entries = 32 * q.entry_warps, ranks = q.board.is.ranks;
    KvVoteWords       words = load_words(q.words);
    Seat              seat = {};

    if (threadIdx.x < 2 * entries) seat = load_seat(q, threadIdx.x < entries ? threadIdx.x : threadIdx.x - entries);
    if (words.stop != 0 || words.posted == 0) return;
    words.step = words.posted;
    if (threadIdx.x < ranks) shared.record[threadIdx.x] = KVG_VOTE_RECORD_AT(records + threadIdx.x * q.board.record_words);
    const Missed missed = await(q.board, words, records);
    if (__syncthreads_or(missed.why != 0)) {
        give_up(q.board, q.arrays, words, missed, shared);
        return;
    }
    if (words.ahead != words.step || !kvg_vote_unanimous(shared.record, ranks, q.board.is.tp)) {
        decide_slow(q, shared);
        return;
    }
    uint32_t passed = 0;
    while (shared.record[passed]->accepted == 0) passed++; /* there is one, or it were not unanimous */
    publish_quick(q, words, seat, shared.record[passed]->accepted_rows);
}

} // namespace
#endif

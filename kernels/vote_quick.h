/* Vote, the quick kernel: post and decide at once, in a stage of its own. For .cu files alone. Private.
 *
 * Bound by latency: the launch, one round of loads, a digest over the accepted counts, one store across NVLink, the poll that sees the peers';
 * and by instructions, which arrive at the pace of some fifty cycles for eight of them where they are run once. So the block is cut in three
 * kinds of warps that each have little to do before the record leaves, what can be done while records travel is done then, and what is about to
 * be hurried through is rehearsed while there is something to wait for: run once with its stores off.
 *
 *   entry warps, a thread an entry            late warp, units 1 to 3 of all peers    unit warps, the other units
 *   1 load ahead, counts                      load words and the sums formed ahead
 *   2 digest and counts to shared memory      words, header to shared memory
 *   ------------------------------------------- barrier ---------------------------------------------------------
 *   3 as if published: lengths, columns,      store status, targets, accepted,        store step, epoch, counts
 *     bases, the next record's sums           layout, user
 *   4                                         poll the peer's unit, and compare it with the own one in registers
 *   ------------------------------------------- barrier: do all agree? ------------------------------------------
 *   5 store all that                          outcome word, words
 *
 * What `ahead` holds was formed by the step before, so no load waits for another. A step that is not ready here, passes no counts, or was not
 * formed ahead goes through vote_step instead; one on which not all agree, or whose records do not come, is decided from shared memory by the
 * same functions. */
#ifndef KVG_VOTE_QUICK_H
#define KVG_VOTE_QUICK_H

#include "kernels/vote_device.h"

namespace {

enum { QUICK_WARPS_MAX = 24 }; /* more would leave a thread too few registers */
enum { LATE_UNITS = 3, LATE_FIRST = 1, QUICK_PEERS_MAX = 32 / LATE_UNITS };
enum { GO_STOPPED = 0, GO_QUICK = 1, GO_SLOW = 2 };
enum { IMAGE_DECIDED = 12, IMAGE_COUNTS = KVG_VOTE_HEADER_WORDS };

struct Quick { /* by value; what is needed first stands first */
    KvVoteAhead  at;
    KvVoteArrays arrays;
    uint8_t     *own;                            /* this rank's record in its own block, of slot 0 */
    uint8_t     *to[QUICK_PEERS_MAX];            /* the same in each peer's block */
    uint8_t     *from[QUICK_PEERS_MAX];          /* that peer's record in the own block; NULL: nothing comes */
    uint32_t     entry_warps, unit_warps, peers; /* unit warps a peer */
    uint32_t     one_peer;                       /* 2^16 / unit_warps, rounded up: warps are told apart by it */
    uint32_t     slot_bytes, threads;
    Board        board;
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

/* One stage, all in registers, and a place for what is formed ahead. */
__host__ bool quick_serves(const KvVoteBoard &board, const KvVoteArrays &arrays)
{
    const uint32_t most = QUICK_WARPS_MAX * 32;

    return arrays.ahead != nullptr && board.ranks == board.tp && arrays.entries > 0 && arrays.entries <= board.sequences_max &&
           board.sequences_max <= most && quick_peers(board) <= QUICK_PEERS_MAX &&
           kvg_vote_warps(arrays.entries) + 1 + quick_peers(board) * quick_unit_warps(board) <= QUICK_WARPS_MAX;
}

__host__ Quick quick_of(const KvVoteBoard &is, const KvVoteArrays &arrays)
{
    const uint32_t record_bytes = kvg_vote_units(is.sequences_max) * (uint32_t)sizeof(Unit);
    uint8_t       *block = is.base + is.rank * is.stride;
    Quick          quick = {};

    quick.at = kvg_vote_ahead_at(arrays.ahead, arrays.entries);
    quick.arrays = arrays;
    quick.own = block + is.rank * record_bytes;
    quick.peers = quick_peers(is);
    for (uint32_t p = 0; p < quick.peers; p++) {
        const uint32_t peer = (is.rank + 1 + p) % is.ranks;
        quick.to[p] = is.base + peer * is.stride + is.rank * record_bytes;
        quick.from[p] = peer != is.rank ? block + peer * record_bytes : nullptr;
    }
    quick.entry_warps = kvg_vote_warps(arrays.entries);
    quick.unit_warps = quick_unit_warps(is);
    quick.one_peer = (0x10000u + quick.unit_warps - 1) / quick.unit_warps;
    quick.slot_bytes = is.ranks * record_bytes;
    quick.threads = 32 * (quick.entry_warps + 1 + quick.peers * quick.unit_warps);
    quick.board = {is, kvg_vote_units(is.sequences_max), kvg_vote_record_words(is.sequences_max)};
    return quick;
}

/* ---- shared memory */

struct Front { /* from warps to warps; [2]: of a rehearsal, which nobody writes, and the real one */
    __align__(16) uint32_t image[IMAGE_COUNTS + QUICK_WARPS_MAX * 16]; /* the own record: what unit warps send of it */
    __align__(16) KvVoteWords words;
    uint64_t               accepted[QUICK_WARPS_MAX];
    uint32_t               cannot[QUICK_WARPS_MAX];
    uint32_t               go, owed;
};

struct Staged { /* where loads arrive: each thread's own */
    KvVoteAheadTerm *term;
    KvVoteAheadSums *sums;
    KvVoteAheadSpan *span;
    uint32_t        *accepted;
};

__host__ __device__ __forceinline__ Staged staged_at(void *memory, uint32_t warps)
{
    Staged at;

    at.term = (KvVoteAheadTerm *)memory;
    at.sums = (KvVoteAheadSums *)(at.term + warps * 32);
    at.span = (KvVoteAheadSpan *)(at.sums + warps);
    at.accepted = (uint32_t *)(at.span + warps * 32);
    return at;
}

/* What is staged, and where slow cases decide: [ranks][record_words] and one more for vote_step. */
__host__ size_t quick_shared_bytes(const Quick &quick)
{
    const size_t staged = quick.entry_warps * (32 * (sizeof(KvVoteAheadTerm) + sizeof(KvVoteAheadSpan) + sizeof(uint32_t)) + sizeof(KvVoteAheadSums));
    const size_t records = sizeof(uint32_t) * quick.board.record_words * (quick.board.is.ranks + 1);

    return staged > records ? staged : records;
}

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
    KvVoteAheadTerm term;
    KvVoteAheadSpan span;
    uint32_t        stored, next_rows, base; /* base: of the first class */
    int32_t         slot, read, each;
};

/* The digest of a warp's counts, and the counts, to shared memory. */
template <bool REHEARSED> __device__ __forceinline__ Seat take_seat(const Quick &q, void *memory, uint32_t e, Front &front)
{
    const Staged staged = staged_at(memory, q.entry_warps);
    const bool   counts = q.arrays.accepted != nullptr && e < q.arrays.entries;
    Seat         seat = {};

    copy_to_shared<8>(&staged.span[e], &q.at.span[e]);
    if (counts) copy_to_shared<4>(&staged.accepted[e], &q.arrays.accepted[e]);
    copy_to_shared<16>(&staged.term[e], &q.at.term[e]);
    seat.slot = (int32_t)load_four(&q.at.slot[e]); /* these two are not looked at before the barrier */
    if (q.arrays.next_rows != nullptr && e < q.arrays.entries) seat.next_rows = load_four(&q.arrays.next_rows[e]);
#pragma unroll 1
    for (uint32_t pass = opaque(!REHEARSED);; pass = opaque(1)) {
        if (pass != 0) copies_wait();
        seat.span = staged.span[e], seat.term = staged.term[e];
        const uint32_t accepted = counts ? staged.accepted[e] : seat.span.staged;
        seat.stored = stored_of(seat.span.staged, accepted);
        const uint64_t term = kvg_mix_joined(seat.term.place, seat.term.mark, seat.stored);
        const uint64_t sum = warp_sum(seat.span.staged != KVG_VOTE_SPAN_NONE ? term : 0);
        const int      cannot = __any_sync(ALL, count_bad(seat.span.staged, accepted));
        if (pass != 0) reinterpret_cast<uint16_t *>(front.image + IMAGE_COUNTS)[e] = (uint16_t)seat.stored;
        if ((pass != 0) & (e % 32 == 0)) front.accepted[e / 32] = sum, front.cannot[e / 32] = (uint32_t)cannot;
        if (pass != 0) return seat;
    }
}

/* ---- 3: entry warps, what a publish by the own counts leaves */

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

__device__ __forceinline__ Plan plan_publish(const KvVoteArrays &arrays, const KvVoteWords &words, Seat &seat, uint32_t e)
{
    Plan plan = {};

    if (seat.slot >= 0) {
        if (arrays.classes != 0) seat.base = base_of(arrays, 0, seat.slot);
        if (arrays.columns != 0) seat.read = (int32_t)load_four(&arrays.read[seat.slot]), seat.each = (int32_t)load_four(&arrays.each[seat.slot]);
        plan.taken = seat.stored == KVG_VOTE_ACCEPTED_ALL ? seat.span.staged : seat.stored;
        plan.len = seat.span.len + plan.taken;
        plan.next_rows = words.step == words.last ? 0 : seat.next_rows;
        if (arrays.columns != 0) plan.column = kvg_vote_column(arrays.columns, seat.read, seat.each, seat.span.staged, plan.taken, plan.next_rows);
        plan.sums.targets = kvg_mix_joined(seat.term.place, seat.term.mark, (uint64_t)plan.len + plan.next_rows);
        plan.sums.layout = plan_layout(arrays, seat, e, plan);
    }
    plan.sums.targets = warp_sum(plan.sums.targets), plan.sums.layout = warp_sum(plan.sums.layout);
    return plan;
}

/* ---- 5: entry warps */

__device__ __forceinline__ void store_moved(const Quick &q, const Seat &seat, const Plan &plan)
{
    const KvVoteArrays &arrays = q.arrays;

    if (arrays.columns != 0) {
        arrays.read[seat.slot] = plan.column.read;
        arrays.write[seat.slot] = plan.column.write;
        arrays.each[seat.slot] = plan.column.each;
    }
    for (uint32_t c = 0; plan.raised >> c != 0; c++) {
        if (plan.raised >> c & 1) arrays.class_at[c].base_row[seat.slot] = kvg_vote_base(arrays.class_at[c].keep, plan.len);
    }
}

/* Until all agree, and what follows. False: they do not, and nothing was stored. */
template <bool REHEARSED, class Marks>
__device__ __forceinline__ bool store_plan(const Quick &q, const KvVoteWords &words, const Seat &seat, const Plan &plan, uint32_t e, const Front &front,
                                           const Marks &marks)
{
    const KvVoteArrays &arrays = q.arrays;
    const bool          has = seat.slot >= 0;
    const uint32_t      slot = has ? (uint32_t)seat.slot : 0;
    bool                runs = words.step != words.last;

#pragma unroll 1
    for (uint32_t pass = opaque(!REHEARSED);; pass = opaque(1)) {
        if (pass != 0) {
            if (!meet_agreeing(q.threads, true)) return false;
            marks.at(6);
            if (arrays.columns != 0) runs = runs && front.owed == 0;
        }
        const bool on = pass != 0;
        store_four_if(on & has, arrays.len + slot, plan.len);
        store_four_if(on & has, arrays.len_staged + slot, plan.len + plan.next_rows);
        store_two_if(on & has, q.at.span + e, plan.len, plan.next_rows);
        store_four_if(on & (e < arrays.entries) & (arrays.rows != nullptr), arrays.rows + e, runs ? plan.next_rows : 0);
        store_four_if(on & has & (arrays.first_row != nullptr), arrays.first_row + e, plan.len);
        store_four_if(on & (e < words.count) & (arrays.taken != nullptr), arrays.taken + e, plan.taken);
        store_pair_if(on & (e % 32 == 0), q.at.sums + e / 32, plan.sums.targets, plan.sums.layout);
        if (pass != 0) break;
    }
    if (has && (arrays.columns != 0 || plan.raised != 0)) store_moved(q, seat, plan);
    marks.at(7);
    return true;
}

/* ---- units */

struct Post { /* a unit of the own record, where it goes, and where the peer's comes from */
    Unit     own;
    uint8_t *there, *home, *from; /* home: in the own block; NULL: another thread's to store. from: NULL: nothing comes */
    uint32_t unit, peer;          /* peer: its rank */
    bool     sends;
};

/* Unit `unit` for the p-th peer, as of slot 0. */
__device__ __forceinline__ Post post_of(const Quick &q, uint32_t p, uint32_t unit)
{
    const uint32_t at = unit * (uint32_t)sizeof(Unit);
    Post           post = {};

    post.unit = unit;
    post.sends = p < q.peers && unit < q.board.units;
    if (!post.sends) return post;
    post.peer = q.board.is.rank + 1 + p;
    if (post.peer >= q.board.is.ranks) post.peer -= q.board.is.ranks;
    post.there = q.to[p] + at;
    post.from = q.from[p] != nullptr ? q.from[p] + at : nullptr;
    post.home = p == 0 && q.from[p] != nullptr ? q.own + at : nullptr;
    return post;
}

__device__ __forceinline__ Post late_warp_post(const Quick &q)
{
    const uint32_t lane = threadIdx.x % 32;
    return post_of(q, lane / LATE_UNITS, LATE_FIRST + lane % LATE_UNITS);
}

__device__ __forceinline__ Post unit_warp_post(const Quick &q)
{
    const uint32_t warp = threadIdx.x / 32 - q.entry_warps - 1, p = warp * q.one_peer >> 16;
    const uint32_t v = (warp - p * q.unit_warps) * 32 + threadIdx.x % 32;

    return post_of(q, p, v < LATE_FIRST ? v : v + LATE_UNITS);
}

/* ---- 1, 2: the late warp. Its units, as far as they do not depend on counts; words, go and header to shared memory */

template <bool REHEARSED> __device__ __forceinline__ Post form_late(const Quick &q, void *memory, Front *fronts)
{
    const Staged   staged = staged_at(memory, q.entry_warps);
    const uint32_t lane = threadIdx.x % 32;

    if (lane < sizeof(KvVoteWords) / 16) copy_to_shared<16>((uint8_t *)&fronts[1].words + lane * 16, (const uint8_t *)q.arrays.words + lane * 16);
    if (lane < q.entry_warps) copy_to_shared<16>(&staged.sums[lane], &q.at.sums[lane]);
    Post           post = late_warp_post(q);
    Unit          &own = post.own;
    const uint32_t u = post.unit;
#pragma unroll 1
    for (uint32_t pass = opaque(!REHEARSED);; pass = opaque(1)) {
        if (pass != 0) copies_wait();
        __syncwarp();
        const KvVoteWords    &words = fronts[pass].words;
        Front                &front = fronts[1];
        const KvVoteAheadSums part = lane < q.entry_warps ? staged.sums[lane] : KvVoteAheadSums{0, 0};
        const uint64_t        targets = kvg_digest_seal(words.running + warp_sum(part.targets));
        const uint64_t        layout = kvg_digest_seal(words.layout + warp_sum(part.layout));
        const uint64_t        user = words.user;
        own.word[0] = u == 3 ? (uint32_t)(layout >> 32) : 0;
        own.word[1] = u == 1 ? (uint32_t)targets : u == 2 ? 0 : (uint32_t)user;
        own.word[2] = u == 1 ? (uint32_t)(targets >> 32) : u == 2 ? (uint32_t)layout : (uint32_t)(user >> 32);
        if ((pass != 0) & (lane == 0)) {
            const bool ready = words.status == 0 && words.accepts != 0 && words.ahead == words.step;
            front.go = words.stop != 0 ? GO_STOPPED : ready ? GO_QUICK : GO_SLOW;
            front.owed = 0;
            front.image[0] = (uint32_t)words.step, front.image[1] = (uint32_t)(words.step >> 32), front.image[2] = words.epoch;
            front.image[IMAGE_DECIDED] = (uint32_t)words.decided, front.image[IMAGE_DECIDED + 1] = (uint32_t)(words.decided >> 32);
            front.image[IMAGE_DECIDED + 2] = words.count, front.image[IMAGE_DECIDED + 3] = 0;
        }
        if (pass != 0) return post;
    }
}

/* ---- 3: the record goes */

__device__ __forceinline__ uint64_t handed_sum(const Front &front, uint32_t warps)
{
    const uint32_t lane = threadIdx.x % 32;

    if (warps <= 2) return front.accepted[0] + (warps == 2 ? front.accepted[1] : 0);
    return warp_sum(lane < warps ? front.accepted[lane] : 0);
}

/* The counts' digest into unit 2; a count that cannot be, into unit 1, and then there is no digest. */
__device__ __forceinline__ bool finish_late(const Quick &q, const Front &front, uint32_t u, Unit &own)
{
    const uint32_t lane = threadIdx.x % 32;
    const uint64_t accepted = kvg_digest_seal(handed_sum(front, q.entry_warps));
    const bool     bad = __any_sync(ALL, lane < q.entry_warps && front.cannot[lane] != 0) != 0;

    if (u == 2) own.word[0] = bad ? 0 : (uint32_t)accepted, own.word[1] = bad ? 0 : (uint32_t)(accepted >> 32);
    if (u == 1) own.word[0] = q.board.is.rank << 16 | (bad ? (uint32_t)(uint16_t)KVG_EINVAL : 0);
    return bad;
}

__device__ __forceinline__ void copy_image(const Quick &q, const Front &front, uint32_t u, Unit &own)
{
    const uint32_t end = IMAGE_COUNTS + 16 * q.entry_warps; /* there are no counts past it */

#pragma unroll
    for (uint32_t w = 0; w < KVG_VOTE_UNIT_WORDS; w++) {
        const uint32_t k = u * KVG_VOTE_UNIT_WORDS + w;
        own.word[w] = k < end ? front.image[k] : 0;
    }
}

/* From the barrier to the stores. Leaves post at the step's slot. True: a count cannot be. */
template <bool REHEARSED> __device__ __forceinline__ bool send_units(const Quick &q, const Front *fronts, bool late, Post &post)
{
#pragma unroll 1
    for (uint32_t pass = opaque(!REHEARSED);; pass = opaque(1)) {
        const Front &front = fronts[pass];
        bool         bad = false;

        if (pass != 0) meet_all(q.threads);
        if (late) bad = finish_late(q, front, post.unit, post.own);
        else copy_image(q, front, post.unit, post.own);
        const uint32_t step = (uint32_t)front.words.step, slot = (step & (q.board.is.slots - 1)) * q.slot_bytes;
        post.own.tag = kvg_vote_tag(step, front.words.epoch);
        store_unit_if((pass != 0) & post.sends & (front.go == GO_QUICK), post.there + slot, post.own);
        if (pass == 0) continue;
        if (post.home != nullptr) post.home += slot;
        if (post.from != nullptr) post.from += slot;
        return bad;
    }
}

/* ---- 4 */

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

/* ---- 5: the outcome word, and the words; one thread's to store */

template <bool REHEARSED, class Marks>
__device__ __forceinline__ bool decide_quick(const Quick &q, const Front &front, const Post &post, bool bad, bool first, Unit &unit, Missed &missed,
                                             const Marks &marks)
{
    const uint64_t step = front.words.step, next = step + front.words.advance, last = front.words.last;
    const uint64_t word = kvg_vote_word_of(step, KVG_VOTE_PUBLISH + 1u, 0, 0, 0, 0);
    uint32_t       stop = step == last ? KVG_VOTE_STOP_DONE : KVG_VOTE_RUNS;
    KvVoteWords   *to = q.arrays.words;

#pragma unroll 1
    for (uint32_t pass = opaque(!REHEARSED);; pass = opaque(1)) {
        if (pass != 0) {
            bool here;
            missed.why = poll_unit(q, post, unit, here);
            if (!here) missed.rank = post.peer;
            marks.at(5);
            const bool agrees = here & (missed.why == 0) & !bad;
            if (!meet_agreeing(q.threads, agrees && (post.from == nullptr || kvg_vote_unit_agrees(post.unit, post.own.word, unit.word) != 0))) return false;
            marks.at(6);
            if (q.arrays.columns != 0) stop = kvg_vote_stop_after(step, last, front.owed != 0);
        }
        const bool on = (pass != 0) & first;
        store_host_if(on, q.arrays.outcome, word);
        store_pair_if(on, &to->step, next, step);
        store_pair_if(on, &to->posted, 0, stop == KVG_VOTE_RUNS ? next : 0);
        store_four_if(on & (stop != KVG_VOTE_RUNS), &to->stop, stop);
        if (pass != 0) break;
    }
    marks.at(7);
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
__device__ __noinline__ void slow_verdict(const Quick &q, const Post *post, const Unit *unit, Missed missed, uint32_t *records, Shared &shared)
{
    const KvVoteWords words = *q.arrays.words;
    KvVoteEntry       mine = {-1, 0, 0, 0, 0, 0};

    if (__syncthreads_or(missed.why != 0)) {
        give_up(q.board, q.arrays, words, missed, shared);
        return;
    }
    if (threadIdx.x < q.board.is.ranks) shared.record[threadIdx.x] = KVG_VOTE_RECORD_AT(records + threadIdx.x * q.board.record_words);
    if (post->sends && (post->home != nullptr || post->from == nullptr)) {
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

/* ---- all of it. REHEARSED: see above; without, it is what the bench compares with */

template <class Marks, bool REHEARSED = true>
__global__ void __launch_bounds__(QUICK_WARPS_MAX * 32) quick_kernel(const __grid_constant__ Quick q, const Marks marks)
{
    KVG_VOTE_DYNAMIC_SHARED(uint32_t, memory);
    __shared__ Shared shared;
    __shared__ Front  fronts[2];
    Front            &front = fronts[1];
    const uint32_t    e = threadIdx.x, warp = threadIdx.x / 32;
    Post              post = {};
    Unit              unit = {{0, 0, 0}, 0};
    Missed            missed = {0, q.board.is.ranks};
    bool              published = false;

    marks.at(0);
    if (warp < q.entry_warps) {
        Seat seat = take_seat<REHEARSED>(q, memory, e, front);
        marks.at(1);
        meet_all(q.threads);
        marks.at(2);
        if (front.go == GO_QUICK) {
            const Plan plan = plan_publish(q.arrays, front.words, seat, e);
            if (plan.column.behind) front.owed = 1;
            marks.at(3);
            published = store_plan<REHEARSED>(q, front.words, seat, plan, e, front, marks);
        }
    } else {
        const bool late = warp == q.entry_warps;
        post = late ? form_late<REHEARSED>(q, memory, fronts) : unit_warp_post(q);
        marks.at(1);
        const bool bad = send_units<REHEARSED>(q, fronts, late, post);
        marks.at(4);
        if (front.go == GO_QUICK) {
            if (post.home != nullptr) store_unit(post.home, post.own);
            published = decide_quick<REHEARSED>(q, front, post, bad, late && e % 32 == 0, unit, missed, marks);
        }
    }
    if (published || front.go == GO_STOPPED) return;
    if (front.go == GO_SLOW) {
        slow_step(q, memory, shared);
        return;
    }
    const Post post_copy = post; /* so that the common case keeps its own in registers */
    const Unit unit_copy = unit;
    slow_verdict(q, &post_copy, &unit_copy, missed, memory, shared);
}

} // namespace
#endif

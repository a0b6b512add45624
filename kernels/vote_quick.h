/* Vote, the quick kernels: where the next record was formed ahead, and a thread holds a unit. For .cu files alone. Private.
 *
 * Bound by latency: the launch, one round of loads, one store across NVLink, the poll that sees the peers'; and by instructions, which arrive at
 * some fifty cycles for eight of them where they are run once. So the way to the store is short, and two blocks work side by side:
 *
 *   block 0  exchanges   a thread loads words and its unit of the record that was formed ahead, stores it to its peer, polls the peer's unit, and
 *                        compares it with its own in registers; one barrier; then outcome word, words, lengths. A step that is not ready, not
 *                        formed ahead, or on which not all agree is done by the functions of vote_device.h instead
 *   block 1  forms       the next record, as if all that is staged were published: from the half of `ahead` that this step's record is in, into
 *                        the other. Nothing is waited for between blocks, so it may run late, or never see this step's words
 *
 * What keeps them apart: block 0 never writes `ahead` in a kernel in which block 1 may act. Both act, or not, by the same words and by a half that
 * an earlier kernel formed: each block counts kernels by itself, and a half says in which one it was formed. So a block 1 that is late enough to
 * see the words of the next step finds no half for them, or one of its own kernel, and does nothing; then the next step is a slow one. */
#ifndef KVG_VOTE_QUICK_H
#define KVG_VOTE_QUICK_H

#include "kernels/vote_device.h"

namespace {

enum { QUICK_PEERS_MAX = 16 };

struct Quick { /* by value: what is needed first stands first, since it comes 64 bytes at a time */
    const KvVoteWords *words;
    KvVoteAhead        at;
    uint32_t           units, image_units, slots, slot_bytes; /* image_units: as far as there are counts */
    uint32_t           unit_warps, one_peer, peers, threads;  /* unit warps a peer; 2^16 / unit_warps, rounded up: warps are told apart by it */
    uint8_t           *own;                                   /* this rank's record in its own block, of slot 0 */
    uint8_t           *to[QUICK_PEERS_MAX];                   /* the same in each peer's block */
    uint8_t           *from[QUICK_PEERS_MAX];                 /* that peer's record in the own block; NULL: nothing comes */
    KvVoteArrays       arrays;
    Board              board;
};

/* When and where: of the bench alone. */
struct NoMarks {
    __device__ __forceinline__ void at(int) const {}
};

/* ---- on the host: what is served, and how */

__host__ uint32_t quick_threads(const KvVoteBoard &board, const KvVoteArrays &arrays)
{
    const uint32_t peers = board.ranks > 1 ? board.ranks - 1 : 1; /* alone, a rank is its own peer and awaits nobody */
    const uint32_t units = peers * kvg_vote_warps(kvg_vote_units(board.sequences_max)), entries = kvg_vote_warps(arrays.entries);

    return 32 * (units > entries ? units : entries);
}

__host__ bool quick_serves(const KvVoteBoard &board, const KvVoteArrays &arrays)
{
    return arrays.ahead != nullptr && arrays.entries > 0 && arrays.entries <= board.sequences_max && board.sequences_max <= 32 * WARPS_MAX &&
           board.ranks <= QUICK_PEERS_MAX && quick_threads(board, arrays) <= 32 * WARPS_MAX;
}

__host__ Quick quick_of(const KvVoteBoard &is, const KvVoteArrays &arrays)
{
    const uint32_t record_bytes = kvg_vote_units(is.sequences_max) * (uint32_t)sizeof(Unit);
    uint8_t       *block = is.base + is.rank * is.stride;
    Quick          quick = {};

    quick.words = arrays.words;
    quick.at = kvg_vote_ahead_at(arrays.ahead, arrays.entries);
    quick.units = kvg_vote_units(is.sequences_max);
    quick.image_units = kvg_vote_units(arrays.entries);
    quick.slots = is.slots;
    quick.slot_bytes = is.ranks * record_bytes;
    quick.unit_warps = kvg_vote_warps(quick.units);
    quick.one_peer = (0x10000u + quick.unit_warps - 1) / quick.unit_warps;
    quick.peers = is.ranks > 1 ? is.ranks - 1 : 1;
    quick.threads = quick_threads(is, arrays);
    quick.own = block + is.rank * record_bytes;
    for (uint32_t p = 0; p < quick.peers; p++) {
        const uint32_t peer = (is.rank + 1 + p) % is.ranks;
        quick.to[p] = is.base + peer * is.stride + is.rank * record_bytes;
        quick.from[p] = peer != is.rank ? block + peer * record_bytes : nullptr;
    }
    quick.arrays = arrays;
    quick.board = {is, quick.units, kvg_vote_record_words(is.sequences_max)};
    return quick;
}

/* Where slow cases decide: [ranks][record_words] and one more for vote_step. */
__host__ size_t quick_shared_bytes(const Quick &quick)
{
    return sizeof(uint32_t) * quick.board.record_words * (quick.board.is.ranks + 1);
}

/* ---- is this step's record formed? */

template <class T> __device__ __forceinline__ T load_pairs(const T *at)
{
    union {
        T        value;
        uint64_t pair[sizeof(T) / 8];
    } all;
#pragma unroll
    for (uint32_t i = 0; i < sizeof(T) / 16; i++) load_pair((const uint8_t *)at + 16 * i, all.pair[2 * i], all.pair[2 * i + 1]);
    return all.value;
}

struct Ready {
    uint32_t half;
    bool     is;
};

/* Of `step`, in a kernel that is the kernel-th: the same for both blocks, unless block 1 is late. */
__device__ __forceinline__ Ready ready_of(const KvVoteWords &words, uint64_t step, const KvVoteAheadHead &head, uint64_t kernel)
{
    const uint32_t      half = head.formed[0].step == step ? 0 : 1;
    const KvVoteAheadOf of = half == 0 ? head.formed[0] : head.formed[1];
    const bool          same = ((words.running ^ head.running) | (words.layout ^ head.layout) | (words.user ^ head.user) |
                                (words.epoch ^ head.epoch) | (words.accepts ^ head.accepts)) == 0;

    return Ready{half, same && of.step == step && of.kernel < kernel && words.ahead == step && words.status == 0};
}

/* ---- block 1 */

template <bool POST> __device__ __forceinline__ void form_next(const Quick &q, KvVoteSums *partial)
{
    const KvVoteWords     words = load_pairs(q.words);
    const KvVoteAheadHead head = load_pairs(q.at.head);
    const uint64_t        step = POST ? words.step : words.posted, kernel = head.kernel[1] + 1;
    const Ready           ready = ready_of(words, step, head, kernel);

    __syncthreads(); /* all have read the count */
    if (threadIdx.x == 0) q.at.head->kernel[1] = kernel;
    if (!ready.is || words.stop != 0 || step == words.last || (POST && words.accepts == 0)) return;
    form_half(q.board, q.arrays, words, head.accepted, q.at, ready.half, 1 - ready.half, step + words.advance, step, kernel, partial);
}

/* ---- block 0: exchange */

struct Exchange { /* of a thread */
    Unit     own, heard; /* heard: the peer's */
    uint32_t unit, p;
    Missed   missed;
    bool     sends, comes;
};

__device__ __forceinline__ Exchange exchange_of(const Quick &q)
{
    const uint32_t warp = threadIdx.x / 32, p = warp * q.one_peer >> 16;
    Exchange       of = {};

    of.unit = (warp - p * q.unit_warps) * 32 + threadIdx.x % 32;
    of.sends = p < q.peers && of.unit < q.units;
    of.p = p < q.peers ? p : 0;
    return of;
}

/* The own record's unit, into this rank's own block too. */
__device__ __forceinline__ void send_unit(const Quick &q, const Exchange &of, uint32_t at)
{
    if (!of.sends) return;
    store_unit(q.to[of.p] + at, of.own);
    if (of.p == 0 && q.from[0] != nullptr) store_unit(q.own + at, of.own);
}

/* Polls. True: what came agrees, so that publish is right if it does everywhere. A warp stays together. */
__device__ __forceinline__ bool hear_unit(const Quick &q, Exchange &of, uint32_t at)
{
    const uint8_t *from = q.from[of.p];
    Patience       patience = {0, 0, false, 0};

    of.comes = of.sends && from != nullptr;
    bool here = !of.comes;
    for (uint32_t polls = 1;; polls++) {
        if (!here) {
            of.heard = load_unit(from + at);
            here = kvg_vote_tag_fits(of.heard.tag, of.own.tag);
        }
        if (__all_sync(ALL, here)) patience.why = 0;
        if (__all_sync(ALL, here) || patience.why != 0) break; /* what remained was looked at once more, to tell who is missing */
        if (polls % POLLS_A_LOOK == 0) patience = look(q.board.is.control, patience);
    }
    const uint32_t peer = q.board.is.rank + 1 + of.p;
    of.missed = Missed{patience.why, here ? q.board.is.ranks : peer >= q.board.is.ranks ? peer - q.board.is.ranks : peer};
    uint32_t wrong = patience.why;
    for (uint32_t w = 0; w < KVG_VOTE_UNIT_WORDS; w++) wrong |= (of.heard.word[w] ^ of.own.word[w]) & kvg_vote_unit_mask(of.unit, w);
    return !of.comes ? patience.why == 0 : wrong == 0;
}

/* All that was staged is published, and the record of the next step is formed or being formed. */
__device__ __forceinline__ void publish_all(const KvVoteArrays &arrays, const KvVoteWords &words, const KvVoteAheadSpan &span, int32_t slot, uint32_t next)
{
    const bool last = words.step == words.last;

    if (threadIdx.x == blockDim.x - 1) {
        const uint64_t then = words.step + words.advance;
        store_host(arrays.outcome, kvg_vote_word_of(words.step, KVG_VOTE_PUBLISH + 1u, 0, 0, 0, 0));
        store_pair(&arrays.words->step, then, words.step);
        store_pair(&arrays.words->posted, 0, last ? 0 : then);
        if (last) arrays.words->stop = KVG_VOTE_STOP_DONE;
    }
    if (threadIdx.x >= arrays.entries) return;
    const bool        uses = span.staged != KVG_VOTE_SPAN_NONE;
    const KvVoteEntry entry = {uses ? slot : -1, span.len, span.staged, span.staged, 0, 0};
    const uint32_t    next_rows = uses && !last ? next : 0;
    if (threadIdx.x < words.count) kvg_vote_publish_entry(&arrays, threadIdx.x, &entry, KVG_VOTE_ACCEPTED_ALL, next_rows);
    if (arrays.rows != nullptr) arrays.rows[threadIdx.x] = next_rows;
}

/* ---- block 0: what is not the common case */

template <bool POST, bool DECIDE> __device__ __noinline__ void slow_step(const Quick &q, uint32_t *records, Shared &shared)
{
    KvVoteWords words = *q.words;

    if (!POST) words.step = words.posted;
    vote_step<POST, DECIDE>(q.board, q.arrays, words, records, shared);
}

/* Records that differ, or are missing: all of them into shared memory, and decided on there. Block 1 may be forming. */
__device__ __noinline__ void slow_verdict(const Quick &q, const Exchange &of, uint32_t *records, Shared &shared)
{
    const KvVoteWords words = *q.words;
    KvVoteArrays      plain = q.arrays;
    KvVoteEntry       mine = {-1, 0, 0, 0, 0, 0};

    plain.ahead = nullptr;
    if (__syncthreads_or(of.missed.why != 0)) {
        give_up(q.board, plain, words, of.missed, shared);
        return;
    }
    if (threadIdx.x < q.board.is.ranks) shared.record[threadIdx.x] = KVG_VOTE_RECORD_AT(records + threadIdx.x * q.board.record_words);
    const uint32_t peer = (q.board.is.rank + 1 + of.p) % q.board.is.ranks;
    for (uint32_t w = 0; w < KVG_VOTE_UNIT_WORDS && of.sends; w++) {
        if (of.p == 0) records[q.board.is.rank * q.board.record_words + of.unit * KVG_VOTE_UNIT_WORDS + w] = of.own.word[w];
        if (of.comes) records[peer * q.board.record_words + of.unit * KVG_VOTE_UNIT_WORDS + w] = of.heard.word[w];
    }
    __syncthreads();
    if (threadIdx.x < plain.entries) mine = kvg_vote_entry(&plain, threadIdx.x);
    decide(q.board, plain, words, mine, shared);
}

/* ---- post, and post and decide at once where there is one stage */

template <bool DECIDE, class Marks> __device__ __forceinline__ void exchange(const Quick &q, uint32_t *records, Shared &shared, const Marks &marks)
{
    const KvVoteWords words = load_pairs(q.words);
    Exchange          of = exchange_of(q);
    KvVoteAheadSpan   span = {0, KVG_VOTE_SPAN_NONE};
    int32_t           slot = -1;
    uint32_t          next = 0;

    const uint32_t    u = of.unit < q.image_units ? of.unit : 0;
    const Unit        first = load_own_unit(&q.at.image[0][u]), second = load_own_unit(&q.at.image[1][u]);
    const KvVoteAheadHead head = load_pairs(q.at.head);
    const uint64_t        kernel = head.kernel[0] + 1;
    const Ready           ready = ready_of(words, words.step, head, DECIDE ? kernel : ~0ull); /* post alone is no kernel of two blocks */
    const uint32_t        at = ((uint32_t)words.step & (q.slots - 1)) * q.slot_bytes + of.unit * (uint32_t)sizeof(Unit);

    marks.at(1);
    if (words.stop == 0 && ready.is && (!DECIDE || words.accepts != 0)) {
        for (uint32_t w = 0; w < KVG_VOTE_UNIT_WORDS; w++) {
            of.own.word[w] = of.unit >= q.image_units ? 0 : ready.half == 0 ? first.word[w] : second.word[w];
        }
        of.own.tag = kvg_vote_tag(words.step, words.epoch);
        send_unit(q, of, at);
        marks.at(2);
        if (!DECIDE) {
            if (threadIdx.x == 0) q.arrays.words->posted = words.step;
            return;
        }
        if (threadIdx.x < q.arrays.entries) {
            span = q.at.span[ready.half][threadIdx.x], slot = q.at.slot[threadIdx.x];
            next = q.arrays.next_rows != nullptr ? q.arrays.next_rows[threadIdx.x] : 0;
        }
        const bool agrees = hear_unit(q, of, at);
        marks.at(3);
        const bool all = __syncthreads_and(agrees) != 0;
        marks.at(4);
        if (threadIdx.x == 0) q.at.head->kernel[0] = kernel;
        if (all) {
            publish_all(q.arrays, words, span, slot, next);
        } else {
            const Exchange copy = of; /* so that the common case keeps its own in registers */
            slow_verdict(q, copy, records, shared);
        }
        marks.at(5);
        return;
    }
    shared.kernel = kernel; /* all write the same */
    __syncthreads();        /* and have read the count */
    if (DECIDE && threadIdx.x == 0) q.at.head->kernel[0] = kernel;
    if (words.stop == 0) slow_step<true, DECIDE>(q, records, shared);
}

template <class Marks> __global__ void __launch_bounds__(WARPS_MAX * 32) quick_kernel(const __grid_constant__ Quick q, const Marks marks)
{
    KVG_VOTE_DYNAMIC_SHARED(uint32_t, records);
    __shared__ Shared shared;

    marks.at(0);
    if (blockIdx.x == 0) exchange<true>(q, records, shared, marks);
    else form_next<true>(q, reinterpret_cast<KvVoteSums *>(shared.sums));
}

template <class Marks> __global__ void __launch_bounds__(WARPS_MAX * 32) quick_post_kernel(const __grid_constant__ Quick q, const Marks marks)
{
    KVG_VOTE_DYNAMIC_SHARED(uint32_t, records);
    __shared__ Shared shared;

    exchange<false>(q, records, shared, marks);
}

/* ---- decide alone */

__device__ __forceinline__ void decide_alone(const Quick &q, uint32_t *records, Shared &shared)
{
    KvVoteWords           words = load_pairs(q.words);
    const KvVoteAheadHead head = load_pairs(q.at.head);
    const uint64_t        kernel = head.kernel[0] + 1;
    const uint32_t        ranks = q.board.is.ranks, e = threadIdx.x;
    KvVoteArrays          plain = q.arrays;
    KvVoteEntry           mine = {-1, 0, 0, 0, 0, 0};

    words.step = words.posted;
    const Ready ready = ready_of(words, words.step, head, kernel);
    shared.kernel = kernel; /* all write the same */
    if (e < ranks) shared.record[e] = KVG_VOTE_RECORD_AT(records + e * q.board.record_words);
    __syncthreads(); /* all have read the count */
    if (e == 0) q.at.head->kernel[0] = kernel;
    if (words.stop != 0 || words.posted == 0) return;
    const Missed missed = await(q.board, words, records);
    if (ready.is) plain.ahead = nullptr; /* it is block 1's */
    if (__syncthreads_or(missed.why != 0)) {
        give_up(q.board, plain, words, missed, shared);
        return;
    }
    if (ready.is && kvg_vote_unanimous(shared.record, ranks, q.board.is.tp)) {
        KvVoteAheadSpan span = {0, KVG_VOTE_SPAN_NONE};
        uint32_t        passed = 0;
        while (shared.record[passed]->accepted == 0) passed++; /* there is one, or it were not unanimous */
        if (e < plain.entries) span = q.at.span[ready.half][e];
        if (__syncthreads_and(span.staged == KVG_VOTE_SPAN_NONE || shared.record[passed]->accepted_rows[e] == KVG_VOTE_ACCEPTED_ALL)) {
            const uint32_t next = plain.next_rows != nullptr && e < plain.entries ? plain.next_rows[e] : 0;
            publish_all(plain, words, span, e < plain.entries ? q.at.slot[e] : -1, next);
            return;
        }
    }
    if (e < plain.entries) mine = kvg_vote_entry(&plain, e);
    decide(q.board, plain, words, mine, shared);
}

template <class Marks> __global__ void __launch_bounds__(WARPS_MAX * 32) quick_decide_kernel(const __grid_constant__ Quick q, const Marks)
{
    KVG_VOTE_DYNAMIC_SHARED(uint32_t, records);
    __shared__ Shared shared;

    if (blockIdx.x == 0) decide_alone(q, records, shared);
    else form_next<false>(q, reinterpret_cast<KvVoteSums *>(shared.sums));
}

} // namespace
#endif

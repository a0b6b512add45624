/* Vote, device code: what the kernels are made of. For .cu files alone. Private.
 *
 * Where a slot's records meet, in 16-byte units: runtime/dev/device_vote_entry.h. Everything here is done by one block, whose threads stay together
 * unless a comment says otherwise. */
#ifndef KVG_VOTE_DEVICE_H
#define KVG_VOTE_DEVICE_H

#include <kvgrid/kvgrid_vote.h>

#ifdef __CUDACC__ /* else the includer says what these are on a host */
#include "kernels/vote_memory.h"
#endif
#include "runtime/dev/device_vote_entry.h"

namespace {

enum { WARPS_MAX = 32, POLLS_A_LOOK = 64, SUMS = 3 };
const uint32_t ALL = 0xffffffffu;

struct Board { /* by value: with what follows from it, so that the kernel need not work it out */
    KvVoteBoard is;
    uint32_t    units, record_words;
};

struct Shared { /* of the kernels that serve every case */
    uint64_t            sums[WARPS_MAX][SUMS];
    const KvVoteRecord *record[KVG_VOTE_DEVICE_RANKS_MAX];
    uint32_t            missing, stopped;
    uint64_t            kernel; /* the count of this kernel, where it forms ahead */
};

__device__ __forceinline__ uint8_t *unit_of(const Board &board, uint64_t slot_offset, uint32_t block, uint32_t from, uint32_t unit)
{
    return board.is.base + block * board.is.stride + slot_offset + ((uint64_t)from * board.units + unit) * sizeof(Unit);
}

/* ---- 2: sums */

/* 64-bit sum over a warp in three 32-bit reductions: 27 bits of each of 32 values fit. */
__device__ __forceinline__ uint64_t warp_sum(uint64_t value)
{
    const uint32_t mask = (1u << 27) - 1;
    uint64_t       low = __reduce_add_sync(ALL, (uint32_t)value & mask), middle = __reduce_add_sync(ALL, (uint32_t)(value >> 27) & mask);
    return low + (middle << 27) + ((uint64_t)__reduce_add_sync(ALL, (uint32_t)(value >> 54)) << 54);
}

/* The sums over this thread's entries into shared memory, and its counts into the record. 1: a count cannot be. */
__device__ bool form_entries(const KvVoteArrays &arrays, const KvVoteWords &words, const KvVoteEntry &mine, KvVoteRecord *own, Shared &shared)
{
    KvVoteSums sums = {0, 0, 0};
    bool       bad = false, flags = words.status == KVG_ETAINTED;

    for (uint32_t e = threadIdx.x; e < arrays.entries; e += blockDim.x) {
        const KvVoteEntry entry = e == threadIdx.x ? mine : kvg_vote_entry(&arrays, e);
        const bool        counts = e < words.count && entry.slot >= 0;
        uint16_t          stored = 0;

        if (counts) {
            stored = kvg_vote_says(&entry, words.accepts);
            bad |= !flags && kvg_vote_says_bad(&entry, words.accepts);
            kvg_vote_add_terms(&arrays, e, &entry, stored, &sums);
            if (flags) stored = arrays.accepted != nullptr && entry.accepted != 0;
        }
        own->accepted_rows[e] = stored;
    }
    sums.targets = warp_sum(sums.targets), sums.accepted = warp_sum(sums.accepted), sums.layout = warp_sum(sums.layout);
    if (threadIdx.x % 32 == 0) {
        uint64_t *to = shared.sums[threadIdx.x / 32];
        to[0] = sums.targets, to[1] = sums.accepted, to[2] = sums.layout;
    }
    return bad;
}

/* What does not depend on the entries. */
__device__ void form_header(const Board &board, const KvVoteWords &words, KvVoteRecord *own)
{
    own->step = words.step;
    own->epoch = words.epoch;
    own->rank = (uint16_t)board.is.rank;
    own->user = words.user;
    own->decided = words.decided;
    own->count = words.count;
    own->reserved = 0;
}

/* The words of the header that do: status 3, targets 4 and 5, accepted 6 and 7, layout 8 and 9. */
__device__ uint32_t late_word(const KvVoteWords &words, const Board &board, const Shared &shared, bool bad, uint32_t k)
{
    const int32_t status = words.status != 0 ? words.status : bad ? KVG_EINVAL : 0;

    if (k == 3) return (uint32_t)(uint16_t)status | board.is.rank << 16;
    const uint32_t which = (k - 4) / 2;
    uint64_t       sum = which == 0 ? words.running : which == 1 ? 0 : words.layout;
    for (uint32_t w = 0; w < blockDim.x / 32; w++) sum += shared.sums[w][which];
    sum = kvg_digest_seal(sum);
    if (which == 1 && (words.accepts == 0 || status != 0)) sum = 0;
    return (uint32_t)(k % 2 != 0 ? sum >> 32 : sum);
}

/* ---- 4: to every rank */

__device__ void send(const Board &board, const KvVoteWords &words, const Shared &shared, const uint32_t *own, bool bad)
{
    const uint64_t offset = kvg_vote_slot_offset(&board.is, words.step);
    const uint32_t tag = kvg_vote_tag(words.step, words.epoch), total = board.is.ranks * board.units;

    for (uint32_t i = threadIdx.x; i < total; i += blockDim.x) {
        const uint32_t to = i / board.units, u = i % board.units;
        Unit           unit;

        for (uint32_t w = 0; w < KVG_VOTE_UNIT_WORDS; w++) {
            const uint32_t k = u * KVG_VOTE_UNIT_WORDS + w;
            unit.word[w] = k >= 3 && k < 10 ? late_word(words, board, shared, bad, k) : own[k];
        }
        unit.tag = tag;
        store_unit(unit_of(board, offset, to, board.is.rank, u), unit);
    }
}

/* ---- 5: from every rank */

struct Patience { /* a warp's */
    uint64_t since;
    uint32_t moves;
    bool     looked;
    uint32_t why; /* 0 go on, 1 the deadline passed, 2 stopped */
};

/* Looks at the host's words. One lane reads, all say alike why. */
__device__ __noinline__ Patience look(const KvVoteControl *control, Patience patience)
{
    if (threadIdx.x % 32 == 0) {
        const uint64_t deadline = load_host(&control->deadline), stop = load_host(&control->stop), now = now_ns();

        if (!patience.looked || (uint32_t)deadline != patience.moves) patience = Patience{now, (uint32_t)deadline, true, 0};
        if (stop != 0) patience.why = 2;
        else if (now - patience.since >= (deadline >> 32) * 1000u) patience.why = 1;
    }
    patience.why = __shfl_sync(ALL, patience.why, 0);
    return patience;
}

struct Missed {
    uint32_t why, rank; /* why 0: nothing is missing */
};

/* Polls this thread's units of all records into shared memory. Warps stay together. */
__device__ Missed await(const Board &board, const KvVoteWords &words, uint32_t *records)
{
    const uint64_t offset = kvg_vote_slot_offset(&board.is, words.step);
    const uint32_t awaited = kvg_vote_tag(words.step, words.epoch), total = board.is.ranks * board.units, lane = threadIdx.x % 32;
    Patience       patience = {0, 0, false, 0};
    Missed         missed = {0, board.is.ranks};

    for (uint32_t first = threadIdx.x - lane; first < total; first += blockDim.x) {
        const uint32_t i = first + lane, from = i / board.units, u = i % board.units;
        const uint8_t *at = unit_of(board, offset, board.is.rank, from, u);
        bool           here = i >= total;
        Unit           unit = {{0, 0, 0}, 0};

        for (uint32_t polls = 1;; polls++) {
            if (!here) {
                unit = load_unit(at);
                here = kvg_vote_tag_fits(unit.tag, awaited);
            }
            if (__all_sync(ALL, here)) break;
            if (missed.why == 0 && polls % POLLS_A_LOOK == 0) {
                patience = look(board.is.control, patience);
                missed.why = patience.why;
            }
            if (missed.why != 0) break; /* what remains is looked at once, to tell who is missing */
        }
        if (i >= total) continue;
        if (!here) {
            missed.rank = missed.rank < from ? missed.rank : from;
            continue;
        }
        uint32_t *to = records + from * board.record_words + u * KVG_VOTE_UNIT_WORDS;
        to[0] = unit.word[0], to[1] = unit.word[1], to[2] = unit.word[2];
    }
    return missed;
}

/* ---- 7 */

__device__ void stage_nothing(const KvVoteArrays &arrays)
{
    for (uint32_t e = threadIdx.x; arrays.rows != nullptr && e < arrays.entries; e += blockDim.x) arrays.rows[e] = 0;
}

/* Whoever gave up saw a unit missing: the lowest rank of all is named. */
__device__ __noinline__ void give_up(const Board &board, const KvVoteArrays &arrays, const KvVoteWords &words, Missed missed, Shared &shared)
{
    if (threadIdx.x == 0) shared.missing = board.is.ranks, shared.stopped = 0;
    __syncthreads();
    if (missed.why != 0) {
        atomicMin(&shared.missing, missed.rank);
        atomicMax(&shared.stopped, missed.why - 1);
    }
    __syncthreads();
    stage_nothing(arrays);
    if (threadIdx.x == 0) {
        arrays.words->stop = KVG_VOTE_STOP_OUTCOME;
        arrays.words->posted = words.step;
        arrays.words->ahead = 0;
        store_host(arrays.outcome, kvg_vote_word_missing(words.step, shared.stopped != 0, shared.missing));
    }
}

/* ---- ahead */

/* An entry as the record of a half has it: as it stands in half b, or, moved, as it will once all of that is published. */
__device__ __forceinline__ KvVoteAheadSpan span_of(const KvVoteArrays &arrays, const KvVoteAhead &at, uint32_t b, uint32_t e, bool moved)
{
    KvVoteAheadSpan span = at.span[b][e];

    if (!moved || span.staged == KVG_VOTE_SPAN_NONE) return span;
    return KvVoteAheadSpan{span.len + span.staged, arrays.next_rows != nullptr ? arrays.next_rows[e] : 0};
}

/* Digests of half `to`, from half `from`: a thread an entry and digest, the targets first and then a class each. */
__device__ __forceinline__ KvVoteSums half_sums(const KvVoteArrays &arrays, const KvVoteAhead &at, uint32_t from, uint32_t to)
{
    const uint32_t warps = kvg_vote_warps(arrays.entries), lane = threadIdx.x % 32;
    KvVoteSums     sums = {0, 0, 0};
    uint32_t       digest = 0;

#pragma unroll 1
    for (uint32_t w = threadIdx.x / 32;; w += blockDim.x / 32) {
        for (; w >= warps && digest <= arrays.classes; digest++) w -= warps;
        if (digest > arrays.classes) break;
        const uint32_t        e = w * 32 + lane, c = digest - 1;
        const KvVoteAheadSpan span = span_of(arrays, at, from, e, from != to);
        const int32_t         slot = at.slot[e];
        KvVoteAheadTerm       term = at.term[e];
        if (digest == 0 && from != to) at.span[to][e] = span;
        if (digest != 0) {
            const KvVoteClass *cls = &arrays.class_at[c];
            const uint32_t     base = cls->base_row != nullptr && slot >= 0 ? cls->base_row[slot] : 0, least = kvg_vote_base(cls->keep, span.len);
            term = KvVoteAheadTerm{kvg_mix_place(e, c), kvg_mix_mark(cls->base_row != nullptr && least > base ? least : base)};
        }
        const uint64_t sum = slot >= 0 ? kvg_mix_joined(term.place, term.mark, (uint64_t)span.len + span.staged) : 0;
        if (digest == 0) sums.targets += sum;
        else sums.layout += sum;
    }
    sums.targets = warp_sum(sums.targets), sums.layout = warp_sum(sums.layout);
    return sums;
}

/* Counts that are all as staged, of entries in use. */
__device__ __forceinline__ uint32_t all_counts(const KvVoteArrays &arrays, const KvVoteAhead &at, uint32_t k)
{
    const uint32_t e = 2 * (k - KVG_VOTE_HEADER_WORDS);
    uint32_t       word = 0;

    if (k < KVG_VOTE_HEADER_WORDS) return 0;
    if (e < arrays.entries && at.slot[e] >= 0) word = 0xffffu;
    if (e + 1 < arrays.entries && at.slot[e + 1] >= 0) word |= 0xffff0000u;
    return word;
}

/* The record of `step`, into half `to`. partial: shared, a warp's each. */
__device__ __forceinline__ void form_half(const Board &board, const KvVoteArrays &arrays, const KvVoteWords &words, uint64_t accepted, const KvVoteAhead &at,
                                          uint32_t from, uint32_t to, uint64_t step, uint64_t decided, uint64_t kernel, KvVoteSums *partial)
{
    const KvVoteSums mine = half_sums(arrays, at, from, to);
    const uint32_t   lane = threadIdx.x % 32, warps = blockDim.x / 32, u = threadIdx.x;

    if (lane == 0) partial[threadIdx.x / 32] = mine;
    __syncthreads();
    if (u >= (kvg_vote_units(arrays.entries) + 31) / 32 * 32) return;
    KvVoteAheadUnit unit = {{0, 0, 0}, kvg_vote_tag(step, words.epoch)};
    if (u < 32) { /* the header's units and more: the whole warp adds up */
        const KvVoteSums part = lane < warps ? partial[lane] : KvVoteSums{0, 0, 0};
        const uint64_t   targets = kvg_digest_seal(words.running + warp_sum(part.targets)), layout = kvg_digest_seal(words.layout + warp_sum(part.layout));
        const uint64_t   first = u == 0 ? step : u == 2 ? accepted : u == 3 ? layout >> 32 : u == 4 ? decided : 0; /* words 0 and 1 */
        const uint64_t   second = u == 1 ? targets : u == 3 ? words.user : 0;                                     /* words 1 and 2 */
        unit.word[0] = u == 1 ? board.is.rank << 16 : (uint32_t)first;
        unit.word[1] = (uint32_t)(first >> 32) | (uint32_t)second;
        unit.word[2] = u == 0 ? words.epoch : u == 2 ? (uint32_t)layout : u == 4 ? words.count : (uint32_t)(second >> 32);
    }
    if (u >= kvg_vote_units(arrays.entries)) return;
    if (u >= 5) {
        for (uint32_t w = 0; w < KVG_VOTE_UNIT_WORDS; w++) {
            if (from != to) unit.word[w] = at.image[from][u].word[w]; /* counts stay what they are */
            else if (words.accepts != 0) unit.word[w] = all_counts(arrays, at, u * KVG_VOTE_UNIT_WORDS + w);
        }
    }
    at.image[to][u] = unit;
    if (u == 0) store_pair(&at.head->formed[to], step, kernel);
}

/* From the arrays, as they stand after a publish: each entry was written by the thread that reads it here. Shared sums are nobody's by now. */
__device__ void seed_ahead(const Board &board, const KvVoteArrays &arrays, const KvVoteWords &words, uint64_t kernel, Shared &shared)
{
    const KvVoteAhead at = kvg_vote_ahead_at(arrays.ahead, arrays.entries);
    const uint32_t    whole = kvg_vote_warps(arrays.entries) * KVG_VOTE_WARP;
    KvVoteSums       *partial = reinterpret_cast<KvVoteSums *>(shared.sums);
    uint64_t          accepted = 0;

    for (uint32_t e = threadIdx.x; e < whole; e += blockDim.x) {
        KvVoteEntry entry = {-1, 0, 0, 0, 0, 0};
        if (e < words.count) entry = kvg_vote_entry(&arrays, e);
        const KvVoteAheadTerm term = {kvg_mix_place(e, entry.id), kvg_mix_mark(entry.generation)};
        at.term[e] = term;
        at.span[0][e] = KvVoteAheadSpan{entry.len, entry.slot >= 0 ? entry.staged : KVG_VOTE_SPAN_NONE};
        at.slot[e] = entry.slot;
        if (entry.slot >= 0) accepted += kvg_mix_joined(term.place, term.mark, KVG_VOTE_ACCEPTED_ALL);
    }
    accepted = warp_sum(accepted);
    __syncthreads();
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32].accepted = accepted;
    __syncthreads();
    accepted = 0;
    for (uint32_t w = 0; w < blockDim.x / 32; w++) accepted += partial[w].accepted;
    accepted = words.accepts != 0 ? kvg_digest_seal(accepted) : 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        store_pair(&at.head->formed[1], 0, 0);
        at.head->running = words.running, at.head->layout = words.layout, at.head->user = words.user;
        at.head->epoch = words.epoch, at.head->accepts = words.accepts, at.head->accepted = accepted;
    }
    form_half(board, arrays, words, accepted, at, 0, 0, words.step + words.advance, words.step, kernel, partial);
}

__device__ void publish(const Board &board, const KvVoteArrays &arrays, const KvVoteWords &words, const KvVoteEntry &mine, const uint16_t *stored,
                        Shared &shared)
{
    int owes = 0;

    for (uint32_t e = threadIdx.x; e < words.count; e += blockDim.x) {
        const KvVoteEntry entry = e == threadIdx.x ? mine : kvg_vote_entry(&arrays, e);
        owes |= kvg_vote_publish_entry(&arrays, e, &entry, stored[e], kvg_vote_next_rows(&arrays, words.step, words.last, e));
    }
    if (arrays.columns != 0) owes = __syncthreads_or(owes);
    const uint32_t stop = kvg_vote_stop_after(words.step, words.last, owes);
    for (uint32_t e = threadIdx.x; arrays.rows != nullptr && e < arrays.entries; e += blockDim.x) {
        const bool writes = stop == KVG_VOTE_RUNS && e < words.count && (arrays.slots == nullptr || arrays.slots[e] >= 0);
        arrays.rows[e] = writes ? kvg_vote_next_rows(&arrays, words.step, words.last, e) : 0;
    }
    const bool ahead = arrays.ahead != nullptr && stop == KVG_VOTE_RUNS && words.accepts != KVG_VOTE_ACCEPTS_COUNTS;
    if (ahead) seed_ahead(board, arrays, words, shared.kernel, shared);
    if (threadIdx.x == 0) {
        arrays.words->step = words.step + words.advance;
        arrays.words->decided = words.step;
        arrays.words->ahead = ahead ? words.step + words.advance : 0;
        if (stop != KVG_VOTE_RUNS) arrays.words->stop = stop;
    }
}

/* Every thread for itself: no barrier but that of a publish that looks for what stayed behind. */
__device__ void decide(const Board &board, const KvVoteArrays &arrays, const KvVoteWords &words, const KvVoteEntry &mine, Shared &shared)
{
    const KvVoteOutcome outcome = kvg_vote_decide_inline(shared.record, board.is.ranks, board.is.tp);
    uint32_t            passed = 0;

    if (threadIdx.x == 0) {
        store_host(arrays.outcome, kvg_vote_word_decided(words.step, outcome));
        arrays.words->posted = 0;
    }
    if (outcome.kind != KVG_VOTE_PUBLISH) {
        stage_nothing(arrays);
        if (threadIdx.x == 0) arrays.words->stop = KVG_VOTE_STOP_OUTCOME, arrays.words->ahead = 0;
        return;
    }
    while (shared.record[passed]->accepted == 0) passed++; /* there is one, or it were no publish */
    publish(board, arrays, words, mine, shared.record[passed]->accepted_rows, shared);
}

/* ---- a whole step, whatever the case */

template <bool POST, bool DECIDE>
__device__ __forceinline__ void vote_step(const Board &board, const KvVoteArrays &arrays, const KvVoteWords &words, uint32_t *records, Shared &shared)
{
    uint32_t   *own = records + (DECIDE ? board.is.ranks * board.record_words : 0);
    KvVoteEntry mine = {-1, 0, 0, 0, 0, 0};

    if (threadIdx.x < arrays.entries) mine = kvg_vote_entry(&arrays, threadIdx.x);
    if (DECIDE && threadIdx.x < board.is.ranks) shared.record[threadIdx.x] = KVG_VOTE_RECORD_AT(records + threadIdx.x * board.record_words);
    if (POST) {
        if (threadIdx.x == blockDim.x - 1) form_header(board, words, reinterpret_cast<KvVoteRecord *>(own));
        for (uint32_t k = KVG_VOTE_HEADER_WORDS + arrays.entries / 2 + threadIdx.x; k < board.record_words; k += blockDim.x) {
            if (k >= KVG_VOTE_HEADER_WORDS + (arrays.entries + 1) / 2) own[k] = 0;
            else reinterpret_cast<uint16_t *>(own)[2 * k + 1] = 0; /* an odd count shares its word */
        }
        const bool bad = __syncthreads_or(form_entries(arrays, words, mine, reinterpret_cast<KvVoteRecord *>(own), shared));
        send(board, words, shared, own, bad);
    }
    if (POST && !DECIDE && threadIdx.x == 0) arrays.words->posted = words.step;
    if (DECIDE) {
        const Missed missed = await(board, words, records);
        if (__syncthreads_or(missed.why != 0)) give_up(board, arrays, words, missed, shared);
        else decide(board, arrays, words, mine, shared);
    }
}

} // namespace
#endif

/* Vote, on both sides: tags and units, the outcome word, one entry's terms and its publication. Plain code over values, so that host and
 * device compile the same text. Private. */
#ifndef KVG_DEVICE_VOTE_ENTRY_H
#define KVG_DEVICE_VOTE_ENTRY_H

#include <kvgrid/device_vote.h>

#include "runtime/base/mix.h"
#include "runtime/rules/vote_decide.h"

#ifdef __cplusplus
#define KVG_VOTE_RECORD_AT(words) reinterpret_cast<const KvVoteRecord *>(words)
#else
#define KVG_VOTE_RECORD_AT(words) ((const KvVoteRecord *)(const void *)(words))
#endif

#define KVG_VOTE_UNIT_WORDS 3u /* of a record, in 16 bytes; the fourth is the tag */
#define KVG_VOTE_HEADER_WORDS (KVG_VOTE_HEADER_BYTES / 4u)

/* ---- units and tags */

KVG_HD static inline uint32_t kvg_vote_units(uint32_t sequences_max)
{
    return (KVG_VOTE_HEADER_WORDS + (sequences_max + 1) / 2 + KVG_VOTE_UNIT_WORDS - 1) / KVG_VOTE_UNIT_WORDS;
}

/* 4-byte words from one record to the next where whole units are kept: records are read as 8-byte words. */
KVG_HD static inline uint32_t kvg_vote_record_words(uint32_t sequences_max)
{
    return (kvg_vote_units(sequences_max) * KVG_VOTE_UNIT_WORDS + 1) / 2 * 2;
}

KVG_HD static inline uint64_t kvg_vote_slot_offset(const KvVoteBoard *board, uint64_t step)
{
    return (step & (board->slots - 1)) * board->ranks * kvg_vote_units(board->sequences_max) * 16u;
}

/* Never 0, as fresh memory is. What a slot held before is of step - slots or, after a settling, of an earlier epoch. */
KVG_HD static inline uint32_t kvg_vote_tag(uint64_t step, uint32_t epoch)
{
    return 0x80000000u | (epoch & 0x7fu) << 24 | (uint32_t)(step & 0xffffffu);
}

/* The step awaited, of this epoch or a later one: an older one is dropped, a newer one is a disagreement that decide names. */
KVG_HD static inline int kvg_vote_tag_fits(uint32_t tag, uint32_t awaited)
{
    uint32_t ahead = ((tag >> 24) - (awaited >> 24)) & 0x7fu;
    return tag >> 31 != 0 && (tag & 0xffffffu) == (awaited & 0xffffffu) && ahead < 0x40u;
}

/* ---- the outcome word: step 28 bits, kind 3, field 3, status 16, rank 7, rank_b 7; kind 0 is no word */

enum { KVG_VOTE_WORD_KIND_INDOUBT = 5, KVG_VOTE_WORD_KIND_STOPPED = 6 };

KVG_HD static inline uint64_t kvg_vote_word_of(uint64_t step, uint32_t kind, uint32_t field, int status, uint32_t rank, uint32_t rank_b)
{
    return (step & 0xfffffffu) | (uint64_t)kind << 28 | (uint64_t)field << 31 | (uint64_t)(uint16_t)status << 34 | (uint64_t)rank << 50 |
           (uint64_t)rank_b << 57;
}

KVG_HD static inline uint64_t kvg_vote_word_decided(uint64_t step, KvVoteOutcome outcome)
{
    return kvg_vote_word_of(step, outcome.kind + 1u, outcome.field, outcome.status, outcome.rank, outcome.rank_b);
}

KVG_HD static inline uint64_t kvg_vote_word_missing(uint64_t step, int stopped, uint32_t rank)
{
    return kvg_vote_word_of(step, stopped ? KVG_VOTE_WORD_KIND_STOPPED : KVG_VOTE_WORD_KIND_INDOUBT, 0, 0, rank, 0);
}

/* ---- one entry */

typedef struct KvVoteEntry {
    int32_t  slot; /* -1: none */
    uint32_t len, staged, accepted; /* staged, accepted: rows */
    uint64_t id, generation;
} KvVoteEntry;

/* Entry e of a batch, e in use. */
KVG_HD static inline KvVoteEntry kvg_vote_entry(const KvVoteArrays *arrays, uint32_t e)
{
    KvVoteEntry entry;

    entry.slot = arrays->slots != NULL ? arrays->slots[e] : (int32_t)e;
    entry.id = arrays->ids[e];
    entry.generation = arrays->generations[e];
    entry.accepted = arrays->accepted != NULL ? arrays->accepted[e] : UINT32_MAX;
    entry.len = entry.staged = 0;
    if (entry.slot >= 0) {
        entry.len = arrays->len[entry.slot];
        entry.staged = arrays->len_staged[entry.slot] - entry.len;
    }
    if (arrays->accepted == NULL) entry.accepted = entry.staged;
    return entry;
}

typedef struct KvVoteSums {
    uint64_t targets, accepted, layout;
} KvVoteSums;

/* 1 where a record cannot say the count. */
KVG_HD static inline int kvg_vote_count_bad(const KvVoteEntry *entry)
{
    return entry->accepted > entry->staged || (entry->accepted != entry->staged && entry->accepted >= KVG_VOTE_ACCEPTED_ALL);
}

KVG_HD static inline uint16_t kvg_vote_stored(const KvVoteEntry *entry)
{
    if (kvg_vote_count_bad(entry)) return 0;
    return (uint16_t)(entry->accepted == entry->staged ? KVG_VOTE_ACCEPTED_ALL : entry->accepted);
}

/* What a record says of an entry, by KvVoteWords.accepts. */
KVG_HD static inline uint16_t kvg_vote_says(const KvVoteEntry *entry, uint32_t accepts)
{
    if (accepts == 0) return 0;
    return accepts == KVG_VOTE_ACCEPTS_ALL ? (uint16_t)KVG_VOTE_ACCEPTED_ALL : kvg_vote_stored(entry);
}

/* 1 where it cannot say so. */
KVG_HD static inline int kvg_vote_says_bad(const KvVoteEntry *entry, uint32_t accepts)
{
    return accepts == KVG_VOTE_ACCEPTS_COUNTS && kvg_vote_count_bad(entry);
}

KVG_HD static inline void kvg_vote_add_terms(const KvVoteArrays *arrays, uint32_t e, const KvVoteEntry *entry, uint16_t stored, KvVoteSums *sums)
{
    uint64_t target = (uint64_t)entry->len + entry->staged;

    sums->targets += kvg_mix_term(e, entry->id, entry->generation, target);
    sums->accepted += kvg_mix_term(e, entry->id, entry->generation, stored);
    for (uint32_t c = 0; c < arrays->classes; c++) {
        const uint32_t *base_row = arrays->class_at[c].base_row;
        sums->layout += kvg_mix_term(e, c, base_row != NULL ? base_row[entry->slot] : 0, target);
    }
}

/* ---- the next record, formed ahead by the kernels: two halves that take turns */

enum { KVG_VOTE_WARP = 32 };
#define KVG_VOTE_SPAN_NONE UINT32_MAX /* staged of an entry that is in no digest */

typedef struct KvVoteAheadOf { /* read and written as one: */
    uint64_t step;   /* what a half is of; 0: nothing */
    uint64_t kernel; /* and the count of the kernel that formed it, whose like may not use it yet */
} KvVoteAheadOf;

typedef struct KvVoteAheadHead {
    KvVoteAheadOf formed[2];
    uint64_t      running, layout, user; /* the words that it was formed with: others, and it is worth nothing */
    uint32_t      epoch, accepts;
    uint64_t      accepted;  /* the digest of counts that are all as staged */
    uint64_t      reserved;
    uint64_t      kernel[2]; /* kernels so far, as either block of them has counted */
} KvVoteAheadHead;

typedef struct KvVoteAheadTerm { /* what a term of a digest keeps from step to step */
    uint64_t place, mark;
} KvVoteAheadTerm;

typedef struct KvVoteAheadSpan {
    uint32_t len, staged; /* staged: rows */
} KvVoteAheadSpan;

typedef struct KvVoteAheadUnit {
    uint32_t word[3], tag;
} KvVoteAheadUnit;

typedef struct KvVoteAhead {
    KvVoteAheadHead *head;
    KvVoteAheadTerm *term;     /* [entries, in whole warps] */
    KvVoteAheadUnit *image[2]; /* [units of a record of so many entries] */
    KvVoteAheadSpan *span[2];  /* [entries, in whole warps] */
    int32_t         *slot;     /* likewise; -1: none, or not in use */
    void            *end;
} KvVoteAhead;

KVG_HD static inline uint32_t kvg_vote_warps(uint32_t threads)
{
    return (threads + KVG_VOTE_WARP - 1) / KVG_VOTE_WARP;
}

KVG_HD static inline KvVoteAhead kvg_vote_ahead_at(void *memory, uint32_t entries)
{
    const size_t whole = (size_t)kvg_vote_warps(entries) * KVG_VOTE_WARP, units = kvg_vote_units(entries);
    KvVoteAhead  at;

    at.head = (KvVoteAheadHead *)memory;
    at.term = (KvVoteAheadTerm *)(void *)(at.head + 1);
    at.image[0] = (KvVoteAheadUnit *)(void *)(at.term + whole);
    at.image[1] = at.image[0] + units;
    at.span[0] = (KvVoteAheadSpan *)(void *)(at.image[1] + units);
    at.span[1] = at.span[0] + whole;
    at.slot = (int32_t *)(void *)(at.span[1] + whole);
    at.end = at.slot + whole;
    return at;
}

/* ---- the common case of a decision, unit by unit */

/* The bits of word w of unit u that must be this rank's own: if they are in all units of all ranks of its stage, and this rank is ready and
 * passes accepted counts, the decision is publish, and its counts are everyone's. If they are not, nothing is said yet. */
KVG_HD static inline uint32_t kvg_vote_unit_mask(uint32_t u, uint32_t w)
{
    if (u >= 4) return 0;                      /* decided, counts: not decided on */
    return u == 1 && w == 0 ? 0xffffu : ~0u;   /* the rank stands beside the status */
}

/* ---- publishing one entry */

typedef struct KvVoteColumn {
    int32_t read, write, each;
    int     behind; /* 1: the state stayed behind */
} KvVoteColumn;

/* Where the recurrent state stands after `taken` of `staged` rows, as columns.h has it for a step of one pass. */
KVG_HD static inline KvVoteColumn kvg_vote_column(uint32_t columns, int32_t read, int32_t each, uint32_t staged, uint32_t taken, uint32_t next_rows)
{
    uint32_t     distance = each != 0 ? taken : (uint32_t)(taken == staged && staged != 0);
    uint32_t     current = ((uint32_t)read + distance) % columns;
    KvVoteColumn column;

    column.behind = each == 0 && taken != 0 && taken != staged;
    column.read = (int32_t)current;
    column.write = (int32_t)((current + 1) % columns);
    column.each = next_rows != 0 ? next_rows < columns : each;
    return column;
}

/* 1: it stayed behind. */
KVG_HD static inline int kvg_vote_take_column(const KvVoteArrays *arrays, int32_t slot, uint32_t staged, uint32_t taken, uint32_t next_rows)
{
    KvVoteColumn column = kvg_vote_column(arrays->columns, arrays->read[slot], arrays->each[slot], staged, taken, next_rows);

    arrays->read[slot] = column.read;
    arrays->write[slot] = column.write;
    arrays->each[slot] = column.each;
    return column.behind;
}

/* Where a class's base is to stand, at least, at a length. */
KVG_HD static inline uint32_t kvg_vote_base(uint32_t keep, uint32_t len)
{
    return keep != 0 && len > keep ? (len - keep) & ~31u : 0;
}

KVG_HD static inline void kvg_vote_raise_bases(const KvVoteArrays *arrays, int32_t slot, uint32_t len)
{
    for (uint32_t c = 0; c < arrays->classes; c++) {
        const KvVoteClass *at = &arrays->class_at[c];
        uint32_t           base = kvg_vote_base(at->keep, len);
        if (at->base_row != NULL && base > at->base_row[slot]) at->base_row[slot] = base;
    }
}

/* Rows that the step after `step` stages for entry e. */
KVG_HD static inline uint32_t kvg_vote_next_rows(const KvVoteArrays *arrays, uint64_t step, uint64_t last, uint32_t e)
{
    return arrays->next_rows != NULL && step != last ? arrays->next_rows[e] : 0;
}

/* 1: a replay is owed. Bases stay then: what is owed again reads on from where the state stands. */
KVG_HD static inline int kvg_vote_publish_entry(const KvVoteArrays *arrays, uint32_t e, const KvVoteEntry *entry, uint16_t stored, uint32_t next_rows)
{
    uint32_t taken = stored < entry->staged ? stored : entry->staged;
    uint32_t len = entry->len;
    int      owes = 0;

    if (stored == KVG_VOTE_ACCEPTED_ALL) taken = entry->staged;
    if (arrays->taken != NULL) arrays->taken[e] = entry->slot >= 0 ? taken : 0;
    if (entry->slot < 0) return 0;
    len += taken;
    arrays->len[entry->slot] = len;
    arrays->len_staged[entry->slot] = len + next_rows;
    if (arrays->first_row != NULL) arrays->first_row[e] = len;
    if (arrays->columns != 0) owes = kvg_vote_take_column(arrays, entry->slot, entry->staged, taken, next_rows);
    if (!owes) kvg_vote_raise_bases(arrays, entry->slot, len);
    return owes;
}

/* What stops the steps after a publish. */
KVG_HD static inline uint32_t kvg_vote_stop_after(uint64_t step, uint64_t last, int owes)
{
    return owes ? KVG_VOTE_STOP_REPLAY : step == last ? KVG_VOTE_STOP_DONE : KVG_VOTE_RUNS;
}

#endif

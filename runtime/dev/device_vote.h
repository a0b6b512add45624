/** Device vote: ranks that can load and store each other's memory agree on a step inside the stream, with no host in between (S7). What host and
 * device share, and the host's side of it; the kernels are launched by kvgrid_vote.h.
 *
 *   board   one block of memory a rank, each mapped by all ranks; rank r's begins at base + r*stride
 *           [slots][ranks][units] of 16 bytes: unit = 12 bytes of a record and a tag that says whose step and epoch they are
 *   post    forms this rank's record from the batch's arrays and stores it into every rank's block, one 16-byte store a unit: data and tag
 *           arrive together, so there is no fence and nothing to clear
 *   decide  waits for the records of all ranks, decides by the very function that the host decides by, and on publish moves lengths and
 *           columns; one 64-bit outcome word goes to the host. On anything but publish, and after the last step of a run, the batch's stop word is
 *           raised and no rows are staged (rows[e] = 0): every later kernel with these words does nothing until the host has cleared it
 *
 * A wait ends by itself: the control block, in mapped host memory, says how long it may last since the host last moved the deadline
 * forward (kvg_vote_forward), or that it must end now (kvg_vote_stop). It is looked at only while waiting.
 *
 * A batch's kernels follow each other in one stream, or are put in order by events; on every rank in the same order. At most W = slots/2 steps
 * are posted and not decided, as S7 has it: then nobody's record is overwritten before it was read. With PP > 1 a decide is launched where every
 * record is causally earlier, or once kvg_vote_present says that all are here; with one stage post and decide may be one kernel.
 *
 * Pointers in arrays are device memory unless said otherwise; for the host twins (_ref) all of it is host memory. Nothing is allocated but by the
 * host twins. Threads: any. Reach: local. Set up over NCCL: kvgrid_vote_nccl.h. */
#ifndef KVG_DEVICE_VOTE_H
#define KVG_DEVICE_VOTE_H

#include <stddef.h>
#include <stdint.h>

#include <kvgrid/status.h>
#include <kvgrid/vote.h>

KVG_BEGIN_DECLS

#define KVG_VOTE_DEVICE_RANKS_MAX 72u
#define KVG_VOTE_CLASSES_MAX 8u

/** Mapped host memory, 16-byte aligned, written by the host alone. */
typedef struct KvVoteControl {
    uint64_t deadline; /* high half: how long a wait may last since the latest move, us; low half: how often the deadline was moved */
    uint64_t stop;     /* not 0: a wait ends at its next look */
} KvVoteControl;

/** Where the records meet. The same on all ranks but for base, rank and control. */
typedef struct KvVoteBoard {
    uint8_t             *base;
    uint64_t             stride;        /* bytes from one rank's block to the next one's */
    uint32_t             rank, ranks;   /* ranks at most KVG_VOTE_DEVICE_RANKS_MAX */
    uint32_t             tp;            /* ranks a stage */
    uint32_t             slots;         /* 2W, rounded up to a power of two: step s meets in slot s mod slots */
    uint32_t             sequences_max; /* counts that a record has room for: max_step_sequences */
    const KvVoteControl *control;       /* as the device sees it */
} KvVoteBoard;

/** What a batch says in its records, at a fixed address. The first six are moved by the kernels; the host sets the rest, in stream order, between
 *  steps; a kernel of the engine's may write user, status and the accepted counts. */
typedef struct KvVoteWords {
    uint64_t step;    /* the next one to be posted and decided; from 1 on */
    uint64_t decided; /* as the record's */
    uint64_t posted;  /* the step that has been posted and not decided; 0: none, and a decide alone does nothing. Kept by what ended a wait */
    uint64_t ahead;   /* the step that KvVoteArrays.ahead was formed for; 0: none. To be set to 0 by whoever but decide has changed count, slots,
                         ids, generations, lengths or bases; what ran on the old ones would be posted else */
    uint32_t stop;    /* KvVoteStop; not 0: kernels do nothing. Cleared by the host */
    uint32_t advance; /* added to step by a decide that publishes: 1 where no other batch takes steps between. Set by the host */
    uint64_t running; /* the running digest of posted calls: targets start from it */
    uint64_t layout;  /* what the layout digest starts from: the sum over placements */
    uint64_t user;    /* the engine's own digest; 0: none */
    uint64_t last;    /* the last step of a run: publishing it stages nothing more and stops what follows; 0: none */
    uint32_t epoch;
    uint32_t count;   /* entries in use */
    int32_t  status;  /* 0 ready; else the KvgStatus of this rank's "no" */
    uint32_t accepts; /* KvVoteAccepts */
    uint64_t reserved; /* 0 */
} KvVoteWords;

typedef enum KvVoteAccepts {
    KVG_VOTE_ACCEPTS_NONE   = 0, /* this rank passes no accepted counts */
    KVG_VOTE_ACCEPTS_COUNTS = 1, /* those of KvVoteArrays.accepted */
    KVG_VOTE_ACCEPTS_ALL    = 2  /* all that is staged, whatever stands there: then a record can be formed ahead */
} KvVoteAccepts;

typedef enum KvVoteStop {
    KVG_VOTE_RUNS         = 0,
    KVG_VOTE_STOP_OUTCOME = 1, /* the outcome was not publish */
    KVG_VOTE_STOP_REPLAY  = 2, /* published, and a sequence's recurrent state stayed behind: the host must plan a replay */
    KVG_VOTE_STOP_DONE    = 3  /* published the last step; nothing stayed behind */
} KvVoteStop;

/** A class of layers whose base goes up as rows leave its window. */
typedef struct KvVoteClass {
    uint32_t *base_row; /* [slots of the store]; NULL: 0 for ever */
    uint32_t  keep;     /* rows behind the length that stay, kvg_vote_keep; 0: base_row is only read */
} KvVoteClass;

/** A batch's arrays. What is [entries] goes by the entry's place in the record, what is [slots] by the store's slot. */
typedef struct KvVoteArrays {
    KvVoteWords    *words;       /* 16-byte aligned */
    void           *ahead;       /* [kvg_vote_ahead_bytes(entries)] 16-byte aligned, zeroed before the first step, the kernels' own: the next record,
                                    formed while this step's records travel. NULL: formed when it is posted, which takes longer. Host twins
                                    leave it alone */
    const uint32_t *accepted;    /* [entries] rows of those staged. NULL: all. With status ETAINTED: 1 for each sequence that is tainted */
    const uint32_t *next_rows;   /* [entries] rows that the next step stages: len_staged goes ahead by them. NULL: 0 */
    uint64_t       *outcome;     /* mapped host memory, as the device sees it */
    uint32_t        entries;     /* room of the arrays, at most sequences_max; words->count of them are in use; the others' slots are valid, or -1 */
    uint32_t        classes;     /* at most KVG_VOTE_CLASSES_MAX */
    uint32_t       *len;         /* [slots] committed */
    uint32_t       *len_staged;  /* [slots] target of the step: len and what it staged */
    uint32_t       *taken;       /* [entries] set on publish: the rows that were accepted, on every rank. NULL: not told */
    uint32_t       *rows;        /* [entries] what the next step is to write: next_rows on publish, 0 after the last step, after a publish that owes
                                    a replay, after anything but publish, and for entries without slot or not in use. NULL: not told */
    uint32_t       *first_row;   /* [entries] set on publish: the row that the next step writes first, the new committed length. NULL: not told */
    uint32_t        columns;     /* 0: none */
    int32_t        *read, *write, *each; /* [slots] as KvRecurrentView has them, on every rank of a model with recurrent layers. NULL: none */
    const int32_t  *slots;       /* [entries] a slot, or -1: in no digest, nothing moves. NULL: entry e has slot e */
    const uint64_t *ids;         /* [entries] as digested */
    const uint64_t *generations; /* [entries] */
    KvVoteClass     class_at[KVG_VOTE_CLASSES_MAX];
} KvVoteArrays;

/** The rows behind a sequence's length that a pooled windowed class keeps. */
KVG_API uint32_t kvg_vote_keep(uint64_t window);
/** slots for W undecided steps. */
KVG_API uint32_t kvg_vote_slots(uint32_t window_steps);
/** Bytes of one rank's block: zeroed before the first step. */
KVG_API size_t kvg_vote_board_bytes(const KvVoteBoard *board);
/** Bytes of KvVoteArrays.ahead. */
KVG_API size_t kvg_vote_ahead_bytes(uint32_t entries);

/* ---- the host's side */

KVG_API size_t kvg_vote_slot_bytes(const KvVoteBoard *board);
/** Copies rank's record of step out of a peeked slot into `record` [kvg_vote_record_bytes]; 0 where it is not wholly there, or is of an epoch
 *  before `epoch`. NULL record: only asks. */
KVG_API int kvg_vote_unpack(const KvVoteBoard *board, const void *units, uint64_t step, uint32_t epoch, uint32_t rank, KvVoteRecord *record);
/** 1 when every rank's record is there. */
KVG_API int kvg_vote_present(const KvVoteBoard *board, const void *units, uint64_t step, uint32_t epoch);

/** Sets how long a wait may last since the latest move, at most 4294 s; 0 ends waits at their first look. Counts as a move. */
KVG_API void kvg_vote_allow(KvVoteControl *control, uint64_t timeout_us);
/** Moves the deadline forward: a wait that is going on may last as long again from now. */
KVG_API void kvg_vote_forward(KvVoteControl *control);
/** 1: waits end at their next look. 0: not any more. */
KVG_API void kvg_vote_stop(KvVoteControl *control, int stop);

typedef enum KvVoteWordKind {
    KVG_VOTE_WORD_NONE    = 0, /* nothing decided yet */
    KVG_VOTE_WORD_DECIDED = 1, /* outcome says what */
    KVG_VOTE_WORD_INDOUBT = 2, /* the deadline passed; missing: the lowest rank whose record was not there */
    KVG_VOTE_WORD_STOPPED = 3  /* kvg_vote_stop ended the wait; missing likewise */
} KvVoteWordKind;

typedef struct KvVoteWord {
    KvVoteWordKind kind;
    uint64_t       step;    /* the step at or after `since` that the word can speak of */
    KvVoteOutcome  outcome; /* DECIDED */
    uint32_t       missing; /* INDOUBT, STOPPED */
} KvVoteWord;

/** Reads an outcome word. since: a step that is known to be decided or begun, at most 2^28 - 1 before the word's. */
KVG_API KvVoteWord kvg_vote_word(uint64_t word, uint64_t since);

/* ---- host twins: the reference. All pointers are host memory; base + r*stride too. */

/** This rank's record as post forms it. record [kvg_vote_record_bytes(board->sequences_max)]; counts past words->count are 0. */
KVG_API void kvg_vote_form_ref(const KvVoteBoard *board, const KvVoteArrays *arrays, KvVoteRecord *record);
/** A post without a decide. ENOMEM. */
KVG_API KvgStatus kvg_vote_post_ref(const KvVoteBoard *board, const KvVoteArrays *arrays);
/** Decides what was posted. Does not wait: what is missing is in doubt at once. ENOMEM. */
KVG_API KvgStatus kvg_vote_decide_ref(const KvVoteBoard *board, const KvVoteArrays *arrays);

KVG_END_DECLS
#endif

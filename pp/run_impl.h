/* Run, inside: what a batch keeps for captured runs. Private to pp/capture.c, pp/run*.c.
 *
 *   block   one piece of device memory, sent whole at run_begin: the words and arrays that votes read and move (RunBlock)
 *   words   host memory that both sides see: the outcome word, a board's control where the board is our own, a peeked slot
 *   board   the grid's; on a grid of one rank the run's own, in the placement's device memory */
#ifndef KVG_RUN_IMPL_H
#define KVG_RUN_IMPL_H

#include <kvgrid/dev_run.h>

#include "pp/internal.h"

typedef struct RunBlock { /* pointers into it, on one side */
    KvVoteWords *words;
    void        *ahead;
    uint64_t    *ids, *generations;
    uint32_t    *places; /* [4][slots]: slots, rows, first rows, first tokens (KvStorePlaces) */
    uint32_t    *next_rows, *accepted, *taken;
} RunBlock;

struct KvgRun {
    uint32_t      slots;
    size_t        block_bytes;
    void         *block_memory, *block_device;
    RunBlock      host, device;
    uint8_t      *host_words;   /* outcome word, own control, peeked slot */
    uint8_t      *device_words;
    KvVoteBoard   board;        /* the grid's is looked up again by each capture */
    KvVoteControl *control;
    void         *own_board;    /* device memory; NULL: the grid's */
    KvEvent       passed;
    KvgGraph     *graphs;       /* all of the batch's, linked by `next` */
    /* ---- while a capture is on */
    KvgGraph     *capturing;
    KvgStream     stream;       /* the capture's; then the run's */
    /* ---- while a run is on */
    KvgGraph     *graph;        /* whose run it is; NULL: none */
    uint64_t      first, last;  /* steps: first, first + advance, ... last */
    uint32_t      advance;      /* batches of the run, whose steps take turns */
    uint64_t      moved_ns;     /* the oldest sign of life at which the deadline was last moved */
    uint64_t      progress;     /* as last seen: steps published */
    uint64_t      progress_ns;
    KvgStatus     local;        /* what this rank alone failed with: it posts "no" */
    char          local_why[256];
    uint32_t     *rows;         /* [slots] that each step stages */
    uint8_t      *refusal;      /* [slots] */
    uint64_t     *base;         /* [slots] committed rows at the begin */
    uint32_t     *result_rows;  /* [slots] */
    /* ---- of the run that has ended last */
    uint64_t      published;
    uint64_t      ended_by;     /* the step that was not published; 0: none */
    KvVoteWord    word;
    KvgStep      *step;         /* the last one decided, or in doubt; NULL: none */
    KvgOutcome    outcome;      /* of the last one decided; size 0: none */
    KvgStatus     status;
    char          why[384];
    uint32_t     *lengths;      /* [store's slots] scratch: as read back */
    int32_t      *columns;      /* likewise */
};

struct KvgGraph {
    KvgBatch     *batch;        /* NULL once it is destroyed */
    KvgGraph     *next;
    void         *graph;        /* the device's; NULL: the nodes stand in a graph of the caller's */
    uint32_t     *captured;     /* [slots] rows */
    uint32_t      rows_max;
    void         *tokens;       /* [slots] device memory: first tokens */
    KvgAccept     accept;
    int           joined;
    KvVoteArrays  arrays;
    KvVoteBoard   board;        /* as its nodes have it */
};

#define RUN_OUTCOME_AT 0u
#define RUN_CONTROL_AT 64u
#define RUN_PEEK_AT    128u

static inline volatile uint64_t *kvg_run_outcome_word(const KvgRun *run)
{
    return (volatile uint64_t *)(void *)(run->host_words + RUN_OUTCOME_AT);
}

/* What the outcome word says: a step was published, or one was not, which ended the run. Neither: nothing has been decided. */
static inline int kvg_run_word_publishes(const KvVoteWord *word)
{
    return word->kind == KVG_VOTE_WORD_DECIDED && word->outcome.kind == KVG_VOTE_PUBLISH;
}

static inline int kvg_run_word_ends(const KvVoteWord *word)
{
    return word->kind != KVG_VOTE_WORD_NONE && !kvg_run_word_publishes(word);
}

static inline const KvDevRunOps *kvg_run_ops(const KvgBatch *batch)
{
    return batch->placement->device.ops->run;
}

/* capture.c: the capture that is on ends and leaves no graph. */
void kvg_capture_give_up(KvgBatch *batch);

/* run_memory.c: makes and frees what a batch needs; the first capture asks for it. */
KvgStatus kvg_run_open(KvgBatch *batch);
void      kvg_run_close(KvgBatch *batch);

#endif

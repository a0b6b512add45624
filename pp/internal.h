/* Internal: the objects behind the public handles of pp, and what they ask of each other. Private.
 *
 *   KvgGrid        the ranks: comm, liveness, epoch, running digest, messages that wait
 *   KvgVotes       the steps in flight and their records: one for all placements of a grid, so that they can share a step
 *   KvgPlacement   one model on the grid: agreed plan, store, sequences
 *   KvgSequence    one sequence: its cache on this rank and the step it is in
 *   KvgBatch       fixed places for sequences
 *   KvgStep        one of 2W places for steps: what was staged, what was decided
 *
 * Agreed state (the same on every rank at the same point of the program): which sequences are open, their committed rows as of
 * their last decided step, booked units, generations, the running digest. Units that fall behind a window are freed only at moments that
 * all ranks share: at the begin of step s+W, at the next begin or posted call that names the sequence, at its close. So unit
 * counts never depend on when a rank happened to decide. */
#ifndef KVG_PP_INTERNAL_H
#define KVG_PP_INTERNAL_H

#include <kvgrid/device_vote.h>
#include <kvgrid/kvgrid.h>
#include <kvgrid/vote.h>

#include "runtime/base/error.h"
#include "runtime/base/memory.h"
#include "runtime/base/mix.h"
#include "runtime/base/sized.h"
#include "runtime/state/cache.h"

/* ---- messages between ranks, apart from records */

#define KVG_MESSAGE_MAGIC 0x3167766bu /* "kvg1" */

typedef struct KvMessageHeader { /* crosses the wire */
    uint32_t magic;
    uint32_t epoch;
    uint64_t tag;   /* which exchange: the grid's running number of set-up rounds, or a step */
    uint32_t kind;  /* KvMessageKind */
    uint32_t what;  /* hash of the operation's name: two ranks in different operations are told apart */
} KvMessageHeader;
_Static_assert(sizeof(KvMessageHeader) == 24, "crosses the wire: no padding");

typedef enum KvMessageKind {
    KVG_MESSAGE_SETUP = 1, KVG_MESSAGE_SETTLE = 2, KVG_MESSAGE_RUNNING = 3,
    KVG_MESSAGE_STOPPED = 4, /* the sender posts nothing after step `tag` in this epoch: it is in doubt, settles, or begins none without a lost rank. No body */
    KVG_MESSAGE_OUT = 5, /* the sender has settled without the receiver. No body */
    KVG_MESSAGE_REBUILD = 6 /* among survivors and newcomers, who do not know the epoch yet: it is UINT32_MAX there */
} KvMessageKind;

typedef struct KvMessage {
    struct KvMessage *next;
    int               from;
    size_t            body_bytes;
    KvMessageHeader   header;
    uint8_t           body[];
} KvMessage;

/* One all-gather of bytes over messages, among some ranks. Started, then tested until done. Once started it ends by arrival, by loss or by the
 * deadline alone: a want of memory while it sends or receives is tried again, so that no rank drops out of a vote it has begun to cast. */
typedef struct KvGather {
    KvgGrid  *grid;
    uint64_t  tag;
    uint32_t  kind, what, epoch;
    uint64_t  started_ns;
    uint64_t  silent_since_ns; /* when a missing rank was first seen lost; 0: none is */
    int       missing;
    int       ahead;   /* settling: a rank that has settled this epoch already; -1: none */
    int       next_send;
    void     *wire;    /* header and body, until every member has been sent to */
    size_t    wire_bytes;
    char      unsent_why[160]; /* what the transport said when it last took none of it */
    uint8_t  *member;  /* [ranks] 1: takes part */
    const uint8_t *receiver; /* [ranks] 1: is sent the bytes; NULL: every member. The caller's */
    void    **body;    /* [ranks] NULL until it has arrived */
    size_t   *bytes;   /* [ranks] */
} KvGather;

/* member [ranks]: who takes part. receiver [ranks]: who of them is sent the bytes, the others are sent none; it outlives the gather. NULL: all. */
KvgStatus kvg_gather_start(KvgGrid *grid, KvMessageKind kind, uint64_t tag, const char *what, const uint8_t *member,
                           const uint8_t *receiver, const void *body, size_t bytes, KvGather *gather);
/* *done = 1 when every member's bytes are here. EPEER, EINDOUBT at the deadline, ELAYOUT where a rank is in another operation. */
KvgStatus kvg_gather_test(KvGather *gather, int *done);
/* Settling: takes the message of a rank that is `ahead` as its body, without removing it. */
KvgStatus kvg_gather_hear(KvGather *gather, int ahead, uint32_t *epoch);
void      kvg_gather_free(KvGather *gather);

/* ---- set-up operations: phases that end in a gather */

struct KvgSetup {
    KvgGrid    *grid;
    const char *what;
    uint64_t    tag;       /* of its gathers, phase by phase: a rank that fails between two does not shift those of the next operation */
    uint32_t    epoch;     /* in which it began: what a settle ends stays ended in the next */
    int         phase;
    int         done;
    KvgStatus   result;
    char        why[512];  /* the sentence of `result` */
    int         has_gather, has_next; /* `gather` is under way or has arrived; a phase started `next` */
    uint8_t    *member;    /* who takes part; NULL: every rank that no settle has left out */
    KvMessageKind kind;
    KvGather    gather, next;
    /* Runs one phase: reads `gather`, then starts the next one (kvg_setup_gather), or sets *done, or asks to be run again by neither. */
    KvgStatus (*run)(KvgSetup *setup, int *done);
    /* Undoes what a failed operation has half made; called once, before the result is delivered. */
    void (*undo)(KvgSetup *setup);
    /* Of a voted change (voted.h), once all are known to be ready: mixes it into the running digest; makes it count, which cannot fail. */
    void (*posted)(KvgSetup *setup);
    void (*publish)(KvgSetup *setup);
    int orphan; /* its caller has freed it while it was in doubt: settling ends it */
    void (*drop)(KvgSetup *setup); /* frees `state` */
    void *state;
};

KvgStatus kvg_setup_new(KvgGrid *grid, const char *what, size_t state_bytes, KvgSetup **setup);
KvgStatus kvg_setup_gather(KvgSetup *setup, const void *body, size_t bytes);
/* The same, with the bytes sent to ranks of receiver [ranks] alone, which outlives the operation; the others learn only that this rank is here. */
KvgStatus kvg_setup_gather_to(KvgSetup *setup, const uint8_t *receiver, const void *body, size_t bytes);
/* Starts, waits, frees: the blocking form of every operation. */
KvgStatus kvg_setup_finish(KvgStatus started, KvgSetup *const *setup);

/* ---- grid */

#define KVG_STEP_BATCHES_MAX 4 /* of one step, of one run */

typedef struct KvgVotes KvgVotes;

typedef struct KvRecordSlot { /* the records of one step, as they arrive */
    uint64_t       step;
    uint32_t       arrived;  /* how many */
    KvVoteRecord **record;   /* [ranks], each record_bytes; valid where present */
    uint8_t       *present;  /* [ranks] */
} KvRecordSlot;

struct KvgGrid {
    KvComm       comm;
    KvLiveness   liveness;
    KvComm      *comm_before; /* while a rebuild settles over `comm`, which is to be: what the grid had, where those who are left out may still listen; else NULL */
    int          rank, ranks;
    uint32_t     tp, pp;
    uint32_t     epoch;
    uint32_t     window;     /* W */
    KvgPolicy    policy;
    uint64_t     timeout_ns;
    uint64_t     running;    /* digest of posted calls */
    uint64_t     setup_tag;  /* set-up operations of this epoch so far */
    int          settling;   /* a settle of this epoch has begun: records decide nothing any more */
    int          rebuilding; /* a rebuild has settled, and neither published nor ended: its ranks are told apart from those that step, so nothing else begins */
    KvgStatus    state;      /* KVG_OK, EPEER, EINDOUBT, ELAYOUT */
    char         why[384];
    uint8_t     *alive;      /* [ranks] 0: left out by a settle */
    int          voters;     /* how many are alive: all of them, unless a rebuild went on without some */
    uint8_t     *empty;      /* [ranks] 1: a rebuild went on without a rank there */
    uint8_t     *lost_told;  /* [ranks] */
    uint64_t    *stopped_ns;   /* [ranks] when it said that it posts nothing more in this epoch; 0: it has not */
    uint64_t    *stopped_step; /* [ranks] after which step */
    int          stop_told;    /* this rank has said so: 1 that it begins no more, 2 that it posts no more */
    int          lost_count;
    void       (*on_lost)(void *user, int rank, const char *why);
    void        *user;
    KvMessage   *inbox, **inbox_tail;
    const void  *unkept;     /* a received message for which there was no memory: tried again before the next is received */
    size_t       unkept_bytes;
    int          unkept_from;
    uint64_t     last_poll_ns;
    KvgVotes     *votes;      /* NULL until something is placed */
    KvgPlacement *placements; /* linked by `next` */
    uint32_t      placed;     /* placements so far: numbers them */
    KvgSetup     *cast;       /* a voted change to which this rank has said yes and whose outcome it does not know; else NULL */
    uint64_t      changes;    /* voted changes published so far */
    KvVoteBoard    board;     /* of votes on the device; base NULL: none */
    KvVoteControl *board_control;
    KvgBatch      *run[KVG_STEP_BATCHES_MAX]; /* whose captured run is on */
    uint32_t       run_count; /* 0: none is */
};

/* Receives messages and looks at liveness. */
KvgStatus kvg_grid_turn(KvgGrid *grid);
/* The grid can step or be called; else its state with the sentence that was set when it changed. */
KvgStatus kvg_grid_usable(const KvgGrid *grid);
KvgStatus kvg_grid_fail(KvgGrid *grid, KvgStatus state, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The state that all who settled come to alike. Nobody is told that this rank posts nothing: the word would be of the new epoch, where a rebuild lets it post. */
void kvg_grid_settled(KvgGrid *grid, KvgStatus state, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Tells the others, once, that this rank posts nothing more in this epoch: they need not wait for its records. */
void kvg_grid_stops(KvgGrid *grid);
/* Some ranks were left out for good by a rebuild: ENOTSUP, naming `call` and the first of them. */
KvgStatus kvg_grid_no_hole(const KvgGrid *grid, const char *call);
/* The lowest rank that takes part. */
int       kvg_grid_first(const KvgGrid *grid);
/* The caller's options as this library knows them; NULL: the defaults. EINVAL. */
KvgStatus kvg_grid_take_options(const KvgGridOptions *given, KvgGridOptions *options);
/* grid.c, for rebuilding: a grid without a transport; its transport; another one for it, and back what it had. EINVAL, ENOMEM. */
KvgStatus kvg_grid_make(const KvgGridOptions *options, int rank, int ranks, KvgGrid **grid);
KvgStatus kvg_grid_connect(const KvgGrid *grid, const KvgBootstrap *bootstrap, const KvComm *records, const KvLiveness *alive, KvComm *comm,
                           KvLiveness *liveness);
void      kvg_grid_swap_comm(KvgGrid *grid, KvComm *comm, KvLiveness *liveness);
/* A captured run takes the grid for itself: EBUSY. */
KvgStatus kvg_grid_no_run(const KvgGrid *grid);
int       kvg_grid_is_lost(const KvgGrid *grid, int rank);
/* Text [KVG_WHO_BYTES]: " (host n01, pid 4711)" of a rank that is not lost, "" where that is not known. */
enum { KVG_WHO_BYTES = 128 };
void      kvg_grid_say_who(const KvgGrid *grid, int rank, char *text);
static inline uint64_t kvg_grid_now(const KvgGrid *grid) { return grid->comm.ops->now_ns(grid->comm.self); }
/* A call's name as a number: for digests, and to tell operations apart. */
static inline uint64_t kvg_name_hash(const char *name)
{
    uint64_t hash = 0;
    for (const char *c = name; *c != '\0'; c++) {
        hash = kvg_mix64(hash + (uint8_t)*c);
    }
    return hash;
}
/* Mixes one posted call into the running digest. */
void kvg_grid_posted(KvgGrid *grid, const char *call, uint64_t id, uint64_t value, KvgStatus result);

/* Values that must be equal over ranks, compared in order: the first that differs is named with both ranks and values. */
typedef struct KvItem {
    const char *name;
    size_t      offset; /* of a uint64_t in each rank's block */
} KvItem;
KvgStatus kvg_items_compare(const char *what, const KvItem *items, size_t count, const void *const *blocks, int ranks);

/* ---- placement */

typedef enum KvStepState { KVG_STEP_FREE = 0, KVG_STEP_BEGUN, KVG_STEP_POSTED, KVG_STEP_COMPARING, KVG_STEP_DECIDED } KvStepState;

typedef struct KvStepEntry {
    KvgSequence *sequence;   /* NULL once it has been closed */
    uint64_t     id;
    uint64_t     generation;
    uint64_t     base_rows;  /* committed rows when the step began */
    uint32_t     staged;     /* rows, all passes */
    uint32_t     slot;       /* among the step's places */
} KvStepEntry;

struct KvgStep {
    uint64_t      number;
    KvStepState   state;
    KvgVotes     *votes;
    uint32_t      batch_count;
    KvgBatch     *batch[KVG_STEP_BATCHES_MAX];     /* NULL once destroyed */
    KvgPlacement *placement[KVG_STEP_BATCHES_MAX]; /* of each batch; NULL once destroyed */
    uint32_t      first[KVG_STEP_BATCHES_MAX];     /* its first place among the step's */
    uint32_t      slots;       /* places of all batches, one after the other */
    uint32_t      count;       /* entries */
    KvStepEntry  *entries;     /* [max_step_sequences] */
    uint32_t     *rows;        /* [max_step_sequences] by place: granted in the current pass */
    uint64_t     *first_row;   /* [max_step_sequences] by place: absolute row of the current pass's first */
    uint8_t      *refusal;     /* [max_step_sequences] by place */
    uint32_t     *accepted;    /* [max_step_sequences] by place, of the outcome */
    uint32_t     *replay;      /* likewise */
    uint64_t      running;     /* the digest of posted calls when it began */
    KvgStatus     local;       /* what this rank alone failed with: it will post "no" */
    char          local_why[256];
    int           any_taint;   /* an entry is tainted on this rank */
    uint64_t      posted_ns;
    int           unsent;      /* posted, and the transport had no memory for its record yet: not decided here before it has left */
    KvgOutcome    outcome;
    char          why[384]; /* the sentence of the outcome's status */
    KvGather      running_gather;
    int           captured;     /* of a captured run: what columns held before is not known */
};

struct KvgSequence {
    KvgPlacement *placement;
    KvCache       cache;
    uint64_t      id;
    uint64_t      generation;
    uint64_t      last_step;     /* 0: none */
    uint32_t      entry;         /* in that step */
    int           open;
    int           taint_pending; /* this rank alone knows yet */
    uint64_t      named_in;      /* the begin that last named it: finds sequences named twice */
    int           close_pending; /* closed while a captured run was on: goes when that ends */
    int           counted_growth; /* booked at open: growth counts from then on */
    DflashTapSink *dflash;       /* the caller's, or NULL */
    HcTapSink    *hc;
    float        *logits;        /* of the last row, ours; NULL: none parked */
    uint32_t      logits_count;
};

/* The steps of a grid: at most W undecided, 2W remembered. */
struct KvgVotes {
    KvgGrid       *grid;
    uint32_t       max_step_sequences; /* of the first placement: fixes the record */
    size_t         record_bytes;
    uint64_t       begun;       /* number of the last step begun */
    uint64_t       decided;     /* every step up to this one is decided */
    uint32_t       unsent;      /* steps whose record has not left */
    uint64_t       released;    /* what fell behind in steps up to this one has been freed */
    uint32_t       ring;        /* 2W */
    KvgStep       *steps;       /* [ring], step s at s % ring */
    KvRecordSlot  *records;     /* [ring] */
    const KvVoteRecord **votes; /* [ranks] scratch of the decision */
};

typedef struct KvgRun KvgRun;

struct KvgBatch {
    KvgPlacement *placement;
    uint32_t      slots;
    KvgSequence **sequence;  /* [slots] */
    uint64_t     *serial;    /* [slots] the life of the sequence that was put there */
    int32_t      *slot_of;   /* [slots] device memory */
    uint32_t     *pass;        /* [2][4][slots] on a device that writes a pass at once: the pass as last sent, and the one being gathered */
    uint32_t     *pass_device; /* [4][slots] device memory: slots, rows, first rows, first tokens (KvStorePlaces) */
    KvgStep      *open_step; /* begun and not posted */
    KvgRun       *run;       /* what captured runs need; NULL until a capture begins */
    uint32_t      first;     /* its first place in that step */
};

/* The sequence in a place; NULL if there is none, or it has been closed since. */
static inline KvgSequence *kvg_batch_at(const KvgBatch *batch, uint32_t slot)
{
    KvgSequence *sequence = batch->sequence[slot];
    return sequence != NULL && sequence->open && sequence->cache.serial == batch->serial[slot] ? sequence : NULL;
}

struct KvgSnapshot {
    KvgPlacement   *placement; /* NULL once it has gone, and the device memory with it */
    KvgSnapshot   **link;      /* in the placement's list: what points here */
    KvgSnapshot    *next;
    KvgSequence    *sequence;
    KvCacheSnapshot *cache;
};

struct KvgPlacement {
    KvgGrid       *grid;
    KvgPlacement  *next;
    uint32_t       number;      /* from 0: tells the placements of a grid apart in digests */
    KvDev          device;
    int            owns_device;
    ModelConfig    config;      /* a copy */
    KvGridPlan     plan;
    KvgPlaceOptions options;    /* fence and layer_bytes are copies */
    KvStore       *store;
    uint32_t       lo, hi;      /* this rank's layers */
    uint64_t       layout_seed; /* of the record's layout field: formats and shard of this stage */
    uint64_t      *state_bytes; /* [ranks] each rank's memory for sequence state */
    KvgSequence   *sequences;   /* [max_sequences] */
    uint32_t      *free_slots;  /* stack of slots */
    uint32_t       free_count;
    uint64_t       serial;      /* lives of slots so far */
    uint32_t       batches;
    int            asleep;      /* agreed */
    KvgSnapshot   *snapshots;   /* alive: their device memory goes with the placement */
    KvgStats       stats;
    uint64_t       placed_ns;   /* when, by the grid's clock */
};

/* The plan that these bytes a rank [ranks] give; freed by kvg_grid_plan_free. */
KvgStatus kvg_placement_replan(const KvgPlacement *placement, const uint64_t *state_bytes, KvGridPlan *plan);
void      kvg_placement_free(KvgPlacement *placement);
/* snapshot.c: frees what the placement's snapshots hold of it; the snapshots themselves are the caller's. */
void      kvg_snapshots_empty(KvgPlacement *placement);
/* voted.c */
/* The running digest as it is once the change in doubt is published; 0: none is in doubt. */
uint64_t kvg_voted_running(const KvgGrid *grid);
/* The change that this rank has voted for is published or undone: settled, or (published 0) given up with its placement. */
void kvg_voted_resolve(KvgGrid *grid, int published);
/* EBUSY while the placement is asleep. */
KvgStatus kvg_placement_awake(const KvgPlacement *placement);
/* A rank is known lost: nothing that needs every rank can start. EPEER naming it. */
KvgStatus kvg_grid_whole(KvgGrid *grid);

static inline KvgStep *kvg_step_at(KvgVotes *votes, uint64_t number)
{
    return &votes->steps[number % votes->ring];
}

/* votes.c: made with the first placement, freed with the grid. */
KvgStatus kvg_votes_create(KvgGrid *grid, uint32_t max_step_sequences, KvgVotes **votes);
void      kvg_votes_free(KvgVotes *votes);
/* A placement goes: no remembered step names it or its sequences any more. Undecided steps go on without them. */
void      kvg_votes_forget(KvgVotes *votes, const KvgPlacement *placement);

/* records.c: where records wait until their step is decided */
KvgStatus kvg_records_create(KvgVotes *votes);
void      kvg_records_destroy(KvgVotes *votes);
/* Puts a record in its place; drops it if its epoch is older than ours or its step is decided. */
void kvg_records_put(KvgVotes *votes, int from, const KvVoteRecord *record);
/* Takes what has arrived from the comm. */
void kvg_records_take(KvgVotes *votes);
KvRecordSlot *kvg_records_slot(KvgVotes *votes, uint64_t step);
/* The record buffer of this rank for `step`, present from now on. */
KvVoteRecord *kvg_records_own(KvgVotes *votes, uint64_t step);
/* Forgets records of older epochs. */
void kvg_records_forget(KvgVotes *votes);

/* The batches of a step that is posted or given up may begin another. */
static inline void kvg_step_close_batches(KvgStep *step)
{
    for (uint32_t b = 0; b < step->batch_count; b++) {
        if (step->batch[b] != NULL) {
            step->batch[b]->open_step = NULL;
        }
    }
}

/* A rank that gives signs of life and never posts is a bug in the caller's program: this many deadlines end the wait. */
#define KVG_LIVELY_DEADLINES 20u

/* step_begin.c */
/* The place of step `number`, over these batches, with no entries yet; state KVG_STEP_BEGUN. */
KvgStep *kvg_step_place(KvgVotes *votes, uint64_t number, KvgBatch *const *batches, uint32_t count);
/* Rows of windowed classes that one `what` (a step, a run) may stage while a ring is on: ENOFIT. */
KvgStatus kvg_placement_check_chunk(const KvgPlacement *placement, uint64_t staged, const char *what);
KvgStatus kvg_classes_check_chunk(const KvClassPlan *classes, uint32_t count, uint32_t chunk, uint64_t staged, const char *what);
/* Frees what fell behind windows in steps up to `upto`, at a moment that all ranks share. */
void kvg_votes_release(KvgVotes *votes, uint64_t upto);

/* step_post.c */
/* 1: the step's record has left, now or before. */
int  kvg_step_sent(KvgStep *step);
/* Tries again for all steps whose record has not left. */
void kvg_votes_send(KvgVotes *votes);

/* step_decide.c */
/* A step that the device has published: its caches stand there already. */
void kvg_step_adopt_published(KvgStep *step);
/* Fails the grid with the step's doubt about `rank`. */
KvgStatus kvg_step_in_doubt(KvgStep *step, int rank, const char *why);
/* Decides the step if all its records are here. *done says whether it is decided. */
KvgStatus kvg_step_progress(KvgStep *step, int *done);
/* Waits until it is decided: KVG_OK, EINDOUBT, EPEER. The step's own outcome is not looked at. */
KvgStatus kvg_step_await(KvgStep *step);
/* Ends the step's transactions: accepted rows by entry, or NULL to roll back. */
void kvg_step_publish(KvgStep *step, const uint16_t *stored);
/* Counts from another rank belong to this step: one an entry, none above what was staged. EFORMAT. */
KvgStatus kvg_step_counts_fit(const KvgStep *step, const uint16_t *stored, uint32_t count);
/* Settled back: nobody published it. `tainted` by entry: sequences that a survivor tainted in it; NULL: none. */
void kvg_step_roll_back(KvgStep *step, const uint16_t *tainted);
/* Moves `decided` on over steps that are decided in a row. */
void kvg_steps_advance(KvgVotes *votes);

/* run_watch.c */
/* One look at a captured run that is on: liveness, deadline. */
void kvg_run_watch(KvgGrid *grid);
/* 1: the sequence takes part in it. */
int kvg_run_names(const KvgSequence *sequence);

/* sequence.c */
/* Its last step is decided (waits for it) and it is open: EBUSY begun and unposted here, EINDOUBT, EPEER, ESTALE. Changes no count. */
KvgStatus kvg_sequence_await_last(KvgSequence *sequence);
/* The sequence may be named by a posted call now: as await_last, then what fell behind is freed, at a moment that all ranks share. */
KvgStatus kvg_sequence_settle_last(KvgSequence *sequence);
/* A slot for a new sequence; one is free. */
KvgSequence *kvg_sequence_take(KvgPlacement *placement, uint64_t id);
/* Empty as just opened, in its slot and under its handle; tainted if it was. */
void         kvg_sequence_reset(KvgSequence *sequence);
/* Mixes a posted call into the running digest and gives its answer, the same on every rank. */
KvgStatus kvg_sequence_posted(KvgSequence *sequence, const char *call, uint64_t value, KvgStatus status);
void      kvg_sequence_drop(KvgSequence *sequence, KvgStream stream);
/* An id as digests see it: two placements of a grid may use the same. */
static inline uint64_t kvg_placement_id(const KvgPlacement *placement, uint64_t id)
{
    return placement->number == 0 ? id : id ^ kvg_mix64(placement->number);
}
/* attach.c: forgets what was derived from rows that are no longer the sequence's last. */
void      kvg_sequence_forget_logits(KvgSequence *sequence);
void      kvg_sequence_drop_attached(KvgSequence *sequence);
/* Its last step is begun here and not posted: 1; posted and undecided: 2; else 0. */
int       kvg_sequence_in_step(const KvgSequence *sequence);

#endif

/* Simulator: all ranks of a grid in one thread on the in-process transport, driven through long random lives with faults, and compared after
 * each step with a naive reference. It has no vote, ring or settling logic of its own: it knows what it asked for and which faults it planted.
 *
 *   life      one grid from creation to its end: drawn shape, model, layout, formats, faults
 *   op log    one program for all ranks, written op by op when the first rank needs more; each rank walks it at its own pace
 *   truth     what a step was asked, which ranks said yes, what the first rank to decide it was told: all others must hear the same
 *   reference [sequence] length and one key a row; a row's content in every plane follows from its key
 *             front: after what the first rank has done; back: after what every living rank has done
 * The same seed gives the same run. */
#ifndef SIM_H
#define SIM_H

#include <kvgrid/kvgrid.h>

#include "pp/internal.h"

enum {
    SIM_RANKS = 64, SIM_SEQS = 6, SIM_PLACES = 3, SIM_BATCHES = 3, SIM_CTX = 1024, SIM_STEP_ROWS = 192, SIM_LOG = 256, SIM_TRUTHS = 128,
    SIM_HUBS = 64, SIM_TIMEOUT_MS = 1000, SIM_PATTERNS = 4096, SIM_PATTERN = 32
};
#define SIM_MS 1000000ull
#define SIM_DEADLINE_NS (SIM_TIMEOUT_MS * SIM_MS)

/* ---- draws */

typedef struct Draws {
    uint64_t state;
} Draws;

static inline uint64_t draw64(Draws *draws)
{
    return kvg_mix64(draws->state += 0x632be59bd9b4e019u);
}
static inline uint32_t draw(Draws *draws, uint32_t below)
{
    return (uint32_t)((draw64(draws) >> 32) * below >> 32);
}
/* One in `n`. */
static inline int chance(Draws *draws, uint32_t n)
{
    return draw(draws, n) == 0;
}

/* ---- reference */

typedef struct RefSeq {
    int      open, tainted;
    uint64_t id;       /* of this life; never used again */
    uint64_t len;
    uint32_t cuts;     /* how often rows were taken back */
    uint64_t key[SIM_CTX];
} RefSeq;

typedef struct Reference {
    RefSeq seq[SIM_SEQS];
    struct {
        int      held;
        uint64_t id, len;
    } snapshot[SIM_SEQS];
} Reference;

/* ---- the program */

typedef enum OpKind {
    OP_OPEN, OP_CLOSE, OP_BOOK, OP_TRIM, OP_REWIND, OP_FORK, OP_ROLLBACK, /* posted */
    OP_SNAPSHOT, OP_TAINT,                                                /* local */
    OP_SET, OP_STALE_BEGIN,
    OP_BEGIN, OP_EXTEND, OP_WRITE, OP_POST, OP_WAIT,
    OP_RESIZE, OP_SLEEP, OP_WAKE, OP_DIGEST, OP_BARRIER, OP_KINDS
} OpKind;

typedef struct Op {
    OpKind   kind;
    uint32_t seq, other, batch, place, truth;
    uint64_t id, rows;
    int      only_rank; /* a posted call that one rank alone makes: a bug in the caller's program; -1 */
    int      oom_rank;  /* -1, or where the oom_nth acquisition fails */
    uint32_t oom_nth;
    uint64_t done;      /* mask of ranks that have executed it */
    uint64_t well;      /* those of them for which it succeeded */
    int      oom_hit;   /* the failure was delivered */
    int      skipped;   /* its sequence was never opened: no call was made */
    /* what the first rank was answered */
    KvgStatus status;
    uint32_t  units_free[KVG_CLASSES_MAX], slots_free;
    uint64_t  replay;
    KvDigest  digest;
} Op;

typedef enum Lie { LIE_NONE, LIE_TARGETS, LIE_ACCEPTED, LIE_LAYOUT, LIE_USER, LIE_SILENT /* nobody passes counts */ } Lie;

typedef struct Truth {
    uint64_t number;      /* 0: no rank has begun it */
    uint64_t salt;
    uint32_t serial;      /* steps of the life before it */
    uint32_t batch;
    uint32_t seq[SIM_PLACES];
    uint64_t id[SIM_PLACES];
    uint32_t cuts[SIM_PLACES];
    uint64_t base[SIM_PLACES];
    uint32_t replay[SIM_PLACES];
    uint32_t rows[SIM_PLACES];   /* asked in the first pass, without the replay; 0: no part */
    uint32_t more[SIM_PLACES];   /* asked in the second pass */
    uint32_t staged[SIM_PLACES]; /* granted in all */
    int      granted[SIM_PLACES];
    int      tainted[SIM_PLACES];
    int      refused[SIM_PLACES], refused_more[SIM_PLACES]; /* codes that begin and extend gave */
    uint32_t accept[SIM_PLACES]; /* of the staged */
    int      extended;
    uint64_t passes_accept; /* mask of ranks of the last stage that pass counts */
    uint64_t passes_user;
    uint64_t refusers;      /* mask: the engine's own no */
    Lie      lie;
    int      liar;
    uint64_t begin_pc;
    uint64_t begun, posted, yes; /* masks */
    uint64_t no_code[SIM_RANKS];
    /* the outcome */
    int      known, applied;
    KvgOutcomeKind kind;
    KvgStatus      status;
    int            by_rank;
    uint32_t       accepted[SIM_PLACES], owed[SIM_PLACES];
    uint64_t key[SIM_PLACES][SIM_STEP_ROWS]; /* of rows base - replay on */
} Truth;

/* ---- ranks */

typedef struct Rank {
    KvgGrid      *grid;
    KvgPlacement *placement;
    KvDev         device;
    KvgBatch     *batch[SIM_BATCHES];
    KvgSequence  *seq[SIM_SEQS];
    KvgSnapshot  *snapshot[SIM_SEQS];
    KvgStep      *step[SIM_TRUTHS];
    KvgSetup     *setup;
    KvDigest      digest;
    uint64_t      pc;
    int           dead, frozen, out, woken, doubt; /* out: left out by a settle; woken: and has learnt of it */
    int           keeps_more; /* a want of memory struck in a call that may have been giving memory back: what could not be given back stays */
    int           stopped;  /* in doubt and its program does not call in any more */
    uint64_t      knew;     /* mask: the grid's ranks when it was left out */
    uint64_t      wait_since_ns; /* 0: does not wait */
} Rank;

typedef struct Faults { /* one in so many; 0: never */
    uint32_t refuse, oom, lie, drop, late, shake, freeze, kill, tear, message_late;
} Faults;

typedef enum ModelKind { SIM_FULL, SIM_WINDOWED, SIM_HYBRID, SIM_POOLED_LATENT, SIM_LATENT, SIM_MODELS } ModelKind;

typedef struct World {
    uint64_t    seed, life, life_seed;
    uint64_t    step;     /* steps decided so far, over all lives */
    uint64_t    life_step, life_steps;
    Draws       draws;    /* of the program and its schedule */
    Draws       wire;     /* of what happens to records and messages */
    KvInproc   *hub;      /* where connections are made now */
    KvInproc   *hubs[SIM_HUBS]; /* all of the life: a rebuild with newcomers goes over another */
    int         hub_count;
    int         ranks;
    uint64_t    grid_ranks; /* mask: who takes part; all, unless a rebuild went on without some */
    uint32_t    tp, pp, window_steps;
    ModelKind   model;
    KvLayout    layout;
    KvFormat    format_k, format_v;
    uint32_t    window;   /* rows; 0: none */
    uint32_t    chunk;    /* prefill_chunk_max */
    uint64_t    ctx, memory_bytes;
    int         has_recurrent;
    ModelConfig config;
    KvgPolicy   policy;
    KvgPlaceOptions place_options; /* as all ranks gave them, but for memory_bytes and device */
    Rank        rank[SIM_RANKS];
    Faults      faults;   /* of the life */
    int         faulty;   /* they happen in this stretch */
    uint64_t    stretch_end;
    int         tear_rank, tear_left; /* sends of this rank that still get through before it dies */
    Reference   front, back;
    uint64_t    front_pc, back_pc;
    Op          log[SIM_LOG];
    uint64_t    log_end;
    Truth       truth[SIM_TRUTHS];
    uint32_t    next_truth;
    uint32_t    undecided[32], undecided_count; /* truths begun and not waited for, oldest first */
    int         held;     /* a truth that is begun and whose post is not in the log yet; -1 */
    uint64_t    next_id, since_barrier, barrier_every;
    int         barrier_wanted, closing;
    uint32_t    probes;   /* ops after a settle that look for what it may have left unlike */
    uint64_t    fixed_bytes[SIM_RANKS]; /* taken beside the planes of pools */
    uint64_t    first_doubt_ns, idle_rounds;
    int         patient;  /* since the last settle a record was lost between living ranks, or a set-up call timed out: a wait may take twenty deadlines */
    int         apart;    /* a posted call was made by some ranks alone */
    int         apart_rank;
    uint64_t    apart_pc;
    int         over;     /* the life has ended */
    uint64_t    rebuilds, joined, emptied, kept, reset; /* rebuilds that went on; newcomers; rebuilds that left a place empty; sequences with and without their rows */
    uint64_t    settles, losses, lives, publishes, rollbacks, compares, ops, resized, torn; /* torn: some survivors had published a resize, others not */
    uint64_t    live_allocations;
} World;

static inline Op *op_at(World *w, uint64_t index)
{
    return &w->log[index % SIM_LOG];
}
static inline int rank_lives(const Rank *rank)
{
    return !rank->dead && !rank->out;
}
static inline uint64_t all_ranks(const World *w)
{
    return w->grid_ranks;
}
static inline int voters(const World *w)
{
    return __builtin_popcountll(w->grid_ranks);
}
/* One of the ranks in the mask, which is not empty. */
static inline int draw_rank(World *w, uint64_t mask)
{
    for (uint32_t skip = draw(&w->draws, (uint32_t)__builtin_popcountll(mask)); skip > 0; skip--) mask &= mask - 1;
    return __builtin_ctzll(mask);
}

/* ---- main.c */
_Noreturn void sim_fail(World *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define SIM_CHECK(w, condition, ...)          \
    do {                                      \
        if (!(condition)) sim_fail(w, __VA_ARGS__); \
    } while (0)

/* ---- content.c */
void content_init(void);
/* Writes the rows of the step's current pass into every layer of the rank. */
void content_write(World *w, int r, const Truth *truth, KvgStep *step);
/* Rows [first, end) of the sequence are stored on rank r as their keys say; key[0] is of row `first`. */
void content_check_rows(World *w, int r, uint32_t seq, uint64_t first, uint64_t end, const uint64_t *key);
/* Everything the sequence holds on rank r, recurrent state and pooled keys too. */
void content_check_all(World *w, int r, uint32_t seq, const RefSeq *ref);

/* ---- reference.c */
void reference_apply(World *w, Reference *ref, const Op *op);
void reference_apply_truth(Reference *ref, const Truth *truth);

/* ---- world.c */
void world_open(World *w);
void world_close(World *w);
/* Nothing of the rank's is left afterwards. */
void world_close_rank(World *w, int r);
/* What a rank has once it is placed: batches, and what it takes beside the planes of pools. */
void world_begin_rank(World *w, int r);
void world_add_hub(World *w, KvInproc *hub);
/* On all hubs of the life. */
void world_advance(World *w, uint64_t ns);
void world_freeze(World *w, int r, int frozen);
void world_compare(World *w, const Reference *ref);
void world_check_agreed(World *w, int first, int other);


/* ---- faults.c */
KvInprocFate fault_filter(void *user, int from, int to, int is_record, const void *bytes, size_t byte_count, uint64_t *delay_ns);
void fault_turn(World *w);
void fault_kill(World *w, int r);

/* ---- generate.c: appends at least one op to the log; `r` is the rank that needs it. */
void generate(World *w, int r);

/* ---- one op on one rank */

typedef enum Went { WENT_ON, BLOCKED, IN_DOUBT } Went;

static inline int op_doubt(KvgStatus status)
{
    return status == KVG_EPEER || status == KVG_EINDOUBT;
}
/* The rank can do nothing more but settle and close. */
static inline int op_ends(const World *w, KvgStatus status)
{
    return op_doubt(status) || (w->apart && status == KVG_ELAYOUT);
}

/* ---- posted.c */
/* Plants the op's failure in the calls that follow on its rank; disarm says whether it was delivered. */
void op_arm(const Op *op, int r);
int  op_disarm(Op *op, int r);
/* What is agreed is the same on every rank at the same op. */
void op_compare(World *w, int r, Op *op, KvgStatus status, const KvgSequence *sequence);
Went op_posted(World *w, int r, Op *op);

/* ---- step.c */
Went op_set(World *w, int r, Op *op);
Went op_begin(World *w, int r, Op *op);
Went op_extend(World *w, int r, Op *op);
Went op_post(World *w, int r, Op *op);
Went op_wait(World *w, int r, Op *op);
Went op_stale_begin(World *w, int r, Op *op);

/* ---- drive.c */
void drive(World *w);

/* ---- settle.c */
typedef struct Attempt { /* one set-up call of the survivors */
    int       list[SIM_RANKS], count;
    KvgSetup *setup[SIM_RANKS];
    int       done[SIM_RANKS];
    KvgStatus each[SIM_RANKS];
} Attempt;

void settle(World *w);
/* Who lives and is not frozen, in any order: a mask, and the attempt's list. */
uint64_t settle_list(World *w, Attempt *attempt);
/* Attempts until all who live then have settled. 0: nobody is left. */
uint64_t settle_members(World *w, Attempt *attempt);
/* A rank that was left out wakes: whatever it does, the others do not change. */
void settle_wake(World *w, const Attempt *attempt);

/* ---- rebuild.c: after a settle that left some out, or found posted calls apart. 1: the grid goes on. */
int rebuild(World *w, Attempt *attempt);

#endif

/* Grids of forked processes whose records go by a comm under test: steps whose outcomes must be the host vote's, and peers that stop or die.
 *
 *   CommCase   what to run; its `make` wraps the mesh's comm, or is NULL: the mesh itself
 *   comm_run   forks the ranks, collects their exit codes and what they found
 * No Check in here: it is for suites and for programs on machines with GPUs alike. The parent may not have touched a GPU. */
#ifndef COMM_LIFE_H
#define COMM_LIFE_H

#include <kvgrid/kvgrid.h>

#include "runtime/base/mix.h"
#include "tests/support/fork_bootstrap.h"

enum { COMM_SEQUENCES = 4, COMM_TIMEOUT_MS = 1000, COMM_PEER_MS = 200, COMM_ROWS_MAX = 8, COMM_LEN_MAX = 900 };
/* words of the shared page */
enum {
    COMM_OUTCOMES = 0, /* two words a rank */
    COMM_DIGEST = 16,  /* two words a rank */
    COMM_MOVED = 32,   /* log lines, a word a rank */
    COMM_STEP_NS = 40, /* a word a rank */
    COMM_FLAG = 48
};

typedef enum CommFault {
    COMM_NO_FAULT,
    COMM_STOPPED_BEFORE, /* rank 1 stops before it posts */
    COMM_STOPPED_AFTER,  /* rank 1 stops when it has posted */
    COMM_DIES,           /* rank 1 is killed before it posts */
    COMM_LEAVES,         /* rank 0 goes with a record on its way */
    COMM_BREAKS          /* what is under test fails on rank 1 after `breaks` records: `make` sees to it, no step is in doubt */
} CommFault;

typedef struct CommCase {
    const char *name;
    uint32_t    tp, pp, steps;
    CommFault   fault;
    uint32_t    breaks;
    KvgStatus (*make)(ForkRank *rank, const struct CommCase *it, const KvComm *base, const KvLiveness *liveness, KvComm *comm);
    int (*after)(ForkRank *rank, const struct CommCase *it); /* NULL: nothing. When all is closed */
    void *extra; /* make's */
} CommCase;

typedef struct CommSide {
    ForkRank       *rank;
    const CommCase *it;
    KvLiveness      liveness;
    KvgGrid        *grid;
    KvgPlacement   *placement;
    KvgBatch       *batch[2];
    KvgSequence    *sequence[COMM_SEQUENCES];
    uint64_t        len[COMM_SEQUENCES]; /* as the outcomes say */
    uint64_t        outcomes;            /* hash of all */
    uint64_t        step;
} CommSide;

typedef struct CommResult {
    int      codes[FORK_RANKS_MAX];
    uint64_t outcomes[8], digest[8];
    int      moved[8], step_ns[8];
} CommResult;

/* ---- a rank */

static ForkShared *comm_shared;
static int         comm_rank;

static inline void comm_log(void *user, KvgLogLevel level, const char *sentence)
{
    (void)user;
    (void)level;
    if (strstr(sentence, "records go by mesh from now on") != NULL) {
        atomic_fetch_add(&comm_shared->words[COMM_MOVED + comm_rank], 1);
    }
}

static inline uint64_t comm_draw(uint64_t a, uint64_t b)
{
    return kvg_mix64(a * 0x9e3779b97f4a7c15u ^ b);
}

static inline int comm_place(CommSide *side)
{
    static const char model[] = "{\"model_type\":\"llama\",\"hidden_size\":128,\"num_attention_heads\":4,\"num_key_value_heads\":4,\"head_dim\":32,"
                                "\"num_hidden_layers\":4,\"vocab_size\":100,\"intermediate_size\":64,\"max_position_embeddings\":1024}";
    KvgPlaceOptions want = KVG_PLACE_OPTIONS_INIT;
    ModelConfig     config;

    FORK_CHECK(kvg_model_config_parse_json(model, strlen(model), "test", &config) == KVG_OK);
    want.max_sequences = COMM_SEQUENCES;
    want.memory_bytes = 16u << 20;
    FORK_CHECK(kvg_place(side->grid, &config, &want, &side->placement) == KVG_OK);
    kvg_model_config_free(&config);
    for (int b = 0; b < 2; b++) {
        FORK_CHECK(kvg_batch_create(side->placement, 2, &side->batch[b]) == KVG_OK);
    }
    for (uint32_t q = 0; q < COMM_SEQUENCES; q++) {
        FORK_CHECK(kvg_sequence_open(side->placement, q + 1, 0, &side->sequence[q]) == KVG_OK);
        FORK_CHECK(kvg_batch_set(side->batch[q / 2], q % 2, side->sequence[q]) == KVG_OK);
    }
    return 0;
}

static inline int comm_open(CommSide *side, ForkRank *rank)
{
    const CommCase *it = rank->argument;
    KvgBootstrap   *bootstrap = &rank->bootstrap;
    KvMeshOptions   mesh = KVG_MESH_OPTIONS_INIT;
    KvgGridOptions  want = KVG_GRID_OPTIONS_INIT;
    KvgPolicy       policy;
    KvComm          base, comm;

    *side = (CommSide){ .rank = rank, .it = it };
    comm_shared = rank->shared;
    comm_rank = bootstrap->rank;
    kvg_log_set(comm_log, NULL);
    kvg_policy_default(&policy);
    policy.timeout_ms = COMM_TIMEOUT_MS;
    policy.peer_ms = COMM_PEER_MS;
    mesh.timeout_ms = 10000;
    mesh.heartbeat_ms = COMM_PEER_MS / 4;
    FORK_CHECK(kvg_mesh_create(bootstrap, &mesh, &base, &side->liveness) == KVG_OK);
    comm = base;
    if (it->make != NULL) {
        FORK_CHECK(it->make(rank, it, &base, &side->liveness, &comm) == KVG_OK);
    }
    want.tp = it->tp;
    want.pp = it->pp;
    want.policy = &policy;
    want.comm = &comm;
    want.liveness = &side->liveness;
    FORK_CHECK(kvg_grid_create(bootstrap, &want, &side->grid) == KVG_OK);
    return comm_place(side);
}

static inline void comm_close(CommSide *side)
{
    for (int b = 0; b < 2; b++) {
        kvg_batch_destroy(side->batch[b]);
    }
    kvg_placement_destroy(side->placement);
    kvg_grid_destroy(side->grid);
}

/* Rows of the batch's current pass: a value a token, the same in every element. */
static inline int comm_write(const CommSide *side, KvgBatch *batch, KvgStep *step)
{
    static float    rows[2 * COMM_ROWS_MAX * 128];
    const uint32_t *count = kvg_step_rows(step);
    const uint64_t *first = kvg_step_first_rows(step);
    uint32_t        lo, hi;
    size_t          at = 0;

    for (uint32_t slot = 0; slot < 2; slot++) {
        for (uint32_t i = 0; i < count[slot]; i++) {
            for (uint32_t e = 0; e < 128 / side->it->tp; e++) {
                rows[at++] = (float)((first[slot] + i) % 97) + 0.25f * (float)slot;
            }
        }
    }
    kvg_placement_layers(side->placement, &lo, &hi);
    for (uint32_t il = lo; il < hi; il++) {
        KvgRows in = KVG_ROWS_INIT;
        in.k = in.v = rows;
        FORK_CHECK(kvg_write_kv(batch, il, &in, NULL) == KVG_OK);
    }
    return 0;
}

/* Begins the next step on batch b and writes it. What it asks for follows from its number. */
static inline int comm_begin(CommSide *side, int b, KvgStep **step, uint32_t keep[2])
{
    uint32_t rows[2];

    side->step++;
    for (uint32_t slot = 0; slot < 2; slot++) {
        const uint32_t q = 2 * (uint32_t)b + slot;
        rows[slot] = 1 + (uint32_t)(comm_draw(side->step, slot) % COMM_ROWS_MAX);
        keep[slot] = (uint32_t)(comm_draw(side->step, 10 + slot) % (rows[slot] + 1));
        if (side->len[q] > COMM_LEN_MAX) {
            FORK_CHECK(kvg_sequence_rewind(side->sequence[q], 3) == KVG_OK);
            side->len[q] = 3;
        }
    }
    FORK_CHECK(kvg_step_begin(side->batch[b], rows, step) == KVG_OK);
    return comm_write(side, side->batch[b], *step);
}

static inline int comm_post(CommSide *side, KvgStep *step, const uint32_t keep[2])
{
    const uint64_t number = kvg_step_number(step);
    KvgCommit      commit = KVG_COMMIT_INIT;

    commit.accepted = kvg_grid_stage(side->grid) + 1 == kvg_grid_pp(side->grid) ? keep : NULL;
    if (number % 37 == 0 && (int)(number / 37 % (uint64_t)kvg_grid_ranks(side->grid)) == comm_rank) {
        commit.refuse = KVG_EIO;
    }
    FORK_CHECK(kvg_step_post(step, &commit) == KVG_OK);
    return 0;
}

static inline int comm_wait(CommSide *side, int b, KvgStep *step)
{
    KvgOutcome outcome;
    KvgStatus  status = kvg_step_wait(step, &outcome);

    FORK_CHECK(status == (kvg_step_number(step) % 37 == 0 ? KVG_EREFUSED : KVG_OK));
    side->outcomes = kvg_mix64(side->outcomes ^ (uint64_t)outcome.kind << 32 ^ (uint64_t)(outcome.rank + 1));
    for (uint32_t slot = 0; slot < 2; slot++) {
        side->outcomes = kvg_mix64(side->outcomes ^ outcome.accepted[slot]);
        side->len[2 * b + (int)slot] += outcome.accepted[slot];
    }
    return 0;
}

/* Two steps in flight at a time, posted in one order or the other. */
static inline int comm_steps(CommSide *side, uint32_t steps)
{
    for (uint32_t n = 0; n + 1 < steps; n += 2) {
        KvgStep *step[2];
        uint32_t keep[2][2];
        int      first = (int)(comm_draw(n, 99) % 2);

        FORK_CHECK(comm_begin(side, 0, &step[0], keep[0]) == 0);
        FORK_CHECK(comm_begin(side, 1, &step[1], keep[1]) == 0);
        FORK_CHECK(comm_post(side, step[first], keep[first]) == 0);
        FORK_CHECK(comm_post(side, step[!first], keep[!first]) == 0);
        FORK_CHECK(comm_wait(side, 0, step[0]) == 0);
        FORK_CHECK(comm_wait(side, 1, step[1]) == 0);
    }
    return 0;
}

/* The digest of all sequences, the same on every rank. */
static inline int comm_digest(CommSide *side, uint64_t *sum)
{
    *sum = 0;
    for (uint32_t q = 0; q < COMM_SEQUENCES; q++) {
        KvDigest digest;
        uint64_t words[2];
        FORK_CHECK(kvg_sequence_digest(side->sequence[q], &digest) == KVG_OK);
        memcpy(words, &digest, sizeof words);
        *sum = kvg_mix64(*sum ^ words[0]) ^ words[1];
    }
    return 0;
}

static inline void comm_tell(CommSide *side, int at, uint64_t value)
{
    atomic_store(&side->rank->shared->words[at + 2 * comm_rank], (int)(uint32_t)value);
    atomic_store(&side->rank->shared->words[at + 2 * comm_rank + 1], (int)(uint32_t)(value >> 32));
}

/* ---- faults: rank 1 is the one that has them */

static inline int comm_expect_doubt(KvgStep *step, double least_s, double most_s)
{
    KvgOutcome outcome;
    double     from = fork_seconds();
    KvgStatus  status = kvg_step_wait(step, &outcome);
    double     took = fork_seconds() - from;

    FORK_CHECK(status == KVG_EINDOUBT);
    if (took < least_s || took > most_s) {
        fprintf(stderr, "in doubt after %.3f s, not %.3f to %.3f\n", took, least_s, most_s);
        return 1;
    }
    return 0;
}

/* Rank 1 stops; rank 0 is in doubt at the deadline and wakes it; both settle, hold the same, and go on by the base. */
static inline int comm_stopped(CommSide *side, int after)
{
    ForkShared *shared = side->rank->shared;
    int         all[8], ranks = kvg_grid_ranks(side->grid);
    KvgStep    *step, *next;
    uint32_t    keep[2];

    FORK_CHECK(comm_begin(side, 0, &step, keep) == 0);
    if (comm_rank == 1 && !after) {
        raise(SIGSTOP);
    } else {
        FORK_CHECK(comm_post(side, step, keep) == 0);
    }
    if (comm_rank == 1 && after) {
        fork_sleep_ms(50); /* a device's queue goes on by itself, a transport's need not */
        kvg_grid_progress(side->grid);
        raise(SIGSTOP);
    }
    if (comm_rank != 1) {
        FORK_CHECK(!after || comm_wait(side, 0, step) == 0); /* a record that has arrived counts */
        next = step;
        if (after) {
            FORK_CHECK(comm_begin(side, 1, &next, keep) == 0);
            FORK_CHECK(comm_post(side, next, keep) == 0);
        }
        FORK_CHECK(comm_expect_doubt(next, COMM_TIMEOUT_MS * 0.9e-3, COMM_TIMEOUT_MS * 1e-3 + 1) == 0);
    }
    if (comm_rank == 0) {
        kill(shared->pids[1], SIGCONT);
    }
    for (int r = 0; r < ranks; r++) all[r] = r;
    FORK_CHECK(kvg_grid_settle(side->grid, all, ranks) == KVG_OK);
    for (uint32_t q = 0; q < COMM_SEQUENCES; q++) {
        KvgSequenceInfo info = { .size = sizeof info };
        FORK_CHECK(kvg_sequence_info(side->sequence[q], &info) == KVG_OK);
        side->len[q] = info.rows;
    }
    side->step = 1000000;
    side->outcomes = 0;
    return comm_steps(side, 60);
}

/* Rank 1 is killed; rank 0 knows soon, settles alone, can read and close. */
static inline int comm_dies(CommSide *side)
{
    int      alone[8], count = 0;
    KvgStep *step;
    uint32_t keep[2];

    FORK_CHECK(comm_begin(side, 0, &step, keep) == 0);
    if (comm_rank == 1) {
        raise(SIGKILL);
    }
    FORK_CHECK(comm_post(side, step, keep) == 0);
    FORK_CHECK(comm_expect_doubt(step, 0.0, COMM_PEER_MS * 1e-3 + 1) == 0);
    for (int r = 0; r < kvg_grid_ranks(side->grid); r++) {
        if (r != 1) alone[count++] = r;
    }
    FORK_CHECK(kvg_grid_settle(side->grid, alone, count) == KVG_OK);
    for (uint32_t q = 0; q < COMM_SEQUENCES; q++) {
        KvgSequenceInfo info = { .size = sizeof info };
        FORK_CHECK(kvg_sequence_info(side->sequence[q], &info) == KVG_OK && info.rows == side->len[q]);
    }
    return 0;
}

/* Rank 0 posts and goes; the others are there until it has gone. */
static inline int comm_leaves(CommSide *side)
{
    ForkShared *shared = side->rank->shared;
    KvgStep    *step;
    uint32_t    keep[2];

    if (comm_rank != 0) {
        FORK_CHECK(fork_await(shared, COMM_FLAG, 1));
        return 0;
    }
    FORK_CHECK(comm_begin(side, 0, &step, keep) == 0);
    FORK_CHECK(comm_post(side, step, keep) == 0);
    kvg_grid_progress(side->grid);
    fork_sleep_ms(20);
    kvg_grid_progress(side->grid);
    return 0;
}

static inline int comm_body(ForkRank *rank)
{
    const CommCase *it = rank->argument;
    CommSide        side;
    uint64_t        digest = 0;

    FORK_CHECK(comm_open(&side, rank) == 0);
    double begun = fork_seconds();
    FORK_CHECK(comm_steps(&side, it->steps) == 0);
    atomic_store(&rank->shared->words[COMM_STEP_NS + comm_rank], (int)((fork_seconds() - begun) * 1e9 / it->steps));
    if (it->fault == COMM_STOPPED_BEFORE || it->fault == COMM_STOPPED_AFTER) {
        FORK_CHECK(comm_stopped(&side, it->fault == COMM_STOPPED_AFTER) == 0);
    } else if (it->fault == COMM_DIES) {
        FORK_CHECK(comm_dies(&side) == 0);
    } else if (it->fault == COMM_LEAVES) {
        FORK_CHECK(comm_leaves(&side) == 0);
    }
    if (it->fault != COMM_DIES && it->fault != COMM_LEAVES) {
        FORK_CHECK(comm_digest(&side, &digest) == 0);
    }
    comm_tell(&side, COMM_OUTCOMES, side.outcomes);
    comm_tell(&side, COMM_DIGEST, digest);
    double from = fork_seconds();
    comm_close(&side);
    FORK_CHECK(fork_seconds() - from < 2.0);
    if (it->fault == COMM_LEAVES) {
        atomic_store(&rank->shared->words[COMM_FLAG], 1);
    }
    return it->after != NULL ? it->after(rank, it) : 0;
}

/* ---- the parent */

static inline uint64_t comm_told(ForkShared *shared, int at, int rank)
{
    uint64_t low = (uint32_t)atomic_load(&shared->words[at + 2 * rank]), high = (uint32_t)atomic_load(&shared->words[at + 2 * rank + 1]);
    return high << 32 | low;
}

/* Ranks that did not end as the case has it; 0: all did. */
static inline int comm_run(CommCase *it, uint32_t deadline_ms, CommResult *result)
{
    const int   ranks = (int)(it->tp * it->pp);
    int         bad = 0;
    ForkShared *shared = NULL;

    memset(result, 0, sizeof *result);
    fork_ranks_in(&shared, ranks, deadline_ms, comm_body, it, result->codes);
    for (int rank = 0; rank < ranks; rank++) {
        bad += result->codes[rank] != (it->fault == COMM_DIES && rank == 1 ? FORK_KILLED : 0);
        result->outcomes[rank] = comm_told(shared, COMM_OUTCOMES, rank);
        result->digest[rank] = comm_told(shared, COMM_DIGEST, rank);
        result->step_ns[rank] = atomic_load(&shared->words[COMM_STEP_NS + rank]);
        result->moved[rank] = atomic_load(&shared->words[COMM_MOVED + rank]);
    }
    munmap(shared, sizeof *shared);
    return bad;
}

#endif

/* Drive: each rank walks the program at its own pace; time passes where none can go on. */
#include "tests/simulate/sim.h"

#include <string.h>

/* ---- set-up calls */

static KvgStatus start_setup(Rank *rank, const Op *op)
{
    switch (op->kind) {
    case OP_RESIZE: return kvg_placement_resize_start(rank->placement, op->rows, &rank->setup);
    case OP_SLEEP:  return kvg_placement_sleep_start(rank->placement, &rank->setup);
    case OP_WAKE:   return kvg_placement_wake_start(rank->placement, &rank->setup);
    default: break;
    }
    return rank->seq[op->seq] == NULL ? KVG_ESTALE : kvg_sequence_digest_start(rank->seq[op->seq], &rank->digest, &rank->setup);
}

static void setup_went_well(World *w, int r, Op *op)
{
    if (op->kind == OP_DIGEST) {
        if (op->well != 0) {
            SIM_CHECK(w, memcmp(&op->digest, &w->rank[r].digest, sizeof op->digest) == 0, "rank %d forms another digest of sequence %u than the first", r, op->seq);
        }
        op->digest = w->rank[r].digest;
    }
    if (op->kind == OP_WAKE && w->rank[r].batch[0] == NULL) {
        world_begin_rank(w, r);
    }
    w->resized += op->kind != OP_DIGEST && op->well == 0;
    op->well |= 1ull << r;
}

static Went op_setup(World *w, int r, Op *op)
{
    Rank     *rank = &w->rank[r];
    KvgStatus status;
    int       done = 1;

    if (op->kind == OP_RESIZE && op->done == 0 && rank->setup == NULL && op->id == 0) { /* more than any rank has: nothing that is in use can be in the way */
        op->id = op->rows >= rank->placement->options.memory_bytes + 16 * 4096 ? 1 : 2;
    }
    op_arm(op, r);
    if (rank->setup == NULL) {
        status = start_setup(rank, op);
        done = status != KVG_OK;
    } else {
        status = kvg_setup_test(rank->setup, &done);
    }
    op_disarm(op, r);
    if (!done) {
        return BLOCKED;
    }
    kvg_setup_free(rank->setup);
    rank->setup = NULL;
    if (op_ends(w, status)) {
        return IN_DOUBT;
    }
    SIM_CHECK(w, status == KVG_OK || op->kind != OP_RESIZE || op->id != 1 || op->oom_rank >= 0, "a resize to more memory is refused on rank %d, and no failure was "
              "planted: %s", r, kvg_last_error());
    if (status == KVG_OK) {
        setup_went_well(w, r, op);
    }
    return WENT_ON;
}

static Went op_barrier(World *w, int r, Op *op)
{
    uint64_t living = 0;

    op->rows |= 1ull << r; /* who is here */
    for (int other = 0; other < w->ranks; other++) living |= (uint64_t)rank_lives(&w->rank[other]) << other;
    if (op->well == 0 && (op->rows & living) != living) {
        return BLOCKED;
    }
    if (op->well == 0) {
        op->well = 1;
        world_compare(w, &w->front);
        w->since_barrier = 0;
        w->barrier_wanted = w->closing = 0;
        w->over = w->life_step >= w->life_steps;
    }
    return WENT_ON;
}

/* ---- one op */

static Went do_op(World *w, int r, Op *op)
{
    switch (op->kind) {
    case OP_SET:         return op_set(w, r, op);
    case OP_STALE_BEGIN: return op_stale_begin(w, r, op);
    case OP_BEGIN:       return op_begin(w, r, op);
    case OP_EXTEND:      return op_extend(w, r, op);
    case OP_WRITE:       content_write(w, r, &w->truth[op->truth], w->rank[r].step[op->truth]); return WENT_ON;
    case OP_POST:        return op_post(w, r, op);
    case OP_WAIT:        return op_wait(w, r, op);
    case OP_RESIZE:
    case OP_SLEEP:
    case OP_WAKE:
    case OP_DIGEST:      return op_setup(w, r, op);
    case OP_BARRIER:     return op_barrier(w, r, op);
    case OP_TAINT:
        if (op->only_rank == r && w->rank[r].seq[op->seq] != NULL) kvg_sequence_taint(w->rank[r].seq[op->seq]);
        return WENT_ON;
    default:             return op_posted(w, r, op);
    }
}

static void note_done(World *w, int r, Op *op)
{
    Rank *rank = &w->rank[r];

    op->done |= 1ull << r;
    if (rank->pc == w->front_pc) {
        reference_apply(w, &w->front, op);
        w->front_pc++;
        if (op->kind == OP_WAIT) {
            w->step++;
            w->life_step++;
            w->since_barrier++;
        }
    }
    rank->pc++;
    rank->wait_since_ns = 0;
    w->ops++;
}

/* No wait is longer than what is promised: a deadline for what is lost or silent, twenty for a rank that gives signs of life and never posts. */
static void note_wait(World *w, int r, const Op *op)
{
    Rank    *rank = &w->rank[r];
    uint64_t now = kvg_inproc_now_ns(w->hub), most = w->patient ? 21 * SIM_DEADLINE_NS : SIM_DEADLINE_NS;


    if (op->kind == OP_BARRIER) {
        return;
    }
    most += op->kind == OP_WAIT ? 0 : 3 * SIM_DEADLINE_NS; /* of each gather */
    if (rank->wait_since_ns == 0) {
        rank->wait_since_ns = now;
    }
    SIM_CHECK(w, now - rank->wait_since_ns <= most + 1000 * SIM_MS, "rank %d has waited %llu ms in op %d", r,
              (unsigned long long)((now - rank->wait_since_ns) / SIM_MS), op->kind);
}

static int run_rank(World *w, int r)
{
    Rank *rank = &w->rank[r];
    int   burst = 1 + (int)draw(&w->draws, 8), ran = 0;

    for (; ran < burst && !w->over && !rank->dead; ran++) {
        if (rank->pc == w->log_end) {
            if (w->log_end - w->back_pc > SIM_LOG - 16 || w->over) {
                return ran;
            }
            generate(w, r);
        }
        Op  *op = op_at(w, rank->pc);
        Went went = do_op(w, r, op);
        if (went == BLOCKED) {
            note_wait(w, r, op);
            return ran;
        }
        if (went == IN_DOUBT) {
            rank->doubt = 1;
            w->patient |= kvg_grid_state(rank->grid) == KVG_OK && op->kind != OP_BEGIN; /* a set-up call that timed out: the rank has told nobody */
            rank->stopped = chance(&w->draws, 2);
            rank->wait_since_ns = 0;
            return ran;
        }
        note_done(w, r, op);
    }
    return ran;
}

/* ---- all ranks */

static void move_back(World *w)
{
    uint64_t least = w->front_pc;

    for (int r = 0; r < w->ranks; r++) {
        if (rank_lives(&w->rank[r]) && w->rank[r].pc < least) least = w->rank[r].pc;
    }
    for (; w->back_pc < least; w->back_pc++) {
        reference_apply(w, &w->back, op_at(w, w->back_pc));
    }
}

static void thaw(World *w)
{
    for (int r = 0; r < w->ranks; r++) {
        if (w->rank[r].frozen) {
            w->rank[r].frozen = 0;
            world_freeze(w, r, 0);
        }
    }
}

static void pass_time(World *w, int ran)
{
    if (ran > 0) {
        w->idle_rounds = 0;
        world_advance(w, 20000);
        return;
    }
    w->idle_rounds++;
    world_advance(w, w->idle_rounds < 30 ? SIM_MS / 2 : 20 * SIM_MS);
    if (w->idle_rounds > (w->first_doubt_ns == 0 ? 400 : 800)) {
        thaw(w); /* nobody waits for it through the grid: it is late for a barrier, or was frozen after it came to doubt */
    }
    SIM_CHECK(w, w->idle_rounds < 4000, "nothing goes on any more, and no rank says why");
}

static void look_at_doubt(World *w)
{
    int doubts = 0, living = 0;

    for (int r = 0; r < w->ranks; r++) {
        const Rank *rank = &w->rank[r];
        if (!rank_lives(rank) || rank->frozen) continue;
        living++;
        doubts += rank->doubt;
        if (rank->doubt && !rank->stopped) kvg_grid_progress(rank->grid);
    }
    if (living == 0) {
        w->over = 1;
        return;
    }
    if (doubts == 0) {
        return;
    }
    if (w->first_doubt_ns == 0) {
        w->first_doubt_ns = kvg_inproc_now_ns(w->hub);
    }
    if (doubts == living || chance(&w->draws, 40)) {
        settle(w);
        w->first_doubt_ns = 0;
        w->idle_rounds = 0;
    }
}

static void drive_advance(World *w)
{
    int ran = 0, start = (int)draw(&w->draws, (uint32_t)w->ranks), back = (int)draw(&w->draws, 2);

    for (int n = 0; n < w->ranks && !w->over; n++) {
        int   r = back ? (start + w->ranks - n) % w->ranks : (start + n) % w->ranks;
        Rank *rank = &w->rank[r];
        if (!rank_lives(rank) || rank->frozen || rank->doubt) continue;
        ran += run_rank(w, r);
    }
    move_back(w);
    if (!w->over) {
        pass_time(w, ran);
        fault_turn(w);
        look_at_doubt(w);
    }
}

void drive(World *w)
{
    while (!w->over) {
        drive_advance(w);
    }
}

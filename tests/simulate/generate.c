/* The program: what the ranks do next, drawn when the first of them needs it. At that point the front reference is what that rank holds, so an op can
 * be chosen to make sense (or on purpose not to). Faults that belong to an op are planted here too. */
#include "tests/simulate/sim.h"

#include <string.h>

static Op *append(World *w, OpKind kind, uint32_t seq)
{
    Op *op = op_at(w, w->log_end++);

    *op = (Op){ .kind = kind, .seq = seq, .only_rank = -1, .oom_rank = -1 };
    if (w->faulty && w->faults.oom != 0 && kind != OP_WAIT && kind != OP_WRITE && chance(&w->draws, w->faults.oom)) {
        op->oom_rank = (int)draw(&w->draws, (uint32_t)w->ranks);
        op->oom_nth = draw(&w->draws, kind >= OP_RESIZE ? 24 : 3);
    }
    return op;
}

/* ---- steps in flight */

/* A step that was begun while another was, too, is posted now. */
static void post_held(World *w)
{
    int t = w->held;

    if (t >= 0) {
        w->held = -1;
        Op *op = append(w, OP_POST, 0);
        op->truth = (uint32_t)t;
        op->batch = w->truth[t].batch;
    }
}

static void wait_for(World *w, uint32_t position)
{
    if ((int)w->undecided[position] == w->held) {
        post_held(w);
    }
    append(w, OP_WAIT, 0)->truth = w->undecided[position];
    w->undecided_count--;
    memmove(&w->undecided[position], &w->undecided[position + 1], (w->undecided_count - position) * sizeof w->undecided[0]);
}

static int names(const Truth *truth, uint32_t seq)
{
    for (uint32_t p = 0; p < SIM_PLACES; p++) {
        if (truth->rows[p] + truth->replay[p] > 0 && truth->seq[p] == seq) {
            return 1;
        }
    }
    return 0;
}

/* 1 if the sequence is in an undecided step: that step is waited for instead, and the op is drawn anew. */
static int must_wait(World *w, uint32_t seq)
{
    for (uint32_t u = 0; u < w->undecided_count; u++) {
        if (names(&w->truth[w->undecided[u]], seq)) {
            wait_for(w, u);
            return 1;
        }
    }
    return 0;
}

/* ---- a step */

static uint32_t draw_rows(World *w)
{
    uint32_t kind = draw(&w->draws, 16);

    return kind < 10 ? 1 : kind < 14 ? 1 + draw(&w->draws, 6) : 1 + draw(&w->draws, w->model == SIM_WINDOWED ? w->chunk + 2 : 90);
}

static int stage_voters(const World *w, int r)
{
    uint64_t stage = ((1ull << w->tp) - 1) << (uint32_t)r / w->tp * w->tp;

    return __builtin_popcountll(all_ranks(w) & stage);
}

static void draw_faults_of(World *w, Truth *truth)
{
    uint64_t last = all_ranks(w) & ~((1ull << (w->pp - 1) * w->tp) - 1); /* of the last stage */

    truth->passes_accept = 1ull << draw_rank(w, last);
    truth->passes_accept |= last & (draw64(&w->draws) | draw64(&w->draws));
    truth->passes_user = draw64(&w->draws) & all_ranks(w);
    truth->refusers = 0;
    truth->lie = LIE_NONE;
    truth->liar = -1;
    if (!w->faulty) {
        return;
    }
    if (w->faults.refuse != 0 && chance(&w->draws, w->faults.refuse)) {
        truth->refusers |= 1ull << draw_rank(w, all_ranks(w));
        truth->refusers |= chance(&w->draws, 3) ? 1ull << draw_rank(w, all_ranks(w)) : 0;
    }
    if (w->faults.lie == 0 || !chance(&w->draws, w->faults.lie)) {
        return;
    }
    truth->liar = draw_rank(w, all_ranks(w));
    switch (draw(&w->draws, 5)) {
    case 0: /* a row more than the others, where that books no unit more: a caller that does that leaves units booked unlike */
        if (voters(w) > 1 && truth->rows[0] > 0 && (truth->base[0] + truth->rows[0]) % KVG_CHUNK_ROWS != 0 && truth->base[0] + truth->rows[0] < w->ctx &&
            (w->model != SIM_WINDOWED || truth->rows[0] < w->chunk)) {
            truth->lie = LIE_TARGETS;
        }
        break;
    case 1:
        truth->liar = draw_rank(w, last);
        truth->passes_accept |= 1ull << truth->liar;
        if ((truth->passes_accept & (truth->passes_accept - 1)) != 0) truth->lie = LIE_ACCEPTED;
        break;
    case 2:
        if (stage_voters(w, truth->liar) > 1) truth->lie = LIE_LAYOUT;
        break;
    case 3:
        truth->passes_user |= 1ull << truth->liar;
        if ((truth->passes_user & (truth->passes_user - 1)) != 0) truth->lie = LIE_USER;
        break;
    default:
        truth->passes_accept = 0;
        truth->lie = LIE_SILENT;
    }
}

static void name_sequence(World *w, Truth *truth, uint32_t place, uint32_t i, const Rank *rank)
{
    const RefSeq *seq = &w->front.seq[i];
    int           parted = w->apart && rank->seq[i] == NULL; /* refused on this rank alone, before a vote has told it so */
    uint32_t      owed = seq->tainted || parted ? 0 : kvg_kv_cache_replay(&rank->seq[i]->cache);
    uint32_t      rows = draw_rows(w), room = SIM_STEP_ROWS - 2;

    if (owed > 0 && chance(&w->draws, 4)) {
        rows = 0; /* the replay alone */
    }
    if (seq->len + rows + 2 > w->ctx) {
        rows = rows > 0 ? 1 : 0; /* full soon, or now: begin refuses */
    }
    if (owed + rows > room) {
        rows = room > owed ? room - owed : 0;
    }
    SIM_CHECK(w, owed <= room, "sequence %u owes a replay of %u rows", i, owed);
    truth->seq[place] = i;
    truth->id[place] = seq->id;
    truth->tainted[place] = seq->tainted;
    truth->cuts[place] = seq->cuts;
    truth->base[place] = seq->len;
    truth->replay[place] = owed;
    truth->rows[place] = rows;
    for (uint32_t k = 0; k < owed; k++) truth->key[place][k] = seq->key[seq->len - owed + k];
}

static void draw_accepts(World *w, Truth *truth)
{
    for (uint32_t p = 0; p < SIM_PLACES; p++) {
        for (uint32_t k = truth->replay[p]; k < SIM_STEP_ROWS && k < truth->replay[p] + truth->rows[p] + truth->more[p] + 1; k++) {
            truth->key[p][k] = kvg_mix64(truth->salt + ((uint64_t)p << 32 | k));
        }
        truth->accept[p] = chance(&w->draws, 3) ? draw(&w->draws, truth->rows[p] + truth->more[p] + 1) : UINT32_MAX; /* at most what is staged */
    }
}

static void append_step(World *w, uint32_t t, const Truth *truth)
{
    static const OpKind once[] = { OP_SET, OP_BEGIN, OP_WRITE, OP_POST }, twice[] = { OP_SET, OP_BEGIN, OP_WRITE, OP_EXTEND, OP_WRITE, OP_POST };
    const OpKind       *kinds = truth->extended ? twice : once;

    for (size_t k = 0; k < (truth->extended ? sizeof twice : sizeof once) / sizeof *kinds; k++) {
        if (kinds[k] == OP_POST && w->held < 0 && w->window_steps > 1 && chance(&w->draws, 5)) {
            w->held = (int)t; /* another is begun before */
            break;
        }
        if (kinds[k] == OP_POST && chance(&w->draws, 2)) {
            post_held(w);
        }
        Op *op = append(w, kinds[k], 0);
        op->truth = t;
        op->batch = truth->batch;
    }
    if (w->held != (int)t) {
        post_held(w);
    }
    w->undecided[w->undecided_count++] = t;
}

static void generate_step(World *w, const Rank *rank)
{
    uint32_t t = w->next_truth % SIM_TRUTHS, first = draw(&w->draws, SIM_SEQS), want = draw(&w->draws, SIM_PLACES + 1), place = 0;
    Truth   *truth = &w->truth[t];

    if (w->undecided_count > 0 && w->next_truth - w->truth[w->undecided[0]].serial >= w->window_steps) {
        wait_for(w, 0); /* its outcome is kept until W more have begun */
        return;
    }
    if (w->undecided_count > 0 && chance(&w->draws, 3)) {
        wait_for(w, chance(&w->draws, 4) ? draw(&w->draws, w->undecided_count) : 0);
        return;
    }
    for (uint32_t n = 0; n < SIM_SEQS && place < want; n++) {
        uint32_t i = (first + n) % SIM_SEQS;
        if (w->front.seq[i].open) {
            if (must_wait(w, i)) return;
            place++;
        }
    }
    memset(truth, 0, offsetof(Truth, key));
    truth->salt = draw64(&w->draws);
    truth->serial = w->next_truth;
    truth->batch = draw(&w->draws, SIM_BATCHES);
    if (w->held >= 0 && w->truth[w->held].batch == truth->batch) {
        truth->batch = (truth->batch + 1) % SIM_BATCHES;
    }
    place = 0;
    for (uint32_t n = 0; n < SIM_SEQS && place < want; n++) {
        uint32_t i = (first + n) % SIM_SEQS;
        if (w->front.seq[i].open) {
            name_sequence(w, truth, place++, i, rank);
        }
    }
    draw_faults_of(w, truth);
    truth->extended = chance(&w->draws, 8) && truth->lie != LIE_TARGETS;
    for (uint32_t p = 0; truth->extended && p < SIM_PLACES; p++) {
        uint32_t room = SIM_STEP_ROWS - 2 - truth->replay[p] - truth->rows[p], more = 1 + draw(&w->draws, 4);
        truth->more[p] = truth->rows[p] > 0 && more < room && !chance(&w->draws, 3) ? more : 0;
    }
    draw_accepts(w, truth);
    w->next_truth++;
    append_step(w, t, truth);
}

/* ---- posted calls */

static uint32_t pick(World *w, int open)
{
    uint32_t first = draw(&w->draws, SIM_SEQS);

    for (uint32_t n = 0; n < SIM_SEQS; n++) {
        if (w->front.seq[(first + n) % SIM_SEQS].open == open) {
            return (first + n) % SIM_SEQS;
        }
    }
    return SIM_SEQS;
}

static void generate_open(World *w)
{
    uint32_t i = pick(w, 0), other = pick(w, 1);
    Op      *op;

    if (i == SIM_SEQS) {
        return;
    }
    op = append(w, OP_OPEN, i);
    op->id = ++w->next_id;
    if (other < SIM_SEQS && chance(&w->draws, 20)) {
        op->id = w->front.seq[other].id; /* EINVAL: it is taken */
    }
    op->rows = chance(&w->draws, 3) ? draw(&w->draws, (uint32_t)w->ctx + 32) : 0;
}

/* A place of a batch keeps a sequence that is closed; another takes its slot. Asking for rows there is refused. */
static void generate_stale(World *w, uint32_t i)
{
    Op *op;

    append(w, OP_CLOSE, i);
    op = append(w, OP_OPEN, i);
    op->id = ++w->next_id;
    op = append(w, OP_STALE_BEGIN, i);
    op->batch = draw(&w->draws, SIM_BATCHES);
}

static void generate_posted(World *w)
{
    uint32_t i = pick(w, 1), free_place = pick(w, 0);
    RefSeq  *seq = &w->front.seq[i < SIM_SEQS ? i : 0];
    uint32_t kind = draw(&w->draws, 16);
    Op      *op;

    if (i == SIM_SEQS || (free_place < SIM_SEQS && kind < 3)) {
        generate_open(w);
        return;
    }
    if (kind > 3 && must_wait(w, i)) { /* close is legal in any state */
        return;
    }
    if ((seq->tainted && chance(&w->draws, 2)) || seq->len + 8 > w->ctx) {
        append(w, OP_CLOSE, i);
        return;
    }
    switch (kind) {
    case 3:
        append(w, OP_CLOSE, i);
        return;
    case 4:
        op = append(w, OP_BOOK, i);
        op->rows = draw(&w->draws, (uint32_t)w->ctx + 16);
        return;
    case 5:
        append(w, OP_TRIM, i);
        return;
    case 6: case 7: case 8:
        op = append(w, OP_REWIND, i);
        op->rows = chance(&w->draws, 3) ? draw(&w->draws, (uint32_t)seq->len + 2) : seq->len > 3 ? seq->len - draw(&w->draws, 4) : 0;
        return;
    case 9: case 10:
        if (free_place < SIM_SEQS) {
            op = append(w, OP_FORK, i);
            op->other = free_place;
            op->id = ++w->next_id;
            op->rows = chance(&w->draws, 3) ? draw(&w->draws, (uint32_t)seq->len + 2) : seq->len;
        }
        return;
    case 11: case 12:
        append(w, OP_SNAPSHOT, i);
        return;
    case 13:
        if (w->front.snapshot[i].held) {
            op = append(w, OP_ROLLBACK, i);
            op->rows = seq->len > w->front.snapshot[i].len ? draw(&w->draws, (uint32_t)(seq->len - w->front.snapshot[i].len) + 2) : 0;
            if (op->rows > SIM_STEP_ROWS / 2) op->rows = SIM_STEP_ROWS / 2; /* may be owed as a replay */
        }
        return;
    case 14:
        generate_stale(w, i);
        return;
    default:
        if (w->faulty && w->faults.refuse != 0 && chance(&w->draws, 4)) {
            op = append(w, OP_TAINT, i);
            op->only_rank = draw_rank(w, all_ranks(w));
        }
    }
}

/* One rank alone makes a posted call: a bug in the caller's program, which the next step's vote tells all ranks of. */
static void generate_apart(World *w)
{
    uint32_t i = pick(w, 1);
    Op      *op;

    if (i < SIM_SEQS && voters(w) > 1 && !must_wait(w, i) && !w->front.seq[i].tainted) {
        op = append(w, OP_TRIM, i);
        op->only_rank = draw_rank(w, all_ranks(w));
    }
}

static void generate_setup(World *w)
{
    uint32_t i = pick(w, 1);
    Op      *op;

    if (chance(&w->draws, 2) && i < SIM_SEQS) {
        if (!must_wait(w, i)) {
            append(w, OP_DIGEST, i);
        }
        return;
    }
    op = append(w, OP_RESIZE, 0);
    if (op->oom_rank < 0 && w->faulty && w->faults.oom != 0 && chance(&w->draws, 3)) {
        op->oom_rank = (int)draw(&w->draws, (uint32_t)w->ranks);
        op->oom_nth = draw(&w->draws, 24);
    }
    op->rows = w->memory_bytes / 2 + w->memory_bytes / 8 * draw(&w->draws, 16);
}

/* A cut by a few rows, where columns and index rings may or may not hold what it needs: all ranks must answer alike. */
static void generate_probe(World *w)
{
    uint32_t i = pick(w, 1);
    Op      *op;

    w->probes--;
    if (i == SIM_SEQS || must_wait(w, i) || w->front.seq[i].tainted || w->front.seq[i].len < 4) {
        return;
    }
    op = append(w, OP_REWIND, i);
    op->rows = w->front.seq[i].len - 1 - draw(&w->draws, 3);
}

/* ---- what comes next */

static void generate_barrier(World *w)
{
    if (w->undecided_count > 0) {
        wait_for(w, 0);
        return;
    }
    if (w->closing) { /* everything is closed, so that everything can be seen to have come back */
        uint32_t i = pick(w, 1);
        if (i < SIM_SEQS) {
            append(w, OP_CLOSE, i);
            return;
        }
    }
    append(w, OP_BARRIER, 0);
    if (w->closing && chance(&w->draws, 3)) { /* nothing is open: the memory may go and come again */
        append(w, OP_SLEEP, 0);
    }
}

void generate(World *w, int r)
{
    uint64_t before = w->log_end;

    while (w->log_end == before) {
        if (w->since_barrier >= w->barrier_every && !w->barrier_wanted) {
            w->barrier_wanted = 1;
            w->closing = chance(&w->draws, 3);
        }
        if (w->held >= 0 && (w->barrier_wanted || chance(&w->draws, 3))) {
            post_held(w);
        } else if (w->held >= 0) {
            generate_step(w, &w->rank[r]);
        } else if (w->rank[r].placement->asleep) {
            append(w, OP_WAKE, 0);
        } else if (w->barrier_wanted) {
            generate_barrier(w);
        } else if (w->faulty && w->faults.lie != 0 && chance(&w->draws, 20000)) {
            generate_apart(w);
        } else if (w->probes > 0 && !chance(&w->draws, 3)) {
            generate_probe(w);
        } else if (chance(&w->draws, !w->faulty ? 400 : w->faults.message_late != 0 ? 60 : 150)) {
            generate_setup(w);
        } else if (chance(&w->draws, 8)) {
            generate_posted(w);
        } else {
            generate_step(w, &w->rank[r]);
        }
    }
}

/* A step on one rank: begin, write, extend, post, wait. What it is told is compared with what was planted, with what the first rank was told, and with the rows. */
#include "tests/simulate/sim.h"

#include <string.h>

/* ---- a step */

Went op_set(World *w, int r, Op *op)
{
    Rank        *rank = &w->rank[r];
    const Truth *truth = &w->truth[op->truth];

    for (uint32_t p = 0; p < SIM_PLACES; p++) {
        KvgSequence *sequence = truth->rows[p] + truth->replay[p] > 0 ? rank->seq[truth->seq[p]] : NULL;
        SIM_CHECK(w, kvg_batch_set(rank->batch[op->batch], p, sequence) == KVG_OK, "rank %d: %s", r, kvg_last_error());
    }
    return WENT_ON;
}

/* How many rows this rank was granted in the pass, and why not: the same as the first rank. */
static void compare_granted(World *w, int r, Truth *truth, const KvgStep *step, int extend)
{
    uint64_t bit = 1ull << r;
    int      first = extend ? (truth->posted & bit) == 0 && truth->extended == 1 : (truth->begun & ~bit) == 0;

    for (uint32_t p = 0; p < SIM_PLACES; p++) {
        uint32_t rows = kvg_step_rows(step)[p];
        int      code = kvg_step_refusal(step, p);
        int     *refused = extend ? &truth->refused_more[p] : &truth->refused[p];
        if (!extend && truth->lie == LIE_TARGETS && truth->liar == r && p == 0 && rows > 0) {
            rows--;
        }
        if (first) {
            *refused = code;
            if (extend) {
                truth->staged[p] += rows;
            } else {
                truth->granted[p] = rows > 0;
                truth->staged[p] = rows > 0 ? rows - truth->replay[p] : 0;
            }
        }
        SIM_CHECK(w, !truth->tainted[p] || extend || code == KVG_ETAINTED, "step %llu, place %u: sequence %u is tainted, and rank %d answers %s", (unsigned long long)truth->number, p,
                  truth->seq[p], r, kvg_status_name((KvgStatus)code));
        SIM_CHECK(w, code == *refused || w->apart, "step %llu, place %u: rank %d refuses with %s, the first rank %s", (unsigned long long)truth->number, p, r,
                  kvg_status_name((KvgStatus)code), kvg_status_name((KvgStatus)*refused));
        SIM_CHECK(w, rows == 0 || extend || kvg_step_first_rows(step)[p] == truth->base[p] - truth->replay[p],
                  "step %llu, place %u: rank %d begins at row %llu, not %llu", (unsigned long long)truth->number, p, r,
                  (unsigned long long)kvg_step_first_rows(step)[p], (unsigned long long)(truth->base[p] - truth->replay[p]));
    }
    if (extend) {
        truth->extended = 2;
    }
}

Went op_begin(World *w, int r, Op *op)
{
    Rank     *rank = &w->rank[r];
    Truth    *truth = &w->truth[op->truth];
    uint32_t  rows[SIM_PLACES];
    KvgStep  *step = NULL;
    KvgStatus status;

    for (uint32_t p = 0; p < SIM_PLACES; p++) {
        rows[p] = truth->rows[p] + truth->replay[p] + (truth->lie == LIE_TARGETS && truth->liar == r && p == 0);
    }
    op_arm(op, r);
    status = kvg_step_begin(rank->batch[op->batch], rows, &step);
    op_disarm(op, r);
    if (op_ends(w, status)) {
        return IN_DOUBT;
    }
    SIM_CHECK(w, status == KVG_OK, "rank %d could not begin a step: %s", r, kvg_last_error());
    truth->begun |= 1ull << r;
    truth->begin_pc = rank->pc;
    truth->number = truth->number == 0 ? kvg_step_number(step) : truth->number;
    SIM_CHECK(w, kvg_step_number(step) == truth->number, "rank %d begins step %llu, the first rank %llu", r, (unsigned long long)kvg_step_number(step),
              (unsigned long long)truth->number);
    rank->step[op->truth] = step;
    compare_granted(w, r, truth, step, 0);
    if (!w->apart) op_compare(w, r, op, KVG_OK, NULL);
    return WENT_ON;
}

Went op_extend(World *w, int r, Op *op)
{
    Rank     *rank = &w->rank[r];
    Truth    *truth = &w->truth[op->truth];
    uint32_t  rows[SIM_PLACES];
    KvgStatus status;

    for (uint32_t p = 0; p < SIM_PLACES; p++) {
        rows[p] = truth->granted[p] ? truth->more[p] : 0;
    }
    op_arm(op, r);
    status = kvg_step_extend(rank->step[op->truth], rows);
    op_disarm(op, r);
    if (op_ends(w, status)) {
        return IN_DOUBT;
    }
    SIM_CHECK(w, status == KVG_OK, "rank %d could not extend a step: %s", r, kvg_last_error());
    compare_granted(w, r, truth, rank->step[op->truth], 1);
    if (!w->apart) op_compare(w, r, op, KVG_OK, NULL);
    return WENT_ON;
}

/* Until the step is decided every reader sees the rows that were committed before, and the step's own attention those that are staged. */
static void check_undecided(World *w, int r, const Truth *truth)
{
    const Rank    *rank = &w->rank[r];
    const KvgStep *step = rank->step[truth - w->truth];
    uint32_t       extra;

    for (uint32_t p = 0; p < SIM_PLACES; p++) {
        const KvgSequence *sequence = rank->seq[truth->seq[p]];
        if (!truth->granted[p] || sequence == NULL || sequence->id != truth->id[p]) {
            continue;
        }
        int own_refusal = w->apart && kvg_step_refusal(step, p) != KVG_OK; /* where posted calls went apart units may be left on one rank alone */
        extra = truth->lie == LIE_TARGETS && truth->liar == r && p == 0;
        SIM_CHECK(w, sequence->cache.pos == truth->base[p], "step %llu is undecided and rank %d has %llu rows of sequence %u committed, not %llu",
                  (unsigned long long)truth->number, r, (unsigned long long)sequence->cache.pos, truth->seq[p], (unsigned long long)truth->base[p]);
        for (uint32_t il = rank->placement->lo; il < rank->placement->hi; il++) {
            const KvPlaneView *view = kvg_store_shown_view(rank->placement->store, il);
            if (view == NULL) continue;
            SIM_CHECK(w, view->len[sequence->cache.slot] == truth->base[p], "step %llu is undecided and rank %d shows readers %u rows of sequence %u, not %llu",
                      (unsigned long long)truth->number, r, view->len[sequence->cache.slot], truth->seq[p], (unsigned long long)truth->base[p]);
            SIM_CHECK(w, own_refusal || view->len_staged[sequence->cache.slot] == truth->base[p] + truth->staged[p] + extra,
                      "step %llu: rank %d shows its attention %u rows of sequence %u, not %llu", (unsigned long long)truth->number, r,
                      view->len_staged[sequence->cache.slot], truth->seq[p], (unsigned long long)(truth->base[p] + truth->staged[p]));
            break;
        }
    }
}

/* What this rank will vote, as far as it can be known before: its own no. */
static KvgStatus own_no(World *w, int r, const Truth *truth, const KvgStep *step)
{
    const Rank *rank = &w->rank[r];

    for (uint32_t p = 0; p < SIM_PLACES; p++) {
        KvgSequenceInfo info = { .size = sizeof info };
        if (truth->granted[p] && rank->seq[truth->seq[p]] != NULL && rank->seq[truth->seq[p]]->id == truth->id[p]) {
            kvg_sequence_info(rank->seq[truth->seq[p]], &info);
            if (info.tainted) return KVG_ETAINTED;
        }
    }
    if (kvg_step_local(step) != KVG_OK) {
        return kvg_step_local(step);
    }
    return truth->refusers >> r & 1 ? KVG_EDEVICE : KVG_OK;
}

static void fill_commit(World *w, int r, const Truth *truth, KvgCommit *commit, uint32_t accepted[SIM_PLACES])
{
    int lie = truth->lie == LIE_ACCEPTED && truth->liar == r, all = truth->passes_accept >> r & 1;

    (void)w;
    for (uint32_t p = 0; p < SIM_PLACES; p++) {
        accepted[p] = truth->accept[p] < truth->staged[p] ? truth->accept[p] : truth->staged[p];
        all &= accepted[p] == truth->staged[p];
        if (lie && truth->staged[p] > 0 && truth->granted[p]) {
            accepted[p] += accepted[p] < truth->staged[p] ? 1 : -1;
            all = lie = 0;
        }
    }
    if (all && truth->salt % 2) {
        commit->accept_all = 1;
    } else if (truth->passes_accept >> r & 1) {
        commit->accepted = accepted;
    }
    if (truth->passes_user >> r & 1) {
        commit->user_digest = (truth->salt | 1) + 2 * (truth->lie == LIE_USER && truth->liar == r);
    }
    commit->refuse = truth->refusers >> r & 1 ? KVG_EDEVICE : KVG_OK;
}

Went op_post(World *w, int r, Op *op)
{
    Rank     *rank = &w->rank[r];
    Truth    *truth = &w->truth[op->truth];
    KvgStep  *step = rank->step[op->truth];
    KvgCommit commit = KVG_COMMIT_INIT;
    uint32_t  accepted[SIM_PLACES];
    int       lie = truth->lie == LIE_LAYOUT && truth->liar == r;
    KvgStatus no, status;

    check_undecided(w, r, truth);
    fill_commit(w, r, truth, &commit, accepted);
    no = own_no(w, r, truth, step);
    rank->placement->layout_seed += (uint64_t)lie;
    op_arm(op, r);
    status = kvg_step_post(step, &commit);
    op_disarm(op, r);
    rank->placement->layout_seed -= (uint64_t)lie;
    if (op_ends(w, status)) {
        return IN_DOUBT;
    }
    SIM_CHECK(w, status == KVG_OK, "rank %d could not post step %llu: %s", r, (unsigned long long)truth->number,
              kvg_last_error());
    truth->posted |= 1ull << r;
    truth->yes |= (uint64_t)(no == KVG_OK) << r;
    truth->no_code[r] = no;
    if (voters(w) > 1) {
        check_undecided(w, r, truth);
    }
    return WENT_ON;
}

/* ---- its outcome */

static int lie_shows(const World *w, const Truth *truth)
{
    int any = 0;

    for (uint32_t p = 0; p < SIM_PLACES; p++) any |= truth->granted[p] && truth->staged[p] > 0;
    switch (truth->lie) {
    case LIE_NONE:     return 0;
    case LIE_TARGETS:  return truth->granted[0];
    case LIE_ACCEPTED: return any;
    default:           return w->ranks > 0;
    }
}

static const char *const lie_field[] = { "", "targets", "accepted", "layout", "user", "" };

/* The outcome follows from what was planted: all ready and alike is published, all else is not, and says why. */
static void check_expected(World *w, int r, const Truth *truth, const KvgOutcome *outcome)
{
    uint64_t no = truth->posted & ~truth->yes;

    SIM_CHECK(w, truth->posted == all_ranks(w), "rank %d has decided step %llu, which not all ranks have posted", r, (unsigned long long)truth->number);
    if (no != 0) {
        int lowest = __builtin_ctzll(no);
        SIM_CHECK(w, (outcome->kind == KVG_OUTCOME_REFUSED || outcome->kind == KVG_OUTCOME_TAINTED) && outcome->rank == lowest &&
                  (uint64_t)outcome->reason == truth->no_code[lowest], "rank %d voted no (%s) in step %llu; rank %d was told kind %d, rank %d, %s", lowest,
                  kvg_status_name((KvgStatus)truth->no_code[lowest]), (unsigned long long)truth->number, r, outcome->kind, outcome->rank,
                  kvg_status_name(outcome->reason));
    } else if (w->apart && truth->begin_pc > w->apart_pc) {
        SIM_CHECK(w, outcome->kind == KVG_OUTCOME_DISAGREE && strcmp(outcome->field, "targets") == 0, "posted calls went apart and step %llu ended in kind %d",
                  (unsigned long long)truth->number, outcome->kind);
    } else if (!lie_shows(w, truth)) {
        SIM_CHECK(w, outcome->kind == KVG_OUTCOME_PUBLISHED, "all ranks were ready and alike in step %llu, and rank %d was told kind %d: %s",
                  (unsigned long long)truth->number, r, outcome->kind, outcome->field);
    } else if (truth->lie == LIE_SILENT) {
        SIM_CHECK(w, outcome->kind == KVG_OUTCOME_UNACCEPTED, "nobody passed counts in step %llu, and rank %d was told kind %d",
                  (unsigned long long)truth->number, r, outcome->kind);
    } else {
        SIM_CHECK(w, outcome->kind == KVG_OUTCOME_DISAGREE && strcmp(outcome->field, lie_field[truth->lie]) == 0,
                  "rank %d gave other %s than the rest in step %llu, and rank %d was told kind %d, field %s", truth->liar, lie_field[truth->lie],
                  (unsigned long long)truth->number, r, outcome->kind, outcome->field);
    }
}

static void remember(World *w, int r, Truth *truth, const KvgOutcome *outcome)
{
    truth->known = 1;
    truth->kind = outcome->kind;
    truth->status = outcome->status;
    truth->by_rank = outcome->rank;
    for (uint32_t p = 0; p < SIM_PLACES; p++) {
        const KvgSequence *sequence = w->rank[r].seq[truth->seq[p]];
        truth->accepted[p] = truth->granted[p] ? outcome->accepted[p] : 0;
        truth->owed[p] = truth->granted[p] ? outcome->replay[p] : 0;
        if (outcome->kind == KVG_OUTCOME_TAINTED && truth->granted[p] && sequence != NULL && sequence->id == truth->id[p]) {
            truth->accepted[p] = (uint32_t)sequence->cache.tainted;
        }
        if (outcome->kind == KVG_OUTCOME_PUBLISHED && truth->granted[p]) {
            uint32_t asked = truth->accept[p] < truth->staged[p] ? truth->accept[p] : truth->staged[p];
            SIM_CHECK(w, truth->accepted[p] == asked, "step %llu, place %u: %u rows were accepted, not the %u that were asked for",
                      (unsigned long long)truth->number, p, truth->accepted[p], asked);
        }
    }
    w->publishes += outcome->kind == KVG_OUTCOME_PUBLISHED;
    w->rollbacks += outcome->kind != KVG_OUTCOME_PUBLISHED;
}

static void check_place(World *w, int r, const Truth *truth, uint32_t p, const KvgOutcome *outcome)
{
    const KvgSequence *sequence = w->rank[r].seq[truth->seq[p]];
    const RefSeq      *front = &w->front.seq[truth->seq[p]];
    uint32_t           kept = truth->kind == KVG_OUTCOME_PUBLISHED ? truth->accepted[p] : 0;
    uint64_t           row, there;

    SIM_CHECK(w, outcome->accepted[p] == kept, "step %llu, place %u: rank %d was told %u accepted rows, the first rank %u",
              (unsigned long long)truth->number, p, r, outcome->accepted[p], kept);
    if (sequence == NULL || sequence->id != truth->id[p]) {
        return; /* closed since */
    }
    SIM_CHECK(w, outcome->replay[p] == truth->owed[p], "step %llu, place %u: rank %d owes %u rows, the first rank %u", (unsigned long long)truth->number, p, r,
              outcome->replay[p], truth->owed[p]);
    SIM_CHECK(w, sequence->cache.pos == truth->base[p] + kept && kvg_kv_cache_staged(&sequence->cache) == sequence->cache.pos,
              "step %llu is decided and rank %d has %llu rows of sequence %u (staged %llu), not %llu", (unsigned long long)truth->number, r,
              (unsigned long long)sequence->cache.pos, truth->seq[p], (unsigned long long)kvg_kv_cache_staged(&sequence->cache),
              (unsigned long long)(truth->base[p] + kept));
    if (truth->kind == KVG_OUTCOME_TAINTED) {
        SIM_CHECK(w, (uint32_t)sequence->cache.tainted == truth->accepted[p], "step %llu: rank %d holds sequence %u %s", (unsigned long long)truth->number, r,
                  truth->seq[p], truth->accepted[p] ? "untainted" : "tainted");
    }
    if (sequence->cache.tainted || sequence->taint_pending) {
        return;
    }
    content_check_rows(w, r, truth->seq[p], truth->base[p], truth->base[p] + kept, &truth->key[p][truth->replay[p]]);
    there = truth->owed[p] > kept ? truth->base[p] + kept - truth->owed[p] : truth->base[p]; /* rows that are owed as a replay need not be there */
    if (there > 0 && front->open && front->id == truth->id[p] && front->cuts == truth->cuts[p]) { /* an old row, too */
        row = chance(&w->draws, 2) ? there - 1 - draw(&w->draws, there < 8 ? (uint32_t)there : 8) : draw(&w->draws, (uint32_t)there);
        content_check_rows(w, r, truth->seq[p], row, row + 1, &front->key[row]);
    }
}

static void check_outcome(World *w, int r, Truth *truth, const KvgOutcome *outcome)
{
    if (!truth->known) {
        check_expected(w, r, truth, outcome);
        remember(w, r, truth, outcome);
    }
    SIM_CHECK(w, outcome->kind == truth->kind && outcome->status == truth->status && outcome->rank == truth->by_rank,
              "step %llu: rank %d was told kind %d of rank %d, the first rank kind %d of rank %d", (unsigned long long)truth->number, r, outcome->kind,
              outcome->rank, truth->kind, truth->by_rank);
    for (uint32_t p = 0; p < SIM_PLACES; p++) {
        if (truth->granted[p]) {
            check_place(w, r, truth, p, outcome);
        }
    }
}

Went op_wait(World *w, int r, Op *op)
{
    Rank      *rank = &w->rank[r];
    Truth     *truth = &w->truth[op->truth];
    KvgOutcome outcome;
    int        done = 0;
    KvgStatus  status = kvg_step_test(rank->step[op->truth], &done, &outcome);

    if (!done) {
        if (status != KVG_OK) {
            SIM_CHECK(w, op_ends(w, status), "rank %d, step %llu: %s", r, (unsigned long long)truth->number, kvg_last_error());
            return IN_DOUBT;
        }
        if (rank->wait_since_ns == 0 && rank->step[op->truth]->state == KVG_STEP_POSTED) { /* not while it is compared: rolled back already */
            check_undecided(w, r, truth);
        }
        return BLOCKED;
    }
    check_outcome(w, r, truth, &outcome);
    return WENT_ON;
}

/* A place of a batch whose sequence is closed, and whose slot another has: rows there are refused, and nothing is begun. */
Went op_stale_begin(World *w, int r, Op *op)
{
    Rank     *rank = &w->rank[r];
    KvgBatch *batch = rank->batch[op->batch];
    KvgStep  *step = NULL;
    KvgStatus status;

    if (rank->seq[op->seq] == NULL) {
        return WENT_ON; /* it could not be opened again */
    }
    for (uint32_t p = 0; p < SIM_PLACES; p++) {
        SIM_CHECK(w, kvg_batch_set(batch, p, p == 0 ? rank->seq[op->seq] : NULL) == KVG_OK, "%s", kvg_last_error());
    }
    batch->serial[0]--; /* as if it had been put there in its slot's life before */
    status = kvg_step_begin(batch, (uint32_t[SIM_PLACES]){ 1 }, &step);
    batch->serial[0]++;
    if (op_ends(w, status)) {
        return IN_DOUBT;
    }
    SIM_CHECK(w, status == KVG_EINVAL, "rank %d: a batch whose sequence was closed, and another opened in its slot, began a step with %s", r,
              kvg_status_name(status));
    return WENT_ON;
}

/* Drive: each rank walks the program; every answer is compared with what the first rank was told, and with what was planted. */
#include "tests/simulate/sim.h"

#include <string.h>

typedef enum Went { WENT_ON, BLOCKED, IN_DOUBT } Went;

/* ---- a failure planted in one call */

static void arm(const Op *op, int r)
{
    if (op->oom_rank == r && !op->oom_hit) {
        kvg_fault_arm(op->oom_nth);
    }
}

static int disarm(Op *op, int r)
{
    if (op->oom_rank != r || op->oom_hit || !kvg_fault_disarm()) {
        return 0;
    }
    op->oom_hit = 1;
    return 1;
}

/* ---- answers */

/* What is agreed must be the same on every rank at the same op. */
static void compare_answer(World *w, int r, Op *op, KvgStatus status, const KvgSequence *sequence)
{
    const KvgPlacement *placement = w->rank[r].placement;
    uint64_t            replay = sequence != NULL && sequence->open ? kvg_kv_cache_replay(&sequence->cache) : 0;

    if (op->done == 0) {
        op->status = status;
        op->slots_free = placement->free_count;
        op->replay = replay;
        for (uint32_t c = 0; c < kvg_store_class_count(placement->store); c++) op->units_free[c] = kvg_store_units_free(placement->store, c);
        return;
    }
    SIM_CHECK(w, status == op->status, "op %d on sequence %u: rank %d answers %s, the first rank %s (%s)", op->kind, op->seq, r, kvg_status_name(status),
              kvg_status_name(op->status), kvg_last_error());
    SIM_CHECK(w, placement->free_count == op->slots_free, "after op %d: rank %d has %u slots free, the first rank %u", op->kind, r, placement->free_count,
              op->slots_free);
    SIM_CHECK(w, replay == op->replay, "after op %d: rank %d owes a replay of %llu rows of sequence %u, the first rank %llu", op->kind, r,
              (unsigned long long)replay, op->seq, (unsigned long long)op->replay);
    for (uint32_t c = 0; c < kvg_store_class_count(placement->store); c++) {
        SIM_CHECK(w, kvg_store_units_free(placement->store, c) == op->units_free[c], "after op %d: class %u has %u units free on rank %d, %u on the first rank",
                  op->kind, c, kvg_store_units_free(placement->store, c), r, op->units_free[c]);
    }
}

static int is_doubt(KvgStatus status)
{
    return status == KVG_EPEER || status == KVG_EINDOUBT;
}

/* ---- posted calls */

static KvgStatus expected_open(World *w, const Rank *rank, const Op *op)
{
    KvgLedger ledger;

    for (uint32_t i = 0; i < SIM_SEQS; i++) {
        if (w->front.seq[i].open && w->front.seq[i].id == op->id) {
            return KVG_EINVAL;
        }
    }
    kvg_placement_ledger(rank->placement, &ledger);
    return kvg_ledger_check(&ledger, op->rows);
}

static KvgStatus call_open(World *w, Rank *rank, const Op *op)
{
    KvgStatus expected = op->done == 0 ? expected_open(w, rank, op) : KVG_OK, status;

    arm(op, (int)(rank - w->rank));
    status = kvg_sequence_open(rank->placement, op->id, op->rows, &rank->seq[op->seq]);
    disarm((Op *)(uintptr_t)op, (int)(rank - w->rank));
    SIM_CHECK(w, op->done != 0 || status == expected, "opening with %llu rows answers %s, the ledger %s", (unsigned long long)op->rows,
              kvg_status_name(status), kvg_status_name(expected));
    return status;
}

static KvgStatus call_close(World *w, Rank *rank, const Op *op)
{
    KvgStatus status = kvg_sequence_close(rank->seq[op->seq], NULL);

    (void)w;
    rank->seq[op->seq] = NULL;
    return status;
}

static KvgStatus call_rollback(World *w, Rank *rank, const Op *op)
{
    KvgSequence *sequence = rank->seq[op->seq];
    KvgSnapshot *snapshot = rank->snapshot[op->seq];
    int          can = kvg_sequence_can_rollback(sequence, snapshot, op->rows);
    KvgStatus    status = kvg_sequence_rollback(sequence, snapshot, op->rows);

    SIM_CHECK(w, is_doubt(status) || can == (status == KVG_OK) || (can && status == KVG_ECAPACITY) || sequence->taint_pending,
              "a rollback that was said to be %s answers %s", can ? "possible" : "impossible", kvg_status_name(status));
    SIM_CHECK(w, op->done != 0 || status != KVG_OK || w->front.snapshot[op->seq].id == sequence->id, "a snapshot of an earlier life was taken back to");
    return status;
}

static KvgStatus call_snapshot(World *w, Rank *rank, const Op *op)
{
    KvgSnapshot **snapshot = &rank->snapshot[op->seq];
    KvgStatus     status;

    if (*snapshot != NULL) {
        status = kvg_sequence_snapshot_into(rank->seq[op->seq], *snapshot);
    } else {
        arm(op, (int)(rank - w->rank));
        status = kvg_sequence_snapshot(rank->seq[op->seq], snapshot);
        if (disarm((Op *)(uintptr_t)op, (int)(rank - w->rank)) && status == KVG_ENOMEM) {
            status = kvg_sequence_snapshot(rank->seq[op->seq], snapshot); /* it is local: the caller tries again */
        }
    }
    if (status != KVG_OK && *snapshot != NULL) { /* what it was before may be another life's */
        kvg_snapshot_free(*snapshot);
        *snapshot = NULL;
    }
    return status;
}

static KvgStatus call_posted(World *w, Rank *rank, Op *op)
{
    int          r = (int)(rank - w->rank);
    KvgSequence *sequence = rank->seq[op->seq];
    KvgStatus    status;

    switch (op->kind) {
    case OP_OPEN:     return call_open(w, rank, op);
    case OP_CLOSE:    return call_close(w, rank, op);
    case OP_ROLLBACK: return call_rollback(w, rank, op);
    case OP_SNAPSHOT: return call_snapshot(w, rank, op);
    default: break;
    }
    arm(op, r);
    switch (op->kind) {
    case OP_BOOK:   status = kvg_sequence_book(sequence, op->rows); break;
    case OP_TRIM:   status = kvg_sequence_trim(sequence); break;
    case OP_REWIND: status = kvg_sequence_rewind(sequence, op->rows); break;
    default:        status = kvg_sequence_fork(sequence, op->rows, op->id, &rank->seq[op->other]); break;
    }
    disarm(op, r);
    return status;
}

static Went do_posted(World *w, int r, Op *op)
{
    Rank        *rank = &w->rank[r];
    KvgSequence *sequence = rank->seq[op->seq];
    KvgStatus    status;

    if (op->only_rank >= 0 && op->only_rank != r) {
        return WENT_ON;
    }
    if (op->kind != OP_OPEN && sequence == NULL) { /* an op before it was refused */
        SIM_CHECK(w, !w->front.seq[op->seq].open || w->front_pc != rank->pc, "rank %d has lost sequence %u", r, op->seq);
        op->status = op->done == 0 ? KVG_ESTALE : op->status;
        op->skipped = 1;
        return WENT_ON;
    }
    status = call_posted(w, rank, op);
    if (is_doubt(status)) {
        return IN_DOUBT;
    }
    if (w->apart && status == KVG_ELAYOUT) {
        return IN_DOUBT;
    }
    SIM_CHECK(w, op->done != 0 || op->kind == OP_OPEN || op->kind == OP_CLOSE || !w->front.seq[op->seq].tainted || status != KVG_OK,
              "sequence %u is tainted, and op %d serves it on rank %d", op->seq, op->kind, r);
    if (status == KVG_OK) {
        op->well |= 1ull << r;
    }
    if (op->only_rank < 0 && !w->apart) {
        compare_answer(w, r, op, status, rank->seq[op->seq]);
    }
    if (op->only_rank >= 0) {
        w->apart = 1;
        w->apart_rank = r;
        w->apart_pc = rank->pc;
    }
    return WENT_ON;
}

/* ---- a step */

static Went do_set(World *w, int r, Op *op)
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

static Went do_begin(World *w, int r, Op *op)
{
    Rank     *rank = &w->rank[r];
    Truth    *truth = &w->truth[op->truth];
    uint32_t  rows[SIM_PLACES];
    KvgStep  *step = NULL;
    KvgStatus status;

    for (uint32_t p = 0; p < SIM_PLACES; p++) {
        rows[p] = truth->rows[p] + truth->replay[p] + (truth->lie == LIE_TARGETS && truth->liar == r && p == 0);
    }
    arm(op, r);
    status = kvg_step_begin(rank->batch[op->batch], rows, &step);
    disarm(op, r);
    if (is_doubt(status) || (w->apart && status == KVG_ELAYOUT)) {
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
    if (!w->apart) compare_answer(w, r, op, KVG_OK, NULL);
    return WENT_ON;
}

static Went do_extend(World *w, int r, Op *op)
{
    Rank     *rank = &w->rank[r];
    Truth    *truth = &w->truth[op->truth];
    uint32_t  rows[SIM_PLACES];
    KvgStatus status;

    for (uint32_t p = 0; p < SIM_PLACES; p++) {
        rows[p] = truth->granted[p] ? truth->more[p] : 0;
    }
    arm(op, r);
    status = kvg_step_extend(rank->step[op->truth], rows);
    disarm(op, r);
    if (is_doubt(status) || (w->apart && status == KVG_ELAYOUT)) {
        return IN_DOUBT;
    }
    SIM_CHECK(w, status == KVG_OK, "rank %d could not extend a step: %s", r, kvg_last_error());
    compare_granted(w, r, truth, rank->step[op->truth], 1);
    if (!w->apart) compare_answer(w, r, op, KVG_OK, NULL);
    return WENT_ON;
}

/* Until the step is decided every reader sees the rows that were committed before, and the step's own attention those that are staged. */
static void check_undecided(World *w, int r, const Truth *truth)
{
    const Rank *rank = &w->rank[r];
    uint32_t    extra;

    for (uint32_t p = 0; p < SIM_PLACES; p++) {
        const KvgSequence *sequence = rank->seq[truth->seq[p]];
        if (!truth->granted[p] || sequence == NULL || sequence->id != truth->id[p]) {
            continue;
        }
        extra = truth->lie == LIE_TARGETS && truth->liar == r && p == 0;
        SIM_CHECK(w, sequence->cache.pos == truth->base[p], "step %llu is undecided and rank %d has %llu rows of sequence %u committed, not %llu",
                  (unsigned long long)truth->number, r, (unsigned long long)sequence->cache.pos, truth->seq[p], (unsigned long long)truth->base[p]);
        for (uint32_t il = rank->placement->lo; il < rank->placement->hi; il++) {
            const KvPlaneView *view = kvg_store_shown_view(rank->placement->store, il);
            if (view == NULL) continue;
            SIM_CHECK(w, view->len[sequence->cache.slot] == truth->base[p], "step %llu is undecided and rank %d shows readers %u rows of sequence %u, not %llu",
                      (unsigned long long)truth->number, r, view->len[sequence->cache.slot], truth->seq[p], (unsigned long long)truth->base[p]);
            SIM_CHECK(w, view->len_staged[sequence->cache.slot] == truth->base[p] + truth->staged[p] + extra,
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

static Went do_post(World *w, int r, Op *op)
{
    Rank     *rank = &w->rank[r];
    Truth    *truth = &w->truth[op->truth];
    KvgStep  *step = rank->step[op->truth];
    KvgCommit commit = KVG_COMMIT_INIT;
    uint32_t  accepted[SIM_PLACES];
    int       lie = truth->lie == LIE_LAYOUT && truth->liar == r, hit;
    KvgStatus no, status;

    check_undecided(w, r, truth);
    fill_commit(w, r, truth, &commit, accepted);
    no = own_no(w, r, truth, step);
    rank->placement->layout_seed += (uint64_t)lie;
    arm(op, r);
    status = kvg_step_post(step, &commit);
    hit = disarm(op, r);
    rank->placement->layout_seed -= (uint64_t)lie;
    if (is_doubt(status) || (w->apart && status == KVG_ELAYOUT)) {
        return IN_DOUBT;
    }
    SIM_CHECK(w, status == KVG_OK || (hit && status == KVG_ENOMEM), "rank %d could not post step %llu: %s", r, (unsigned long long)truth->number,
              kvg_last_error());
    truth->posted |= 1ull << r;
    truth->yes |= (uint64_t)(no == KVG_OK) << r;
    truth->no_code[r] = no;
    if (w->ranks > 1) {
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

static Went do_wait(World *w, int r, Op *op)
{
    Rank      *rank = &w->rank[r];
    Truth     *truth = &w->truth[op->truth];
    KvgOutcome outcome;
    int        done = 0;
    KvgStatus  status = kvg_step_test(rank->step[op->truth], &done, &outcome);

    if (!done) {
        if (status != KVG_OK) {
            SIM_CHECK(w, is_doubt(status) || (w->apart && status == KVG_ELAYOUT), "rank %d, step %llu: %s", r, (unsigned long long)truth->number, kvg_last_error());
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
static Went do_stale_begin(World *w, int r, Op *op)
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
    if (is_doubt(status) || (w->apart && status == KVG_ELAYOUT)) {
        return IN_DOUBT;
    }
    SIM_CHECK(w, status == KVG_EINVAL, "rank %d: a batch whose sequence was closed, and another opened in its slot, began a step with %s", r,
              kvg_status_name(status));
    return WENT_ON;
}

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
    w->resized += op->kind != OP_DIGEST && op->well == 0;
    op->well |= 1ull << r;
}

static Went do_setup(World *w, int r, Op *op)
{
    Rank     *rank = &w->rank[r];
    KvgStatus status;
    int       done = 1;

    if (op->kind == OP_RESIZE && op->done == 0 && rank->setup == NULL && op->id == 0) { /* more than any rank has: nothing that is in use can be in the way */
        op->id = op->rows >= rank->placement->options.memory_bytes + 16 * 4096 ? 1 : 2;
    }
    arm(op, r);
    if (rank->setup == NULL) {
        status = start_setup(rank, op);
        done = status != KVG_OK;
    } else {
        status = kvg_setup_test(rank->setup, &done);
    }
    disarm(op, r);
    if (!done) {
        return BLOCKED;
    }
    kvg_setup_free(rank->setup);
    rank->setup = NULL;
    if (is_doubt(status) || (w->apart && status == KVG_ELAYOUT)) {
        return IN_DOUBT;
    }
    SIM_CHECK(w, status == KVG_OK || op->kind != OP_RESIZE || op->id != 1 || op->oom_rank >= 0, "a resize to more memory is refused on rank %d, and no failure was "
              "planted: %s", r, kvg_last_error());
    if (status == KVG_OK) {
        setup_went_well(w, r, op);
    }
    return WENT_ON;
}

static Went do_barrier(World *w, int r, Op *op)
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
    case OP_SET:         return do_set(w, r, op);
    case OP_STALE_BEGIN: return do_stale_begin(w, r, op);
    case OP_BEGIN:       return do_begin(w, r, op);
    case OP_EXTEND:      return do_extend(w, r, op);
    case OP_WRITE:       content_write(w, r, &w->truth[op->truth], w->rank[r].step[op->truth]); return WENT_ON;
    case OP_POST:        return do_post(w, r, op);
    case OP_WAIT:        return do_wait(w, r, op);
    case OP_RESIZE:
    case OP_SLEEP:
    case OP_WAKE:
    case OP_DIGEST:      return do_setup(w, r, op);
    case OP_BARRIER:     return do_barrier(w, r, op);
    case OP_TAINT:
        if (op->only_rank == r && w->rank[r].seq[op->seq] != NULL) kvg_sequence_taint(w->rank[r].seq[op->seq]);
        return WENT_ON;
    default:             return do_posted(w, r, op);
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
            kvg_inproc_freeze(w->hub, r, 0);
        }
    }
}

static void pass_time(World *w, int ran)
{
    if (ran > 0) {
        w->idle_rounds = 0;
        kvg_inproc_advance_ns(w->hub, 20000);
        return;
    }
    w->idle_rounds++;
    kvg_inproc_advance_ns(w->hub, w->idle_rounds < 30 ? SIM_MS / 2 : 20 * SIM_MS);
    if (w->idle_rounds > 400 && w->first_doubt_ns == 0) {
        thaw(w); /* nobody waits for it through the grid: it is late for a barrier */
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

void drive_advance(World *w)
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

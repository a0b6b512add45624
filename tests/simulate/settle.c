/* Settle: the survivors of a loss or a doubt are brought to one state by the production call, and what they then hold is compared: with each other,
 * with what any of them had published before, and with the reference as it follows from what they have executed. */
#include "tests/simulate/sim.h"

#include <string.h>

enum { ATTEMPTS = 40, ATTEMPTS_FAULTY = 6 };

/* ---- who takes part */

uint64_t settle_list(World *w, Attempt *attempt)
{
    uint64_t members = 0;
    int     *list = attempt->list, *count = &attempt->count;

    *count = 0;
    for (int r = 0; r < w->ranks; r++) {
        if (rank_lives(&w->rank[r]) && !w->rank[r].frozen) {
            members |= 1ull << r;
            list[(*count)++] = r;
        }
    }
    for (int i = *count - 1; i > 0; i--) { /* the order of the list says nothing */
        int other = (int)draw(&w->draws, (uint32_t)i + 1), swap = list[i];
        list[i] = list[other];
        list[other] = swap;
    }
    return members;
}

static void thaw_some(World *w)
{
    for (int r = 0; r < w->ranks; r++) {
        if (w->rank[r].frozen && !w->rank[r].dead && chance(&w->draws, 2)) {
            w->rank[r].frozen = 0;
            world_freeze(w, r, 0);
        }
    }
}

/* An engine gives up what it was in the middle of. */
static void give_up_setups(World *w)
{
    for (int r = 0; r < w->ranks; r++) {
        if (!w->rank[r].frozen && w->rank[r].setup != NULL) {
            kvg_setup_free(w->rank[r].setup);
            w->rank[r].setup = NULL;
        }
    }
}

/* ---- one attempt */

static void start_rank(World *w, Attempt *attempt, int r)
{
    int oom = w->faulty && w->faults.oom != 0 && chance(&w->draws, 20 * (uint32_t)w->ranks);

    if (oom) kvg_fault_arm(draw(&w->draws, 6));
    attempt->each[r] = kvg_grid_settle_start(w->rank[r].grid, attempt->list, attempt->count, &attempt->setup[r]);
    if (oom) oom = kvg_fault_disarm();
    SIM_CHECK(w, attempt->each[r] == KVG_OK || (oom && attempt->each[r] == KVG_ENOMEM), "rank %d cannot settle: %s", r, kvg_last_error());
    attempt->done[r] = attempt->each[r] != KVG_OK;
}

static void turn_rank(World *w, Attempt *attempt, int r, uint64_t began_ns)
{
    int oom = w->faulty && w->faults.oom != 0 && chance(&w->draws, 100 * (uint32_t)w->ranks);

    if (oom) kvg_fault_arm(draw(&w->draws, 6));
    attempt->each[r] = kvg_setup_test(attempt->setup[r], &attempt->done[r]);
    if (oom && kvg_fault_disarm()) w->rank[r].keeps_more = 1;
    SIM_CHECK(w, kvg_inproc_now_ns(w->hub) - began_ns <= 2 * SIM_DEADLINE_NS + 1000 * SIM_MS, "settling on rank %d takes %llu ms", r,
              (unsigned long long)((kvg_inproc_now_ns(w->hub) - began_ns) / SIM_MS));
}

/* Once it has begun to settle, a rank decides nothing by itself any more, whatever still arrives: it has told the others what it had decided. */
static void poll_steps(World *w, int r)
{
    for (uint32_t t = 0; t < SIM_TRUTHS; t++) {
        KvgStep *step = w->rank[r].step[t];
        int      done = 0;
        if (w->truth[t].number == 0 || !(w->truth[t].begun >> r & 1) || step->number != w->truth[t].number || step->state != KVG_STEP_POSTED) continue;
        KvgStatus status = kvg_step_test(step, &done, NULL);
        SIM_CHECK(w, (status == KVG_EPEER || (w->apart && status == KVG_ELAYOUT)) && !done, "rank %d has decided step %llu by itself while it settles", r,
                  (unsigned long long)step->number);
    }
}

/* All members start, not at one moment, and are turned until each has ended. A member may die meanwhile. */
static void run_attempt(World *w, Attempt *attempt)
{
    uint64_t began_ns[SIM_RANKS] = { 0 };
    int      left = attempt->count, started[SIM_RANKS] = { 0 };

    memset(attempt->done, 0, sizeof attempt->done);
    memset(attempt->setup, 0, sizeof attempt->setup);
    for (uint64_t round = 0; left > 0; round++) {
        SIM_CHECK(w, round < 100000, "settling does not end");
        left = 0;
        for (int i = 0; i < attempt->count; i++) {
            int r = attempt->list[i];
            if (w->rank[r].dead) continue;
            if (!started[r]) {
                left++;
                if (!chance(&w->draws, 3)) continue;
                started[r] = 1;
                began_ns[r] = kvg_inproc_now_ns(w->hub);
                start_rank(w, attempt, r);
            } else if (!attempt->done[r]) {
                if (chance(&w->draws, 8)) poll_steps(w, r);
                turn_rank(w, attempt, r, began_ns[r]);
            }
            left += !attempt->done[r];
        }
        if (w->faulty && w->faults.kill != 0 && left > 1 && chance(&w->draws, 300)) {
            fault_kill(w, attempt->list[draw(&w->draws, (uint32_t)attempt->count)]);
        }
        if (w->tear_rank >= 0 && w->tear_left <= 0) {
            fault_kill(w, w->tear_rank);
        }
        world_advance(w, round < 50 ? SIM_MS / 5 : 10 * SIM_MS);
    }
    for (int r = 0; r < w->ranks; r++) {
        kvg_setup_free(attempt->setup[r]); /* of a rank that died in the middle, too */
    }
}

static int attempt_went_well(const World *w, const Attempt *attempt)
{
    for (int i = 0; i < attempt->count; i++) {
        int r = attempt->list[i];
        if (w->rank[r].dead || attempt->each[r] != KVG_OK) {
            return 0;
        }
    }
    return 1;
}

/* ---- what came of it */

/* 1 if some members have made a posted call that others have not: that cannot be settled. 2 where it cannot be said from outside, since the call was
 * refused, perhaps before it counted. */
static int calls_apart(World *w, uint64_t members, uint64_t from, uint64_t to)
{
    int apart = 0;

    for (uint64_t pc = from; pc < to; pc++) {
        const Op *op = op_at(w, pc);
        uint64_t  done = op->done & members;
        w->torn += op->kind >= OP_RESIZE && op->kind <= OP_WAKE && (op->well & members) != 0 && (op->well & members) != members;
        if (op->kind > OP_ROLLBACK || op->only_rank >= 0 || done == 0 || done == members || op->skipped) continue;
        if (op->status == KVG_OK) return 1;
        apart = 2;
    }
    return apart;
}

/* Every member that has begun the step has the same outcome, and it is the one that a member was told before the settle. */
static void check_settled_step(World *w, uint64_t members, Truth *truth)
{
    int known = 0;

    for (int r = 0; r < w->ranks; r++) {
        KvgOutcome outcome;
        KvgStep   *step = w->rank[r].step[truth - w->truth];
        int        done = 0;
        if (!(members >> r & 1) || !(truth->begun >> r & 1) || step->number != truth->number) {
            continue;
        }
        kvg_step_test(step, &done, &outcome);
        SIM_CHECK(w, done, "step %llu is undecided on rank %d after a settle", (unsigned long long)truth->number, r);
        if (!known) {
            known = 1;
            truth->kind = outcome.kind;
            truth->status = outcome.status;
            for (uint32_t p = 0; p < SIM_PLACES; p++) {
                const KvgSequence *sequence = w->rank[r].seq[truth->seq[p]];
                truth->accepted[p] = truth->granted[p] ? outcome.accepted[p] : 0;
                if (outcome.kind == KVG_OUTCOME_TAINTED && sequence != NULL && sequence->id == truth->id[p]) {
                    truth->accepted[p] = truth->granted[p] && sequence->cache.tainted;
                }
            }
        }
        SIM_CHECK(w, (outcome.kind == KVG_OUTCOME_PUBLISHED) == (truth->kind == KVG_OUTCOME_PUBLISHED),
                  "after a settle step %llu is of kind %d on rank %d and of kind %d on another", (unsigned long long)truth->number, outcome.kind, r, truth->kind);
        for (uint32_t p = 0; p < SIM_PLACES && outcome.kind == KVG_OUTCOME_PUBLISHED; p++) {
            SIM_CHECK(w, !truth->granted[p] || outcome.accepted[p] == truth->accepted[p], "after a settle step %llu has %u rows accepted on rank %d and %u on another",
                      (unsigned long long)truth->number, outcome.accepted[p], r, truth->accepted[p]);
        }
    }
    if (known && truth->kind == KVG_OUTCOME_PUBLISHED) {
        SIM_CHECK(w, truth->posted == all_ranks(w) && truth->yes == all_ranks(w), "step %llu is published after a settle, and not every rank had voted yes for it",
                  (unsigned long long)truth->number);
    }
    truth->known = known;
}

/* What a member was told before stays true. */
static void check_kept(World *w, uint64_t members, const Truth *truth, const Truth *before, uint64_t told)
{
    if (!before->known || (told & members) == 0) {
        return; /* nobody who survives had decided it */
    }
    SIM_CHECK(w, (truth->kind == KVG_OUTCOME_PUBLISHED) == (before->kind == KVG_OUTCOME_PUBLISHED),
              "a survivor had step %llu as kind %d before the settle, and it is kind %d after it", (unsigned long long)truth->number, before->kind, truth->kind);
}

/* Steps that may be undecided on some member: begun, and not waited for by all of them. */
static int may_be_open(World *w, uint32_t t)
{
    if (w->truth[t].number == 0) {
        return 0;
    }
    for (uint32_t u = 0; u < w->undecided_count; u++) {
        if (w->undecided[u] == t) return 1;
    }
    for (uint64_t pc = w->back_pc; pc < w->log_end; pc++) {
        if (op_at(w, pc)->kind == OP_WAIT && op_at(w, pc)->truth == t) return 1;
    }
    return 0;
}

/* Who was told its outcome before the settle. */
static uint64_t told_before(World *w, uint32_t t)
{
    for (uint64_t pc = w->back_pc; pc < w->log_end; pc++) {
        if (op_at(w, pc)->kind == OP_WAIT && op_at(w, pc)->truth == t) return op_at(w, pc)->done;
    }
    return 0;
}

static void settle_truths(World *w, uint64_t members, uint8_t *open)
{
    for (uint32_t t = 0; t < SIM_TRUTHS; t++) {
        Truth *truth = &w->truth[t], before;
        open[t] = (uint8_t)may_be_open(w, t);
        if (open[t]) {
            memcpy(&before, truth, offsetof(Truth, key));
            check_settled_step(w, members, truth);
            check_kept(w, members, truth, &before, told_before(w, t));
        }
    }
}

/* The reference as the members have executed the program, with every step they have begun as it was settled. */
static void rebuild_reference(World *w, uint64_t members, uint64_t to, uint8_t *open)
{
    w->front = w->back;
    for (uint64_t pc = w->back_pc; pc < to; pc++) {
        const Op *op = op_at(w, pc);
        if (op->kind == OP_WAIT) {
            open[op->truth] = 0;
            if (w->truth[op->truth].known) reference_apply_truth(&w->front, &w->truth[op->truth]);
        } else if ((op->done & members) == members) {
            reference_apply(w, &w->front, op);
        }
    }
    for (uint32_t n = 0; n < SIM_TRUTHS; n++) { /* in the order of their numbers */
        uint32_t t = (w->next_truth + n) % SIM_TRUTHS;
        if (open[t] && w->truth[t].known) reference_apply_truth(&w->front, &w->truth[t]);
    }
}

static void check_states(World *w, const Attempt *attempt, int left_out, int apart)
{
    uint32_t epoch = kvg_grid_epoch(w->rank[attempt->list[0]].grid);

    for (int i = 0; i < attempt->count; i++) {
        int       r = attempt->list[i];
        KvgStatus state = kvg_grid_state(w->rank[r].grid);
        KvgStatus expected = apart ? KVG_ELAYOUT : left_out ? KVG_EPEER : KVG_OK;
        SIM_CHECK(w, kvg_grid_epoch(w->rank[r].grid) == epoch, "after a settle rank %d is in epoch %u and rank %d in %u", r, kvg_grid_epoch(w->rank[r].grid),
                  attempt->list[0], epoch);
        SIM_CHECK(w, state == expected, "after a settle rank %d's grid says %s, not %s: %s", r, kvg_status_name(state), kvg_status_name(expected),
                  kvg_last_error());
    }
}

static void drop_snapshots(World *w)
{
    for (int r = 0; r < w->ranks; r++) {
        for (int i = 0; i < SIM_SEQS; i++) {
            if (w->rank[r].dead) continue;
            kvg_snapshot_free(w->rank[r].snapshot[i]);
            w->rank[r].snapshot[i] = NULL;
        }
    }
    memset(w->front.snapshot, 0, sizeof w->front.snapshot);
}

/* The program goes on from here for all members. */
static void restart_program(World *w)
{
    w->back = w->front;
    w->front_pc = w->back_pc = w->log_end;
    w->undecided_count = 0;
    w->held = -1;
    w->barrier_wanted = w->closing = 0;
    w->probes = 12;
    w->patient = 0;
    for (int r = 0; r < w->ranks; r++) {
        w->rank[r].pc = w->log_end;
        w->rank[r].doubt = w->rank[r].stopped = 0;
        w->rank[r].wait_since_ns = 0;
        if (!w->rank[r].dead && w->rank[r].placement != NULL && !w->rank[r].placement->asleep && w->rank[r].batch[0] == NULL) {
            world_begin_rank(w, r); /* a newcomer that was woken by the settle */
        }
    }
}

void settle_wake(World *w, const Attempt *attempt)
{
    for (int r = 0; r < w->ranks; r++) {
        Rank *rank = &w->rank[r];
        int   everyone[SIM_RANKS], count = 0, done = 0;
        if (rank->dead || !rank->out || rank->woken) continue;
        rank->woken = 1;
        rank->frozen = 0;
        world_freeze(w, r, 0);
        for (int i = 0; i < w->ranks; i++) {
            if (rank->knew >> i & 1) everyone[count++] = i;
        }
        for (uint32_t t = 0; t < SIM_TRUTHS; t++) { /* it goes on with what it was doing */
            if (w->truth[t].number != 0 && w->truth[t].begun >> r & 1 && rank->step[t]->state == KVG_STEP_BEGUN) {
                KvgCommit commit = KVG_COMMIT_INIT;
                commit.accept_all = 1;
                kvg_step_post(rank->step[t], &commit);
            }
        }
        KvgSetup *setup = NULL;
        SIM_CHECK(w, kvg_grid_settle_start(rank->grid, everyone, count, &setup) == KVG_OK, "a rank that was left out cannot ask to settle: %s", kvg_last_error());
        for (int round = 0; !done; round++) {
            SIM_CHECK(w, round < 1000, "a rank that was left out does not learn of it");
            KvgStatus status = kvg_setup_test(setup, &done);
            SIM_CHECK(w, !done || status != KVG_OK, "a rank that was left out has settled with nobody");
            for (int i = 0; i < attempt->count; i++) kvg_grid_progress(w->rank[attempt->list[i]].grid);
            world_advance(w, 10 * SIM_MS);
        }
        kvg_setup_free(setup);
    }
}

/* Not all are there any more: the survivors read, compare digests, close, and all comes back. */
static void end_with(World *w, const Attempt *attempt, int apart)
{
    settle_wake(w, attempt);
    if (!apart) {
        world_compare(w, &w->front);
    }
    for (uint32_t i = 0; i < SIM_SEQS; i++) {
        for (int m = 0; m < attempt->count; m++) {
            Rank *rank = &w->rank[attempt->list[m]];
            if (rank->seq[i] == NULL) continue;
            SIM_CHECK(w, kvg_sequence_close(rank->seq[i], NULL) == KVG_OK, "a sequence cannot be closed after a settle: %s", kvg_last_error());
            rank->seq[i] = NULL;
        }
        w->front.seq[i].open = 0;
    }
    world_compare(w, &w->front);
    w->over = 1;
}

uint64_t settle_members(World *w, Attempt *attempt)
{
    for (int n = 0;; n++) {
        SIM_CHECK(w, n < ATTEMPTS, "the survivors cannot settle in %d attempts: %s", ATTEMPTS, kvg_last_error());
        if (settle_list(w, attempt) == 0) {
            w->over = 1;
            return 0;
        }
        w->faulty &= n < ATTEMPTS_FAULTY;
        run_attempt(w, attempt);
        if (attempt_went_well(w, attempt)) break;
    }
    w->settles++;
    return settle_list(w, attempt);
}

void settle(World *w)
{
    static Attempt attempt;
    uint64_t       members = 0, to = w->back_pc;
    uint8_t        open[SIM_TRUTHS];
    int            left_out = 0, apart;

    thaw_some(w);
    give_up_setups(w);
    members = settle_members(w, &attempt);
    if (members == 0) {
        return;
    }
    for (int r = 0; r < w->ranks; r++) {
        left_out += w->grid_ranks >> r & ~members >> r & 1;
        w->rank[r].out |= !(members >> r & 1) && !w->rank[r].dead;
        if (!w->rank[r].woken) w->rank[r].knew = w->grid_ranks;
        if (members >> r & 1 && w->rank[r].pc > to) to = w->rank[r].pc;
    }
    apart = w->apart && members >> w->apart_rank & 1 && (members & (members - 1)) != 0 ? 1 : calls_apart(w, members, w->back_pc, to);
    if (apart == 2) {
        apart = kvg_grid_state(w->rank[attempt.list[0]].grid) == KVG_ELAYOUT;
    }
    w->apart = apart;
    check_states(w, &attempt, left_out > 0, apart);
    settle_truths(w, members, open);
    rebuild_reference(w, members, to, open);
    drop_snapshots(w);
    restart_program(w);
    if (left_out == 0 && !apart) {
        world_compare(w, &w->front);
    } else if (!chance(&w->draws, 4) && rebuild(w, &attempt)) {
        w->rebuilds++;
    } else if (!w->over) {
        end_with(w, &attempt, w->apart);
    }
}

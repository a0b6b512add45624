/* Step, second half: when every rank's record is here, one pure function decides, and what it says is published or rolled back.
 *
 *   FREE --begin--> BEGUN --post--> POSTED --all records, decide--> DECIDED --begin of step +2W--> BEGUN
 *                                      |  targets disagree             ^
 *                                      +----------> COMPARING ---------+   running digests are compared, off the fast path
 *   POSTED stays POSTED in doubt: only kvg_grid_settle moves it on. */
#include "pp/internal.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/traced.h"

/* A rank may die with its record on the wire while another connection reports the death first. */
#define RECORD_GRACE_NS (50u * 1000u * 1000u)

/* ---- ending a step */

/* The counters of the b-th batch's placement; NULL if it has gone, or an earlier batch of the step has the same: a step counts once. */
static KvgStats *counters(const KvgStep *step, uint32_t b)
{
    for (uint32_t earlier = 0; earlier < b; earlier++) {
        if (step->placement[earlier] == step->placement[b]) {
            return NULL;
        }
    }
    return step->placement[b] != NULL ? &step->placement[b]->stats : NULL;
}

static void set_outcome(KvgStep *step, KvgOutcomeKind kind, KvgStatus status)
{
    step->outcome = (KvgOutcome){ .size = sizeof(KvgOutcome), .step = step->number, .kind = kind, .status = status, .rank = -1,
                                  .rank_b = -1, .field = "", .accepted = step->accepted, .replay = step->replay };
    for (uint32_t b = 0; b < step->batch_count; b++) {
        KvgStats *stats = counters(step, b);
        if (stats == NULL) {
            continue;
        }
        stats->steps++;
        stats->commits += kind == KVG_OUTCOME_PUBLISHED;
        stats->rollbacks += kind != KVG_OUTCOME_PUBLISHED;
        stats->outcomes[kind]++;
    }
}

/* How long the vote took. In a captured run the device has decided, and what is posted here after the fact measures nothing. */
static void note_latency(const KvgStep *step)
{
    uint64_t ns;

    if (step->captured) {
        return;
    }
    ns = kvg_grid_now(step->votes->grid) - step->posted_ns;
    for (uint32_t b = 0; b < step->batch_count; b++) {
        KvgStats *stats = counters(step, b);
        if (stats != NULL) {
            stats->votes++;
            stats->vote_latency[kvg_latency_bucket(ns)]++;
            stats->vote_latency_ns += ns;
        }
    }
}

static void note_refusal(const KvgStep *step, KvgStatus reason)
{
    for (uint32_t b = 0; b < step->batch_count; b++) {
        KvgStats *stats = counters(step, b);
        if (stats != NULL && (unsigned)reason < KVG_STATUS_COUNT) { /* it is another rank's word */
            stats->vote_refusals[reason]++;
        }
    }
}

static void decided(KvgStep *step, KvgOutcomeKind kind, KvgStatus status)
{
    set_outcome(step, kind, status);
    step->state = KVG_STEP_DECIDED;
    step->votes->unsent -= (uint32_t)step->unsent; /* settled: it is needed no more */
    step->unsent = 0;
    kvg_steps_advance(step->votes);
}

void kvg_step_publish(KvgStep *step, const uint16_t *stored)
{
    const KvgTracer *tracer = kvg_range_begin(KVG_RANGE_PUBLISH, step->number);

    for (uint32_t i = 0; i < step->count; i++) {
        KvStepEntry *entry = &step->entries[i];
        uint32_t     rows = stored[i] == KVG_VOTE_ACCEPTED_ALL ? entry->staged : stored[i];
        KVG_ASSERT(rows <= entry->staged);
        step->accepted[entry->slot] = rows;
        if (entry->sequence != NULL) {
            step->replay[entry->slot] = kvg_kv_cache_finalize(&entry->sequence->cache, rows);
            entry->sequence->placement->stats.rows += rows;
            if (step->captured) entry->sequence->cache.held.back = 0; /* as on the ranks whose device has published it */
        }
    }
    step->why[0] = '\0';
    decided(step, KVG_OUTCOME_PUBLISHED, KVG_OK);
    kvg_range_end(tracer, KVG_RANGE_PUBLISH);
}

void kvg_step_adopt_published(KvgStep *step)
{
    step->why[0] = '\0';
    decided(step, KVG_OUTCOME_PUBLISHED, KVG_OK);
}

static void undo_staged(KvgStep *step)
{
    for (uint32_t i = 0; i < step->count; i++) {
        KvStepEntry *entry = &step->entries[i];
        step->accepted[entry->slot] = 0;
        if (entry->sequence != NULL) {
            kvg_kv_cache_refuse(&entry->sequence->cache);
            step->replay[entry->slot] = kvg_kv_cache_replay(&entry->sequence->cache); /* owed before, owed still */
        }
    }
}

static void taint_flagged(KvgStep *step, const uint16_t *flags, uint32_t count)
{
    for (uint32_t i = 0; i < step->count && i < count; i++) {
        KvgSequence *sequence = step->entries[i].sequence;
        if (flags[i] != 0 && sequence != NULL) {
            kvg_kv_cache_taint(&sequence->cache);
            kvg_sequence_drop_attached(sequence);
            sequence->taint_pending = 0;
        }
    }
}

void kvg_step_roll_back(KvgStep *step, const uint16_t *tainted)
{
    undo_staged(step);
    if (tainted != NULL) {
        taint_flagged(step, tainted, step->count);
    }
    snprintf(step->why, sizeof step->why, "step %llu was undecided when the grid settled, and no survivor had published it: it was rolled back",
             (unsigned long long)step->number);
    if (step->state == KVG_STEP_BEGUN) {
        kvg_step_close_batches(step);
    }
    decided(step, tainted != NULL ? KVG_OUTCOME_TAINTED : KVG_OUTCOME_SETTLED_BACK, tainted != NULL ? KVG_ETAINTED : KVG_EREFUSED);
    step->outcome.reason = tainted != NULL ? KVG_ETAINTED : KVG_EINDOUBT;
}

void kvg_steps_advance(KvgVotes *votes)
{
    for (;;) {
        const KvgStep *next = kvg_step_at(votes, votes->decided + 1);
        if (next->number != votes->decided + 1 || next->state != KVG_STEP_DECIDED) {
            return;
        }
        votes->decided++;
    }
}

/* ---- what the vote says */

static void refused(KvgStep *step, const KvVoteOutcome *vote)
{
    int tainted = vote->status == KVG_ETAINTED;

    undo_staged(step);
    note_refusal(step, (KvgStatus)vote->status);
    if (tainted) {
        taint_flagged(step, step->votes->votes[vote->rank]->accepted_rows, step->votes->votes[vote->rank]->count);
    }
    if (vote->rank == step->votes->grid->rank) {
        snprintf(step->why, sizeof step->why, "step %llu was refused by this rank (%d) with %s and rolled back everywhere: %s",
                 (unsigned long long)step->number, vote->rank, kvg_status_name((KvgStatus)vote->status), step->local_why);
    }
    decided(step, tainted ? KVG_OUTCOME_TAINTED : KVG_OUTCOME_REFUSED, tainted ? KVG_ETAINTED : KVG_EREFUSED);
    step->outcome.rank = vote->rank;
    step->outcome.reason = (KvgStatus)vote->status;
}

static KvgStatus cannot_compare(KvgStep *step)
{
    step->state = KVG_STEP_DECIDED;
    kvg_steps_advance(step->votes);
    return kvg_grid_fail(step->votes->grid, KVG_EINDOUBT, "after step %llu disagreed about its targets: %s",
                         (unsigned long long)step->number, kvg_last_error());
}

/* Ranks may have staged unlike rows: what that has left in rings, columns and bookings is made alike. */
static void level_entries(KvgStep *step)
{
    for (uint32_t i = 0; i < step->count; i++) {
        KvgSequence *sequence = step->entries[i].sequence;
        if (sequence != NULL && !sequence->cache.tainted && kvg_kv_cache_level_unlike(&sequence->cache, NULL) != KVG_OK) {
            sequence->taint_pending = 1; /* a move was torn: this rank's matter until the next step votes on it */
            sequence->cache.tainted = 0;
        }
    }
}

static KvgStatus disagreed(KvgStep *step, const KvVoteOutcome *vote)
{
    KvgGrid  *grid = step->votes->grid;
    KvgStatus status;

    undo_staged(step);
    set_outcome(step, KVG_OUTCOME_DISAGREE, KVG_ELAYOUT);
    step->outcome.rank = vote->rank;
    step->outcome.rank_b = vote->rank_b;
    step->outcome.field = kvg_vote_field_name((KvVoteField)vote->field);
    if (vote->field != KVG_VOTE_FIELD_TARGETS) {
        step->state = KVG_STEP_DECIDED;
        kvg_steps_advance(step->votes);
        return KVG_OK;
    }
    level_entries(step);
    /* Is it this step's targets that differ, or the posted calls before it? Every rank is here, so every rank sends. */
    step->state = KVG_STEP_COMPARING;
    status = kvg_gather_start(grid, KVG_MESSAGE_RUNNING, step->number, "running digest", grid->alive, NULL, &step->running, sizeof step->running,
                              &step->running_gather);
    return status == KVG_OK ? KVG_OK : cannot_compare(step);
}

/* The first rank that passed counts. */
static int passing_rank(const KvgVotes *votes)
{
    for (int rank = 0; rank < votes->grid->ranks; rank++) {
        if (votes->votes[rank]->accepted != 0) {
            return rank;
        }
    }
    KVG_ASSERT(!"the vote publishes only what some rank accepted");
    return 0;
}

KvgStatus kvg_step_counts_fit(const KvgStep *step, const uint16_t *stored, uint32_t count)
{
    uint64_t rows;

    if (count != step->count) {
        return kvg_fail(KVG_EFORMAT, "accepted counts of %u sequences for the %u of step %llu", count, step->count, (unsigned long long)step->number);
    }
    for (uint32_t i = 0; i < count; i++) {
        KVG_TRY(kvg_vote_accepted_unpack(stored[i], step->entries[i].staged, &rows));
    }
    return KVG_OK;
}

/* All agreed, and counts were passed: they are taken from one record, the same on every rank, and so is what is found wrong with them. */
static void publish_passed(KvgStep *step)
{
    int                 rank = passing_rank(step->votes);
    const KvVoteRecord *passed = step->votes->votes[rank];

    if (kvg_step_counts_fit(step, passed->accepted_rows, passed->count) == KVG_OK) {
        kvg_step_publish(step, passed->accepted_rows);
        return;
    }
    undo_staged(step);
    snprintf(step->why, sizeof step->why, "step %llu was rolled back: rank %d's record breaks the protocol: %s", (unsigned long long)step->number,
             rank, kvg_last_error());
    decided(step, KVG_OUTCOME_DISAGREE, KVG_ELAYOUT);
    step->outcome.rank = step->outcome.rank_b = rank;
    step->outcome.field = kvg_vote_field_name(KVG_VOTE_FIELD_ACCEPTED);
}

/* In the place of a rank that a rebuild went on without stands a record of its stage, or any: it says nothing that another has not said. */
static int stands_for(const KvgGrid *grid, int rank)
{
    int tp = (int)grid->tp, from = rank, stage = rank - rank % tp;

    for (int i = 0; !grid->alive[from] && i < tp; i++) {
        from = stage + i;
    }
    return grid->alive[from] ? from : kvg_grid_first(grid);
}

static void gather_votes(KvgVotes *votes, const KvRecordSlot *slot)
{
    for (int rank = 0; rank < votes->grid->ranks; rank++) {
        votes->votes[rank] = slot->record[stands_for(votes->grid, rank)];
    }
}

static KvgStatus count_votes(KvgStep *step, KvRecordSlot *slot)
{
    KvgVotes     *votes = step->votes;
    KvVoteOutcome vote;

    note_latency(step);
    gather_votes(votes, slot);
    kvg_vote_decide(votes->votes, (uint32_t)votes->grid->ranks, votes->grid->tp, &vote);
    vote.rank = (uint16_t)stands_for(votes->grid, vote.rank); /* whose record it is that stands there: not what it says of itself */
    vote.rank_b = (uint16_t)stands_for(votes->grid, vote.rank_b);
    if (vote.kind == KVG_VOTE_PUBLISH) {
        publish_passed(step);
        return KVG_OK;
    }
    kvg_vote_outcome_status(&vote, step->number, votes->votes);
    snprintf(step->why, sizeof step->why, "%s", kvg_last_error());
    if (vote.kind == KVG_VOTE_REFUSED) {
        refused(step, &vote);
        return KVG_OK;
    }
    if (vote.kind == KVG_VOTE_DISAGREE) {
        return disagreed(step, &vote);
    }
    undo_staged(step);
    decided(step, KVG_OUTCOME_UNACCEPTED, KVG_EINVAL);
    return KVG_OK;
}

static KvgStatus decide(KvgStep *step, KvRecordSlot *slot)
{
    KVG_RETURN_RANGED(KVG_RANGE_DECIDE, step->number, count_votes(step, slot));
}

/* ---- comparing the running digests */

static void compare_running(KvgStep *step)
{
    KvGather *gather = &step->running_gather;
    int       first = kvg_grid_first(step->votes->grid);

    for (int rank = first; rank < step->votes->grid->ranks; rank++) {
        if (gather->body[rank] == NULL) {
            continue; /* left out */
        }
        if (gather->bytes[rank] != sizeof(uint64_t) || memcmp(gather->body[rank], gather->body[first], sizeof(uint64_t)) != 0) {
            kvg_grid_fail(step->votes->grid, KVG_ELAYOUT, "the posted calls (open, close, fork, rewind, ...) of rank %d and rank %d went apart "
                          "before step %llu; no rollback mends that: rebuild the grid", first, rank, (unsigned long long)step->number);
            snprintf(step->why, sizeof step->why, "%s", step->votes->grid->why);
            return;
        }
    }
}

static KvgStatus compare_progress(KvgStep *step)
{
    int       done = 0;
    KvgStatus status = kvg_gather_test(&step->running_gather, &done);

    if (status == KVG_OK && !done) {
        return KVG_OK;
    }
    if (status == KVG_OK) {
        compare_running(step);
    }
    kvg_gather_free(&step->running_gather);
    if (status != KVG_OK) {
        return cannot_compare(step);
    }
    step->state = KVG_STEP_DECIDED;
    kvg_steps_advance(step->votes);
    return KVG_OK;
}

/* ---- test and wait */

KvgStatus kvg_step_progress(KvgStep *step, int *done)
{
    KvgVotes *votes = step->votes;

    *done = 0;
    if (step->state == KVG_STEP_POSTED && kvg_step_sent(step)) {
        KvRecordSlot *slot = kvg_records_slot(votes, step->number);
        if (slot->arrived < (uint32_t)votes->grid->voters) {
            kvg_records_take(votes);
        }
        if (slot->arrived == (uint32_t)votes->grid->voters) {
            KVG_TRY(decide(step, slot));
        }
    }
    if (step->state == KVG_STEP_COMPARING) {
        KVG_TRY(compare_progress(step));
    }
    *done = step->state == KVG_STEP_DECIDED;
    return KVG_OK;
}

KvgStatus kvg_step_in_doubt(KvgStep *step, int rank, const char *why)
{
    char who[KVG_WHO_BYTES];

    kvg_grid_say_who(step->votes->grid, rank, who);
    return kvg_grid_fail(step->votes->grid, KVG_EINDOUBT, "step %llu is in doubt: no record has come from rank %d%s, and %s; its rows are neither "
                         "published nor rolled back until kvg_grid_settle", (unsigned long long)step->number, rank, who, why);
}

static KvgStatus check_rank(KvgStep *step, int rank, uint64_t now)
{
    KvgGrid *grid = step->votes->grid;
    uint64_t sign = grid->liveness.ops->last_sign_ns(grid->liveness.self, rank);
    uint64_t since = sign > step->posted_ns ? sign : step->posted_ns;
    char     why[128];

    if (kvg_grid_is_lost(grid, rank) && now > sign + RECORD_GRACE_NS) {
        return kvg_step_in_doubt(step, rank, grid->liveness.ops->why(grid->liveness.self, rank));
    }
    if (grid->stopped_ns[rank] != 0 && step->number > grid->stopped_step[rank] && now > grid->stopped_ns[rank] + RECORD_GRACE_NS) {
        return kvg_step_in_doubt(step, rank, "it has said that it posts no more: it is in doubt itself, settles, or misses a rank that is lost");
    }
    if (now > since + grid->timeout_ns) {
        snprintf(why, sizeof why, "it has been silent for %llu ms (KVGRID_TIMEOUT_MS %u)",
                 (unsigned long long)((now - since) / 1000000u), grid->policy.timeout_ms);
        return kvg_step_in_doubt(step, rank, why);
    }
    if (now > step->posted_ns + KVG_LIVELY_DEADLINES * grid->timeout_ns) {
        return kvg_step_in_doubt(step, rank, "it is alive and has not posted for many deadlines: its program is elsewhere");
    }
    return KVG_OK;
}

/* The wait goes on, or the step is in doubt. */
static KvgStatus check_missing(KvgStep *step)
{
    KvgVotes     *votes = step->votes;
    KvRecordSlot *slot = kvg_records_slot(votes, step->number);
    uint64_t      now = kvg_grid_now(votes->grid);

    if (step->unsent && now > step->posted_ns + votes->grid->timeout_ns) {
        return kvg_step_in_doubt(step, votes->grid->rank, "this rank has found no memory to send it");
    }
    for (int rank = 0; rank < votes->grid->ranks; rank++) {
        if (votes->grid->alive[rank] && !slot->present[rank]) {
            KVG_TRY(check_rank(step, rank, now));
        }
    }
    return KVG_OK;
}

/* One look at the world for a step that could not be decided yet. */
static KvgStatus look_around(KvgStep *step, int *done)
{
    KVG_TRY(kvg_grid_usable(step->votes->grid)); /* a lost rank alone is no reason: its record may have arrived */
    KVG_TRY(kvg_grid_turn(step->votes->grid));
    KVG_TRY(kvg_step_progress(step, done));
    return *done || step->state != KVG_STEP_POSTED ? KVG_OK : check_missing(step);
}

/* In doubt a rank neither publishes nor rolls back, even if the record that was missing comes after all: others may have counted on that. */
static KvgStatus check_decidable(const KvgStep *step)
{
    return step->state == KVG_STEP_POSTED ? kvg_grid_usable(step->votes->grid) : KVG_OK;
}

KvgStatus kvg_step_await(KvgStep *step)
{
    KvgGrid *grid = step->votes->grid;
    int      done = 0;

    KVG_TRY(check_decidable(step));
    KVG_TRY(kvg_step_progress(step, &done));
    for (uint64_t rounds = 0; !done; rounds++) {
        if (rounds % 16 == 0 || step->state == KVG_STEP_COMPARING) {
            KVG_TRY(look_around(step, &done));
        } else {
            KVG_TRY(kvg_step_progress(step, &done));
        }
        if (!done) {
            grid->comm.ops->relax(grid->comm.self, rounds);
        }
    }
    return KVG_OK;
}

static KvgStatus deliver(const KvgStep *step, KvgOutcome *outcome)
{
    if (outcome != NULL) {
        *outcome = step->outcome;
    }
    return step->outcome.status == KVG_OK ? KVG_OK : kvg_fail(step->outcome.status, "%s", step->why);
}

static KvgStatus check_posted(const KvgStep *step)
{
    if (step == NULL || step->state == KVG_STEP_FREE || step->state == KVG_STEP_BEGUN) {
        return kvg_fail(KVG_EINVAL, "the step has not been posted: kvg_step_post it before asking for its outcome");
    }
    return KVG_OK;
}

KvgStatus kvg_step_test(KvgStep *step, int *done, KvgOutcome *outcome)
{
    *done = 0;
    KVG_TRY(check_posted(step));
    KVG_TRY(check_decidable(step));
    KVG_TRY(kvg_step_progress(step, done));
    if (!*done) {
        KVG_TRY(look_around(step, done));
    }
    return *done ? deliver(step, outcome) : KVG_OK;
}

KvgStatus kvg_step_wait(KvgStep *step, KvgOutcome *outcome)
{
    KVG_TRY(check_posted(step));
    KVG_TRY(kvg_step_await(step));
    return deliver(step, outcome);
}

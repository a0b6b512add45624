/* Settle: after a loss or a doubt, the survivors bring each other to one state (S7).
 *
 * A step is published only where every rank's record had arrived, so one survivor that published proves that all ranks were ready: then every
 * survivor publishes, with the same counts. A step that no survivor published is rolled back. Ranks differ by at most 2W steps, which the
 * ring of steps still remembers.
 *
 * What a rank says of itself stays true for the whole epoch: from its first settle on it decides nothing by records any more, so a second attempt,
 * with fewer survivors or after a deadline, hears the same. A rank whose attempt failed while another's succeeded catches up: the
 * other is an epoch ahead, and what it says is the result.
 *
 * A voted change (resize, sleep, wake) is settled alike: who voted for it and cannot know its outcome publishes it if a survivor has, else undoes it.
 *
 * Afterwards everything that counts as agreed is made equal again: rows booked ahead for steps that only some had begun are given back, generations
 * start anew from the epoch, step numbers from the highest begun. What cannot be made equal, posted calls that only some survivors have made,
 * is found by the running digest and refused. */
#include "pp/internal.h"

#include <string.h>

#include "runtime/base/checked.h"

typedef struct SettleHello { /* crosses the wire, followed by `steps` SettleStep with `stored` counts each */
    uint64_t running, begun, decided;
    uint64_t changes; /* voted changes published (resize, sleep, wake) */
    uint64_t changed; /* the running digest as it is if the one in doubt is published, too; 0: none is in doubt */
    uint32_t steps, stored;
} SettleHello;

typedef struct SettleStep {
    uint64_t number;
    uint32_t said;      /* SettleSaid */
    uint32_t count;
} SettleStep;


typedef enum SettleSaid { SETTLE_NOT_PUBLISHED = 0, SETTLE_PUBLISHED = 1 /* with the counts that follow */, SETTLE_TAINTED = 2 /* 1 for each that is */ } SettleSaid;

static size_t step_bytes(uint32_t stored)
{
    return (sizeof(SettleStep) + stored * sizeof(uint16_t) + 7) / 8 * 8;
}

/* ---- phase 1: say what was published */

static void say_step(const KvgStep *step, SettleStep *said)
{
    uint16_t *stored = (uint16_t *)(said + 1);

    said->number = step->number;
    said->count = step->count;
    if (step->state != KVG_STEP_DECIDED) {
        return;
    }
    said->said = step->outcome.kind == KVG_OUTCOME_PUBLISHED ? SETTLE_PUBLISHED :
                 step->outcome.kind == KVG_OUTCOME_TAINTED   ? SETTLE_TAINTED :
                                                               SETTLE_NOT_PUBLISHED;
    for (uint32_t i = 0; i < step->count; i++) {
        const KvStepEntry *entry = &step->entries[i];
        uint32_t           rows = step->accepted[entry->slot];
        if (said->said == SETTLE_PUBLISHED) {
            stored[i] = rows == entry->staged ? KVG_VOTE_ACCEPTED_ALL : (uint16_t)rows;
        } else if (said->said == SETTLE_TAINTED) {
            stored[i] = entry->sequence != NULL && entry->sequence->cache.tainted;
        }
    }
}

static KvgStatus phase_say(KvgSetup *setup)
{
    KvgVotes     *votes = setup->grid->votes;
    SettleHello   empty = { .running = setup->grid->running, .changes = setup->grid->changes };
    uint32_t      stored, count;
    void         *memory = NULL;
    KvgStatus     status;

    if (votes == NULL) {
        return kvg_setup_gather(setup, &empty, sizeof empty);
    }
    stored = votes->max_step_sequences;
    count = (uint32_t)(votes->begun < votes->ring ? votes->begun : votes->ring);
    size_t bytes = sizeof(SettleHello) + count * step_bytes(stored);
    KVG_TRY(kvg_calloc(1, bytes, "settling", &memory));
    *(SettleHello *)memory = (SettleHello){ .running = setup->grid->running, .begun = votes->begun, .decided = votes->decided, .changes = setup->grid->changes,
                                            .changed = kvg_voted_running(setup->grid), .steps = count, .stored = stored };
    for (uint32_t i = 0; i < count; i++) {
        say_step(kvg_step_at(votes, votes->begun - count + 1 + i),
                 (SettleStep *)((uint8_t *)memory + sizeof(SettleHello) + i * step_bytes(stored)));
    }
    status = kvg_setup_gather(setup, memory, bytes);
    kvg_free(memory);
    return status;
}

/* ---- phase 2: everyone has heard everyone */

/* What it says of a step that is undecided here can be done here. */
static KvgStatus check_said(KvgVotes *votes, const SettleStep *said)
{
    const KvgStep *step = kvg_step_at(votes, said->number);

    if (said->said > SETTLE_TAINTED) {
        return kvg_fail(KVG_EFORMAT, "it says %u of step %llu", said->said, (unsigned long long)said->number);
    }
    if (said->said != SETTLE_PUBLISHED || step->number != said->number || step->state == KVG_STEP_DECIDED || step->state == KVG_STEP_COMPARING) {
        return KVG_OK;
    }
    if (step->state == KVG_STEP_BEGUN) {
        return kvg_fail(KVG_EFORMAT, "it has published step %llu, which was never posted here", (unsigned long long)step->number);
    }
    return kvg_step_counts_fit(step, (const uint16_t *)(said + 1), said->count);
}

static KvgStatus check_hello(const KvgSetup *setup, int rank)
{
    const SettleHello *hello = setup->gather.body[rank];
    KvgVotes          *votes = setup->grid->votes;
    uint32_t           stored = votes != NULL ? votes->max_step_sequences : 0;
    uint64_t           ring = votes != NULL ? votes->ring : 0;
    size_t             bytes = setup->gather.bytes[rank];

    if (bytes < sizeof *hello || hello->stored != stored || hello->steps > ring || bytes != sizeof *hello + hello->steps * step_bytes(stored)) {
        return kvg_fail(KVG_ELAYOUT, "settling: rank %d says something that is no account of its steps (%zu bytes)", rank, bytes);
    }
    if (votes != NULL && (hello->decided > hello->begun || kvg_monus_u64(hello->begun, votes->begun) > 2 * ring)) {
        return kvg_fail(KVG_ELAYOUT, "settling: rank %d says that it has begun %llu steps and decided %llu, and rank %d has begun %llu", rank,
                        (unsigned long long)hello->begun, (unsigned long long)hello->decided, setup->grid->rank, (unsigned long long)votes->begun);
    }
    for (uint32_t i = 0; i < hello->steps; i++) {
        if (check_said(votes, (const SettleStep *)((const uint8_t *)(hello + 1) + i * step_bytes(stored))) != KVG_OK) {
            return kvg_fail(KVG_ELAYOUT, "settling: rank %d says what cannot be: %s", rank, kvg_last_error());
        }
    }
    return KVG_OK;
}

static KvgStatus check_hellos(const KvgSetup *setup)
{
    for (int rank = 0; rank < setup->grid->ranks; rank++) {
        if (setup->member[rank]) {
            KVG_TRY(check_hello(setup, rank));
        }
    }
    return KVG_OK;
}

/* What any survivor published or tainted in this step, or NULL. */
static const SettleStep *said_by_any(const KvgSetup *setup, const uint8_t *heard, uint64_t number)
{
    for (int rank = 0; rank < setup->grid->ranks; rank++) {
        const SettleHello *hello = setup->gather.body[rank];
        for (uint32_t i = 0; heard[rank] && i < hello->steps; i++) {
            const SettleStep *said = (const SettleStep *)((const uint8_t *)(hello + 1) + i * step_bytes(hello->stored));
            if (said->number == number && said->said != SETTLE_NOT_PUBLISHED) {
                return said;
            }
        }
    }
    return NULL;
}

static void settle_step(const KvgSetup *setup, const uint8_t *heard, KvgStep *step)
{
    const SettleStep *said = said_by_any(setup, heard, step->number);
    const uint16_t   *stored = said != NULL && said->count == step->count ? (const uint16_t *)(said + 1) : NULL;

    if (step->state == KVG_STEP_COMPARING) { /* rolled back already; only the comparison was missing */
        kvg_gather_free(&step->running_gather);
        step->state = KVG_STEP_DECIDED;
    } else if (stored != NULL && said->said == SETTLE_PUBLISHED) {
        kvg_step_publish(step, stored);
    } else {
        kvg_step_roll_back(step, stored);
    }
}

/* ---- afterwards */

static void rebook(KvgSequence *sequence, uint32_t epoch)
{
    sequence->generation = (uint64_t)epoch << 32;
    sequence->last_step = 0;
    sequence->named_in = 0;
    if (!sequence->cache.tainted) {
        if (kvg_kv_cache_level_unlike(&sequence->cache, NULL) != KVG_OK) { /* a move was torn */
            sequence->taint_pending = 1; /* this rank's matter until the next step votes on it */
            sequence->cache.tainted = 0;
        }
        kvg_kv_cache_release_behind(&sequence->cache);
    }
}

/* Most voted changes that anyone heard has published: a rank that has one less voted for the last one, and publishes it now. */
static uint64_t most_changes(const KvgSetup *setup, const uint8_t *heard)
{
    uint64_t most = setup->grid->changes;

    for (int rank = 0; rank < setup->grid->ranks; rank++) {
        if (heard[rank]) {
            const SettleHello *hello = setup->gather.body[rank];
            most = hello->changes > most ? hello->changes : most;
        }
    }
    return most;
}

static uint64_t settled_running(const SettleHello *hello, uint64_t changes)
{
    return hello->changes < changes && hello->changed != 0 ? hello->changed : hello->running;
}

/* The first survivor whose posted calls differ from this rank's; -1: none. */
static int first_with_other_calls(const KvgSetup *setup, const uint8_t *heard)
{
    uint64_t changes = most_changes(setup, heard);
    uint64_t running = settled_running(setup->gather.body[setup->grid->rank], changes);

    for (int rank = 0; rank < setup->grid->ranks; rank++) {
        if (heard[rank] && settled_running(setup->gather.body[rank], changes) != running) {
            return rank;
        }
    }
    return -1;
}

static uint64_t highest_begun(const KvgSetup *setup, const uint8_t *heard)
{
    uint64_t most = 0;

    for (int rank = 0; rank < setup->grid->ranks; rank++) {
        if (heard[rank]) {
            const SettleHello *hello = setup->gather.body[rank];
            most = hello->begun > most ? hello->begun : most;
        }
    }
    return most;
}

static void settle_steps(KvgSetup *setup, const uint8_t *heard, KvgVotes *votes)
{
    uint64_t most = highest_begun(setup, heard);

    most = most > votes->begun ? most : votes->begun;

    for (uint64_t number = votes->decided + 1; number <= votes->begun; number++) {
        KvgStep *step = kvg_step_at(votes, number);
        if (step->state != KVG_STEP_DECIDED) {
            settle_step(setup, heard, step);
        }
    }
    votes->begun = votes->decided = votes->released = most;
}

static void rebook_all(KvgPlacement *placement, uint32_t epoch)
{
    for (uint32_t i = 0; i < placement->options.max_sequences; i++) {
        if (placement->sequences[i].open) {
            rebook(&placement->sequences[i], epoch);
        }
    }
}

static void name_state(KvgGrid *grid, const KvgSetup *setup, int differs)
{
    int left_out = -1;

    for (int rank = 0; rank < grid->ranks; rank++) {
        uint8_t was = grid->alive[rank];
        grid->alive[rank] &= setup->member[rank];
        grid->voters -= grid->alive[rank] != was;
        left_out = grid->alive[rank] || grid->empty[rank] ? left_out : rank;
    }
    grid->state = KVG_OK;
    if (differs >= 0) {
        kvg_grid_settled(grid, KVG_ELAYOUT, "settled, but rank %d and rank %d have made different posted calls (one had gone further in its program): "
                         "close the sequences and rebuild the grid", grid->rank, differs);
    } else if (left_out >= 0) {
        kvg_grid_settled(grid, KVG_EPEER, "settled without rank %d: what is committed can be read and closed; rebuild the grid to go on", left_out);
    }
}

/* One that was only frozen hears of it when it wakes. Best effort: nobody waits for it. */
static void tell_left_out(KvgGrid *grid, const uint8_t *member)
{
    KvMessageHeader header = { KVG_MESSAGE_MAGIC, grid->epoch, 0, KVG_MESSAGE_OUT, 0 };
    KvComm         *comm = grid->comm_before != NULL ? grid->comm_before : &grid->comm;

    for (int rank = 0; rank < grid->ranks; rank++) {
        if (!member[rank]) {
            comm->ops->send(comm->self, rank, &header, sizeof header);
        }
    }
}

/* Takes over what the ranks in `heard` have said; the grid is in `epoch` from then on. */
static void apply(KvgSetup *setup, const uint8_t *heard, uint32_t epoch)
{
    KvgGrid *grid = setup->grid;

    kvg_voted_resolve(grid, most_changes(setup, heard) > grid->changes);
    if (grid->votes != NULL) {
        settle_steps(setup, heard, grid->votes);
    }
    for (KvgPlacement *placement = grid->placements; placement != NULL; placement = placement->next) {
        rebook_all(placement, epoch);
    }
    while (grid->epoch < epoch) {
        grid->epoch++;
        grid->running = kvg_mix64(grid->running ^ grid->epoch);
    }
    grid->setup_tag = 0;
    grid->settling = 0;
    grid->stop_told = 0;
    memset(grid->stopped_ns, 0, (size_t)grid->ranks * sizeof *grid->stopped_ns);
    if (grid->votes != NULL) {
        kvg_records_forget(grid->votes);
    }
}

/* A survivor has settled this epoch without us: its account is the result, ours is repeated in its epoch. */
static KvgStatus phase_catch_up(KvgSetup *setup)
{
    KvgGrid *grid = setup->grid;
    int      ahead = setup->gather.ahead;
    uint32_t epoch = 0;
    uint8_t *heard = NULL;
    KvgStatus status;

    KVG_TRY(KVG_NEW((size_t)grid->ranks, "settling", &heard));
    KVG_TRY_GOTO(kvg_gather_hear(&setup->gather, ahead, &epoch), out);
    KVG_TRY_GOTO(check_hello(setup, ahead), out);
    heard[ahead] = 1;
    apply(setup, heard, epoch);
    grid->settling = 1;
    status = phase_say(setup);
out:
    kvg_free(heard);
    return status;
}

static KvgStatus phase_apply(KvgSetup *setup, int *done)
{
    int differs;

    KVG_TRY(check_hellos(setup));
    differs = first_with_other_calls(setup, setup->member);
    apply(setup, setup->member, setup->grid->epoch + 1);
    name_state(setup->grid, setup, differs);
    tell_left_out(setup->grid, setup->member);
    *done = 1;
    return KVG_OK;
}

static KvgStatus run(KvgSetup *setup, int *done)
{
    if (setup->phase == 0) {
        return phase_say(setup);
    }
    return setup->gather.ahead >= 0 ? phase_catch_up(setup) : phase_apply(setup, done);
}

/* ---- the calls */

static KvgStatus mark_members(const KvgGrid *grid, const int *survivors, int count, uint8_t *member, uint64_t *tag)
{
    for (int i = 0; i < count; i++) {
        int rank = survivors[i];
        if (rank < 0 || rank >= grid->ranks || member[rank] || !grid->alive[rank]) {
            return kvg_fail(KVG_EINVAL, "survivors: %d is out of range, named twice, or was left out by an earlier settle", rank);
        }
        member[rank] = 1;
        *tag = kvg_mix64(*tag ^ (uint64_t)(rank + 1) * 0x9e3779b97f4a7c15u); /* attempts with other survivors do not mix */
    }
    if (!member[grid->rank]) {
        return kvg_fail(KVG_EINVAL, "survivors must name this rank (%d) too", grid->rank);
    }
    return KVG_OK;
}

/* Steps whose records are all here are decided by them, not by the survivors. */
static void decide_complete(KvgVotes *votes)
{
    for (uint64_t number = votes->decided + 1; number <= votes->begun; number++) {
        int done;
        kvg_records_take(votes);
        if (kvg_step_at(votes, number)->state == KVG_STEP_POSTED) {
            kvg_step_progress(kvg_step_at(votes, number), &done);
        }
    }
}

KvgStatus kvg_grid_settle_start(KvgGrid *grid, const int *survivors, int survivor_count, KvgSetup **setup_p)
{
    void      *member = NULL;
    KvgSetup  *setup = NULL;
    KvgStatus  status;
    uint64_t   tag = 0;

    if (grid == NULL || survivors == NULL || setup_p == NULL || survivor_count < 1 || survivor_count > grid->ranks) {
        return kvg_fail(KVG_EINVAL, "kvg_grid_settle needs a grid and a list of 1 to all of its ranks");
    }
    KVG_TRY(kvg_grid_no_run(grid)); /* what its device has published is not known yet */
    KVG_TRY(kvg_calloc((size_t)grid->ranks, 1, "settling", &member));
    KVG_TRY_GOTO(mark_members(grid, survivors, survivor_count, member, &tag), err_free);
    KVG_TRY_GOTO(kvg_setup_new(grid, "kvg_grid_settle", 1, &setup), err_free);
    setup->member = member;
    setup->kind = KVG_MESSAGE_SETTLE;
    setup->tag = tag;
    setup->run = run;
    if (grid->votes != NULL && !grid->settling) {
        decide_complete(grid->votes);
    }
    grid->settling = 1;
    if (grid->state == KVG_OK) {
        kvg_grid_fail(grid, KVG_EPEER, "a settle has begun: until it ends nothing but settling and closing is done");
    }
    *setup_p = setup;
    return KVG_OK;
err_free:
    kvg_free(member);
    return status;
}

KvgStatus kvg_grid_settle(KvgGrid *grid, const int *survivors, int survivor_count)
{
    KvgSetup *setup = NULL;
    return kvg_setup_finish(kvg_grid_settle_start(grid, survivors, survivor_count, &setup), &setup);
}

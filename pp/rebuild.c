/* Rebuild: settle, say, prepare, copy, vote, publish. See rebuild_impl.h for who does what.
 *
 *   SETTLE   the survivors settle. With newcomers over the connections that are to be: those from before may have parted in an attempt that some left earlier
 *            than others. They are kept until all have settled, and go back to where settling fails
 *   SAY      every rank says what it holds
 *   PREPARE  all compare and plan; newcomers make what they are told; a vote
 *   COPY     rows go to newcomers, piece by piece
 *   CAST     the vote that counts: from here on others may publish. A rank that cannot hear it is in doubt, as after any voted change: another
 *            settle (or rebuild) tells it whether one has published
 *   PUBLISH  cannot fail */
#include "pp/rebuild_impl.h"

#include <stdio.h>
#include <string.h>

/* ---- this rank's answer */

static RebuildState *state_of(const KvgSetup *setup)
{
    return setup->state;
}

static KvgStatus prepare(KvgSetup *setup)
{
    RebuildState *state = setup->state;

    KVG_TRY(kvg_rebuild_heard(setup));
    if (state->joins) {
        KVG_TRY(kvg_rebuild_make(setup));
    }
    KVG_TRY(kvg_rebuild_plan(setup));
    if (state->joins) {
        KVG_TRY(kvg_rebuild_open(setup));
    }
    if (state->target != NULL) {
        KVG_TRY(kvg_rebuild_report(setup, &state->report));
    }
    KVG_TRY(kvg_rebuild_check_shards(setup));
    return kvg_rebuild_carry_prepare(setup);
}

static void give_report(RebuildState *state)
{
    if (state->target != NULL) {
        *state->target = state->report;
        state->report = NULL;
        state->target = NULL;
    }
}

/* A refusal of this rank's own is its own sentence; the others name it. */
static KvgStatus count(const KvgSetup *setup)
{
    const Voted *voted = setup->state;

    if (voted->answered && voted->local != KVG_OK) {
        return kvg_fail(voted->local, "%s", voted->local_why);
    }
    return kvg_voted_count(setup, "the grid was not rebuilt");
}

/* ---- connections */

void kvg_rebuild_close(const KvComm *comm, const KvLiveness *liveness)
{
    if (comm != NULL && comm->ops != NULL) {
        comm->ops->close(comm->self);
    }
    if (liveness != NULL && liveness->ops != NULL) {
        liveness->ops->close(liveness->self);
    }
}

/* What follows goes over the connections of the grid that is to be; settling too. */
static void cross(KvgSetup *setup)
{
    RebuildState *state = setup->state;
    KvgGrid      *grid = setup->grid;

    memcpy(state->lost_told, grid->lost_told, (size_t)grid->ranks);
    kvg_grid_swap_comm(grid, &state->comm, &state->liveness);
    grid->comm_before = &state->comm;
    if (grid->votes != NULL) {
        KvgStatus status = grid->comm.ops->records_open(grid->comm.self, grid->votes->record_bytes);
        if (status != KVG_OK) {
            kvg_voted_answer(setup, status); /* told to the others */
        }
    }
}

/* What the grid had is its own again: settling failed. Who was told of as lost there has been told of. */
static void cross_back(KvgSetup *setup)
{
    RebuildState *state = setup->state;
    KvgGrid      *grid = setup->grid;

    kvg_grid_swap_comm(grid, &state->comm, &state->liveness);
    grid->comm_before = NULL;
    memcpy(grid->lost_told, state->lost_told, (size_t)grid->ranks);
    for (int rank = 0; rank < grid->ranks; rank++) {
        grid->lost_count += grid->lost_told[rank] != 0;
    }
}

/* The survivors are of one state. */
static KvgStatus settled(KvgSetup *setup)
{
    RebuildState *state = setup->state;
    KvgGrid      *grid = setup->grid;
    int           joined = grid->comm_before != NULL;

    for (int rank = 0; rank < grid->ranks; rank++) {
        setup->member[rank] = joined || state->survivor[rank];
    }
    state->stage = REBUILD_SAY;
    grid->rebuilding = 1;
    if (!joined) {
        setup->kind = KVG_MESSAGE_SETUP;
        setup->epoch = grid->epoch;
        setup->tag = ++grid->setup_tag << 32; /* counted from the settle on, by all survivors alike */
        return KVG_OK;
    }
    setup->tag = 0;
    grid->comm_before = NULL;
    kvg_rebuild_close(&state->comm, &state->liveness);
    state->comm.ops = NULL;
    state->liveness.ops = NULL;
    return KVG_OK;
}

/* ---- stages: each begins what the next waits for. Without memory for it a stage runs again, up to the deadline. */

static KvgStatus try_again(const KvgSetup *setup, KvgStatus status)
{
    Voted   *voted = setup->state;
    uint64_t now = kvg_grid_now(setup->grid);

    if (status == KVG_OK || voted->answered_ns == 0) {
        voted->answered_ns = now; /* each stage, and each piece, has a deadline of its own: rows may have been on their way for longer */
    }
    return status == KVG_ENOMEM && now - voted->answered_ns < setup->grid->timeout_ns ? KVG_OK : status;
}

static KvgStatus stage_settle(KvgSetup *setup)
{
    RebuildState *state = setup->state;
    int           done = 0;
    KvgStatus     status = kvg_setup_test(state->settle, &done);

    if (!done || status != KVG_OK) {
        return status;
    }
    kvg_setup_free(state->settle);
    state->settle = NULL;
    return settled(setup);
}

static KvgStatus stage_say(KvgSetup *setup)
{
    Voted    *voted = setup->state;
    KvgStatus status = kvg_rebuild_say(setup, voted->answered ? voted->local : KVG_OK);

    if (setup->has_next) {
        state_of(setup)->stage = REBUILD_PREPARE;
    }
    return try_again(setup, status);
}

/* Newcomers whose outcome is not known are lost to the others, and give up: nothing of theirs is in doubt. */
static KvgStatus cast(KvgSetup *setup)
{
    RebuildState *state = setup->state;
    KvgStatus     status = kvg_voted_cast(setup);

    if (!setup->has_next) {
        return status;
    }
    state->stage = REBUILD_PUBLISH;
    if (state->joins) {
        setup->grid->cast = NULL;
    } else if (setup->grid->cast == setup) {
        memcpy(setup->grid->alive, setup->member, (size_t)setup->grid->ranks); /* a settle may name newcomers: others may have published */
    }
    return status;
}

static KvgStatus stage_prepare(KvgSetup *setup)
{
    RebuildState *state = setup->state;
    uint64_t      vote;

    if (!state->prepared) {
        KvgStatus local = prepare(setup);
        state->prepared = 1;
        if (!state->voted.answered || state->voted.local == KVG_OK) {
            kvg_voted_answer(setup, local);
        }
    }
    vote = (uint64_t)state->voted.local;
    if (state->voted.local == KVG_OK && !kvg_rebuild_carry_left(setup)) {
        return cast(setup);
    }
    KvgStatus status = kvg_setup_gather(setup, &vote, sizeof vote);
    if (setup->has_next) {
        state->stage = REBUILD_COPY;
    }
    return try_again(setup, status);
}

static KvgStatus stage_copy(KvgSetup *setup)
{
    RebuildState *state = setup->state;

    if (!state->counted) {
        KVG_TRY(count(setup));
        state->counted = 1;
    }
    if (kvg_rebuild_carry_left(setup)) {
        KvgStatus status = kvg_rebuild_carry(setup);
        if (status != KVG_OK || setup->has_next || kvg_rebuild_carry_left(setup)) {
            return try_again(setup, status);
        }
    }
    if (state->copied != KVG_OK && state->voted.local == KVG_OK) {
        kvg_fail(state->copied, "%s", state->copied_why);
        kvg_voted_answer(setup, state->copied);
    }
    return cast(setup);
}

static KvgStatus run(KvgSetup *setup, int *done)
{
    switch (state_of(setup)->stage) {
    case REBUILD_SETTLE: return stage_settle(setup);
    case REBUILD_SAY: return stage_say(setup);
    case REBUILD_PREPARE: return stage_prepare(setup);
    case REBUILD_COPY: return stage_copy(setup);
    default:
        KVG_TRY(count(setup));
        return kvg_voted_publish(setup, "the grid was not rebuilt", done);
    }
}

/* ---- the end */

static void posted(KvgSetup *setup)
{
    setup->grid->running = state_of(setup)->running_after;
}

static void publish(KvgSetup *setup)
{
    RebuildState *state = setup->state;
    KvgGrid      *grid = setup->grid;

    kvg_rebuild_carry_drop(setup);
    if (state->joins) {
        kvg_rebuild_deliver(setup);
    } else {
        kvg_rebuild_apply(setup);
    }
    for (int rank = 0; rank < grid->ranks; rank++) {
        grid->alive[rank] = setup->member[rank];
        grid->empty[rank] = !setup->member[rank];
    }
    grid->voters = state->survivors + state->newcomers;
    grid->rebuilding = 0;
    grid->state = KVG_OK;
    grid->why[0] = '\0';
    grid->stop_told = 0;
    memset(&grid->board, 0, sizeof grid->board);
    grid->board_control = NULL;
    if (setup->kind == KVG_MESSAGE_REBUILD) {
        grid->setup_tag = 0; /* newcomers begin to count */
    }
    if (!setup->done) { /* else it was in doubt, and its caller has gone on */
        give_report(state);
    }
}

static void undo(KvgSetup *setup)
{
    RebuildState *state = setup->state;
    KvgGrid      *grid = setup->grid;

    kvg_rebuild_carry_drop(setup); /* while the sequences are there that were on their way */
    if (state->joins) {
        kvg_rebuild_unmake(setup);
        return;
    }
    grid->rebuilding = 0;
    if (grid->comm_before == &state->comm) { /* not another's, which settles while this one was in doubt */
        cross_back(setup);
    }
    for (int rank = 0; rank < grid->ranks; rank++) {
        grid->alive[rank] &= state->survivor[rank];
    }
    if (setup->result == KVG_EGEOM) {
        give_report(state);
    }
}

static void drop(KvgSetup *setup)
{
    RebuildState *state = setup->state;

    kvg_rebuild_close(&state->comm, &state->liveness); /* where the survivors did not settle */
    kvg_setup_free(state->settle);
    for (int rank = 0; state->said != NULL && rank < setup->grid->ranks; rank++) {
        kvg_free(state->said[rank]);
    }
    kvg_free(state->said);
    kvg_free(state->said_bytes);
    kvg_free(state->survivor);
    kvg_free(state->lost_told);
    kvg_free(state->entries);
    kvg_rebuild_report_free(state->report);
    if (state->joins) {
        kvg_free(state->made);
        if (!state->delivered) {
            kvg_grid_destroy(setup->grid);
        }
    }
}

/* ---- starting */

static KvgStatus make_arrays(KvgGrid *grid, KvgSetup *setup)
{
    RebuildState *state = setup->state;
    size_t        ranks = (size_t)grid->ranks;

    KVG_TRY(KVG_NEW(ranks, "rebuilding", &setup->member));
    KVG_TRY(KVG_NEW(ranks, "rebuilding", &state->survivor));
    KVG_TRY(KVG_NEW(ranks, "rebuilding", &state->lost_told));
    KVG_TRY(KVG_NEW(ranks, "rebuilding", &state->said));
    KVG_TRY(KVG_NEW(ranks, "rebuilding", &state->said_bytes));
    return KVG_OK;
}

static void free_unstarted(KvgSetup *setup)
{
    RebuildState *state = setup->state;

    kvg_setup_free(state->settle);
    kvg_free(state->survivor);
    kvg_free(state->lost_told);
    kvg_free(state->said);
    kvg_free(state->said_bytes);
    kvg_free(setup->member);
    kvg_free(setup->state);
    kvg_free(setup);
}

KvgStatus kvg_rebuild_setup(KvgGrid *grid, const char *what, KvgSetup **setup_p)
{
    KvgSetup *setup = NULL;
    KvgStatus status;

    KVG_TRY(kvg_setup_new(grid, what, sizeof(RebuildState), &setup));
    status = make_arrays(grid, setup);
    if (status != KVG_OK) {
        free_unstarted(setup);
        return status;
    }
    setup->kind = KVG_MESSAGE_REBUILD;
    setup->run = run;
    setup->undo = undo;
    setup->posted = posted;
    setup->publish = publish;
    setup->drop = drop;
    *setup_p = setup;
    return KVG_OK;
}

static KvgStatus mark_survivors(RebuildState *state, int ranks, const int *survivors, int count)
{
    for (int i = 0; i < count; i++) {
        if (survivors[i] < 0 || survivors[i] >= ranks || state->survivor[survivors[i]]) {
            return kvg_fail(KVG_EINVAL, "survivors: %d is out of range or named twice", survivors[i]);
        }
        state->survivor[survivors[i]] = 1;
    }
    state->survivors = count;
    for (int rank = 0; rank < ranks; rank++) {
        state->survivors_digest += kvg_mix_term((uint64_t)rank, state->survivor[rank], 0, 0);
    }
    return KVG_OK;
}

static KvgStatus check_call(const KvgGrid *grid, const int *survivors, int count, const KvgRebuildOptions *given, KvgRebuildOptions *options)
{
    static const KvgRebuildOptions defaults = KVG_REBUILD_OPTIONS_INIT;

    if (grid == NULL || survivors == NULL || count < 1 || count > grid->ranks) {
        return kvg_fail(KVG_EINVAL, "kvg_grid_rebuild needs a grid and a list of 1 to all of its ranks");
    }
    KVG_TRY(KVG_SIZED_IN(KvgRebuildOptions, given, defaults, *options));
    return kvg_grid_no_run(grid);
}

/* A survivor's operation, which begins to settle. */
static KvgStatus start(KvgGrid *grid, const int *survivors, int count, KvgRebuildReport **report, KvgSetup **setup_p)
{
    KvgSetup *setup = NULL;
    KvgStatus status;

    KVG_TRY(kvg_rebuild_setup(grid, "kvg_grid_rebuild", &setup));
    state_of(setup)->target = report;
    status = mark_survivors(setup->state, grid->ranks, survivors, count);
    if (status == KVG_OK) {
        status = kvg_grid_settle_start(grid, survivors, count, &state_of(setup)->settle);
    }
    if (status != KVG_OK) {
        free_unstarted(setup);
        return status;
    }
    *setup_p = setup;
    return KVG_OK;
}

KvgStatus kvg_grid_rebuild_start(KvgGrid *grid, const int *survivors, int survivor_count, const KvgRebuildOptions *given,
                                 KvgRebuildReport **report, KvgSetup **setup_p)
{
    KvgRebuildOptions own, *options = &own;
    KvgSetup     *setup = NULL;
    RebuildState *state;

    KVG_TRY(check_call(grid, survivors, survivor_count, given, options));
    if (setup_p == NULL || (options->comm == NULL) != (options->liveness == NULL)) {
        return kvg_fail(KVG_EINVAL, "kvg_grid_rebuild_start needs a place for the operation, and both a comm and a liveness where ranks join, or neither");
    }
    KVG_TRY(start(grid, survivors, survivor_count, report, &setup));
    state = setup->state;
    if (options->comm != NULL) {
        state->comm = *options->comm;
        state->liveness = *options->liveness;
        state->newcomers = grid->ranks - survivor_count;
        cross(setup);
    }
    *setup_p = setup;
    return KVG_OK;
}

/* ---- with a bootstrap, which waits */

typedef struct Knock { /* crosses the wire */
    uint64_t status;
} Knock;

/* Before anybody connects: who could not even come so far says so, and all leave together. */
KvgStatus kvg_rebuild_knock(const KvgBootstrap *bootstrap, KvgStatus local, const KvgPolicy *policy)
{
    char      why[384];
    Knock     mine = { (uint64_t)local };
    void     *memory = NULL;
    KvgStatus status;

    snprintf(why, sizeof why, "%s", local != KVG_OK ? kvg_last_error() : "");
    KVG_TRY(kvg_calloc((size_t)bootstrap->ranks, sizeof mine, "rebuilding", &memory));
    status = bootstrap->allgather(bootstrap->user, &mine, memory, sizeof mine, policy != NULL ? policy->timeout_ms : 30000);
    for (int rank = 0; status == KVG_OK && rank < bootstrap->ranks; rank++) {
        KvgStatus its = (KvgStatus)((const Knock *)memory)[rank].status;
        if (its != KVG_OK && local == KVG_OK) {
            status = kvg_fail(KVG_EREFUSED, "the grid was not rebuilt: rank %d answers %s; its own message says why", rank, kvg_status_name(its));
        }
    }
    kvg_free(memory);
    return local != KVG_OK ? kvg_fail(local, "%s", why) : status;
}

static KvgStatus check_bootstrap(const KvgGrid *grid, const KvgBootstrap *bootstrap)
{
    if (bootstrap->ranks != grid->ranks) {
        return kvg_fail(KVG_ENOTSUP, "the bootstrap has %d ranks and the grid %u x %u = %d: a rebuild keeps the shape. Start new processes for the lost places; "
                        "or rebuild with no bootstrap, which reports what is lost; or destroy the grid and make one over the survivors", bootstrap->ranks,
                        grid->tp, grid->pp, grid->ranks);
    }
    if (bootstrap->rank != grid->rank || bootstrap->allgather == NULL) {
        return kvg_fail(KVG_EINVAL, "rank %d is rank %d of the bootstrap: survivors keep their places", grid->rank, bootstrap->rank);
    }
    return KVG_OK;
}

static KvgStatus rebuild_joined(KvgGrid *grid, const KvgBootstrap *bootstrap, const int *survivors, int count, const KvgRebuildOptions *options,
                                KvgRebuildReport **report)
{
    KvgSetup     *setup = NULL;
    RebuildState *state;
    KvgStatus     status = start(grid, survivors, count, report, &setup);

    status = kvg_rebuild_knock(bootstrap, status, &grid->policy);
    if (status == KVG_OK) {
        state = setup->state;
        status = kvg_grid_connect(grid, bootstrap, options->comm, options->liveness, &state->comm, &state->liveness);
    }
    if (status != KVG_OK) {
        char why[384];
        snprintf(why, sizeof why, "%s", kvg_last_error());
        if (setup != NULL) {
            free_unstarted(setup); /* gives up the settle that had begun, which has a sentence of its own */
        }
        if (status != KVG_EINVAL) {
            kvg_rebuild_close(options->comm, options->liveness);
        }
        return kvg_fail(status, "%s", why);
    }
    state->newcomers = grid->ranks - count;
    cross(setup);
    return kvg_setup_wait(setup);
}

KvgStatus kvg_grid_rebuild(KvgGrid *grid, const KvgBootstrap *given_bootstrap, const int *survivors, int survivor_count,
                           const KvgRebuildOptions *given, KvgRebuildReport **report)
{
    static const KvgBootstrap alone = KVG_BOOTSTRAP_INIT;
    KvgRebuildOptions         own, *options = &own;
    KvgBootstrap              bootstrap;
    KvgSetup                 *setup = NULL;

    KVG_TRY(check_call(grid, survivors, survivor_count, given, options));
    if (given_bootstrap == NULL) {
        return kvg_setup_finish(kvg_grid_rebuild_start(grid, survivors, survivor_count, options, report, &setup), &setup);
    }
    KVG_TRY(KVG_SIZED_IN(KvgBootstrap, given_bootstrap, alone, bootstrap));
    KVG_TRY(check_bootstrap(grid, &bootstrap));
    return rebuild_joined(grid, &bootstrap, survivors, survivor_count, options, report);
}

/* Grid: made by a handshake, kept going by turns: receive, look at liveness, remember who is lost. */
#include "pp/handshake.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <kvgrid/mesh.h>
#include <kvgrid/shm.h>

#include "runtime/comm/shm_bootstrap.h"

/* Liveness is looked at no more often than this; a turn without it costs one look into the transport. */
#define LIVENESS_PERIOD_NS (200u * 1000u)
/* Undecided steps; twice as many are remembered, each with a record of every rank. */
#define IN_FLIGHT_MOST     (1u << 20)

/* ---- making */

static KvgStatus check_place(int rank, int ranks)
{
    if (ranks < 1 || rank < 0 || rank >= ranks || ranks > UINT16_MAX) {
        return kvg_fail(KVG_EINVAL, "rank %d of %d is no place in a grid of 1 to %d ranks", rank, ranks, UINT16_MAX);
    }
    return KVG_OK;
}

KvgStatus kvg_grid_take_options(const KvgGridOptions *given, KvgGridOptions *options)
{
    static const KvgGridOptions defaults = KVG_GRID_OPTIONS_INIT;

    return KVG_SIZED_IN(KvgGridOptions, given, defaults, *options);
}

static KvgStatus check_shape(const KvgGridOptions *options, int rank, int ranks)
{
    uint64_t tp = options->tp > 0 ? options->tp : 1, pp = options->pp > 0 ? options->pp : 1;

    KVG_TRY(check_place(rank, ranks));
    if (tp * pp != (uint64_t)ranks) {
        return kvg_fail(KVG_EINVAL, "a grid of tp %llu x pp %llu has %llu ranks, but %d were started; start that many or change tp and pp",
                        (unsigned long long)tp, (unsigned long long)pp, (unsigned long long)(tp * pp), ranks);
    }
    if (options->max_in_flight > IN_FLIGHT_MOST) {
        return kvg_fail(KVG_EINVAL, "max_in_flight %u: at most %u steps are undecided at once; 0 takes 2*pp", options->max_in_flight, IN_FLIGHT_MOST);
    }
    return KVG_OK;
}

static KvgStatus fill(KvgGrid *grid, const KvgGridOptions *options, int rank, int ranks)
{
    const KvgPolicy *policy = options->policy;
    KvgPolicy        defaults;
    void            *alive = NULL;

    grid->rank = rank;
    grid->ranks = ranks;
    grid->tp = options->tp > 0 ? options->tp : 1;
    grid->pp = options->pp > 0 ? options->pp : 1;
    grid->epoch = 1;
    grid->window = options->max_in_flight > 0 ? options->max_in_flight : 2 * grid->pp;
    grid->on_lost = options->on_lost;
    grid->user = options->user;
    grid->inbox_tail = &grid->inbox;
    if (policy == NULL) {
        KVG_TRY(kvg_policy_process(&policy));
    }
    kvg_policy_default(&defaults);
    KVG_TRY(KVG_SIZED_IN(KvgPolicy, policy, defaults, grid->policy));
    grid->policy.interface[sizeof grid->policy.interface - 1] = '\0'; /* one without an end is none that a host has, and the mesh says so */
    grid->timeout_ns = (uint64_t)grid->policy.timeout_ms * 1000000u;
    KVG_TRY(KVG_NEW((size_t)ranks, "a grid", &grid->lost_told));
    KVG_TRY(kvg_calloc((size_t)ranks, 1, "a grid", &alive));
    grid->alive = memset(alive, 1, (size_t)ranks);
    grid->voters = ranks;
    KVG_TRY(KVG_NEW((size_t)ranks, "a grid", &grid->empty));
    KVG_TRY(KVG_NEW((size_t)ranks, "a grid", &grid->stopped_ns));
    KVG_TRY(KVG_NEW((size_t)ranks, "a grid", &grid->stopped_step));
    return KVG_OK;
}

KvgStatus kvg_grid_connect(const KvgGrid *grid, const KvgBootstrap *bootstrap, const KvComm *records, const KvLiveness *alive, KvComm *comm,
                           KvLiveness *liveness)
{
    KvMeshOptions    mesh = KVG_MESH_OPTIONS_INIT;
    KvShmCommOptions shm = KVG_SHM_COMM_OPTIONS_INIT;

    if (records != NULL && alive != NULL) {
        *comm = *records;
        *liveness = *alive;
        return KVG_OK;
    }
    if (grid->ranks == 1) {
        KVG_TRY(kvg_comm_self(comm, liveness));
    } else if (kvg_shm_is(bootstrap)) {
        shm.timeout_ms = grid->policy.timeout_ms;
        KVG_TRY(kvg_comm_shm_create(bootstrap, &shm, comm, liveness));
    } else {
        mesh.timeout_ms = grid->policy.timeout_ms;
        mesh.heartbeat_ms = grid->policy.peer_ms / 4 > 0 ? grid->policy.peer_ms / 4 : 1;
        mesh.interface = grid->policy.interface[0] != '\0' ? grid->policy.interface : NULL;
        KVG_TRY(kvg_mesh_create(bootstrap, &mesh, comm, liveness));
    }
    if (records != NULL) {
        comm->ops->close(comm->self); /* records go another way; its liveness stays */
        *comm = *records;
    }
    if (alive != NULL) {
        liveness->ops->close(liveness->self);
        *liveness = *alive;
    }
    return KVG_OK;
}

static void forget_messages(KvgGrid *grid)
{
    while (grid->inbox != NULL) {
        KvMessage *message = grid->inbox;
        grid->inbox = message->next;
        kvg_free(message);
    }
    grid->inbox_tail = &grid->inbox;
    grid->unkept = NULL;
}

void kvg_grid_swap_comm(KvgGrid *grid, KvComm *comm, KvLiveness *liveness)
{
    KvComm     had = grid->comm;
    KvLiveness had_liveness = grid->liveness;

    forget_messages(grid);
    grid->comm = *comm;
    grid->liveness = *liveness;
    *comm = had;
    *liveness = had_liveness;
    grid->last_poll_ns = 0;
    grid->lost_count = 0;
    grid->stop_told = 0;
    memset(grid->lost_told, 0, (size_t)grid->ranks);
    memset(grid->stopped_ns, 0, (size_t)grid->ranks * sizeof *grid->stopped_ns);
}

static KvgStatus gather_hellos(const KvgBootstrap *bootstrap, const KvHello *mine, KvHello *all, uint32_t timeout_ms)
{
    if (bootstrap->ranks == 1) {
        *all = *mine;
        return KVG_OK;
    }
    return bootstrap->allgather(bootstrap->user, mine, all, sizeof *mine, timeout_ms);
}

static void free_grid(KvgGrid *grid)
{
    forget_messages(grid);
    kvg_free(grid->lost_told);
    kvg_free(grid->alive);
    kvg_free(grid->empty);
    kvg_free(grid->stopped_ns);
    kvg_free(grid->stopped_step);
    kvg_free(grid);
}

KvgStatus kvg_grid_create(const KvgBootstrap *given_bootstrap, const KvgGridOptions *given, KvgGrid **grid_p)
{
    static const KvgBootstrap alone = KVG_BOOTSTRAP_INIT;
    KvgBootstrap   own_bootstrap, *bootstrap = &own_bootstrap;
    KvgGridOptions own = KVG_GRID_OPTIONS_INIT, *options = &own;
    KvgGrid       *grid;
    KvHello        mine;
    KvHello       *hellos = NULL;
    KvgStatus      status, local;

    KVG_TRY(KVG_SIZED_IN(KvgBootstrap, given_bootstrap, alone, own_bootstrap));
    if (given_bootstrap == NULL || given == NULL || grid_p == NULL || bootstrap->ranks < 1 ||
        (bootstrap->ranks > 1 && bootstrap->allgather == NULL)) {
        return kvg_fail(KVG_EINVAL, "kvg_grid_create needs a bootstrap with ranks and an all-gather, options, and a place for the grid");
    }
    KVG_TRY(check_place(bootstrap->rank, bootstrap->ranks)); /* it is an index from here on */
    KVG_TRY(KVG_NEW(1, "a grid", &grid));
    KVG_TRY_GOTO(KVG_NEW((size_t)bootstrap->ranks, "the handshake", &hellos), err_free);
    /* A rank whose own checks fail still takes part in the all-gather, so that the others do not wait for it. */
    local = kvg_grid_take_options(given, options);
    if (local == KVG_OK) {
        local = check_shape(options, bootstrap->rank, bootstrap->ranks);
    }
    if (local == KVG_OK) {
        local = fill(grid, options, bootstrap->rank, bootstrap->ranks);
    }
    kvg_hello_make(grid, local, &mine);
    mine.rank = (uint64_t)bootstrap->rank;
    KVG_TRY_GOTO(gather_hellos(bootstrap, &mine, hellos, grid->policy.timeout_ms > 0 ? grid->policy.timeout_ms : 30000), err_free);
    KVG_TRY_GOTO(kvg_hello_compare(hellos, bootstrap->ranks, bootstrap->rank), err_free);
    KVG_TRY_GOTO(kvg_grid_connect(grid, bootstrap, options->comm, options->liveness, &grid->comm, &grid->liveness), err_free);
    kvg_free(hellos);
    *grid_p = grid;
    return KVG_OK;
err_free:
    kvg_free(hellos);
    free_grid(grid);
    return status;
}

KvgStatus kvg_grid_make(const KvgGridOptions *options, int rank, int ranks, KvgGrid **grid)
{
    KvgGrid  *made = NULL;
    KvgStatus status;

    KVG_TRY(check_shape(options, rank, ranks));
    KVG_TRY(KVG_NEW(1, "a grid", &made));
    status = fill(made, options, rank, ranks);
    if (status != KVG_OK) {
        free_grid(made);
        return status;
    }
    *grid = made;
    return KVG_OK;
}

/* ---- all ranks of one process */

static KvgStatus make_inproc(KvInproc *hub, int ranks, const KvgGridOptions *options, KvgGrid **grids, KvHello *hellos)
{
    for (int rank = 0; rank < ranks; rank++) {
        KVG_TRY(check_shape(options, rank, ranks));
        KVG_TRY(KVG_NEW(1, "a grid", &grids[rank]));
        KVG_TRY(fill(grids[rank], options, rank, ranks));
        KVG_TRY(kvg_inproc_attach(hub, rank, &grids[rank]->comm, &grids[rank]->liveness));
        kvg_hello_make(grids[rank], KVG_OK, &hellos[rank]);
    }
    return kvg_hello_compare(hellos, ranks, 0);
}

KvgStatus kvg_grid_create_inproc(KvInproc *hub, int ranks, const KvgGridOptions *given, KvgGrid **grids)
{
    KvgGridOptions own, *options = &own;
    KvgStatus      status;
    KvgGrid      **made = NULL;
    KvHello       *hellos = NULL;

    KVG_TRY(kvg_grid_take_options(given, options));
    if (hub == NULL || given == NULL || grids == NULL || ranks < 1 || options->comm != NULL || options->liveness != NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_grid_create_inproc needs a hub, options without comm and liveness, and a place for each grid");
    }
    KVG_TRY(KVG_NEW((size_t)ranks, "grids", &made));
    KVG_TRY_GOTO(KVG_NEW((size_t)ranks, "the handshake", &hellos), err_free);
    KVG_TRY_GOTO(make_inproc(hub, ranks, options, made, hellos), err_free);
    memcpy(grids, made, (size_t)ranks * sizeof *grids);
    kvg_free(hellos);
    kvg_free(made);
    return KVG_OK;
err_free:
    for (int rank = 0; rank < ranks; rank++) {
        kvg_grid_destroy(made[rank]);
    }
    kvg_free(hellos);
    kvg_free(made);
    return status;
}

void kvg_grid_destroy(KvgGrid *grid)
{
    if (grid == NULL) {
        return;
    }
    if (grid->placements != NULL) {
        kvg_log(KVG_LOG_ERROR, "a grid with placements was to be destroyed, and stays");
        (void)kvg_fail(KVG_EBUSY, "the grid has placements, which stand on it, and was not destroyed: kvg_placement_destroy them first");
        return;
    }
    kvg_voted_resolve(grid, 0);
    kvg_votes_free(grid->votes);
    if (grid->comm.ops != NULL) {
        grid->comm.ops->close(grid->comm.self);
        grid->liveness.ops->close(grid->liveness.self);
    }
    free_grid(grid);
}

/* ---- looking */

int kvg_grid_rank(const KvgGrid *grid) { return grid->rank; }
int kvg_grid_ranks(const KvgGrid *grid) { return grid->ranks; }
uint32_t kvg_grid_tp(const KvgGrid *grid) { return grid->tp; }
uint32_t kvg_grid_pp(const KvgGrid *grid) { return grid->pp; }
uint32_t kvg_grid_stage(const KvgGrid *grid) { return (uint32_t)grid->rank / grid->tp; }
uint32_t kvg_grid_tp_rank(const KvgGrid *grid) { return (uint32_t)grid->rank % grid->tp; }
uint32_t kvg_grid_epoch(const KvgGrid *grid) { return grid->epoch; }

KvgStatus kvg_grid_state(const KvgGrid *grid)
{
    return grid->state == KVG_OK ? kvg_grid_usable(grid) : kvg_fail(grid->state, "%s", grid->why);
}

int kvg_grid_first(const KvgGrid *grid)
{
    int rank = 0;

    while (!grid->alive[rank]) {
        rank++;
    }
    return rank; /* this rank at the latest */
}

KvgStatus kvg_grid_no_hole(const KvgGrid *grid, const char *call)
{
    for (int rank = 0; grid->voters < grid->ranks && rank < grid->ranks; rank++) {
        if (!grid->alive[rank]) {
            return kvg_fail(KVG_ENOTSUP, "%s: this grid was rebuilt without rank %d; rebuild it with a new process there, or make a grid over the survivors",
                            call, rank);
        }
    }
    return KVG_OK;
}

KvgStatus kvg_grid_usable(const KvgGrid *grid)
{
    if (__builtin_expect(grid->state == KVG_OK && !grid->rebuilding, 1)) {
        return KVG_OK;
    }
    if (grid->state == KVG_OK) {
        return kvg_fail(KVG_EPEER, "a rebuild has begun: until it ends nothing but closing is done");
    }
    return kvg_fail(grid->state == KVG_ELAYOUT ? KVG_ELAYOUT : KVG_EPEER, "%s", grid->why);
}

/* The others need not wait for this rank's records after step `after`. Best effort: who does not hear it waits for the deadline. */
static void say_stopped(KvgGrid *grid, int told, uint64_t after)
{
    KvMessageHeader header = { KVG_MESSAGE_MAGIC, grid->epoch, after, KVG_MESSAGE_STOPPED, (uint32_t)told };

    if (grid->stop_told >= told) {
        return;
    }
    grid->stop_told = told;
    for (int rank = 0; grid->comm.ops != NULL && rank < grid->ranks; rank++) {
        if (rank != grid->rank && grid->alive[rank]) {
            grid->comm.ops->send(grid->comm.self, rank, &header, sizeof header);
        }
    }
}

KvgStatus kvg_grid_whole(KvgGrid *grid)
{
    KVG_TRY(kvg_grid_usable(grid));
    for (int rank = 0; grid->lost_count > 0 && rank < grid->ranks; rank++) {
        if (grid->lost_told[rank] && grid->alive[rank]) {
            say_stopped(grid, 1, grid->votes != NULL ? grid->votes->begun : 0); /* others may have begun before they knew */
            return kvg_fail(KVG_EPEER, "rank %d is gone (%s): no step can commit without it; settle the survivors", rank,
                            grid->liveness.ops->why(grid->liveness.self, rank));
        }
    }
    return KVG_OK;
}

static void set_state(KvgGrid *grid, KvgStatus state, const char *format, va_list arguments)
{
    vsnprintf(grid->why, sizeof grid->why, format, arguments);
    grid->state = state;
    kvg_log(KVG_LOG_ERROR, "rank %d: %s", grid->rank, grid->why);
}

KvgStatus kvg_grid_fail(KvgGrid *grid, KvgStatus state, const char *format, ...)
{
    va_list arguments;

    if (grid->state == KVG_OK) { /* the first cause is the one worth telling */
        va_start(arguments, format);
        set_state(grid, state, format, arguments);
        va_end(arguments);
        kvg_grid_stops(grid);
    }
    return kvg_fail(state, "%s", grid->why);
}

void kvg_grid_settled(KvgGrid *grid, KvgStatus state, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    set_state(grid, state, format, arguments);
    va_end(arguments);
}

void kvg_grid_stops(KvgGrid *grid)
{
    say_stopped(grid, 2, 0);
}

/* ---- turns */

int kvg_grid_is_lost(const KvgGrid *grid, int rank)
{
    return rank != grid->rank && grid->liveness.ops->lost(grid->liveness.self, rank);
}

void kvg_grid_say_who(const KvgGrid *grid, int rank, char *text)
{
    const char *who = kvg_grid_is_lost(grid, rank) ? "" : grid->liveness.ops->why(grid->liveness.self, rank);

    snprintf(text, KVG_WHO_BYTES, who[0] != '\0' ? " (%s)" : "%s", who);
}

static void notice_losses(KvgGrid *grid)
{
    for (int rank = 0; rank < grid->ranks; rank++) {
        if (!grid->lost_told[rank] && grid->alive[rank] && kvg_grid_is_lost(grid, rank)) {
            const char *why = grid->liveness.ops->why(grid->liveness.self, rank);
            grid->lost_told[rank] = 1;
            grid->lost_count++;
            kvg_log(KVG_LOG_WARN, "rank %d: rank %d is lost: %s", grid->rank, rank, why);
            if (grid->on_lost != NULL) {
                grid->on_lost(grid->user, rank, why);
            }
        }
    }
}

/* A rank that was frozen wakes in a grid that has settled without it: this says more than any doubt that it was in. */
static void left_out(KvgGrid *grid, int from, uint32_t epoch)
{
    if (epoch > grid->epoch) {
        grid->state = KVG_OK;
        kvg_grid_fail(grid, KVG_EPEER, "rank %d was left out: rank %d and others have settled without it and are in epoch %u, it is in %u; what it holds is "
                      "not the grid's: close its sequences and destroy the grid", grid->rank, from, epoch, grid->epoch);
    }
}

static KvgStatus keep_message(KvgGrid *grid, int from, const void *bytes, size_t byte_count)
{
    KvMessageHeader header;
    void           *memory = NULL;
    KvMessage      *message;

    if (byte_count < sizeof header) {
        return KVG_OK; /* no message of ours */
    }
    memcpy(&header, bytes, sizeof header);
    if (header.magic != KVG_MESSAGE_MAGIC || header.epoch < grid->epoch) {
        return KVG_OK; /* a stranger's, or from before a settle */
    }
    if (header.kind == KVG_MESSAGE_STOPPED) {
        if (header.epoch == grid->epoch) {
            grid->stopped_ns[from] = kvg_grid_now(grid) | 1;
            grid->stopped_step[from] = header.tag;
        }
        return KVG_OK;
    }
    if (header.kind == KVG_MESSAGE_OUT) {
        left_out(grid, from, header.epoch);
        return KVG_OK;
    }
    KVG_TRY(kvg_calloc(1, sizeof *message + byte_count - sizeof header, "a received message", &memory));
    message = memory;
    message->from = from;
    message->header = header;
    message->body_bytes = byte_count - sizeof header;
    memcpy(message->body, (const uint8_t *)bytes + sizeof header, message->body_bytes);
    *grid->inbox_tail = message;
    grid->inbox_tail = &message->next;
    return KVG_OK;
}

static KvgStatus receive_messages(KvgGrid *grid)
{
    for (;;) {
        if (grid->unkept == NULL) {
            KVG_TRY(grid->comm.ops->recv(grid->comm.self, &grid->unkept_from, &grid->unkept, &grid->unkept_bytes));
            if (grid->unkept_from < 0) {
                grid->unkept = NULL;
                return KVG_OK;
            }
        }
        if (keep_message(grid, grid->unkept_from, grid->unkept, grid->unkept_bytes) != KVG_OK) {
            return KVG_OK; /* no memory for it now: the transport keeps it until the next recv, this is tried again before that */
        }
        grid->unkept = NULL;
    }
}

KvgStatus kvg_grid_turn(KvgGrid *grid)
{
    uint64_t now;

    if (grid->ranks == 1) {
        return KVG_OK;
    }
    /* A peer whose run has ended, or that has settled before this rank, may be too far ahead: its records wait until this rank's steps are known. */
    if (grid->votes != NULL && grid->run_count == 0 && !grid->settling) {
        kvg_records_take(grid->votes);
        if (grid->votes->unsent > 0) kvg_votes_send(grid->votes);
    }
    now = kvg_grid_now(grid);
    if (now - grid->last_poll_ns >= LIVENESS_PERIOD_NS) {
        grid->last_poll_ns = now;
        grid->liveness.ops->poll(grid->liveness.self);
        notice_losses(grid);
        if (grid->run_count != 0) kvg_run_watch(grid);
    }
    return receive_messages(grid);
}

KvgStatus kvg_grid_no_run(const KvgGrid *grid)
{
    return grid->run_count == 0 ? KVG_OK : kvg_fail(KVG_EBUSY, "a captured run of this grid is on; kvg_run_end comes first");
}

KvgStatus kvg_grid_progress(KvgGrid *grid)
{
    grid->last_poll_ns = 0;
    return kvg_grid_turn(grid);
}

void kvg_grid_posted(KvgGrid *grid, const char *call, uint64_t id, uint64_t value, KvgStatus result)
{
    grid->running = kvg_mix64(grid->running ^ kvg_mix_term(kvg_name_hash(call), id, (uint64_t)result, value));
}

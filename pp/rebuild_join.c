/* Rebuild, joining: a new process makes what the survivors hold, from what they say, and takes the place of a rank that is lost. */
#include "pp/rebuild_impl.h"

#include <string.h>

/* ---- making */

static int first_survivor(const RebuildState *state)
{
    int rank = 0;

    while (!state->survivor[rank]) {
        rank++;
    }
    return rank;
}

static KvgStatus take_grid(KvgSetup *setup)
{
    const RebuildState *state = setup->state;
    const RebuildHello *told = kvg_rebuild_hello(state, first_survivor(state));
    KvgGrid            *grid = setup->grid;

    grid->epoch = (uint32_t)told->epoch;
    grid->changes = told->changes;
    grid->placed = (uint32_t)told->placed;
    if (told->max_step_sequences == 0) {
        return KVG_OK; /* nothing was ever placed */
    }
    KVG_TRY(kvg_votes_create(grid, (uint32_t)told->max_step_sequences, &grid->votes));
    grid->votes->begun = grid->votes->decided = grid->votes->released = told->begun;
    return KVG_OK;
}

/* The units are the survivors': they follow from the bytes of all ranks, and the lost rank's are taken over. */
static KvgStatus check_units(const KvgPlacement *placement, const RebuildPlace *told)
{
    for (uint32_t c = 0; c < placement->plan.class_count; c++) {
        if (placement->plan.classes[c].units != told->units[c]) {
            return kvg_fail(KVG_ELAYOUT, "the grid was not rebuilt: class %u of %s has %llu units on the survivors and %u follow from their bytes here", c,
                            placement->config.name, (unsigned long long)told->units[c], placement->plan.classes[c].units);
        }
    }
    return KVG_OK;
}

static KvgStatus lay(KvgSetup *setup, KvgPlacement *placement, uint64_t i)
{
    const RebuildState *state = setup->state;
    int                 ranks = setup->grid->ranks, first = first_survivor(state);
    const uint64_t     *bytes = kvg_rebuild_state_bytes(state, ranks, first, i);
    uint64_t            asked = placement->options.memory_bytes, needed = bytes[setup->grid->rank];
    void               *memory = NULL;

    if (asked != 0 && asked < needed) {
        return kvg_fail(KVG_ENOMEM, "memory_bytes %llu: rank %d gave %llu bytes to sequence state before it was lost, and units are counted by that; give as "
                        "many, or 0", (unsigned long long)asked, setup->grid->rank, (unsigned long long)needed);
    }
    placement->number = (uint32_t)kvg_rebuild_place(state, ranks, first, i)->number;
    KVG_TRY(kvg_calloc((size_t)ranks, sizeof *bytes, "a placement", &memory));
    placement->state_bytes = memory;
    memcpy(placement->state_bytes, bytes, (size_t)ranks * sizeof *bytes);
    KVG_TRY(kvg_place_lay(placement));
    return check_units(placement, kvg_rebuild_place(state, ranks, first, i));
}

static KvgStatus take(KvgPlacement *placement, const RebuildPlace *told)
{
    uint32_t units_max[KVG_CLASSES_MAX];

    for (uint32_t c = 0; c < KVG_CLASSES_MAX; c++) {
        units_max[c] = (uint32_t)told->units_max[c];
    }
    KVG_TRY(kvg_place_take(placement, units_max));
    if (told->asleep) {
        KVG_TRY(kvg_store_can_sleep(placement->store));
        kvg_store_sleep(placement->store);
        placement->asleep = 1;
    }
    return KVG_OK;
}

KvgStatus kvg_rebuild_make(KvgSetup *setup)
{
    RebuildState *state = setup->state;

    KVG_TRY(take_grid(setup));
    for (uint32_t i = 0; i < state->join_count; i++) {
        KVG_TRY(lay(setup, state->made[i], i));
        KVG_TRY(take(state->made[i], kvg_rebuild_place(state, setup->grid->ranks, first_survivor(state), i)));
    }
    return KVG_OK;
}

KvgStatus kvg_rebuild_open(KvgSetup *setup)
{
    RebuildState *state = setup->state;

    for (uint32_t i = 0; i < state->entry_count; i++) {
        RebuildEntry *entry = &state->entries[i];
        if (!entry->everywhere) {
            continue;
        }
        entry->sequence = kvg_sequence_take(state->made[entry->said->placement], entry->said->id);
        entry->sequence->cache.tainted = entry->said->tainted != 0;
        if (entry->loss == KVG_LOSS_NONE) {
            entry->sequence->counted_growth = 1;
            KVG_TRY(kvg_kv_cache_carry_open(&entry->sequence->cache, &entry->said->place));
        }
    }
    return KVG_OK;
}

/* ---- the end, either way */

void kvg_rebuild_deliver(KvgSetup *setup)
{
    RebuildState *state = setup->state;
    KvgGrid      *grid = setup->grid;

    for (uint32_t i = 0; i < state->entry_count; i++) {
        const RebuildEntry *entry = &state->entries[i];
        if (entry->everywhere && entry->loss == KVG_LOSS_NONE) {
            kvg_kv_cache_carry_end(&entry->sequence->cache, &entry->said->place);
        }
    }
    for (uint32_t i = 0; i < state->join_count; i++) {
        state->made[i]->next = grid->placements;
        grid->placements = state->made[i];
        state->joins_list[i].placement = state->made[i];
    }
    *state->grid_target = grid;
    state->delivered = 1;
}

static void unmake_placement(KvgPlacement *placement)
{
    for (uint32_t s = 0; placement != NULL && placement->sequences != NULL && s < placement->options.max_sequences; s++) {
        if (placement->sequences[s].open) {
            kvg_sequence_drop(&placement->sequences[s], NULL);
        }
    }
    kvg_placement_free(placement);
}

void kvg_rebuild_unmake(KvgSetup *setup)
{
    RebuildState *state = setup->state;

    for (uint32_t i = 0; state->made != NULL && i < state->join_count; i++) {
        unmake_placement(state->made[i]);
        state->made[i] = NULL;
    }
}

/* ---- the calls */

/* One that is given no number of its own follows the first, as on the survivors. */
static void follow_first(KvgPlacement *placement, const KvgPlacement *first, const KvgPlaceOptions *asked)
{
    if (asked->max_step_sequences == 0 && placement->options.max_step_sequences > first->options.max_step_sequences) {
        placement->options.max_step_sequences = first->options.max_step_sequences;
    }
}

static KvgStatus make_joins(KvgGrid *grid, RebuildState *state)
{
    for (uint32_t i = 0; i < state->join_count; i++) {
        const KvgJoin *join = &state->joins_list[i];
        if (join->config == NULL || join->config->plan.layers == NULL || join->options == NULL) {
            return kvg_fail(KVG_EINVAL, "kvg_grid_join: placement %u needs a loaded config and options", i);
        }
        KVG_TRY(kvg_place_make(grid, join->config, join->options, &state->made[i]));
        follow_first(state->made[i], state->made[0], join->options);
    }
    return KVG_OK;
}

static KvgStatus check_call(const KvgGridOptions *options, const KvgJoin *joins, uint32_t join_count, KvgGrid *const *grid)
{
    if (options == NULL || grid == NULL || (join_count > 0 && joins == NULL)) {
        return kvg_fail(KVG_EINVAL, "kvg_grid_join needs options, every placement of the survivors, and a place for the grid");
    }
    return KVG_OK;
}

/* The operation of a grid that is connected; owns it, if it starts. */
static KvgStatus start(KvgGrid *made, KvgJoin *joins, uint32_t join_count, KvgGrid **grid, KvgRebuildReport **report, KvgSetup **setup)
{
    RebuildState *state;
    void         *memory = NULL;
    KvgStatus     status;

    KVG_TRY(kvg_rebuild_setup(made, "kvg_grid_rebuild", setup)); /* the survivors' call by name: what is exchanged is told apart by it */
    state = (*setup)->state;
    state->joins = 1;
    state->stage = REBUILD_SAY;
    state->target = report;
    state->grid_target = grid;
    state->joins_list = joins;
    memset((*setup)->member, 1, (size_t)made->ranks);
    (*setup)->kind = KVG_MESSAGE_REBUILD;
    (*setup)->tag = 0;
    status = kvg_calloc(join_count, sizeof *state->made, "joining", &memory);
    if (status == KVG_OK) {
        state->made = memory;
        state->join_count = join_count;
        status = make_joins(made, state);
    }
    if (status != KVG_OK) {
        kvg_voted_answer(*setup, status); /* it still says so to the others */
    }
    return KVG_OK;
}

KvgStatus kvg_grid_join_start(int rank, int ranks, const KvgGridOptions *given, KvgJoin *joins, uint32_t join_count, KvgGrid **grid,
                              KvgRebuildReport **report, KvgSetup **setup)
{
    KvgGridOptions own, *options = &own;
    KvgGrid  *made = NULL;
    KvgStatus status;

    KVG_TRY(check_call(given, joins, join_count, grid));
    KVG_TRY(kvg_grid_take_options(given, options));
    if (setup == NULL || options->comm == NULL || options->liveness == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_grid_join_start needs a comm and a liveness, which a bootstrap would have to wait for, and a place for the operation");
    }
    KVG_TRY(kvg_grid_make(options, rank, ranks, &made));
    made->comm = *options->comm;
    made->liveness = *options->liveness;
    status = start(made, joins, join_count, grid, report, setup);
    if (status != KVG_OK) {
        made->comm.ops = NULL; /* still the caller's */
        kvg_grid_destroy(made);
    }
    return status;
}

KvgStatus kvg_grid_join(const KvgBootstrap *bootstrap, const KvgGridOptions *given, KvgJoin *joins, uint32_t join_count, KvgGrid **grid,
                        KvgRebuildReport **report)
{
    KvgGridOptions own = KVG_GRID_OPTIONS_INIT, *options = &own;
    KvgGrid  *made = NULL;
    KvgSetup *setup = NULL;
    KvgStatus status;

    KVG_TRY(check_call(given, joins, join_count, grid));
    if (bootstrap == NULL || bootstrap->ranks < 2 || bootstrap->allgather == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_grid_join needs the bootstrap that the survivors rebuild over");
    }
    status = kvg_grid_take_options(given, options);
    if (status == KVG_OK) {
        status = kvg_grid_make(options, bootstrap->rank, bootstrap->ranks, &made);
    }
    KVG_TRY_GOTO(kvg_rebuild_knock(bootstrap, status, options->policy), err_destroy);
    KVG_TRY_GOTO(kvg_grid_connect(made, bootstrap, options->comm, options->liveness, &made->comm, &made->liveness), err_destroy);
    KVG_TRY_GOTO(start(made, joins, join_count, grid, report, &setup), err_destroy);
    return kvg_setup_wait(setup);
err_destroy:
    kvg_grid_destroy(made);
    return status;
}

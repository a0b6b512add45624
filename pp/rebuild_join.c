/* Rebuild, joining: a new process makes what the survivors hold, from what they say, and takes the place of a rank that is lost. */
#include "pp/rebuild_impl.h"

#include <string.h>

/* ---- making */

/* Steps of a grid whose first placement is gone may have room for more sequences than any that is left. */
enum { STEP_SEQUENCES_ANY = 4096, UNITS_GROWTH_MAX = 4096 };

static const RebuildHello *told(const KvgSetup *setup)
{
    const RebuildState *state = setup->state;

    return kvg_rebuild_hello(state, kvg_rebuild_first_survivor(state));
}

static const RebuildPlace *told_place(const KvgSetup *setup, uint64_t i)
{
    const RebuildState *state = setup->state;

    return kvg_rebuild_place(state, setup->grid->ranks, kvg_rebuild_first_survivor(state), i);
}

static KvgStatus refuse(const KvgSetup *setup, const char *what, uint64_t value, uint64_t least, uint64_t most)
{
    return kvg_fail(KVG_EFORMAT, "the grid was not rebuilt: rank %d says that %s is %llu, which can be %llu to %llu; run one version of kvgrid everywhere",
                    kvg_rebuild_first_survivor(setup->state), what, (unsigned long long)value, (unsigned long long)least, (unsigned long long)most);
}

/* What is taken over as it is said. */
static KvgStatus check_grid(const KvgSetup *setup)
{
    const RebuildState *state = setup->state;
    const RebuildHello *hello = told(setup);
    uint64_t            least = 0, most = state->join_count > 0 ? STEP_SEQUENCES_ANY : UINT16_MAX, number = 0;

    for (uint32_t i = 0; i < state->join_count; i++) {
        const KvgPlaceOptions *options = &state->made[i]->options;
        least = options->max_step_sequences > least ? options->max_step_sequences : least;
        most = options->max_sequences > most ? options->max_sequences : most;
        if (told_place(setup, i)->number < number || told_place(setup, i)->number >= hello->placed) {
            return refuse(setup, "a placement's number", told_place(setup, i)->number, number, hello->placed - 1);
        }
        number = told_place(setup, i)->number + 1;
    }
    if (hello->max_step_sequences < least || hello->max_step_sequences > most) {
        return refuse(setup, "max_step_sequences", hello->max_step_sequences, least, most);
    }
    if (hello->epoch >= UINT32_MAX - 1) {
        return refuse(setup, "the epoch", hello->epoch, 0, UINT32_MAX - 2);
    }
    if (hello->placed > UINT32_MAX) {
        return refuse(setup, "the number of placements so far", hello->placed, 0, UINT32_MAX);
    }
    return hello->begun <= INT64_MAX ? KVG_OK : refuse(setup, "the step", hello->begun, 0, INT64_MAX);
}

static KvgStatus take_grid(KvgSetup *setup)
{
    const RebuildHello *hello = told(setup);
    KvgGrid            *grid = setup->grid;

    KVG_TRY(check_grid(setup));
    grid->epoch = (uint32_t)hello->epoch;
    grid->changes = hello->changes;
    grid->placed = (uint32_t)hello->placed;
    if (hello->max_step_sequences == 0) {
        return KVG_OK; /* nothing was ever placed */
    }
    KVG_TRY(kvg_votes_create(grid, (uint32_t)hello->max_step_sequences, &grid->votes));
    grid->votes->begun = grid->votes->decided = grid->votes->released = hello->begun;
    return KVG_OK;
}

/* The units are the survivors': they follow from the bytes of all ranks, and the lost rank's are taken over. */
static KvgStatus check_units(const KvgSetup *setup, const KvgPlacement *placement, const RebuildPlace *place)
{
    if (place->class_count != placement->plan.class_count) {
        return refuse(setup, "the number of classes", place->class_count, placement->plan.class_count, placement->plan.class_count);
    }
    for (uint32_t c = 0; c < placement->plan.class_count; c++) {
        uint64_t units = placement->plan.classes[c].units;
        if (units != place->units[c]) {
            return kvg_fail(KVG_ELAYOUT, "the grid was not rebuilt: class %u of %s has %llu units on the survivors and %llu follow from their bytes here", c,
                            placement->config.name, (unsigned long long)place->units[c], (unsigned long long)units);
        }
        uint64_t most = (units > 0 ? units : 1) * UNITS_GROWTH_MAX; /* what a pool notes of its units is bounded by what it has */
        if (place->units_max[c] > most) {
            return refuse(setup, "the units that a class may grow to", place->units_max[c], units, most);
        }
    }
    return KVG_OK;
}

/* What the lost rank gave is there to give, as far as the device can say. */
static KvgStatus check_memory(const KvgPlacement *placement, uint64_t needed, int rank)
{
    const KvDev *device = &placement->device;
    uint64_t     asked = placement->options.memory_bytes;
    KvAvailable  available = { 0, 0 };

    if (asked != 0 && asked < needed) {
        return kvg_fail(KVG_ENOMEM, "memory_bytes %llu: rank %d gave %llu bytes to sequence state before it was lost, and units are counted by that; give as "
                        "many, or 0", (unsigned long long)asked, rank, (unsigned long long)needed);
    }
    if (asked == 0 && device->ops->available != NULL && device->ops->available(device->self, &available) == KVG_OK && needed > available.bytes) {
        return kvg_fail(KVG_ENOMEM, "rank %d gave %llu bytes to sequence state before it was lost, and device %s has %llu free here", rank,
                        (unsigned long long)needed, device->ops->name, (unsigned long long)available.bytes);
    }
    return KVG_OK;
}

static KvgStatus lay(KvgSetup *setup, KvgPlacement *placement, uint64_t i)
{
    const RebuildState *state = setup->state;
    int                 ranks = setup->grid->ranks;
    const uint64_t     *bytes = kvg_rebuild_state_bytes(state, ranks, kvg_rebuild_first_survivor(state), i);

    KVG_TRY(check_memory(placement, bytes[setup->grid->rank], setup->grid->rank));
    placement->number = (uint32_t)told_place(setup, i)->number;
    KVG_TRY(KVG_NEW((size_t)ranks, "a placement", &placement->state_bytes));
    memcpy(placement->state_bytes, bytes, (size_t)ranks * sizeof *bytes);
    KVG_TRY(kvg_place_lay(placement));
    return check_units(setup, placement, told_place(setup, i));
}

static KvgStatus take(KvgPlacement *placement, const RebuildPlace *place)
{
    uint32_t units_max[KVG_CLASSES_MAX];

    for (uint32_t c = 0; c < KVG_CLASSES_MAX; c++) {
        units_max[c] = (uint32_t)place->units_max[c];
    }
    KVG_TRY(kvg_place_take(placement, units_max));
    if (place->asleep) {
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
        KVG_TRY(take(state->made[i], told_place(setup, i)));
    }
    return KVG_OK;
}

/* ---- sequences */

/* Each survivor sends as many bytes as the place of the sequence says: pieces are counted by that. */
static KvgStatus check_streams(const KvgSetup *setup, const RebuildEntry *entry, const KvCarryPart *part, uint8_t *mine)
{
    const RebuildState *state = setup->state;
    const KvgPlacement *placement = state->made[entry->said->placement];
    int                 ranks = setup->grid->ranks, here = setup->grid->rank, image;

    for (int rank = 0; rank < ranks; rank++) {
        if (!state->survivor[rank]) {
            continue;
        }
        kvg_rebuild_sends(setup, placement, rank, here, mine, &image);
        uint64_t said = kvg_rebuild_stream(state, ranks, rank, entry->index, here), expected = kvg_carry_bytes(&entry->sequence->cache, part, mine, image);
        if (said != expected) {
            return kvg_fail(KVG_EFORMAT, "the grid was not rebuilt: rank %d would send %llu bytes of sequence %llu where %llu belong; run one version of kvgrid "
                            "everywhere", rank, (unsigned long long)said, (unsigned long long)entry->said->id, (unsigned long long)expected);
        }
    }
    return KVG_OK;
}

/* Owners stand before those who share with them. caches [entries]: those that are open so far. */
static KvgStatus open_entry(const KvgSetup *setup, const RebuildAccount *account, RebuildEntry *entry, const KvCache **caches, uint8_t *mine)
{
    const RebuildState *state = setup->state;
    KvCache            *cache;
    KvCarryPart         part;

    entry->sequence = kvg_sequence_take(state->made[entry->said->placement], entry->said->id);
    cache = &entry->sequence->cache;
    cache->tainted = entry->said->tainted != 0;
    if (entry->loss != KVG_LOSS_NONE) {
        return KVG_OK;
    }
    entry->sequence->counted_growth = 1;
    caches[entry->index] = cache;
    KVG_TRY(kvg_kv_cache_carry_check(cache, &entry->said->place));
    kvg_rebuild_part(account, entry->index, &part);
    KVG_TRY(check_streams(setup, entry, &part, mine));
    return kvg_kv_cache_carry_open(cache, &part, caches);
}

static KvgStatus open_entries(const KvgSetup *setup, uint8_t *mine)
{
    RebuildState  *state = setup->state;
    RebuildAccount account;
    void          *memory = NULL;
    KvgStatus      status = KVG_OK;

    kvg_rebuild_account_of(setup, kvg_rebuild_first_survivor(state), &account); /* unless they are apart, it is the others', too */
    KVG_TRY(kvg_calloc(state->entry_count, sizeof(KvCache *), "rebuilding", &memory));
    for (uint32_t i = 0; status == KVG_OK && i < state->entry_count; i++) {
        if (state->entries[i].everywhere) {
            status = open_entry(setup, &account, &state->entries[i], memory, mine);
        }
    }
    kvg_free(memory);
    return status;
}

KvgStatus kvg_rebuild_open(KvgSetup *setup)
{
    const RebuildState *state = setup->state;
    uint32_t            most = 1;
    void               *mine = NULL;

    for (uint32_t i = 0; i < state->join_count; i++) {
        const ModelPlan *plan = &state->made[i]->config.plan;
        most = plan->n_layer + plan->n_mtp > most ? plan->n_layer + plan->n_mtp : most;
    }
    KVG_TRY(kvg_calloc(most, 1, "rebuilding", &mine));
    KvgStatus status = open_entries(setup, mine);
    kvg_free(mine);
    return status;
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

static KvgStatus check_bootstrap(const KvgBootstrap *bootstrap)
{
    if (bootstrap->ranks < 2 || bootstrap->allgather == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_grid_join needs the bootstrap that the survivors rebuild over");
    }
    return KVG_OK;
}

KvgStatus kvg_grid_join(const KvgBootstrap *given_bootstrap, const KvgGridOptions *given, KvgJoin *joins, uint32_t join_count, KvgGrid **grid,
                        KvgRebuildReport **report)
{
    static const KvgBootstrap alone = KVG_BOOTSTRAP_INIT;
    KvgBootstrap   bootstrap;
    KvgGridOptions options = KVG_GRID_OPTIONS_INIT;
    KvgGrid       *made = NULL;
    KvgSetup      *setup = NULL;
    KvgStatus      status, local = kvg_grid_take_options(given, &options); /* first: where they are read, their ends are closed below */

    KVG_TRY_GOTO(check_call(given, joins, join_count, grid), err_close);
    KVG_TRY_GOTO(KVG_SIZED_IN(KvgBootstrap, given_bootstrap, alone, bootstrap), err_close);
    KVG_TRY_GOTO(check_bootstrap(&bootstrap), err_close);
    if (local == KVG_OK) {
        local = kvg_grid_make(&options, bootstrap.rank, bootstrap.ranks, &made);
    }
    KVG_TRY_GOTO(kvg_rebuild_knock(&bootstrap, local, options.policy), err_close);
    KVG_TRY_GOTO(kvg_grid_connect(made, &bootstrap, options.comm, options.liveness, &made->comm, &made->liveness), err_close);
    KVG_TRY_GOTO(start(made, joins, join_count, grid, report, &setup), err_destroy);
    return kvg_setup_wait(setup);
err_close:
    kvg_rebuild_close(options.comm, options.liveness);
err_destroy:
    kvg_grid_destroy(made);
    return status;
}

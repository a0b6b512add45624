/* Place: one model laid over the grid, in phases that every rank walks together.
 *   1 say      what this rank was asked for, and whether it can take part at all
 *   2 compare  item by item
 *     measure  only where some rank was not told how many bytes it gives: what every device has free, now that all are here
 *   3 take     the same numbers planned everywhere from all ranks' memory; the memory
 *   4 vote     when one rank could not, none has placed */
#include "pp/place.h"

#include <stdio.h>
#include <string.h>

typedef struct PlaceState {
    KvgPlacement **target;
    KvgPlacement  *placement;
    PlaceHello    *hellos; /* [ranks] what all said */
    int            measured, taken;
    KvgStatus      local; /* what this rank's own checks said */
    char           local_why[384];
} PlaceState;

/* ---- this rank's own checks */

/* One step decides for all indexers at once, so their pools are alike. */
static KvgStatus check_pools(const ModelConfig *config, const KvgPlaceOptions *options)
{
    uint32_t pool = 0;

    for (uint32_t il = 0; il < kvg_place_held_layers(config, options); il++) {
        const StatePlan *layer = &config->plan.layers[il];
        if (layer->kind != KVG_STATE_LATENT || layer->u.latent.index_kind != KVG_INDEX_POOLED) {
            continue;
        }
        if (pool != 0 && layer->u.latent.index_pool != pool) {
            return kvg_fail(KVG_ENOTSUP, "layer %u of %s pools %u rows a key and an earlier layer %u: one pool a model is served", il, config->name,
                            layer->u.latent.index_pool, pool);
        }
        pool = layer->u.latent.index_pool;
    }
    return KVG_OK;
}

static KvgStatus check_options(const KvgGrid *grid, const ModelConfig *config, const KvgPlaceOptions *options)
{
    if (options->layout != KVG_LAYOUT_POOL && options->layout != KVG_LAYOUT_FLAT) {
        return kvg_fail(KVG_EINVAL, "layout %d: KVG_LAYOUT_POOL or KVG_LAYOUT_FLAT", (int)options->layout);
    }
    if (options->max_sequences > 0 && options->max_step_sequences > options->max_sequences) {
        return kvg_fail(KVG_EINVAL, "max_step_sequences %u is more than max_sequences %u", options->max_step_sequences, options->max_sequences);
    }
    if (grid->placements != NULL && options->max_step_sequences > grid->votes->max_step_sequences) {
        return kvg_fail(KVG_EINVAL, "max_step_sequences %u: records of this grid have room for %u, fixed by its first placement; place the larger first",
                        options->max_step_sequences, grid->votes->max_step_sequences);
    }
    return check_pools(config, options);
}

/* ---- copies of what the caller may free */

static KvgStatus copy_array(const void *source, size_t count, size_t bytes, void **copy)
{
    *copy = NULL;
    if (source == NULL) {
        return KVG_OK;
    }
    KVG_TRY(kvg_calloc(count, bytes, "a placement's options", copy));
    memcpy(*copy, source, count * bytes);
    return KVG_OK;
}

static KvgStatus copy_config(const ModelConfig *config, ModelConfig *copy)
{
    size_t count = (size_t)config->plan.n_layer + config->plan.n_mtp;
    void  *layers = NULL, *weights = NULL;

    *copy = *config;
    copy->weight_bytes = NULL;
    copy->plan.layers = NULL;
    KVG_TRY(copy_array(config->plan.layers, count, sizeof(StatePlan), &layers));
    copy->plan.layers = layers;
    KVG_TRY(copy_array(config->weight_bytes, count, sizeof(uint64_t), &weights));
    copy->weight_bytes = weights;
    return KVG_OK;
}

static void free_copies(KvgPlacement *placement)
{
    kvg_free(placement->config.plan.layers);
    kvg_free(placement->config.weight_bytes);
    kvg_free((void *)placement->options.fence);
    kvg_free((void *)placement->options.layer_bytes);
}

KvgStatus kvg_place_make(KvgGrid *grid, const ModelConfig *config, const KvgPlaceOptions *options, KvgPlacement **placement_p)
{
    size_t        layers = (size_t)config->plan.n_layer + config->plan.n_mtp;
    void         *memory = NULL, *fence = NULL, *layer_bytes = NULL;
    KvgPlacement *placement;

    KVG_TRY(check_options(grid, config, options));
    KVG_TRY(kvg_calloc(1, sizeof *placement, "a placement", &memory));
    placement = *placement_p = memory; /* from here on the operation's undo frees it */
    placement->grid = grid;
    placement->options = *options;
    placement->options.fence = NULL;
    placement->options.layer_bytes = NULL;
    if (placement->options.max_sequences == 0) {
        placement->options.max_sequences = 64;
    }
    if (placement->options.max_step_sequences == 0) {
        placement->options.max_step_sequences = placement->options.max_sequences;
        if (grid->placements != NULL && placement->options.max_step_sequences > grid->votes->max_step_sequences) {
            placement->options.max_step_sequences = grid->votes->max_step_sequences;
        }
    }
    KVG_TRY(copy_config(config, &placement->config));
    KVG_TRY(copy_array(options->fence, (size_t)grid->pp + 1, sizeof(uint32_t), &fence));
    placement->options.fence = fence;
    KVG_TRY(copy_array(options->layer_bytes, layers, sizeof(uint64_t), &layer_bytes));
    placement->options.layer_bytes = layer_bytes;
    if (options->device != NULL) {
        placement->device = *options->device;
        return KVG_OK;
    }
    KVG_TRY(kvg_dev_host(&placement->device));
    placement->owns_device = 1;
    return KVG_OK;
}

/* ---- phase 1: say */

static KvgStatus phase_say(KvgSetup *setup)
{
    PlaceState *state = setup->state;
    PlaceHello  hello = { .status = (uint64_t)state->local };

    if (state->local == KVG_OK) {
        kvg_place_say(state->placement, state->local, &hello);
    }
    return kvg_setup_gather(setup, &hello, sizeof hello);
}

/* ---- then: compare, measure, plan, take */

/* A rank that cannot go on returns its own sentence; the others name it. */
static KvgStatus check_statuses(const KvgSetup *setup, KvgStatus own, const char *own_why)
{
    if (own != KVG_OK) {
        return kvg_fail(own, "%s", own_why);
    }
    for (int rank = 0; rank < setup->grid->ranks; rank++) {
        uint64_t status = 0;
        memcpy(&status, setup->gather.body[rank], sizeof status);
        if (status != KVG_OK) {
            return kvg_fail(KVG_EREFUSED, "nothing was placed on any rank: rank %d answers %s; its own message says why", rank,
                            kvg_status_name((KvgStatus)status));
        }
    }
    return KVG_OK;
}

/* Blocks of an older kvgrid may be shorter: they are refused before a byte is read. */
static KvgStatus check_sizes(const KvgSetup *setup, size_t bytes)
{
    for (int rank = 0; rank < setup->grid->ranks; rank++) {
        if (setup->gather.bytes[rank] != bytes) {
            return kvg_fail(KVG_ELAYOUT, "rank %d sent %zu bytes where %zu belong; run one version of kvgrid everywhere", rank,
                            setup->gather.bytes[rank], bytes);
        }
    }
    return KVG_OK;
}

KvgStatus kvg_placement_replan(const KvgPlacement *placement, const uint64_t *state_bytes, KvGridPlan *plan)
{
    KvGridPlanOptions      options = KVG_GRID_PLAN_OPTIONS_INIT;
    const KvgPlaceOptions *asked = &placement->options;

    options.tp = placement->grid->tp;
    options.pp = placement->grid->pp;
    options.sizing = (KvSizing){ placement->grid->policy, asked->format_k, asked->format_v, asked->format_latent };
    options.layout = asked->layout;
    options.ctx = asked->ctx;
    options.prefill_chunk_max = asked->prefill_chunk_max;
    options.max_sequences = asked->max_sequences;
    options.spec_columns = asked->spec_columns;
    options.with_mtp = asked->with_mtp;
    options.state_bytes = state_bytes;
    options.layer_bytes = asked->layer_bytes;
    options.fence = asked->fence;
    options.granularity = placement->device.ops->granularity(placement->device.self);
    return kvg_grid_plan(&placement->config, &options, plan);
}

/* The units that memory_max would give: addresses are reserved for that many. */
static KvgStatus plan_reserve(const KvgPlacement *placement, const PlaceHello *hellos, uint32_t *units_max)
{
    uint64_t  *bytes;
    KvGridPlan most;
    KvgStatus  status;

    KVG_TRY(KVG_NEW((size_t)placement->grid->ranks, "a placement", &bytes));
    for (int rank = 0; rank < placement->grid->ranks; rank++) {
        bytes[rank] = hellos[rank].memory_max_bytes;
    }
    status = kvg_placement_replan(placement, bytes, &most);
    kvg_free(bytes);
    KVG_TRY(status);
    for (uint32_t c = 0; c < most.class_count; c++) {
        units_max[c] = most.classes[c].units > placement->plan.classes[c].units ? most.classes[c].units : placement->plan.classes[c].units;
    }
    kvg_grid_plan_free(&most);
    return KVG_OK;
}

static KvgStatus check_room(const KvgPlacement *placement)
{
    const KvGridPlan *plan = &placement->plan;

    for (uint32_t c = 0; c < plan->class_count; c++) {
        if (plan->classes[c].units == 0) {
            return kvg_fail(KVG_ENOMEM, "rank %d gives %llu bytes to sequence state: not even 64 rows of every class fit beside the slots of %u "
                            "sequences; raise memory_bytes there or lower max_sequences", plan->limiting_rank,
                            (unsigned long long)placement->state_bytes[plan->limiting_rank >= 0 ? plan->limiting_rank : 0],
                            placement->options.max_sequences);
        }
    }
    for (int rank = 0; rank < placement->grid->ranks; rank++) {
        uint64_t slots = plan->ranks[rank].slot_bytes * placement->options.max_sequences;
        if (slots > placement->state_bytes[rank]) {
            return kvg_fail(KVG_ENOMEM, "rank %d gives %llu bytes to sequence state: the slots of %u sequences take %llu; raise memory_bytes there or "
                            "lower max_sequences", rank, (unsigned long long)placement->state_bytes[rank], placement->options.max_sequences,
                            (unsigned long long)slots);
        }
    }
    return KVG_OK;
}

static KvgStatus create_sequences(KvgPlacement *placement)
{
    uint32_t count = placement->options.max_sequences;

    KVG_TRY(KVG_NEW(count, "sequences", &placement->sequences));
    KVG_TRY(KVG_NEW(count, "sequences", &placement->free_slots));
    for (uint32_t i = 0; i < count; i++) {
        placement->free_slots[i] = count - 1 - i; /* slot 0 is taken first */
    }
    placement->free_count = count;
    return KVG_OK;
}

/* The first placement fixes the record; one placed after all others are gone fixes it anew, and step numbers go on. */
static KvgStatus create_votes(KvgPlacement *placement)
{
    KvgGrid  *grid = placement->grid;
    KvgVotes *votes = NULL;

    if (grid->placements != NULL) {
        return KVG_OK;
    }
    KVG_TRY(kvg_votes_create(grid, placement->options.max_step_sequences, &votes));
    votes->begun = votes->decided = votes->released = grid->votes != NULL ? grid->votes->begun : 0;
    kvg_votes_free(grid->votes);
    grid->votes = votes;
    return KVG_OK;
}

KvgStatus kvg_place_lay(KvgPlacement *placement)
{
    placement->options.memory_bytes = placement->state_bytes[placement->grid->rank];
    KVG_TRY(kvg_placement_replan(placement, placement->state_bytes, &placement->plan));
    placement->lo = placement->plan.ranks[placement->grid->rank].lo;
    placement->hi = placement->plan.ranks[placement->grid->rank].hi;
    placement->placed_ns = kvg_grid_now(placement->grid);
    return KVG_OK;
}

KvgStatus kvg_place_take(KvgPlacement *placement, const uint32_t *units_max)
{
    KVG_TRY(kvg_place_create_store(placement, units_max));
    return create_sequences(placement);
}

static KvgStatus take_memory(KvgPlacement *placement, const PlaceHello *hellos)
{
    uint32_t units_max[KVG_PLAN_CLASSES_MAX] = { 0 };

    KVG_TRY(KVG_NEW((size_t)placement->grid->ranks, "a placement", &placement->state_bytes));
    for (int rank = 0; rank < placement->grid->ranks; rank++) {
        placement->state_bytes[rank] = hellos[rank].memory_bytes;
    }
    KVG_TRY(kvg_place_lay(placement));
    KVG_TRY(check_room(placement));
    KVG_TRY(plan_reserve(placement, hellos, units_max));
    KVG_TRY(kvg_place_take(placement, units_max));
    return create_votes(placement);
}

/* Notes how this rank's part went and casts that as its vote. */
static KvgStatus cast(KvgSetup *setup, KvgStatus local)
{
    PlaceState *state = setup->state;
    uint64_t    vote = (uint64_t)local;

    state->taken = 1;
    state->local = local;
    if (local != KVG_OK) {
        snprintf(state->local_why, sizeof state->local_why, "%s", kvg_last_error());
    }
    return kvg_setup_gather(setup, &vote, sizeof vote);
}

static KvgStatus say_measured(KvgSetup *setup)
{
    PlaceState  *state = setup->state;
    PlaceMeasure measure;

    state->measured = 1;
    state->local = kvg_place_measure(state->placement, &measure);
    measure.status = (uint64_t)state->local;
    if (state->local != KVG_OK) {
        snprintf(state->local_why, sizeof state->local_why, "%s", kvg_last_error());
    }
    return kvg_setup_gather(setup, &measure, sizeof measure);
}

static KvgStatus phase_compare(KvgSetup *setup)
{
    PlaceState *state = setup->state;
    int         ranks = setup->grid->ranks;

    KVG_TRY(check_sizes(setup, sizeof(PlaceHello)));
    KVG_TRY(check_statuses(setup, state->local, state->local_why));
    KVG_TRY(kvg_place_compare((const void *const *)setup->gather.body, ranks));
    for (int rank = 0; rank < ranks; rank++) {
        memcpy(&state->hellos[rank], setup->gather.body[rank], sizeof(PlaceHello));
    }
    return kvg_place_measures(state->hellos, ranks) ? say_measured(setup) : cast(setup, take_memory(state->placement, state->hellos));
}

static KvgStatus take_share(PlaceState *state, void *const *bodies, int ranks)
{
    PlaceMeasure *measures;

    KVG_TRY(KVG_NEW((size_t)ranks, "a placement", &measures));
    for (int rank = 0; rank < ranks; rank++) {
        memcpy(&measures[rank], bodies[rank], sizeof *measures);
    }
    KvgStatus status = kvg_place_share(state->hellos, measures, ranks);
    kvg_free(measures);
    return status != KVG_OK ? status : take_memory(state->placement, state->hellos);
}

static KvgStatus phase_take_measured(KvgSetup *setup)
{
    PlaceState *state = setup->state;

    KVG_TRY(check_sizes(setup, sizeof(PlaceMeasure)));
    KVG_TRY(check_statuses(setup, state->local, state->local_why));
    return cast(setup, take_share(state, setup->gather.body, setup->grid->ranks));
}

/* ---- the last phase: vote */

static KvgStatus phase_vote(KvgSetup *setup, int *done)
{
    PlaceState *state = setup->state;

    KVG_TRY(check_sizes(setup, sizeof(uint64_t)));
    KVG_TRY(check_statuses(setup, state->local, state->local_why));
    state->placement->number = setup->grid->placed++;
    state->placement->next = setup->grid->placements;
    setup->grid->placements = state->placement;
    *state->target = state->placement;
    *done = 1;
    return KVG_OK;
}

static KvgStatus run(KvgSetup *setup, int *done)
{
    const PlaceState *state = setup->state;

    if (setup->phase == 0) {
        return phase_say(setup);
    }
    if (setup->phase == 1) {
        return phase_compare(setup);
    }
    return state->measured && !state->taken ? phase_take_measured(setup) : phase_vote(setup, done);
}

/* ---- freeing */

void kvg_placement_free(KvgPlacement *placement)
{
    if (placement == NULL) {
        return;
    }
    kvg_free(placement->sequences);
    kvg_free(placement->free_slots);
    kvg_free(placement->state_bytes);
    if (placement->store != NULL) {
        kvg_store_destroy(placement->store);
    }
    kvg_grid_plan_free(&placement->plan);
    free_copies(placement);
    if (placement->owns_device) {
        kvg_dev_close(&placement->device);
    }
    kvg_free(placement);
}

static void undo(KvgSetup *setup)
{
    PlaceState *state = setup->state;
    kvg_placement_free(state->placement);
    state->placement = NULL;
}

static void drop(KvgSetup *setup)
{
    kvg_free(((PlaceState *)setup->state)->hellos);
}

static KvgStatus make_state(KvgGrid *grid, const ModelConfig *config, const KvgPlaceOptions *options, PlaceState *state)
{
    KVG_TRY(KVG_NEW((size_t)grid->ranks, "a placement", &state->hellos));
    return kvg_place_make(grid, config, options, &state->placement);
}

/* ---- the calls */

KvgStatus kvg_place_start(KvgGrid *grid, const ModelConfig *config, const KvgPlaceOptions *options, KvgPlacement **placement,
                          KvgSetup **setup)
{
    static const KvgPlaceOptions defaults = KVG_PLACE_OPTIONS_INIT;
    KvgPlaceOptions              own;
    PlaceState                  *state;

    if (grid == NULL || config == NULL || config->plan.layers == NULL || options == NULL || placement == NULL || setup == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_place needs a grid, a loaded config, options, and places for what it makes");
    }
    KVG_TRY(kvg_grid_whole(grid));
    KVG_TRY(kvg_grid_no_hole(grid, "kvg_place"));
    KVG_TRY(kvg_grid_no_run(grid));
    KVG_TRY(kvg_setup_new(grid, "kvg_place", sizeof *state, setup));
    (*setup)->run = run;
    (*setup)->undo = undo;
    state = (*setup)->state;
    state->target = placement;
    /* A rank that cannot take part still walks the phases, so that the others learn of it instead of waiting. */
    (*setup)->drop = drop;
    state->local = KVG_SIZED_IN(KvgPlaceOptions, options, defaults, own);
    if (state->local == KVG_OK) {
        state->local = make_state(grid, config, &own, state);
    }
    if (state->local != KVG_OK) {
        snprintf(state->local_why, sizeof state->local_why, "%s", kvg_last_error());
    }
    return KVG_OK;
}

KvgStatus kvg_place(KvgGrid *grid, const ModelConfig *config, const KvgPlaceOptions *options, KvgPlacement **placement)
{
    KvgSetup *setup = NULL;
    return kvg_setup_finish(kvg_place_start(grid, config, options, placement, &setup), &setup);
}

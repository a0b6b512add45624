/* Grid plan, capacity.
 *
 *   scale k   k/2^20 sequences of T tokens
 *   units_c(k) = min(units_per_sequence_c * k / 2^20, cap_c)
 *   cap_c     slots * unit_cap_c: what `slots` sequences can ever book. Where the slots follow from the memory, only windowed
 *             classes have it: rows that are all kept can always use more.
 *
 * The pools are units_c of the largest k at which every rank can hold them beside its slots. Once the windowed classes are at
 * their caps, a growing k gives the rest of the memory to the others; when all are at their caps it stops. Where not even one
 * sequence of T tokens fits, T is replaced by the longest that does, so that the pools hold that one whole. */
#include "pp/grid_plan_capacity.h"

#include <string.h>

#include "runtime/base/checked.h"
#include "runtime/base/memory.h"

#define SCALE_ONE  (1ull << 20)
#define UNITS_MOST ((uint64_t)INT32_MAX) /* chunk ids are i32 */

typedef unsigned __int128 Wide;

typedef struct PlaneGroup { /* equal planes of one class on one stage: they are rounded up alike */
    uint32_t stage;
    uint32_t class_index;
    uint32_t planes;
    uint64_t unit_bytes;
} PlaneGroup;

typedef struct Capacity {
    KvGridPlan              *plan;
    const KvGridPlanOptions *options;
    PlaneGroup              *groups;
    uint32_t                 group_count;
    Wide                    *need; /* [pp] scratch */
} Capacity;

typedef struct Pools {
    uint64_t slots;
    uint64_t units[KVG_PLAN_CLASSES_MAX];
} Pools;

/* ---- what pools take */

static void add_plane(Capacity *capacity, uint32_t stage, uint32_t class_index, uint64_t unit_bytes)
{
    for (uint32_t g = capacity->group_count; g-- > 0 && capacity->groups[g].stage == stage;) {
        PlaneGroup *group = &capacity->groups[g];

        if (group->class_index == class_index && group->unit_bytes == unit_bytes) {
            group->planes++;
            return;
        }
    }
    capacity->groups[capacity->group_count++] = (PlaneGroup){ stage, class_index, 1, unit_bytes };
}

static void group_planes(Capacity *capacity, uint32_t layer_count, const GridShare *shares)
{
    const KvGridPlan *plan = capacity->plan;

    for (uint32_t stage = 0; stage < plan->pp; stage++) {
        uint32_t hi = stage == plan->pp - 1 ? layer_count : plan->fence[stage + 1];

        for (uint32_t il = plan->fence[stage]; il < hi; il++) {
            for (int plane = 0; plane < KVG_SHARE_PLANES_MAX; plane++) {
                if (shares[il].plane_unit_bytes[plane] != 0) {
                    add_plane(capacity, stage, plan->class_of_layer[il], shares[il].plane_unit_bytes[plane]);
                }
            }
        }
    }
}

static Wide group_bytes(const Capacity *capacity, const PlaneGroup *group, const Pools *pools)
{
    uint64_t granularity = capacity->options->granularity;
    uint64_t units = pools->units[group->class_index];
    Wide     bytes = (Wide)units * group->unit_bytes;

    if (granularity > 1 && capacity->options->layout == KVG_LAYOUT_FLAT) { /* each sequence's plane is rounded up by itself */
        bytes += (Wide)kvg_min_u64(pools->slots, units) * (granularity - 1);
    }
    if (granularity > 1) {
        bytes = (bytes + granularity - 1) / granularity * granularity;
    }
    return bytes * group->planes;
}

/* Whether every rank can hold the pools; if not, *limiting is the lowest that cannot. */
static int pools_fit(const Capacity *capacity, const Pools *pools, int32_t *limiting)
{
    const KvGridPlan *plan = capacity->plan;

    for (uint32_t stage = 0; stage < plan->pp; stage++) {
        capacity->need[stage] = (Wide)pools->slots * plan->ranks[stage * plan->tp].slot_bytes;
    }
    for (uint32_t g = 0; g < capacity->group_count; g++) {
        capacity->need[capacity->groups[g].stage] += group_bytes(capacity, &capacity->groups[g], pools);
    }
    for (uint32_t rank = 0; rank < plan->ranks_count; rank++) {
        if (capacity->need[rank / plan->tp] > plan->ranks[rank].state_bytes) {
            *limiting = (int32_t)rank;
            return 0;
        }
    }
    return 1;
}

/* ---- sequences */

/* Pools of exactly `count` sequences of `rows` rows. */
static Pools sequence_pools(const KvGridPlan *plan, uint64_t count, uint64_t rows, uint64_t slots)
{
    Pools pools = { .slots = slots };

    for (uint32_t c = 0; c < plan->class_count; c++) {
        pools.units[c] = count * kvg_class_plan_units(&plan->classes[c], rows);
    }
    return pools;
}

static int sequences_fit(const Capacity *capacity, uint64_t count, uint64_t rows, int32_t *limiting)
{
    uint64_t slots = capacity->options->max_sequences != 0 ? capacity->options->max_sequences : kvg_max_u64(count, 1);
    Pools    pools = sequence_pools(capacity->plan, count, rows, slots);

    for (uint32_t c = 0; c < capacity->plan->class_count; c++) {
        if (pools.units[c] > UNITS_MOST) {
            return 0;
        }
    }
    return pools_fit(capacity, &pools, limiting);
}

/* The longest single sequence of at most `rows` rows, in whole units; 0 if not even one unit fits. */
static uint64_t longest_sequence(const Capacity *capacity, uint64_t rows, int32_t *limiting)
{
    uint64_t fits = 0, fails = kvg_ceil_div_u64(rows, KVG_CHUNK_ROWS);

    while (fails - fits > 1) {
        uint64_t middle = fits + (fails - fits) / 2;

        if (sequences_fit(capacity, 1, middle * KVG_CHUNK_ROWS, limiting)) {
            fits = middle;
        } else {
            fails = middle;
        }
    }
    (void)sequences_fit(capacity, 1, kvg_min_u64(fails * KVG_CHUNK_ROWS, rows), limiting);
    return fits * KVG_CHUNK_ROWS;
}

/* How many sequences of `rows` rows fit with a slot each. One does. */
static uint64_t most_sequences(const Capacity *capacity, uint64_t rows, int32_t *limiting)
{
    uint64_t fits = 1, fails = 2;

    while (fails <= UNITS_MOST && sequences_fit(capacity, fails, rows, limiting)) {
        fits = fails;
        fails *= 2;
    }
    while (fails - fits > 1) {
        uint64_t middle = fits + (fails - fits) / 2;

        if (middle <= UNITS_MOST && sequences_fit(capacity, middle, rows, limiting)) {
            fits = middle;
        } else {
            fails = middle;
        }
    }
    (void)sequences_fit(capacity, fits + 1, rows, limiting);
    return fits;
}

/* ---- the scale */

typedef struct Scale {
    uint64_t slots;
    uint64_t per_sequence[KVG_PLAN_CLASSES_MAX]; /* units a sequence of T tokens books */
    uint64_t cap[KVG_PLAN_CLASSES_MAX];
} Scale;

/* Pools at scale k; *at_caps tells that a larger k would change nothing. */
static Pools scaled_pools(const KvGridPlan *plan, const Scale *scale, uint64_t k, int *at_caps)
{
    Pools pools = { .slots = scale->slots };

    *at_caps = 1;
    for (uint32_t c = 0; c < plan->class_count; c++) {
        Wide units = (Wide)scale->per_sequence[c] * k / SCALE_ONE;

        pools.units[c] = units < scale->cap[c] ? (uint64_t)units : scale->cap[c];
        *at_caps = *at_caps && pools.units[c] == scale->cap[c];
    }
    return pools;
}

static Scale make_scale(const Capacity *capacity, uint64_t rows, uint64_t slots)
{
    const KvGridPlan *plan = capacity->plan;
    Scale             scale = { .slots = slots };

    for (uint32_t c = 0; c < plan->class_count; c++) {
        const KvClassPlan *class_plan = &plan->classes[c];
        int                capped = class_plan->ring || capacity->options->max_sequences != 0;

        scale.per_sequence[c] = kvg_class_plan_units(class_plan, rows);
        scale.cap[c] = capped ? kvg_min_u64(slots * class_plan->unit_cap, UNITS_MOST) : UNITS_MOST;
    }
    return scale;
}

/* The pools of the largest k from `k` (which fits) on: gallop until something gives, then halve back. */
static Pools grow_scale(const Capacity *capacity, const Scale *scale, uint64_t k, int32_t *limiting)
{
    uint64_t fits = k, step = SCALE_ONE;
    int      at_caps, room = 1, ignored;
    Pools    best = scaled_pools(capacity->plan, scale, fits, &at_caps);

    while (room && !at_caps) {
        Pools next = scaled_pools(capacity->plan, scale, fits + step, &at_caps);

        room = pools_fit(capacity, &next, limiting);
        if (room) {
            best = next;
            fits += step;
            step *= 2;
        }
    }
    while (!room && step > 1) { /* k = fits + step does not fit */
        step /= 2;
        Pools next = scaled_pools(capacity->plan, scale, fits + step, &ignored);

        if (pools_fit(capacity, &next, limiting)) {
            best = next;
            fits += step;
        }
    }
    if (!room) { /* name the lowest rank that has no room for the very next step */
        Pools next = scaled_pools(capacity->plan, scale, fits + 1, &ignored);
        int   fitted = pools_fit(capacity, &next, limiting);
        KVG_ASSERT(!fitted);
    }
    return best;
}

/* ---- the answer in tokens */

static int has_slot_cost(const KvGridPlan *plan)
{
    for (uint32_t c = 0; c < plan->class_count; c++) {
        if (plan->classes[c].ring) {
            return 1;
        }
    }
    for (uint32_t stage = 0; stage < plan->pp; stage++) {
        if (plan->ranks[stage * plan->tp].slot_bytes != 0) {
            return 1;
        }
    }
    return plan->class_count == 0;
}

/* In sequences of T tokens: a fraction of one counts, but every class must hold it. */
static uint64_t pool_tokens(const KvGridPlan *plan, uint64_t rows)
{
    Wide tokens = (Wide)plan->slots * rows;

    for (uint32_t c = 0; c < plan->class_count; c++) {
        const KvClassPlan *class_plan = &plan->classes[c];
        Wide               held = (Wide)class_plan->units * rows / class_plan->units_per_sequence;

        tokens = c == 0 || held < tokens ? held : tokens;
    }
    return (uint64_t)tokens;
}

static uint64_t longest_context(const KvGridPlan *plan)
{
    uint64_t rows = plan->slots == 0 ? 0 : plan->max_ctx;

    for (uint32_t c = 0; c < plan->class_count; c++) {
        const KvClassPlan *class_plan = &plan->classes[c];

        if (class_plan->units < class_plan->unit_cap) {
            rows = kvg_min_u64(rows, (uint64_t)class_plan->units * KVG_CHUNK_ROWS);
        }
    }
    return rows;
}

static uint64_t whole_sequences(const KvGridPlan *plan)
{
    uint64_t count = plan->ctx > plan->max_ctx ? 0 : plan->slots;

    for (uint32_t c = 0; c < plan->class_count; c++) {
        count = kvg_min_u64(count, plan->classes[c].units / plan->classes[c].units_per_sequence);
    }
    return count;
}

static void publish_pools(KvGridPlan *plan, const Pools *pools, int free_slots, int32_t limiting)
{
    uint64_t slots = pools->slots;

    if (free_slots) { /* nothing is set aside for a slot: as many as there can be sequences of one unit */
        slots = UINT32_MAX;
        for (uint32_t c = 0; c < plan->class_count; c++) {
            slots = kvg_min_u64(slots, pools->units[c]);
        }
    }
    plan->slots = (uint32_t)slots;
    for (uint32_t c = 0; c < plan->class_count; c++) {
        plan->classes[c].units = (uint32_t)pools->units[c];
    }
    plan->cache_tokens = pool_tokens(plan, kvg_min_u64(plan->ctx, plan->max_ctx));
    plan->max_context = longest_context(plan);
    plan->max_sequences = whole_sequences(plan);
    plan->limiting_rank = limiting;
}

static void find_capacity(const Capacity *capacity)
{
    KvGridPlan *plan = capacity->plan;
    uint32_t    asked = capacity->options->max_sequences;
    uint64_t    rows = kvg_min_u64(plan->ctx, plan->max_ctx);
    uint64_t    count = 1, slots = asked;
    int32_t     limiting = -1;
    int         free_slots = asked == 0 && !has_slot_cost(plan);

    if (!sequences_fit(capacity, 1, rows, &limiting)) {
        rows = longest_sequence(capacity, rows, &limiting);
        if (rows == 0) {
            plan->limiting_rank = limiting; /* nothing fits: pools and slots stay empty */
            return;
        }
        slots = asked == 0 ? 1 : asked;
    } else if (asked == 0) {
        count = most_sequences(capacity, rows, &limiting);
        slots = count;
    } else {
        limiting = -1;
    }
    Scale scale = make_scale(capacity, rows, slots);
    Pools pools = grow_scale(capacity, &scale, count * SCALE_ONE, &limiting);
    publish_pools(plan, &pools, free_slots, limiting);
}

KvgStatus kvg_grid_capacity(const KvGridPlanOptions *options, uint32_t layer_count, const GridShare *shares, KvGridPlan *plan)
{
    Capacity  capacity = { .plan = plan, .options = options };
    KvgStatus status;

    KVG_TRY_GOTO(KVG_NEW((size_t)layer_count * KVG_SHARE_PLANES_MAX, "plane groups", &capacity.groups), done);
    KVG_TRY_GOTO(KVG_NEW(plan->pp, "stage needs", &capacity.need), done);
    group_planes(&capacity, layer_count, shares);
    find_capacity(&capacity);
done:
    kvg_free(capacity.need);
    kvg_free(capacity.groups);
    return status;
}

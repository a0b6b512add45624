/* Partition: see partition.h (S9). Two dynamic programmes over the same table of prefix sums.
 *
 * 1. worst[i]: the smallest largest share with which the first i layers fill the first s stages; its last entry is the
 *    bound that no stage of an optimal fence exceeds.
 * 2. squares[s][i]: under that bound, the smallest sum of squared loads with which stages s.. take layers i..n; read
 *    forward, taking the earliest cut that attains it, it gives the lexicographically smallest fence.
 * They cannot be one: a prefix with a larger share may still lead to fewer squares. Loads add up to less than 2^64
 * (checked), so the sum of their squares is below 2^128. */
#include <kvgrid/partition.h>

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "runtime/base/checked.h"
#include "runtime/base/memory.h"

__extension__ typedef unsigned __int128 U128;

#define SQUARES_NONE ((U128)-1) /* no way; a real sum is at most (2^64-1)^2 */

typedef struct Share {
    uint64_t load;
    uint64_t budget; /* 0: no way, larger than any share */
} Share;

typedef struct Problem {
    uint32_t        n, stages;
    uint64_t        first_extra, last_extra;
    const uint64_t *budgets;   /* NULL: equal */
    uint64_t       *prefix;    /* [n + 1] sums of cost */
    uint8_t        *cut_ok;    /* [n + 1] 1 where a stage may begin or end */
    Share          *worst[2];  /* [n + 1] each */
    U128           *squares;   /* [stages + 1][n + 1] */
} Problem;

static bool share_less(Share a, Share b)
{
    if (a.budget == 0 || b.budget == 0) return a.budget != 0;
    return (U128)a.load * b.budget < (U128)b.load * a.budget;
}

static uint64_t stage_load(const Problem *problem, uint32_t stage, uint32_t lo, uint32_t hi)
{
    uint64_t load = problem->prefix[hi] - problem->prefix[lo];
    if (stage == 0) load += problem->first_extra;
    if (stage == problem->stages - 1) load += problem->last_extra;
    return load;
}

static Share stage_share(const Problem *problem, uint32_t stage, uint32_t lo, uint32_t hi)
{
    return (Share){stage_load(problem, stage, lo, hi), problem->budgets != NULL ? problem->budgets[stage] : 1};
}

/* The best largest share of layers [0, hi) on stages [0, stage], given `before` for the stages below. Loads grow as the
 * stage reaches back, so the search ends where the stage alone is no better than what was found. */
static Share best_worst(const Problem *problem, const Share *before, uint32_t stage, uint32_t hi)
{
    Share best = {0, 0};
    for (uint32_t lo = hi; lo-- > stage;) {
        if (!problem->cut_ok[lo] || before[lo].budget == 0) continue;
        Share own = stage_share(problem, stage, lo, hi);
        if (!share_less(own, best)) break;
        Share worst = share_less(own, before[lo]) ? before[lo] : own;
        if (share_less(worst, best)) best = worst;
    }
    return best;
}

static Share smallest_bound(Problem *problem)
{
    Share *before = problem->worst[0], *after = problem->worst[1];
    memset(before, 0, sizeof *before * (problem->n + 1));
    before[0] = (Share){0, 1}; /* nothing placed: share 0 */
    for (uint32_t stage = 0; stage < problem->stages; stage++) {
        uint32_t last = problem->n - (problem->stages - 1 - stage); /* leave a layer for each later stage */
        memset(after, 0, sizeof *after * (problem->n + 1));
        for (uint32_t hi = stage + 1; hi <= last; hi++) {
            if (problem->cut_ok[hi]) after[hi] = best_worst(problem, before, stage, hi);
        }
        Share *swap = before;
        before = after;
        after = swap;
    }
    return before[problem->n];
}

/* The smallest sum of squares of stages [stage, stages) on layers [lo, n) under the bound, and the earliest cut that
 * attains it. */
static U128 best_squares(const Problem *problem, Share bound, uint32_t stage, uint32_t lo, uint32_t *cut)
{
    const U128 *later = problem->squares + (size_t)(stage + 1) * (problem->n + 1);
    U128 best = SQUARES_NONE;
    for (uint32_t hi = lo + 1; hi <= problem->n; hi++) {
        Share own = stage_share(problem, stage, lo, hi);
        if (share_less(bound, own)) break;
        if (!problem->cut_ok[hi] || later[hi] == SQUARES_NONE) continue;
        U128 sum = (U128)own.load * own.load + later[hi];
        if (sum < best) {
            best = sum;
            *cut = hi;
        }
    }
    return best;
}

static void fill_squares(Problem *problem, Share bound)
{
    size_t width = (size_t)problem->n + 1;
    U128 *rows = problem->squares;
    for (size_t i = 0; i < width * (problem->stages + 1); i++) rows[i] = SQUARES_NONE;
    rows[problem->stages * width + problem->n] = 0;
    for (uint32_t stage = problem->stages; stage-- > 0;) {
        uint32_t last = problem->n - (problem->stages - stage), cut;
        for (uint32_t lo = stage; lo <= last; lo++) {
            if (!problem->cut_ok[lo] || (stage == 0 && lo != 0)) continue;
            rows[stage * width + lo] = best_squares(problem, bound, stage, lo, &cut);
        }
    }
}

/* A fence exists, so every stage finds its cut again. */
static void read_fence(const Problem *problem, Share bound, uint32_t fence[], uint64_t loads[])
{
    fence[0] = 0;
    for (uint32_t stage = 0; stage < problem->stages; stage++) {
        uint32_t cut = 0;
        best_squares(problem, bound, stage, fence[stage], &cut);
        KVG_ASSERT(cut > fence[stage]);
        fence[stage + 1] = cut;
        if (loads != NULL) loads[stage] = stage_load(problem, stage, fence[stage], cut);
    }
    KVG_ASSERT(fence[problem->stages] == problem->n);
}

/* Names the first stage of the best fence that is over its budget. */
static KvgStatus check_budgets(const Problem *problem, Share bound)
{
    if (problem->budgets == NULL || bound.load <= bound.budget) return KVG_OK;
    uint32_t lo = 0, cut = 0;
    for (uint32_t stage = 0;; stage++, lo = cut) {
        KVG_ASSERT(stage < problem->stages); /* some stage attains the bound */
        best_squares(problem, bound, stage, lo, &cut);
        uint64_t load = stage_load(problem, stage, lo, cut);
        if (load <= problem->budgets[stage]) continue;
        return kvg_fail(KVG_ENOMEM, "stage %u needs %" PRIu64 " bytes for layers %u to %u and has %" PRIu64
                        " (the best cut of %u layers on %u stages); use more stages or memory, fewer tokens or a smaller "
                        "format", stage, load, lo, cut - 1, problem->budgets[stage], problem->n, problem->stages);
    }
}

static KvgStatus check_arguments(const Problem *problem)
{
    if (problem->stages < 1 || problem->stages > problem->n) {
        return kvg_fail(KVG_EINVAL, "%u layers on %u stages: every stage needs at least one layer; use 1 to %u stages",
                        problem->n, problem->stages, problem->n);
    }
    for (uint32_t stage = 0; problem->budgets != NULL && stage < problem->stages; stage++) {
        if (problem->budgets[stage] == 0) {
            return kvg_fail(KVG_EINVAL, "stage %u has a budget of 0: give every stage memory", stage);
        }
    }
    return KVG_OK;
}

static KvgStatus fill_prefix(Problem *problem, const uint64_t cost[])
{
    uint64_t sum = 0, total;
    bool fits = true;
    for (uint32_t i = 0; i < problem->n; i++) {
        fits = fits && kvg_add_u64(sum, cost[i], &sum);
        problem->prefix[i + 1] = sum;
    }
    fits = fits && kvg_add_u64(sum, problem->first_extra, &total) && kvg_add_u64(total, problem->last_extra, &total);
    if (fits) return KVG_OK;
    return kvg_fail(KVG_EOVERFLOW, "the costs of %u layers and the extras %" PRIu64 " and %" PRIu64
                    " add up past 64 bits; pass them in a larger unit", problem->n, problem->first_extra,
                    problem->last_extra);
}

static void fill_cuts(Problem *problem, const uint32_t forbidden[], uint32_t forbidden_count)
{
    memset(problem->cut_ok, 1, (size_t)problem->n + 1);
    for (uint32_t i = 0; i < forbidden_count; i++) {
        if (forbidden[i] > 0 && forbidden[i] < problem->n) problem->cut_ok[forbidden[i]] = 0;
    }
}

static KvgStatus solve(Problem *problem, uint32_t fence[], uint64_t loads[])
{
    Share bound = smallest_bound(problem);
    if (bound.budget == 0) {
        return kvg_fail(KVG_EGEOM, "%u layers on %u stages: the forbidden cuts leave too few; use fewer stages",
                        problem->n, problem->stages);
    }
    fill_squares(problem, bound);
    KVG_TRY(check_budgets(problem, bound));
    read_fence(problem, bound, fence, loads);
    return KVG_OK;
}

static void problem_free(Problem *problem)
{
    kvg_free(problem->squares);
    kvg_free(problem->worst[1]);
    kvg_free(problem->worst[0]);
    kvg_free(problem->cut_ok);
    kvg_free(problem->prefix);
}

static KvgStatus problem_alloc(Problem *problem)
{
    size_t width = (size_t)problem->n + 1;
    KVG_TRY(KVG_NEW(width, "partition sums", &problem->prefix));
    KVG_TRY(KVG_NEW(width, "partition cuts", &problem->cut_ok));
    KVG_TRY(KVG_NEW(width, "partition shares", &problem->worst[0]));
    KVG_TRY(KVG_NEW(width, "partition shares", &problem->worst[1]));
    return KVG_NEW(width * ((size_t)problem->stages + 1), "partition squares", &problem->squares);
}

KvgStatus kvg_partition(const uint64_t cost[], uint32_t n, uint32_t stages, uint64_t first_extra, uint64_t last_extra,
                        const uint64_t budgets[], const uint32_t forbidden[], uint32_t forbidden_count, uint32_t fence[],
                        uint64_t loads[])
{
    Problem problem = {.n = n, .stages = stages, .first_extra = first_extra, .last_extra = last_extra, .budgets = budgets};
    KvgStatus status;
    KVG_TRY(check_arguments(&problem));
    KVG_TRY_GOTO(problem_alloc(&problem), out_free);
    KVG_TRY_GOTO(fill_prefix(&problem, cost), out_free);
    fill_cuts(&problem, forbidden, forbidden_count);
    status = solve(&problem, fence, loads);
out_free:
    problem_free(&problem);
    return status;
}

uint32_t kvg_fence_stage(const uint32_t fence[], uint32_t stages, uint32_t layer)
{
    uint32_t lo = 0, hi = stages; /* fence[lo] <= layer, unless layer is past the end */
    if (layer >= fence[stages]) return stages - 1;
    while (hi - lo > 1) {
        uint32_t middle = lo + (hi - lo) / 2;
        if (fence[middle] <= layer) {
            lo = middle;
        } else {
            hi = middle;
        }
    }
    return lo;
}

KvgStatus kvg_fence_check(const uint32_t fence[], uint32_t stages, uint32_t n)
{
    if (stages < 1 || stages > n) {
        return kvg_fail(KVG_EINVAL, "a fence of %u stages for %u layers: use 1 to %u stages", stages, n, n);
    }
    if (fence[0] != 0 || fence[stages] != n) {
        return kvg_fail(KVG_EINVAL, "a fence from %u to %u: it must run from 0 to the %u layers", fence[0], fence[stages], n);
    }
    for (uint32_t stage = 0; stage < stages; stage++) {
        if (fence[stage] < fence[stage + 1]) continue;
        return kvg_fail(KVG_EINVAL, "fence entry %u is %u after %u: entries must ascend, a stage owns at least one layer",
                        stage + 1, fence[stage + 1], fence[stage]);
    }
    return KVG_OK;
}

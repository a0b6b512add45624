#include "pp/placed.h"

#include <inttypes.h>

#include <kvgrid/accounts.h>
#include <kvgrid/ring.h>

#include "pp/grid_plan_classes.h"
#include "pp/place.h"
#include "runtime/base/checked.h"

void kvg_placed_free(Placed *placed)
{
    kvg_free(placed->ranks);
    placed->ranks = NULL;
}

KvClassPlan kvg_placed_class(const Placed *placed, uint32_t class_index)
{
    const PlacedClass *from = &placed->classes[class_index];

    return (KvClassPlan){ .kind = (KvStateKind)from->kind, .window = from->window, .ring = from->ring != 0, .row_cap = from->row_cap,
                          .unit_cap = (uint32_t)from->unit_cap, .units = (uint32_t)from->units,
                          .units_per_sequence = (uint32_t)from->units_per_sequence, .layers = (uint32_t)from->layers };
}

uint32_t kvg_placed_classes(const Placed *placed, KvClassGeometry *classes)
{
    for (uint32_t c = 0; c < placed->class_count; c++) {
        KvClassPlan plan = kvg_placed_class(placed, c);
        classes[c] = kvg_place_class(&plan, (uint32_t)placed->classes[c].units_max);
    }
    if (placed->class_count == 0) {
        classes[0] = kvg_place_lengths_class(placed->max_ctx, (uint32_t)placed->max_sequences);
    }
    return placed->class_count > 0 ? placed->class_count : 1;
}

/* ---- from a placement */

static void fill_class(const KvgPlacement *placement, uint32_t c, PlacedClass *to)
{
    const KvClassPlan *from = &placement->plan.classes[c];

    *to = (PlacedClass){ .kind = from->kind, .window = from->window, .ring = from->ring != 0, .row_cap = from->row_cap,
                         .unit_cap = from->unit_cap, .units = from->units, .units_max = kvg_store_class(placement->store, c)->units_max,
                         .units_per_sequence = from->units_per_sequence, .layers = from->layers };
}

static void fill_rank(const KvgPlacement *placement, uint32_t r, PlacedRank *to)
{
    const KvRankPlan *from = &placement->plan.ranks[r];

    *to = (PlacedRank){ .rank = r, .stage = from->stage, .layer_first = from->lo, .layer_end = from->hi,
                        .bytes_per_token = from->bytes_per_token, .state_bytes = placement->state_bytes[r], .slot_bytes = from->slot_bytes };
    for (uint32_t c = 0; c < placement->plan.class_count; c++) {
        to->unit_bytes[c] = from->class_unit_bytes[c];
    }
}

static KvgStatus fill(const KvgPlacement *placement, Placed *placed)
{
    const KvGridPlan *plan = &placement->plan;

    *placed = (Placed){ .tp = plan->tp, .pp = plan->pp, .layout = placement->options.layout, .max_ctx = plan->max_ctx, .ctx = plan->ctx,
                        .prefill_chunk_max = plan->prefill_chunk_max, .max_sequences = placement->options.max_sequences,
                        .max_step_sequences = placement->grid->votes->max_step_sequences, .max_in_flight = placement->grid->window,
                        .columns = kvg_store_columns(placement->store), .index_pool = kvg_store_index_pool(placement->store),
                        .index_ring = kvg_store_index_ring(placement->store), .cache_tokens = plan->cache_tokens,
                        .max_context = plan->max_context, .class_count = plan->class_count };
    KVG_TRY(KVG_NEW(plan->ranks_count, "a placement's text", &placed->ranks));
    for (uint32_t c = 0; c < plan->class_count; c++) {
        fill_class(placement, c, &placed->classes[c]);
    }
    for (uint32_t r = 0; r < plan->ranks_count; r++) {
        fill_rank(placement, r, &placed->ranks[r]);
    }
    return KVG_OK;
}

KvgStatus kvg_placement_to_json(const KvgPlacement *placement, char *text, size_t room, size_t *bytes)
{
    Placed    placed;
    KvgStatus status;

    if (placement == NULL || bytes == NULL || (text == NULL && room > 0)) {
        return kvg_fail(KVG_EINVAL, "kvg_placement_to_json needs a placement, a place for the count, and room for the text or none");
    }
    KVG_TRY(fill(placement, &placed));
    status = kvg_placed_write(&placed, text, room, bytes);
    kvg_placed_free(&placed);
    return status;
}

KvgStatus kvg_ledger_from_json(const char *text, size_t bytes, KvgLedger *ledger)
{
    Placed placed;

    if (text == NULL || ledger == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_ledger_from_json needs a text and a place for the ledger");
    }
    KVG_TRY(kvg_placed_parse(text, bytes, &placed));
    *ledger = (KvgLedger){ .size = sizeof *ledger, .class_count = placed.class_count, .slots_total = (uint32_t)placed.max_sequences,
                           .slots_free = (uint32_t)placed.max_sequences, .max_ctx = placed.max_ctx };
    for (uint32_t c = 0; c < placed.class_count; c++) {
        ledger->classes[c] = kvg_placed_class(&placed, c);
        ledger->units_free[c] = ledger->classes[c].units;
    }
    kvg_placed_free(&placed);
    return KVG_OK;
}

/* ---- judging one that was read */

static KvgStatus odd(const char *where, uint32_t index, const char *member, uint64_t value, const char *why, uint64_t fit)
{
    return kvg_fail(KVG_EFORMAT, "placement: %s[%u].%s is %" PRIu64 "; %s %" PRIu64, where, index, member, value, why, fit);
}

static KvgStatus check_class(const Placed *placed, uint32_t c)
{
    const PlacedClass *class = &placed->classes[c];
    KvClassPlan        caps = kvg_placed_class(placed, c);

    if ((class->kind == KVG_STATE_SLIDING_KV) != (class->window != 0)) {
        return odd("classes", c, "window", class->window, "a sliding class has one and no other, and this is class", c);
    }
    if (class->ring && class->window == 0) {
        return odd("classes", c, "ring", class->ring, "a ring needs a window, and the window is", class->window);
    }
    if (class->ring && placed->prefill_chunk_max > KVG_PRIME_CHUNK_MAX_TOKENS) {
        return odd("classes", c, "ring", class->ring, "with a prefill_chunk_max above 4096, which is", placed->prefill_chunk_max);
    }
    KVG_TRY(kvg_class_plan_caps((KvLayout)placed->layout, placed->max_ctx, placed->ctx, (uint32_t)placed->prefill_chunk_max, &caps));
    if (class->row_cap != caps.row_cap) {
        return odd("classes", c, "row_cap", class->row_cap, "its window, max_ctx and prefill_chunk_max give", caps.row_cap);
    }
    if (class->unit_cap != caps.unit_cap) {
        return odd("classes", c, "unit_cap", class->unit_cap, "its row_cap gives", caps.unit_cap);
    }
    if (class->units_per_sequence != caps.units_per_sequence) {
        return odd("classes", c, "units_per_sequence", class->units_per_sequence, "ctx gives", caps.units_per_sequence);
    }
    return class->units <= class->units_max ? KVG_OK : odd("classes", c, "units", class->units, "units_max is", class->units_max);
}

static KvgStatus check_rank(const Placed *placed, uint32_t r)
{
    const PlacedRank *rank = &placed->ranks[r];

    if (rank->rank != r) {
        return odd("ranks", r, "rank", rank->rank, "ranks stand in their order, so this is", r);
    }
    if (rank->stage != r / placed->tp) {
        return odd("ranks", r, "stage", rank->stage, "rank / tp is", r / placed->tp);
    }
    return rank->layer_first <= rank->layer_end ? KVG_OK : odd("ranks", r, "layer_first", rank->layer_first, "layer_end is", rank->layer_end);
}

KvgStatus kvg_placed_check(const Placed *placed)
{
    if (placed->columns == 1) {
        return kvg_fail(KVG_EFORMAT, "placement: columns is 1; recurrent state has at least 2, a model without it 0");
    }
    if (placed->index_pool != 0 && KVG_CHUNK_ROWS % placed->index_pool != 0) {
        return kvg_fail(KVG_EFORMAT, "placement: index_pool is %" PRIu64 ", which does not divide %d", placed->index_pool, KVG_CHUNK_ROWS);
    }
    for (uint32_t c = 0; c < placed->class_count; c++) {
        KVG_TRY(check_class(placed, c));
    }
    for (uint32_t r = 0; r < kvg_placed_ranks(placed); r++) {
        KVG_TRY(check_rank(placed, r));
    }
    return KVG_OK;
}

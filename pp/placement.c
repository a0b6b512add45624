/* Placement: looking at what was placed, counting it, ending it. */
#include "pp/voted.h"

const KvGridPlan *kvg_placement_plan(const KvgPlacement *placement)
{
    return &placement->plan;
}

void kvg_placement_layers(const KvgPlacement *placement, uint32_t *lo, uint32_t *hi)
{
    *lo = placement->lo;
    *hi = placement->hi;
}

const KvPlaneView *kvg_placement_view(const KvgPlacement *placement, uint32_t il)
{
    const KvPlaneView *view = kvg_store_shown_view(placement->store, il);

    if (view == NULL) {
        kvg_fail(KVG_EINVAL, "layer %u has no K/V rows on rank %d, whose layers are [%u, %u): a latent layer is written by kvg_write_latent, a recurrent "
                 "one by kvg_recurrent_update", il, placement->grid->rank, placement->lo, placement->hi);
    }
    return view;
}

KvgStatus kvg_placement_flush(KvgPlacement *placement, KvgStream stream)
{
    return kvg_store_flush(placement->store, stream);
}

void kvg_placement_ledger(const KvgPlacement *placement, KvgLedger *ledger)
{
    const KvGridPlan *plan = &placement->plan;

    *ledger = (KvgLedger){ .size = sizeof *ledger, .class_count = plan->class_count, .slots_total = placement->options.max_sequences,
                           .slots_free = placement->free_count, .max_ctx = plan->max_ctx };
    for (uint32_t c = 0; c < plan->class_count; c++) {
        ledger->classes[c] = plan->classes[c];
        ledger->units_free[c] = kvg_store_units_free(placement->store, c);
    }
}

void kvg_placement_destroy(KvgPlacement *placement)
{
    if (placement == NULL) {
        return;
    }
    if (placement->batches != 0) {
        kvg_log(KVG_LOG_ERROR, "a placement was to be destroyed before its batches (%u), and stays", placement->batches);
        (void)kvg_fail(KVG_EBUSY, "%u batch(es) of the placement stand on it, and it was not destroyed: kvg_batch_destroy them first", placement->batches);
        return;
    }
    const Voted *cast = placement->grid->cast != NULL ? placement->grid->cast->state : NULL;
    if (cast != NULL && (cast->placement == placement || cast->placement == NULL)) { /* a rebuild names them all */
        kvg_voted_resolve(placement->grid, 0);
    }
    kvg_snapshots_empty(placement);
    for (uint32_t i = 0; i < placement->options.max_sequences; i++) {
        if (placement->sequences[i].open) {
            kvg_sequence_drop(&placement->sequences[i], NULL);
        }
    }
    for (KvgPlacement **link = &placement->grid->placements; *link != NULL; link = &(*link)->next) {
        if (*link == placement) {
            *link = placement->next;
            break;
        }
    }
    kvg_votes_forget(placement->grid->votes, placement);
    kvg_placement_free(placement);
}

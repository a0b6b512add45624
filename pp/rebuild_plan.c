/* Rebuild, plan: what becomes of each sequence follows from what the survivors said and from who holds which shard, on every rank alike. */
#include "pp/rebuild_impl.h"

#include <string.h>

/* ---- one list of all that any survivor has open */

typedef struct Merge {
    const KvgSetup *setup;
    uint64_t       *at; /* [ranks] how far each survivor's list has been taken */
} Merge;

static const RebuildSequence *head_of(const Merge *merge, int rank)
{
    const RebuildState *state = merge->setup->state;

    if (!state->survivor[rank] || merge->at[rank] == kvg_rebuild_hello(state, rank)->sequences) {
        return NULL;
    }
    return kvg_rebuild_sequence(state, merge->setup->grid->ranks, rank, merge->at[rank]);
}

static int is_before(const RebuildSequence *a, const RebuildSequence *b)
{
    return b == NULL || a->placement < b->placement || (a->placement == b->placement && a->id < b->id);
}

static int is_same(const RebuildSequence *a, const RebuildSequence *b)
{
    return a->placement == b->placement && a->id == b->id;
}

/* Takes the next sequence off all lists that have it. 0: the lists are through. */
static int take_next(Merge *merge, RebuildEntry *entry)
{
    const RebuildState    *state = merge->setup->state;
    const RebuildSequence *first = NULL;
    int                    have = 0;

    for (int rank = merge->setup->grid->ranks - 1; rank >= 0; rank--) {
        const RebuildSequence *head = head_of(merge, rank);
        if (head != NULL && (first == NULL || !is_before(first, head))) {
            first = head; /* of equals the lowest rank's */
            entry->index = merge->at[rank];
        }
    }
    if (first == NULL) {
        return 0;
    }
    entry->said = first;
    entry->rows = first->place.len;
    for (int rank = 0; rank < merge->setup->grid->ranks; rank++) {
        const RebuildSequence *head = head_of(merge, rank);
        if (head != NULL && is_same(head, first)) {
            entry->rows = head->place.len < entry->rows ? head->place.len : entry->rows;
            merge->at[rank]++;
            have++;
        }
    }
    entry->everywhere = have == state->survivors;
    return 1;
}

static int shares_differ(const KvgSetup *setup, int rank, int other)
{
    RebuildAccount a, b;

    kvg_rebuild_account_of(setup, rank, &a);
    kvg_rebuild_account_of(setup, other, &b);
    return a.share_count != b.share_count || memcmp(a.shares, b.shares, a.share_count * sizeof *a.shares) != 0;
}

/* Lists that differ although the posted calls were the same: what is there cannot be told apart either. */
static int lists_differ(const KvgSetup *setup)
{
    const RebuildState *state = setup->state;
    int                 first = -1, ranks = setup->grid->ranks;

    for (int rank = 0; rank < ranks; rank++) {
        if (!state->survivor[rank]) {
            continue;
        }
        first = first < 0 ? rank : first;
        if (kvg_rebuild_hello(state, rank)->sequences != kvg_rebuild_hello(state, first)->sequences) {
            return 1;
        }
        if (shares_differ(setup, rank, first)) {
            return 1;
        }
        for (uint64_t i = 0; i < kvg_rebuild_hello(state, rank)->sequences; i++) {
            if (memcmp(kvg_rebuild_sequence(state, ranks, rank, i), kvg_rebuild_sequence(state, ranks, first, i), sizeof(RebuildSequence)) != 0) {
                return 1;
            }
        }
    }
    return 0;
}

/* ---- what is lost of it */

/* A newcomer is sent layers whole: each by one survivor that has the same share of it. */
static KvLostShard unsent_shard(const KvgSetup *setup, const KvgPlacement *placement)
{
    const RebuildState *state = setup->state;

    for (int rank = 0; rank < setup->grid->ranks; rank++) {
        const KvRankPlan *plan = &placement->plan.ranks[rank];
        int               image = kvg_shard_image_donor(placement, state->survivor, rank);
        for (uint32_t il = plan->lo; !state->survivor[rank] && il < plan->hi; il++) {
            int recurrent = placement->config.plan.layers[il].kind == KVG_STATE_RECURRENT;
            if (kvg_shard_keeps(placement, il) && (recurrent ? image : kvg_shard_donor(placement, state->survivor, rank, il)) < 0) {
                return (KvLostShard){ 1, il, 0, rank };
            }
        }
    }
    return (KvLostShard){ .rank = -1 };
}

static KvLostShard lost_shard(const KvgSetup *setup, const KvgPlacement *placement)
{
    const RebuildState *state = setup->state;
    KvLostShard         shard = kvg_shard_lost(placement, state->survivor);

    return !shard.lost && state->newcomers > 0 ? unsent_shard(setup, placement) : shard;
}

static KvgLoss loss_of(const KvgSetup *setup, RebuildEntry *entry)
{
    const RebuildState *state = setup->state;
    KvLostShard         shard = lost_shard(setup, kvg_rebuild_placement(setup, entry->said->placement));

    if (entry->said->tainted) {
        return KVG_LOSS_TAINTED;
    }
    if (state->apart) {
        return KVG_LOSS_CALLS;
    }
    if (shard.lost && entry->rows > 0) {
        entry->shard = shard;
        return KVG_LOSS_SHARD;
    }
    return KVG_LOSS_NONE;
}

static KvgSequence *find_sequence(KvgPlacement *placement, uint64_t id)
{
    for (uint32_t i = 0; placement->sequences != NULL && i < placement->options.max_sequences; i++) {
        if (placement->sequences[i].open && placement->sequences[i].id == id) {
            return &placement->sequences[i];
        }
    }
    return NULL;
}

static KvgStatus fill(const KvgSetup *setup, Merge *merge)
{
    RebuildState *state = setup->state;
    RebuildEntry  entry = { 0 };
    uint64_t      most = 0;

    for (int rank = 0; rank < setup->grid->ranks; rank++) {
        most += state->survivor[rank] ? kvg_rebuild_hello(state, rank)->sequences : 0;
    }
    KVG_TRY(KVG_NEW(most, "rebuilding", &state->entries));
    while (take_next(merge, &entry)) {
        RebuildEntry *kept = &state->entries[state->entry_count++];
        *kept = entry;
        kept->shard = (KvLostShard){ .rank = -1 };
    }
    for (uint32_t i = 0; i < state->entry_count; i++) {
        RebuildEntry *one = &state->entries[i];
        one->loss = loss_of(setup, one);
        one->sequence = find_sequence(kvg_rebuild_placement(setup, one->said->placement), one->said->id);
    }
    return KVG_OK;
}

KvgStatus kvg_rebuild_plan(KvgSetup *setup)
{
    RebuildState *state = setup->state;
    Merge         merge = { setup, NULL };
    int           first = 0;

    while (!state->survivor[first]) {
        first++;
    }
    state->apart |= lists_differ(setup);
    state->running_after = kvg_mix64((state->apart ? kvg_rebuild_hello(state, first)->epoch : kvg_rebuild_hello(state, first)->running) ^
                                     kvg_name_hash("kvg_grid_rebuild"));
    KVG_TRY(KVG_NEW((size_t)setup->grid->ranks, "rebuilding", &merge.at));
    KvgStatus status = fill(setup, &merge);
    kvg_free(merge.at);
    return status;
}

KvgStatus kvg_rebuild_check_shards(const KvgSetup *setup)
{
    const RebuildState *state = setup->state;

    for (uint64_t i = 0; state->newcomers == 0 && !state->joins && i < kvg_rebuild_hello(state, setup->grid->rank)->placements; i++) {
        const KvgPlacement *placement = kvg_rebuild_placement(setup, i);
        KvLostShard         shard = kvg_shard_lost(placement, state->survivor);
        if (shard.lost) {
            return kvg_fail(KVG_EGEOM, "the grid cannot go on without rank %d: no survivor has head %u of layer %u (%s); rebuild with a new process in its "
                            "place, or destroy the grid and make one over the survivors: the report has the lengths", shard.rank, shard.head, shard.layer,
                            placement->config.name);
        }
    }
    return KVG_OK;
}

/* ---- the report */

static void fill_one(const KvgSetup *setup, const RebuildEntry *entry, KvgRebuiltSequence *sequence)
{
    *sequence = (KvgRebuiltSequence){
        .placement = kvg_rebuild_placement(setup, entry->said->placement),
        .sequence = entry->everywhere ? entry->sequence : NULL,
        .id = entry->said->id,
        .rows = entry->rows,
        .rows_held = entry->loss == KVG_LOSS_NONE ? entry->rows : 0,
        .loss = entry->loss,
        .lost_layer = entry->shard.layer,
        .lost_head = entry->shard.head,
        .lost_rank = entry->shard.rank,
    };
}

KvgStatus kvg_rebuild_report(const KvgSetup *setup, KvgRebuildReport **report_p)
{
    const RebuildState *state = setup->state;
    void               *memory = NULL, *sequences = NULL;
    KvgRebuildReport   *report;
    KvgStatus           status;

    KVG_TRY(kvg_calloc(1, sizeof *report, "a rebuild's report", &memory));
    status = kvg_calloc(state->entry_count, sizeof *report->sequences, "a rebuild's report", &sequences);
    if (status != KVG_OK) {
        kvg_free(memory);
        return status;
    }
    report = memory;
    *report = (KvgRebuildReport){ .size = sizeof *report, .epoch = setup->grid->epoch, .count = state->entry_count, .joined = state->newcomers,
                                  .sequences = sequences };
    for (uint32_t i = 0; i < report->count; i++) {
        fill_one(setup, &state->entries[i], &report->sequences[i]);
        report->kept += report->sequences[i].loss == KVG_LOSS_NONE;
    }
    *report_p = report;
    return KVG_OK;
}

void kvg_rebuild_report_free(KvgRebuildReport *report)
{
    if (report != NULL) {
        kvg_free(report->sequences);
        kvg_free(report);
    }
}

/* ---- making it so */

void kvg_rebuild_apply(KvgSetup *setup)
{
    const RebuildState *state = setup->state;

    for (uint32_t i = 0; i < state->entry_count; i++) {
        const RebuildEntry *entry = &state->entries[i];
        KvgSequence        *sequence = entry->sequence;
        if (sequence == NULL || !sequence->open || sequence->id != entry->said->id) {
            continue; /* closed while the rebuild was in doubt */
        }
        if (!entry->everywhere) {
            kvg_sequence_drop(sequence, NULL);
        } else if (entry->loss != KVG_LOSS_NONE) {
            kvg_sequence_reset(sequence);
        }
    }
}

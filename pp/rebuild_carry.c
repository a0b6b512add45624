/* Rebuild, carry: rows that survivors send to newcomers. One newcomer after the other, of each one sequence after the other, pieces of at most
 * KVG_CARRY_PIECE bytes, each one exchange: how many follows from what all have said, so every rank walks the same number of them.
 *
 * What fails here on one rank (its device, its memory) is remembered and told by the vote at the end: nobody waits for it. */
#include "pp/rebuild_impl.h"

#include <stdio.h>
#include <string.h>

void kvg_rebuild_sends(const KvgSetup *setup, const KvgPlacement *placement, int rank, int to, uint8_t *mine, int *image)
{
    const RebuildState *state = setup->state;
    const KvRankPlan   *plan = &placement->plan.ranks[to];
    uint32_t            layers = placement->config.plan.n_layer + placement->config.plan.n_mtp;

    memset(mine, 0, layers);
    for (uint32_t il = plan->lo; il < plan->hi; il++) {
        mine[il] = kvg_shard_donor(placement, state->survivor, to, il) == rank;
    }
    *image = kvg_shard_image_donor(placement, state->survivor, to) == rank;
}

static int is_here(const KvgSetup *setup)
{
    const RebuildState *state = setup->state;

    return setup->grid->rank == state->to;
}

static uint64_t stream_of(const KvgSetup *setup, int rank)
{
    const RebuildState *state = setup->state;

    return state->survivor[rank] ? kvg_rebuild_stream(state, setup->grid->ranks, rank, state->entries[state->entry].index, state->to) : 0;
}

static uint64_t pieces_of_entry(const KvgSetup *setup)
{
    const RebuildState *state = setup->state;
    uint64_t            most = 0;

    if (state->entries[state->entry].loss != KVG_LOSS_NONE) {
        return 0;
    }
    for (int rank = 0; rank < setup->grid->ranks; rank++) {
        uint64_t pieces = (stream_of(setup, rank) + KVG_CARRY_PIECE - 1) / KVG_CARRY_PIECE;
        most = pieces > most ? pieces : most;
    }
    return most;
}

/* ---- walks of the current entry */

static void end_walks(RebuildState *state, int ranks)
{
    for (int rank = 0; state->walks != NULL && rank < ranks; rank++) {
        kvg_carry_end(&state->walks[rank]);
    }
    if (state->walks != NULL) {
        memset(state->walks, 0, (size_t)ranks * sizeof *state->walks);
    }
}

static void note(RebuildState *state, KvgStatus status)
{
    if (status != KVG_OK && state->copied == KVG_OK) {
        state->copied = status;
        snprintf(state->copied_why, sizeof state->copied_why, "%s", kvg_last_error());
    }
}

static KvgStatus begin_walk(const KvgSetup *setup, int rank)
{
    RebuildState       *state = setup->state;
    const RebuildEntry *entry = &state->entries[state->entry];
    const KvgPlacement *placement = kvg_rebuild_placement(setup, entry->said->placement);
    uint32_t            layers = placement->config.plan.n_layer + placement->config.plan.n_mtp;
    uint8_t            *mine = state->mine + (size_t)rank * layers;
    RebuildAccount      account;
    KvCarryPart         part;
    int                 image;

    kvg_rebuild_sends(setup, placement, rank, state->to, mine, &image);
    kvg_rebuild_account_of(setup, rank, &account);
    kvg_rebuild_part(&account, entry->index, &part);
    return kvg_carry_begin(&entry->sequence->cache, &part, mine, image, !is_here(setup), &state->walks[rank]);
}

/* The sender has one walk, the receiver one for each sender. */
static void begin_walks(const KvgSetup *setup)
{
    RebuildState *state = setup->state;

    for (int rank = 0; rank < setup->grid->ranks; rank++) {
        if ((rank == setup->grid->rank || is_here(setup)) && stream_of(setup, rank) > 0) {
            note(state, begin_walk(setup, rank));
        }
    }
}

/* Moves on to the next piece that is to be sent; 0: all are. */
static int find_piece(const KvgSetup *setup)
{
    RebuildState *state = setup->state;

    for (; state->to < setup->grid->ranks; state->to++, state->entry = 0) {
        for (; !state->survivor[state->to] && state->entry < state->entry_count; state->entry++, state->piece = 0) {
            if (state->piece < pieces_of_entry(setup)) {
                return 1;
            }
            end_walks(state, setup->grid->ranks);
        }
    }
    return 0;
}

int kvg_rebuild_carry_left(KvgSetup *setup)
{
    const RebuildState *state = setup->state;

    return state->receiving || (state->newcomers > 0 && find_piece(setup));
}

/* ---- pieces */

static void store_from(const KvgSetup *setup, int rank)
{
    RebuildState *state = setup->state;
    KvCarryWalk  *walk = &state->walks[rank];
    size_t        bytes = setup->gather.bytes[rank], done = 0;

    if (state->copied != KVG_OK || walk->cache == NULL || bytes == 0) {
        return; /* a sender that failed sends nothing, and votes no */
    }
    uint64_t expected = kvg_min_u64(KVG_CARRY_PIECE, stream_of(setup, rank) - walk->done);
    if (bytes != expected) {
        note(state, kvg_fail(KVG_ELAYOUT, "the grid was not rebuilt: rank %d sent %zu bytes of rows where %llu belong; run one version of kvgrid everywhere", rank,
                             bytes, (unsigned long long)expected));
        return;
    }
    note(state, kvg_carry_write(walk, setup->gather.body[rank], bytes, &done));
    if (state->copied == KVG_OK && walk->done == stream_of(setup, rank)) {
        note(state, kvg_carry_arrived(walk));
    }
}

static void store_piece(const KvgSetup *setup)
{
    for (int rank = 0; is_here(setup) && rank < setup->grid->ranks; rank++) {
        if (((RebuildState *)setup->state)->survivor[rank]) {
            store_from(setup, rank);
        }
    }
}

static KvgStatus send_piece(KvgSetup *setup)
{
    RebuildState *state = setup->state;
    KvCarryWalk  *walk = &state->walks[setup->grid->rank];
    size_t        bytes = 0;

    memset(state->receiver, 0, (size_t)setup->grid->ranks);
    state->receiver[state->to] = 1;
    if (!is_here(setup) && walk->cache != NULL && state->copied == KVG_OK) {
        KvCarryWalk before = *walk; /* sent again if it cannot go now */
        note(state, kvg_carry_read(walk, state->buffer, KVG_CARRY_PIECE, &bytes));
        KvgStatus status = kvg_setup_gather_to(setup, state->receiver, state->buffer, state->copied == KVG_OK ? bytes : 0);
        if (status != KVG_OK) {
            *walk = before;
        }
        return status;
    }
    return kvg_setup_gather_to(setup, state->receiver, "", 0);
}

KvgStatus kvg_rebuild_carry(KvgSetup *setup)
{
    RebuildState *state = setup->state;

    if (state->receiving) {
        store_piece(setup);
        state->receiving = 0;
        state->piece++;
    }
    if (!find_piece(setup)) {
        return KVG_OK;
    }
    if (state->piece == 0) {
        end_walks(state, setup->grid->ranks);
        begin_walks(setup);
    }
    KvgStatus status = send_piece(setup);
    state->receiving = status == KVG_OK;
    return status;
}

KvgStatus kvg_rebuild_carry_prepare(KvgSetup *setup)
{
    RebuildState *state = setup->state;
    size_t        ranks = (size_t)setup->grid->ranks;
    uint32_t      most = 1;
    void         *memory = NULL;

    if (!kvg_rebuild_carry_left(setup)) {
        return KVG_OK;
    }
    for (uint32_t i = 0; i < state->entry_count; i++) {
        const ModelPlan *plan = &kvg_rebuild_placement(setup, state->entries[i].said->placement)->config.plan;
        most = plan->n_layer + plan->n_mtp > most ? plan->n_layer + plan->n_mtp : most;
    }
    KVG_TRY(KVG_NEW(ranks, "rebuilding", &state->walks));
    KVG_TRY(kvg_calloc(ranks, most, "rebuilding", &memory));
    state->mine = memory;
    KVG_TRY(KVG_NEW(ranks, "rebuilding", &state->receiver));
    if (!state->joins) {
        KVG_TRY(KVG_NEW(KVG_CARRY_PIECE, "rebuilding", &state->buffer));
    }
    return KVG_OK;
}

void kvg_rebuild_carry_drop(KvgSetup *setup)
{
    RebuildState *state = setup->state;

    end_walks(state, setup->grid->ranks);
    kvg_free(state->walks);
    kvg_free(state->mine);
    kvg_free(state->receiver);
    kvg_free(state->buffer);
    state->walks = NULL;
    state->mine = state->receiver = state->buffer = NULL;
}

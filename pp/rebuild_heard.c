/* Rebuild, heard: nothing that another rank says is believed before it has been looked at. Here what can be judged without the geometry of a placement:
 * sizes, orders, sums, and whether all say the same; a newcomer judges the rest by the placements that it makes (rebuild_join.c). */
#include "pp/rebuild_impl.h"

#include <string.h>

/* ---- comparing */

static int takes_part(const KvgSetup *setup, int rank)
{
    return setup->member[rank] != 0;
}

static KvgStatus check_statuses(const KvgSetup *setup)
{
    const RebuildState *state = setup->state;

    for (int rank = 0; rank < setup->grid->ranks; rank++) {
        if (!takes_part(setup, rank)) {
            continue;
        }
        if (state->said_bytes[rank] < sizeof(RebuildHello)) {
            return kvg_fail(KVG_ELAYOUT, "the grid was not rebuilt: rank %d sent %zu bytes where %zu belong at least; run one version of kvgrid everywhere",
                            rank, state->said_bytes[rank], sizeof(RebuildHello));
        }
        if (kvg_rebuild_hello(state, rank)->status != KVG_OK) {
            return kvg_fail(KVG_EREFUSED, "the grid was not rebuilt: rank %d answers %s; its own message says why", rank,
                            kvg_status_name((KvgStatus)kvg_rebuild_hello(state, rank)->status));
        }
    }
    return KVG_OK;
}

static KvgStatus hear_roles(KvgSetup *setup)
{
    RebuildState *state = setup->state;
    int           survivors = 0;

    for (int rank = 0; rank < setup->grid->ranks; rank++) {
        int survives = takes_part(setup, rank) && !kvg_rebuild_hello(state, rank)->joins;
        if (!state->joins && survives != state->survivor[rank]) {
            return kvg_fail(KVG_ELAYOUT, "the grid was not rebuilt: rank %d %s; a survivor gives its old rank to the bootstrap, a newcomer that of a lost one",
                            rank, survives ? "says that it survives, and the list of survivors has it not" : "joins, and the list of survivors has it");
        }
        state->survivor[rank] = (uint8_t)survives;
        survivors += survives;
    }
    state->survivors = survivors;
    state->newcomers = state->joins || state->newcomers > 0 ? setup->grid->ranks - survivors : 0;
    if (survivors == 0) {
        return kvg_fail(KVG_EINVAL, "no rank of the bootstrap survives: make a grid instead");
    }
    return KVG_OK;
}

/* Of classes that there are, and of sums that can be. */
static int place_stands(const RebuildPlace *place)
{
    int stands = place->asleep <= 1 && place->class_count <= KVG_CLASSES_MAX && place->number <= UINT32_MAX;

    for (uint32_t c = 0; c < KVG_CLASSES_MAX; c++) {
        uint64_t most = c < place->class_count ? INT32_MAX : 0;
        stands &= place->held[c] <= place->units[c] && place->units[c] <= place->units_max[c] && place->units_max[c] <= most;
    }
    return stands;
}

static int sequence_stands(const RebuildSequence *sequence, const RebuildPlace *place)
{
    const KvCarryPlace *at = &sequence->place;
    int                 stands = sequence->tainted <= 1 && at->at <= at->len && !place->asleep;

    for (uint32_t c = 0; c < KVG_CLASSES_MAX; c++) {
        stands &= at->base[c] <= at->len && at->first[c] <= at->end[c] && (c < place->class_count || (at->base[c] == 0 && at->end[c] == 0));
    }
    return stands;
}

/* Of placements that there are, in order, each once, and no more than there is room for. */
static int sequences_stand(const RebuildAccount *account)
{
    uint64_t of_placement = 0;

    for (uint64_t i = 0; i < account->sequence_count; i++) {
        const RebuildSequence *now = kvg_rebuild_sequence_in(account, i), *before = i > 0 ? kvg_rebuild_sequence_in(account, i - 1) : NULL;
        if (now->placement >= account->hello->placements || (before != NULL && kvg_rebuild_compare(before, now) >= 0)) {
            return 0;
        }
        const RebuildPlace *place = kvg_rebuild_place_in(account, now->placement);
        of_placement = before != NULL && before->placement == now->placement ? of_placement + 1 : 1;
        if (of_placement > place->place.max_sequences || !sequence_stands(now, place)) {
            return 0;
        }
    }
    return 1;
}

static int places_stand(const RebuildAccount *account)
{
    for (uint64_t i = 0; i < account->hello->placements; i++) {
        if (!place_stands(kvg_rebuild_place_in(account, i))) {
            return 0;
        }
    }
    return 1;
}

/* Sequences stand by placement; each placement's hold as many units as it says. */
static int units_stand(const RebuildAccount *account)
{
    uint64_t first = 0, end = 0;

    for (uint64_t i = 0; i < account->hello->placements; i++, first = end) {
        while (end < account->sequence_count && kvg_rebuild_sequence_in(account, end)->placement == i) {
            end++;
        }
        if (!kvg_rebuild_units_stand(account, kvg_rebuild_place_in(account, i), first, end)) {
            return 0;
        }
    }
    return 1;
}

static KvgStatus check_account(const KvgSetup *setup, int rank)
{
    const RebuildState *state = setup->state;
    const RebuildHello *hello = kvg_rebuild_hello(state, rank);
    size_t              bytes = state->said_bytes[rank];
    RebuildAccount      account;

    if (bytes != kvg_rebuild_account_bytes(hello, setup->grid->ranks, state->newcomers, bytes)) {
        return kvg_fail(KVG_EFORMAT, "the grid was not rebuilt: what rank %d says is no account of its sequences: %zu bytes for %llu placements, %llu sequences "
                        "and %llu shares of chunks", rank, bytes, (unsigned long long)hello->placements, (unsigned long long)hello->sequences,
                        (unsigned long long)hello->shares);
    }
    kvg_rebuild_account(hello, setup->grid->ranks, state->newcomers, &account);
    const char *wrong = hello->joins && hello->sequences + hello->shares > 0 ? "sequences of a newcomer" :
                        !places_stand(&account)                             ? "its placements" :
                        !sequences_stand(&account)                          ? "its sequences" :
                        !kvg_rebuild_shares_stand(&account)                 ? "chunks that sequences share" :
                        !units_stand(&account)                              ? "its units" : NULL;
    return wrong == NULL ? KVG_OK : kvg_fail(KVG_EFORMAT, "the grid was not rebuilt: what rank %d says is no account of its sequences: %s cannot be so; run one "
                                             "version of kvgrid everywhere", rank, wrong);
}

static KvgStatus check_accounts(const KvgSetup *setup)
{
    for (int rank = 0; rank < setup->grid->ranks; rank++) {
        if (takes_part(setup, rank)) {
            KVG_TRY(check_account(setup, rank));
        }
    }
    return KVG_OK;
}

int kvg_rebuild_first_survivor(const RebuildState *state)
{
    int rank = 0;

    while (!state->survivor[rank]) {
        rank++;
    }
    return rank;
}

/* What settling has made equal on all survivors. */
static KvgStatus compare_survivors(KvgSetup *setup)
{
    static const KvItem items[] = {
        { "the list of survivors (hash)", offsetof(RebuildHello, survivors) },
        { "the epoch", offsetof(RebuildHello, epoch) },
        { "the step", offsetof(RebuildHello, begun) },
        { "max_step_sequences", offsetof(RebuildHello, max_step_sequences) },
        { "the number of placements", offsetof(RebuildHello, placements) },
    };
    RebuildState *state = setup->state;
    int           first = kvg_rebuild_first_survivor(state);
    const void   *pair[2] = { state->said[first], NULL };

    state->apart = 0;
    for (int rank = first; rank < setup->grid->ranks; rank++) {
        if (!state->survivor[rank]) {
            continue;
        }
        pair[1] = state->said[rank];
        if (kvg_items_compare("the grid was not rebuilt", items, sizeof items / sizeof *items, pair, 2) != KVG_OK) {
            return kvg_fail(KVG_ELAYOUT, "rank %d and rank %d: %s", first, rank, kvg_last_error());
        }
        state->apart |= kvg_rebuild_hello(state, rank)->running != kvg_rebuild_hello(state, first)->running;
    }
    return KVG_OK;
}

static KvgStatus compare_grids(const KvgSetup *setup)
{
    const RebuildState *state = setup->state;
    int                 ranks = setup->grid->ranks;
    KvHello            *hellos;

    KVG_TRY(KVG_NEW((size_t)ranks, "rebuilding", &hellos));
    for (int rank = 0; rank < ranks; rank++) {
        hellos[rank] = kvg_rebuild_hello(state, rank)->hello;
    }
    KvgStatus status = kvg_hello_compare(hellos, ranks, setup->grid->rank);
    kvg_free(hellos);
    return status;
}

static KvgStatus compare_places(const KvgSetup *setup)
{
    const RebuildState *state = setup->state;
    int                 ranks = setup->grid->ranks, first = kvg_rebuild_first_survivor(state);
    uint64_t            placements = kvg_rebuild_hello(state, first)->placements;
    const void        **blocks;
    KvgStatus           status = KVG_OK;

    for (int rank = 0; rank < ranks; rank++) {
        if (kvg_rebuild_hello(state, rank)->placements != placements) {
            return kvg_fail(KVG_ELAYOUT, "the grid was not rebuilt: rank %d holds %llu placements and rank %d %llu; a newcomer joins with all of them, oldest "
                            "first", first, (unsigned long long)placements, rank, (unsigned long long)kvg_rebuild_hello(state, rank)->placements);
        }
    }
    KVG_TRY(KVG_NEW((size_t)ranks, "rebuilding", &blocks));
    for (uint64_t i = 0; i < placements && status == KVG_OK; i++) {
        for (int rank = 0; rank < ranks; rank++) {
            blocks[rank] = &kvg_rebuild_place(state, ranks, rank, i)->place;
        }
        status = kvg_place_compare(blocks, ranks);
    }
    kvg_free(blocks);
    return status;
}

KvgStatus kvg_rebuild_heard(KvgSetup *setup)
{
    RebuildState *state = setup->state;

    for (int rank = 0; rank < setup->grid->ranks; rank++) { /* they outlive the gather */
        state->said[rank] = setup->gather.body[rank];
        state->said_bytes[rank] = setup->gather.bytes[rank];
        setup->gather.body[rank] = NULL;
    }
    KVG_TRY(check_statuses(setup));
    KVG_TRY(hear_roles(setup));
    KVG_TRY(check_accounts(setup));
    KVG_TRY(compare_survivors(setup));
    if (state->newcomers == 0) {
        return KVG_OK;
    }
    KVG_TRY(compare_grids(setup));
    return compare_places(setup);
}

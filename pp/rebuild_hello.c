/* Rebuild, hellos: what each rank says, where it stands in the bytes, and whether it fits together. */
#include "pp/rebuild_impl.h"

#include <stdlib.h>
#include <string.h>

/* ---- saying */

static uint64_t count_placements(const KvgGrid *grid)
{
    uint64_t count = 0;

    for (const KvgPlacement *placement = grid->placements; placement != NULL; placement = placement->next) {
        count++;
    }
    return count;
}

KvgPlacement *kvg_rebuild_placement(const KvgSetup *setup, uint64_t i)
{
    const RebuildState *state = setup->state;
    KvgPlacement       *placement = setup->grid->placements;
    uint64_t            count;

    if (state->joins) {
        return state->made[i];
    }
    count = count_placements(setup->grid);
    KVG_ASSERT(i < count);
    for (uint64_t newer = count - 1 - i; newer > 0; newer--) { /* the list begins with the newest */
        placement = placement->next;
    }
    return placement;
}

static uint64_t count_sequences(const KvgSetup *setup, uint64_t placements)
{
    uint64_t count = 0;

    for (uint64_t i = 0; i < placements; i++) {
        const KvgPlacement *placement = kvg_rebuild_placement(setup, i);
        count += placement->options.max_sequences - placement->free_count;
    }
    return count;
}

static void say_place(const KvgPlacement *placement, int joins, RebuildPlace *said)
{
    kvg_place_say(placement, KVG_OK, &said->place);
    if (joins) {
        return; /* the rest is what it wants to be told */
    }
    said->number = placement->number;
    said->asleep = (uint64_t)placement->asleep;
    said->class_count = kvg_store_class_count(placement->store);
    for (uint32_t c = 0; c < said->class_count; c++) {
        said->units[c] = kvg_store_units_total(placement->store, c);
        said->units_max[c] = kvg_store_class(placement->store, c)->units_max;
    }
}

static size_t sequence_bytes(int newcomers)
{
    return sizeof(RebuildSequence) + (size_t)newcomers * sizeof(uint64_t);
}

static size_t place_bytes(int ranks)
{
    return sizeof(RebuildPlace) + (size_t)ranks * sizeof(uint64_t);
}

/* What this rank would send of it to each newcomer. */
static void say_streams(const KvgSetup *setup, const KvgSequence *sequence, const KvCarryPlace *place, uint8_t *mine, uint64_t *streams)
{
    const RebuildState *state = setup->state;
    int                 image;

    for (int rank = 0; rank < setup->grid->ranks; rank++) {
        if (!state->survivor[rank]) {
            kvg_rebuild_sends(setup, sequence->placement, setup->grid->rank, rank, mine, &image);
            *streams++ = kvg_carry_bytes(&sequence->cache, place, mine, image);
        }
    }
}

static int by_place_and_id(const void *left, const void *right)
{
    const RebuildSequence *a = left, *b = right;

    if (a->placement != b->placement) {
        return a->placement < b->placement ? -1 : 1;
    }
    return a->id < b->id ? -1 : a->id > b->id;
}

static uint8_t *say_sequences(const KvgSetup *setup, uint64_t placements, uint8_t *mine, uint8_t *next)
{
    const RebuildState *state = setup->state;
    size_t              bytes = sequence_bytes(state->newcomers);
    uint8_t            *first = next;

    for (uint64_t i = 0; i < placements; i++) {
        KvgPlacement *placement = kvg_rebuild_placement(setup, i);
        for (uint32_t s = 0; s < placement->options.max_sequences; s++) {
            const KvgSequence *sequence = &placement->sequences[s];
            RebuildSequence   *said = (RebuildSequence *)next;
            if (!sequence->open) {
                continue;
            }
            *said = (RebuildSequence){ .placement = i, .id = sequence->id, .tainted = (uint64_t)sequence->cache.tainted,
                                       .shares = (uint64_t)kvg_kv_cache_carry_shares(&sequence->cache) };
            kvg_kv_cache_carry_place(&sequence->cache, &said->place);
            if (state->newcomers > 0) {
                say_streams(setup, sequence, &said->place, mine, (uint64_t *)(said + 1));
            }
            next += bytes;
        }
    }
    qsort(first, (size_t)(next - first) / bytes, bytes, by_place_and_id);
    return next;
}

static uint32_t most_layers(const KvgSetup *setup, uint64_t placements)
{
    uint32_t most = 1;

    for (uint64_t i = 0; i < placements; i++) {
        const KvgPlacement *placement = kvg_rebuild_placement(setup, i);
        uint32_t            layers = placement->config.plan.n_layer + placement->config.plan.n_mtp;
        most = layers > most ? layers : most;
    }
    return most;
}

static void say_header(const KvgSetup *setup, RebuildHello *hello)
{
    const RebuildState *state = setup->state;
    const KvgGrid      *grid = setup->grid;

    hello->joins = (uint64_t)state->joins;
    kvg_hello_make(grid, KVG_OK, &hello->hello);
    hello->hello.epoch = 0; /* newcomers know none */
    hello->placements = state->joins ? state->join_count : count_placements(grid);
    if (!state->joins) {
        hello->survivors = state->survivors_digest;
        hello->epoch = grid->epoch;
        hello->running = grid->running;
        hello->changes = grid->changes;
        hello->begun = grid->votes != NULL ? grid->votes->begun : 0;
        hello->max_step_sequences = grid->votes != NULL ? grid->votes->max_step_sequences : 0;
        hello->placed = grid->placed;
        hello->sequences = count_sequences(setup, hello->placements);
    }
}

static KvgStatus build(const KvgSetup *setup, void **memory, size_t *bytes)
{
    const RebuildState *state = setup->state;
    RebuildHello        hello = { 0 };
    int                 ranks = setup->grid->ranks;
    void               *mine = NULL;
    uint8_t            *next;

    say_header(setup, &hello);
    *bytes = sizeof hello + hello.placements * place_bytes(ranks) + hello.sequences * sequence_bytes(state->newcomers);
    KVG_TRY(kvg_calloc(most_layers(setup, hello.placements), 1, "rebuilding", &mine));
    KvgStatus status = kvg_calloc(1, *bytes, "rebuilding", memory);
    if (status == KVG_OK) {
        memcpy(*memory, &hello, sizeof hello);
        next = (uint8_t *)*memory + sizeof hello;
        for (uint64_t i = 0; i < hello.placements; i++, next += place_bytes(ranks)) {
            const KvgPlacement *placement = kvg_rebuild_placement(setup, i);
            say_place(placement, state->joins, (RebuildPlace *)next);
            if (!state->joins) {
                memcpy(next + sizeof(RebuildPlace), placement->state_bytes, (size_t)ranks * sizeof(uint64_t));
            }
        }
        if (!state->joins) {
            next = say_sequences(setup, hello.placements, mine, next);
        }
        KVG_ASSERT(next == (uint8_t *)*memory + *bytes);
    }
    kvg_free(mine);
    return status;
}

KvgStatus kvg_rebuild_say(KvgSetup *setup, KvgStatus local)
{
    RebuildHello failed = { .status = (uint64_t)local, .joins = (uint64_t)((RebuildState *)setup->state)->joins };
    void        *memory = NULL;
    size_t       bytes = sizeof failed;

    if (local == KVG_OK) {
        failed.status = (uint64_t)build(setup, &memory, &bytes);
    }
    if (failed.status != KVG_OK) {
        kvg_voted_answer(setup, (KvgStatus)failed.status); /* keeps the sentence */
        bytes = sizeof failed;
    }
    KvgStatus status = kvg_setup_gather(setup, memory != NULL ? memory : &failed, bytes);
    kvg_free(memory);
    return status;
}

/* ---- what was said */

const RebuildHello *kvg_rebuild_hello(const RebuildState *state, int rank)
{
    return state->said[rank];
}

const RebuildPlace *kvg_rebuild_place(const RebuildState *state, int ranks, int rank, uint64_t i)
{
    return (const RebuildPlace *)((const uint8_t *)state->said[rank] + sizeof(RebuildHello) + i * place_bytes(ranks));
}

const uint64_t *kvg_rebuild_state_bytes(const RebuildState *state, int ranks, int rank, uint64_t i)
{
    return (const uint64_t *)(kvg_rebuild_place(state, ranks, rank, i) + 1);
}

const RebuildSequence *kvg_rebuild_sequence(const RebuildState *state, int ranks, int rank, uint64_t i)
{
    const RebuildHello *hello = state->said[rank];

    return (const RebuildSequence *)((const uint8_t *)kvg_rebuild_place(state, ranks, rank, hello->placements) + i * sequence_bytes(state->newcomers));
}

uint64_t kvg_rebuild_stream(const RebuildState *state, int ranks, int rank, uint64_t i, int to)
{
    int nth = 0;

    for (int other = 0; other < to; other++) {
        nth += !state->survivor[other];
    }
    return ((const uint64_t *)(kvg_rebuild_sequence(state, ranks, rank, i) + 1))[nth];
}

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

/* Of placements that there are, in order, each once, and no more than there is room for. */
static int sequences_stand(const KvgSetup *setup, int rank)
{
    const RebuildState *state = setup->state;
    const RebuildHello *hello = kvg_rebuild_hello(state, rank);
    uint64_t            of_placement = 0;

    for (uint64_t i = 0; i < hello->sequences; i++) {
        const RebuildSequence *now = kvg_rebuild_sequence(state, setup->grid->ranks, rank, i);
        const RebuildSequence *before = i > 0 ? kvg_rebuild_sequence(state, setup->grid->ranks, rank, i - 1) : NULL;
        of_placement = before != NULL && before->placement == now->placement ? of_placement + 1 : 1;
        if (now->placement >= hello->placements || (before != NULL && by_place_and_id(before, now) >= 0) ||
            of_placement > kvg_rebuild_place(state, setup->grid->ranks, rank, now->placement)->place.max_sequences) {
            return 0;
        }
    }
    return 1;
}

static KvgStatus check_bytes(const KvgSetup *setup)
{
    const RebuildState *state = setup->state;
    int                 ranks = setup->grid->ranks;

    for (int rank = 0; rank < ranks; rank++) {
        if (takes_part(setup, rank)) {
            const RebuildHello *hello = kvg_rebuild_hello(state, rank);
            size_t              bytes = state->said_bytes[rank];
            if (hello->placements > bytes || hello->sequences > bytes ||
                bytes != sizeof *hello + hello->placements * place_bytes(ranks) + hello->sequences * sequence_bytes(state->newcomers) ||
                !sequences_stand(setup, rank)) {
                return kvg_fail(KVG_ELAYOUT, "the grid was not rebuilt: what rank %d says is no account of its sequences (%zu bytes)", rank, bytes);
            }
        }
    }
    return KVG_OK;
}

static int first_survivor(const RebuildState *state)
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
    int           first = first_survivor(state);
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
    void               *memory = NULL;
    KvHello            *hellos;

    KVG_TRY(kvg_calloc((size_t)ranks, sizeof *hellos, "rebuilding", &memory));
    hellos = memory;
    for (int rank = 0; rank < ranks; rank++) {
        hellos[rank] = kvg_rebuild_hello(state, rank)->hello;
    }
    KvgStatus status = kvg_hello_compare(hellos, ranks, setup->grid->rank);
    kvg_free(memory);
    return status;
}

static KvgStatus compare_places(const KvgSetup *setup)
{
    const RebuildState *state = setup->state;
    int                 ranks = setup->grid->ranks, first = first_survivor(state);
    uint64_t            placements = kvg_rebuild_hello(state, first)->placements;
    void               *memory = NULL;
    const void        **blocks;
    KvgStatus           status = KVG_OK;

    for (int rank = 0; rank < ranks; rank++) {
        if (kvg_rebuild_hello(state, rank)->placements != placements) {
            return kvg_fail(KVG_ELAYOUT, "the grid was not rebuilt: rank %d holds %llu placements and rank %d %llu; a newcomer joins with all of them, oldest "
                            "first", first, (unsigned long long)placements, rank, (unsigned long long)kvg_rebuild_hello(state, rank)->placements);
        }
    }
    KVG_TRY(kvg_calloc((size_t)ranks, sizeof *blocks, "rebuilding", &memory));
    blocks = memory;
    for (uint64_t i = 0; i < placements && status == KVG_OK; i++) {
        for (int rank = 0; rank < ranks; rank++) {
            blocks[rank] = &kvg_rebuild_place(state, ranks, rank, i)->place;
        }
        status = kvg_place_compare(blocks, ranks);
    }
    kvg_free(memory);
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
    KVG_TRY(check_bytes(setup));
    KVG_TRY(compare_survivors(setup));
    if (state->newcomers == 0) {
        return KVG_OK;
    }
    KVG_TRY(compare_grids(setup));
    return compare_places(setup);
}

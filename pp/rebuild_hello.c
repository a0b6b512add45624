/* Rebuild, hellos: what each rank says, and where it stands in the bytes. */
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

/* ---- this rank's sequences, by placement and id */

typedef struct Said {
    const KvgSequence **sequences; /* [count] */
    uint64_t            count;
    KvCarryShare       *shares;
    uint64_t            share_count;
} Said;

static int by_place_and_id(const void *left, const void *right)
{
    const KvgSequence *a = *(const KvgSequence *const *)left, *b = *(const KvgSequence *const *)right;

    if (a->placement != b->placement) {
        return a->placement->number < b->placement->number ? -1 : 1; /* older ones have lower numbers */
    }
    return a->id < b->id ? -1 : a->id > b->id;
}

static uint64_t count_sequences(const KvgGrid *grid)
{
    uint64_t count = 0;

    for (const KvgPlacement *placement = grid->placements; placement != NULL; placement = placement->next) {
        count += placement->options.max_sequences - placement->free_count;
    }
    return count;
}

static void free_said(Said *said)
{
    kvg_free(said->sequences);
    kvg_free(said->shares);
}

static KvgStatus collect(const KvgGrid *grid, Said *said)
{
    KVG_TRY(KVG_NEW(count_sequences(grid), "rebuilding", &said->sequences));
    for (const KvgPlacement *placement = grid->placements; placement != NULL; placement = placement->next) {
        for (uint32_t s = 0; s < placement->options.max_sequences; s++) {
            if (placement->sequences[s].open) {
                said->sequences[said->count++] = &placement->sequences[s];
            }
        }
    }
    KVG_ASSERT(said->count == count_sequences(grid));
    qsort(said->sequences, said->count, sizeof *said->sequences, by_place_and_id);
    return kvg_rebuild_find_shares(said->sequences, said->count, &said->shares, &said->share_count);
}

/* ---- its words */

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
        said->held[c] = said->units[c] - kvg_store_units_free(placement->store, c);
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
static void say_streams(const KvgSetup *setup, const KvgSequence *sequence, const KvCarryPart *part, uint8_t *mine, uint64_t *streams)
{
    const RebuildState *state = setup->state;
    int                 image;

    for (int rank = 0; rank < setup->grid->ranks; rank++) {
        if (!state->survivor[rank]) {
            kvg_rebuild_sends(setup, sequence->placement, setup->grid->rank, rank, mine, &image);
            *streams++ = kvg_carry_bytes(&sequence->cache, part, mine, image);
        }
    }
}

/* The places are said first: what is sent of one follows from those it shares with. */
static void say_sequences(const KvgSetup *setup, const Said *all, uint8_t *mine, void *memory)
{
    const RebuildState *state = setup->state;
    RebuildAccount      account;
    uint64_t            placement = 0;

    kvg_rebuild_account(memory, setup->grid->ranks, state->newcomers, &account);
    for (uint64_t i = 0; i < all->count; i++) {
        const KvgSequence *sequence = all->sequences[i];
        RebuildSequence   *said = (RebuildSequence *)kvg_rebuild_sequence_in(&account, i);
        while (kvg_rebuild_placement(setup, placement) != sequence->placement) {
            placement++;
        }
        *said = (RebuildSequence){ .placement = placement, .id = sequence->id, .tainted = (uint64_t)sequence->cache.tainted };
        kvg_kv_cache_carry_place(&sequence->cache, &said->place);
    }
    if (all->share_count > 0) {
        memcpy((void *)account.shares, all->shares, all->share_count * sizeof *all->shares);
    }
    for (uint64_t i = 0; state->newcomers > 0 && i < all->count; i++) {
        KvCarryPart part;
        kvg_rebuild_part(&account, i, &part);
        say_streams(setup, all->sequences[i], &part, mine, (uint64_t *)(kvg_rebuild_sequence_in(&account, i) + 1));
    }
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

static void say_header(const KvgSetup *setup, const Said *said, RebuildHello *hello)
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
        hello->sequences = said->count;
        hello->shares = said->share_count;
    }
}

static void say_places(const KvgSetup *setup, uint64_t placements, uint8_t *next)
{
    const RebuildState *state = setup->state;
    int                 ranks = setup->grid->ranks;

    for (uint64_t i = 0; i < placements; i++, next += place_bytes(ranks)) {
        const KvgPlacement *placement = kvg_rebuild_placement(setup, i);
        say_place(placement, state->joins, (RebuildPlace *)next);
        if (!state->joins) {
            memcpy(next + sizeof(RebuildPlace), placement->state_bytes, (size_t)ranks * sizeof(uint64_t));
        }
    }
}

static KvgStatus write_account(const KvgSetup *setup, const Said *said, void **memory, size_t *bytes)
{
    const RebuildState *state = setup->state;
    RebuildHello        hello = { 0 };
    int                 ranks = setup->grid->ranks;
    void               *mine = NULL;

    say_header(setup, said, &hello);
    *bytes = kvg_rebuild_account_bytes(&hello, ranks, state->newcomers, SIZE_MAX / 2);
    KVG_TRY(kvg_calloc(most_layers(setup, hello.placements), 1, "rebuilding", &mine));
    KvgStatus status = kvg_calloc(1, *bytes, "rebuilding", memory);
    if (status == KVG_OK) {
        memcpy(*memory, &hello, sizeof hello);
        say_places(setup, hello.placements, (uint8_t *)*memory + sizeof hello);
        say_sequences(setup, said, mine, *memory);
    }
    kvg_free(mine);
    return status;
}

static KvgStatus build(const KvgSetup *setup, void **memory, size_t *bytes)
{
    const RebuildState *state = setup->state;
    Said                said = { 0 };
    KvgStatus           status = state->joins ? KVG_OK : collect(setup->grid, &said);

    if (status == KVG_OK) {
        status = write_account(setup, &said, memory, bytes);
    }
    free_said(&said);
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

static uint64_t part_bytes(uint64_t count, uint64_t each, uint64_t left)
{
    return count > left / each ? UINT64_MAX : count * each;
}

uint64_t kvg_rebuild_account_bytes(const RebuildHello *hello, int ranks, int newcomers, uint64_t most)
{
    const uint64_t counts[3] = { hello->placements, hello->sequences, hello->shares };
    const uint64_t each[3] = { place_bytes(ranks), sequence_bytes(newcomers), sizeof(KvCarryShare) };
    uint64_t       bytes = sizeof *hello;

    for (int i = 0; i < 3; i++) {
        uint64_t more = part_bytes(counts[i], each[i], most - bytes);
        if (more == UINT64_MAX) {
            return UINT64_MAX;
        }
        bytes += more;
    }
    return bytes;
}

void kvg_rebuild_account(const void *said, int ranks, int newcomers, RebuildAccount *account)
{
    const RebuildHello *hello = said;

    *account = (RebuildAccount){ .hello = hello, .places = (const uint8_t *)(hello + 1), .place_bytes = place_bytes(ranks),
                                 .sequence_bytes = sequence_bytes(newcomers), .sequence_count = hello->sequences, .share_count = hello->shares };
    account->sequences = account->places + hello->placements * account->place_bytes;
    account->shares = (const KvCarryShare *)(const void *)(account->sequences + hello->sequences * account->sequence_bytes);
}

void kvg_rebuild_account_of(const KvgSetup *setup, int rank, RebuildAccount *account)
{
    const RebuildState *state = setup->state;

    kvg_rebuild_account(state->said[rank], setup->grid->ranks, state->newcomers, account);
}

int kvg_rebuild_compare(const RebuildSequence *a, const RebuildSequence *b)
{
    if (a->placement != b->placement) {
        return a->placement < b->placement ? -1 : 1;
    }
    return a->id < b->id ? -1 : a->id > b->id;
}

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
    RebuildAccount account;

    kvg_rebuild_account(state->said[rank], ranks, state->newcomers, &account);
    return kvg_rebuild_sequence_in(&account, i);
}

uint64_t kvg_rebuild_stream(const RebuildState *state, int ranks, int rank, uint64_t i, int to)
{
    int nth = 0;

    for (int other = 0; other < to; other++) {
        nth += !state->survivor[other];
    }
    return ((const uint64_t *)(kvg_rebuild_sequence(state, ranks, rank, i) + 1))[nth];
}

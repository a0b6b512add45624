/* Ranks: a small grid of in-process ranks on the virtual clock, with short deadlines, for targets that attack one of them. */
#ifndef FUZZ_RANKS_H
#define FUZZ_RANKS_H

#include <kvgrid/kvgrid.h>

#include "pp/internal.h"
#include "tests/fuzz/fuzz.h"

#define FUZZ_RANKS_MAX  4
#define FUZZ_SEQUENCES  3
#define FUZZ_ROUNDS_MAX 1000 /* of 1 ms: no wait is longer than some deadlines of 20 ms, and 20 of them for a record */

typedef struct FuzzRanks {
    int           ranks;
    KvInproc     *hub;
    KvgGrid      *grid[FUZZ_RANKS_MAX];
    KvgPlacement *placement[FUZZ_RANKS_MAX]; /* NULL: not placed there */
    KvgBatch     *batch[FUZZ_RANKS_MAX];
    KvgSequence  *sequence[FUZZ_RANKS_MAX][FUZZ_SEQUENCES]; /* NULL: not open */
} FuzzRanks;

static const char fuzz_model[] =
    "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_attention_heads\":2,\"num_key_value_heads\":2,\"head_dim\":32,\"num_hidden_layers\":4,"
    "\"vocab_size\":100,\"intermediate_size\":64,\"max_position_embeddings\":512,\"sliding_window\":40,"
    "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\",\"full_attention\"]}";

static inline KvgPolicy fuzz_policy(void)
{
    KvgPolicy policy;

    kvg_policy_default(&policy);
    policy.timeout_ms = 20;
    policy.peer_ms = 10;
    policy.swa_ring = 1;
    return policy;
}

static inline KvgPlaceOptions fuzz_place_options(void)
{
    KvgPlaceOptions options = KVG_PLACE_OPTIONS_INIT;

    options.memory_bytes = 256 << 10;
    options.max_sequences = FUZZ_SEQUENCES;
    return options;
}

static inline void ranks_connect(FuzzRanks *r, uint32_t tp, uint32_t pp)
{
    KvgGridOptions options = KVG_GRID_OPTIONS_INIT;
    KvgPolicy      policy = fuzz_policy();

    memset(r, 0, sizeof *r);
    options.tp = tp;
    options.pp = pp;
    options.policy = &policy;
    r->ranks = (int)(tp * pp);
    FUZZ_CHECK(kvg_inproc_create(r->ranks, &r->hub) == KVG_OK);
    FUZZ_CHECK(kvg_grid_create_inproc(r->hub, r->ranks, &options, r->grid) == KVG_OK);
}

/* Turns the operation of every rank until each has ended, which the deadline sees to; results [ranks]. */
static inline void ranks_finish(FuzzRanks *r, KvgSetup **setups, KvgStatus *results)
{
    int left = 0, done[FUZZ_RANKS_MAX] = { 0 };

    for (int i = 0; i < r->ranks; i++) {
        results[i] = KVG_EPEER;
        left += setups[i] != NULL;
    }
    for (int rounds = 0; left > 0; rounds++) {
        FUZZ_CHECK(rounds < FUZZ_ROUNDS_MAX);
        for (int i = 0; i < r->ranks; i++) {
            if (setups[i] != NULL && !done[i]) {
                results[i] = kvg_setup_test(setups[i], &done[i]);
                left -= done[i];
            }
        }
        kvg_inproc_advance_ns(r->hub, 1000000);
    }
    for (int i = 0; i < r->ranks; i++) {
        kvg_setup_free(setups[i]);
    }
}

static inline void ranks_place_model(FuzzRanks *r, const ModelConfig *config, const KvgPlaceOptions *options)
{
    KvgSetup  *setups[FUZZ_RANKS_MAX] = { NULL };
    KvgStatus  results[FUZZ_RANKS_MAX];

    for (int i = 0; i < r->ranks; i++) {
        if (kvg_place_start(r->grid[i], config, options, &r->placement[i], &setups[i]) != KVG_OK) {
            setups[i] = NULL;
        }
    }
    ranks_finish(r, setups, results);
    for (int i = 0; i < r->ranks; i++) {
        FUZZ_CHECK((results[i] == KVG_OK) == (r->placement[i] != NULL));
        if (results[i] == KVG_OK) {
            FUZZ_CHECK(kvg_batch_create(r->placement[i], FUZZ_SEQUENCES, &r->batch[i]) == KVG_OK);
        }
    }
}

static inline void ranks_place(FuzzRanks *r)
{
    KvgPlaceOptions options = fuzz_place_options();
    ModelConfig     config;

    FUZZ_CHECK(kvg_model_config_parse_json(fuzz_model, sizeof fuzz_model - 1, "fuzz", &config) == KVG_OK);
    ranks_place_model(r, &config, &options);
    kvg_model_config_free(&config);
}

/* What must hold whatever came: lengths in order, nothing booked that is not there; with nothing open, nothing booked. */
static inline void ranks_check(const FuzzRanks *r, int rank)
{
    KvgStats stats = { .size = sizeof stats };
    uint64_t open = 0;

    if (r->placement[rank] == NULL) {
        return;
    }
    for (int i = 0; i < FUZZ_SEQUENCES; i++) {
        KvgSequenceInfo info = { .size = sizeof info };

        if (r->sequence[rank][i] != NULL) {
            FUZZ_CHECK(kvg_sequence_info(r->sequence[rank][i], &info) == KVG_OK);
            FUZZ_CHECK(info.tainted || (info.rows <= info.rows_staged && info.rows_staged <= info.rows_booked && info.rows_booked <= 512 + 63));
            open++;
        }
    }
    FUZZ_CHECK(kvg_stats(r->placement[rank], &stats) == KVG_OK);
    FUZZ_CHECK(stats.sequences_open == open && stats.booked_bytes <= stats.memory_bytes && (open > 0 || stats.content_bytes == 0));
}

static inline void ranks_close(FuzzRanks *r)
{
    for (int rank = 0; rank < r->ranks; rank++) {
        for (int i = 0; i < FUZZ_SEQUENCES; i++) {
            if (r->sequence[rank][i] != NULL) {
                kvg_sequence_close(r->sequence[rank][i], NULL);
                r->sequence[rank][i] = NULL;
            }
        }
        ranks_check(r, rank);
        kvg_batch_destroy(r->batch[rank]);
        kvg_placement_destroy(r->placement[rank]);
        kvg_grid_destroy(r->grid[rank]);
    }
    kvg_inproc_destroy(r->hub);
}

#endif

/* Placed: what a placement has agreed on, as values that go in and out of JSON. Private.
 *
 * Everything that counts units follows from these numbers, so whoever has them counts like a rank. Every field is 64 bits wide, so that one table
 * reads, writes and bounds them all (placed_json.c). */
#ifndef KVG_PLACED_H
#define KVG_PLACED_H

#include <kvgrid/ledger.h>

#include "runtime/state/store.h"

#define KVG_PLACED_VERSION   1
#define KVG_PLACED_TEXT_MAX  ((size_t)16 << 20)

typedef struct PlacedClass {
    uint64_t kind, window, ring, row_cap, unit_cap, units, units_max, units_per_sequence, layers;
} PlacedClass;

typedef struct PlacedRank {
    uint64_t rank, stage, layer_first, layer_end, bytes_per_token, state_bytes, slot_bytes;
    uint64_t unit_bytes[KVG_PLAN_CLASSES_MAX];
} PlacedRank;

typedef struct Placed {
    uint64_t    tp, pp, layout, max_ctx, ctx, prefill_chunk_max;
    uint64_t    max_sequences, max_step_sequences, max_in_flight;
    uint64_t    columns, index_pool, index_ring; /* as the store keeps them: 0 where the model has no such layers */
    uint64_t    cache_tokens, max_context;
    uint32_t    class_count;
    PlacedClass classes[KVG_PLAN_CLASSES_MAX];
    PlacedRank *ranks; /* [tp * pp] */
} Placed;

static inline uint32_t kvg_placed_ranks(const Placed *placed)
{
    return (uint32_t)(placed->tp * placed->pp);
}

/* Reads and judges a text; freed by kvg_placed_free. Errors as kvg_accounts_from_json, memory_max_bytes apart. */
KvgStatus kvg_placed_parse(const char *text, size_t bytes, Placed *placed);
/* As kvg_placement_to_json. */
KvgStatus kvg_placed_write(const Placed *placed, char *text, size_t room, size_t *bytes);
void      kvg_placed_free(Placed *placed);

/* The numbers fit each other as kvg_place would have made them: EFORMAT by name. */
KvgStatus kvg_placed_check(const Placed *placed);
/* classes [KVG_CLASSES_MAX] as a rank's store has them; returns how many. */
uint32_t kvg_placed_classes(const Placed *placed, KvClassGeometry *classes);
/* A plan's class. */
KvClassPlan kvg_placed_class(const Placed *placed, uint32_t class_index);

#endif

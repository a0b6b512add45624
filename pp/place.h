/* Place, inside: what the sources of kvg_place share. Private to pp/place*.c. */
#ifndef KVG_PLACE_H
#define KVG_PLACE_H

#include "pp/internal.h"

typedef struct PlaceHello { /* crosses the wire; 64-bit fields, so that they compare alike */
    uint64_t status, plan, n_layer, n_mtp, context;
    uint64_t format_k, format_v, format_latent, layout;
    uint64_t max_sequences, max_step_sequences, ctx, prefill_chunk_max, spec_columns, with_mtp, fence, layer_bytes, granularity;
    uint64_t memory_bytes, memory_max_bytes, memory_reserve_bytes; /* may differ; bytes 0: measured, and then max 0: follows from it */
} PlaceHello;

typedef struct PlaceMeasure { /* crosses the wire */
    uint64_t status;
    uint64_t available, memory; /* KvAvailable; 0: not known */
} PlaceMeasure;

/* What this rank was asked for. */
void kvg_place_say(const KvgPlacement *placement, KvgStatus local, PlaceHello *hello);
/* ELAYOUT naming the first item that differs; hellos [ranks]. */
KvgStatus kvg_place_compare(const void *const *hellos, int ranks);

/* The default of memory_max_bytes. */
static inline uint64_t kvg_quadruple(uint64_t bytes)
{
    return bytes > UINT64_MAX / 4 ? UINT64_MAX : 4 * bytes;
}

/* Some rank measures: then all say what their devices have. */
int       kvg_place_measures(const PlaceHello *hellos, int ranks);
/* This rank's device. A rank that was told its bytes need not know. ENOTSUP, EDEVICE. */
KvgStatus kvg_place_measure(const KvgPlacement *placement, PlaceMeasure *measure);
/* Fills memory_bytes and memory_max_bytes of the ranks that measure: a pure function of what all said. ENOMEM naming the rank with nothing left. */
KvgStatus kvg_place_share(PlaceHello *hellos, const PlaceMeasure *measures, int ranks);

/* A placement with copies of what the caller gave, and nothing behind it; *placement is set as soon as there is something to free (kvg_placement_free). */
KvgStatus kvg_place_make(KvgGrid *grid, const ModelConfig *config, const KvgPlaceOptions *options, KvgPlacement **placement);
/* Plans it from its state_bytes, which every rank knows. */
KvgStatus kvg_place_lay(KvgPlacement *placement);
/* Takes its memory, with room for units_max [class]. */
KvgStatus kvg_place_take(KvgPlacement *placement, const uint32_t *units_max);

/* Layers that a placement holds: the trunk, and the MTP blocks when asked for. */
uint32_t kvg_place_held_layers(const ModelConfig *config, const KvgPlaceOptions *options);
/* A class as every rank's store has it, from the plan's. */
KvClassGeometry kvg_place_class(const KvClassPlan *from, uint32_t units_max);
/* Of a model with recurrent layers alone: lengths still live in a class, whose units take no device memory. max_ctx at most INT32_MAX. */
KvClassGeometry kvg_place_lengths_class(uint64_t max_ctx, uint32_t slots);
/* The store of this rank: its share of every layer, the classes of the whole model. */
KvgStatus kvg_place_create_store(KvgPlacement *placement, const uint32_t *units_max);

#endif

/* Bring: what a digest reads of one layer, copied from a device that the host cannot read, and seen through views of the copy. Private. */
#ifndef KVG_CACHE_BRING_H
#define KVG_CACHE_BRING_H

#include "runtime/state/cache_impl.h"

typedef struct KvBrought {
    const KvPlaneView     *view;      /* NULL: the layer owns no K and V here */
    const KvLatentView    *latent;
    const KvRecurrentView *recurrent;
    uint32_t               slot;      /* in those views */
    const float           *conv, *state; /* the current column */
    /* of a copy */
    KvPlaneView  view_copy;
    KvLatentView latent_copy;
    void        *memory;
    int32_t     *table;
    uint32_t     base_row;
} KvBrought;

/* Waits for all work on the device. EDEVICE. */
KvgStatus kvg_cache_bring_begin(const KvCache *cache);
/* `at` says where the layer's bytes stand on the device; afterwards, where they stand in host memory. ENOMEM, EDEVICE: nothing is held. */
KvgStatus kvg_cache_bring(const KvCache *cache, KvBrought *at);
void      kvg_cache_bring_end(KvBrought *at);

#endif

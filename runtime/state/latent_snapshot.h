/** LatentPlaneSnapshot, LatentTailCapture: one latent layer's share of a sequence, kept apart from it, for a store of prefixes (S8).
 *
 *   snapshot   rows [0, len), final keys, and the index rows that have no key yet: a copy in device memory
 *   capture    those index rows now; the planes that only grow are read later, up to the capture's length
 * A snapshot goes into a fresh cache whose rows are booked, layer by layer; kvg_kv_cache_hydrate then makes them count, all at once.
 * Everything is checked before a byte moves. Device memory of both is their own; they outlive the cache, their device outlives them.
 * Threads: one at a time per cache. Reach: local. */
#ifndef KVG_LATENT_SNAPSHOT_H
#define KVG_LATENT_SNAPSHOT_H

#include <stddef.h>
#include <stdint.h>

#include <kvgrid/dev.h>
#include <kvgrid/latent.h>

KVG_BEGIN_DECLS

typedef struct KvCache KvCache;
typedef struct LatentPlaneSnapshot LatentPlaneSnapshot;
typedef struct LatentTailCapture   LatentTailCapture;

/** Copies layer `layer` as far as it is committed. In this order: ETAINTED; EINVAL no latent layer here, or no rows; EGEOM the pool of a
 *  pooled indexer is not known; ESTALE other pools are ready than the length says; EBUSY a step is open or a replay is owed; ENOMEM. */
KVG_API KvgStatus kvg_latent_snapshot_plane(const KvCache *cache, uint32_t layer, KvgStream stream, LatentPlaneSnapshot **snapshot);
/** Bytes that it holds, as encoded. */
KVG_API uint64_t  kvg_latent_snapshot_bytes(const LatentPlaneSnapshot *snapshot);
KVG_API uint64_t  kvg_latent_snapshot_len(const LatentPlaneSnapshot *snapshot);
/** Whether restore would go through. ETAINTED; EBUSY the target is not fresh; ELAYOUT another geometry or format; ECAPACITY more rows than
 *  are booked (or fit). */
KVG_API KvgStatus kvg_latent_validate_restore(const LatentPlaneSnapshot *snapshot, const KvCache *target, uint32_t layer);
/** Writes it into the target's layer, as bytes: nothing is encoded again. Errors as above; no byte has moved then. */
KVG_API KvgStatus kvg_latent_restore_plane(const LatentPlaneSnapshot *snapshot, KvCache *target, uint32_t layer, KvgStream stream);
KVG_API void      kvg_latent_snapshot_free(LatentPlaneSnapshot *snapshot); /* NULL is allowed */

/** Keeps the index rows that a later step may go over, at the committed length. Errors as snapshot_plane's. */
KVG_API KvgStatus kvg_latent_snapshot_tail(const KvCache *cache, uint32_t layer, KvgStream stream, LatentTailCapture **tail);
/** The snapshot that snapshot_plane would have made when `tail` was captured. ETAINTED; ESTALE another sequence's or layer's capture, or the
 *  layer has been shorter than the capture's length since (a rollback that owes rows below it, too); ENOMEM. */
KVG_API KvgStatus kvg_latent_snapshot_plane_at(const KvCache *cache, uint32_t layer, const LatentTailCapture *tail, KvgStream stream,
                                               LatentPlaneSnapshot **snapshot);
KVG_API void      kvg_latent_tail_free(LatentTailCapture *tail); /* NULL is allowed */

KVG_END_DECLS
#endif

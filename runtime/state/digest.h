/** Digest: the proof that two grids hold the same state (S8).
 *
 * Leaf = XXH3-128 (canonical form) of one plane's encoded rows of one layer and one head, in row order, in interchange bytes.
 * Sequence digest = XXH3-128 over len (u64, little-endian) and the leaves' 16 bytes each, sorted by (layer, plane, head).
 * Copies of a head on other ranks must be equal and count once. It does not depend on grid, chunking, concurrency,
 * speculation, growth, rings or device. Pure; threads: any. */
#ifndef KVG_DIGEST_H
#define KVG_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#include <kvgrid/status.h>

KVG_BEGIN_DECLS

enum { KVG_PLANE_K = 0, KVG_PLANE_V = 1, KVG_PLANE_LATENT = 2, KVG_PLANE_INDEX_ROWS = 3, KVG_PLANE_KEYS = 4,
       KVG_PLANE_CONV = 5, KVG_PLANE_STATE = 6 };

typedef struct KvLeaf {
    uint32_t layer;
    uint32_t plane;
    uint32_t head;     /* global */
    uint32_t reserved; /* 0 */
    uint8_t  hash[16];
} KvLeaf;

typedef struct KvDigest {
    uint8_t bytes[16];
} KvDigest;

/** Sorts `leaves` in place, folds equal copies, and forms the sequence digest. ELAYOUT: two copies of one leaf differ, naming it. */
KVG_API KvgStatus kvg_digest_combine(KvLeaf *leaves, size_t count, uint64_t len, KvDigest *digest);
/** 32 hex digits and a NUL. */
KVG_API void kvg_digest_hex(const KvDigest *digest, char hex[33]);

KVG_END_DECLS
#endif

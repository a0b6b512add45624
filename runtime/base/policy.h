/** Policy: the knobs, resolved once into a value that is passed to the pure rules (S1).
 *
 * An engine can build a policy itself and ignore the environment. The functions without a policy argument wrap
 * the process's own policy, which is read from the environment once, at first use. Reach: local. */
#ifndef KVG_POLICY_H
#define KVG_POLICY_H

#include <stddef.h>
#include <stdint.h>

#include <kvgrid/format.h>

KVG_BEGIN_DECLS

#define KVG_INTERFACE_BYTES 64 /* an interface's name or an address, with its end */

typedef struct KvgPolicy {
    size_t   size;             /* set by kvg_policy_default; tells old callers from new */
    KvFormat format_k;         /* KVGRID_KV_K, default q8_0 */
    KvFormat format_v;         /* KVGRID_KV_V, default q5_1 */
    uint8_t  gemma_gkv;        /* KVGRID_GEMMA_GKV: Gemma global layers hold fp8; default 1 */
    uint8_t  gemma_wkv;        /* KVGRID_GEMMA_WKV: Gemma windowed layers hold fp8; default 1, 0 when KVGRID_DRAFT is set */
    int8_t   kv_fp8;           /* KVGRID_KV_FP8: -1 unset, 1 every ordinary K/V layer holds fp8, 0 none does */
    int8_t   kv_fp8_force;     /* the per-model value that decides while kv_fp8 is unset: -1 unset, 0, 1 */
    int8_t   swa_ring;         /* KVGRID_SWA_RING: -1 unset, 0, 1 */
    int8_t   swa_ring_default; /* what unset means: 0 initially */
    int64_t  dsa_index_ring;   /* KVGRID_DSA_INDEX_RING: -1 unset, 0 flat, else rows of the indexer ring */
    uint32_t timeout_ms;       /* KVGRID_TIMEOUT_MS, default 30000 */
    uint32_t peer_ms;          /* KVGRID_PEER_MS, default 1000 */
    char     interface[KVG_INTERFACE_BYTES]; /* KVGRID_INTERFACE: KvMeshOptions.interface of the meshes that grids make; "" chosen. Each host's own: not compared */
} KvgPolicy;

/** The defaults of the table in S1, with no look at the environment. */
KVG_API void kvg_policy_default(KvgPolicy *policy);
/** The defaults, overridden by the environment (KVGRID_*, then the MEMRA_* alias; empty = unset).
 *  EINVAL: an unknown format word, a number that cannot be read, or too long an interface, with the legal ones listed. */
KVG_API KvgStatus kvg_policy_from_env(KvgPolicy *policy);
/** The process's policy: read from the environment at first use; EINVAL as above, each time until it is mended. Any thread;
 *  *policy stays where it is and what it is, but for the two setters below. */
KVG_API KvgStatus kvg_policy_process(const KvgPolicy **policy);

/* Derived answers, pure. */
KVG_API int kvg_policy_swa_ring_on(const KvgPolicy *policy);
KVG_API int kvg_policy_kv_fp8_on(const KvgPolicy *policy);

/* S1's functions over the process's policy. A policy that cannot be read counts as the default here;
 * kvg_policy_process reports it. Any thread; the two setters before other threads use the policy. */
KVG_API void kvg_kv_cache_formats(KvFormat *format_k, KvFormat *format_v);
KVG_API void kvg_kv_blk_bytes(uint32_t *k_bytes, uint32_t *v_bytes);
KVG_API int  kvg_gkv_on(void);
KVG_API int  kvg_wkv_on(void);
KVG_API int  kvg_kv_fp8_on(void);
KVG_API void kvg_kv_fp8_force_set(int force); /* -1, 0 or 1 */
KVG_API int  kvg_swa_ring_on(void);
KVG_API void kvg_set_swa_ring_default(int on);

/** One row of `kvgrid knobs`. */
typedef struct KvgKnob {
    const char *name;    /* KVGRID_... */
    const char *alias;   /* MEMRA_... or NULL */
    char        value[KVG_INTERFACE_BYTES];
    char        source[48]; /* "default", or the variable it was read from */
    const char *meaning;
    int         unread;     /* 1: the variable's text cannot be read; `value` is that text */
} KvgKnob;

/** Number of knobs. */
KVG_API int kvg_knob_count(void);
/** Knob `index` with its value now, as read from the environment (not from the cached process policy). EINVAL outside the range. */
KVG_API KvgStatus kvg_knob_get(int index, KvgKnob *knob);

KVG_END_DECLS
#endif

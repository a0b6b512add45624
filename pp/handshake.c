#include "pp/handshake.h"

#include <stddef.h>
#include <stdlib.h>

#define ITEM(name, field) { name, offsetof(KvHello, field) }

static const KvItem hello_items[] = {
    ITEM("the version of kvgrid", version),
    ITEM("the number of ranks", ranks),
    ITEM("tp", tp),
    ITEM("pp", pp),
    ITEM("the epoch", epoch),
    ITEM("max_in_flight (undecided steps)", window),
    ITEM("KVGRID_KV_K (format number)", format_k),
    ITEM("KVGRID_KV_V (format number)", format_v),
    ITEM("KVGRID_GEMMA_GKV", gemma_gkv),
    ITEM("KVGRID_GEMMA_WKV", gemma_wkv),
    ITEM("KVGRID_KV_FP8", kv_fp8),
    ITEM("KVGRID_SWA_RING", swa_ring),
    ITEM("KVGRID_DSA_INDEX_RING", dsa_index_ring),
};

void kvg_hello_make(const KvgGrid *grid, KvgStatus local, KvHello *hello)
{
    const KvgPolicy *policy = &grid->policy;

    *hello = (KvHello){
        .status = (uint64_t)local,
        .version = KVG_VERSION_MAJOR * 1000000u + KVG_VERSION_MINOR * 1000u + KVG_VERSION_PATCH,
        .rank = (uint64_t)grid->rank,
        .ranks = (uint64_t)grid->ranks,
        .tp = grid->tp,
        .pp = grid->pp,
        .epoch = grid->epoch,
        .window = grid->window,
        .format_k = policy->format_k,
        .format_v = policy->format_v,
        .gemma_gkv = policy->gemma_gkv,
        .gemma_wkv = policy->gemma_wkv,
        .kv_fp8 = kvg_policy_kv_fp8_on(policy),
        .swa_ring = kvg_policy_swa_ring_on(policy),
        .dsa_index_ring = policy->dsa_index_ring,
    };
}

KvgStatus kvg_hello_compare(const KvHello *hellos, int ranks, int rank)
{
    KvgStatus    status;
    const void **blocks;

    if (hellos[rank].status != KVG_OK) {
        return (KvgStatus)hellos[rank].status; /* its own sentence is still this thread's last error */
    }
    for (int other = 0; other < ranks; other++) {
        if (hellos[other].status != KVG_OK) {
            return kvg_fail(KVG_EREFUSED, "the grid was not made: rank %d says %s; its own message says why", other,
                            kvg_status_name((KvgStatus)hellos[other].status));
        }
        if (hellos[other].rank != (uint64_t)other) {
            return kvg_fail(KVG_EINVAL, "the bootstrap's all-gather put rank %llu's bytes in place %d; bytes must come in rank order",
                            (unsigned long long)hellos[other].rank, other);
        }
    }
    KVG_TRY(KVG_NEW((size_t)ranks, "the handshake", &blocks));
    for (int other = 0; other < ranks; other++) {
        blocks[other] = &hellos[other];
    }
    status = kvg_items_compare("the grid was not made", hello_items, sizeof hello_items / sizeof *hello_items, blocks, ranks);
    kvg_free(blocks);
    return status;
}

#include <kvgrid/digest.h>

#include <stdlib.h>
#include <string.h>

#define XXH_STATIC_LINKING_ONLY /* the state's layout, so that it can stand on the stack */
#include <xxhash.h>

#include "runtime/base/error.h"

static int compare_leaves(const void *a_p, const void *b_p)
{
    const KvLeaf *a = a_p;
    const KvLeaf *b = b_p;

    if (a->layer != b->layer) return a->layer < b->layer ? -1 : 1;
    if (a->plane != b->plane) return a->plane < b->plane ? -1 : 1;
    return (a->head > b->head) - (a->head < b->head);
}

static void hash_len(XXH3_state_t *state, uint64_t len)
{
    uint8_t bytes[8];

    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(len >> (8 * i));
    XXH3_128bits_update(state, bytes, sizeof bytes);
}

KvgStatus kvg_digest_combine(KvLeaf *leaves, size_t count, uint64_t len, KvDigest *digest)
{
    XXH3_state_t      state;
    XXH128_canonical_t canonical;

    if (count > 1) qsort(leaves, count, sizeof *leaves, compare_leaves);
    XXH3_128bits_reset(&state);
    hash_len(&state, len);
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && compare_leaves(&leaves[i - 1], &leaves[i]) == 0) { /* another rank's copy of the same head */
            if (memcmp(leaves[i - 1].hash, leaves[i].hash, sizeof leaves[i].hash) == 0) continue;
            return kvg_fail(KVG_ELAYOUT, "two copies of layer %u, plane %u, head %u differ at length %llu: a rank's rows are "
                            "damaged; close the sequence", leaves[i].layer, leaves[i].plane, leaves[i].head,
                            (unsigned long long)len);
        }
        XXH3_128bits_update(&state, leaves[i].hash, sizeof leaves[i].hash);
    }
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
    memcpy(digest->bytes, canonical.digest, sizeof digest->bytes);
    return KVG_OK;
}

void kvg_digest_hex(const KvDigest *digest, char hex[33])
{
    static const char digits[] = "0123456789abcdef";

    for (int i = 0; i < 16; i++) {
        hex[2 * i] = digits[digest->bytes[i] >> 4];
        hex[2 * i + 1] = digits[digest->bytes[i] & 15];
    }
    hex[32] = '\0';
}

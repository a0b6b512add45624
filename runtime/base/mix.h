/* Mix: a 64-bit finaliser for digests that are sums, so that a device can form them in parallel. Private.
 * The constants are those of the splitmix64 generator (Steele, Lea, Flood 2014). */
#ifndef KVG_MIX_H
#define KVG_MIX_H

#include <stdint.h>

#include "runtime/base/hd.h"

KVG_HD static inline uint64_t kvg_mix64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* One term of a digest: what stands at `index`, about `sequence` at `generation`, with `value`. */
KVG_HD static inline uint64_t kvg_mix_term(uint64_t index, uint64_t sequence, uint64_t generation, uint64_t value)
{
    return kvg_mix64(kvg_mix64(index * 0x9e3779b97f4a7c15u + sequence) ^
                     kvg_mix64(generation * 0xc2b2ae3d27d4eb4fu + value));
}

/* A sum of 0 is sent as 1: 0 on the wire means "not passed". */
KVG_HD static inline uint64_t kvg_digest_seal(uint64_t sum)
{
    return sum != 0 ? sum : 1;
}

#endif

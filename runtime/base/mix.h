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

/* A term in parts: what does not change from step to step can be kept. */
KVG_HD static inline uint64_t kvg_mix_place(uint64_t index, uint64_t sequence)
{
    return kvg_mix64(index * 0x9e3779b97f4a7c15u + sequence);
}

KVG_HD static inline uint64_t kvg_mix_mark(uint64_t generation)
{
    return generation * 0xc2b2ae3d27d4eb4fu;
}

KVG_HD static inline uint64_t kvg_mix_joined(uint64_t place, uint64_t mark, uint64_t value)
{
    return kvg_mix64(place ^ kvg_mix64(mark + value));
}

/* One term of a digest: what stands at `index`, about `sequence` at `generation`, with `value`. */
KVG_HD static inline uint64_t kvg_mix_term(uint64_t index, uint64_t sequence, uint64_t generation, uint64_t value)
{
    return kvg_mix_joined(kvg_mix_place(index, sequence), kvg_mix_mark(generation), value);
}

/* A sum of 0 is sent as 1: 0 on the wire means "not passed". */
KVG_HD static inline uint64_t kvg_digest_seal(uint64_t sum)
{
    return sum != 0 ? sum : 1;
}

#endif

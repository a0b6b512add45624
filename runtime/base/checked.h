/* Checked arithmetic on sizes: false means overflow, and the caller answers EOVERFLOW with its own sentence. Private. */
#ifndef KVG_CHECKED_H
#define KVG_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

static inline bool kvg_mul_u64(uint64_t a, uint64_t b, uint64_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}

static inline bool kvg_add_u64(uint64_t a, uint64_t b, uint64_t *sum)
{
    return !__builtin_add_overflow(a, b, sum);
}

/* a - b, or 0 where that would be negative. */
static inline uint64_t kvg_monus_u64(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static inline uint64_t kvg_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t kvg_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline uint64_t kvg_ceil_div_u64(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

#endif

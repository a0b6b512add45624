/* Replay's generator: keys by a chain of 64-bit mixes, elements by a 32-bit one that compilers vectorise. */
#include "launch/command/replay_generator.h"

#include "runtime/base/mix.h"

enum { REPLAY_RUN_ELEMENTS = 32 }; /* elements that share a scale: a quantisation block */

uint64_t kvg_replay_stream_key(uint64_t seed, uint64_t request, uint32_t layer, uint32_t plane)
{
    uint64_t key = kvg_mix64(seed);
    key = kvg_mix64(key ^ request);
    return kvg_mix64(key ^ ((uint64_t)plane << 32 | layer));
}

uint64_t kvg_replay_row_key(uint64_t stream_key, uint32_t head, uint64_t position)
{
    return kvg_mix64(kvg_mix64(stream_key ^ head) ^ position);
}

uint64_t kvg_replay_rejected_key(uint64_t row_key, uint64_t round)
{
    return kvg_mix64(~row_key ^ kvg_mix64(round));
}

/* The compiler makes a version for each of these and the loader picks one; integers and an exact multiplication: the same bits. Not under
 * a sanitizer, whose run-time is not up yet when the loader asks. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define REPLAY_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define REPLAY_CLONES
#endif

/* Elements [first, first+count) of a row, times `scale`, a power of two: 24-bit integers convert exactly. */
REPLAY_CLONES
static void fill_run(uint32_t low, uint32_t high, uint32_t first, size_t count, float scale, float *target)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t x = low + (first + (uint32_t)i) * 0x9e3779b9u;
        x = (x ^ (x >> 16)) * 0x85ebca6bu;
        x = (x ^ high ^ (x >> 13)) * 0xc2b2ae35u;
        x ^= x >> 16;
        target[i] = (float)((int32_t)(x >> 8) - (1 << 23)) * scale;
    }
}

void kvg_replay_fill(uint64_t row_key, float *target, size_t elements)
{
    const uint32_t low = (uint32_t)row_key, high = (uint32_t)(row_key >> 32);
    const float    full_scale = 4.0f / (float)(1 << 23);
    for (size_t first = 0; first < elements; first += REPLAY_RUN_ELEMENTS) {
        size_t   count = elements - first < REPLAY_RUN_ELEMENTS ? elements - first : REPLAY_RUN_ELEMENTS;
        /* Three bits of the key for each run: from the top, since the elements use the lower ones most. */
        uint32_t halvings = (uint32_t)(row_key >> (61 - 3 * (first / REPLAY_RUN_ELEMENTS % 8))) & 7u;
        float    scale = full_scale / (float)(1u << halvings);
        if (count == REPLAY_RUN_ELEMENTS) {
            fill_run(low, high, (uint32_t)first, REPLAY_RUN_ELEMENTS, scale, target + first); /* a constant count unrolls */
        } else {
            fill_run(low, high, (uint32_t)first, count, scale, target + first);
        }
    }
}

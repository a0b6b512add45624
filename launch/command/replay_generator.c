/* Replay's generator: keys by a chain of 64-bit mixes, elements by a 32-bit one that compilers vectorise. */
#include "launch/command/replay_generator.h"

#include <string.h>

#include "runtime/base/error.h"
#include "runtime/base/mix.h"

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

/* The compiler makes a version for each of these and the loader picks one; integers and exact conversions, and products and sums rounded
 * apart: the same bits. Not under a sanitizer, whose run-time is not up yet when the loader asks. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define REPLAY_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define REPLAY_CLONES
#endif
#define REPLAY_INLINE static inline __attribute__((always_inline)) /* into each version */

/* Elements of a row that share a scale are drawn from these. */
typedef struct Run {
    uint32_t low, high;
    float    scale; /* a power of two: 24-bit integers convert exactly, and the product is exact */
} Run;

REPLAY_INLINE Run run_of(uint64_t row_key, size_t first)
{
    const float full_scale = 4.0f / (float)(1 << 23);
    /* Three bits of the key for each run: from the top, since the elements use the lower ones most. */
    uint32_t halvings = (uint32_t)(row_key >> (61 - 3 * (first / REPLAY_RUN_ELEMENTS % 8))) & 7u;
    return (Run){ (uint32_t)row_key, (uint32_t)(row_key >> 32), full_scale / (float)(1u << halvings) };
}

REPLAY_INLINE float element_of(Run run, uint32_t at)
{
    uint32_t x = run.low + at * 0x9e3779b9u;
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ run.high ^ (x >> 13)) * 0xc2b2ae35u;
    x ^= x >> 16;
    return (float)((int32_t)(x >> 8) - (1 << 23)) * run.scale;
}

REPLAY_INLINE void fill_run(Run run, uint32_t first, size_t count, float *target)
{
    for (size_t i = 0; i < count; i++) {
        target[i] = element_of(run, first + (uint32_t)i);
    }
}

REPLAY_CLONES
static void fill_runs(uint64_t row_key, size_t first, float *target, size_t end)
{
    for (; first + REPLAY_RUN_ELEMENTS <= end; first += REPLAY_RUN_ELEMENTS) {
        fill_run(run_of(row_key, first), (uint32_t)first, REPLAY_RUN_ELEMENTS, target); /* a constant count unrolls */
        target += REPLAY_RUN_ELEMENTS;
    }
    fill_run(run_of(row_key, first), (uint32_t)first, end - first, target);
}

void kvg_replay_fill(uint64_t row_key, float *target, size_t elements)
{
    fill_runs(row_key, 0, target, elements);
}

void kvg_replay_fill_from(uint64_t row_key, size_t first, float *target, size_t elements)
{
    KVG_ASSERT(first % REPLAY_RUN_ELEMENTS == 0);
    fill_runs(row_key, first, target, first + elements);
}

/* One run of elements through all rows: it stays in registers, or near them, from the first row to the last. */
REPLAY_INLINE void fold_run(const uint64_t *row_keys, uint32_t rows, float decay, size_t first, size_t count, const float *in,
                            float *const *out)
{
    float state[REPLAY_RUN_ELEMENTS];
    memcpy(state, in + first, count * sizeof *state);
    for (uint32_t row = 0; row < rows; row++) {
        Run run = run_of(row_keys[row], first);
        for (size_t i = 0; i < count; i++) {
            float decayed = decay * state[i];
            state[i] = decayed + element_of(run, (uint32_t)(first + i));
        }
        if (out[row] != NULL) {
            memcpy(out[row] + first, state, count * sizeof *state);
        }
    }
}

REPLAY_CLONES
static void fold_runs(const uint64_t *row_keys, uint32_t rows, float decay, size_t elements, const float *in, float *const *out)
{
    size_t first = 0;
    for (; first + REPLAY_RUN_ELEMENTS <= elements; first += REPLAY_RUN_ELEMENTS) {
        fold_run(row_keys, rows, decay, first, REPLAY_RUN_ELEMENTS, in, out);
    }
    if (elements - first == REPLAY_RUN_ELEMENTS / 2) { /* a channel of Mamba-1 */
        fold_run(row_keys, rows, decay, first, REPLAY_RUN_ELEMENTS / 2, in, out);
    } else if (elements > first) {
        fold_run(row_keys, rows, decay, first, elements - first, in, out);
    }
}

void kvg_replay_fold(const uint64_t *row_keys, uint32_t rows, float decay, size_t elements, const float *in, float *const *out)
{
    fold_runs(row_keys, rows, decay, elements, in, out);
}

void kvg_replay_pool_key(const float *rows, uint32_t pool, uint32_t key_width, float *key)
{
    for (uint32_t i = 0; i < key_width; i++) {
        key[i] = 0;
    }
    for (uint32_t row = 0; row < pool; row++) {
        const float *value = rows + (size_t)row * 2 * key_width, *gate = value + key_width;
        for (uint32_t i = 0; i < key_width; i++) {
            float gated = gate[i] * value[i];
            key[i] = key[i] + gated;
        }
    }
}

/* Fuzz targets: what they share.
 *
 * A target is one source fuzz_NAME.c with LLVMFuzzerTestOneInput, built twice: with libFuzzer (run.sh), and with replay.c, which
 * runs the corpus in the ordinary tests. A target asserts more than "no crash": what it opened is closed, and the library asked for no more
 * memory than a stated multiple of the input and a constant:
 *
 *   FuzzCount count = fuzz_begin();
 *   ... the input's life ...
 *   fuzz_end(&count, size, 8, 64 << 10);   at most 8 bytes a byte of input, and 64 KiB
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvgrid/status.h>

#include "runtime/base/memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_CHECK(condition)                                                                                         \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            fprintf(stderr, "%s:%d: does not hold: %s [%s]\n", __FILE__, __LINE__, #condition, kvg_last_error());     \
            abort();                                                                                                  \
        }                                                                                                             \
    } while (0)

typedef struct FuzzCount {
    uint64_t live, asked;
} FuzzCount;

static inline FuzzCount fuzz_begin(void)
{
    return (FuzzCount){ kvg_live_allocations(), kvg_asked_bytes() };
}

static inline void fuzz_end(const FuzzCount *count, size_t size, uint64_t multiple, uint64_t constant)
{
    FUZZ_CHECK(kvg_live_allocations() == count->live);
    FUZZ_CHECK(kvg_asked_bytes() - count->asked <= size * multiple + constant);
}

/* A failure has one of the codes and a sentence without line ends. */
static inline void fuzz_check_failure(KvgStatus status)
{
    FUZZ_CHECK(status > KVG_OK && status < KVG_STATUS_COUNT);
    FUZZ_CHECK(kvg_last_error()[0] != '\0');
}

/* ---- an input as a stream of numbers; past its end everything is 0 */

typedef struct FuzzInput {
    const uint8_t *at;
    size_t         left;
} FuzzInput;

static inline uint64_t fuzz_number(FuzzInput *input, size_t bytes)
{
    uint64_t value = 0;

    for (size_t i = 0; i < bytes && input->left > 0; i++, input->at++, input->left--) {
        value |= (uint64_t)*input->at << (8 * i);
    }
    return value;
}

static inline uint8_t fuzz_u8(FuzzInput *input) { return (uint8_t)fuzz_number(input, 1); }
static inline uint16_t fuzz_u16(FuzzInput *input) { return (uint16_t)fuzz_number(input, 2); }
static inline uint32_t fuzz_u32(FuzzInput *input) { return (uint32_t)fuzz_number(input, 4); }
static inline uint64_t fuzz_u64(FuzzInput *input) { return fuzz_number(input, 8); }

/* Any number, small and boundary ones more often. */
static inline uint64_t fuzz_any(FuzzInput *input)
{
    uint8_t how = fuzz_u8(input);

    switch (how & 7) {
    case 0: return how >> 3;
    case 1: return fuzz_u8(input);
    case 2: return fuzz_u16(input);
    case 3: return fuzz_u32(input);
    case 4: return fuzz_u64(input);
    case 5: return UINT64_MAX - (how >> 3);
    case 6: return (1ull << (how >> 3)) - 1;
    default: return 1ull << (32 + (how >> 3) % 32);
    }
}

#endif

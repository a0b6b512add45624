/* Format: names, legality and sizes, all read from one table. */
#include <kvgrid/format.h>

#include <string.h>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"

enum { LEGAL_K = 1, LEGAL_V = 2, LOSSY = 4 };

typedef struct FormatRow {
    const char *name;
    uint8_t     block_elements;
    uint8_t     block_bytes;
    uint8_t     flags;
} FormatRow;

static const FormatRow formats[KVG_FORMAT_COUNT] = {
    [KVG_POLICY] = {"policy", 0, 0, 0},
    [KVG_F32]    = {"f32", 1, 4, 0}, /* latent rows only: never asked for as K or V */
    [KVG_F16]    = {"f16", 1, 2, LEGAL_K | LEGAL_V},
    [KVG_BF16]   = {"bf16", 1, 2, LEGAL_K | LEGAL_V},
    [KVG_Q8_0]   = {"q8_0", 32, 34, LEGAL_K | LEGAL_V | LOSSY},
    [KVG_Q5_1]   = {"q5_1", 32, 24, LEGAL_V | LOSSY}, /* a K row has no use for an offset: scores are differences */
    [KVG_Q4_0]   = {"q4_0", 32, 18, LEGAL_K | LEGAL_V | LOSSY},
    [KVG_FP8]    = {"fp8", 1, 1, LEGAL_K | LEGAL_V | LOSSY},
};

/* The row of a format, or an all-zero one for what is none. */
static FormatRow format_row(KvFormat format)
{
    static const FormatRow none = {"?", 0, 0, 0};

    return (unsigned)format < KVG_FORMAT_COUNT ? formats[format] : none;
}

const char *kvg_format_name(KvFormat format)
{
    return format_row(format).name;
}

KvgStatus kvg_format_parse(const char *word, KvFormat *format)
{
    for (int candidate = KVG_POLICY + 1; word != NULL && candidate < KVG_FORMAT_COUNT; candidate++) {
        if (strcmp(word, formats[candidate].name) == 0) {
            *format = (KvFormat)candidate;
            return KVG_OK;
        }
    }
    return kvg_fail(KVG_EINVAL, "'%s' is no format; legal are f32, f16, bf16, q8_0, q5_1, q4_0 and fp8",
                    word != NULL ? word : "(null)");
}

uint32_t kvg_format_block_elements(KvFormat format)
{
    return format_row(format).block_elements;
}

uint32_t kvg_format_block_bytes(KvFormat format)
{
    return format_row(format).block_bytes;
}

uint32_t kvg_format_bytes_per_32(KvFormat format)
{
    FormatRow row = format_row(format);

    return row.block_elements == 0 ? 0 : KVG_BLOCK_ELEMENTS / row.block_elements * row.block_bytes;
}

int kvg_format_is_lossy(KvFormat format)
{
    return (format_row(format).flags & LOSSY) != 0;
}

int kvg_format_legal_k(KvFormat format)
{
    return (format_row(format).flags & LEGAL_K) != 0;
}

int kvg_format_legal_v(KvFormat format)
{
    return (format_row(format).flags & LEGAL_V) != 0;
}

KvgStatus kvg_format_row_bytes(KvFormat format, uint64_t elements, uint64_t *bytes)
{
    FormatRow row = format_row(format);
    uint64_t  product = 0;

    if (row.block_elements == 0) {
        return kvg_fail(KVG_EINVAL, "format %d (%s) has no row size; resolve the policy to a format first", (int)format,
                        row.name);
    }
    if (elements % row.block_elements != 0) {
        return kvg_fail(KVG_EGEOM, "a row of %llu elements cuts a %s block of %u; use a multiple of %u, or bf16",
                        (unsigned long long)elements, row.name, row.block_elements, row.block_elements);
    }
    if (!kvg_mul_u64(elements / row.block_elements, row.block_bytes, &product)) {
        return kvg_fail(KVG_EOVERFLOW, "a %s row of %llu elements has more than 2^64 bytes; use fewer elements", row.name,
                        (unsigned long long)elements);
    }
    *bytes = product;
    return KVG_OK;
}

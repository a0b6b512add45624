#include "runtime/model/gguf.h"

#include <inttypes.h>
#include <string.h>

#include "runtime/base/checked.h"
#include "runtime/base/memory.h"

#define KEYS_MAX         4096u  /* real files have some tens, and each layer looks for some */
#define KEY_BYTES_MAX    65535u /* the format's own limit */
#define KEY_BYTES_LEAST  14u    /* a length, one character, a type, one byte of value */
#define ARRAY_DEPTH_MAX  4
#define TENSOR_DIMS_MAX  4u
#define TENSOR_ELEMENTS_MAX (1ull << 50) /* no tensor has as many; its bytes fit 64 bits in every type */
#define ALIGNMENT_LEAST  8u
#define ALIGNMENT_MOST   65536u

/* Bytes of one element; 0 for strings and arrays, which say their own. */
static const uint8_t type_bytes[GGUF_TYPE_COUNT] = {
    [GGUF_U8] = 1, [GGUF_I8] = 1, [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
    [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
};

/* ---- a cursor that never passes the end */

typedef struct Cursor {
    const char    *name;
    const uint8_t *bytes;
    size_t         at, end;
    bool           truncated; /* a read asked for more than there is */
} Cursor;

static size_t left(const Cursor *cursor)
{
    return cursor->end - cursor->at;
}

static KvgStatus cut_short(Cursor *cursor, const char *what)
{
    cursor->truncated = true;
    return kvg_fail(KVG_EFORMAT, "%s: the file ends within %s, at byte %zu; it is cut short or no GGUF file", cursor->name,
                    what, cursor->at);
}

static KvgStatus take(Cursor *cursor, uint64_t bytes, const char *what, const uint8_t **taken)
{
    if (bytes > left(cursor)) {
        return cut_short(cursor, what);
    }
    *taken = cursor->bytes + cursor->at;
    cursor->at += (size_t)bytes;
    return KVG_OK;
}

static uint64_t little_endian(const uint8_t *bytes, size_t count)
{
    uint64_t value = 0;

    for (size_t i = 0; i < count; i++) {
        value |= (uint64_t)bytes[i] << (8 * i);
    }
    return value;
}

static KvgStatus take_u32(Cursor *cursor, const char *what, uint32_t *value)
{
    const uint8_t *bytes = NULL;

    KVG_TRY(take(cursor, 4, what, &bytes));
    *value = (uint32_t)little_endian(bytes, 4);
    return KVG_OK;
}

static KvgStatus take_u64(Cursor *cursor, const char *what, uint64_t *value)
{
    const uint8_t *bytes = NULL;

    KVG_TRY(take(cursor, 8, what, &bytes));
    *value = little_endian(bytes, 8);
    return KVG_OK;
}

static KvgStatus take_string(Cursor *cursor, const char *what, const uint8_t **text, uint64_t *bytes)
{
    KVG_TRY(take_u64(cursor, what, bytes));
    return take(cursor, *bytes, what, text);
}

/* ---- values */

static KvgStatus bad_type(const Cursor *cursor, uint32_t type)
{
    return kvg_fail(KVG_EFORMAT, "%s: value type %u at byte %zu is none of GGUF's %d; the file is damaged", cursor->name, type,
                    cursor->at, GGUF_TYPE_COUNT);
}

/* Steps over `count` elements. Every count is held against the bytes left before it is believed. */
static KvgStatus skip_elements(Cursor *cursor, uint32_t type, uint64_t count, int depth)
{
    const uint8_t *skipped = NULL;
    uint64_t       bytes = 0, inner_count = 0;
    uint32_t       inner = 0;

    if (type >= GGUF_TYPE_COUNT) {
        return bad_type(cursor, type);
    }
    if (type_bytes[type] > 0) {
        return count > left(cursor) / type_bytes[type] ? cut_short(cursor, "an array")
                                                       : take(cursor, count * type_bytes[type], "a value", &skipped);
    }
    if (count > left(cursor) / 8) {
        return cut_short(cursor, "an array"); /* each element starts with 8 bytes at least */
    }
    if (depth >= ARRAY_DEPTH_MAX) {
        return kvg_fail(KVG_EFORMAT, "%s: arrays within arrays, %d deep at byte %zu; the file is damaged", cursor->name, depth,
                        cursor->at);
    }
    for (uint64_t i = 0; i < count; i++) {
        if (type == GGUF_STRING) {
            KVG_TRY(take_string(cursor, "a string", &skipped, &bytes));
            continue;
        }
        KVG_TRY(take_u32(cursor, "an array", &inner));
        KVG_TRY(take_u64(cursor, "an array", &inner_count));
        KVG_TRY(skip_elements(cursor, inner, inner_count, depth + 1));
    }
    return KVG_OK;
}

static KvgStatus take_value(Cursor *cursor, GgufEntry *entry)
{
    entry->element_type = entry->type;
    entry->count = 1;
    if (entry->type == GGUF_STRING) {
        return take_string(cursor, "a string", &entry->value, &entry->count);
    }
    if (entry->type == GGUF_ARRAY) {
        KVG_TRY(take_u32(cursor, "an array", &entry->element_type));
        KVG_TRY(take_u64(cursor, "an array", &entry->count));
    }
    entry->value = cursor->bytes + cursor->at;
    return skip_elements(cursor, entry->element_type, entry->count, entry->type == GGUF_ARRAY);
}

static KvgStatus take_entry(Cursor *cursor, GgufEntry *entry)
{
    const uint8_t *key = NULL;
    uint64_t       key_bytes = 0;

    KVG_TRY(take_string(cursor, "a key", &key, &key_bytes));
    if (key_bytes == 0 || key_bytes > KEY_BYTES_MAX) {
        return kvg_fail(KVG_EFORMAT, "%s: a key of %" PRIu64 " bytes before byte %zu; GGUF's keys have 1 to %u, so the file is "
                        "damaged", cursor->name, key_bytes, cursor->at, KEY_BYTES_MAX);
    }
    entry->key = (const char *)key;
    entry->key_bytes = (size_t)key_bytes;
    KVG_TRY(take_u32(cursor, "a key's type", &entry->type));
    if (entry->type >= GGUF_TYPE_COUNT) {
        return bad_type(cursor, entry->type);
    }
    return take_value(cursor, entry);
}

/* ---- the head */

static KvgStatus take_head(Cursor *cursor, GgufFile *file, uint64_t *key_count)
{
    const uint8_t *magic = NULL;
    uint32_t       version = 0;

    KVG_TRY(take(cursor, 4, "the magic", &magic));
    if (memcmp(magic, "GGUF", 4) != 0) {
        return kvg_fail(KVG_EFORMAT, "%s: does not start with \"GGUF\"; give a .gguf file", cursor->name);
    }
    KVG_TRY(take_u32(cursor, "the version", &version));
    if (version == 1 || version > 3) {
        return kvg_fail(KVG_ENOTSUP, "%s: GGUF version %u; versions 2 and 3, little-endian, are read: convert the file",
                        cursor->name, version);
    }
    if (version == 0) {
        return kvg_fail(KVG_EFORMAT, "%s: GGUF version 0 does not exist; the file is damaged", cursor->name);
    }
    KVG_TRY(take_u64(cursor, "the tensor count", &file->tensor_count));
    KVG_TRY(take_u64(cursor, "the key count", key_count));
    if (*key_count > KEYS_MAX) {
        return kvg_fail(KVG_EFORMAT, "%s: %" PRIu64 " keys are more than any model file has (%u); the file is damaged",
                        cursor->name, *key_count, KEYS_MAX);
    }
    return *key_count > left(cursor) / KEY_BYTES_LEAST ? cut_short(cursor, "the keys") : KVG_OK;
}

static KvgStatus check_alignment(const GgufFile *file)
{
    const GgufEntry *entry = NULL;
    uint64_t         alignment = 0;

    KVG_TRY(kvg_gguf_find(file, "general.alignment", &entry));
    if (entry == NULL) {
        return KVG_OK;
    }
    KVG_TRY(kvg_gguf_number(file, entry, 0, ALIGNMENT_LEAST, ALIGNMENT_MOST, &alignment));
    if ((alignment & (alignment - 1)) != 0) {
        return kvg_fail(KVG_EFORMAT, "%s: general.alignment is %" PRIu64 ", no power of two; the file is damaged", file->name,
                        alignment);
    }
    return KVG_OK;
}

static KvgStatus read_entries(Cursor *cursor, GgufFile *file)
{
    uint64_t key_count = 0;

    KVG_TRY(take_head(cursor, file, &key_count));
    KVG_TRY(KVG_NEW((size_t)key_count, "the keys of a GGUF file", &file->entries)); /* kvg_gguf_open frees them if the rest fails */
    for (; file->entry_count < key_count; file->entry_count++) {
        KVG_TRY(take_entry(cursor, &file->entries[file->entry_count]));
    }
    file->tensors_at = cursor->at;
    return check_alignment(file);
}

KvgStatus kvg_gguf_open(const void *bytes, size_t byte_count, const char *name, GgufFile *file, bool *truncated)
{
    Cursor    cursor = {.name = name, .bytes = bytes, .end = byte_count};
    KvgStatus status;

    *file = (GgufFile){.name = name, .bytes = bytes, .byte_count = byte_count};
    status = read_entries(&cursor, file);
    if (status != KVG_OK) {
        kvg_gguf_close(file);
    }
    if (truncated != NULL) {
        *truncated = cursor.truncated;
    }
    return status;
}

void kvg_gguf_close(GgufFile *file)
{
    kvg_free(file->entries);
    *file = (GgufFile){.name = NULL};
}

/* ---- reading */

KvgStatus kvg_gguf_find(const GgufFile *file, const char *key, const GgufEntry **entry)
{
    size_t key_bytes = strlen(key);

    *entry = NULL;
    for (size_t i = 0; i < file->entry_count; i++) {
        const GgufEntry *here = &file->entries[i];
        if (here->key_bytes != key_bytes || memcmp(here->key, key, key_bytes) != 0) {
            continue;
        }
        if (*entry != NULL) {
            return kvg_fail(KVG_EFORMAT, "%s: %s stands twice; the file is damaged", file->name, key);
        }
        *entry = here;
    }
    return KVG_OK;
}

static bool is_signed(uint32_t type)
{
    return type == GGUF_I8 || type == GGUF_I16 || type == GGUF_I32 || type == GGUF_I64;
}

static bool is_whole(uint32_t type)
{
    return type < GGUF_TYPE_COUNT && type_bytes[type] > 0 && type != GGUF_F32 && type != GGUF_F64;
}

KvgStatus kvg_gguf_number(const GgufFile *file, const GgufEntry *entry, uint64_t index, uint64_t min, uint64_t max,
                          uint64_t *number)
{
    uint64_t value;
    size_t   bytes;
    bool     negative;
    int      key_bytes = (int)entry->key_bytes;

    if (!is_whole(entry->element_type)) {
        return kvg_fail(KVG_EFORMAT, "%s: %.*s is no whole number (type %u); mend the file", file->name, key_bytes, entry->key,
                        entry->element_type);
    }
    if (index >= entry->count) {
        return kvg_fail(KVG_EFORMAT, "%s: %.*s has %" PRIu64 " entries, and entry %" PRIu64 " is needed; mend the file",
                        file->name, key_bytes, entry->key, entry->count, index);
    }
    bytes = type_bytes[entry->element_type];
    value = little_endian(entry->value + index * bytes, bytes);
    negative = is_signed(entry->element_type) && (value >> (8 * bytes - 1)) != 0;
    if (negative || value < min || value > max) {
        return kvg_fail(KVG_EFORMAT, "%s: %.*s is %s%" PRIu64 " where %" PRIu64 " to %" PRIu64 " makes sense; mend the file",
                        file->name, key_bytes, entry->key, negative ? "negative, bits " : "", value, min, max);
    }
    *number = value;
    return KVG_OK;
}

/* ---- tensors */

/* ggml's types: elements and bytes of a block, 0 where no such type is known. */
static const struct {
    uint16_t elements, bytes;
} tensor_types[] = {
    [0] = {1, 4},      [1] = {1, 2},      [2] = {32, 18},    [3] = {32, 20},   [6] = {32, 22},   [7] = {32, 24},
    [8] = {32, 34},    [9] = {32, 36},    [10] = {256, 84},  [11] = {256, 110}, [12] = {256, 144}, [13] = {256, 176},
    [14] = {256, 210}, [15] = {256, 292}, [16] = {256, 66},  [17] = {256, 74}, [18] = {256, 98}, [19] = {256, 50},
    [20] = {32, 18},   [21] = {256, 110}, [22] = {256, 82},  [23] = {256, 136}, [24] = {1, 1},   [25] = {1, 2},
    [26] = {1, 4},     [27] = {1, 8},     [28] = {1, 8},     [29] = {256, 56}, [30] = {1, 2},    [34] = {256, 54},
    [35] = {256, 66},  [39] = {32, 17},
};

static KvgStatus take_elements(Cursor *cursor, const GgufTensor *tensor, uint64_t *elements)
{
    uint32_t dims = 0;

    KVG_TRY(take_u32(cursor, "the tensor list", &dims));
    if (dims > TENSOR_DIMS_MAX) {
        return kvg_fail(KVG_EFORMAT, "%s: tensor %.*s has %u dimensions, more than %u; the file is damaged", cursor->name,
                        (int)tensor->name_bytes, tensor->name, dims, TENSOR_DIMS_MAX);
    }
    *elements = 1;
    for (uint32_t i = 0; i < dims; i++) {
        uint64_t dim = 0;
        KVG_TRY(take_u64(cursor, "the tensor list", &dim));
        if (dim == 0 || !kvg_mul_u64(*elements, dim, elements) || *elements > TENSOR_ELEMENTS_MAX) {
            return kvg_fail(KVG_EFORMAT, "%s: dimension %u of tensor %.*s is %" PRIu64 ", which is 0 or makes it larger than any "
                            "tensor is; the file is damaged", cursor->name, i, (int)tensor->name_bytes, tensor->name, dim);
        }
    }
    return KVG_OK;
}

/* *known is false for a type that the table does not have. */
static KvgStatus take_tensor(Cursor *cursor, GgufTensor *tensor, bool *known)
{
    const uint8_t *name = NULL, *offset = NULL;
    uint64_t       name_bytes = 0, elements = 0;
    uint32_t       type = 0;

    KVG_TRY(take_string(cursor, "the tensor list", &name, &name_bytes));
    tensor->name = (const char *)name;
    tensor->name_bytes = (size_t)(name_bytes < KEY_BYTES_MAX ? name_bytes : KEY_BYTES_MAX);
    KVG_TRY(take_elements(cursor, tensor, &elements));
    KVG_TRY(take_u32(cursor, "the tensor list", &type));
    KVG_TRY(take(cursor, 8, "the tensor list", &offset));
    *known = type < sizeof tensor_types / sizeof tensor_types[0] && tensor_types[type].elements > 0;
    if (*known) {
        tensor->bytes = kvg_ceil_div_u64(elements, tensor_types[type].elements) * tensor_types[type].bytes;
    }
    return KVG_OK;
}

KvgStatus kvg_gguf_tensors(const GgufFile *file, GgufTensorFn fn, void *user, GgufList *list)
{
    Cursor cursor = {.name = file->name, .bytes = file->bytes, .at = file->tensors_at, .end = file->byte_count};

    *list = GGUF_LIST_UNKNOWN;
    for (uint64_t i = 0; i < file->tensor_count; i++) {
        GgufTensor tensor = {.name = NULL};
        bool       known = false;
        KvgStatus  status = take_tensor(&cursor, &tensor, &known);
        if (status != KVG_OK) {
            *list = GGUF_LIST_CUT;
            return cursor.truncated ? KVG_OK : status; /* the list may be missing, but not wrong */
        }
        if (!known) {
            return KVG_OK;
        }
        fn(user, &tensor);
    }
    *list = file->tensor_count > 0 ? GGUF_LIST_WHOLE : GGUF_LIST_UNKNOWN;
    return KVG_OK;
}

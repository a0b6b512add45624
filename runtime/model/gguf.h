/* GGUF: the head of a model file as an index of its keys, read with every step checked against the bytes that are there.
 * Private. The format (versions 2 and 3, little-endian):
 *
 *   "GGUF"  u32 version  u64 tensor_count  u64 key_count
 *   key_count x   { string key, u32 type, value }        string = u64 bytes, then the bytes
 *   tensor_count x { string name, u32 n_dims, u64 dims[n_dims], u32 type, u64 offset }
 *   padding to general.alignment, then tensor data (never looked at)
 *
 * A file may end anywhere after the keys: the tensor list only sharpens estimates. Nothing is copied: entries point into
 * the caller's bytes. */
#ifndef KVG_GGUF_H
#define KVG_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

typedef enum GgufType {
    GGUF_U8 = 0, GGUF_I8 = 1, GGUF_U16 = 2, GGUF_I16 = 3, GGUF_U32 = 4, GGUF_I32 = 5, GGUF_F32 = 6, GGUF_BOOL = 7,
    GGUF_STRING = 8, GGUF_ARRAY = 9, GGUF_U64 = 10, GGUF_I64 = 11, GGUF_F64 = 12, GGUF_TYPE_COUNT
} GgufType;

typedef struct GgufEntry {
    const char    *key; /* not terminated */
    size_t         key_bytes;
    uint32_t       type;         /* GgufType */
    uint32_t       element_type; /* of an array; else the type itself */
    uint64_t       count;        /* elements of an array; bytes of a string; else 1 */
    const uint8_t *value;        /* the elements, the characters, or the scalar */
} GgufEntry;

typedef struct GgufFile {
    const char    *name;
    const uint8_t *bytes;
    size_t         byte_count;
    size_t         tensors_at; /* where the tensor list starts */
    uint64_t       tensor_count;
    GgufEntry     *entries;
    size_t         entry_count;
} GgufFile;

/* EFORMAT malformed; *truncated (may be NULL) then says that more bytes might mend it. ENOTSUP a version that is not read. */
KvgStatus kvg_gguf_open(const void *bytes, size_t byte_count, const char *name, GgufFile *file, bool *truncated);
void      kvg_gguf_close(GgufFile *file);

/* The entry with this key, NULL if there is none. EFORMAT if the key stands twice. */
KvgStatus kvg_gguf_find(const GgufFile *file, const char *key, const GgufEntry **entry);
/* Element `index` of an array of whole numbers or booleans, or a scalar at index 0.
 * EFORMAT if it is none, or not in [min, max]. */
KvgStatus kvg_gguf_number(const GgufFile *file, const GgufEntry *entry, uint64_t index, uint64_t min, uint64_t max,
                          uint64_t *number);

typedef struct GgufTensor {
    const char *name; /* not terminated */
    size_t      name_bytes;
    uint64_t    bytes;
} GgufTensor;

typedef void (*GgufTensorFn)(void *user, const GgufTensor *tensor);

typedef enum GgufList {
    GGUF_LIST_WHOLE   = 0,
    GGUF_LIST_CUT     = 1, /* the bytes end before it does: what was seen is of no use */
    GGUF_LIST_UNKNOWN = 2  /* empty, or a tensor has a type that is not known: the same */
} GgufList;

/* Calls `fn` for each tensor. EFORMAT for dimensions that are 0 or whose product wraps. */
KvgStatus kvg_gguf_tensors(const GgufFile *file, GgufTensorFn fn, void *user, GgufList *list);

#endif

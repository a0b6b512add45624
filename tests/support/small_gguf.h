/* Small GGUF heads, written key by key where they are used. */
#ifndef KVG_TEST_SMALL_GGUF_H
#define KVG_TEST_SMALL_GGUF_H

#include <check.h>
#include <string.h>

#include <kvgrid/model.h>

#include "runtime/model/gguf.h"
#include "tests/support/no_leak.h"

#define HEAD_MAX 8192

/* A GGUF head under construction. set_counts() keeps its counts. */
typedef struct Head {
    uint8_t  bytes[HEAD_MAX];
    size_t   used;
    uint64_t keys, tensors;
} Head;

static inline void put(Head *head, const void *bytes, size_t count)
{
    ck_assert_uint_le(head->used + count, HEAD_MAX);
    if (count > 0) {
        memcpy(head->bytes + head->used, bytes, count);
    }
    head->used += count;
}

static inline void put_le(Head *head, uint64_t value, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint8_t byte = i < 8 ? (uint8_t)(value >> (8 * i)) : 0;
        put(head, &byte, 1);
    }
}

static inline void put_string(Head *head, const char *text)
{
    put_le(head, strlen(text), 8);
    put(head, text, strlen(text));
}

static inline void start(Head *head, uint32_t version)
{
    memset(head, 0, sizeof *head);
    put(head, "GGUF", 4);
    put_le(head, version, 4);
    put_le(head, 0, 16);
}

static inline void set_counts(Head *head)
{
    for (int i = 0; i < 8; i++) {
        head->bytes[8 + i] = (uint8_t)(head->tensors >> (8 * i));
        head->bytes[16 + i] = (uint8_t)(head->keys >> (8 * i));
    }
}

static inline void key(Head *head, const char *name, uint32_t type)
{
    put_string(head, name);
    put_le(head, type, 4);
    head->keys++;
    set_counts(head);
}

static inline void key_u32(Head *head, const char *name, uint32_t value)
{
    key(head, name, GGUF_U32);
    put_le(head, value, 4);
}

static inline void key_string(Head *head, const char *name, const char *value)
{
    key(head, name, GGUF_STRING);
    put_string(head, value);
}

static inline void key_array(Head *head, const char *name, uint32_t type, size_t width, const uint32_t *values, size_t count)
{
    key(head, name, GGUF_ARRAY);
    put_le(head, type, 4);
    put_le(head, count, 8);
    for (size_t i = 0; i < count; i++) {
        put_le(head, values[i], width);
    }
}

static inline void tensor(Head *head, const char *name, uint64_t dim0, uint64_t dim1, uint32_t type)
{
    put_string(head, name);
    put_le(head, 2, 4);
    put_le(head, dim0, 8);
    put_le(head, dim1, 8);
    put_le(head, type, 4);
    put_le(head, 0, 8);
    head->tensors++;
    set_counts(head);
}

/* llama with 4 layers, 8 heads, 2 K/V heads of 64. */
static inline void llama(Head *head, uint32_t version)
{
    start(head, version);
    key_string(head, "general.architecture", "llama");
    key_string(head, "general.name", "a small model");
    key_u32(head, "llama.block_count", 4);
    key_u32(head, "llama.context_length", 2048);
    key_u32(head, "llama.embedding_length", 512);
    key_u32(head, "llama.feed_forward_length", 1024);
    key_u32(head, "llama.attention.head_count", 8);
    key_u32(head, "llama.attention.head_count_kv", 2);
}

static inline KvgStatus parse(const Head *head, ModelConfig *config)
{
    *config = (ModelConfig){.context = 0};
    return kvg_model_config_parse_gguf(head->bytes, head->used, "head", config);
}

static inline void refuse(const Head *head, KvgStatus status, const char *naming)
{
    ModelConfig config;

    ck_assert_int_eq(parse(head, &config), status);
    ck_assert_msg(strstr(kvg_last_error(), naming) != NULL, "\"%s\" does not name %s", kvg_last_error(), naming);
    ck_assert_ptr_null(config.plan.layers);
}

#endif

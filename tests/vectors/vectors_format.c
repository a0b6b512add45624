/* Vectors of the formats (S1): values in, stored bytes and decoded values out, bit for bit. */
#include "vectors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvgrid/format.h>

#define ELEMENTS_MAX 4096

static int hex_digit(char digit)
{
    if (digit >= '0' && digit <= '9') return digit - '0';
    if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
    return -1;
}

/* The bytes that member `key` spells in hex, at most `room`. */
static size_t read_hex(VectorLine *line, const char *key, uint8_t *bytes, size_t room)
{
    const char *text = vector_string(line, line->json, key);
    size_t count = strlen(text) / 2;
    if (strlen(text) % 2 != 0 || count == 0 || count > room) {
        vector_malformed(line, "\"%s\" is no hex of 1 to %zu bytes", key, room);
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
        if (high < 0 || low < 0) vector_malformed(line, "\"%s\" has a digit that is not hex", key);
        bytes[i] = (uint8_t)((high & 15) << 4 | (low & 15));
    }
    return count;
}

/* An f32's bit pattern written as one number: most significant digit first. */
static uint32_t read_pattern(VectorLine *line, const char *key)
{
    uint8_t bytes[4] = {0};
    if (read_hex(line, key, bytes, 4) != 4) vector_malformed(line, "\"%s\" is no 8 hex digits", key);
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static VectorResult compare_bytes(VectorLine *line, const char *what, const void *want, const void *got, size_t count)
{
    const uint8_t *a = want, *b = got;
    for (size_t i = 0; i < count; i++) {
        if (a[i] == b[i]) continue;
        snprintf(line->why, sizeof line->why, "%s: byte %zu is %02x, want %02x", what, i, b[i], a[i]);
        return VECTOR_MISMATCH;
    }
    return VECTOR_MATCH;
}

typedef void (*EncodeFn)(KvFormat, const float *, size_t, void *, KvEncodeCounts *);

/* Encodes by one path and compares, then decodes the wanted row and compares. Both sides are whole rows. */
static VectorResult check_row(VectorLine *line, KvFormat format, const float *values, size_t elements, const uint8_t *row,
                              const float *decoded)
{
    static const struct {
        const char *name;
        EncodeFn    encode;
    } paths[] = {{"encoded", kvg_encode_f32}, {"encoded (reference)", kvg_encode_f32_ref}};
    uint64_t bytes = 0;
    if (kvg_format_row_bytes(format, elements, &bytes) != KVG_OK) vector_malformed(line, "%s", kvg_last_error());
    if (line->malformed) return VECTOR_MALFORMED;
    uint8_t *got = calloc(1, bytes);
    float *back = calloc(elements, sizeof *back);
    if (got == NULL || back == NULL) abort();
    VectorResult result = VECTOR_MATCH;
    for (size_t i = 0; i < 2 && result == VECTOR_MATCH; i++) {
        paths[i].encode(format, values, elements, got, NULL);
        result = compare_bytes(line, paths[i].name, row, got, bytes);
    }
    if (result == VECTOR_MATCH) {
        kvg_decode_f32(format, row, elements, back);
        result = compare_bytes(line, "decoded", decoded, back, elements * sizeof *back);
    }
    free(back);
    free(got);
    return result;
}

static VectorResult run_row(VectorLine *line, KvFormat format)
{
    static float values[ELEMENTS_MAX], decoded[ELEMENTS_MAX];
    static uint8_t row[ELEMENTS_MAX * 4];
    size_t value_bytes = read_hex(line, "values", (uint8_t *)values, sizeof values);
    size_t decoded_bytes = read_hex(line, "decoded", (uint8_t *)decoded, sizeof decoded);
    size_t row_bytes = read_hex(line, "block", row, sizeof row);
    uint64_t want_bytes = 0;
    if (value_bytes % 4 != 0 || value_bytes != decoded_bytes) vector_malformed(line, "values and decoded differ in length");
    if (kvg_format_row_bytes(format, value_bytes / 4, &want_bytes) != KVG_OK || want_bytes != row_bytes) {
        vector_malformed(line, "\"block\" is no whole row of those values");
    }
    if (line->malformed) return VECTOR_MALFORMED;
    return check_row(line, format, values, value_bytes / 4, row, decoded);
}

static VectorResult run_code(VectorLine *line, KvFormat format)
{
    uint32_t value_bits = read_pattern(line, "value"), decoded_bits = read_pattern(line, "decoded");
    uint8_t code[4];
    size_t bytes = read_hex(line, "code", code, sizeof code);
    if (kvg_format_block_elements(format) != 1 || bytes != kvg_format_block_bytes(format)) {
        vector_malformed(line, "\"code\" is no code of this format");
    }
    float value, decoded;
    memcpy(&value, &value_bits, sizeof value);
    memcpy(&decoded, &decoded_bits, sizeof decoded);
    return line->malformed ? VECTOR_MALFORMED : check_row(line, format, &value, 1, code, &decoded);
}

VectorResult vector_run_format(VectorLine *line)
{
    KvFormat format = KVG_POLICY;
    const char *word = vector_string(line, line->json, "format");
    if (kvg_format_parse(word, &format) != KVG_OK || format == KVG_POLICY) {
        vector_malformed(line, "\"%.100s\" is no format", word);
        return VECTOR_MALFORMED;
    }
    return json_object_get(line->json, "value") != NULL ? run_code(line, format) : run_row(line, format);
}

#include "wire.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- a line's meaning */

static void bad(WireLine *line, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void bad(WireLine *line, const char *format, ...)
{
    va_list arguments;

    line->kind = WIRE_BAD;
    va_start(arguments, format);
    vsnprintf(line->why, sizeof line->why, format, arguments);
    va_end(arguments);
}

/* 1 if `value` is an id: it is copied. */
static int take_id(const json_t *value, WireLine *line)
{
    const size_t length = json_is_string(value) ? json_string_length(value) : 0;

    if (length == 0 || length > WIRE_ID_MAX || strlen(json_string_value(value)) != length) return 0;
    memcpy(line->id, json_string_value(value), length + 1);
    return 1;
}

static void take_text(const json_t *prompt, WireLine *line)
{
    const uint8_t *text = (const uint8_t *)json_string_value(prompt);

    line->prompt_count = (uint32_t)json_string_length(prompt);
    for (uint32_t i = 0; i < line->prompt_count && i < WIRE_TOKENS_MAX; i++) line->prompt[i] = text[i];
}

static void take_tokens(const json_t *prompt, WireLine *line)
{
    line->prompt_count = (uint32_t)json_array_size(prompt);
    for (uint32_t i = 0; i < line->prompt_count && i < WIRE_TOKENS_MAX; i++) {
        const json_t *token = json_array_get(prompt, i);
        if (!json_is_integer(token) || json_integer_value(token) < 0 || json_integer_value(token) > 255) {
            bad(line, "\"prompt\": element %u is no token, an integer from 0 to 255", i);
            return;
        }
        line->prompt[i] = (uint16_t)json_integer_value(token);
    }
}

static void take_prompt(const json_t *prompt, WireLine *line)
{
    if (json_is_string(prompt)) take_text(prompt, line);
    else if (json_is_array(prompt)) take_tokens(prompt, line);
    else bad(line, "\"prompt\" is wanted, a text or an array of tokens");
    if (line->kind == WIRE_BAD) return;
    if (line->prompt_count == 0) bad(line, "\"prompt\" is empty: at least one token is wanted");
    if (line->prompt_count > WIRE_TOKENS_MAX) bad(line, "\"prompt\" has %u tokens, more than any request may have (%d)", line->prompt_count, WIRE_TOKENS_MAX);
}

static void take_request(const json_t *object, WireLine *line)
{
    const json_t *most = json_object_get(object, "max_tokens"), *system = json_object_get(object, "system");

    line->kind = WIRE_REQUEST;
    if (!take_id(json_object_get(object, "id"), line)) {
        bad(line, "\"id\" is wanted, a text of 1 to %d bytes", WIRE_ID_MAX);
        return;
    }
    if (most != NULL && (!json_is_integer(most) || json_integer_value(most) < 1 || json_integer_value(most) > 65535)) {
        bad(line, "\"max_tokens\" is no integer from 1 to 65535");
    } else if (system != NULL && !json_is_boolean(system)) {
        bad(line, "\"system\" is neither true nor false");
    } else {
        line->max_tokens = most != NULL ? (uint32_t)json_integer_value(most) : 16;
        line->system = json_is_true(system);
        take_prompt(json_object_get(object, "prompt"), line);
    }
}

static void take_line(const char *text, size_t bytes, WireLine *line)
{
    static const char *const known[] = { "id", "prompt", "max_tokens", "system", "abort" };
    json_error_t             error;
    json_t                  *object = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    const char              *key;
    json_t                  *value;

    memset(line, 0, offsetof(WireLine, prompt));
    if (!json_is_object(object)) {
        bad(line, "no JSON object: %s", object == NULL ? error.text : "another kind of value");
    } else if (json_object_get(object, "abort") != NULL) {
        line->kind = WIRE_ABORT;
        if (!take_id(json_object_get(object, "abort"), line)) bad(line, "\"abort\" names no request");
    } else {
        take_request(object, line);
    }
    json_object_foreach(object, key, value) {
        int found = 0;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) found |= strcmp(key, known[i]) == 0;
        if (!found && line->kind != WIRE_BAD) bad(line, "\"%s\" is no field of a request", strlen(key) <= 64 ? key : "...");
    }
    json_decref(object);
}

/* ---- lines out of bytes */

int wire_read(WireReader *reader)
{
    ssize_t got;

    do got = read(reader->fd, reader->bytes + reader->have, sizeof reader->bytes - reader->have);
    while (got < 0 && errno == EINTR);
    if (got > 0) {
        reader->have += (size_t)got;
        return 1;
    }
    if (got == 0 && reader->have > 0 && reader->have < sizeof reader->bytes) reader->bytes[reader->have++] = '\n';
    return (int)got;
}

static int is_blank(const char *text, size_t bytes)
{
    while (bytes > 0 && memchr(" \t\r\n", *text, 4) != NULL) text++, bytes--;
    return bytes == 0;
}

/* Takes the first `bytes` bytes out. */
static void pass(WireReader *reader, size_t bytes)
{
    reader->have -= bytes;
    memmove(reader->bytes, reader->bytes + bytes, reader->have);
}

int wire_next(WireReader *reader)
{
    for (;;) {
        const char  *end = memchr(reader->bytes, '\n', reader->have);
        const size_t length = end != NULL ? (size_t)(end - reader->bytes) : reader->have;
        const int    was_skipping = reader->skipping;

        if (end == NULL && length < sizeof reader->bytes) {
            if (was_skipping) reader->have = 0;
            return 0;
        }
        reader->skipping = end == NULL;
        if (!was_skipping && end == NULL) {
            memset(&reader->line, 0, offsetof(WireLine, prompt));
            bad(&reader->line, "a line has more than %d bytes; it was skipped", WIRE_LINE_MAX);
        } else if (!was_skipping && !is_blank(reader->bytes, length)) {
            take_line(reader->bytes, length, &reader->line);
        } else {
            pass(reader, length + (end != NULL)); /* an empty line, or the rest of one that was too long */
            continue;
        }
        pass(reader, length + (end != NULL));
        return 1;
    }
}

/* ---- out */

/* After a line that nobody took, no other is tried. Said once, on stderr; a client that went away knows it. */
static int write_line(json_t *object)
{
    int is_first = !ferror(stdout);
    int failed = object == NULL || !is_first || json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6)) != 0 || putchar('\n') == EOF || fflush(stdout) != 0;

    if (failed && is_first && errno != EPIPE) {
        const char *why = object == NULL ? "no memory" : errno == EINTR ? "nobody reads them" : strerror(errno); /* interrupted: asked to stop (serve.c) */
        fprintf(stderr, "kvgrid_embed: the answers cannot be written: %s\n", why);
    }
    json_decref(object);
    return failed ? -1 : 0;
}

int wire_tokens(const char *id, uint64_t step, const uint16_t *tokens, uint32_t count, int done)
{
    json_t *array = json_array(), *object;

    for (uint32_t i = 0; i < count; i++) json_array_append_new(array, json_integer(tokens[i]));
    object = json_pack("{s:s, s:I, s:o}", "id", id, "step", (json_int_t)step, "tokens", array);
    if (done) json_object_set_new(object, "done", json_true());
    return write_line(object);
}

int wire_aborted(const char *id)
{
    return write_line(json_pack("{s:s, s:b}", "id", id, "aborted", 1));
}

int wire_error(const char *id, const char *why)
{
    return write_line(id[0] != '\0' ? json_pack("{s:s, s:s}", "id", id, "error", why) : json_pack("{s:s}", "error", why));
}

int wire_fault(int rank, const char *why)
{
    return write_line(rank >= 0 ? json_pack("{s:s, s:i}", "fault", why, "rank", rank) : json_pack("{s:s}", "fault", why));
}

int wire_summary(const char *const *names, const double *values, uint32_t count)
{
    json_t *summary = json_object();

    for (uint32_t i = 0; i < count; i++) {
        const int whole = values[i] == (double)(json_int_t)values[i];
        json_object_set_new(summary, names[i], whole ? json_integer((json_int_t)values[i]) : json_real(values[i]));
    }
    return write_line(json_pack("{s:o}", "summary", summary));
}

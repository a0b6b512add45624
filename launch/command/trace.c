#include "launch/command/trace.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/input.h"
#include "runtime/base/memory.h"

#define TOKENS_MOST 0x7fffffffu /* a row's number is an i32 */

#define TEXT_MOST   ((size_t)256 << 20) /* millions of requests; what is larger is no trace, and may have no end */

typedef struct Text { /* a piece of the file */
    const char *at;
    size_t      count;
} Text;

typedef struct Columns {
    size_t context, generated; /* which field */
    size_t count;              /* fields of every line */
} Columns;

typedef struct Reader {
    const char *name;
    Text        rest;
    size_t      line; /* of the text last taken, from 1 */
} Reader;

static Text trim(Text text)
{
    while (text.count > 0 && (text.at[0] == ' ' || text.at[0] == '\t')) {
        text.at++;
        text.count--;
    }
    while (text.count > 0 && memchr(" \t\r", text.at[text.count - 1], 3) != NULL) { /* a NUL is no space: files cut by a crash end in them */
        text.count--;
    }
    return text;
}

/* Takes what stands before `mark`, and the mark; all of it if there is none. */
static Text take_until(Text *text, char mark)
{
    const char *end = memchr(text->at, mark, text->count);
    Text        taken = { text->at, end != NULL ? (size_t)(end - text->at) : text->count };
    size_t      used = taken.count + (end != NULL);

    text->at += used;
    text->count -= used;
    return taken;
}

/* Takes a field and its comma; *more: there was one. A field in quotes may hold commas. 0: its quotes do not end, or not where it does. */
static int take_field(Text *line, Text *field, int *more)
{
    Text   rest = trim(*line);
    size_t end = 1;

    if (rest.count == 0 || rest.at[0] != '"') {
        *more = memchr(line->at, ',', line->count) != NULL;
        *field = trim(take_until(line, ','));
        return 1;
    }
    while (end < rest.count && (rest.at[end] != '"' || (end + 1 < rest.count && rest.at[end + 1] == '"'))) {
        end += rest.at[end] == '"' ? 2 : 1; /* a quote within is written twice */
    }
    if (end >= rest.count) {
        return 0;
    }
    *field = trim((Text){ rest.at + 1, end - 1 });
    rest = (Text){ rest.at + end + 1, rest.count - end - 1 };
    *more = memchr(rest.at, ',', rest.count) != NULL;
    if (trim(take_until(&rest, ',')).count != 0) {
        return 0;
    }
    *line = rest;
    return 1;
}

static KvgStatus next_field(const Reader *reader, Text *line, Text *field, int *more)
{
    if (!take_field(line, field, more)) {
        return kvg_fail(KVG_EFORMAT, "%s, line %zu: a field begins with a quote, and no quote ends it", reader->name, reader->line);
    }
    return KVG_OK;
}

static Text next_line(Reader *reader)
{
    reader->line++;
    return trim(take_until(&reader->rest, '\n'));
}

static int is_word(Text text, const char *word)
{
    return text.count == strlen(word) && memcmp(text.at, word, text.count) == 0;
}

static KvgStatus read_header(Reader *reader, Columns *columns)
{
    Text line = next_line(reader);

    if (line.count >= 3 && memcmp(line.at, "\xef\xbb\xbf", 3) == 0) {
        line.at += 3;
        line.count -= 3;
    }
    *columns = (Columns){ SIZE_MAX, SIZE_MAX, 0 };
    for (int more = line.count > 0; more; columns->count++) {
        Text field;

        KVG_TRY(next_field(reader, &line, &field, &more));
        size_t *column = is_word(field, "ContextTokens") ? &columns->context
                       : is_word(field, "GeneratedTokens") ? &columns->generated : NULL;

        if (column != NULL && *column != SIZE_MAX) {
            return kvg_fail(KVG_EFORMAT, "%s, line 1: two columns are named %.*s", reader->name, (int)field.count, field.at);
        }
        if (column != NULL) {
            *column = columns->count;
        }
    }
    if (columns->context == SIZE_MAX || columns->generated == SIZE_MAX) {
        return kvg_fail(KVG_EFORMAT, "%s, line 1: a trace begins with the names of its columns, and %s is not among them", reader->name,
                        columns->context == SIZE_MAX ? "ContextTokens" : "GeneratedTokens");
    }
    return KVG_OK;
}

static KvgStatus read_tokens(const Reader *reader, Text field, const char *column, uint32_t *tokens)
{
    uint64_t number = 0;

    for (size_t i = 0; i < field.count; i++) {
        if (field.at[i] < '0' || field.at[i] > '9') {
            return kvg_fail(KVG_EFORMAT, "%s, line %zu: %s is \"%.*s\", which is not a whole number", reader->name, reader->line, column,
                            (int)(field.count < 40 ? field.count : 40), field.at);
        }
        number = number * 10 + (uint64_t)(field.at[i] - '0');
        if (number > TOKENS_MOST) {
            return kvg_fail(KVG_EFORMAT, "%s, line %zu: %s is above %u", reader->name, reader->line, column, TOKENS_MOST);
        }
    }
    if (field.count == 0) {
        return kvg_fail(KVG_EFORMAT, "%s, line %zu: %s is empty", reader->name, reader->line, column);
    }
    *tokens = (uint32_t)number;
    return KVG_OK;
}

static KvgStatus read_request(const Reader *reader, const Columns *columns, Text line, TraceRequest *request)
{
    size_t count = 0;

    for (int more = 1; more; count++) {
        Text field;

        KVG_TRY(next_field(reader, &line, &field, &more));
        if (count == columns->context) {
            KVG_TRY(read_tokens(reader, field, "ContextTokens", &request->context));
        } else if (count == columns->generated) {
            KVG_TRY(read_tokens(reader, field, "GeneratedTokens", &request->generated));
        }
    }
    if (count != columns->count) {
        return kvg_fail(KVG_EFORMAT, "%s, line %zu: it has %zu fields, and line 1 names %zu", reader->name, reader->line, count,
                        columns->count);
    }
    if ((uint64_t)request->context + request->generated > TOKENS_MOST) {
        return kvg_fail(KVG_EFORMAT, "%s, line %zu: ContextTokens and GeneratedTokens add up past %u", reader->name, reader->line,
                        TOKENS_MOST);
    }
    return KVG_OK;
}

/* Only blank lines are left. */
static int at_end(Reader reader)
{
    while (reader.rest.count > 0) {
        if (next_line(&reader).count != 0) {
            return 0;
        }
    }
    return 1;
}

static size_t count_lines(Text text)
{
    size_t count = 1;

    for (size_t i = 0; i < text.count; i++) {
        count += text.at[i] == '\n';
    }
    return count;
}

static KvgStatus read_requests(Reader *reader, const Columns *columns, Trace *trace)
{
    while (!at_end(*reader)) {
        Text line = next_line(reader);

        KVG_TRY(read_request(reader, columns, line, &trace->requests[trace->count]));
        trace->count++;
    }
    if (trace->count == 0) {
        return kvg_fail(KVG_EFORMAT, "%s has no requests after its first line", reader->name);
    }
    return KVG_OK;
}

KvgStatus kvg_trace_parse(const char *text, size_t bytes, const char *name, Trace *trace)
{
    Reader    reader = { name, { text, bytes }, 0 };
    Columns   columns;
    Trace     read = { NULL, 0 };
    KvgStatus status;

    KVG_TRY(read_header(&reader, &columns));
    KVG_TRY(KVG_NEW(count_lines(reader.rest), "the trace's requests", &read.requests));
    KVG_TRY_GOTO(read_requests(&reader, &columns, &read), err_free);
    *trace = read;
    return KVG_OK;

err_free:
    kvg_trace_free(&read);
    return status;
}

/* Doubles the room for a text of which `bytes` are used. */
static KvgStatus grow_text(char **text, size_t *room, size_t bytes)
{
    void *larger = NULL;

    KVG_TRY(kvg_calloc(*room * 2, 1, "the trace", &larger));
    memcpy(larger, *text, bytes);
    kvg_free(*text);
    *text = larger;
    *room *= 2;
    return KVG_OK;
}

/* All of it, by reading on: a pipe has no size to ask for. *text is the caller's to free, also on failure. */
static KvgStatus read_file(FILE *file, const char *path, char **text, size_t *bytes)
{
    size_t room = 1 << 20;

    KVG_TRY(KVG_NEW(room, "the trace", text));
    *bytes = 0;
    while (!feof(file)) {
        if (*bytes == TEXT_MOST) {
            return kvg_fail(KVG_EFORMAT, "%s has %zu bytes or more, so it is no trace: give a CSV file of requests", path, TEXT_MOST);
        }
        if (*bytes == room) {
            KVG_TRY(grow_text(text, &room, *bytes));
        }
        *bytes += fread(*text + *bytes, 1, room - *bytes, file);
        if (ferror(file)) {
            return kvg_fail(KVG_EIO, "%s: cannot be read: %s; give a CSV file of requests", path, strerror(errno));
        }
    }
    return KVG_OK;
}

KvgStatus kvg_trace_load(const char *path, Trace *trace)
{
    FILE     *file = NULL;
    char     *text = NULL;
    size_t    bytes = 0;
    KvgStatus status;

    KVG_TRY(kvg_input_open(path, "give a CSV file of requests", KVG_INPUT_WAIT_MS, &file));
    status = read_file(file, path, &text, &bytes);
    fclose(file);
    if (status == KVG_OK) {
        status = kvg_trace_parse(text, bytes, path, trace);
    }
    kvg_free(text);
    return status;
}

void kvg_trace_free(Trace *trace)
{
    kvg_free(trace->requests);
    *trace = (Trace){ NULL, 0 };
}

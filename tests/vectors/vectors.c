/* Runs vector files: build/tests/vectors FILE...
 *
 * One JSON object a line; its keys say which rule it tests. Prints the first few mismatches with their line numbers, a count
 * a file, and exits 0 if every line of every file matched, 1 if one did not, 2 if a file cannot be read, holds a line that is
 * no vector, or holds no line at all. */
#include "vectors.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_MAX 10

typedef struct Tally {
    size_t lines, mismatched, malformed;
} Tally;

void vector_malformed(VectorLine *line, const char *format, ...)
{
    if (line->malformed) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line->why, sizeof line->why, format, arguments);
    va_end(arguments);
    line->malformed = true;
}

int64_t vector_i64(VectorLine *line, json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    if (!json_is_integer(value)) vector_malformed(line, "\"%s\" is missing or no integer", key);
    return json_integer_value(value);
}

uint64_t vector_u64(VectorLine *line, json_t *object, const char *key)
{
    int64_t value = vector_i64(line, object, key);
    if (value < 0) vector_malformed(line, "\"%s\" is negative", key);
    return value < 0 ? 0 : (uint64_t)value;
}

const char *vector_string(VectorLine *line, json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (text == NULL) vector_malformed(line, "\"%s\" is missing or no string", key);
    return text != NULL ? text : "";
}

uint64_t *vector_u64_array(VectorLine *line, json_t *object, const char *key, size_t *count)
{
    json_t *array = json_object_get(object, key);
    *count = json_array_size(array); /* 0 where it is no array */
    if (!json_is_array(array)) {
        if (!json_is_null(array)) vector_malformed(line, "\"%s\" is missing or no array", key);
        return NULL;
    }
    uint64_t *values = calloc(*count + 1, sizeof *values);
    if (values == NULL) abort();
    for (size_t i = 0; i < *count; i++) {
        json_t *item = json_array_get(array, i);
        if (!json_is_integer(item) || json_integer_value(item) < 0) vector_malformed(line, "\"%s\"[%zu] is no count", key, i);
        values[i] = (uint64_t)json_integer_value(item);
    }
    return values;
}

static VectorResult mismatch(VectorLine *line, json_t *want, json_t *got)
{
    char *want_text = json_dumps(want, JSON_ENCODE_ANY | JSON_COMPACT);
    char *got_text = json_dumps(got, JSON_ENCODE_ANY | JSON_COMPACT);
    snprintf(line->why, sizeof line->why, "want %.400s, got %.400s", want_text ? want_text : "?", got_text ? got_text : "?");
    free(want_text);
    free(got_text);
    return VECTOR_MISMATCH;
}

VectorResult vector_compare(VectorLine *line, json_t *object, KvgStatus status, json_t *got)
{
    json_t *error = json_object_get(object, "error"), *ok = json_object_get(object, "ok");
    VectorResult result = VECTOR_MATCH;
    if ((error == NULL) == (ok == NULL)) vector_malformed(line, "neither or both of \"ok\" and \"error\"");
    if (line->malformed) {
        result = VECTOR_MALFORMED;
    } else if (error != NULL || status != KVG_OK) {
        json_t *name = json_string(kvg_status_name(status));
        if (error == NULL || !json_equal(error, name)) result = mismatch(line, error != NULL ? error : ok, name);
        json_decref(name);
    } else if (!json_equal(ok, got)) {
        result = mismatch(line, ok, got);
    }
    json_decref(got);
    return result;
}

static VectorResult run_json(VectorLine *line)
{
    const char *op = json_string_value(json_object_get(line->json, "op"));
    if (json_object_get(line->json, "trace") != NULL) return vector_run_life(line);
    if (op == NULL && json_object_get(line->json, "format") != NULL) return vector_run_format(line);
    if (op == NULL) {
        vector_malformed(line, "no \"op\", \"trace\" or \"format\": no vector of a known kind");
        return VECTOR_MALFORMED;
    }
    if (strcmp(op, "vote_decide") == 0) return vector_run_vote(line);
    if (strcmp(op, "partition") == 0) return vector_run_partition(line);
    return vector_run_pure(line);
}

static VectorResult run_text(VectorLine *line, const char *text, size_t bytes)
{
    json_error_t error;
    line->json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(line->json)) {
        vector_malformed(line, "%s", line->json != NULL ? "no JSON object" : error.text);
        json_decref(line->json);
        return VECTOR_MALFORMED;
    }
    VectorResult result = run_json(line);
    json_decref(line->json);
    return line->malformed ? VECTOR_MALFORMED : result;
}

static void run_line(const char *path, size_t number, const char *text, size_t bytes, Tally *tally)
{
    VectorLine line = {0};
    VectorResult result = run_text(&line, text, bytes);
    tally->lines++;
    if (result == VECTOR_MATCH) return;
    bool malformed = result == VECTOR_MALFORMED;
    size_t shown = tally->mismatched + tally->malformed;
    if (malformed) tally->malformed++;
    else tally->mismatched++;
    if (shown < SHOWN_MAX) printf("%s:%zu: %s: %s\n", path, number, malformed ? "malformed" : "mismatch", line.why);
}

static bool is_blank(const char *text)
{
    return text[strspn(text, " \t\r\n")] == '\0';
}

static int run_file(const char *path)
{
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        printf("%s: cannot be opened\n", path);
        return 2;
    }
    Tally tally = {0};
    char *text = NULL;
    size_t room = 0, number = 0;
    for (ssize_t bytes; (bytes = getline(&text, &room, file)) >= 0;) {
        number++;
        if (!is_blank(text) || strlen(text) != (size_t)bytes) run_line(path, number, text, (size_t)bytes, &tally);
    }
    bool unread = ferror(file) != 0;
    free(text);
    fclose(file);
    size_t matched = tally.lines - tally.mismatched - tally.malformed;
    printf("%s: %zu lines, %zu matched, %zu mismatched, %zu malformed%s\n", path, tally.lines, matched, tally.mismatched,
           tally.malformed, unread ? ", read error" : tally.lines == 0 ? ": nothing to test" : "");
    if (unread || tally.malformed != 0 || tally.lines == 0) return 2;
    return tally.mismatched != 0 ? 1 : 0;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: vectors FILE...\n");
        return 2;
    }
    int worst = 0;
    for (int i = 1; i < argc; i++) {
        int result = run_file(argv[i]);
        if (result > worst) worst = result;
    }
    return worst;
}

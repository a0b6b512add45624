/* Placed, as text: one table a kind of object says what is written, in what order, and what is taken back. */
#include "pp/placed.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "runtime/base/checked.h"
#include "runtime/base/memory.h"

#define VERSION_NAME "kvgrid_placement"
#define NUMBER_MAX   ((uint64_t)INT64_MAX)
#define RANKS_MAX    UINT16_MAX

typedef struct Member {
    const char        *name;
    size_t             offset; /* of a uint64_t */
    uint64_t           min, max;
    const char *const *words; /* NULL: a number; else a word, and the value is its place. max: the last one */
} Member;

static const char *const layout_words[] = { "pool", "flat" };
static const char *const kind_words[] = { "none", "kv", "sliding_kv", "latent" };
static const char *const ring_words[] = { "off", "on" };

#define OF(type, member, min, max) { #member, offsetof(type, member), min, max, NULL }
static const Member head_members[] = {
    OF(Placed, tp, 1, RANKS_MAX),
    OF(Placed, pp, 1, RANKS_MAX),
    { "layout", offsetof(Placed, layout), KVG_LAYOUT_POOL, KVG_LAYOUT_FLAT, layout_words },
    OF(Placed, max_ctx, 1, INT32_MAX - KVG_CHUNK_ROWS),
    OF(Placed, ctx, 1, NUMBER_MAX),
    OF(Placed, prefill_chunk_max, 1, INT32_MAX),
    OF(Placed, max_sequences, 1, INT32_MAX),
    OF(Placed, max_step_sequences, 1, INT32_MAX),
    OF(Placed, max_in_flight, 1, INT32_MAX),
    OF(Placed, columns, 0, INT32_MAX),
    OF(Placed, index_pool, 0, KVG_CHUNK_ROWS),
    OF(Placed, index_ring, 0, INT32_MAX),
    OF(Placed, cache_tokens, 0, NUMBER_MAX),
    OF(Placed, max_context, 0, NUMBER_MAX),
};
static const Member class_members[] = {
    { "kind", offsetof(PlacedClass, kind), KVG_STATE_KV, KVG_STATE_LATENT, kind_words },
    OF(PlacedClass, window, 0, INT32_MAX),
    { "ring", offsetof(PlacedClass, ring), 0, 1, ring_words },
    OF(PlacedClass, row_cap, 1, INT32_MAX),
    OF(PlacedClass, unit_cap, 1, INT32_MAX),
    OF(PlacedClass, units, 0, INT32_MAX),
    OF(PlacedClass, units_max, 0, INT32_MAX),
    OF(PlacedClass, units_per_sequence, 0, INT32_MAX),
    OF(PlacedClass, layers, 0, INT32_MAX),
};
static const Member rank_members[] = {
    OF(PlacedRank, rank, 0, RANKS_MAX - 1),
    OF(PlacedRank, stage, 0, RANKS_MAX - 1),
    OF(PlacedRank, layer_first, 0, INT32_MAX),
    OF(PlacedRank, layer_end, 0, INT32_MAX),
    OF(PlacedRank, bytes_per_token, 0, NUMBER_MAX),
    OF(PlacedRank, state_bytes, 0, NUMBER_MAX),
    OF(PlacedRank, slot_bytes, 0, NUMBER_MAX),
};
#define COUNT(members) (sizeof(members) / sizeof *(members))

static uint64_t *member_at(void *object, const Member *member)
{
    return (uint64_t *)((uint8_t *)object + member->offset);
}

/* ---- out */

typedef struct Text {
    char  *at; /* NULL: only counted */
    size_t bytes, room;
} Text;

static void say(Text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(Text *text, const char *format, ...)
{
    va_list values;

    va_start(values, format);
    int count = vsnprintf(text->at != NULL ? text->at + text->bytes : NULL, text->at != NULL ? text->room - text->bytes : 0, format, values);
    va_end(values);
    KVG_ASSERT(count >= 0);
    text->bytes += (size_t)count;
}

static void say_members(Text *text, const void *object, const Member *members, size_t count, const char *between)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t value = *(const uint64_t *)((const uint8_t *)object + members[i].offset);

        if (members[i].words != NULL) {
            say(text, "%s\"%s\": \"%s\"", i > 0 ? between : "", members[i].name, members[i].words[value]);
        } else {
            say(text, "%s\"%s\": %" PRIu64, i > 0 ? between : "", members[i].name, kvg_min_u64(value, NUMBER_MAX));
        }
    }
}

static void say_rank(Text *text, const Placed *placed, uint32_t r)
{
    say(text, "%s\n    {", r > 0 ? "," : "");
    say_members(text, &placed->ranks[r], rank_members, COUNT(rank_members), ", ");
    say(text, ", \"unit_bytes\": [");
    for (uint32_t c = 0; c < placed->class_count; c++) {
        say(text, "%s%" PRIu64, c > 0 ? ", " : "", kvg_min_u64(placed->ranks[r].unit_bytes[c], NUMBER_MAX));
    }
    say(text, "]}");
}

static void say_all(Text *text, const Placed *placed)
{
    say(text, "{\n  \"" VERSION_NAME "\": %d,\n  ", KVG_PLACED_VERSION);
    say_members(text, placed, head_members, COUNT(head_members), ",\n  ");
    say(text, ",\n  \"classes\": [");
    for (uint32_t c = 0; c < placed->class_count; c++) {
        say(text, "%s\n    {", c > 0 ? "," : "");
        say_members(text, &placed->classes[c], class_members, COUNT(class_members), ", ");
        say(text, "}");
    }
    say(text, "\n  ],\n  \"ranks\": [");
    for (uint32_t r = 0; r < kvg_placed_ranks(placed); r++) {
        say_rank(text, placed, r);
    }
    say(text, "\n  ]\n}\n");
}

KvgStatus kvg_placed_write(const Placed *placed, char *text, size_t room, size_t *bytes)
{
    Text counted = { NULL, 0, 0 }, written = { text, 0, room };

    say_all(&counted, placed);
    *bytes = counted.bytes + 1;
    if (counted.bytes >= room) {
        return kvg_fail(KVG_ECAPACITY, "the placement's text takes %zu bytes and there is room for %zu", *bytes, room);
    }
    say_all(&written, placed);
    KVG_ASSERT(written.bytes == counted.bytes);
    return KVG_OK;
}

/* ---- in. `where`: "" or "classes[2]." */

static KvgStatus read_word(const json_t *value, const Member *member, const char *where, uint64_t *to)
{
    const char *word = json_string_value(value);

    for (uint64_t i = member->min; word != NULL && i <= member->max; i++) {
        if (strcmp(word, member->words[i]) == 0) {
            *to = i;
            return KVG_OK;
        }
    }
    return kvg_fail(KVG_EFORMAT, "placement: %s%s is %.32s; it is one of the words %s to %s", where, member->name,
                    word != NULL ? word : "no string", member->words[member->min], member->words[member->max]);
}

static KvgStatus read_number(const json_t *value, const char *name, const char *where, uint64_t min, uint64_t max, uint64_t *to)
{
    if (!json_is_integer(value)) {
        return kvg_fail(KVG_EFORMAT, "placement: %s%s is no whole number", where, name);
    }
    json_int_t number = json_integer_value(value);

    if (number < 0 || (uint64_t)number < min || (uint64_t)number > max) {
        return kvg_fail(KVG_EFORMAT, "placement: %s%s is %" JSON_INTEGER_FORMAT "; it lies in %" PRIu64 " to %" PRIu64, where, name, number, min,
                        max);
    }
    *to = (uint64_t)number;
    return KVG_OK;
}

static KvgStatus read_members(const json_t *object, const char *where, const Member *members, size_t count, void *to)
{
    if (!json_is_object(object)) {
        return kvg_fail(KVG_EFORMAT, "placement: %.*s is no object", (int)(strlen(where) > 0 ? strlen(where) - 1 : 0), where);
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_object_get(object, members[i].name);

        if (value == NULL) {
            return kvg_fail(KVG_EFORMAT, "placement: %s%s is missing", where, members[i].name);
        }
        KVG_TRY(members[i].words != NULL ? read_word(value, &members[i], where, member_at(to, &members[i]))
                                         : read_number(value, members[i].name, where, members[i].min, members[i].max, member_at(to, &members[i])));
    }
    return KVG_OK;
}

/* What a reader does not know it must not pass over: whoever writes more raises the version. */
static KvgStatus check_known(const json_t *object, const char *where, const Member *members, size_t count, const char *const *others)
{
    for (void *at = json_object_iter((json_t *)(uintptr_t)object); at != NULL; at = json_object_iter_next((json_t *)(uintptr_t)object, at)) {
        const char *name = json_object_iter_key(at);
        int         known = 0;

        for (size_t i = 0; i < count; i++) {
            known |= strcmp(name, members[i].name) == 0;
        }
        for (size_t i = 0; others[i] != NULL; i++) {
            known |= strcmp(name, others[i]) == 0;
        }
        if (!known) {
            return kvg_fail(KVG_EFORMAT, "placement: %s%.64s is no member of version %d", where, name, KVG_PLACED_VERSION);
        }
    }
    return KVG_OK;
}

static KvgStatus read_list(const json_t *object, const char *name, const char *where, size_t min, size_t max, const json_t **list)
{
    *list = json_object_get(object, name);
    if (!json_is_array(*list)) {
        return kvg_fail(KVG_EFORMAT, "placement: %s%s is %s", where, name, *list == NULL ? "missing" : "no list");
    }
    if (json_array_size(*list) < min || json_array_size(*list) > max) {
        return kvg_fail(KVG_EFORMAT, "placement: %s%s has %zu entries; it has %zu to %zu", where, name, json_array_size(*list), min, max);
    }
    return KVG_OK;
}

static KvgStatus read_classes(const json_t *root, Placed *placed)
{
    static const char *const none[] = { NULL };
    const json_t            *list;
    char                     where[32];

    KVG_TRY(read_list(root, "classes", "", 0, KVG_PLAN_CLASSES_MAX, &list));
    placed->class_count = (uint32_t)json_array_size(list);
    for (uint32_t c = 0; c < placed->class_count; c++) {
        snprintf(where, sizeof where, "classes[%u].", c);
        KVG_TRY(read_members(json_array_get(list, c), where, class_members, COUNT(class_members), &placed->classes[c]));
        KVG_TRY(check_known(json_array_get(list, c), where, class_members, COUNT(class_members), none));
    }
    return KVG_OK;
}

static KvgStatus read_rank(const json_t *object, const char *where, uint32_t classes, PlacedRank *rank)
{
    static const char *const lists[] = { "unit_bytes", NULL };
    const json_t            *bytes;

    KVG_TRY(read_members(object, where, rank_members, COUNT(rank_members), rank));
    KVG_TRY(check_known(object, where, rank_members, COUNT(rank_members), lists));
    KVG_TRY(read_list(object, lists[0], where, classes, classes, &bytes));
    for (uint32_t c = 0; c < classes; c++) {
        KVG_TRY(read_number(json_array_get(bytes, c), lists[0], where, 0, NUMBER_MAX, &rank->unit_bytes[c]));
    }
    return KVG_OK;
}

static KvgStatus read_ranks(const json_t *root, Placed *placed)
{
    uint64_t      count = placed->tp * placed->pp;
    const json_t *list;
    char          where[32];

    if (count > RANKS_MAX) {
        return kvg_fail(KVG_EFORMAT, "placement: tp %" PRIu64 " x pp %" PRIu64 " are more than %d ranks", placed->tp, placed->pp, RANKS_MAX);
    }
    KVG_TRY(read_list(root, "ranks", "", count, count, &list)); /* so that what is allocated follows from the text's size */
    KVG_TRY(KVG_NEW(count, "a placement's ranks", &placed->ranks));
    for (uint32_t r = 0; r < count; r++) {
        snprintf(where, sizeof where, "ranks[%u].", r);
        KVG_TRY(read_rank(json_array_get(list, r), where, placed->class_count, &placed->ranks[r]));
    }
    return KVG_OK;
}

static KvgStatus read_root(const json_t *root, Placed *placed)
{
    static const char *const others[] = { VERSION_NAME, "classes", "ranks", NULL };
    const json_t            *version = json_object_get(root, VERSION_NAME);

    if (!json_is_integer(version)) {
        return kvg_fail(KVG_EFORMAT, "placement: no object with a number \"" VERSION_NAME "\"; give what kvg_placement_to_json writes");
    }
    if (json_integer_value(version) != KVG_PLACED_VERSION) {
        return kvg_fail(KVG_ENOTSUP, "placement: version %" JSON_INTEGER_FORMAT " of the text, and this kvgrid reads %d; use one version of kvgrid",
                        json_integer_value(version), KVG_PLACED_VERSION);
    }
    KVG_TRY(read_members(root, "", head_members, COUNT(head_members), placed));
    KVG_TRY(check_known(root, "", head_members, COUNT(head_members), others));
    KVG_TRY(read_classes(root, placed));
    KVG_TRY(read_ranks(root, placed));
    return kvg_placed_check(placed);
}

KvgStatus kvg_placed_parse(const char *text, size_t bytes, Placed *placed)
{
    Placed       fresh = { .ranks = NULL };
    json_error_t error;

    if (bytes > KVG_PLACED_TEXT_MAX) {
        return kvg_fail(KVG_EFORMAT, "placement: %zu bytes of text; one has at most %zu", bytes, KVG_PLACED_TEXT_MAX);
    }
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        return kvg_fail(KVG_EFORMAT, "placement: line %d, column %d: %s", error.line, error.column, error.text);
    }
    KvgStatus status = read_root(root, &fresh);
    json_decref(root);
    if (status != KVG_OK) {
        kvg_placed_free(&fresh);
        return status;
    }
    *placed = fresh;
    return KVG_OK;
}

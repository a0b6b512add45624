#include "runtime/model/fields.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- levels */

static void push_level(JsonFields *fields, const json_t *object)
{
    KVG_ASSERT(fields->level_count < KVG_FIELD_LEVELS);
    for (int i = fields->level_count; i > 0; i--) {
        fields->levels[i] = fields->levels[i - 1];
    }
    fields->levels[0] = object;
    fields->level_count++;
}

/* Steps into `key` of the innermost level, if it is there. */
static KvgStatus push_nested(JsonFields *fields, const char *key, bool *found)
{
    const json_t *object = json_object_get(fields->levels[0], key);

    *found = object != NULL && !json_is_null(object);
    if (!*found) {
        return KVG_OK;
    }
    if (!json_is_object(object)) {
        return kvg_fail(KVG_EFORMAT, "%s: %s is no object; give the model's own config", fields->file, key);
    }
    push_level(fields, object);
    return KVG_OK;
}

KvgStatus kvg_fields_open(const json_t *root, const char *file, JsonFields *fields)
{
    bool found = false;

    *fields = (JsonFields){.file = file};
    if (!json_is_object(root)) {
        return kvg_fail(KVG_EFORMAT, "%s: the config is no JSON object; give a model's config.json", file);
    }
    push_level(fields, root);
    KVG_TRY(push_nested(fields, "text_config", &found));
    if (!found) {
        KVG_TRY(push_nested(fields, "llm_config", &found));
    }
    if (!found) {
        KVG_TRY(push_nested(fields, "thinker_config", &found));
        if (found) {
            KVG_TRY(push_nested(fields, "text_config", &found));
        }
    }
    return KVG_OK;
}

KvgStatus kvg_fields_group(const JsonFields *fields, const char *name, JsonFields *group)
{
    JsonField field = kvg_field_find(fields, name);

    if (!json_is_object(field.value)) {
        return kvg_field_fail(fields, &field, "must be an object");
    }
    *group = (JsonFields){.file = fields->file};
    push_level(group, field.value);
    return KVG_OK;
}

/* ---- one field */

/* Cuts the next alias off `names` into `alias`; returns the rest, NULL at the end. */
static const char *next_alias(const char *names, char alias[64])
{
    size_t length = strcspn(names, "|");

    KVG_ASSERT(length < 64);
    memcpy(alias, names, length);
    alias[length] = '\0';
    return names[length] == '|' ? names + length + 1 : NULL;
}

JsonField kvg_field_find(const JsonFields *fields, const char *names)
{
    JsonField field = {.value = NULL};

    for (int i = 0; i < fields->level_count; i++) {
        bool        null_here = false;
        const char *rest = names;
        while (rest != NULL) {
            rest = next_alias(rest, field.name);
            field.value = json_object_get(fields->levels[i], field.name);
            if (json_is_null(field.value)) {
                null_here = true;
            } else if (field.value != NULL) {
                return field;
            }
        }
        if (null_here) {
            break; /* the inner level says "none" */
        }
    }
    field.value = NULL;
    next_alias(names, field.name);
    return field;
}

bool kvg_field_has(const JsonFields *fields, const char *names)
{
    return kvg_field_find(fields, names).value != NULL;
}

const char *kvg_field_string(const JsonFields *fields, const char *names)
{
    return json_string_value(kvg_field_find(fields, names).value);
}

/* A short look at a value, for messages. */
static void show_value(const json_t *value, char *text, size_t bytes)
{
    char *dump = value != NULL ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;

    if (dump != NULL && strlen(dump) < bytes) {
        snprintf(text, bytes, "%s", dump);
    } else {
        snprintf(text, bytes, "%s", value == NULL ? "(absent)" : json_is_array(value) ? "[...]" : "(long)");
    }
    free(dump); /* Jansson's own allocation */
}

KvgStatus kvg_field_fail(const JsonFields *fields, const JsonField *field, const char *why)
{
    char text[64];

    show_value(field->value, text, sizeof text);
    return kvg_fail(KVG_EFORMAT, "%s: %s %s %s; mend the config", fields->file, field->name, text, why);
}

KvgStatus kvg_field_missing(const JsonFields *fields, const char *names, const char *why)
{
    return kvg_fail(KVG_EFORMAT, "%s: %s is missing, and %s without it; mend the config", fields->file, kvg_field_find(fields, names).name, why);
}

/* ---- numbers */

static KvgStatus to_u64(const JsonFields *fields, const JsonField *field, uint64_t min, uint64_t max, uint64_t *value)
{
    char        why[96];
    json_int_t  number = json_integer_value(field->value);

    if (json_is_integer(field->value) && number >= 0 && (uint64_t)number >= min && (uint64_t)number <= max) {
        *value = (uint64_t)number;
        return KVG_OK;
    }
    snprintf(why, sizeof why, "must be a whole number from %" PRIu64 " to %" PRIu64, min, max);
    return kvg_field_fail(fields, field, why);
}

KvgStatus kvg_field_u64(const JsonFields *fields, const char *names, uint64_t min, uint64_t *value)
{
    JsonField field = kvg_field_find(fields, names);

    return field.value == NULL ? KVG_OK : to_u64(fields, &field, min, INT64_MAX, value);
}

KvgStatus kvg_field_u32(const JsonFields *fields, const char *names, uint32_t min, uint32_t *value)
{
    uint64_t  wide = *value;
    JsonField field = kvg_field_find(fields, names);

    if (field.value != NULL) {
        KVG_TRY(to_u64(fields, &field, min, UINT32_MAX, &wide));
    }
    *value = (uint32_t)wide;
    return KVG_OK;
}

KvgStatus kvg_field_need_u32(const JsonFields *fields, const char *names, uint32_t min, uint32_t *value)
{
    if (!kvg_field_has(fields, names)) {
        return kvg_field_missing(fields, names, "the model's state cannot be known");
    }
    return kvg_field_u32(fields, names, min, value);
}

KvgStatus kvg_field_bool(const JsonFields *fields, const char *names, bool *value)
{
    JsonField field = kvg_field_find(fields, names);

    if (field.value == NULL) {
        return KVG_OK;
    }
    if (!json_is_boolean(field.value)) {
        return kvg_field_fail(fields, &field, "must be true or false");
    }
    *value = json_is_true(field.value);
    return KVG_OK;
}

/* ---- lists */

KvgStatus kvg_field_list(const JsonFields *fields, const char *names, uint32_t count_min, const json_t **list)
{
    char      why[96];
    JsonField field = kvg_field_find(fields, names);

    *list = NULL;
    if (field.value == NULL) {
        return KVG_OK;
    }
    if (!json_is_array(field.value) || json_array_size(field.value) < count_min) {
        snprintf(why, sizeof why, "must be a list with an entry for each of %u layers, not %zu", count_min,
                 json_array_size(field.value));
        return kvg_field_fail(fields, &field, why);
    }
    *list = field.value;
    return KVG_OK;
}

JsonField kvg_list_entry(const char *name, const json_t *list, size_t index)
{
    JsonField entry = {.value = json_array_get(list, index)};

    snprintf(entry.name, sizeof entry.name, "%.40s[%u]", name, (unsigned)index);
    return entry;
}

KvgStatus kvg_list_u32(const JsonFields *fields, const char *name, const json_t *list, size_t index, uint32_t min,
                       uint32_t max, uint32_t *value)
{
    uint64_t  wide = 0;
    JsonField entry = kvg_list_entry(name, list, index);

    KVG_TRY(to_u64(fields, &entry, min, max, &wide));
    *value = (uint32_t)wide;
    return KVG_OK;
}

KvgStatus kvg_field_layer_u32(const JsonFields *fields, const char *names, uint32_t layer, uint32_t min, uint32_t *value)
{
    JsonField field = kvg_field_find(fields, names);

    if (!json_is_array(field.value)) {
        return kvg_field_u32(fields, names, min, value);
    }
    if (layer >= json_array_size(field.value)) {
        return kvg_field_fail(fields, &field, "has no entry for every layer");
    }
    return kvg_list_u32(fields, field.name, field.value, layer, 0, UINT32_MAX, value);
}

uint64_t kvg_field_guess(const JsonFields *fields, const char *names, uint64_t fallback)
{
    const json_t *value = kvg_field_find(fields, names).value;
    json_int_t    number = json_integer_value(value);

    return json_is_integer(value) && number >= 0 ? (uint64_t)number : fallback;
}

/* Fields: reading one value of a JSON config, by any of its names, from the innermost level that has it. Private.
 *
 * A config may be nested (text_config, llm_config, thinker_config.text_config); the inner level wins, and a null there
 * hides the outer value. `names` is one name, or aliases of one meaning as "a|b|c". A value is judged only when it is
 * asked for: every failure is EFORMAT and names the file, the field and the value. */
#ifndef KVG_FIELDS_H
#define KVG_FIELDS_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "runtime/base/error.h"

#define KVG_FIELD_LEVELS 4

typedef struct JsonFields {
    const char   *file; /* for messages */
    const json_t *levels[KVG_FIELD_LEVELS]; /* innermost first */
    int           level_count;
} JsonFields;

typedef struct JsonField {
    const json_t *value; /* NULL: absent or null */
    char          name[64]; /* the alias that was found, or the first one */
} JsonField;

/* EFORMAT where a nesting key holds no object. */
KvgStatus kvg_fields_open(const json_t *root, const char *file, JsonFields *fields);
/* The levels of `object` alone, for a group such as linear_attn_config. EFORMAT if it is absent or no object. */
KvgStatus kvg_fields_group(const JsonFields *fields, const char *name, JsonFields *group);

JsonField   kvg_field_find(const JsonFields *fields, const char *names);
bool        kvg_field_has(const JsonFields *fields, const char *names);
/* NULL where there is none or it is no string. */
const char *kvg_field_string(const JsonFields *fields, const char *names);

/* Optional values: *value keeps what it holds when the field is absent or null. */
KvgStatus kvg_field_u32(const JsonFields *fields, const char *names, uint32_t min, uint32_t *value);
KvgStatus kvg_field_u64(const JsonFields *fields, const char *names, uint64_t min, uint64_t *value);
KvgStatus kvg_field_bool(const JsonFields *fields, const char *names, bool *value);
/* A required one. */
KvgStatus kvg_field_need_u32(const JsonFields *fields, const char *names, uint32_t min, uint32_t *value);
/* One number for every layer, or a list with an entry a layer (entries may be 0: "none here"). */
KvgStatus kvg_field_layer_u32(const JsonFields *fields, const char *names, uint32_t layer, uint32_t min, uint32_t *value);

/* A list of at least `count_min` entries; NULL in *list when absent. */
KvgStatus kvg_field_list(const JsonFields *fields, const char *names, uint32_t count_min, const json_t **list);
/* An entry of such a list under the name "list[index]"; its value is NULL past the end. */
JsonField kvg_list_entry(const char *name, const json_t *list, size_t index);
/* The same, as a number in [min, max]. */
KvgStatus kvg_list_u32(const JsonFields *fields, const char *name, const json_t *list, size_t index, uint32_t min,
                       uint32_t max, uint32_t *value);

/* For estimates: whatever cannot be read counts as absent, and nothing fails. */
uint64_t kvg_field_guess(const JsonFields *fields, const char *names, uint64_t fallback);

/* The failure of a field whose value makes no sense: "FILE: FIELD VALUE WHY". */
KvgStatus kvg_field_fail(const JsonFields *fields, const JsonField *field, const char *why);
/* That of a field which is not there: "FILE: FIELD is missing, and WHAT CANNOT BE without it". */
KvgStatus kvg_field_missing(const JsonFields *fields, const char *names, const char *why);

#endif

/* Config: the ways in (a path, a directory), the way out (free), and what a layer's plan says about its formats. */
#include <kvgrid/model.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/base/input.h"
#include "runtime/base/memory.h"
#include "runtime/model/config_gguf.h"

/* Real JSON configs are a few kB, GGUF metadata (with its vocabulary) some MB. */
#define JSON_BYTES_MAX ((size_t)16 << 20)
#define GGUF_BYTES_MAX ((size_t)256 << 20)
#define READ_GROW      ((size_t)1 << 20)

static const char *const kind_names[KVG_STATE_KIND_COUNT] = {
    [KVG_STATE_NONE] = "None",           [KVG_STATE_KV] = "KvCache",          [KVG_STATE_SLIDING_KV] = "SlidingKvCache",
    [KVG_STATE_LATENT] = "LatentKvCache", [KVG_STATE_RECURRENT] = "Recurrent", [KVG_STATE_SHARED] = "SharedKv",
};

const char *kvg_state_kind_name(KvStateKind kind)
{
    return (unsigned)kind < KVG_STATE_KIND_COUNT ? kind_names[kind] : "?";
}

void kvg_model_config_free(ModelConfig *config)
{
    if (config != NULL) {
        kvg_free(config->plan.layers);
        kvg_free(config->weight_bytes);
        *config = (ModelConfig){.context = 0};
    }
}

/* ---- formats of a layer */

/* The half that was asked for, else what the policy gives the layer's class. */
static KvFormat choose_format(const KvCachePlan *kv, const KvgPolicy *policy, KvFormat asked, KvFormat selected)
{
    if (asked != KVG_POLICY) {
        return asked;
    }
    if ((kv->format_class == KVG_FORMAT_GEMMA_GLOBAL && policy->gemma_gkv) ||
        (kv->format_class == KVG_FORMAT_GEMMA_WINDOWED && policy->gemma_wkv) ||
        (kv->format_class == KVG_FORMAT_ORDINARY && kvg_policy_kv_fp8_on(policy))) {
        return KVG_FP8;
    }
    return selected;
}

static KvgStatus check_whole_blocks(const char *half, KvFormat format, uint32_t head_dim)
{
    if (head_dim % kvg_format_block_elements(format) != 0) {
        return kvg_fail(KVG_EGEOM, "%s head dimension %u is no multiple of %s's block of %u elements, and a block never spans "
                        "heads; choose bf16, f16 or fp8 for %s", half, head_dim, kvg_format_name(format),
                        kvg_format_block_elements(format), half);
    }
    return KVG_OK;
}

KvgStatus kvg_layer_formats(const StatePlan *layer, const KvgPolicy *policy, KvFormat asked_k, KvFormat asked_v,
                            KvFormat *format_k, KvFormat *format_v)
{
    KvFormat k, v;

    if (layer->kind != KVG_STATE_KV && layer->kind != KVG_STATE_SLIDING_KV) {
        return kvg_fail(KVG_EINVAL, "a %s layer has no K and V formats; ask K/V layers only", kvg_state_kind_name(layer->kind));
    }
    k = choose_format(&layer->u.kv, policy, asked_k, policy->format_k);
    v = choose_format(&layer->u.kv, policy, asked_v, policy->format_v);
    if (!kvg_format_legal_k(k)) {
        return kvg_fail(KVG_EINVAL, "%s is no format for K rows; choose q8_0, fp8, q4_0, bf16 or f16", kvg_format_name(k));
    }
    if (!kvg_format_legal_v(v)) {
        return kvg_fail(KVG_EINVAL, "%s is no format for V rows; choose q5_1, q4_0, fp8, q8_0, bf16 or f16", kvg_format_name(v));
    }
    KVG_TRY(check_whole_blocks("K", k, layer->u.kv.head_dim_k));
    KVG_TRY(check_whole_blocks("V", v, layer->u.kv.head_dim_v));
    *format_k = k;
    *format_v = v;
    return KVG_OK;
}

/* ---- loading */

/* Grows `*text` to at least `capacity` bytes, keeping `used`. */
static KvgStatus grow_buffer(char **text, size_t used, size_t capacity)
{
    void *larger = NULL;

    KVG_TRY(kvg_calloc(capacity, 1, "a config file", &larger));
    if (*text != NULL) {
        memcpy(larger, *text, used);
    }
    kvg_free(*text);
    *text = larger;
    return KVG_OK;
}

/* Reads on until `want` bytes are there or the file ends. */
static KvgStatus read_up_to(FILE *file, const char *path, size_t want, char **text, size_t *used)
{
    if (want > *used) {
        KVG_TRY(grow_buffer(text, *used, want));
        *used += fread(*text + *used, 1, want - *used, file);
    }
    if (ferror(file)) {
        return kvg_fail(KVG_EIO, "%s: cannot be read: %s; check the file", path, strerror(errno));
    }
    return KVG_OK;
}

/* Reads a GGUF file's head: doubles what is read until the keys and the tensor list are whole, and goes no further. */
static KvgStatus load_gguf(FILE *file, const char *path, char **text, size_t *used, ModelConfig *config)
{
    for (size_t want = READ_GROW;; want *= 2) {
        ModelConfig fresh = {.context = 0};
        bool        wants_more = false;
        KvgStatus   status;
        KVG_TRY(read_up_to(file, path, want, text, used));
        status = kvg_gguf_parse(*text, *used, path, &fresh, &wants_more);
        if (!wants_more || *used < want || want >= GGUF_BYTES_MAX) {
            if (status == KVG_OK) {
                *config = fresh;
            }
            return status; /* whole, a real failure, or there is no more to read */
        }
        kvg_model_config_free(&fresh);
    }
}

static KvgStatus load_json(FILE *file, const char *path, char **text, size_t *used, ModelConfig *config)
{
    for (size_t want = READ_GROW; want <= JSON_BYTES_MAX; want *= 2) {
        KVG_TRY(read_up_to(file, path, want, text, used));
        if (*used < want) {
            return kvg_model_config_parse_json(*text, *used, path, config);
        }
    }
    return kvg_fail(KVG_EFORMAT, "%s: is larger than %zu bytes, so it is no config; give a model's config.json or a .gguf file",
                    path, JSON_BYTES_MAX);
}

static KvgStatus load_open_file(FILE *file, const char *path, ModelConfig *config)
{
    char     *text = NULL;
    size_t    used = 0;
    KvgStatus status;

    KVG_TRY_GOTO(read_up_to(file, path, 4, &text, &used), out_free);
    status = used == 4 && memcmp(text, "GGUF", 4) == 0 ? load_gguf(file, path, &text, &used, config)
                                                       : load_json(file, path, &text, &used, config);
out_free:
    kvg_free(text);
    return status;
}

/* The last part of a path, without trailing slashes and without .json or .gguf. */
static void name_of_path(const char *path, char *name, size_t bytes)
{
    size_t end = strlen(path), start;

    while (end > 1 && path[end - 1] == '/') {
        end--;
    }
    start = end;
    while (start > 0 && path[start - 1] != '/') {
        start--;
    }
    if (end - start > 5 && (strncmp(path + end - 5, ".json", 5) == 0 || strncmp(path + end - 5, ".gguf", 5) == 0)) {
        end -= 5;
    }
    snprintf(name, bytes, "%.*s", (int)(end - start < bytes ? end - start : bytes - 1), path + start);
}

/* Messages name the path as given, the config the file's or directory's name. */
static KvgStatus load_file(const char *path, const char *name, ModelConfig *config)
{
    FILE     *file = NULL;
    KvgStatus status;

    KVG_TRY(kvg_input_open(path, "give a config.json, a .gguf file or a model's directory", KVG_INPUT_WAIT_MS, &file));
    status = load_open_file(file, path, config);
    fclose(file);
    if (status == KVG_OK) {
        snprintf(config->name, sizeof config->name, "%s", name);
    }
    return status;
}

static KvgStatus load_directory(const char *path, const char *name, ModelConfig *config)
{
    static const char *const files[] = {"config.json", "params.json"};
    char                     full[4096];
    struct stat              about;

    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (snprintf(full, sizeof full, "%s/%s", path, files[i]) >= (int)sizeof full) {
            return kvg_fail(KVG_EINVAL, "%.64s...: the path is too long; give a shorter one", path);
        }
        if (stat(full, &about) == 0) {
            return load_file(full, name, config);
        }
    }
    return kvg_fail(KVG_EIO, "%s: the directory holds neither config.json nor params.json; give a model's directory", path);
}

KvgStatus kvg_model_config_load(const char *path, ModelConfig *config)
{
    char        name[64];
    struct stat about;

    if (path == NULL || config == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_model_config_load: path and config must not be NULL");
    }
    name_of_path(path, name, sizeof name);
    if (stat(path, &about) != 0) {
        return kvg_fail(KVG_EIO, "%s: cannot be found: %s; give a config.json, a .gguf file or a model's directory", path,
                        strerror(errno));
    }
    return S_ISDIR(about.st_mode) ? load_directory(path, name, config) : load_file(path, name, config);
}

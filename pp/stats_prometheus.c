/* Stats as Prometheus's text: family by family, for each rank a sample. Numbers are whole or put together from whole ones, so that the program's locale says nothing. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "pp/stats_impl.h"
#include "runtime/base/utf8.h"

/* Text that is counted to its end, and written as far as it fits. */
typedef struct Text {
    char  *out;
    size_t bytes, used; /* used without the NUL */
} Text;

typedef struct Exposition {
    Text            text;
    const KvgStats *ranks;
    uint32_t        count;
    const KvgLabel *labels;
    uint32_t        label_count;
} Exposition;

typedef struct Family {
    const char *name, *type, *help;
    size_t      offset; /* of its counter */
} Family;

#define FAMILY(name, type, field, help) { "kvgrid_" name, type, help, offsetof(KvgStats, field) }

static const Family families[] = {
    FAMILY("content_bytes", "gauge", content_bytes, "Bytes of live rows and slots."),
    FAMILY("booked_bytes", "gauge", booked_bytes, "Bytes of chunks and slots set aside for open sequences."),
    FAMILY("taken_bytes", "gauge", taken_bytes, "Bytes got from host or device for sequence state."),
    FAMILY("memory_bytes", "gauge", memory_bytes, "Bytes that this rank gives to sequence state."),
    FAMILY("chunks", "gauge", chunks, "Chunks of 64 rows, all classes together (the same on every rank)."),
    FAMILY("chunks_booked", "gauge", chunks_booked, "Chunks that are set aside (the same on every rank)."),
    FAMILY("slots", "gauge", slots, "Sequences that can be open at once (the same on every rank)."),
    FAMILY("sequences_open", "gauge", sequences_open, "Sequences that are open (the same on every rank)."),
    FAMILY("rows_committed_total", "counter", rows, "Rows committed, of all sequences (the same on every rank)."),
    FAMILY("steps_total", "counter", steps, "Steps decided (the same on every rank)."),
    FAMILY("commits_total", "counter", commits, "Steps published (the same on every rank)."),
    FAMILY("rollbacks_total", "counter", rollbacks, "Steps rolled back, for whatever reason (the same on every rank)."),
    FAMILY("grows_total", "counter", grows, "Times a sequence's booked rows were raised after it was opened (the same on every rank)."),
    FAMILY("resizes_total", "counter", resizes, "Times the memory of the placement was resized (the same on every rank)."),
    FAMILY("nonfinite_elements_total", "counter", nonfinite, "NaN and infinite elements that were given to be stored."),
    FAMILY("saturated_elements_total", "counter", saturated, "Finite elements beyond their format's range, clamped when stored."),
};

static const char *const outcome_words[KVG_OUTCOME_KINDS] = { "published", "refused", "disagree", "unaccepted", "tainted", "settled_back" };

/* ---- text */

static void add(Text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(Text *text, const char *format, ...)
{
    size_t  left = text->used < text->bytes ? text->bytes - text->used : 0;
    va_list arguments;
    int     written;

    va_start(arguments, format);
    written = vsnprintf(left > 0 ? text->out + text->used : NULL, left, format, arguments);
    va_end(arguments);
    text->used += written > 0 ? (size_t)written : 0;
}

/* Labels are UTF-8, or a scraper refuses the whole text: what is none becomes U+FFFD. */
static void add_escaped(Text *text, const char *value)
{
    for (size_t length, left = strlen(value); left > 0; value += length, left -= length) {
        uint32_t code;

        length = kvg_utf8_take(value, left, &code);
        if (length == 0) {
            add(text, "\xef\xbf\xbd");
            length = 1;
        } else if (*value == '\n') {
            add(text, "\\n");
        } else {
            add(text, *value == '\\' || *value == '"' ? "\\%.*s" : "%.*s", (int)length, value);
        }
    }
}

/* Name and labels of a sample, with a further label where `word` is not NULL. */
static void add_sample(Exposition *e, const char *name, const KvgStats *one, const char *word, const char *value)
{
    Text *text = &e->text;

    add(text, "%s{rank=\"%" PRIu64 "\",stage=\"%" PRIu64 "\"", name, one->rank, one->stage);
    for (uint32_t i = 0; i < e->label_count; i++) {
        add(text, ",%s=\"", e->labels[i].name);
        add_escaped(text, e->labels[i].value);
        add(text, "\"");
    }
    if (word != NULL) {
        add(text, ",%s=\"%s\"", word, value);
    }
    add(text, "} ");
}

static void add_heading(Exposition *e, const char *name, const char *type, const char *help)
{
    add(&e->text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* ---- families */

/* Calls `sample` for each rank that is not left out. */
static void each_rank(Exposition *e, void (*sample)(Exposition *, const KvgStats *, const void *), const void *given)
{
    for (uint32_t i = 0; i < e->count; i++) {
        KvgStats one;
        kvg_stats_take(e->ranks, i, &one);
        if (one.ranks != 0) {
            sample(e, &one, given);
        }
    }
}

static void plain(Exposition *e, const KvgStats *one, const void *given)
{
    const Family *family = given;
    uint64_t      value;

    memcpy(&value, (const char *)one + family->offset, sizeof value);
    add_sample(e, family->name, one, NULL, NULL);
    add(&e->text, "%" PRIu64 "\n", value);
}

static void outcomes(Exposition *e, const KvgStats *one, const void *name)
{
    for (int kind = 0; kind < KVG_OUTCOME_KINDS; kind++) {
        add_sample(e, name, one, "outcome", outcome_words[kind]);
        add(&e->text, "%" PRIu64 "\n", one->outcomes[kind]);
    }
}

static void reasons(Exposition *e, const KvgStats *one, const char *name, const uint64_t *counts)
{
    for (int status = KVG_OK + 1; status < KVG_STATUS_COUNT; status++) {
        add_sample(e, name, one, "reason", kvg_status_name((KvgStatus)status));
        add(&e->text, "%" PRIu64 "\n", counts[status]);
    }
}

static void refusals(Exposition *e, const KvgStats *one, const void *name)
{
    reasons(e, one, name, one->refusals);
}

static void vote_refusals(Exposition *e, const KvgStats *one, const void *name)
{
    reasons(e, one, name, one->vote_refusals);
}

static void latencies(Exposition *e, const KvgStats *one, const void *name)
{
    uint64_t below = 0;
    char     series[64], le[32] = "+Inf";

    snprintf(series, sizeof series, "%s_bucket", (const char *)name);
    for (uint32_t i = 0; i < KVG_LATENCY_BUCKETS; i++) {
        uint64_t us = kvg_latency_bucket_us(i);
        below += one->vote_latency[i];
        snprintf(le, sizeof le, us != 0 ? "%" PRIu64 ".%06" PRIu64 : "+Inf", us / 1000000u, us % 1000000u);
        add_sample(e, series, one, "le", le);
        add(&e->text, "%" PRIu64 "\n", below);
    }
    snprintf(series, sizeof series, "%s_sum", (const char *)name);
    add_sample(e, series, one, NULL, NULL);
    add(&e->text, "%" PRIu64 ".%09" PRIu64 "\n", one->vote_latency_ns / 1000000000u, one->vote_latency_ns % 1000000000u);
    snprintf(series, sizeof series, "%s_count", (const char *)name);
    add_sample(e, series, one, NULL, NULL);
    add(&e->text, "%" PRIu64 "\n", below);
}

static void uptime(Exposition *e, const KvgStats *one, const void *name)
{
    add_sample(e, name, one, NULL, NULL);
    add(&e->text, "%" PRIu64 ".%09" PRIu64 "\n", one->uptime_ns / 1000000000u, one->uptime_ns % 1000000000u);
}

static void expose(Exposition *e)
{
    static const struct {
        const char *name, *type, *help;
        void (*sample)(Exposition *, const KvgStats *, const void *);
    } others[] = {
        { "kvgrid_uptime_seconds", "gauge", "Since the placement was made.", uptime },
        { "kvgrid_step_outcomes_total", "counter", "Steps decided, by outcome (the same on every rank).", outcomes },
        { "kvgrid_sequence_refusals_total", "counter", "Sequences refused by open or left out of a step, by reason (the same on every rank).", refusals },
        { "kvgrid_vote_refusals_total", "counter", "Steps that a rank refused, by its reason (the same on every rank).", vote_refusals },
        { "kvgrid_vote_latency_seconds", "histogram", "From posting a step's record until this rank has decided the step.", latencies },
    };

    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        add_heading(e, families[i].name, families[i].type, families[i].help);
        each_rank(e, plain, &families[i]);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        add_heading(e, others[i].name, others[i].type, others[i].help);
        each_rank(e, others[i].sample, others[i].name);
    }
}

/* ---- the call */

static int is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static int is_name(const char *name)
{
    static const char *const ours[] = { "rank", "stage", "reason", "outcome", "le" };

    if (name == NULL || !is_letter(name[0]) || strncmp(name, "__", 2) == 0) {
        return 0;
    }
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        if (strcmp(name, ours[i]) == 0) {
            return 0;
        }
    }
    for (const char *c = name; *c != '\0'; c++) {
        if (!is_letter(*c) && !(*c >= '0' && *c <= '9')) {
            return 0;
        }
    }
    return 1;
}

static KvgStatus check_labels(const KvgLabel *labels, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (labels == NULL || labels[i].value == NULL || !is_name(labels[i].name)) {
            return kvg_fail(KVG_EINVAL, "label %u \"%s\": a name is letters, digits and _, none of rank, stage, reason, outcome, le, and does not begin "
                            "with __ or a digit; a value is not NULL", i, labels != NULL && labels[i].name != NULL ? labels[i].name : "");
        }
        for (uint32_t other = 0; other < i; other++) {
            if (strcmp(labels[other].name, labels[i].name) == 0) {
                return kvg_fail(KVG_EINVAL, "label \"%s\" is given twice", labels[i].name);
            }
        }
    }
    return KVG_OK;
}

KvgStatus kvg_stats_prometheus(const KvgStats *ranks, uint32_t count, const KvgLabel *labels, uint32_t label_count, char *out, size_t bytes,
                               size_t *needed)
{
    Exposition e = { .ranks = ranks, .count = count, .labels = labels, .label_count = label_count };

    KVG_TRY(kvg_stats_check_ranks(ranks, count, "kvg_stats_prometheus"));
    KVG_TRY(check_labels(labels, label_count));
    if (needed == NULL || (out == NULL && bytes > 0)) {
        return kvg_fail(KVG_EINVAL, "kvg_stats_prometheus needs a place for the bytes that it needs, and one for the text where bytes are given");
    }
    expose(&e); /* counts */
    *needed = e.text.used + 1;
    if (out == NULL) {
        return KVG_OK;
    }
    if (bytes < *needed) {
        return kvg_fail(KVG_ECAPACITY, "the counters of %u ranks take %zu bytes as text, and there is room for %zu", count, *needed, bytes);
    }
    e.text = (Text){ .out = out, .bytes = bytes };
    expose(&e);
    return KVG_OK;
}

/* Policy: one table of knobs; each row knows how to read its text into a KvgPolicy and how to print it back.
 *
 * A knob's own variable is read first, then its MEMRA_ alias; an empty variable counts as unset. Rows are applied in
 * table order, so KVGRID_DRAFT stands before KVGRID_GEMMA_WKV, whose default it changes.
 * Threads: the process's policy is read under a lock at first use and is not changed afterwards but by the two setters. */
#include <kvgrid/policy.h>

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvgrid/log.h>

#include "runtime/base/error.h"

#define DEFAULT_TIMEOUT_MS 30000u
#define DEFAULT_PEER_MS    1000u

#define LEGAL_K "q8_0, fp8, q4_0, bf16, f16"
#define LEGAL_V "q5_1, q4_0, fp8, q8_0, bf16, f16"

typedef struct KnobRow {
    const char *name;
    const char *alias;
    /* `variable` is the one that `text` came from, for messages; `text` is not empty. */
    KvgStatus (*read)(const char *variable, const char *text, KvgPolicy *policy);
    void (*print)(const KvgPolicy *policy, char *value, size_t bytes);
    const char *meaning;
} KnobRow;

/* ---- readers */

static KvgStatus read_format_k(const char *variable, const char *text, KvgPolicy *policy)
{
    KvFormat format = KVG_POLICY;

    if (kvg_format_parse(text, &format) != KVG_OK || !kvg_format_legal_k(format)) {
        return kvg_fail(KVG_EINVAL, "%s is \"%s\", which is no format for K; set one of " LEGAL_K ", or unset it",
                        variable, text);
    }
    policy->format_k = format;
    return KVG_OK;
}

static KvgStatus read_format_v(const char *variable, const char *text, KvgPolicy *policy)
{
    KvFormat format = KVG_POLICY;

    if (kvg_format_parse(text, &format) != KVG_OK || !kvg_format_legal_v(format)) {
        return kvg_fail(KVG_EINVAL, "%s is \"%s\", which is no format for V; set one of " LEGAL_V ", or unset it",
                        variable, text);
    }
    policy->format_v = format;
    return KVG_OK;
}

static KvgStatus read_gkv(const char *variable, const char *text, KvgPolicy *policy)
{
    (void)variable;
    policy->gemma_gkv = strcmp(text, "0") != 0;
    return KVG_OK;
}

static KvgStatus read_wkv(const char *variable, const char *text, KvgPolicy *policy)
{
    (void)variable;
    policy->gemma_wkv = strcmp(text, "0") != 0;
    return KVG_OK;
}

static KvgStatus read_draft(const char *variable, const char *text, KvgPolicy *policy)
{
    (void)variable;
    (void)text; /* any value: a draft model is in use */
    policy->gemma_wkv = 0;
    return KVG_OK;
}

static KvgStatus read_kv_fp8(const char *variable, const char *text, KvgPolicy *policy)
{
    (void)variable;
    policy->kv_fp8 = strcmp(text, "1") == 0;
    return KVG_OK;
}

/* "1" and "0" force; any other word leaves the decision to the default. */
static KvgStatus read_swa_ring(const char *variable, const char *text, KvgPolicy *policy)
{
    (void)variable;
    if (strcmp(text, "1") == 0) {
        policy->swa_ring = 1;
    } else if (strcmp(text, "0") == 0) {
        policy->swa_ring = 0;
    }
    return KVG_OK;
}

/* Decimal digits and nothing else. */
static int parse_whole(const char *text, int64_t max, int64_t *value)
{
    char     *end = NULL;
    long long parsed;

    if (text[0] < '0' || text[0] > '9') {
        return 0; /* no sign, no space: strtoll would take both */
    }
    errno = 0;
    parsed = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0' || parsed > max) {
        return 0;
    }
    *value = parsed;
    return 1;
}

static KvgStatus read_index_ring(const char *variable, const char *text, KvgPolicy *policy)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT; /* once a process, however often the environment is read */

    if (!parse_whole(text, INT64_MAX, &policy->dsa_index_ring) && !atomic_flag_test_and_set(&warned)) {
        kvg_log(KVG_LOG_WARN, "%s is \"%s\", which is no number of rows; it counts as unset", variable, text);
    }
    return KVG_OK;
}

static KvgStatus read_ms(const char *variable, const char *text, uint32_t *ms)
{
    int64_t value = 0;

    if (!parse_whole(text, INT32_MAX, &value) || value == 0) {
        return kvg_fail(KVG_EINVAL, "%s is \"%s\"; set whole milliseconds, 1 to %d, or unset it", variable, text, INT32_MAX);
    }
    *ms = (uint32_t)value;
    return KVG_OK;
}

static KvgStatus read_timeout(const char *variable, const char *text, KvgPolicy *policy)
{
    return read_ms(variable, text, &policy->timeout_ms);
}

static KvgStatus read_peer(const char *variable, const char *text, KvgPolicy *policy)
{
    return read_ms(variable, text, &policy->peer_ms);
}

/* Whether there is such an interface only the mesh asks, where it needs one: a host's interfaces come and go. */
static KvgStatus read_interface(const char *variable, const char *text, KvgPolicy *policy)
{
    if (strlen(text) >= sizeof policy->interface) {
        return kvg_fail(KVG_EINVAL, "%s is \"%.100s\", which is longer than a name or an address can be (%zu letters); set an interface's name, such as eth0, or "
                        "an IP address of this host, or unset it", variable, text, sizeof policy->interface - 1);
    }
    snprintf(policy->interface, sizeof policy->interface, "%s", text);
    return KVG_OK;
}

/* ---- printers */

static void print_format_k(const KvgPolicy *policy, char *value, size_t bytes)
{
    snprintf(value, bytes, "%s", kvg_format_name(policy->format_k));
}

static void print_format_v(const KvgPolicy *policy, char *value, size_t bytes)
{
    snprintf(value, bytes, "%s", kvg_format_name(policy->format_v));
}

static void print_switch(int value_now, char *value, size_t bytes)
{
    snprintf(value, bytes, "%s", value_now < 0 ? "unset" : value_now > 0 ? "on" : "off");
}

static void print_gkv(const KvgPolicy *policy, char *value, size_t bytes)
{
    print_switch(policy->gemma_gkv, value, bytes);
}

static void print_wkv(const KvgPolicy *policy, char *value, size_t bytes)
{
    print_switch(policy->gemma_wkv, value, bytes);
}

static void print_unset(const KvgPolicy *policy, char *value, size_t bytes)
{
    (void)policy; /* KVGRID_DRAFT leaves no trace of its own; a set one prints its text */
    snprintf(value, bytes, "unset");
}

static void print_kv_fp8(const KvgPolicy *policy, char *value, size_t bytes)
{
    print_switch(policy->kv_fp8, value, bytes);
}

static void print_swa_ring(const KvgPolicy *policy, char *value, size_t bytes)
{
    print_switch(policy->swa_ring, value, bytes);
}

static void print_index_ring(const KvgPolicy *policy, char *value, size_t bytes)
{
    if (policy->dsa_index_ring < 0) {
        snprintf(value, bytes, "unset");
    } else {
        snprintf(value, bytes, "%lld", (long long)policy->dsa_index_ring);
    }
}

static void print_timeout(const KvgPolicy *policy, char *value, size_t bytes)
{
    snprintf(value, bytes, "%u", policy->timeout_ms);
}

static void print_peer(const KvgPolicy *policy, char *value, size_t bytes)
{
    snprintf(value, bytes, "%u", policy->peer_ms);
}

static void print_interface(const KvgPolicy *policy, char *value, size_t bytes)
{
    snprintf(value, bytes, "%s", policy->interface[0] != '\0' ? policy->interface : "unset");
}

/* ---- the table */

static const KnobRow knob_rows[] = {
    {"KVGRID_KV_K", "MEMRA_KV_K", read_format_k, print_format_k, "format of K rows: " LEGAL_K},
    {"KVGRID_KV_V", "MEMRA_KV_V", read_format_v, print_format_v, "format of V rows: " LEGAL_V},
    {"KVGRID_GEMMA_GKV", "MEMRA_GEMMA_GKV", read_gkv, print_gkv, "Gemma global layers hold fp8 K and V; 0 is off, else on"},
    {"KVGRID_DRAFT", "MEMRA_DRAFT", read_draft, print_unset, "a draft model is in use: turns KVGRID_GEMMA_WKV's default off"},
    {"KVGRID_GEMMA_WKV", "MEMRA_GEMMA_WKV", read_wkv, print_wkv,
     "Gemma windowed layers hold fp8 K and V; 0 is off, else on"},
    {"KVGRID_KV_FP8", "MEMRA_KV_FP8", read_kv_fp8, print_kv_fp8,
     "1: every ordinary K/V layer holds fp8; any other value: none does; unset: the model's own choice"},
    {"KVGRID_SWA_RING", "MEMRA_SWA_RING", read_swa_ring, print_swa_ring,
     "windowed layers keep a ring of rows; 1 on, 0 off, else the engine's default"},
    {"KVGRID_DSA_INDEX_RING", "MEMRA_DSA_INDEX_RING", read_index_ring, print_index_ring,
     "rows of the pooled indexer's ring; 0 is flat; unset: 5120; rows"},
    {"KVGRID_TIMEOUT_MS", NULL, read_timeout, print_timeout, "longest silence of a rank whose record is missing; milliseconds"},
    {"KVGRID_PEER_MS", NULL, read_peer, print_peer,
     "time in which a closed connection is noticed by a rank that calls in; milliseconds"},
    {"KVGRID_INTERFACE", NULL, read_interface, print_interface,
     "where a rank listens for ranks on other hosts: an interface's name or an address; unset: the first address of the host's name"},
};

#define KNOB_COUNT ((int)(sizeof knob_rows / sizeof knob_rows[0]))

/* The variable that gives the knob its text, or NULL when neither is set to anything. */
static const char *knob_variable(const KnobRow *row, const char **text)
{
    const char *names[2] = {row->name, row->alias};

    for (int i = 0; i < 2; i++) {
        const char *found = names[i] != NULL ? getenv(names[i]) : NULL;
        if (found != NULL && found[0] != '\0') {
            *text = found;
            return names[i];
        }
    }
    return NULL;
}

void kvg_policy_default(KvgPolicy *policy)
{
    *policy = (KvgPolicy){
        .size = sizeof *policy, .format_k = KVG_Q8_0, .format_v = KVG_Q5_1, .gemma_gkv = 1, .gemma_wkv = 1,
        .kv_fp8 = -1, .kv_fp8_force = -1, .swa_ring = -1, .swa_ring_default = 0, .dsa_index_ring = -1,
        .timeout_ms = DEFAULT_TIMEOUT_MS, .peer_ms = DEFAULT_PEER_MS,
    };
}

KvgStatus kvg_policy_from_env(KvgPolicy *policy)
{
    KvgPolicy fresh;

    kvg_policy_default(&fresh);
    for (int i = 0; i < KNOB_COUNT; i++) {
        const char *text = NULL;
        const char *variable = knob_variable(&knob_rows[i], &text);
        if (variable != NULL) {
            KVG_TRY(knob_rows[i].read(variable, text, &fresh));
        }
    }
    *policy = fresh;
    return KVG_OK;
}

int kvg_policy_swa_ring_on(const KvgPolicy *policy)
{
    return (policy->swa_ring >= 0 ? policy->swa_ring : policy->swa_ring_default) > 0;
}

int kvg_policy_kv_fp8_on(const KvgPolicy *policy)
{
    return (policy->kv_fp8 >= 0 ? policy->kv_fp8 : policy->kv_fp8_force) > 0;
}

/* ---- the process's policy */

static struct {
    pthread_mutex_t lock;
    int             ready;        /* `policy` was read without an error */
    int8_t          fp8_force;    /* what the setters asked for, kept apart: they may come before the first use */
    int8_t          ring_default;
    KvgPolicy       policy;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER, .fp8_force = -1};

/* Under the lock. */
static KvgStatus process_ready(void)
{
    if (!process.ready) {
        KVG_TRY(kvg_policy_from_env(&process.policy));
        process.policy.kv_fp8_force = process.fp8_force; /* later the setters see to it: others read through kvg_policy_process, without the lock */
        process.policy.swa_ring_default = process.ring_default;
        process.ready = 1;
    }
    return KVG_OK;
}

KvgStatus kvg_policy_process(const KvgPolicy **policy)
{
    KvgStatus status;

    pthread_mutex_lock(&process.lock);
    status = process_ready();
    pthread_mutex_unlock(&process.lock);
    if (status == KVG_OK) {
        *policy = &process.policy;
    }
    return status;
}

/* A copy, or the defaults with the setters' values when the environment cannot be read. */
static KvgPolicy process_policy_or_default(void)
{
    KvgPolicy policy;

    pthread_mutex_lock(&process.lock);
    if (process_ready() == KVG_OK) {
        policy = process.policy;
    } else {
        kvg_policy_default(&policy);
        policy.kv_fp8_force = process.fp8_force;
        policy.swa_ring_default = process.ring_default;
    }
    pthread_mutex_unlock(&process.lock);
    return policy;
}

void kvg_kv_cache_formats(KvFormat *format_k, KvFormat *format_v)
{
    KvgPolicy policy = process_policy_or_default();

    *format_k = policy.format_k;
    *format_v = policy.format_v;
}

void kvg_kv_blk_bytes(uint32_t *k_bytes, uint32_t *v_bytes)
{
    KvgPolicy policy = process_policy_or_default();

    *k_bytes = kvg_format_bytes_per_32(policy.format_k);
    *v_bytes = kvg_format_bytes_per_32(policy.format_v);
}

int kvg_gkv_on(void)
{
    return process_policy_or_default().gemma_gkv != 0;
}

int kvg_wkv_on(void)
{
    return process_policy_or_default().gemma_wkv != 0;
}

int kvg_kv_fp8_on(void)
{
    KvgPolicy policy = process_policy_or_default();

    return kvg_policy_kv_fp8_on(&policy);
}

int kvg_swa_ring_on(void)
{
    KvgPolicy policy = process_policy_or_default();

    return kvg_policy_swa_ring_on(&policy);
}

void kvg_kv_fp8_force_set(int force)
{
    pthread_mutex_lock(&process.lock);
    process.fp8_force = (int8_t)(force < 0 ? -1 : force > 0);
    process.policy.kv_fp8_force = process.fp8_force;
    pthread_mutex_unlock(&process.lock);
}

void kvg_set_swa_ring_default(int on)
{
    pthread_mutex_lock(&process.lock);
    process.ring_default = on != 0;
    process.policy.swa_ring_default = process.ring_default;
    pthread_mutex_unlock(&process.lock);
}

/* ---- kvgrid knobs */

int kvg_knob_count(void)
{
    return KNOB_COUNT;
}

/* Gemma's windowed default is the one value that another knob's variable may decide. */
static const char *knob_deciding_default(const KnobRow *row, KvgPolicy *policy)
{
    const char *text = NULL;

    for (int i = 0; row->read == read_wkv && i < KNOB_COUNT; i++) {
        const char *variable = knob_rows[i].read == read_draft ? knob_variable(&knob_rows[i], &text) : NULL;
        if (variable != NULL) {
            policy->gemma_wkv = 0;
            return variable;
        }
    }
    return "default";
}

KvgStatus kvg_knob_get(int index, KvgKnob *knob)
{
    KvgPolicy      policy;
    const KnobRow *row;
    const char    *variable, *text = NULL;

    if (index < 0 || index >= KNOB_COUNT) {
        return kvg_fail(KVG_EINVAL, "knob %d does not exist; there are %d, counted from 0", index, KNOB_COUNT);
    }
    row = &knob_rows[index];
    *knob = (KvgKnob){.name = row->name, .alias = row->alias, .meaning = row->meaning};
    kvg_policy_default(&policy);
    variable = knob_variable(row, &text);
    if (variable == NULL) {
        variable = knob_deciding_default(row, &policy);
        row->print(&policy, knob->value, sizeof knob->value);
    } else if (row->read == read_draft) {
        snprintf(knob->value, sizeof knob->value, "%s", text);
    } else {
        knob->unread = row->read(variable, text, &policy) != KVG_OK;
        row->print(&policy, knob->value, sizeof knob->value);
        knob->unread |= strcmp(knob->value, "unset") == 0; /* a word that counts as none */
    }
    if (knob->unread) {
        snprintf(knob->value, sizeof knob->value, "%s", text); /* as it stands: kvg_policy_from_env says what is wrong */
    }
    snprintf(knob->source, sizeof knob->source, "%s", variable);
    return KVG_OK;
}

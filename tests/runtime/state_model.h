/* A naive model of sequences in a pool: every row ever written is kept as the key it was written with, every chunk as an
 * entry in a plain list. Slow, obvious, and written from the rules alone: tests compare the real store and cache with it. */
#ifndef KVG_TEST_STATE_MODEL_H
#define KVG_TEST_STATE_MODEL_H

#include <stdint.h>
#include <string.h>

enum { MODEL_CTX = 1600, MODEL_CHUNKS = 25, MODEL_CLASSES = 3, MODEL_SEQS = 7, MODEL_UNITS_MAX = 400, MODEL_SNAPSHOTS = 4 };

typedef struct ModelClass { /* rules of one class */
    int      window, ring;
    int      unit_cap;
    int      total;
    int      refs[MODEL_UNITS_MAX]; /* of chunks in this model's own numbering */
} ModelClass;

typedef struct ModelSnapshot {
    int      used;
    uint64_t serial, pos;
    uint64_t shortest; /* smallest length since */
} ModelSnapshot;

typedef struct ModelSeq {
    int      open, in_step, behind; /* behind: rows fell behind the window and were not released yet */
    uint64_t serial, len, staged, guarantee;
    uint64_t base[MODEL_CLASSES];  /* first row kept, windowed classes with a ring */
    uint64_t keys[MODEL_CTX];
    int      first[MODEL_CLASSES], end[MODEL_CLASSES];
    int      table[MODEL_CLASSES][MODEL_CHUNKS + 1];
    ModelSnapshot snapshots[MODEL_SNAPSHOTS];
} ModelSeq;

typedef struct Model {
    ModelClass classes[MODEL_CLASSES];
    ModelSeq   seqs[MODEL_SEQS];
} Model;

static inline int model_chunks(uint64_t rows)
{
    return (int)((rows + 63) / 64);
}

static inline uint64_t model_view_start(uint64_t len, int window)
{
    return len < (uint64_t)window ? 0 : (len - (uint64_t)window + 1) / 32 * 32;
}

static inline int model_free(const Model *m, int c)
{
    int held = 0;
    for (int i = 0; i < MODEL_UNITS_MAX; i++) held += m->classes[c].refs[i] > 0;
    return m->classes[c].total - held;
}

static inline int model_take(Model *m, int c)
{
    int i = 0;
    while (m->classes[c].refs[i] > 0) i++;
    m->classes[c].refs[i] = 1;
    return i;
}

/* The end of the table for rows below `target`. */
static inline int model_end(const Model *m, const ModelSeq *s, int c, uint64_t target)
{
    int end = model_chunks(target);

    if (m->classes[c].ring && end > (int)(s->base[c] / 64) + m->classes[c].unit_cap) {
        end = (int)(s->base[c] / 64) + m->classes[c].unit_cap;
    }
    return end > s->end[c] ? end : s->end[c];
}

static inline int model_can_book(const Model *m, const ModelSeq *s, uint64_t target)
{
    for (int c = 0; c < MODEL_CLASSES; c++) {
        if (model_end(m, s, c, target) - s->end[c] > model_free(m, c)) return 0;
    }
    return 1;
}

static inline void model_book(Model *m, ModelSeq *s, uint64_t target)
{
    for (int c = 0; c < MODEL_CLASSES; c++) {
        int end = model_end(m, s, c, target);
        while (s->end[c] < end) s->table[c][s->end[c]++] = model_take(m, c);
    }
}

static inline void model_open(ModelSeq *s, uint64_t serial)
{
    memset(s, 0, sizeof *s);
    s->open = 1;
    s->serial = serial;
}

static inline void model_trim_to(Model *m, ModelSeq *s, int chunks)
{
    for (int c = 0; c < MODEL_CLASSES; c++) {
        while (s->end[c] > chunks && s->end[c] > s->first[c]) m->classes[c].refs[s->table[c][--s->end[c]]]--;
    }
}

static inline void model_close(Model *m, ModelSeq *s)
{
    model_trim_to(m, s, 0);
    s->open = 0;
}

static inline void model_finalize(Model *m, ModelSeq *s, uint64_t accepted)
{
    s->len = s->staged = s->len + accepted;
    s->in_step = 0;
    s->behind = 1;
    for (int c = 0; c < MODEL_CLASSES; c++) {
        uint64_t behind = (uint64_t)m->classes[c].window - 1 + 512;

        if (!m->classes[c].ring || s->len < behind) continue;
        uint64_t base = (s->len - behind) / 32 * 32;
        if (base > s->base[c]) s->base[c] = base;
    }
}

static inline void model_release_behind(Model *m, ModelSeq *s)
{
    s->behind = 0;
    for (int c = 0; c < MODEL_CLASSES; c++) {
        for (; s->first[c] < (int)(s->base[c] / 64); s->first[c]++) {
            int chunk = s->table[c][s->first[c]];

            if (m->classes[c].refs[chunk] == 1 && s->end[c] < model_chunks(s->guarantee)) {
                s->table[c][s->end[c]++] = chunk;
            } else {
                m->classes[c].refs[chunk]--;
            }
        }
    }
}

static inline int model_shared(const Model *m, const ModelSeq *s, int c, int entry)
{
    return entry < s->end[c] && m->classes[c].refs[s->table[c][entry]] > 1;
}

static inline int model_rewind_held(const Model *m, const ModelSeq *s, uint64_t len)
{
    for (int c = 0; c < MODEL_CLASSES; c++) {
        if (m->classes[c].ring && model_view_start(len, m->classes[c].window) < s->base[c]) return 0;
    }
    return 1;
}

static inline int model_rewind_fits(const Model *m, const ModelSeq *s, uint64_t len)
{
    for (int c = 0; c < MODEL_CLASSES; c++) {
        if (len % 64 != 0 && model_shared(m, s, c, (int)(len / 64)) && model_free(m, c) < 1) return 0;
    }
    return 1;
}

static inline void model_rewind(Model *m, ModelSeq *s, uint64_t len)
{
    for (int c = 0; c < MODEL_CLASSES; c++) {
        int entry = (int)(len / 64), kept;

        if (len % 64 != 0 && model_shared(m, s, c, entry)) {
            int fresh = model_take(m, c);
            m->classes[c].refs[s->table[c][entry]]--;
            s->table[c][entry] = fresh;
        }
        kept = entry + (len % 64 != 0);
        for (int e = kept; e < s->end[c]; e++) {
            if (model_shared(m, s, c, e)) m->classes[c].refs[s->table[c][e]]--;
            else s->table[c][kept++] = s->table[c][e];
        }
        if (kept < s->end[c]) s->end[c] = kept;
    }
    s->len = s->staged = len;
    s->in_step = 0;
    for (int i = 0; i < MODEL_SNAPSHOTS; i++) {
        if (len < s->snapshots[i].shortest) s->snapshots[i].shortest = len;
    }
}

static inline int model_fork_fits(const Model *m, uint64_t rows)
{
    for (int c = 0; c < MODEL_CLASSES; c++) {
        if (rows % 64 != 0 && model_free(m, c) < 1) return 0;
    }
    return 1;
}

static inline void model_fork(Model *m, const ModelSeq *s, uint64_t rows, ModelSeq *child)
{
    child->len = child->staged = rows;
    memcpy(child->keys, s->keys, rows * sizeof s->keys[0]);
    for (int c = 0; c < MODEL_CLASSES && rows > 0; c++) {
        child->base[c] = s->base[c];
        child->first[c] = child->end[c] = (int)(s->base[c] / 64);
        for (; child->end[c] < (int)(rows / 64); child->end[c]++) {
            child->table[c][child->end[c]] = s->table[c][child->end[c]];
            m->classes[c].refs[s->table[c][child->end[c]]]++;
        }
        if (rows % 64 != 0 && rows > s->base[c]) child->table[c][child->end[c]++] = model_take(m, c);
    }
}

#endif

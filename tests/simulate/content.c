/* Content: what rows hold. A row has a key; every 32 elements of it in a plane are one of 4096 patterns, chosen by (key, layer, plane, head, part).
 * Patterns are encoded once, so that comparing a stored row costs a hash and a memcmp. */
#include "tests/simulate/sim.h"

#include <string.h>

#include <kvgrid/ring.h>

static float   pattern[SIM_PATTERNS][SIM_PATTERN];
static uint8_t encoded[KVG_FORMAT_COUNT][SIM_PATTERNS][SIM_PATTERN * 4];
static float   staging_k[SIM_PLACES * SIM_STEP_ROWS * 16 * SIM_PATTERN], staging_v[SIM_PLACES * SIM_STEP_ROWS * 16 * SIM_PATTERN];
static float   scratch[1 << 14], folded[1 << 14];

#define DECAY 0.5f

void content_init(void)
{
    Draws draws = { 4711 };

    for (int p = 0; p < SIM_PATTERNS; p++) {
        for (int e = 0; e < SIM_PATTERN; e++) {
            pattern[p][e] = (float)((int)draw(&draws, 255) - 127) / 16.0f; /* exact in f16 and bf16 */
        }
        for (int format = KVG_F32; format < KVG_FORMAT_COUNT; format++) {
            kvg_encode_f32((KvFormat)format, pattern[p], SIM_PATTERN, encoded[format][p], NULL);
        }
    }
}

static uint32_t pattern_of(uint64_t key, uint32_t layer, uint32_t plane, uint32_t head, uint32_t part)
{
    uint64_t x = (key ^ ((uint64_t)layer << 40 | (uint64_t)plane << 32 | head << 8 | part)) * 0x9e3779b97f4a7c15u;

    return (uint32_t)((x ^ x >> 29) * 0xbf58476d1ce4e5b9u >> 52);
}

static uint64_t key_at(const Truth *truth, uint32_t place, uint64_t row)
{
    return truth->key[place][row - (truth->base[place] - truth->replay[place])];
}

/* ---- writing */

typedef struct Pass {
    World       *w;
    int          r;
    const Truth *truth;
    KvgStep     *step;
    KvgBatch    *batch;
} Pass;

static uint64_t first_row(const Pass *pass, uint32_t place)
{
    return kvg_step_first_rows(pass->step)[place];
}

static void write_kv(const Pass *pass, uint32_t il, const KvPlaneView *view)
{
    KvgRows in = KVG_ROWS_INIT;
    size_t  at = 0;

    for (uint32_t place = 0; place < SIM_PLACES; place++) {
        for (uint32_t i = 0; i < kvg_step_rows(pass->step)[place]; i++) {
            uint64_t key = key_at(pass->truth, place, first_row(pass, place) + i);
            for (uint32_t h = 0; h < view->heads; h++, at += SIM_PATTERN) {
                memcpy(&staging_k[at], pattern[pattern_of(key, il, 0, view->head_first + h, 0)], sizeof pattern[0]);
                memcpy(&staging_v[at], pattern[pattern_of(key, il, 1, view->head_first + h, 0)], sizeof pattern[0]);
            }
        }
    }
    in.k = staging_k;
    in.v = staging_v;
    SIM_CHECK(pass->w, kvg_write_kv(pass->batch, il, &in, NULL) == KVG_OK, "rank %d could not write layer %u: %s", pass->r, il, kvg_last_error());
}

static void pool_key(void *user, uint32_t layer, uint64_t pool, const float *rows, float *key)
{
    const KvLatentView *view = user;

    for (uint32_t e = 0; e < view->key_width; e++) {
        key[e] = (float)(layer + 1) * 0.25f + rows[e] + rows[(view->pool - 1) * view->index_width + e] + (float)(pool % 4);
    }
}

static void write_latent(const Pass *pass, uint32_t il, const KvLatentView *view)
{
    KvgLatentRows in = KVG_LATENT_ROWS_INIT;
    size_t        at = 0, index_at = 0;

    for (uint32_t place = 0; place < SIM_PLACES; place++) {
        for (uint32_t i = 0; i < kvg_step_rows(pass->step)[place]; i++) {
            uint64_t key = key_at(pass->truth, place, first_row(pass, place) + i);
            for (uint32_t part = 0; part < view->width / SIM_PATTERN; part++, at += SIM_PATTERN) {
                memcpy(&staging_k[at], pattern[pattern_of(key, il, 2, 0, part)], sizeof pattern[0]);
            }
            for (uint32_t part = 0; part < view->index_width / SIM_PATTERN; part++, index_at += SIM_PATTERN) {
                memcpy(&staging_v[index_at], pattern[pattern_of(key, il, 3, 0, part)], sizeof pattern[0]);
            }
        }
    }
    in.latent = staging_k;
    in.index = view->index_kind != KVG_INDEX_NONE ? staging_v : NULL;
    in.key = view->index_kind == KVG_INDEX_POOLED ? pool_key : NULL;
    in.user = (void *)(uintptr_t)view;
    SIM_CHECK(pass->w, kvg_write_latent(pass->batch, il, &in, NULL) == KVG_OK, "rank %d could not write layer %u: %s", pass->r, il,
              kvg_last_error());
}

static void recurrent_values(const KvRecurrentView *view, uint64_t key, float *x, float *u)
{
    for (uint32_t p = 0; p < view->part_count; p++) {
        const KvRecurrentPartView *part = &view->parts[p];
        float                    **to = part->is_state ? &u : &x;
        for (uint32_t h = 0; h < part->heads; h++) {
            for (uint32_t e = 0; e < part->width; e += SIM_PATTERN) {
                uint32_t count = part->width - e < SIM_PATTERN ? part->width - e : SIM_PATTERN;
                memcpy(*to, pattern[pattern_of(key, view->layer, 5 + part->is_state, part->head_index + h, e / SIM_PATTERN)], count * sizeof(float));
                *to += count;
            }
        }
    }
}

static void fill_row(void *user, uint32_t il, uint32_t slot, uint64_t row, float *x, float *u)
{
    const Pass *pass = user;

    recurrent_values(kvg_recurrent_view(pass->batch, il), key_at(pass->truth, slot, row), x, u);
}

static void write_recurrent(const Pass *pass, uint32_t il)
{
    KvgRecurrentRows rows = KVG_RECURRENT_ROWS_INIT;

    rows.fill = fill_row;
    rows.user = (void *)(uintptr_t)pass;
    rows.decay = DECAY;
    rows.scratch = scratch;
    SIM_CHECK(pass->w, kvg_recurrent_update(pass->batch, il, &rows, NULL) == KVG_OK, "rank %d could not update layer %u: %s", pass->r, il,
              kvg_last_error());
}

void content_write(World *w, int r, const Truth *truth, KvgStep *step)
{
    Rank *rank = &w->rank[r];
    Pass  pass = { w, r, truth, step, rank->batch[truth->batch] };

    if (kvg_step_local(step) != KVG_OK) {
        return; /* it will vote no: an engine writes nothing either */
    }
    for (uint32_t il = rank->placement->lo; il < rank->placement->hi; il++) {
        const KvPlaneView  *view = kvg_store_shown_view(rank->placement->store, il);
        const KvLatentView *latent = kvg_store_shown_latent_view(rank->placement->store, il);
        if (view != NULL) {
            write_kv(&pass, il, view);
        } else if (latent != NULL) {
            write_latent(&pass, il, latent);
        } else if (kvg_store_shown_recurrent_view(rank->placement->store, il) != NULL) {
            write_recurrent(&pass, il);
        }
    }
}

/* ---- comparing */

typedef struct Look {
    World   *w;
    int      r;
    uint32_t seq, slot;
    uint64_t first, end;
    const uint64_t *key; /* of row `first` */
} Look;

static _Noreturn void differs(const Look *look, uint32_t il, const char *plane, uint64_t row)
{
    sim_fail(look->w, "rank %d, sequence %u: row %llu of the %s in layer %u is not what was committed (rows [%llu, %llu) were looked at)", look->r,
             look->seq, (unsigned long long)row, plane, il, (unsigned long long)look->first, (unsigned long long)look->end);
}

static void check_plane(const Look *look, const KvPlaneView *view, const KvPlane *plane, uint32_t number)
{
    uint64_t from = look->first;

    if (view->window != 0) {
        uint64_t start = kvg_view_start(look->w->rank[look->r].seq[look->seq]->cache.pos, view->window);
        from = start > from ? start : from;
        SIM_CHECK(look->w, view->base_row[look->slot] <= start, "rank %d, sequence %u: layer %u holds rows from %u on, its window needs %llu", look->r,
                  look->seq, view->layer, view->base_row[look->slot], (unsigned long long)start);
    }
    for (uint64_t row = from; row < look->end; row++) {
        for (uint32_t h = 0; h < view->heads; h++) {
            uint32_t p = pattern_of(look->key[row - look->first], view->layer, number, view->head_first + h, 0);
            if (memcmp(kvg_plane_row(view, plane, look->slot, h, row), encoded[plane->format][p], plane->head_bytes) != 0) {
                differs(look, view->layer, number == 0 ? "K plane" : "V plane", row);
            }
        }
    }
}

static void check_latent(const Look *look, const KvLatentView *view)
{
    size_t part_bytes = view->latent.head_bytes / (view->width / SIM_PATTERN);

    for (uint64_t row = look->first; row < look->end; row++) {
        const uint8_t *stored = kvg_latent_entry(view, &view->latent, KVG_CHUNK_ROWS, look->slot, row);
        for (uint32_t part = 0; part < view->width / SIM_PATTERN; part++) {
            uint32_t p = pattern_of(look->key[row - look->first], view->layer, 2, 0, part);
            if (memcmp(stored + part * part_bytes, encoded[view->latent.format][p], part_bytes) != 0) {
                differs(look, view->layer, "latent plane", row);
            }
        }
        if (view->index_kind == KVG_INDEX_PER_TOKEN) {
            uint32_t p = pattern_of(look->key[row - look->first], view->layer, 3, 0, 0);
            if (memcmp(kvg_latent_entry(view, &view->keys, KVG_CHUNK_ROWS, look->slot, row), encoded[view->keys.format][p], view->keys.head_bytes) != 0) {
                differs(look, view->layer, "keys", row);
            }
        }
    }
}

static void look_at_rows(const Look *look)
{
    const KvgPlacement *placement = look->w->rank[look->r].placement;

    for (uint32_t il = placement->lo; il < placement->hi; il++) {
        const KvPlaneView  *view = kvg_store_shown_view(placement->store, il);
        const KvLatentView *latent = kvg_store_shown_latent_view(placement->store, il);
        if (view != NULL) {
            check_plane(look, view, &view->k, 0);
            check_plane(look, view, &view->v, 1);
        } else if (latent != NULL) {
            check_latent(look, latent);
        }
    }
}

void content_check_rows(World *w, int r, uint32_t seq, uint64_t first, uint64_t end, const uint64_t *key)
{
    look_at_rows(&(Look){ w, r, seq, w->rank[r].seq[seq]->cache.slot, first, end, key });
}

/* ---- slot state, where nothing is owed */

static void check_pool_keys(const Look *look, const KvLatentView *view)
{
    float   rows[64 * SIM_PATTERN], key[SIM_PATTERN];
    uint8_t bytes[SIM_PATTERN * 4];
    uint64_t tail = look->end - look->end % view->pool;

    for (uint64_t pool = 0; pool < look->end / view->pool; pool++) {
        for (uint32_t i = 0; i < view->pool; i++) {
            memcpy(&rows[i * view->index_width], pattern[pattern_of(look->key[pool * view->pool + i], view->layer, 3, 0, 0)], sizeof pattern[0]);
        }
        pool_key((void *)(uintptr_t)view, view->layer, pool, rows, key);
        kvg_encode_f32(view->keys.format, key, view->key_width, bytes, NULL);
        if (memcmp(kvg_latent_entry(view, &view->keys, KVG_CHUNK_ROWS / view->pool, look->slot, pool), bytes, view->keys.head_bytes) != 0) {
            differs(look, view->layer, "pooled keys", pool);
        }
    }
    for (uint64_t row = tail; row < look->end; row++) {
        uint32_t p = pattern_of(look->key[row], view->layer, 3, 0, 0);
        if (memcmp(kvg_latent_index_row(view, look->slot, row), encoded[view->latent.format][p], view->index_row_bytes) != 0) {
            differs(look, view->layer, "index rows", row);
        }
    }
}

static void check_recurrent(const Look *look, const KvRecurrentView *view)
{
    uint32_t     current = look->w->rank[look->r].seq[look->seq]->cache.held.current;
    const float *conv = view->conv + look->slot * view->conv_slot_stride + current * view->conv_elements;
    const float *state = view->state + look->slot * view->state_slot_stride + current * view->state_elements;
    float       *own_conv = folded, *own_state = folded + view->conv_elements;

    memset(folded, 0, (view->conv_elements + view->state_elements) * sizeof(float));
    for (uint64_t row = look->end < 200 ? 0 : look->end - 200; row < look->end; row++) { /* what is older has decayed away: 2^-200 is no float beside these */
        recurrent_values(view, look->key[row], scratch, scratch + view->conv_channels);
        kvg_recurrent_token(own_conv, own_state, scratch, scratch + view->conv_channels, DECAY, view->conv_channels, view->taps, view->state_elements,
                            own_conv, own_state);
    }
    if (memcmp(conv, own_conv, view->conv_elements * sizeof(float)) != 0) differs(look, view->layer, "conv state", look->end);
    if (memcmp(state, own_state, view->state_elements * sizeof(float)) != 0) differs(look, view->layer, "recurrent state", look->end);
}

void content_check_all(World *w, int r, uint32_t seq, const RefSeq *ref)
{
    const KvgPlacement *placement = w->rank[r].placement;
    const KvCache      *cache = &w->rank[r].seq[seq]->cache;
    /* Rows that are owed as a replay need not be there: going back may have left them in a chunk that a fork shares. */
    Look                look = { w, r, seq, cache->slot, 0, ref->len - kvg_kv_cache_replay(cache), ref->key };

    look_at_rows(&look);
    if (kvg_kv_cache_replay(cache) != 0) {
        return; /* slot state stands earlier: the replay brings it up */
    }
    for (uint32_t il = placement->lo; il < placement->hi; il++) {
        const KvLatentView    *latent = kvg_store_shown_latent_view(placement->store, il);
        const KvRecurrentView *recurrent = kvg_store_shown_recurrent_view(placement->store, il);
        if (latent != NULL && latent->index_kind == KVG_INDEX_POOLED) check_pool_keys(&look, latent);
        if (recurrent != NULL) check_recurrent(&look, recurrent);
    }
}

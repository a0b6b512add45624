/* World: one life's grid, drawn from its seed; its beginning, its end, and comparing all of it at once. */
#include "tests/simulate/sim.h"

#include <stdio.h>
#include <string.h>

#include "runtime/state/store_impl.h"

/* ---- what is drawn */

static void draw_shape(World *w)
{
    static const uint8_t tps[] = { 1, 1, 1, 2, 2, 2, 2, 3, 4, 4, 6, 8 }, pps[] = { 1, 1, 1, 2, 2, 2, 2, 3, 3, 4, 4, 8 }; /* mean 8 ranks */

    w->tp = tps[draw(&w->draws, sizeof tps)];
    if (w->tp == 6) {
        w->tp = 5 + draw(&w->draws, 3);
    }
    w->pp = pps[draw(&w->draws, sizeof pps)];
    if (w->pp == 8) {
        w->pp = 5 + draw(&w->draws, 4);
    }
    w->ranks = (int)(w->tp * w->pp);
    w->window_steps = 1 + draw(&w->draws, 2 * w->pp < 6 ? 2 * w->pp : 6);
}

/* A count of heads that falls on tp ranks: a divisor of it, or a multiple. */
static uint32_t heads_for(World *w, uint32_t tp)
{
    switch (draw(&w->draws, 4)) {
    case 0:  return tp;
    case 1:  return tp % 2 == 0 ? tp / 2 : 1;
    case 2:  return 1;
    default: return tp <= 4 ? 2 * tp : tp;
    }
}

static const char *layer_type(const World *w, uint32_t il)
{
    switch (w->model) {
    case SIM_WINDOWED:      return il % 2 ? "full_attention" : "sliding_attention";
    case SIM_POOLED_LATENT: return il % 2 ? "deepseek_sparse_attention" : "linear_attention";
    default:                return "full_attention";
    }
}

static int say_layer_types(const World *w, uint32_t layers, char *text, size_t room)
{
    int at = snprintf(text, room, ",\"layer_types\":[");

    for (uint32_t il = 0; il < layers; il++) {
        at += snprintf(text + at, room - (size_t)at, "%s\"%s\"", il ? "," : "", layer_type(w, il));
    }
    return at + snprintf(text + at, room - (size_t)at, "]");
}

static int say_kda(const World *w, uint32_t layers, char *text, size_t room)
{
    int at = snprintf(text, room, ",\"indexer_types\":[");

    for (uint32_t il = 0; il < layers; il++) at += snprintf(text + at, room - (size_t)at, "%s\"full\"", il ? "," : "");
    for (int full = 1; full >= 0; full--) {
        at += snprintf(text + at, room - (size_t)at, full ? "],\"linear_attn_config\":{\"full_attn_layers\":[" : "],\"kda_layers\":[");
        for (uint32_t il = full ? 1 : 0; il < layers; il += 2) at += snprintf(text + at, room - (size_t)at, "%s%u", il > 1 ? "," : "", il);
    }
    return at + snprintf(text + at, room - (size_t)at, "],\"head_dim\":8,\"num_heads\":%u,\"short_conv_kernel_size\":4}", w->tp);
}

/* The config.json of a small model of the drawn kind. */
static void say_model(World *w, char *text, size_t room)
{
    uint32_t layers = w->pp + draw(&w->draws, 3), kv = heads_for(w, w->tp);
    uint32_t heads = kv > w->tp ? kv : w->tp;
    int      at = 0;

    if (layers < 2) {
        layers = 2;
    }
    at += snprintf(text, room, "{\"hidden_size\":%u,\"num_attention_heads\":%u,\"num_hidden_layers\":%u,\"vocab_size\":100,\"intermediate_size\":64,"
                   "\"max_position_embeddings\":%llu", heads * 32, heads, layers, (unsigned long long)w->ctx);
    switch (w->model) {
    case SIM_FULL:
        at += snprintf(text + at, room - (size_t)at, ",\"model_type\":\"llama\",\"num_key_value_heads\":%u,\"head_dim\":32", kv);
        break;
    case SIM_WINDOWED:
        at += snprintf(text + at, room - (size_t)at, ",\"model_type\":\"llama\",\"num_key_value_heads\":%u,\"head_dim\":32,\"sliding_window\":%u", kv, w->window);
        at += say_layer_types(w, layers, text + at, room - (size_t)at);
        break;
    case SIM_HYBRID:
        at += snprintf(text + at, room - (size_t)at, ",\"model_type\":\"qwen3_next\",\"num_key_value_heads\":%u,\"head_dim\":32,\"full_attention_interval\":2,"
                       "\"linear_conv_kernel_dim\":4,\"linear_key_head_dim\":4,\"linear_num_key_heads\":%u,\"linear_num_value_heads\":%u,"
                       "\"linear_value_head_dim\":4", kv, w->tp, w->tp);
        break;
    case SIM_POOLED_LATENT:
        at += snprintf(text + at, room - (size_t)at, ",\"model_type\":\"glm5_next_text\",\"num_key_value_heads\":%u,\"head_dim\":0,\"kv_lora_rank\":64,"
                       "\"qk_rope_head_dim\":0,\"qk_nope_head_dim\":32,\"v_head_dim\":32,\"index_head_dim\":16,\"index_kpool\":4,\"index_kpool_compress\":true",
                       heads);
        at += say_layer_types(w, layers, text + at, room - (size_t)at);
        at += say_kda(w, layers, text + at, room - (size_t)at);
        break;
    default:
        at += snprintf(text + at, room - (size_t)at, ",\"model_type\":\"deepseek_v32\",\"num_key_value_heads\":%u,\"kv_lora_rank\":64,\"qk_rope_head_dim\":32,"
                       "\"qk_nope_head_dim\":32,\"v_head_dim\":32,\"index_head_dim\":32,\"index_n_heads\":4", heads);
        break;
    }
    snprintf(text + at, room - (size_t)at, "}");
}

static void draw_model(World *w)
{
    static const KvFormat formats[][2] = { { KVG_BF16, KVG_BF16 }, { KVG_Q8_0, KVG_Q5_1 }, { KVG_FP8, KVG_FP8 }, { KVG_Q4_0, KVG_F16 } };
    static char           text[8192];
    uint32_t              f = draw(&w->draws, sizeof formats / sizeof *formats);

    w->model = (ModelKind)draw(&w->draws, SIM_MODELS);
    w->layout = chance(&w->draws, 3) ? KVG_LAYOUT_FLAT : KVG_LAYOUT_POOL;
    w->format_k = formats[f][0];
    w->format_v = formats[f][1];
    w->ctx = SIM_CTX;
    w->window = 32 + draw(&w->draws, 64);
    w->chunk = 32 + draw(&w->draws, 64);
    w->has_recurrent = w->model == SIM_HYBRID || w->model == SIM_POOLED_LATENT;
    say_model(w, text, sizeof text);
    SIM_CHECK(w, kvg_model_config_parse_json(text, strlen(text), "simulated", &w->config) == KVG_OK, "the drawn model was refused: %s\n%s",
              kvg_last_error(), text);
}

/* A third of all lives have no fault at all, a third nothing that ends them, a third everything. */
static void draw_faults(World *w)
{
    uint32_t kind = draw(&w->draws, 6);
    Faults  *f = &w->faults;

    *f = (Faults){ 0 };
    if (kind >= 1) f->shake = 3;
    if (kind >= 2) *f = (Faults){ .shake = 4, .refuse = 20, .oom = 25, .lie = 40 };
    if (kind >= 3) *f = (Faults){ .shake = 5, .refuse = 30, .oom = 30, .lie = 60, .drop = 2000, .late = 2000, .freeze = 300, .message_late = 12 };
    if (kind >= 4) f->kill = 2500, f->tear = 3500;
    w->stretch_end = 0;
    w->faulty = 0;
    w->tear_rank = -1;
}

static uint64_t pool_bytes(const World *w, int r);
static uint64_t taken_bytes(World *w, int r);

/* ---- beginning */

static void wait_setups(World *w, KvgSetup **setups, KvgStatus *each)
{
    int left = w->ranks, done[SIM_RANKS] = { 0 };

    for (int round = 0; left > 0; round++) {
        SIM_CHECK(w, round < 100000, "a set-up operation without faults does not end");
        for (int r = 0; r < w->ranks; r++) {
            if (!done[r]) {
                each[r] = kvg_setup_test(setups[r], &done[r]);
                left -= done[r];
            }
        }
        world_advance(w, SIM_MS / 10);
    }
    for (int r = 0; r < w->ranks; r++) {
        kvg_setup_free(setups[r]);
    }
}

static KvgStatus place(World *w)
{
    KvgPlaceOptions options = KVG_PLACE_OPTIONS_INIT;
    KvgSetup       *setups[SIM_RANKS] = { 0 };
    KvgStatus       each[SIM_RANKS];

    options.format_k = w->format_k;
    options.format_v = w->format_v;
    options.format_latent = w->format_k == KVG_BF16 ? KVG_BF16 : KVG_F32;
    options.layout = w->layout;
    options.max_sequences = SIM_SEQS;
    options.max_step_sequences = SIM_PLACES;
    options.prefill_chunk_max = w->chunk;
    options.spec_columns = 2 + draw(&w->draws, 3);
    w->place_options = options;
    for (int r = 0; r < w->ranks; r++) {
        options.memory_bytes = w->memory_bytes + 4096 * draw(&w->draws, 8);
        options.device = &w->rank[r].device;
        SIM_CHECK(w, kvg_place_start(w->rank[r].grid, &w->config, &options, &w->rank[r].placement, &setups[r]) == KVG_OK, "placing: %s", kvg_last_error());
    }
    wait_setups(w, setups, each);
    for (int r = 1; r < w->ranks; r++) {
        SIM_CHECK(w, (each[r] == KVG_OK) == (each[0] == KVG_OK), "rank %d has placed and rank 0 has not, or the other way round", r);
    }
    return each[0];
}

static void connect_ranks(World *w)
{
    KvgGridOptions options = KVG_GRID_OPTIONS_INIT;
    KvgGrid       *grids[SIM_RANKS];

    kvg_policy_default(&w->policy);
    w->policy.timeout_ms = SIM_TIMEOUT_MS;
    w->policy.swa_ring = (int8_t)!chance(&w->draws, 4);
    w->policy.dsa_index_ring = chance(&w->draws, 3) ? 0 : 16 + 4 * (int64_t)draw(&w->draws, 16);
    options.tp = w->tp;
    options.pp = w->pp;
    options.policy = &w->policy;
    options.max_in_flight = w->window_steps;
    SIM_CHECK(w, kvg_inproc_create(w->ranks, &w->hub) == KVG_OK, "%s", kvg_last_error());
    w->hubs[0] = w->hub;
    w->hub_count = 1;
    w->grid_ranks = w->ranks == 64 ? UINT64_MAX : (1ull << w->ranks) - 1;
    SIM_CHECK(w, kvg_grid_create_inproc(w->hub, w->ranks, &options, grids) == KVG_OK, "%s", kvg_last_error());
    for (int r = 0; r < w->ranks; r++) {
        w->rank[r].grid = grids[r];
        SIM_CHECK(w, kvg_dev_host(&w->rank[r].device) == KVG_OK, "%s", kvg_last_error());
    }
}

void world_begin_rank(World *w, int r)
{
    if (w->rank[r].placement->asleep) {
        return; /* a newcomer of a placement that is asleep: it does this when it is woken */
    }
    for (int b = 0; b < SIM_BATCHES; b++) {
        SIM_CHECK(w, kvg_batch_create(w->rank[r].placement, SIM_PLACES, &w->rank[r].batch[b]) == KVG_OK, "%s", kvg_last_error());
    }
    w->fixed_bytes[r] = taken_bytes(w, r) - pool_bytes(w, r);
}

void world_open(World *w)
{
    w->draws = (Draws){ w->life_seed };
    w->wire = (Draws){ w->life_seed ^ 0x5bd1e995u };
    w->live_allocations = kvg_live_allocations();
    memset(w->rank, 0, sizeof w->rank);
    memset(w->log, 0, sizeof w->log);
    for (uint32_t t = 0; t < SIM_TRUTHS; t++) w->truth[t].number = 0;
    memset(&w->front, 0, sizeof w->front);
    memset(&w->back, 0, sizeof w->back);
    w->front_pc = w->back_pc = w->log_end = 0;
    w->undecided_count = w->next_truth = 0;
    w->held = -1;
    w->since_barrier = w->life_step = 0;
    w->barrier_wanted = w->closing = w->apart = w->over = 0;
    w->first_doubt_ns = w->idle_rounds = 0;
    w->probes = 0;
    w->patient = 0;
    draw_shape(w);
    draw_model(w);
    draw_faults(w);
    w->life_steps = 400 + draw(&w->draws, 4000);
    w->barrier_every = w->has_recurrent ? 100 : 250 + draw(&w->draws, 750);
    connect_ranks(w);
    w->memory_bytes = 16384u << draw(&w->draws, 7);
    while (place(w) != KVG_OK) {
        w->memory_bytes *= 2;
        SIM_CHECK(w, w->memory_bytes < 1ull << 30, "no memory is enough for the drawn model: %s", kvg_last_error());
    }
    for (int r = 0; r < w->ranks; r++) {
        world_begin_rank(w, r);
    }
    kvg_inproc_set_filter(w->hub, fault_filter, w);
    w->lives++;
}

/* ---- the end */

void world_close_rank(World *w, int r)
{
    Rank *rank = &w->rank[r];

    if (rank->setup != NULL) {
        kvg_setup_free(rank->setup);
    }
    for (int i = 0; i < SIM_SEQS; i++) {
        kvg_snapshot_free(rank->snapshot[i]);
    }
    for (int b = 0; b < SIM_BATCHES; b++) {
        kvg_batch_destroy(rank->batch[b]);
    }
    kvg_placement_destroy(rank->placement);
    kvg_grid_destroy(rank->grid);
    SIM_CHECK(w, rank->device.ops->taken_bytes(rank->device.self) == 0, "rank %d: %llu bytes of the device did not come back when its placement went", r,
              (unsigned long long)rank->device.ops->taken_bytes(rank->device.self));
    kvg_dev_close(&rank->device);
}

void world_close(World *w)
{
    for (int h = 0; h < w->hub_count; h++) {
        kvg_inproc_set_filter(w->hubs[h], NULL, NULL);
    }
    for (int r = 0; r < w->ranks; r++) {
        world_close_rank(w, r);
    }
    for (int h = 0; h < w->hub_count; h++) {
        kvg_inproc_destroy(w->hubs[h]);
    }
    kvg_model_config_free(&w->config);
    SIM_CHECK(w, kvg_live_allocations() == w->live_allocations, "%llu allocations of the life are still alive after it",
              (unsigned long long)(kvg_live_allocations() - w->live_allocations));
}

/* ---- hubs */

void world_add_hub(World *w, KvInproc *hub)
{
    SIM_CHECK(w, w->hub_count < SIM_HUBS, "too many hubs");
    kvg_inproc_advance_ns(hub, kvg_inproc_now_ns(w->hub));
    kvg_inproc_set_filter(hub, fault_filter, w);
    w->hubs[w->hub_count++] = hub;
    w->hub = hub;
}

void world_advance(World *w, uint64_t ns)
{
    for (int h = 0; h < w->hub_count; h++) kvg_inproc_advance_ns(w->hubs[h], ns);
}

void world_freeze(World *w, int r, int frozen)
{
    for (int h = 0; h < w->hub_count; h++) kvg_inproc_freeze(w->hubs[h], r, frozen);
}

/* ---- comparing */

/* What the planes of pools take for the units there are, as the device rounds it. */
static uint64_t pool_bytes(const World *w, int r)
{
    const KvgPlacement *placement = w->rank[r].placement;
    uint64_t            bytes = 0;

    for (uint32_t il = placement->lo; w->layout == KVG_LAYOUT_POOL && il < placement->hi; il++) {
        const KvPlaneView  *view = kvg_store_shown_view(placement->store, il);
        const KvLatentView *latent = kvg_store_shown_latent_view(placement->store, il);
        const KvPlane      *planes[3] = { view != NULL ? &view->k : NULL, view != NULL ? &view->v : NULL, NULL };
        if (latent != NULL) {
            planes[0] = &latent->latent;
            planes[1] = latent->index_kind != KVG_INDEX_NONE ? &latent->keys : NULL;
            planes[2] = latent->index_kind == KVG_INDEX_POOLED && latent->ring_rows == 0 ? &latent->index : NULL;
        }
        uint32_t class_index = placement->plan.class_of_layer[il];
        for (int p = 0; p < 3; p++) {
            if (planes[p] != NULL) bytes += (kvg_store_units_total(placement->store, class_index) * planes[p]->chunk_bytes + 4095) / 4096 * 4096;
        }
    }
    return bytes;
}

static uint64_t taken_bytes(World *w, int r)
{
    KvgStats stats = { .size = sizeof stats };

    SIM_CHECK(w, kvg_stats(w->rank[r].placement, &stats) == KVG_OK, "%s", kvg_last_error());
    return stats.taken_bytes;
}

/* What stays because it could not be given back goes with the next that is. */
static void give_back(Rank *rank)
{
    if (rank->keeps_more && rank->setup == NULL && !rank->placement->asleep && !rank->placement->store->resizing) {
        kvg_store_give_back_slabs(rank->placement->store);
        rank->keeps_more = 0;
    }
}

static void check_bytes(World *w, int r)
{
    KvgStats stats = { .size = sizeof stats };
    int      open = 0;

    give_back(&w->rank[r]);
    SIM_CHECK(w, kvg_stats(w->rank[r].placement, &stats) == KVG_OK, "%s", kvg_last_error());
    for (int i = 0; i < SIM_SEQS; i++) open += w->rank[r].seq[i] != NULL;
    SIM_CHECK(w, stats.booked_bytes <= stats.taken_bytes, "rank %d: %llu bytes are booked and %llu taken", r, (unsigned long long)stats.booked_bytes,
              (unsigned long long)stats.taken_bytes);
    SIM_CHECK(w, stats.taken_bytes <= w->rank[r].device.ops->taken_bytes(w->rank[r].device.self), "rank %d says it has taken %llu bytes, its device %llu",
              r, (unsigned long long)stats.taken_bytes, (unsigned long long)w->rank[r].device.ops->taken_bytes(w->rank[r].device.self));
    SIM_CHECK(w, stats.sequences_open == (uint64_t)open, "rank %d: %llu sequences are open, not %d", r, (unsigned long long)stats.sequences_open, open);
    if (w->layout == KVG_LAYOUT_POOL && w->rank[r].setup == NULL && !w->rank[r].placement->asleep) {
        SIM_CHECK(w, stats.taken_bytes == w->fixed_bytes[r] + pool_bytes(w, r), "rank %d has taken %llu bytes, and its units and slots make %llu", r,
                  (unsigned long long)stats.taken_bytes, (unsigned long long)(w->fixed_bytes[r] + pool_bytes(w, r)));
    }
    if (open > 0) {
        return;
    }
    SIM_CHECK(w, stats.booked_bytes == 0 && stats.content_bytes == 0, "rank %d: no sequence is open, and %llu bytes are booked, %llu content", r,
              (unsigned long long)stats.booked_bytes, (unsigned long long)stats.content_bytes);
    for (uint32_t c = 0; c < kvg_store_class_count(w->rank[r].placement->store); c++) {
        uint32_t units_free = kvg_store_units_free(w->rank[r].placement->store, c), total = kvg_store_units_total(w->rank[r].placement->store, c);
        SIM_CHECK(w, units_free == total, "rank %d: no sequence is open, and %u of the %u units of class %u are held", r, total - units_free, total, c);
    }
}

void world_check_agreed(World *w, int first, int other)
{
    const KvgPlacement *one = w->rank[first].placement, *two = w->rank[other].placement;

    for (uint32_t c = 0; c < kvg_store_class_count(one->store); c++) {
        SIM_CHECK(w, kvg_store_units_free(one->store, c) == kvg_store_units_free(two->store, c) &&
                  kvg_store_units_total(one->store, c) == kvg_store_units_total(two->store, c),
                  "class %u: rank %d has %u of %u units free, rank %d %u of %u", c, first, kvg_store_units_free(one->store, c),
                  kvg_store_units_total(one->store, c), other, kvg_store_units_free(two->store, c), kvg_store_units_total(two->store, c));
    }
    SIM_CHECK(w, one->free_count == two->free_count, "rank %d has %u slots free, rank %d %u", first, one->free_count, other, two->free_count);
}

static void compare_sequence(World *w, int r, uint32_t i, const RefSeq *seq)
{
    KvgSequenceInfo info = { .size = sizeof info };

    SIM_CHECK(w, (w->rank[r].seq[i] != NULL) == seq->open, "rank %d, sequence %u: it is %s here", r, i, seq->open ? "not open" : "open");
    if (!seq->open) {
        return;
    }
    SIM_CHECK(w, kvg_sequence_info(w->rank[r].seq[i], &info) == KVG_OK, "%s", kvg_last_error());
    SIM_CHECK(w, info.id == seq->id && info.rows == seq->len && info.rows_staged == seq->len, "rank %d, sequence %u: it has %llu rows (staged %llu), not %llu",
              r, i, (unsigned long long)info.rows, (unsigned long long)info.rows_staged, (unsigned long long)seq->len);
    SIM_CHECK(w, w->rank[r].seq[i]->cache.tainted == seq->tainted, "rank %d, sequence %u: it is %s here", r, i, seq->tainted ? "not tainted" : "tainted");
    if (!seq->tainted && !info.tainted) {
        content_check_all(w, r, i, seq);
    }
}

void world_compare(World *w, const Reference *ref)
{
    int first = -1;

    for (int r = 0; r < w->ranks; r++) {
        if (!rank_lives(&w->rank[r])) {
            continue;
        }
        for (uint32_t i = 0; i < SIM_SEQS; i++) {
            compare_sequence(w, r, i, &ref->seq[i]);
        }
        check_bytes(w, r);
        if (first >= 0 && !w->apart) {
            world_check_agreed(w, first, r);
        }
        first = first < 0 ? r : first;
    }
    w->compares++;
}

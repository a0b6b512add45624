/* Accounts beside workers: random calls on a real placement over an in-process grid, and on accounts loaded from its JSON. After each, the answers, the
 * ledger, every sequence's lengths and bookings, and each rank's booked bytes are equal. KVG_TEST_SEED replays one seed. */
#include "tests/support/grid_life.h"
#include "tests/support/kinds_run.h"

enum { PLACES = 4, BATCHES = 2, IDS = 8, PENDING_MAX = 8, TEXT_MAX = 1 << 16 };

static const char windowed[] =
    "{\"model_type\":\"gemma3\",\"hidden_size\":64,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":32,\"num_hidden_layers\":4,"
    "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\",\"full_attention\"],\"sliding_window\":64,\"vocab_size\":100,"
    "\"intermediate_size\":64,\"max_position_embeddings\":2048}";
static const char recurrent_alone[] =
    "{\"model_type\":\"qwen3_next\",\"hidden_size\":64,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":32,\"num_hidden_layers\":2,"
    "\"layer_types\":[\"linear_attention\",\"linear_attention\"],\"linear_conv_kernel_dim\":4,\"linear_key_head_dim\":8,\"linear_num_key_heads\":2,"
    "\"linear_num_value_heads\":4,\"linear_value_head_dim\":8,\"vocab_size\":100,\"intermediate_size\":64,\"max_position_embeddings\":4096}";

typedef struct Shape {
    const char *model;
    uint32_t    tp, pp;
    KvLayout    layout;
    uint32_t    columns;
    int64_t     index_ring;
} Shape;

static const Shape shapes[] = {
    { windowed, 1, 1, KVG_LAYOUT_POOL, 0, -1 },    { windowed, 2, 2, KVG_LAYOUT_POOL, 0, -1 },   { windowed, 1, 2, KVG_LAYOUT_FLAT, 0, -1 },
    { qwen3_next, 1, 2, KVG_LAYOUT_POOL, 4, -1 },  { qwen3_next, 2, 1, KVG_LAYOUT_FLAT, 2, -1 }, { glm_next, 1, 2, KVG_LAYOUT_POOL, 6, 32 },
    { glm_next, 2, 2, KVG_LAYOUT_POOL, 2, 0 },     { deepseek, 2, 2, KVG_LAYOUT_POOL, 0, -1 },   { deepseek, 1, 1, KVG_LAYOUT_FLAT, 0, -1 },
    { jamba, 1, 2, KVG_LAYOUT_POOL, 3, -1 },       { recurrent_alone, 1, 2, KVG_LAYOUT_POOL, 2, -1 },
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

typedef struct Pending {
    KvgStep *step[TEST_RANKS_MAX];
    uint64_t number;
    int      named[IDS];
} Pending;

typedef struct Beside {
    TestGrid      g;
    KvgBatch     *batch[BATCHES][TEST_RANKS_MAX];
    LifeSequences s; /* by id */
    int           open[IDS];
    int           tainted[IDS];
    KvgAccounts  *accounts;
    Pending       pending[PENDING_MAX];
    int           pending_count;
    KvgSnapshot  *snapshot[TEST_RANKS_MAX];
    KvgAccountsMark mark;
    int           marked; /* id + 1 */
    uint64_t      long_steps; /* of 3 */
    uint64_t      state, seed, ops, steps, units_bytes;
    uint64_t      answers[KVG_STATUS_COUNT], calls;
} Beside;

#define SAME(b, what, worker, here)                                                                                                   \
    ck_assert_msg((uint64_t)(worker) == (uint64_t)(here), "seed %llu, call %llu (%s): %s: %llu on the workers, %llu in the accounts [%s]", \
                  (unsigned long long)(b)->seed, (unsigned long long)(b)->ops, (b)->calls ? call_name : "", what,                      \
                  (unsigned long long)(worker), (unsigned long long)(here), kvg_last_error())

static const char *call_name = "";

/* ---- life */

static size_t text_of(const KvgPlacement *placement, char *text)
{
    size_t bytes = 0;
    ck_assert_msg(kvg_placement_to_json(placement, text, TEXT_MAX, &bytes) == KVG_OK, "%s", kvg_last_error());
    return bytes - 1;
}

static KvgPlaceOptions options_of(const Shape *shape, uint64_t bytes)
{
    KvgPlaceOptions options = life_options(6, bytes);

    options.layout = shape->layout;
    options.spec_columns = shape->columns;
    options.prefill_chunk_max = shape->model == windowed ? 128 : 0;
    options.ctx = 600;
    return options;
}

static KvgPolicy policy_of(const Shape *shape)
{
    KvgPolicy policy = life_policy(1);
    policy.dsa_index_ring = shape->index_ring;
    return policy;
}

static void connect(TestGrid *g, const Shape *shape)
{
    KvgPolicy policy = policy_of(shape);

    grid_connect(g, shape->tp, shape->pp, &policy, 3);
    ck_assert_msg(kvg_model_config_parse_json(shape->model, strlen(shape->model), "small", &g->config) == KVG_OK, "%s", kvg_last_error());
}

/* Bytes with which three or four sequences of a few hundred rows fill the pools: every refusal is met. */
static uint64_t tight_bytes(const Shape *shape)
{
    KvgPlaceOptions options = options_of(shape, 64u << 20);
    uint64_t        most = 0;
    TestGrid        g;

    connect(&g, shape);
    ck_assert_msg(grid_place(&g, &g.config, &options, NULL) == KVG_OK, "%s", kvg_last_error());
    const KvGridPlan *plan = kvg_placement_plan(g.placement[0]);
    for (int r = 0; r < g.ranks; r++) {
        uint64_t bytes = plan->ranks[r].slot_bytes * 6 + 1;
        for (uint32_t c = 0; c < plan->class_count; c++) bytes += (shape->model == windowed ? 44 : 20) * plan->ranks[r].class_unit_bytes[c];
        most = bytes > most ? bytes : most;
    }
    grid_close(&g);
    return most;
}

static void open_beside(Beside *b, const Shape *shape, uint64_t seed)
{
    static char     text[TEXT_MAX];
    uint64_t        bytes = tight_bytes(shape);
    KvgPlaceOptions options = options_of(shape, bytes);

    memset(b, 0, sizeof *b);
    connect(&b->g, shape);
    b->seed = seed;
    b->state = seed * 1000 + (uint64_t)(shape - shapes);
    b->units_bytes = bytes;
    b->long_steps = shape->model == windowed ? 2 : 1; /* windows slide after some 600 rows */
    ck_assert_msg(grid_place(&b->g, &b->g.config, &options, NULL) == KVG_OK, "%s", kvg_last_error());
    for (int i = 0; i < BATCHES; i++) {
        for (int r = 0; r < b->g.ranks; r++) ck_assert_int_eq(kvg_batch_create(b->g.placement[r], PLACES, &b->batch[i][r]), KVG_OK);
    }
    size_t size = text_of(b->g.placement[0], text);
    ck_assert_msg(kvg_accounts_from_json(text, size, NULL, &b->accounts) == KVG_OK, "%s", kvg_last_error());
}

static void close_beside(Beside *b)
{
    for (int r = 0; r < b->g.ranks; r++) {
        kvg_snapshot_free(b->snapshot[r]);
        for (int i = 0; i < BATCHES; i++) kvg_batch_destroy(b->batch[i][r]);
    }
    kvg_accounts_destroy(b->accounts);
    grid_close(&b->g);
}

/* ---- comparing */

/* By members: what lies between them is nobody's. */
static void compare_ledger(const Beside *b, const KvgLedger *worker, const KvgLedger *here)
{
    SAME(b, "slots free", worker->slots_free, here->slots_free);
    SAME(b, "slots", worker->slots_total, here->slots_total);
    SAME(b, "classes", worker->class_count, here->class_count);
    SAME(b, "max_ctx", worker->max_ctx, here->max_ctx);
    for (uint32_t c = 0; c < worker->class_count; c++) {
        const KvClassPlan *one = &worker->classes[c], *two = &here->classes[c];
        SAME(b, "units free", worker->units_free[c], here->units_free[c]);
        SAME(b, "kind", one->kind, two->kind);
        SAME(b, "window", one->window, two->window);
        SAME(b, "ring", one->ring, two->ring);
        SAME(b, "row cap", one->row_cap, two->row_cap);
        SAME(b, "unit cap", one->unit_cap, two->unit_cap);
        SAME(b, "units", one->units, two->units);
        SAME(b, "units per sequence", one->units_per_sequence, two->units_per_sequence);
        SAME(b, "layers", one->layers, two->layers);
    }
}

static void compare_ledgers(const Beside *b, int r)
{
    KvgLedger worker, here;

    kvg_placement_ledger(b->g.placement[r], &worker);
    kvg_accounts_ledger(b->accounts, &here);
    compare_ledger(b, &worker, &here);
}

static void compare_sequences(Beside *b, int r)
{
    for (int id = 0; id < IDS; id++) {
        KvgSequenceInfo worker = { .size = sizeof worker }, here = { .size = sizeof here };
        KvgStatus       status = kvg_accounts_info(b->accounts, (uint64_t)id, &here);

        SAME(b, "open", b->open[id], status == KVG_OK);
        if (!b->open[id]) continue;
        ck_assert_int_eq(kvg_sequence_info(b->s[r][id], &worker), KVG_OK);
        SAME(b, "rows", worker.rows, here.rows);
        SAME(b, "rows staged", worker.rows_staged, here.rows_staged);
        SAME(b, "rows booked", worker.rows_booked, here.rows_booked);
        SAME(b, "replay", worker.replay, here.replay);
        SAME(b, "generation", worker.generation, here.generation);
        SAME(b, "slot", worker.slot, here.slot);
        SAME(b, "tainted", worker.tainted, here.tainted);
        SAME(b, "in step", worker.in_step, here.in_step);
    }
}

static void compare(Beside *b)
{
    for (int r = 0; r < b->g.ranks; r++) {
        uint64_t bytes = 0;
        compare_ledgers(b, r);
        compare_sequences(b, r);
        ck_assert_int_eq(kvg_accounts_booked_bytes(b->accounts, (uint32_t)r, &bytes), KVG_OK);
        SAME(b, "booked bytes", life_stats(b->g.placement[r]).booked_bytes, bytes);
    }
}

static uint64_t draw(Beside *b, uint64_t below)
{
    return life_draw(&b->state, below);
}

static KvgStatus answered(Beside *b, KvgStatus worker, KvgStatus here)
{
    SAME(b, "answer", worker, here);
    b->answers[here]++;
    return here;
}

/* ---- steps */

/* Tells the accounts how the oldest of the pending steps ended. */
static void decide(Beside *b, int at)
{
    Pending    pending = b->pending[at];
    KvgOutcome outcomes[TEST_RANKS_MAX];
    uint32_t   replay[PLACES];

    grid_decide(&b->g, pending.step, outcomes);
    ck_assert_msg(kvg_accounts_decide(b->accounts, pending.number, &outcomes[0], replay) == KVG_OK, "%s", kvg_last_error());
    for (int place = 0; place < PLACES; place++) SAME(b, "replay of a place", outcomes[0].replay[place], replay[place]);
    memmove(&b->pending[at], &b->pending[at + 1], (size_t)(b->pending_count - at - 1) * sizeof *b->pending);
    b->pending_count--;
}

static void decide_naming(Beside *b, int id)
{
    for (int i = b->pending_count; i-- > 0;) {
        if (b->pending[i].named[id]) decide(b, i);
    }
}

/* The code with which the accounts want a step's end told first, instead of waiting. */
static void check_busy(Beside *b, int id)
{
    for (int i = 0; i < b->pending_count; i++) {
        if (b->pending[i].named[id]) ck_assert_int_eq(kvg_accounts_trim(b->accounts, (uint64_t)id), KVG_EBUSY);
    }
}

static void post(Beside *b, Pending *pending, const uint32_t *accepted)
{
    int refuser = draw(b, 6) == 0 ? (int)draw(b, (uint64_t)b->g.ranks) : -1;

    for (int r = 0; r < b->g.ranks; r++) {
        KvgCommit commit = KVG_COMMIT_INIT;
        if (kvg_grid_stage(b->g.grid[r]) + 1 == b->g.pp) commit.accepted = accepted;
        commit.refuse = r == refuser ? KVG_ENOMEM : KVG_OK;
        ck_assert_msg(kvg_step_post(pending->step[r], &commit) == KVG_OK, "%s", kvg_last_error());
    }
}

static uint32_t some_rows(Beside *b, int id)
{
    KvgSequenceInfo info = { .size = sizeof info };

    ck_assert_int_eq(kvg_accounts_info(b->accounts, (uint64_t)id, &info), KVG_OK);
    return (uint32_t)(info.replay * (draw(b, 8) != 0) + (draw(b, 3) < b->long_steps ? draw(b, 140) : draw(b, 6)));
}

static void step_call(Beside *b)
{
    Pending    pending = { .number = 0 };
    uint64_t   ids[PLACES] = { 0 };
    uint32_t   rows[PLACES] = { 0 }, accepted[PLACES] = { 0 }, more[PLACES] = { 0 };
    KvgStatus  refused[PLACES], refused_more[PLACES] = { 0 };
    uint32_t   which = (uint32_t)draw(b, BATCHES);
    int        extends = draw(b, 4) == 0;

    call_name = "step";
    for (int i = b->pending_count; i-- > 0;) {
        if (b->pending[i].number + 3 <= b->steps + 1) decide(b, i); /* step m begins when m-3 has ended */
    }
    for (int place = 0; place < PLACES; place++) {
        int id = (int)draw(b, IDS);
        if (!b->open[id]) continue;
        if (draw(b, 10) != 0 || place == 0) { /* one may be named twice */
            int twice = 0;
            for (int other = 0; other < place; other++) twice |= rows[other] > 0 && ids[other] == (uint64_t)id;
            if (twice) continue;
        }
        check_busy(b, id);
        decide_naming(b, id);
        ids[place] = (uint64_t)id;
        rows[place] = some_rows(b, id);
        more[place] = extends ? (uint32_t)draw(b, 80) : 0;
    }
    ck_assert_msg(kvg_accounts_begin(b->accounts, ids, rows, PLACES, refused, &pending.number) == KVG_OK, "%s", kvg_last_error());
    for (int r = 0; r < b->g.ranks; r++) {
        for (int place = 0; place < PLACES; place++) {
            ck_assert_int_eq(kvg_batch_set(b->batch[which][r], (uint32_t)place, rows[place] > 0 ? b->s[r][ids[place]] : NULL), KVG_OK);
        }
        ck_assert_msg(kvg_step_begin(b->batch[which][r], rows, &pending.step[r]) == KVG_OK, "%s", kvg_last_error());
        for (uint32_t place = 0; place < PLACES; place++) SAME(b, "refusal", kvg_step_refusal(pending.step[r], place), refused[place]);
    }
    for (int place = 0; place < PLACES; place++) b->answers[refused[place]]++;
    if (extends) {
        ck_assert_msg(kvg_accounts_extend(b->accounts, pending.number, more, refused_more) == KVG_OK, "%s", kvg_last_error());
        for (int r = 0; r < b->g.ranks; r++) {
            ck_assert_int_eq(kvg_step_extend(pending.step[r], more), KVG_OK);
            for (uint32_t place = 0; place < PLACES; place++) SAME(b, "second refusal", kvg_step_refusal(pending.step[r], place), refused_more[place]);
        }
    }
    for (int place = 0; place < PLACES; place++) {
        KvgSequenceInfo info = { .size = sizeof info };
        if (rows[place] == 0 || refused[place] != KVG_OK) continue;
        pending.named[ids[place]] = 1;
        ck_assert_int_eq(kvg_accounts_info(b->accounts, ids[place], &info), KVG_OK);
        uint32_t staged = (uint32_t)(info.rows_staged - info.rows);
        accepted[place] = draw(b, 3) == 0 ? staged : (uint32_t)draw(b, staged + 1);
    }
    b->steps = pending.number;
    post(b, &pending, accepted);
    b->pending[b->pending_count++] = pending;
}

static void close_call(Beside *b, int id)
{
    call_name = "close"; /* inside a step, too */
    KvgStatus worker = LIFE_ALL(&b->g, r, kvg_sequence_close(b->s[r][id], NULL));
    answered(b, worker, kvg_accounts_close(b->accounts, (uint64_t)id));
    b->open[id] = 0;
    for (int i = 0; i < b->pending_count; i++) b->pending[i].named[id] = 0;
    if (b->marked == id + 1) b->marked = 0;
}

/* One rank finds its rows torn: the step taints them everywhere, and each rank says so. */
static void taint_call(Beside *b, int id)
{
    Pending pending = { .number = 0 };
    uint32_t rows[PLACES] = { 0 };
    uint64_t ids[PLACES] = { (uint64_t)id };
    KvgStatus refused[PLACES];
    uint32_t accepted[PLACES] = { 0 };

    call_name = "taint";
    while (b->pending_count > 0) decide(b, 0);
    rows[0] = some_rows(b, id) + 1;
    ck_assert_int_eq(kvg_sequence_taint(b->s[b->g.ranks - 1][id]), KVG_OK);
    ck_assert_int_eq(kvg_accounts_begin(b->accounts, ids, rows, PLACES, refused, &pending.number), KVG_OK);
    for (int r = 0; r < b->g.ranks; r++) {
        KvgCommit commit = KVG_COMMIT_INIT;
        for (uint32_t place = 0; place < PLACES; place++) {
            ck_assert_int_eq(kvg_batch_set(b->batch[0][r], place, place == 0 ? b->s[r][id] : NULL), KVG_OK);
        }
        ck_assert_int_eq(kvg_step_begin(b->batch[0][r], rows, &pending.step[r]), KVG_OK);
        SAME(b, "refusal", kvg_step_refusal(pending.step[r], 0), refused[0]);
        if (kvg_grid_stage(b->g.grid[r]) + 1 == b->g.pp) commit.accepted = accepted;
        ck_assert_int_eq(kvg_step_post(pending.step[r], &commit), KVG_OK);
    }
    b->steps = pending.number;
    b->pending[b->pending_count++] = pending;
    decide(b, 0);
    if (refused[0] == KVG_OK) {
        b->tainted[id] = 1;
        ck_assert_int_eq(kvg_accounts_taint(b->accounts, (uint64_t)id), KVG_OK);
    } else { /* it took no part, so nobody knows of it yet: closed before it is asked about */
        close_call(b, id);
    }
}

/* ---- posted calls */

static void open_call(Beside *b, int id)
{
    uint64_t rows = draw(b, 3) == 0 ? 0 : draw(b, 20) == 0 ? draw(b, 10000) : draw(b, 700);

    call_name = "open";
    KvgStatus worker = LIFE_ALL(&b->g, r, kvg_sequence_open(b->g.placement[r], (uint64_t)id, rows, &b->s[r][id]));
    if (answered(b, worker, kvg_accounts_open(b->accounts, (uint64_t)id, rows)) == KVG_OK) {
        b->open[id] = 1;
        b->tainted[id] = 0;
    }
}

static void change_call(Beside *b, int id, uint64_t which)
{
    KvgSequenceInfo info = { .size = sizeof info };
    KvgStatus       worker;
    uint64_t        rows;

    decide_naming(b, id);
    ck_assert_int_eq(kvg_accounts_info(b->accounts, (uint64_t)id, &info), KVG_OK);
    rows = draw(b, info.rows + 20);
    if (which == 0) {
        call_name = "book";
        worker = LIFE_ALL(&b->g, r, kvg_sequence_book(b->s[r][id], rows + 100));
        answered(b, worker, kvg_accounts_book(b->accounts, (uint64_t)id, rows + 100));
    } else if (which == 1) {
        call_name = "rewind";
        if (draw(b, 2) == 0) rows = info.rows > 2 ? info.rows - draw(b, 3) : rows;
        worker = LIFE_ALL(&b->g, r, kvg_sequence_rewind(b->s[r][id], rows));
        answered(b, worker, kvg_accounts_rewind(b->accounts, (uint64_t)id, rows));
    } else if (which == 2) {
        call_name = "trim";
        worker = LIFE_ALL(&b->g, r, kvg_sequence_trim(b->s[r][id]));
        answered(b, worker, kvg_accounts_trim(b->accounts, (uint64_t)id));
    } else {
        call_name = "restore";
        uint64_t first = draw(b, 2) == 0 ? 0 : rows - draw(b, rows + 1);
        worker = LIFE_ALL(&b->g, r, kvg_sequence_restore(b->s[r][id], rows, first));
        answered(b, worker, kvg_accounts_restore(b->accounts, (uint64_t)id, rows, first));
    }
}

static void fork_call(Beside *b, int id, int child)
{
    KvgSequenceInfo info = { .size = sizeof info };

    call_name = "fork";
    decide_naming(b, id);
    ck_assert_int_eq(kvg_accounts_info(b->accounts, (uint64_t)id, &info), KVG_OK);
    uint64_t  rows = draw(b, 2) == 0 ? info.rows : draw(b, info.rows + 3);
    KvgStatus worker = LIFE_ALL(&b->g, r, kvg_sequence_fork(b->s[r][id], rows, (uint64_t)child, b->open[child] ? &(KvgSequence *){ NULL } : &b->s[r][child]));
    if (answered(b, worker, kvg_accounts_fork(b->accounts, (uint64_t)id, rows, (uint64_t)child)) == KVG_OK) {
        b->open[child] = 1;
        b->tainted[child] = 0;
    }
}

static void snapshot_call(Beside *b, int id)
{
    KvgStatus here, worker = KVG_OK;

    call_name = "snapshot";
    decide_naming(b, id);
    for (int r = 0; r < b->g.ranks; r++) {
        worker = b->snapshot[r] == NULL ? kvg_sequence_snapshot(b->s[r][id], &b->snapshot[r])
                                        : kvg_sequence_snapshot_into(b->s[r][id], b->snapshot[r]);
    }
    here = kvg_accounts_snapshot(b->accounts, (uint64_t)id, &b->mark);
    if (answered(b, worker, here) == KVG_OK) b->marked = id + 1;
}

static void rollback_call(Beside *b)
{
    int id = b->marked - 1;

    if (id < 0) return;
    call_name = "rollback";
    decide_naming(b, id);
    uint64_t  accept = draw(b, 6);
    KvgStatus worker = LIFE_ALL(&b->g, r, kvg_sequence_rollback(b->s[r][id], b->snapshot[r], accept));
    answered(b, worker, kvg_accounts_rollback(b->accounts, &b->mark, accept));
}

static void resize_call(Beside *b)
{
    static char text[TEXT_MAX], again[TEXT_MAX];
    KvgSetup   *setups[TEST_RANKS_MAX] = { 0 };
    uint64_t    bytes = b->units_bytes / 2 + draw(b, b->units_bytes * 2);

    call_name = "resize";
    while (b->pending_count > 0) decide(b, 0);
    for (int r = 0; r < b->g.ranks; r++) ck_assert_int_eq(kvg_placement_resize_start(b->g.placement[r], bytes, &setups[r]), KVG_OK);
    if (grid_finish(&b->g, setups, NULL) != KVG_OK) return; /* a chunk that would go is in use, or the slots alone are more */
    size_t size = text_of(b->g.placement[b->g.ranks - 1], text), count;
    ck_assert_msg(kvg_accounts_resize(b->accounts, text, size) == KVG_OK, "%s", kvg_last_error());
    ck_assert_int_eq(kvg_accounts_to_json(b->accounts, again, sizeof again, &count), KVG_OK);
    ck_assert_str_eq(text, again);
    b->answers[KVG_OK]++;
}

static void one_call(Beside *b)
{
    int      id = (int)draw(b, IDS);
    uint64_t what = draw(b, 40);

    b->ops++;
    b->calls = 1;
    if (what < 16) step_call(b);
    else if (what == 16 && draw(b, 3) == 0 && b->open[id] && !b->tainted[id]) taint_call(b, id);
    else if (what == 17 && draw(b, 3) == 0) resize_call(b);
    else if (what < 20 && b->pending_count > 0) decide(b, (int)draw(b, (uint64_t)b->pending_count)); /* in any order */
    else if (what < 25) rollback_call(b);
    else if (!b->open[id] || what == 25) open_call(b, id); /* an id that is taken, too */
    else if (what < 27 + (b->long_steps == 1)) close_call(b, id);
    else if (what < 31) fork_call(b, id, (int)draw(b, IDS));
    else if (what < 33) snapshot_call(b, id);
    else change_call(b, id, what % 4);
    compare(b);
}

START_TEST(random_calls_are_answered_alike_by_workers_and_accounts)
{
    static Beside b;
    const char   *given = getenv("KVG_TEST_SEED");
    uint64_t      capacity = 0, others = 0;

    for (uint64_t seed = given != NULL ? strtoull(given, NULL, 0) : 1; seed < (given != NULL ? strtoull(given, NULL, 0) + 1 : 4); seed++) {
        open_beside(&b, &shapes[_i], seed);
        for (int i = 0; i < 400; i++) one_call(&b);
        while (b.pending_count > 0) decide(&b, 0);
        for (int id = 0; id < IDS; id++) {
            if (b.open[id]) close_call(&b, id);
        }
        compare(&b);
        capacity += b.answers[KVG_ECAPACITY];
        others += b.answers[KVG_EINVAL] + b.answers[KVG_EBUSY] + b.answers[KVG_ELAPPED] + b.answers[KVG_ETAINTED];
        ck_assert_uint_gt(b.answers[KVG_OK], 100);
        close_beside(&b);
    }
    if (given != NULL) return; /* one seed alone may meet few */
    ck_assert_uint_gt(others, 10); /* refusals were met, too */
    if (shapes[_i].model != recurrent_alone) ck_assert_uint_gt(capacity, 10);
}
END_TEST

/* ---- the text */

START_TEST(the_text_is_the_same_on_every_rank_and_comes_back_equal)
{
    static char text[TEXT_MAX], other[TEXT_MAX];
    static Beside b;
    KvgLedger   worker, here;
    size_t      bytes = 0, size;

    open_beside(&b, &shapes[_i], 1);
    size = text_of(b.g.placement[0], text);
    for (int r = 1; r < b.g.ranks; r++) {
        ck_assert_uint_eq(text_of(b.g.placement[r], other), size);
        ck_assert_str_eq(text, other);
    }
    ck_assert_int_eq(kvg_accounts_to_json(b.accounts, NULL, 0, &bytes), KVG_ECAPACITY);
    ck_assert_uint_eq(bytes, size + 1);
    memset(other, 'x', sizeof other);
    ck_assert_int_eq(kvg_accounts_to_json(b.accounts, other, size, &bytes), KVG_ECAPACITY);
    ck_assert_int_eq(other[0], 'x');
    ck_assert_int_eq(kvg_accounts_to_json(b.accounts, other, size + 1, &bytes), KVG_OK);
    ck_assert_str_eq(text, other);
    ck_assert_int_eq(kvg_ledger_from_json(text, size, &here), KVG_OK);
    kvg_placement_ledger(b.g.placement[0], &worker);
    compare_ledger(&b, &worker, &here);
    close_beside(&b);
}
END_TEST

/* Replaces the first `from` by `to`; the text is then refused, with `names` in the sentence. */
static void refused(const char *from, const char *to, KvgStatus status, const char *names)
{
    static char  text[TEXT_MAX], changed[TEXT_MAX];
    static Beside b;
    KvgAccounts *accounts = NULL;
    const char  *at;

    open_beside(&b, &shapes[1], 1);
    text_of(b.g.placement[0], text);
    at = strstr(text, from);
    ck_assert_msg(at != NULL, "%s is not in the text: %s", from, text);
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    KvgStatus answer = kvg_accounts_from_json(changed, strlen(changed), NULL, &accounts);
    ck_assert_msg(answer == status && strstr(kvg_last_error(), names) != NULL, "%s -> %s: %s: %s", from, to, kvg_status_name(answer), kvg_last_error());
    ck_assert_ptr_null(accounts);
    close_beside(&b);
}

START_TEST(a_text_that_is_none_is_refused_by_name)
{
    refused("\"kvgrid_placement\": 1", "\"kvgrid_placement\": 2", KVG_ENOTSUP, "version 2");
    refused("\"kvgrid_placement\": 1", "\"kvgrid_placement\": 0", KVG_ENOTSUP, "version 0");
    refused("\"kvgrid_placement\": 1", "\"kvgrid_placement\": 1.0", KVG_EFORMAT, "kvgrid_placement");
    refused("\"tp\": 2", "\"tp\": 0", KVG_EFORMAT, "tp is 0");
    refused("\"tp\": 2", "\"tp\": 65536", KVG_EFORMAT, "tp is 65536");
    refused("\"tp\": 2", "\"tp\": 1", KVG_EFORMAT, "ranks has 4");
    refused("\"tp\": 2", "\"tp\": \"2\"", KVG_EFORMAT, "tp is no whole number");
    refused("\"tp\": 2", "\"tp\": 2.5", KVG_EFORMAT, "tp is no whole number");
    refused("\"tp\": 2", "\"tp\": -2", KVG_EFORMAT, "tp is -2");
    refused("\"tp\": 2", "\"tp\": 99999999999999999999", KVG_EFORMAT, "line");
    refused("\"tp\": 2", "\"tp\": 2, \"tp\": 2", KVG_EFORMAT, "duplicate");
    refused("\"tp\": 2,", "", KVG_EFORMAT, "tp is missing");
    refused("\"tp\": 2", "\"tp\": 2, \"more\": 1", KVG_EFORMAT, "more is no member");
    refused("\"layout\": \"pool\"", "\"layout\": \"heap\"", KVG_EFORMAT, "layout is heap");
    refused("\"layout\": \"pool\"", "\"layout\": \"flat\"", KVG_EFORMAT, "unit_cap");
    refused("\"kind\": \"kv\"", "\"kind\": \"none\"", KVG_EFORMAT, "classes[0].kind");
    refused("\"kind\": \"kv\"", "\"kind\": \"sliding_kv\"", KVG_EFORMAT, "classes[0].window");
    refused("\"window\": 0, \"ring\": \"off\"", "\"window\": 0, \"ring\": \"on\"", KVG_EFORMAT, "classes[0].ring");
    refused("\"row_cap\": 2048", "\"row_cap\": 2047", KVG_EFORMAT, "classes[0].row_cap is 2047");
    refused("\"units\": ", "\"units\": 99", KVG_EFORMAT, "classes[0].units");
    refused("\"max_ctx\": 2048", "\"max_ctx\": 2147483584", KVG_EFORMAT, "max_ctx is 2147483584");
    refused("\"columns\": 0", "\"columns\": 1", KVG_EFORMAT, "columns");
    refused("\"index_pool\": 0", "\"index_pool\": 7", KVG_EFORMAT, "index_pool");
    refused("\"rank\": 1", "\"rank\": 2", KVG_EFORMAT, "ranks[1].rank");
    refused("\"stage\": 0", "\"stage\": 1", KVG_EFORMAT, "ranks[0].stage");
    refused("\"unit_bytes\": [", "\"unit_bytes\": [1, ", KVG_EFORMAT, "ranks[0].unit_bytes has 3");
    refused("\"max_sequences\": 6", "\"max_sequences\": 2147483647", KVG_ECAPACITY, "memory_max_bytes");
    refused("\"max_in_flight\": 3", "\"max_in_flight\": 2147483647", KVG_ECAPACITY, "memory_max_bytes");
    refused("]\n}", "]\n", KVG_EFORMAT, "line");
    refused("]\n}", "]\n} {", KVG_EFORMAT, "line");
}
END_TEST

START_TEST(accounts_unwind_from_every_allocation)
{
    static char   text[TEXT_MAX];
    static Beside b;
    KvgAccounts  *accounts = NULL;
    uint64_t      live;

    open_beside(&b, &shapes[1], 1);
    size_t size = text_of(b.g.placement[0], text);
    live = kvg_live_allocations();
    for (uint64_t nth = 0;; nth++) {
        kvg_fault_arm(nth);
        KvgStatus status = kvg_accounts_from_json(text, size, NULL, &accounts);
        if (!kvg_fault_disarm()) {
            ck_assert_int_eq(status, KVG_OK);
            ck_assert_uint_gt(nth, 5);
            break;
        }
        ck_assert_int_eq(status, KVG_ENOMEM);
        ck_assert_ptr_null(accounts);
        ck_assert_uint_eq(kvg_live_allocations(), live);
    }
    kvg_accounts_destroy(accounts);
    close_beside(&b);
}
END_TEST

START_TEST(what_is_not_open_or_has_ended_is_stale)
{
    static Beside b;
    KvgOutcome    outcome = { .kind = KVG_OUTCOME_PUBLISHED, .field = "" };
    uint32_t      rows = 3, accepted = 4;
    uint64_t      id = 1, step = 0, bytes;
    KvgStatus     refused_at;

    open_beside(&b, &shapes[0], 1);
    ck_assert_int_eq(kvg_accounts_close(b.accounts, 7), KVG_ESTALE);
    ck_assert_int_eq(kvg_accounts_begin(b.accounts, &id, &rows, 1, &refused_at, &step), KVG_ESTALE);
    ck_assert_int_eq(kvg_accounts_open(b.accounts, 1, 0), KVG_OK);
    ck_assert_int_eq(kvg_accounts_open(b.accounts, 1, 0), KVG_EINVAL);
    ck_assert_int_eq(kvg_accounts_begin(b.accounts, &id, &rows, 7, &refused_at, &step), KVG_EINVAL); /* 6 places */
    ck_assert_int_eq(kvg_accounts_begin(b.accounts, &id, &rows, 1, &refused_at, &step), KVG_OK);
    ck_assert_int_eq(kvg_accounts_begin(b.accounts, &id, &rows, 1, &refused_at, &(uint64_t){ 0 }), KVG_EBUSY);
    ck_assert_int_eq(kvg_accounts_decide(b.accounts, step, &outcome, NULL), KVG_EINVAL); /* nothing accepted is not 0 accepted */
    outcome.accepted = &accepted;
    ck_assert_int_eq(kvg_accounts_decide(b.accounts, step, &outcome, NULL), KVG_EINVAL); /* 4 of 3 */
    accepted = 3;
    ck_assert_int_eq(kvg_accounts_decide(b.accounts, step, &outcome, NULL), KVG_OK);
    ck_assert_int_eq(kvg_accounts_decide(b.accounts, step, &outcome, NULL), KVG_ESTALE);
    ck_assert_int_eq(kvg_accounts_extend(b.accounts, step, &rows, &refused_at), KVG_ESTALE);
    for (int i = 0; i < 3; i++) ck_assert_int_eq(kvg_accounts_begin(b.accounts, NULL, NULL, 0, NULL, &step), KVG_OK); /* another placement's */
    ck_assert_int_eq(kvg_accounts_begin(b.accounts, NULL, NULL, 0, NULL, &step), KVG_EBUSY); /* max_in_flight 3 */
    ck_assert_int_eq(kvg_accounts_booked_bytes(b.accounts, 1, &bytes), KVG_EINVAL);
    ck_assert_int_eq(kvg_accounts_booked_bytes(b.accounts, 0, &bytes), KVG_OK);
    close_beside(&b);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("accounts");
    TCase *tc = tcase_create("accounts");

    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, random_calls_are_answered_alike_by_workers_and_accounts, 0, SHAPES);
    tcase_add_loop_test(tc, the_text_is_the_same_on_every_rank_and_comes_back_equal, 0, SHAPES);
    tcase_add_test(tc, a_text_that_is_none_is_refused_by_name);
    tcase_add_test(tc, accounts_unwind_from_every_allocation);
    tcase_add_test(tc, what_is_not_open_or_has_ended_is_stale);
    suite_add_tcase(suite, tc);
    return life_run(suite);
}

/* Rebuilding what forks share: a newcomer holds the same chunks with the same counts as the ranks that were there, and the same rows. Every history runs twice,
 * with losses and without any: digests and free units are the same before, right after, and once all have gone on. */
#include "tests/support/rebuild_scene.h"

#include "pp/internal.h"

enum { PLACES = 8 };

typedef struct Family {
    Scene    scene;
    uint64_t id[PLACES]; /* 0: nobody */
    int      deep;       /* the model keeps rows alone: it can be forked and cut anywhere */
} Family;

static void grow_by(Family *f, const uint32_t rows[PLACES])
{
    Scene   *scene = &f->scene;
    KvgStep *steps[TEST_RANKS_MAX];

    for (int r = 0; r < scene->g.ranks; r++) {
        Rank rank = {&scene->g, r, scene->s[r], 0};
        for (uint32_t q = 0; q < PLACES; q++) ck_assert_int_eq(kvg_batch_set(scene->g.batch[r], q, scene->s[r][q]), KVG_OK);
        ck_assert_msg(kvg_step_begin(scene->g.batch[r], rows, &steps[r]) == KVG_OK, "%s", kvg_last_error());
        for (uint32_t q = 0; q < PLACES; q++) ck_assert_msg(kvg_step_refusal(steps[r], q) == KVG_OK, "%s", kvg_last_error());
        write_layers(&rank, steps[r], PLACES);
        grid_post(&scene->g, r, steps[r], NULL, KVG_OK);
    }
    ck_assert_msg(grid_decide(&scene->g, steps, NULL) == KVG_OK, "%s", kvg_last_error());
}

static void grow(Family *f, uint32_t place, uint64_t rows)
{
    for (uint32_t now; rows > 0; rows -= now) {
        uint32_t each[PLACES] = {0};
        each[place] = now = (uint32_t)(rows < 100 ? rows : 100);
        grow_by(f, each);
    }
}

#define ON_ALL(f, r, call) \
    for (int r = 0; r < (f)->scene.g.ranks; r++) ck_assert_msg((call) == KVG_OK, "%s", kvg_last_error())

static void fork_off(Family *f, uint32_t from, uint64_t rows, uint32_t to, uint64_t id)
{
    f->id[to] = id;
    ON_ALL(f, r, kvg_sequence_fork(f->scene.s[r][from], rows, id, &f->scene.s[r][to]));
}

static uint64_t rows_of(const Family *f, uint32_t place)
{
    return life_info(f->scene.s[0][place]).rows;
}

static void remake_batches(Family *f)
{
    for (int r = 0; r < f->scene.g.ranks; r++) {
        kvg_batch_destroy(f->scene.g.batch[r]);
        ck_assert_int_eq(kvg_batch_create(f->scene.g.placement[r], PLACES, &f->scene.g.batch[r]), KVG_OK);
    }
}

/* ---- histories */

/* Two forks of one, in the middle of a chunk and at its end; a fork of a fork; a child with a lower id than its parent: that one is sent first. */
static void branch(Family *f)
{
    uint64_t rows = rows_of(f, 0);

    fork_off(f, 0, rows, 3, 550);
    fork_off(f, 0, f->deep ? rows / 64 * 64 : rows, 4, 50);
    grow(f, 3, 70);
    fork_off(f, 3, f->deep ? rows + 20 : rows + 70, 5, 60);
    fork_off(f, 1, f->deep ? 64 : rows_of(f, 1), 6, 560);
    grow(f, 4, 5);
    grow(f, 5, 1);
}

/* The parent's window slides past what the fork keeps, and the fork's past what the parent keeps. */
static void slide(Family *f)
{
    uint64_t rows = rows_of(f, 0);

    fork_off(f, 0, rows, 3, 50);
    grow(f, 0, 260);
    fork_off(f, 0, rows_of(f, 0), 4, 70);
    fork_off(f, 4, rows_of(f, 4), 5, 550);
    grow(f, 4, 330);
}

/* Cut back into a shared chunk, to its end, and given back what was booked beyond; the parent of two closed. */
static void cut(Family *f)
{
    uint64_t rows = rows_of(f, 0);

    fork_off(f, 0, rows, 3, 550);
    fork_off(f, 3, rows, 4, 551);
    fork_off(f, 3, rows, 5, 40);
    if (f->deep) {
        ON_ALL(f, r, kvg_sequence_rewind(f->scene.s[r][3], rows - 70));
        ON_ALL(f, r, kvg_sequence_rewind(f->scene.s[r][4], (rows - 10) / 64 * 64));
    }
    ON_ALL(f, r, kvg_sequence_book(f->scene.s[r][5], rows + 200));
    ON_ALL(f, r, kvg_sequence_trim(f->scene.s[r][4]));
    grow(f, 5, 3);
    ON_ALL(f, r, kvg_sequence_close(f->scene.s[r][0], NULL));
    for (int r = 0; r < f->scene.g.ranks; r++) f->scene.s[r][0] = NULL;
    f->id[0] = 0;
}

static void (*const histories[])(Family *f) = {branch, slide, cut};
enum { HISTORIES = sizeof histories / sizeof *histories };

static void live(Family *f, const Model *model, uint32_t tp, uint32_t pp, KvLayout layout, int history)
{
    *f = (Family){.scene = {.index_ring = 64, .sequences_max = PLACES, .memory_bytes = 8u << 20}};
    open_scene(&f->scene, model, tp, pp, layout);
    remake_batches(f);
    memcpy(f->id, ids, sizeof ids);
    f->deep = model->text == kv2 || model->text == deepseek;
    histories[history](f);
}

/* ---- what is compared */

typedef struct Look {
    char     hex[PLACES][33];
    uint32_t units_free[KVG_CLASSES_MAX];
} Look;

static void look(Family *f, Look *at)
{
    memset(at, 0, sizeof *at);
    life_agree_among(&f->scene.g, NULL, f->scene.g.ranks);
    for (uint32_t q = 0; q < PLACES; q++) {
        if (f->id[q] != 0) grid_digest(&f->scene.g, f->scene.s, q, at->hex[q]);
    }
    for (int r = 0; r < f->scene.g.ranks; r++) {
        const KvStore *store = f->scene.g.placement[r]->store;
        ck_assert_msg(kvg_store_check(store) == KVG_OK, "rank %d: %s", r, kvg_last_error());
        for (uint32_t c = 0; c < kvg_store_class_count(store); c++) at->units_free[c] = kvg_store_units_free(store, c);
    }
}

static void alike(const Look *a, const Look *b, const char *when)
{
    for (uint32_t q = 0; q < PLACES; q++) ck_assert_msg(strcmp(a->hex[q], b->hex[q]) == 0, "%s the sequence of place %u is not what it was", when, q);
    for (uint32_t c = 0; c < KVG_CLASSES_MAX; c++) {
        ck_assert_msg(a->units_free[c] == b->units_free[c], "%s class %u has %u units free, not %u", when, c, a->units_free[c], b->units_free[c]);
    }
}

static void handles(Family *f)
{
    for (int r = 0; r < f->scene.g.ranks; r++) {
        const KvgRebuildReport *report = f->scene.report[r];
        for (uint32_t q = 0; q < PLACES; q++) {
            for (uint32_t n = 0; n < report->count; n++) {
                if (f->id[q] == 0 || report->sequences[n].id != f->id[q]) continue;
                ck_assert(f->scene.s[r][q] == NULL || f->scene.s[r][q] == report->sequences[n].sequence);
                ck_assert_int_eq(report->sequences[n].loss, KVG_LOSS_NONE);
                ck_assert_uint_eq(report->sequences[n].rows_held, report->sequences[n].rows);
                f->scene.s[r][q] = report->sequences[n].sequence;
            }
        }
    }
}

static void lose(Family *f, int victim)
{
    kill_rank(&f->scene, victim);
    ck_assert_msg(rebuild_joined(&f->scene, NULL, NULL) == KVG_OK, "%s", kvg_last_error());
    reports_agree(&f->scene);
    ck_assert_uint_eq(f->scene.report[0]->kept, f->scene.report[0]->count);
    handles(f);
    remake_batches(f);
}

/* Rows behind the window, which no digest reads before a sequence is cut, and which an owner that slid on has no use for. Settling leaves a flat ring none. */
static void go_back(Family *f)
{
    for (uint32_t q = 0; f->deep && f->scene.layout == KVG_LAYOUT_POOL && q < PLACES; q++) {
        uint64_t rows = f->id[q] != 0 ? rows_of(f, q) : 0;
        if (rows > 300) ON_ALL(f, r, kvg_sequence_rewind(f->scene.s[r][q], rows - 200));
    }
}

/* Nobody is lost; settling levels what is booked ahead. */
static void settle_whole(Family *f)
{
    ck_assert_msg(rebuild_empty(&f->scene, NULL) == KVG_OK, "%s", kvg_last_error());
    free_reports(&f->scene);
}

static void go_on(Family *f)
{
    uint32_t rows[PLACES];

    for (uint32_t q = 0; q < PLACES; q++) rows[q] = f->id[q] != 0 ? 20 + q : 0;
    for (int n = 0; n < 3; n++) grow_by(f, rows);
}

static void end(Family *f)
{
    for (uint32_t q = 0; q < PLACES; q++) {
        if (f->id[q] == 0) continue;
        ON_ALL(f, r, kvg_sequence_close(f->scene.s[r][q], NULL));
    }
    for (int r = 0; r < f->scene.g.ranks; r++) {
        const KvStore *store = f->scene.g.placement[r]->store;
        for (uint32_t c = 0; c < kvg_store_class_count(store); c++) ck_assert_uint_eq(kvg_store_units_free(store, c), kvg_store_units_total(store, c));
    }
    close_scene(&f->scene);
}

static void lose_twice(const Model *model, uint32_t tp, uint32_t pp, KvLayout layout, int history, int victim, int then)
{
    static Family family, whole;
    Look          before, after;

    live(&whole, model, tp, pp, layout, history);
    live(&family, model, tp, pp, layout, history);
    settle_whole(&whole);
    look(&whole, &before);
    lose(&family, victim);
    look(&family, &after);
    alike(&before, &after, "after a loss");
    lose(&family, then); /* what the newcomer holds is sent on, if nobody else has it */
    look(&family, &after);
    alike(&before, &after, "after two losses");
    settle_whole(&whole);
    go_back(&whole);
    go_back(&family);
    look(&whole, &before);
    look(&family, &after);
    alike(&before, &after, "cut back");
    go_on(&whole);
    go_on(&family);
    look(&whole, &before);
    look(&family, &after);
    alike(&before, &after, "later");
    end(&family);
    end(&whole);
}

static const struct { int model; uint32_t tp, pp; } shapes[] = {{0, 4, 1}, {1, 2, 1}, {1, 2, 2}, {2, 2, 1}, {2, 2, 2}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

START_TEST(test_a_newcomer_shares_chunks_as_the_others_do)
{
    const Model *model = &some_models[shapes[_i].model];

    for (int history = 0; history < HISTORIES; history++) {
        for (int victim = 0; victim < (int)(shapes[_i].tp * shapes[_i].pp); victim++) {
            int stage = victim - victim % (int)shapes[_i].tp, then = stage + (victim - stage + 1) % (int)shapes[_i].tp; /* another of its stage: its donor, mostly */
            lose_twice(model, shapes[_i].tp, shapes[_i].pp, KVG_LAYOUT_POOL, history, victim, then);
        }
    }
}
END_TEST

START_TEST(test_forks_in_flat_planes_are_rows_of_their_own)
{
    for (int history = 0; history < HISTORIES; history++) lose_twice(&some_models[shapes[_i].model], shapes[_i].tp, shapes[_i].pp, KVG_LAYOUT_FLAT, history, 1, 0);
}
END_TEST

/* A tainted sequence comes back nowhere; what others share with it is still theirs, and its own is free on all. */
START_TEST(test_a_fork_of_a_tainted_sequence_keeps_its_rows)
{
    static Family family;
    KvgStep      *steps[4];
    Look          before, after;

    live(&family, &some_models[0], 4, 1, KVG_LAYOUT_POOL, 0);
    ck_assert_int_eq(kvg_sequence_taint(family.scene.s[0][4]), KVG_OK); /* it has the lowest id: it would be sent first */
    for (int r = 0; r < 4; r++) {
        uint32_t rows[PLACES] = {0};
        Rank     rank = {&family.scene.g, r, family.scene.s[r], 0};
        rows[4] = 1;
        for (uint32_t q = 0; q < PLACES; q++) ck_assert_int_eq(kvg_batch_set(family.scene.g.batch[r], q, family.scene.s[r][q]), KVG_OK);
        ck_assert_int_eq(kvg_step_begin(family.scene.g.batch[r], rows, &steps[r]), KVG_OK);
        write_layers(&rank, steps[r], PLACES);
        grid_post(&family.scene.g, r, steps[r], NULL, KVG_OK);
    }
    ck_assert_int_eq(grid_decide(&family.scene.g, steps, NULL), KVG_ETAINTED);
    family.id[4] = 0;
    look(&family, &before);
    kill_rank(&family.scene, 2);
    ck_assert_msg(rebuild_joined(&family.scene, NULL, NULL) == KVG_OK, "%s", kvg_last_error());
    ck_assert_uint_eq(family.scene.report[0]->kept, family.scene.report[0]->count - 1);
    handles(&family);
    look(&family, &after);
    for (uint32_t q = 0; q < PLACES; q++) ck_assert_str_eq(after.hex[q], before.hex[q]);
    for (uint32_t c = 0; c < KVG_CLASSES_MAX; c++) ck_assert_uint_ge(after.units_free[c], before.units_free[c]);
    for (int r = 0; r < 4; r++) family.scene.s[r][4] = NULL;
    remake_batches(&family);
    go_on(&family);
    look(&family, &after);
    close_scene(&family.scene);
}
END_TEST

int main(void)
{
    if (test_device_missing()) return test_device_missing();
    Suite *suite = suite_create("rebuild_forks");
    TCase *tests = tcase_create("rebuild_forks");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, test_a_newcomer_shares_chunks_as_the_others_do, 0, SHAPES);
    tcase_add_loop_test(tests, test_forks_in_flat_planes_are_rows_of_their_own, 0, SHAPES);
    tcase_add_test(tests, test_a_fork_of_a_tainted_sequence_keeps_its_rows);
    suite_add_tcase(suite, tests);
    return life_run(suite);
}

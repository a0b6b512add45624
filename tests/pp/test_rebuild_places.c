/* Rebuilding with several placements, one of them asleep, and with none: newcomers that join with all of them, and what they are told that cannot be. */
#include "pp/rebuild_impl.h"
#include "tests/support/rebuild_pair.h"
#include "tests/support/wire_edit.h"

static KvgPlaceOptions second_options(void)
{
    KvgPlaceOptions options = life_options(8, 1u << 20); /* more sequences than the first has: places of a step follow the first's */
    options.prefill_chunk_max = 160;
    return options;
}

/* A second placement on every rank, with an empty sequence, or asleep. */
static void place_second(KvgPlacement *second[2], KvgSequence *extra[2], int asleep)
{
    KvgPlaceOptions options = second_options();
    KvgSetup       *setups[TEST_RANKS_MAX] = {0};

    for (int r = 0; r < 2; r++) {
        ck_assert_int_eq(kvg_place_start(scene.g.grid[r], &scene.g.config, &options, &second[r], &setups[r]), KVG_OK);
    }
    ck_assert_msg(grid_finish(&scene.g, setups, NULL) == KVG_OK, "%s", kvg_last_error());
    for (int r = 0; r < 2; r++) {
        setups[r] = NULL;
        if (asleep) ck_assert_int_eq(kvg_placement_sleep_start(second[r], &setups[r]), KVG_OK);
        else ck_assert_int_eq(kvg_sequence_open(second[r], 900, 70, &extra[r]), KVG_OK);
    }
    if (asleep) ck_assert_int_eq(grid_finish(&scene.g, setups, NULL), KVG_OK);
}

typedef struct Replacing {
    WireEdit  edit;    /* of what the survivor says to the newcomer */
    int       begins_poor; /* so manieth allocation of the survivor's start fails; 0: none. Set to 0 where there are not so many */
    int       poor;    /* every second turn of either its so manieth allocation fails; 0: none */
    int       slow_ms; /* so much time passes with each round while rows are on their way */
    KvgStatus status[2];
    char      why[2][600];
} Replacing;

/* Rank 1 is lost and a newcomer takes its place, with `count` placements. */
static void replace_rank_1(Replacing *how, uint32_t count, KvgPlacement **joined)
{
    KvgPlaceOptions   first = scene_options(&scene), second = second_options();
    KvgPolicy         policy = scene_policy(&scene);
    KvgGridOptions    options = KVG_GRID_OPTIONS_INIT;
    KvgRebuildOptions with = KVG_REBUILD_OPTIONS_INIT;
    KvgJoin           joins[2] = {{&scene.g.config, &first, NULL}, {&scene.g.config, &second, NULL}};
    KvgSetup         *setups[2];
    KvInproc         *hub;
    KvComm            comm[2];
    KvLiveness        liveness[2];
    int               done[2] = {0};

    ck_assert_int_eq(kvg_inproc_create(2, &hub), KVG_OK);
    kvg_inproc_advance_ns(hub, kvg_inproc_now_ns(scene.g.hub));
    for (int r = 0; r < 2; r++) ck_assert_int_eq(kvg_inproc_attach(hub, r, &comm[r], &liveness[r]), KVG_OK);
    if (how->edit != NULL) edit_messages_of(&comm[0], how->edit);
    with.comm = &comm[0];
    with.liveness = &liveness[0];
    if (how->begins_poor > 0) kvg_fault_arm((uint64_t)how->begins_poor - 1);
    KvgStatus begun = kvg_grid_rebuild_start(scene.g.grid[0], (int[]){0}, 1, &with, &scene.report[0], &setups[0]);
    if (how->begins_poor > 0 && kvg_fault_disarm() == 0) how->begins_poor = 0;
    if (begun != KVG_OK) { /* nothing has begun: the connections are the caller's still */
        ck_assert_int_eq(begun, KVG_ENOMEM);
        how->status[0] = how->status[1] = begun;
        for (int r = 0; r < 2; r++) {
            comm[r].ops->close(comm[r].self);
            liveness[r].ops->close(liveness[r].self);
        }
        kvg_inproc_destroy(hub);
        return;
    }
    options.tp = 2;
    options.policy = &policy;
    options.comm = &comm[1];
    options.liveness = &liveness[1];
    ck_assert_int_eq(kvg_grid_join_start(1, 2, &options, joins, count, &scene.g.grid[1], &scene.report[1], &setups[1]), KVG_OK);
    for (int rounds = 0; !done[0] || !done[1]; rounds++) {
        ck_assert_int_lt(rounds, 100000);
        for (int r = 0; r < 2; r++) {
            if (done[r]) continue;
            const RebuildState *state = setups[r]->state; /* rows on their way: before that, want of memory is an answer */
            if (how->slow_ms > 0 && r == 0 && state->stage == REBUILD_COPY) kvg_inproc_advance_ns(hub, (uint64_t)how->slow_ms * 1000000);
            if (how->poor > 0 && rounds % 2 == 0 && state->stage == REBUILD_COPY) kvg_fault_arm((uint64_t)how->poor - 1);
            how->status[r] = kvg_setup_test(setups[r], &done[r]);
            kvg_fault_disarm();
            if (done[r]) snprintf(how->why[r], sizeof how->why[r], "%s", kvg_last_error());
        }
        kvg_inproc_advance_ns(hub, 100000);
        kvg_inproc_advance_ns(scene.g.hub, 100000);
    }
    for (int r = 0; r < 2; r++) kvg_setup_free(setups[r]);
    scene.hubs[scene.hub_count++] = hub;
    if (how->status[0] != KVG_OK || how->status[1] != KVG_OK) return;
    scene.g.hub = hub;
    scene.g.ranks = 2;
    scene.g.placement[1] = joins[0].placement;
    if (count > 1) *joined = joins[1].placement;
    place_batch(&scene, 1);
}

static void replaced(const Replacing *how)
{
    for (int r = 0; r < 2; r++) ck_assert_msg(how->status[r] == KVG_OK, "rank %d: %s: %s", r, kvg_status_name(how->status[r]), how->why[r]);
}

START_TEST(test_a_newcomer_joins_with_every_placement_asleep_or_not)
{
    KvgPlacement *second[2];
    KvgSequence  *extra[2] = {0};
    KvgLedger     ledger[2];
    Replacing     how = {0};

    open_pair();
    place_second(second, extra, _i);
    KvgPlacement *dead = second[1];
    kill_rank(&scene, 1);
    replace_rank_1(&how, 2, &second[1]);
    replaced(&how);
    ck_assert_uint_eq(scene.report[0]->count, SEQUENCES + (_i ? 0u : 1u));
    ck_assert_uint_eq(scene.report[0]->kept, scene.report[0]->count);
    for (uint32_t n = 0; n < scene.report[0]->count; n++) { /* by placement, then by id: the same on both */
        ck_assert_uint_eq(scene.report[0]->sequences[n].id, n < SEQUENCES ? ids[n] : 900);
        ck_assert_uint_eq(scene.report[1]->sequences[n].id, n < SEQUENCES ? ids[n] : 900);
        ck_assert_ptr_eq(scene.report[1]->sequences[n].placement, n < SEQUENCES ? scene.g.placement[1] : second[1]);
        if (n < SEQUENCES) scene.s[1][n] = scene.report[1]->sequences[n].sequence;
    }
    for (int r = 0; r < 2; r++) {
        ck_assert_int_eq(kvg_placement_asleep(second[r]), _i);
        kvg_placement_ledger(second[r], &ledger[r]);
    }
    ck_assert_uint_eq(ledger[0].slots_free, _i ? 8 : 7);
    ck_assert_uint_eq(ledger[1].slots_free, ledger[0].slots_free);
    ck_assert_uint_eq(ledger[1].units_free[0], ledger[0].units_free[0]);
    if (_i) {
        KvgSetup *setups[TEST_RANKS_MAX] = {0};
        for (int r = 0; r < 2; r++) ck_assert_int_eq(kvg_placement_wake_start(second[r], &setups[r]), KVG_OK);
        ck_assert_msg(grid_finish(&scene.g, setups, NULL) == KVG_OK, "%s", kvg_last_error());
    }
    step_ok(&scene, (uint32_t[]){1, 1, 1});
    for (int r = 0; r < 2; r++) kvg_placement_destroy(second[r]);
    kvg_placement_destroy(dead);
    close_scene(&scene);
}
END_TEST

START_TEST(test_an_empty_place_is_passed_over_by_changes_and_comparisons)
{
    KvgSetup  *setups[TEST_RANKS_MAX] = {0};
    KvgStep   *steps[TEST_RANKS_MAX];
    KvgOutcome outcomes[TEST_RANKS_MAX];

    scene = (Scene){0};
    open_scene(&scene, &some_models[1], 3, 1, KVG_LAYOUT_POOL);
    kill_rank(&scene, 1);
    ck_assert_int_eq(rebuild_empty(&scene, NULL), KVG_OK);
    for (int i = 0; i < 2; i++) ck_assert_int_eq(kvg_placement_resize_start(scene.g.placement[i], 3u << 20, &setups[i]), KVG_OK);
    ck_assert_msg(grid_finish(&scene.g, setups, NULL) == KVG_OK, "%s", kvg_last_error());
    for (int i = 0; i < 2; i++) { /* unlike rows: the two that are there find out whose calls went apart, and nobody's did */
        steps[i] = begin_one(&scene, i, (uint32_t[]){1, i == 0 ? 1 : 2, 0});
        grid_post(&scene.g, i, steps[i], NULL, KVG_OK);
    }
    ck_assert_int_eq(grid_decide(&scene.g, steps, outcomes), KVG_ELAYOUT);
    ck_assert_str_eq(outcomes[0].field, "targets");
    for (int i = 0; i < 2; i++) ck_assert_int_eq(kvg_grid_state(scene.g.grid[i]), KVG_OK);
    step_ok(&scene, (uint32_t[]){1, 1, 1});
    close_scene(&scene);
}
END_TEST

/* Where memory fails now it is asked for again in the next turn. */
START_TEST(test_turns_without_memory_are_made_again)
{
    Replacing how = {.poor = _i, .slow_ms = 250}; /* they take longer than the deadline of one */

    open_pair();
    kill_rank(&scene, 1);
    replace_rank_1(&how, 1, NULL);
    replaced(&how);
    ck_assert_uint_eq(scene.report[0]->kept, SEQUENCES);
    for (uint32_t n = 0; n < SEQUENCES; n++) scene.s[1][n] = scene.report[1]->sequences[n].sequence;
    check_goes_on(&scene, 1);
    close_scene(&scene);
}
END_TEST

/* Each allocation of a start: it has not begun, or the newcomer is told; another attempt ends well. */
START_TEST(test_a_survivor_that_begins_without_memory_says_so)
{
    int told = 0, last = 0;

    for (int nth = 1; !last; nth++) {
        Replacing how = {.begins_poor = nth}, again = {0};
        ck_assert_int_lt(nth, 100);
        open_pair();
        kill_rank(&scene, 1);
        replace_rank_1(&how, 1, NULL);
        last = how.begins_poor == 0;
        if (last) replaced(&how);
        else ck_assert_msg(how.status[0] == KVG_ENOMEM && (how.status[1] == KVG_ENOMEM || how.status[1] == KVG_EREFUSED), "%d: %s; %s", nth, how.why[0], how.why[1]);
        told += how.status[1] == KVG_EREFUSED;
        free_reports(&scene);
        if (!last) {
            replace_rank_1(&again, 1, NULL);
            replaced(&again);
        }
        close_scene(&scene);
    }
    ck_assert_int_gt(told, 0);
}
END_TEST

static size_t a_piece_cut(const KvMessageHeader *header, uint8_t *body, size_t bytes)
{
    (void)body;
    return header->kind == KVG_MESSAGE_REBUILD && bytes > 4096 && bytes % 8 == 0 ? bytes - 8 : bytes;
}

static size_t other_units(const KvMessageHeader *header, uint8_t *body, size_t bytes)
{
    uint64_t *units = (uint64_t *)(void *)(body + sizeof(RebuildHello) + offsetof(RebuildPlace, units));
    if (header->kind == KVG_MESSAGE_REBUILD && bytes > sizeof(RebuildHello) + sizeof(RebuildPlace) && ((RebuildHello *)(void *)body)->placements == 1) *units += 1;
    return bytes;
}

/* What reaches a newcomer in another shape is its "no": the survivor holds what it held, and another may join. */
START_TEST(test_a_newcomer_that_is_told_what_cannot_be_says_no)
{
    static const struct { WireEdit edit; KvgStatus newcomer; } bad[] = { {other_units, KVG_ELAYOUT}, {a_piece_cut, KVG_ELAYOUT} };
    Replacing again = {0};

    open_pair();
    kill_rank(&scene, 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Replacing how = {.edit = bad[i].edit};
        replace_rank_1(&how, 1, NULL);
        ck_assert_msg(how.status[0] == KVG_EREFUSED && how.status[1] == bad[i].newcomer, "%zu: %s, %s: %s; %s", i, kvg_status_name(how.status[0]),
                      kvg_status_name(how.status[1]), how.why[0], how.why[1]);
        kvg_rebuild_report_free(scene.report[0]);
        scene.report[0] = NULL;
        for (int q = 0; q < SEQUENCES; q++) ck_assert_uint_eq(life_info(scene.s[0][q]).rows, scene.rows[q]);
    }
    replace_rank_1(&again, 1, NULL);
    replaced(&again);
    for (uint32_t n = 0; n < SEQUENCES; n++) scene.s[1][n] = scene.report[1]->sequences[n].sequence;
    check_goes_on(&scene, 1);
    close_scene(&scene);
}
END_TEST

START_TEST(test_a_newcomer_takes_a_place_where_nothing_is_placed)
{
    KvgGridOptions    options = KVG_GRID_OPTIONS_INIT;
    KvgRebuildOptions with = KVG_REBUILD_OPTIONS_INIT;
    KvgSetup         *setups[2];
    KvInproc         *hub;
    KvComm            comm[2];
    KvLiveness        liveness[2];
    KvgGrid          *joined = NULL;
    TestGrid          g;
    int               done[2] = {0};

    grid_connect(&g, 2, 1, NULL, 0);
    kvg_inproc_kill(g.hub, 1);
    ck_assert_int_eq(kvg_inproc_create(2, &hub), KVG_OK);
    for (int r = 0; r < 2; r++) ck_assert_int_eq(kvg_inproc_attach(hub, r, &comm[r], &liveness[r]), KVG_OK);
    with.comm = &comm[0];
    with.liveness = &liveness[0];
    ck_assert_int_eq(kvg_grid_rebuild_start(g.grid[0], (int[]){0}, 1, &with, NULL, &setups[0]), KVG_OK);
    options.tp = 2;
    options.comm = &comm[1];
    options.liveness = &liveness[1];
    ck_assert_int_eq(kvg_grid_join_start(1, 2, &options, NULL, 0, &joined, NULL, &setups[1]), KVG_OK);
    for (int rounds = 0; !done[0] || !done[1]; rounds++) {
        ck_assert_int_lt(rounds, 100000);
        for (int r = 0; r < 2; r++) {
            if (!done[r]) ck_assert_msg(kvg_setup_test(setups[r], &done[r]) == KVG_OK, "%s", kvg_last_error());
        }
        kvg_inproc_advance_ns(hub, 100000);
        kvg_inproc_advance_ns(g.hub, 100000);
    }
    for (int r = 0; r < 2; r++) kvg_setup_free(setups[r]);
    ck_assert_uint_eq(kvg_grid_epoch(joined), kvg_grid_epoch(g.grid[0]));
    ck_assert_int_eq(kvg_grid_state(g.grid[0]), KVG_OK);
    kvg_grid_destroy(joined);
    kvg_grid_destroy(g.grid[0]);
    g.grid[0] = NULL;
    kvg_inproc_destroy(hub);
    grid_close(&g);
}
END_TEST

START_TEST(test_a_newcomer_with_too_few_placements_is_refused)
{
    Replacing how = {0};

    open_pair();
    kill_rank(&scene, 1);
    replace_rank_1(&how, 0, NULL);
    for (int r = 0; r < 2; r++) ck_assert_msg(how.status[r] == KVG_ELAYOUT && strstr(how.why[r], "joins with all of them") != NULL, "%d: %s", r, how.why[r]);
    close_scene(&scene);
}
END_TEST

static size_t says_it_is_tainted(const KvMessageHeader *header, uint8_t *body, size_t bytes)
{
    const RebuildHello *hello = (const RebuildHello *)(void *)body;
    size_t              at = sizeof *hello + sizeof(RebuildPlace) + 3 * sizeof(uint64_t); /* three ranks' bytes stand behind a placement */

    if (header->kind == KVG_MESSAGE_SETUP && bytes > at + sizeof(RebuildSequence) && hello->placements == 1) ((RebuildSequence *)(void *)(body + at))->tainted ^= 1;
    return bytes;
}

/* Posted calls were the same, and what two say of a sequence is not: nobody can tell whose rows are right. */
START_TEST(test_sequences_that_survivors_tell_otherwise_keep_lengths_alone)
{
    KvgSetup *setups[2] = {0};
    int       done[2] = {0};

    scene = (Scene){0};
    open_scene(&scene, &some_models[1], 3, 1, KVG_LAYOUT_POOL);
    kill_rank(&scene, 2);
    edit_messages_of(&scene.g.grid[1]->comm, says_it_is_tainted);
    for (int r = 0; r < 2; r++) ck_assert_int_eq(kvg_grid_rebuild_start(scene.g.grid[r], (int[]){0, 1}, 2, NULL, &scene.report[r], &setups[r]), KVG_OK);
    for (int rounds = 0; !done[0]; rounds++) {
        ck_assert_int_lt(rounds, 100000);
        if (!done[1]) kvg_setup_test(setups[1], &done[1]);
        kvg_setup_test(setups[0], &done[0]);
        kvg_inproc_advance_ns(scene.g.hub, 100000);
    }
    ck_assert_ptr_nonnull(scene.report[0]);
    for (uint32_t n = 0; n < scene.report[0]->count; n++) {
        ck_assert_int_eq(scene.report[0]->sequences[n].loss, KVG_LOSS_CALLS);
        ck_assert_uint_eq(scene.report[0]->sequences[n].rows_held, 0);
    }
    for (int r = 0; r < 2; r++) kvg_setup_free(setups[r]);
    close_scene(&scene);
}
END_TEST

/* What only some survivors have open is closed everywhere, and no newcomer opens it. */
START_TEST(test_a_sequence_that_one_survivor_opened_alone_is_opened_by_no_newcomer)
{
    KvgSequence *mine = NULL;
    KvgLedger    ledger;

    scene = (Scene){0};
    open_scene(&scene, &some_models[1], 3, 1, KVG_LAYOUT_POOL);
    kill_rank(&scene, 2);
    ck_assert_int_eq(kvg_sequence_open(scene.g.placement[0], 950, 70, &mine), KVG_OK);
    ck_assert_msg(rebuild_joined(&scene, NULL, NULL) == KVG_OK, "%s", kvg_last_error());
    ck_assert_int_eq(scene.g.ranks, 3);
    for (int i = 0; i < 3; i++) {
        kvg_placement_ledger(scene.g.placement[i], &ledger);
        ck_assert_uint_eq(ledger.slots_free, 5 - SEQUENCES);
        for (uint32_t n = 0; n < scene.report[i]->count; n++) {
            if (scene.report[i]->sequences[n].id == 950) ck_assert_ptr_null(scene.report[i]->sequences[n].sequence);
        }
    }
    close_scene(&scene);
}
END_TEST

/* Each allocation of the turn in which a survivor knows what is lost, its report's among them: nobody is changed, and a second attempt ends well. */
START_TEST(test_a_report_that_finds_no_memory_is_an_answer)
{
    for (uint64_t nth = 0, delivered = 1; delivered; nth++) {
        KvgSetup *setups[TEST_RANKS_MAX] = {0};
        KvgStatus each[TEST_RANKS_MAX];
        int       done = 0;

        ck_assert_uint_lt(nth, 200);
        scene = (Scene){0};
        open_scene(&scene, &some_models[1], 2, 1, KVG_LAYOUT_POOL);
        kill_rank(&scene, 1);
        ck_assert_int_eq(kvg_grid_rebuild_start(scene.g.grid[0], (int[]){0}, 1, NULL, &scene.report[0], &setups[0]), KVG_OK);
        for (int turns = 0; ((RebuildState *)setups[0]->state)->stage != REBUILD_PREPARE; turns++) {
            ck_assert_int_lt(turns, 1000);
            ck_assert_int_eq(kvg_setup_test(setups[0], &done), KVG_OK);
            kvg_inproc_advance_ns(scene.g.hub, 100000);
        }
        kvg_fault_arm(nth);
        kvg_setup_test(setups[0], &done);
        delivered = kvg_fault_disarm();
        KvgStatus status = grid_finish(&scene.g, setups, each);
        ck_assert_msg(status == KVG_OK || (delivered && status == KVG_ENOMEM), "%llu: %s", (unsigned long long)nth, kvg_last_error());
        if (status != KVG_OK) ck_assert_msg(rebuild_empty(&scene, NULL) == KVG_OK, "%s", kvg_last_error());
        ck_assert_ptr_nonnull(scene.report[0]);
        ck_assert_uint_eq(scene.report[0]->kept, SEQUENCES);
        close_scene(&scene);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rebuild_places");
    TCase *tcase = tcase_create("rebuild_places");

    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, test_an_empty_place_is_passed_over_by_changes_and_comparisons);
    tcase_add_loop_test(tcase, test_a_newcomer_joins_with_every_placement_asleep_or_not, 0, 2);
    tcase_add_loop_test(tcase, test_turns_without_memory_are_made_again, 1, 5);
    tcase_add_test(tcase, test_a_survivor_that_begins_without_memory_says_so);
    tcase_add_test(tcase, test_a_newcomer_that_is_told_what_cannot_be_says_no);
    tcase_add_test(tcase, test_a_newcomer_takes_a_place_where_nothing_is_placed);
    tcase_add_test(tcase, test_a_newcomer_with_too_few_placements_is_refused);
    tcase_add_test(tcase, test_sequences_that_survivors_tell_otherwise_keep_lengths_alone);
    tcase_add_test(tcase, test_a_sequence_that_one_survivor_opened_alone_is_opened_by_no_newcomer);
    tcase_add_test(tcase, test_a_report_that_finds_no_memory_is_an_answer);
    suite_add_tcase(suite, tcase);
    return life_run(suite);
}

/* The embedding's schedule against a naive grid: one that keeps every sequence's tokens, counts chunks by hand, and decides steps late and in any order. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/embed/schedule.h"

enum { UNITS = 12, PROMPT = 100 };

typedef struct Held { /* one sequence of the naive grid */
    int      open;
    uint64_t id;
    uint32_t rows, booked, shared;
    uint16_t token[MODEL_CONTEXT];
} Held;

typedef struct World {
    Schedule schedule;
    Held     seat[SEATS_MAX];
    Order    step[LANES_MAX]; /* undecided */
    uint64_t born[LANES_MAX][PLACES_MAX]; /* which sequences it named */
    int      busy[LANES_MAX];
    uint32_t free, orders[ORDER_STOP + 1];
    uint32_t told, done;      /* tokens; requests at their end */
    uint16_t token[REQUESTS_MAX][MODEL_CONTEXT]; /* by request, as told */
    uint32_t count[REQUESTS_MAX];
} World;

static uint32_t units(uint32_t rows)
{
    return (rows + KVG_CHUNK_ROWS - 1) / KVG_CHUNK_ROWS;
}

/* The model: what comes next hangs on the last two tokens, of few kinds, so that drafts are often right. */
static uint16_t next_of(const uint16_t *token, uint32_t count)
{
    return (uint16_t)((token[count - 1] * 3 + (count > 1 ? token[count - 2] : 0) + 1) % 7);
}

static void grow(World *world, Held *held, uint32_t rows)
{
    uint32_t more = rows > held->booked ? units(rows) - units(held->booked) : 0;

    ck_assert_msg(more <= world->free, "%u chunks are wanted and %u are free: the ledger let it pass", more, world->free);
    world->free -= more;
    held->booked = rows > held->booked ? rows : held->booked;
}

static void open_held(World *world, const Order *order)
{
    Held *held = &world->seat[order->seat];

    ck_assert(!held->open);
    *held = (Held){ .open = 1, .id = order->id };
    if (order->kind == ORDER_FORK) {
        const Held *from = &world->seat[order->from];
        ck_assert(from->open && from->rows >= order->shared);
        memcpy(held->token, from->token, order->shared * sizeof *held->token);
        held->rows = (uint32_t)order->shared;
        held->shared = held->booked = held->rows / KVG_CHUNK_ROWS * KVG_CHUNK_ROWS;
    }
    grow(world, held, (uint32_t)order->rows);
}

static void stage_held(World *world, const Order *order)
{
    const uint16_t *token = order->token;

    ck_assert(!world->busy[order->lane]);
    world->busy[order->lane] = 1;
    world->step[order->lane] = *order;
    for (uint32_t i = 0; i < order->place_count; token += order->place[i++].rows) {
        Held *held = &world->seat[order->place[i].seat];
        ck_assert(held->open && order->place[i].rows > order->place[i].drafts);
        grow(world, held, held->rows + order->place[i].rows);
        memcpy(held->token + held->rows, token, order->place[i].rows * sizeof *token);
        world->born[order->lane][i] = held->id;
    }
}

static void obey(void *user, const Order *order)
{
    World *world = user;
    Held  *held = &world->seat[order->seat];

    world->orders[order->kind]++;
    switch (order->kind) {
    case ORDER_OPEN:
    case ORDER_FORK: open_held(world, order); break;
    case ORDER_STEP: stage_held(world, order); break;
    case ORDER_CLOSE:
        ck_assert(held->open);
        world->free += units(held->booked) - units(held->shared);
        held->open = 0;
        break;
    case ORDER_STOP: ck_abort(); break;
    }
}

static void told(void *user, const Request *request, uint64_t step, const uint16_t *tokens, uint32_t count, int done)
{
    World *world = user;
    int    i = atoi(request->id);

    (void)step;
    world->told += count;
    world->done += (uint32_t)done;
    memcpy(world->token[i] + world->count[i], tokens, count * sizeof *tokens);
    world->count[i] += count;
}

static void decide_place(World *world, uint32_t lane, uint32_t i, int published, ReportPlace *result)
{
    const OrderPlace *asked = &world->step[lane].place[i];
    Held             *held = &world->seat[asked->seat];
    uint32_t          known = asked->rows - asked->drafts, kept = known;

    if (!held->open || held->id != world->born[lane][i]) { /* closed meanwhile: what the report has of it is not looked at */
        *result = (ReportPlace){ .accepted = 999, .count = SPEC_MAX + 1 };
        return;
    }
    while (kept < asked->rows && held->token[held->rows + kept] == next_of(held->token, held->rows + kept)) kept++;
    result->accepted = (uint16_t)kept;
    for (uint32_t row = known; asked->samples && row <= kept; row++) result->token[result->count++] = next_of(held->token, held->rows + row);
    held->rows += published ? kept : 0;
}

static KvgStatus decide(World *world, uint32_t lane, int published)
{
    Report report = { .kind = REPORT_OUTCOME, .lane = lane, .status = published ? KVG_OK : KVG_EREFUSED, .ledger.units_free[0] = world->free };

    for (uint32_t i = 0; i < world->step[lane].place_count; i++) decide_place(world, lane, i, published, &report.place[i]);
    world->busy[lane] = 0;
    return schedule_outcome(&world->schedule, &report);
}

static World *make_world(uint32_t lanes, uint32_t places, uint32_t chunk, uint32_t spec, int forks)
{
    World    *world = calloc(1, sizeof *world);
    KvgLedger ledger = { .size = sizeof ledger, .class_count = 1, .units_free = { UNITS }, .max_ctx = MODEL_CONTEXT };

    ck_assert_ptr_nonnull(world);
    ledger.classes[0] = (KvClassPlan){ .kind = KVG_STATE_KV, .row_cap = MODEL_CONTEXT, .unit_cap = MODEL_CONTEXT / KVG_CHUNK_ROWS, .units = UNITS };
    ledger.slots_total = ledger.slots_free = lanes * places + 1;
    world->schedule = (Schedule){ .lanes = lanes, .places = places, .chunk = chunk, .spec = spec, .forks = forks, .send = obey, .committed = told,
                                  .user = world, .ledger = ledger, .empty = ledger };
    world->free = UNITS;
    return world;
}

static void free_world(World *world)
{
    schedule_clear(&world->schedule);
    ck_assert_uint_eq(world->free, UNITS);
    ck_assert_uint_eq(world->schedule.ledger.units_free[0], UNITS);
    ck_assert_uint_eq(world->schedule.ledger.slots_free, world->schedule.ledger.slots_total);
    free(world);
}

static uint16_t prompt_token(int number, uint32_t at)
{
    return (uint16_t)((number * 5 + (int)at * (int)at) % 7);
}

/* Request `number`, "-1" being the shared prompt. */
static KvgStatus add(World *world, int number, uint32_t prompt, uint32_t more, int system)
{
    static WireLine line;
    char            why[512];

    memset(&line, 0, sizeof line);
    snprintf(line.id, sizeof line.id, "%d", number);
    line.prompt_count = prompt;
    line.max_tokens = more;
    line.system = system;
    for (uint32_t i = 0; i < prompt && i < WIRE_TOKENS_MAX; i++) line.prompt[i] = prompt_token(number, i);
    return schedule_add(&world->schedule, &line, number < 0, why, sizeof why);
}

/* What request `number` must have been told: the first `count` of it. */
static int told_right(const World *world, int number, uint32_t prompt, int system)
{
    uint16_t token[MODEL_CONTEXT];
    uint32_t at = 0;

    for (uint32_t i = 0; system && i < PROMPT; i++) token[at++] = prompt_token(-1, i);
    for (uint32_t i = 0; i < prompt; i++) token[at++] = prompt_token(number, i);
    for (uint32_t i = 0; i < world->count[number]; i++, at++) {
        token[at] = next_of(token, at);
        if (token[at] != world->token[number][i]) return 0;
    }
    return 1;
}

START_TEST(test_a_prompt_is_staged_in_chunks_and_its_end_samples)
{
    World *world = make_world(1, 4, 64, 0, 1);

    ck_assert_int_eq(add(world, 0, 130, 2, 0), KVG_OK);
    for (uint32_t turn = 0; turn < 4; turn++) {
        static const uint32_t rows[] = { 64, 64, 2, 1 };
        schedule_turn(&world->schedule, 0);
        ck_assert_uint_eq(world->step[0].place[0].rows, rows[turn]);
        ck_assert_uint_eq(world->step[0].place[0].samples, turn >= 2);
        ck_assert_int_eq(decide(world, 0, 1), KVG_OK);
    }
    ck_assert_uint_eq(world->done, 1);
    ck_assert(told_right(world, 0, 130, 0));
    free_world(world);
}
END_TEST

START_TEST(test_an_abort_closes_an_undecided_sequence_and_its_outcome_is_not_looked_at)
{
    World *world = make_world(1, 4, 64, 0, 1);

    ck_assert_int_eq(add(world, 0, 10, 20, 0), KVG_OK);
    ck_assert_int_eq(add(world, 1, 10, 20, 0), KVG_OK);
    schedule_turn(&world->schedule, 0);
    ck_assert(world->busy[0] && world->step[0].place_count == 2);
    ck_assert_int_eq(schedule_abort(&world->schedule, "0"), 1);
    ck_assert_uint_eq(world->orders[ORDER_CLOSE], 1);
    ck_assert_int_eq(schedule_abort(&world->schedule, "0"), 0);
    ck_assert_int_eq(add(world, 0, 3, 2, 0), KVG_OK); /* its id and its seat are free at once */
    schedule_turn(&world->schedule, 0);
    ck_assert_int_eq(decide(world, 0, 1), KVG_OK);
    ck_assert(world->count[0] == 0 && world->count[1] == 1);
    while (world->done < 2) {
        schedule_turn(&world->schedule, 0);
        ck_assert_int_eq(decide(world, 0, 1), KVG_OK);
    }
    ck_assert(told_right(world, 0, 3, 0) && told_right(world, 1, 10, 0));
    free_world(world);
}
END_TEST

START_TEST(test_chunks_that_run_out_are_taken_from_the_youngest)
{
    World *world = make_world(1, 4, 512, 0, 1);

    for (int i = 0; i < 3; i++) ck_assert_int_eq(add(world, i, 4 * KVG_CHUNK_ROWS, 100, 0), KVG_OK); /* 4 of 12 chunks each, and full */
    schedule_turn(&world->schedule, 0);
    while (world->orders[ORDER_CLOSE] == 0) {
        ck_assert_int_eq(decide(world, 0, 1), KVG_OK);
        schedule_turn(&world->schedule, 0);
    }
    ck_assert(world->schedule.request[0]->running && world->schedule.request[1]->running && !world->schedule.request[2]->running);
    while (world->done < 3) {
        ck_assert_int_eq(decide(world, 0, 1), KVG_OK);
        schedule_turn(&world->schedule, 0);
    }
    for (int i = 0; i < 3; i++) ck_assert(world->count[i] == 100 && told_right(world, i, 4 * KVG_CHUNK_ROWS, 0));
    free_world(world);
}
END_TEST

START_TEST(test_what_never_fits_is_refused_and_what_just_fits_is_not)
{
    World *world = make_world(1, 4, 64, 0, 1);

    ck_assert_int_eq(add(world, -1, PROMPT, 0, 0), KVG_OK);          /* two chunks of twelve, one of them full */
    ck_assert_int_eq(add(world, 0, 10 * 64 - 5, 5, 0), KVG_OK);      /* ten more */
    ck_assert_int_eq(add(world, 1, 10 * 64 - 4, 5, 0), KVG_ECAPACITY);
    ck_assert_int_eq(add(world, 2, 11 * 64 - 5 - PROMPT, 5, 1), KVG_OK); /* a fork: one is shared */
    ck_assert_int_eq(add(world, 3, 11 * 64 - 4 - PROMPT, 5, 1), KVG_ECAPACITY);
    ck_assert_int_eq(add(world, 4, MODEL_CONTEXT, 1, 0), KVG_ECAPACITY);
    ck_assert_int_eq(add(world, 2, 1, 1, 0), KVG_EINVAL); /* that id is open */
    free_world(world);
}
END_TEST

START_TEST(test_the_queue_has_an_end)
{
    World *world = make_world(1, 1, 64, 0, 1);

    for (int i = 0; i < REQUESTS_MAX; i++) ck_assert_int_eq(add(world, i, 1, 1, 0), KVG_OK);
    ck_assert_int_eq(add(world, REQUESTS_MAX, 1, 1, 0), KVG_EBUSY);
    free_world(world);
}
END_TEST

START_TEST(test_forks_wait_for_the_shared_prompt)
{
    World *world = make_world(2, 2, 64, 0, 1);

    ck_assert_int_eq(add(world, -1, PROMPT, 0, 0), KVG_OK);
    ck_assert_int_eq(add(world, 0, 3, 4, 1), KVG_OK);
    schedule_turn(&world->schedule, 0);
    ck_assert(world->orders[ORDER_OPEN] == 1 && world->orders[ORDER_FORK] == 0);
    ck_assert_int_eq(decide(world, 0, 1), KVG_OK);
    schedule_turn(&world->schedule, 0);
    ck_assert_uint_eq(world->orders[ORDER_FORK], 0);
    ck_assert_int_eq(decide(world, 0, 1), KVG_OK);
    schedule_turn(&world->schedule, 0);
    ck_assert_uint_eq(world->orders[ORDER_FORK], 1);
    ck_assert_uint_eq(world->step[0].place[0].rows, 3);
    free_world(world);
}
END_TEST

START_TEST(test_a_step_that_is_voted_down_is_staged_again_and_another_ledger_is_a_bug)
{
    World *world = make_world(1, 4, 64, 2, 1);
    Order  before;

    ck_assert_int_eq(add(world, 0, 70, 9, 0), KVG_OK);
    schedule_turn(&world->schedule, 0);
    before = world->step[0];
    ck_assert_int_eq(decide(world, 0, 0), KVG_OK);
    ck_assert_uint_eq(world->schedule.refused_in_row, 1);
    schedule_turn(&world->schedule, 0);
    ck_assert(memcmp(&before, &world->step[0], sizeof before) == 0);
    ck_assert_int_eq(decide(world, 0, 1), KVG_OK);
    ck_assert_uint_eq(world->schedule.refused_in_row, 0);
    schedule_turn(&world->schedule, 0);
    world->free--;
    ck_assert_int_eq(decide(world, 0, 1), KVG_EREFUSED);
    world->free++;
    free_world(world);
}
END_TEST

/* ---- anything, in any order */

typedef struct Wish {
    uint32_t prompt, more;
    int      system, open;
} Wish;

static void do_something(World *world, Wish *wish, uint32_t *asked)
{
    uint32_t i = (uint32_t)rand() % (*asked + 1), lane = (uint32_t)rand() % world->schedule.lanes;
    char     id[16];

    if (rand() % 4 == 0 && *asked < REQUESTS_MAX) {
        wish[*asked] = (Wish){ 1 + (uint32_t)rand() % 200, 1 + (uint32_t)rand() % 60, rand() % 2, 1 };
        ck_assert_int_eq(add(world, (int)*asked, wish[*asked].prompt, wish[*asked].more, wish[*asked].system), KVG_OK);
        ++*asked;
    } else if (rand() % 40 == 0 && i < *asked) {
        snprintf(id, sizeof id, "%u", i);
        wish[i].open &= !schedule_abort(&world->schedule, id);
    } else if (world->busy[lane]) {
        ck_assert_int_eq(decide(world, lane, rand() % 10 != 0), KVG_OK);
    }
    if (rand() % 2 == 0) schedule_turn(&world->schedule, 0);
}

START_TEST(test_whatever_happens_tokens_and_chunks_are_right)
{
    static Wish wish[REQUESTS_MAX];
    uint32_t    asked = 0;
    World      *world;

    srand((unsigned)_i);
    world = make_world(1 + (uint32_t)rand() % 3, 1 + (uint32_t)rand() % 5, 1 + (uint32_t)rand() % 100, (uint32_t)rand() % 5, rand() % 3 != 0);
    ck_assert_int_eq(add(world, -1, PROMPT, 0, 0), KVG_OK);
    for (int turn = 0; turn < 1500; turn++) do_something(world, wish, &asked);
    for (int turn = 0; world->schedule.request_count > 1; turn++) {
        ck_assert_msg(turn < 200000, "seed %d: requests are left that never end", _i);
        schedule_turn(&world->schedule, 0);
        for (uint32_t lane = 0; lane < world->schedule.lanes; lane++) {
            if (world->busy[lane]) ck_assert_int_eq(decide(world, lane, 1), KVG_OK);
        }
    }
    for (uint32_t i = 0; i < asked; i++) {
        ck_assert_msg(told_right(world, (int)i, wish[i].prompt, wish[i].system) && (world->count[i] == wish[i].more || !wish[i].open),
                      "seed %d: request %u was told something else", _i, i);
    }
    free_world(world);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("embed schedule");
    TCase   *tcase = tcase_create("schedule");
    SRunner *sr;

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, test_a_prompt_is_staged_in_chunks_and_its_end_samples);
    tcase_add_test(tcase, test_an_abort_closes_an_undecided_sequence_and_its_outcome_is_not_looked_at);
    tcase_add_test(tcase, test_chunks_that_run_out_are_taken_from_the_youngest);
    tcase_add_test(tcase, test_what_never_fits_is_refused_and_what_just_fits_is_not);
    tcase_add_test(tcase, test_the_queue_has_an_end);
    tcase_add_test(tcase, test_forks_wait_for_the_shared_prompt);
    tcase_add_test(tcase, test_a_step_that_is_voted_down_is_staged_again_and_another_ledger_is_a_bug);
    tcase_add_loop_test(tcase, test_whatever_happens_tokens_and_chunks_are_right, 0, 40);
    suite_add_tcase(suite, tcase);
    sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr), run = srunner_ntests_run(sr);
    srunner_free(sr);
    return failed == 0 && run > 0 ? 0 : 1;
}

/* Records: one rank of a 2x2 grid, with records of any content from the other three. Nobody else runs: what it decides rests on these alone.
 * Each record begins as what an honest rank would have posted for a step, and is then changed as the input says. */
#include "tests/fuzz/ranks.h"

#define STEPS_MAX 8
#define CALLS_MAX 200
#define BYTES_MAX ((uint64_t)8 << 20)

typedef struct Attack {
    FuzzRanks r;
    KvgStep  *step[STEPS_MAX]; /* begun, by number % STEPS_MAX */
    KvgStep  *open;            /* begun and not posted */
} Attack;

static void open_or_close(Attack *a, uint8_t which, uint64_t rows)
{
    KvgSequence **sequence = &a->r.sequence[0][which % FUZZ_SEQUENCES];

    if (*sequence == NULL) {
        kvg_sequence_open(a->r.placement[0], which % FUZZ_SEQUENCES, rows, sequence);
    } else if (kvg_sequence_close(*sequence, NULL) == KVG_OK) {
        *sequence = NULL;
    }
}

static void begin(Attack *a, FuzzInput *input)
{
    uint32_t rows[FUZZ_SEQUENCES];
    KvgStep *step = NULL;

    if (a->open != NULL) {
        return;
    }
    for (uint32_t i = 0; i < FUZZ_SEQUENCES; i++) {
        kvg_batch_set(a->r.batch[0], i, a->r.sequence[0][i]);
        rows[i] = a->r.sequence[0][i] != NULL ? fuzz_u8(input) % 80 : 0;
    }
    if (kvg_step_begin(a->r.batch[0], rows, &step) == KVG_OK) {
        a->open = a->step[kvg_step_number(step) % STEPS_MAX] = step;
    }
}

static void post(Attack *a, uint8_t how)
{
    KvgCommit commit = KVG_COMMIT_INIT;

    if (a->open == NULL) {
        return;
    }
    commit.accept_all = how & 1;
    commit.refuse = (how & 6) == 6 ? (KvgStatus)(how >> 3) % KVG_STATUS_COUNT : KVG_OK;
    if (kvg_step_post(a->open, &commit) == KVG_OK) {
        a->open = NULL;
    }
}

/* As an honest rank would answer the step `number`; the last stage accepts some or all rows. */
static void honest(const Attack *a, uint64_t number, int from, uint16_t accepted, KvVoteRecord *record)
{
    KvgVotes           *votes = a->r.grid[0]->votes;
    const KvRecordSlot *slot = &votes->records[number % votes->ring];

    memset(record, 0, votes->record_bytes);
    if (slot->step == number && slot->present[0]) {
        memcpy(record, slot->record[0], votes->record_bytes);
        record->status = 0;
    }
    record->step = number;
    record->epoch = a->r.grid[0]->epoch;
    record->rank = (uint16_t)from;
    if (from >= 2) { /* the last stage: what rank 0 passed, else its own */
        record->layout = 1;
        for (uint32_t i = 0; record->accepted == 0 && i < record->count; i++) {
            record->accepted_rows[i] = accepted;
        }
        record->accepted += record->accepted == 0;
    }
}

static void put(Attack *a, FuzzInput *input)
{
    KvgVotes     *votes = a->r.grid[0]->votes;
    size_t        bytes = votes->record_bytes;
    KvVoteRecord *record = malloc(bytes); /* of just this size */
    uint8_t       how = fuzz_u8(input);
    int           from = 1 + how % 3;

    FUZZ_CHECK(record != NULL);
    honest(a, votes->decided + how / 4 % 4, from, fuzz_u16(input), record);
    for (uint32_t i = 0; i < how / 64u; i++) { /* then changed */
        uint8_t  where = fuzz_u8(input), width = (uint8_t)(1u << where % 4);
        size_t   at = fuzz_u8(input) % bytes / width * width;
        uint64_t value = fuzz_any(input);

        memcpy((uint8_t *)record + at, &value, at + width <= bytes ? width : bytes - at);
    }
    kvg_records_put(votes, from, record);
    free(record);
}

/* A published step has grown its sequences by what was staged at most; one that is not, by nothing. */
static void test(Attack *a, uint8_t which)
{
    KvgStep   *step = a->step[which % STEPS_MAX];
    KvgOutcome outcome = { .size = sizeof outcome };
    int        done = 0;

    if (step == NULL || step == a->open) {
        return;
    }
    KvgStatus status = kvg_step_test(step, &done, &outcome);

    if (!done) {
        return;
    }
    FUZZ_CHECK(status == outcome.status && (status == KVG_OK) == (outcome.kind == KVG_OUTCOME_PUBLISHED) && outcome.field != NULL);
    for (uint32_t i = 0; i < FUZZ_SEQUENCES; i++) {
        FUZZ_CHECK(status == KVG_OK ? outcome.accepted[i] < 80 : outcome.accepted[i] == 0);
    }
}

static void settle_alone(Attack *a)
{
    const int   alone = 0;
    KvgSetup   *setups[FUZZ_RANKS_MAX] = { NULL };
    KvgStatus   results[FUZZ_RANKS_MAX];

    if (kvg_grid_settle_start(a->r.grid[0], &alone, 1, &setups[0]) == KVG_OK) {
        ranks_finish(&a->r, setups, results);
        FUZZ_CHECK(results[0] == KVG_OK);
        a->open = kvg_grid_state(a->r.grid[0]) == KVG_OK ? a->open : NULL; /* it was rolled back */
    }
}

static void call(Attack *a, FuzzInput *input)
{
    uint8_t what = fuzz_u8(input);

    switch (what % 16) {
    case 0: case 1: open_or_close(a, what / 16, fuzz_u8(input)); break;
    case 2: case 3: begin(a, input); break;
    case 4: case 5: post(a, fuzz_u8(input)); break;
    case 6: case 7: case 8: case 9: put(a, input); break;
    case 10: case 11: case 12: test(a, what / 16); break;
    case 13: kvg_inproc_advance_ns(a->r.hub, (uint64_t)fuzz_u8(input) * 1000000); break;
    case 14: kvg_grid_progress(a->r.grid[0]); break;
    default: if (what == 255) settle_alone(a);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzCount count = fuzz_begin();
    FuzzInput input = { data, size };
    Attack    a = { .open = NULL };

    ranks_connect(&a.r, 2, 2);
    ranks_place(&a.r);
    FUZZ_CHECK(a.r.placement[0] != NULL);
    for (int i = 0; i < CALLS_MAX && input.left > 0; i++) {
        call(&a, &input);
        ranks_check(&a.r, 0);
    }
    ranks_close(&a.r);
    fuzz_end(&count, size, 64, BYTES_MAX);
    return 0;
}

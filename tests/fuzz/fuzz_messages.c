/* Messages: two ranks walk through set-up calls and steps, and what one of them says (messages and records) is changed on its way as the input says.
 * Either may then find the other at fault, be in doubt, or settle; neither may break, wait past its deadline, or keep memory. */
#include "tests/fuzz/ranks.h"

#define CALLS_MAX 24
#define GROWTH    40 /* a message gets at most so much longer */
#define BYTES_MAX ((uint64_t)16 << 20)

static struct {
    KvComm    inner; /* of the rank whose words are changed */
    FuzzInput input;
} wire;

/* ---- a comm that speaks for that rank */

/* Changes bytes [0, count) of a buffer with room for GROWTH more; returns the new count. */
static size_t change(uint8_t *bytes, size_t count, uint8_t how)
{
    uint64_t value = fuzz_any(&wire.input);
    size_t   at = fuzz_u8(&wire.input);

    switch (how % 5) {
    case 0: return count > 0 ? (size_t)value % count : 0;
    case 1: return count + (size_t)value % GROWTH;
    case 2: at = count > 0 ? at % count : 0; bytes[at] ^= (uint8_t)value; return count;
    case 3: at = at * 4 % (count + 4); memcpy(bytes + at, &value, 4); return count;
    default: at = at * 8 % (count + 8); memcpy(bytes + at, &value, 8); return count;
    }
}

/* How often a message goes out: dropped, once, twice. */
static int changed(const void *bytes, size_t *count, uint8_t **copy)
{
    uint8_t how = fuzz_u8(&wire.input);

    *copy = calloc(1, *count + GROWTH + 16);
    FUZZ_CHECK(*copy != NULL);
    if (*count > 0) {
        memcpy(*copy, bytes, *count);
    }
    for (int i = 0; i < how % 4 - 1; i++) {
        *count = change(*copy, *count, (uint8_t)(how / 4 + i));
    }
    return how >= 0xfc ? 0 : how >= 0xf8 ? 2 : 1;
}

static KvgStatus wire_send(void *self, int peer, const void *bytes, size_t byte_count)
{
    uint8_t  *copy = NULL;
    KvgStatus status = KVG_OK;

    for (int times = changed(bytes, &byte_count, &copy); times > 0; times--) {
        status = wire.inner.ops->send(self, peer, copy, byte_count);
    }
    free(copy);
    return status;
}

static size_t record_bytes;

static KvgStatus wire_records_open(void *self, size_t bytes)
{
    record_bytes = bytes;
    return wire.inner.ops->records_open(self, bytes);
}

/* Half of the time the rank itself goes by what it says: then both know of a disagreement. */
static KvgStatus wire_post(void *self, const void *record)
{
    uint8_t  *copy = NULL;
    size_t    bytes = record_bytes;
    KvgStatus status = KVG_OK;
    int       believed = fuzz_u8(&wire.input) & 1;
    int       times = changed(record, &bytes, &copy);

    if (believed) {
        memcpy((void *)record, copy, record_bytes);
    }
    for (; times > 0; times--) {
        status = wire.inner.ops->post(self, copy);
    }
    free(copy);
    return status;
}

static KvCommOps wire_ops;

static void tap_wire(KvgGrid *grid, const FuzzInput *input)
{
    wire.inner = grid->comm;
    wire.input = *input;
    wire_ops = *grid->comm.ops;
    wire_ops.send = wire_send;
    wire_ops.post = wire_post;
    wire_ops.records_open = wire_records_open;
    grid->comm.ops = &wire_ops;
}

/* ---- what both ranks do */

static int placed(const FuzzRanks *r)
{
    return r->placement[0] != NULL && r->placement[1] != NULL;
}

static void open_or_close(FuzzRanks *r, uint8_t which)
{
    for (int rank = 0; rank < r->ranks; rank++) {
        KvgSequence **sequence = &r->sequence[rank][which % FUZZ_SEQUENCES];

        if (*sequence == NULL) {
            kvg_sequence_open(r->placement[rank], which % FUZZ_SEQUENCES, which, sequence);
        } else if (kvg_sequence_close(*sequence, NULL) == KVG_OK) {
            *sequence = NULL;
        }
    }
}

static KvgStep *begin_and_post(FuzzRanks *r, int rank, uint8_t how)
{
    uint32_t  rows[FUZZ_SEQUENCES];
    KvgCommit commit = KVG_COMMIT_INIT;
    KvgStep  *step = NULL;

    for (uint32_t i = 0; i < FUZZ_SEQUENCES; i++) {
        kvg_batch_set(r->batch[rank], i, r->sequence[rank][i]);
        rows[i] = r->sequence[rank][i] != NULL ? (uint32_t)how % 70 : 0;
    }
    if (kvg_step_begin(r->batch[rank], rows, &step) != KVG_OK) {
        return NULL;
    }
    commit.accept_all = 1;
    commit.refuse = how == 255 && rank == 0 ? KVG_ENOMEM : KVG_OK;
    FUZZ_CHECK(kvg_step_post(step, &commit) == KVG_OK || kvg_grid_state(r->grid[rank]) != KVG_OK);
    return step;
}

static void step(FuzzRanks *r, uint8_t how)
{
    KvgStep *steps[2];
    int      done[2], left = 2;

    for (int rank = 0; rank < 2; rank++) {
        steps[rank] = begin_and_post(r, rank, how);
        done[rank] = steps[rank] == NULL;
        left -= done[rank];
    }
    for (int rounds = 0; left > 0; rounds++) {
        FUZZ_CHECK(rounds < FUZZ_ROUNDS_MAX);
        for (int rank = 0; rank < 2; rank++) {
            if (!done[rank]) {
                KvgStatus status = kvg_step_test(steps[rank], &done[rank], NULL);
                done[rank] |= status == KVG_EINDOUBT || status == KVG_EPEER || status == KVG_ELAYOUT;
                left -= done[rank];
            }
        }
        kvg_inproc_advance_ns(r->hub, 1000000);
    }
}

typedef KvgStatus (*StartFn)(FuzzRanks *r, int rank, uint8_t how, KvgSetup **setup);

static KvDigest          digests[2];
static KvgRebuildReport *reports[2];
static DflashTapSink    *sinks[2];

static KvgStatus start_digest(FuzzRanks *r, int rank, uint8_t how, KvgSetup **setup)
{
    return kvg_sequence_digest_start(r->sequence[rank][how % FUZZ_SEQUENCES], &digests[rank], setup);
}

static KvgStatus start_resize(FuzzRanks *r, int rank, uint8_t how, KvgSetup **setup)
{
    return kvg_placement_resize_start(r->placement[rank], 1 + ((uint64_t)how << 12), setup);
}

static KvgStatus start_sleep(FuzzRanks *r, int rank, uint8_t how, KvgSetup **setup)
{
    (void)how;
    return kvg_placement_asleep(r->placement[rank]) ? kvg_placement_wake_start(r->placement[rank], setup) : kvg_placement_sleep_start(r->placement[rank], setup);
}

static KvgStatus start_settle(FuzzRanks *r, int rank, uint8_t how, KvgSetup **setup)
{
    static const int both[2] = { 0, 1 };

    (void)how;
    return kvg_grid_settle_start(r->grid[rank], both, 2, setup);
}

/* How many voted changes a rank has published that is in doubt about a rebuild; else UINT64_MAX. */
static uint64_t published_in_doubt(const KvgGrid *grid)
{
    return grid->cast != NULL && strcmp(grid->cast->what, "kvg_grid_rebuild") == 0 ? grid->changes : UINT64_MAX;
}

/* A rebuild that was in doubt and is published by a settle gives no report: what it has closed is found by asking. */
static void forget_closed(FuzzRanks *r, int rank)
{
    for (int i = 0; i < FUZZ_SEQUENCES; i++) {
        if (r->sequence[rank][i] != NULL && kvg_sequence_info(r->sequence[rank][i], NULL) == KVG_ESTALE) r->sequence[rank][i] = NULL;
    }
}

static void together(FuzzRanks *r, StartFn start, uint8_t how)
{
    KvgSetup *setups[FUZZ_RANKS_MAX] = { NULL };
    KvgStatus results[FUZZ_RANKS_MAX];
    uint64_t  before[FUZZ_RANKS_MAX];

    for (int rank = 0; rank < r->ranks; rank++) {
        before[rank] = published_in_doubt(r->grid[rank]);
        if (start(r, rank, how, &setups[rank]) != KVG_OK) {
            setups[rank] = NULL;
        }
    }
    ranks_finish(r, setups, results);
    for (int rank = 0; rank < r->ranks; rank++) {
        if (before[rank] != UINT64_MAX && before[rank] != r->grid[rank]->changes) {
            forget_closed(r, rank);
        }
    }
}

/* Both survive: what each says it holds is compared, planned by, and voted on. */
static KvgStatus start_rebuild(FuzzRanks *r, int rank, uint8_t how, KvgSetup **setup)
{
    static const int both[2] = { 1, 0 };

    (void)how;
    return kvg_grid_rebuild_start(r->grid[rank], both, 2, NULL, &reports[rank], setup);
}

static void rebuild(FuzzRanks *r, uint8_t how)
{
    together(r, start_rebuild, how);
    for (int rank = 0; rank < 2; rank++) {
        for (int i = 0; reports[rank] != NULL && i < FUZZ_SEQUENCES; i++) { /* what is closed has no handle any more */
            for (uint32_t n = 0; n < reports[rank]->count; n++) {
                if (reports[rank]->sequences[n].id == (uint64_t)i && reports[rank]->sequences[n].sequence == NULL) r->sequence[rank][i] = NULL;
            }
        }
        kvg_rebuild_report_free(reports[rank]);
        reports[rank] = NULL;
    }
}

static KvgStatus start_taps(FuzzRanks *r, int rank, uint8_t how, KvgSetup **setup)
{
    return kvg_taps_gather_start(r->grid[rank], sinks[rank], how % 5, NULL, setup);
}

static void gather_taps(FuzzRanks *r, uint8_t how)
{
    static const uint32_t tapped[2] = { 0, 3 };
    KvDev                 device;
    float                 row[8] = { 1, 2, 3 };

    FUZZ_CHECK(kvg_dev_host(&device) == KVG_OK);
    for (int rank = 0; rank < 2; rank++) {
        uint32_t lo, hi;
        kvg_placement_layers(r->placement[rank], &lo, &hi);
        FUZZ_CHECK(kvg_dflash_tap_new(&device, tapped, 2, lo, hi, 8, 4, KVG_F32, &sinks[rank]) == KVG_OK);
        FUZZ_CHECK(kvg_dflash_tap_arm(sinks[rank], 0) == KVG_OK);
        for (uint32_t n = 0; n < 8; n++) {
            if (lo <= tapped[n / 4] && tapped[n / 4] < hi) FUZZ_CHECK(kvg_dflash_tap_write(sinks[rank], tapped[n / 4], n % 4, 1, row, 0, NULL) == KVG_OK);
        }
    }
    together(r, start_taps, how);
    for (int rank = 0; rank < 2; rank++) kvg_dflash_tap_free(sinks[rank]);
    kvg_dev_close(&device);
}

static void call(FuzzRanks *r, uint8_t what, uint8_t how)
{
    if (what >= 0xf0) {
        (what % 2 == 0 ? rebuild : gather_taps)(r, how);
        return;
    }
    switch (what % 8) {
    case 0: case 1: open_or_close(r, how); break;
    case 2: case 3: step(r, how); break;
    case 4: together(r, start_digest, how); break;
    case 5: together(r, start_resize, how); break;
    case 6: together(r, start_sleep, how); break;
    default: together(r, start_settle, how);
    }
}

/* The first bytes say what is done, the rest how the wire changes what is said. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzCount count = fuzz_begin();
    FuzzInput input = { data, size };
    FuzzRanks r;
    uint8_t   shape = fuzz_u8(&input), calls[CALLS_MAX][2];
    size_t    call_count = shape % 128 / 2 % CALLS_MAX;

    for (size_t i = 0; i < call_count; i++) {
        calls[i][0] = fuzz_u8(&input);
        calls[i][1] = fuzz_u8(&input);
    }
    ranks_connect(&r, shape % 2 != 0 ? 2 : 1, shape % 2 != 0 ? 1 : 2);
    tap_wire(r.grid[shape < 128 ? 1 : 0], &input);
    ranks_place(&r);
    for (size_t i = 0; i < call_count && placed(&r); i++) {
        call(&r, calls[i][0], calls[i][1]);
        ranks_check(&r, 0);
        ranks_check(&r, 1);
    }
    ranks_close(&r);
    fuzz_end(&count, size, 64, BYTES_MAX);
    return 0;
}

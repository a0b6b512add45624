/* Records by a carrier, without a GPU: the state machines of the board's and the gather's over memory that forked ranks share. */
#include <check.h>

#include "kernels/comm_board.h"
#include "kernels/comm_gather.h"
#include "kernels/kvgrid_comm_board.h"
#include "kernels/kvgrid_vote.h"
#include "runtime/base/memory.h"
#include "tests/support/comm_life.h"

enum { RANKS_MAX = 4, SLOTS = 8, RECORD_MAX = 256, GATHERS = 64 };

typedef struct Wires { /* shared by the ranks */
    atomic_flag busy; /* units are 16 bytes in one access on a device; here under a lock */
    atomic_int  gathers[RANKS_MAX]; /* all-gathers that each has begun */
    uint8_t     gathered[GATHERS][RANKS_MAX][RECORD_MAX];
    uint8_t     blocks[RANKS_MAX][1 << 15];
} Wires;

typedef struct Fake { /* a rank's */
    Wires      *wires;
    KvVoteBoard board;
    uint32_t    breaks; /* 0: never */
    uint32_t    sent;
    uint8_t    *memory;
    /* gather */
    size_t      stride;
    uint32_t    places, asked;
    int         begun, stopped;
    int         nth[2 * SLOTS]; /* [places] */
    KvGatherPlaces at;
} Fake;

static void lock(Wires *wires)
{
    while (atomic_flag_test_and_set(&wires->busy)) {
        sched_yield();
    }
}

static KvgStatus count_sent(Fake *fake)
{
    fake->sent++;
    return fake->breaks != 0 && fake->sent > fake->breaks ? kvg_fail(KVG_EDEVICE, "the device fell off the bus") : KVG_OK;
}

static KvgStatus get_memory(Fake *fake, size_t bytes)
{
    void *memory = NULL;
    KVG_TRY(kvg_calloc(1, bytes, "a fake", &memory));
    kvg_free(fake->memory);
    fake->memory = memory;
    return KVG_OK;
}

static void fake_close(void *user)
{
    Fake *fake = user;
    kvg_free(fake->memory);
    kvg_free(fake);
}

/* ---- a board by its host twins */

static KvgStatus board_open(void *user, size_t record_stride, KvBoardPlaces *memory)
{
    Fake *fake = user;
    KVG_TRY(get_memory(fake, fake->board.slots * (record_stride + kvg_vote_slot_bytes(&fake->board))));
    *memory = (KvBoardPlaces){ fake->memory, fake->memory + fake->board.slots * record_stride };
    return KVG_OK;
}

static KvgStatus board_send(void *user, const KvVoteRecord *record)
{
    Fake *fake = user;
    KVG_TRY(count_sent(fake));
    lock(fake->wires);
    kvg_vote_send_ref(&fake->board, record);
    atomic_flag_clear(&fake->wires->busy);
    return KVG_OK;
}

static KvgStatus board_peek(void *user, uint64_t step, void *units)
{
    Fake        *fake = user;
    const size_t bytes = kvg_vote_slot_bytes(&fake->board);
    lock(fake->wires);
    memcpy(units, fake->board.base + fake->board.rank * fake->board.stride + (step & (fake->board.slots - 1)) * bytes, bytes);
    atomic_flag_clear(&fake->wires->busy);
    return KVG_OK;
}

static KvgStatus board_mark(void *user)
{
    ((Fake *)user)->asked = 0;
    return KVG_OK;
}

static KvgStatus board_passed(void *user, int *yes)
{
    *yes = ++((Fake *)user)->asked > 1; /* never at the first look */
    return KVG_OK;
}

static const KvBoardActs board_acts = { board_open, board_send, board_peek, board_mark, board_passed, fake_close };

/* ---- all-gathers */

static KvgStatus gather_open(void *user, size_t stride, uint32_t places, KvGatherPlaces *memory)
{
    Fake *fake = user;
    fake->stride = stride;
    fake->places = places;
    KVG_TRY(get_memory(fake, places * stride * (1 + fake->board.ranks)));
    *memory = fake->at = (KvGatherPlaces){ fake->memory, fake->memory + places * stride };
    return KVG_OK;
}

static KvgStatus gather_start(void *user, uint32_t place)
{
    Fake *fake = user;
    KVG_ASSERT(!fake->stopped && fake->asked == 0); /* one at a time is being launched */
    KVG_TRY(count_sent(fake));
    fake->asked = 1;
    fake->nth[place] = fake->begun++;
    memcpy(fake->wires->gathered[fake->nth[place] % GATHERS][fake->board.rank], fake->at.own + place * fake->stride, fake->stride);
    atomic_store(&fake->wires->gathers[fake->board.rank], fake->begun);
    return KVG_OK;
}

static KvgStatus gather_launched(void *user, uint32_t place, int *yes)
{
    Fake *fake = user;
    (void)place;
    *yes = ++fake->asked > 3;
    fake->asked = *yes ? 0 : fake->asked;
    return KVG_OK;
}

static KvgStatus gather_arrived(void *user, uint32_t place, int *yes)
{
    Fake *fake = user;
    *yes = 1;
    for (uint32_t rank = 0; rank < fake->board.ranks; rank++) {
        *yes &= atomic_load(&fake->wires->gathers[rank]) > fake->nth[place];
    }
    for (uint32_t rank = 0; *yes && rank < fake->board.ranks; rank++) {
        memcpy(fake->at.all + (place * fake->board.ranks + rank) * fake->stride, fake->wires->gathered[fake->nth[place] % GATHERS][rank], fake->stride);
    }
    return KVG_OK;
}

static void gather_stop(void *user)
{
    Fake *fake = user;
    KVG_ASSERT(!fake->stopped);
    fake->stopped = 1;
}

static const KvGatherActs gather_acts = { gather_open, gather_start, gather_launched, gather_arrived, gather_stop, fake_close };

/* ---- making them */

static KvgStatus fake_new(int rank, int ranks, uint32_t tp, Wires *wires, Fake **fake)
{
    void *memory = NULL;
    KVG_TRY(kvg_calloc(1, sizeof **fake, "a fake", &memory));
    *fake = memory;
    (*fake)->wires = wires;
    (*fake)->board = (KvVoteBoard){ .base = wires->blocks[0], .stride = sizeof wires->blocks[0], .rank = (uint32_t)rank, .ranks = (uint32_t)ranks,
                                    .tp = tp, .slots = SLOTS, .sequences_max = COMM_SEQUENCES + 3 };
    return KVG_OK;
}

static KvgStatus make(ForkRank *rank, const CommCase *it, const KvComm *base, const KvLiveness *liveness, int board, KvComm *comm)
{
    const KvCarriedOptions carried = { .base = *base, .liveness = liveness, .timeout_ms = COMM_TIMEOUT_MS };
    Fake                  *fake = NULL;

    KVG_TRY(fake_new(rank->bootstrap.rank, rank->bootstrap.ranks, it->tp, it->extra, &fake));
    fake->breaks = it->fault == COMM_BREAKS && rank->bootstrap.rank == 1 ? it->breaks : 0;
    if (board) {
        return kvg_comm_board(&carried, &fake->board, &board_acts, fake, comm);
    }
    const KvGatherOptions gather = { .name = "gather", .rank = rank->bootstrap.rank, .ranks = rank->bootstrap.ranks, .places = SLOTS,
                                     .acts = &gather_acts, .user = fake };
    return kvg_comm_gather(&carried, &gather, comm);
}

static KvgStatus make_board(ForkRank *rank, const CommCase *it, const KvComm *base, const KvLiveness *liveness, KvComm *comm)
{
    return make(rank, it, base, liveness, 1, comm);
}

static KvgStatus make_gather(ForkRank *rank, const CommCase *it, const KvComm *base, const KvLiveness *liveness, KvComm *comm)
{
    return make(rank, it, base, liveness, 0, comm);
}

static void run(CommCase it, CommResult *result)
{
    Wires *wires = mmap(NULL, sizeof *wires, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    ck_assert_ptr_ne(wires, MAP_FAILED);
    it.extra = wires;
    int bad = comm_run(&it, 40000, result);
    munmap(wires, sizeof *wires);
    for (int rank = 0; bad > 0 && rank < (int)(it.tp * it.pp); rank++) {
        ck_assert_msg(result->codes[rank] == (it.fault == COMM_DIES && rank == 1 ? FORK_KILLED : 0), "%s: rank %d ended with %d", it.name, rank,
                      result->codes[rank]);
    }
}

static const CommCase both[] = { { .name = "board", .make = make_board }, { .name = "gather", .make = make_gather } };

/* ---- tests */

START_TEST(test_outcomes_and_digests_are_those_of_the_mesh)
{
    static const uint32_t shapes[][2] = { { 2, 1 }, { 1, 2 }, { 2, 2 } };
    const uint32_t       *shape = shapes[_i];
    CommResult            host, result;

    run((CommCase){ .name = "mesh", .tp = shape[0], .pp = shape[1], .steps = 400 }, &host);
    for (size_t i = 0; i < 2; i++) {
        CommCase it = both[i];
        it.tp = shape[0], it.pp = shape[1], it.steps = 400;
        run(it, &result);
        for (uint32_t rank = 0; rank < shape[0] * shape[1]; rank++) {
            ck_assert_uint_eq(result.outcomes[rank], host.outcomes[0]);
            ck_assert_uint_eq(result.digest[rank], host.digest[0]);
            ck_assert_int_eq(result.moved[rank], 0);
        }
    }
}
END_TEST

/* What a peer's fault leaves: the host's outcomes after it, and one line on each rank that went on. */
static void faulty(CommFault fault, int moved_board, int moved_gather)
{
    CommResult host, result;

    run((CommCase){ .name = "mesh", .tp = 2, .pp = 1, .steps = 20, .fault = fault }, &host);
    for (size_t i = 0; i < 2; i++) {
        CommCase it = both[i];
        it.tp = 2, it.pp = 1, it.steps = 20, it.fault = fault;
        run(it, &result);
        ck_assert_uint_eq(result.outcomes[0], host.outcomes[0]);
        ck_assert_uint_eq(result.digest[0], host.digest[0]);
        if (fault == COMM_DIES) { /* on a busy machine the vote may have given up between two looks */
            ck_assert_int_le(result.moved[0], moved_gather);
        } else {
            ck_assert_msg(result.moved[0] == (i == 0 ? moved_board : moved_gather), "%s: %d lines", it.name, result.moved[0]);
        }
        if (fault == COMM_STOPPED_BEFORE || fault == COMM_STOPPED_AFTER) {
            ck_assert_uint_eq(result.outcomes[1], host.outcomes[0]);
            ck_assert_uint_eq(result.digest[1], host.digest[0]);
            ck_assert_int_eq(result.moved[1], 1);
        }
    }
}

START_TEST(test_a_peer_that_stops_before_its_record_is_in_doubt_settles_and_goes_on_by_the_base)
{
    faulty(COMM_STOPPED_BEFORE, 1, 1);
}
END_TEST

START_TEST(test_a_record_counts_though_its_sender_has_stopped)
{
    faulty(COMM_STOPPED_AFTER, 1, 1);
}
END_TEST

START_TEST(test_a_peer_that_dies_leaves_the_committed_state_and_nothing_running)
{
    faulty(COMM_DIES, 0, 1);
}
END_TEST

START_TEST(test_leaving_with_a_record_under_way_waits_for_nobody)
{
    faulty(COMM_LEAVES, 0, 0);
}
END_TEST

START_TEST(test_a_carrier_that_fails_on_one_rank_puts_no_step_in_doubt)
{
    static const uint32_t breaks[] = { 1, 2, 7, 20 }; /* steps go in pairs: the first, the second of one */
    CommResult            host, result;

    run((CommCase){ .name = "mesh", .tp = 2, .pp = 1, .steps = 100 }, &host);
    for (size_t i = 0; i < 2; i++) {
        CommCase it = both[i];
        it.tp = 2, it.pp = 1, it.steps = 100, it.fault = COMM_BREAKS, it.breaks = breaks[_i];
        run(it, &result);
        for (int rank = 0; rank < 2; rank++) {
            ck_assert_uint_eq(result.outcomes[rank], host.outcomes[0]);
            ck_assert_uint_eq(result.digest[rank], host.digest[0]);
            ck_assert_int_eq(result.moved[rank], 1);
        }
    }
}
END_TEST

START_TEST(test_send_and_unpack_give_back_records_of_every_width)
{
    static const uint32_t widths[] = { 0, 1, 2, 3, 4, 5, 6, 7, 63, 64, 65, 256, 2000 };
    const uint32_t        width = widths[_i];
    KvVoteBoard           board = { .ranks = 3, .tp = 3, .slots = 4, .sequences_max = width };
    const size_t          bytes = kvg_vote_board_bytes(&board), record_bytes = (kvg_vote_record_bytes(width) + 15) / 8 * 8;
    KvVoteRecord         *sent = calloc(1, record_bytes), *got = calloc(1, record_bytes);

    board.base = calloc(3, bytes);
    board.stride = bytes;
    for (uint64_t step = 1; step <= 9; step++) {
        for (uint32_t rank = 0; rank < 3; rank++) {
            board.rank = rank;
            const uint8_t *units = board.base + 2 * bytes + (step & 3) * kvg_vote_slot_bytes(&board);
            ck_assert_int_eq(kvg_vote_unpack(&board, units, step, 5, rank, NULL), 0); /* not there yet, whatever stood there */
            for (size_t i = 0; i < kvg_vote_record_bytes(width); i++) ((uint8_t *)sent)[i] = (uint8_t)(step * 31 + rank * 7 + i);
            sent->step = step;
            sent->epoch = 5;
            kvg_vote_send_ref(&board, sent);
            ck_assert_int_eq(kvg_vote_unpack(&board, units, step, 5, rank, got), 1);
            ck_assert_mem_eq(got, sent, kvg_vote_record_bytes(width));
            ck_assert_int_eq(kvg_vote_unpack(&board, units, step, 6, rank, NULL), 0); /* an older epoch's */
            ck_assert_int_eq(kvg_vote_unpack(&board, units, step + 4, 5, rank, NULL), 0);
        }
    }
    free(board.base);
    free(sent);
    free(got);
}
END_TEST

/* ---- refusals, in one process */

static void open_pair(KvInproc **hub, KvComm base[2], KvLiveness liveness[2])
{
    ck_assert_int_eq(kvg_inproc_create(2, hub), KVG_OK);
    for (int rank = 0; rank < 2; rank++) ck_assert_int_eq(kvg_inproc_attach(*hub, rank, &base[rank], &liveness[rank]), KVG_OK);
}

START_TEST(test_what_does_not_fit_is_refused_by_name)
{
    static Wires wires;
    KvInproc    *hub;
    KvComm       base[2], comm;
    KvLiveness   liveness[2];
    Fake        *fake;
    uint64_t     live = kvg_live_allocations();

    open_pair(&hub, base, liveness);
    const KvCarriedOptions carried = { .base = base[0] };
    ck_assert_int_eq(fake_new(1, 2, 2, &wires, &fake), KVG_OK); /* not the base's rank */
    ck_assert_int_eq(kvg_comm_board(&carried, &fake->board, &board_acts, fake, &comm), KVG_EINVAL);
    fake->board.rank = 0;
    ck_assert_int_eq(kvg_comm_board(&carried, &fake->board, &board_acts, fake, &comm), KVG_OK);
    ck_assert_str_eq(comm.ops->name, "board");
    ck_assert_int_eq(comm.ops->records_open(comm.self, KVG_VOTE_HEADER_BYTES - 1), KVG_EINVAL); /* no vote */
    ck_assert_int_eq(comm.ops->records_open(comm.self, kvg_vote_record_bytes(COMM_SEQUENCES + 3)), KVG_OK);
    ck_assert_int_eq(comm.ops->records_open(comm.self, kvg_vote_record_bytes(COMM_SEQUENCES + 4)), KVG_EINVAL);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "max_step_sequences"));
    comm.ops->close(comm.self);
    base[1].ops->close(base[1].self);
    for (int rank = 0; rank < 2; rank++) liveness[rank].ops->close(liveness[rank].self);
    kvg_inproc_destroy(hub);
    ck_assert_uint_eq(kvg_live_allocations(), live);
}
END_TEST

START_TEST(test_past_its_places_a_gather_goes_on_by_the_base_and_loses_nothing)
{
    static Wires wires;
    KvInproc    *hub;
    KvComm       base[2], comm;
    KvLiveness   liveness[2];
    Fake        *fake;
    uint64_t     live = kvg_live_allocations();
    char         why[200] = "?";
    int          peer;

    open_pair(&hub, base, liveness);
    const KvCarriedOptions carried = { .base = base[0] };
    ck_assert_int_eq(fake_new(0, 2, 2, &wires, &fake), KVG_OK);
    const KvGatherOptions gather = { .name = "gather", .rank = 0, .ranks = 2, .places = 4, .acts = &gather_acts, .user = fake };
    ck_assert_int_eq(kvg_comm_gather(&carried, &gather, &comm), KVG_OK);
    ck_assert_int_eq(comm.ops->records_open(comm.self, KVG_VOTE_HEADER_BYTES), KVG_OK);
    ck_assert_int_eq(kvg_comm_on_devices(&comm, NULL, 0), 1);
    ck_assert_int_eq(kvg_comm_on_devices(&base[1], why, sizeof why), 0);
    ck_assert_str_eq(why, "");
    ck_assert_int_eq(base[1].ops->records_open(base[1].self, KVG_VOTE_HEADER_BYTES), KVG_OK);
    for (uint64_t step = 1; step <= 5; step++) { /* nobody else comes: the fifth finds no place */
        KvVoteRecord record = { .step = step, .epoch = 1 };
        ck_assert_int_eq(fake->stopped, 0);
        ck_assert_int_eq(comm.ops->post(comm.self, &record), KVG_OK);
        ck_assert_ptr_null(comm.ops->take(comm.self, &peer));
    }
    ck_assert_int_eq(fake->stopped, 1);
    ck_assert_int_eq(kvg_comm_on_devices(&comm, why, sizeof why), 0);
    ck_assert_ptr_nonnull(strstr(why, "4 steps are in flight"));
    for (uint64_t step = 2; step <= 5; step++) { /* the latest four; the first is decided before a fifth may be posted */
        const KvVoteRecord *record = base[1].ops->take(base[1].self, &peer);
        ck_assert_ptr_nonnull(record);
        ck_assert_uint_eq(record->step, step);
    }
    comm.ops->close(comm.self);
    base[1].ops->close(base[1].self);
    for (int rank = 0; rank < 2; rank++) liveness[rank].ops->close(liveness[rank].self);
    kvg_inproc_destroy(hub);
    ck_assert_uint_eq(kvg_live_allocations(), live);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("comm_carried");
    TCase *cases = tcase_create("comms");

    tcase_set_timeout(cases, 120);
    tcase_add_loop_test(cases, test_outcomes_and_digests_are_those_of_the_mesh, 0, 3);
    tcase_add_test(cases, test_a_peer_that_stops_before_its_record_is_in_doubt_settles_and_goes_on_by_the_base);
    tcase_add_test(cases, test_a_record_counts_though_its_sender_has_stopped);
    tcase_add_test(cases, test_a_peer_that_dies_leaves_the_committed_state_and_nothing_running);
    tcase_add_test(cases, test_leaving_with_a_record_under_way_waits_for_nobody);
    tcase_add_loop_test(cases, test_a_carrier_that_fails_on_one_rank_puts_no_step_in_doubt, 0, 4);
    tcase_add_loop_test(cases, test_send_and_unpack_give_back_records_of_every_width, 0, 13);
    tcase_add_test(cases, test_what_does_not_fit_is_refused_by_name);
    tcase_add_test(cases, test_past_its_places_a_gather_goes_on_by_the_base_and_loses_nothing);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner), run_count = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed == 0 && run_count > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

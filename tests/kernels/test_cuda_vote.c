/* The vote's kernels on one GPU: all ranks of a fleet on streams of one device, each block of the board in its memory. Between GPUs: gpu_vote. */
#include "tests/kernels/cuda_test.h"

#ifdef KVG_TEST_CUDA
#define REQUIRE(condition, ...) ck_assert_msg(condition, __VA_ARGS__)
#include <kvgrid/kvgrid_vote.h>

#include "tests/kernels/vote_gpu.h"

enum { RANKS_MOST = 4 };

typedef struct Host { /* mapped */
    KvVoteControl control;
    uint64_t      outcome[RANKS_MOST][GPU_LANES_MAX];
} Host;

typedef struct Device {
    Fleet    fleet[GPU_LANES_MAX];
    GpuRank  rank[RANKS_MOST];
    Host    *host, *host_device;
    uint8_t *blocks;
    uint32_t lanes;
} Device;

static void meet(void)
{
}

/* KVGRID_TIMEOUT_MS is set where kernels run many times slower, under compute-sanitizer: deadlines are as long then, and cases that wait for one
 * are left out. 0: not set. */
static uint64_t patient_ms(void)
{
    const char *wanted = getenv("KVGRID_TIMEOUT_MS");
    return wanted != NULL ? strtoull(wanted, NULL, 10) : 0;
}

static void device_open(Device *device, const Scene *scene, uint32_t lanes, int split)
{
    memset(device, 0, sizeof *device);
    device->lanes = lanes;
    CU(cudaHostAlloc((void **)&device->host, sizeof(Host), cudaHostAllocMapped));
    memset(device->host, 0, sizeof(Host));
    CU(cudaHostGetDevicePointer((void **)&device->host_device, device->host, 0));
    kvg_vote_allow(&device->host->control, patient_ms() != 0 ? patient_ms() * 1000 : 300000);
    for (uint32_t l = 0; l < lanes; l++) fleet_open(&device->fleet[l], scene);
    if (lanes == 2) gpu_two_lanes(device->fleet);
    size_t bytes = scene->ranks * device->fleet[0].block_bytes;
    CU(cudaMalloc((void **)&device->blocks, bytes));
    CU(cudaMemset(device->blocks, 0, bytes));
    for (uint32_t r = 0; r < scene->ranks; r++) {
        GpuRank *rank = &device->rank[r];
        rank->board = fleet_board(&device->fleet[0], r);
        rank->board.base = device->blocks;
        rank->board.control = &device->host_device->control;
        rank->lanes = lanes;
        rank->split = split;
        rank->walks = 1;
        CU(cudaStreamCreateWithFlags(&rank->stream, cudaStreamNonBlocking));
        for (uint32_t l = 0; l < lanes; l++) {
            gpu_lane_open(&rank->lane[l], scene, &device->host->outcome[r][l], &device->host_device->outcome[r][l]);
            gpu_lane_upload(&rank->lane[l], device->fleet[l].arena[r]);
        }
    }
}

static void device_close(Device *device)
{
    CU(cudaDeviceSynchronize());
    for (uint32_t r = 0; r < device->fleet[0].scene.ranks; r++) {
        for (uint32_t l = 0; l < device->lanes; l++) gpu_lane_close(&device->rank[r].lane[l]);
        CU(cudaStreamDestroy(device->rank[r].stream));
    }
    if (device->lanes == 2) device->fleet[1].blocks = NULL; /* the first one's */
    for (uint32_t l = 0; l < device->lanes; l++) fleet_close(&device->fleet[l]);
    CU(cudaFree(device->blocks));
    CU(cudaFreeHost(device->host));
}

static const struct { Scene scene; uint32_t lanes; int split; } soaks[] = {
    { { .ranks = 1, .tp = 1, .entries = 1, .slots = 2, .rows_most = 1, .fault_every = 60, .seed = 11 }, 1, 0 },
    { { .ranks = 1, .tp = 1, .entries = 0, .slots = 2, .rows_most = 1, .fault_every = 60, .all = 1, .seed = 12 }, 1, 1 },
    { { .ranks = 2, .tp = 2, .entries = 64, .slots = 4, .columns = 5, .rows_most = 8, .fault_every = 60, .all = 1, .seed = 13 }, 1, 0 },
    { { .ranks = 2, .tp = 2, .entries = 64, .slots = 4, .columns = 5, .rows_most = 8, .fault_every = 60, .unready = 1, .seed = 18 }, 1, 0 },
    { { .ranks = 2, .tp = 2, .entries = 256, .slots = 4, .rows_most = 8, .fault_every = 60, .last_every = 37, .all = 1, .seed = 19 }, 1, 0 },
    { { .ranks = 4, .tp = 4, .entries = 97, .slots = 8, .rows_most = 70000, .fault_every = 60, .one_epoch = 1, .last_every = 41, .all = 1, .seed = 25 }, 2, 0 },
    { { .ranks = 1, .tp = 1, .entries = 31, .slots = 2, .rows_most = 3, .fault_every = 60, .last_every = 23, .all = 1, .seed = 26 }, 1, 0 },
    { { .ranks = 2, .tp = 1, .entries = 257, .slots = 8, .columns = 3, .rows_most = 3, .fault_every = 60, .one_epoch = 1, .all = 1, .seed = 14 }, 2, 1 },
    { { .ranks = 4, .tp = 2, .entries = 33, .slots = 4, .columns = 4, .rows_most = 5, .fault_every = 60, .one_epoch = 1, .all = 1, .seed = 15 }, 2, 1 },
    { { .ranks = 3, .tp = 3, .entries = 1501, .slots = 4, .columns = 0, .rows_most = 70000, .fault_every = 60, .all = 1, .seed = 16 }, 1, 0 },
    { { .ranks = 2, .tp = 2, .entries = 9000, .slots = 4, .columns = 0, .rows_most = 4, .fault_every = 0, .all = 1, .seed = 17 }, 1, 0 }, /* past 48 KiB */
};
enum { SOAKS = sizeof soaks / sizeof *soaks };

START_TEST(test_every_step_ends_as_on_the_host)
{
    const char *wanted = getenv("KVG_TEST_STEPS");
    uint64_t    steps = wanted != NULL ? strtoull(wanted, NULL, 10) : 1500, kinds[7] = { 0 };
    Scene       scene = soaks[_i].scene;
    Device      device;

    scene.one_epoch |= patient_ms() != 0;
    device_open(&device, &scene, soaks[_i].lanes, soaks[_i].split);
    if (soaks[_i].scene.entries > 1000 && steps > 200) steps = 200;
    ck_assert_uint_ge(gpu_soak(device.rank, scene.ranks, device.fleet, steps, meet, kinds), steps);
    ck_assert_uint_gt(kinds[1 + KVG_VOTE_PUBLISH], 0);
    device_close(&device);
}
END_TEST

static const Scene pair = { .ranks = 2, .tp = 2, .entries = 64, .slots = 4, .columns = 2, .rows_most = 1, .seed = 20 };

static KvVoteWord outcome_of(const Device *device, uint32_t rank, uint64_t since)
{
    return kvg_vote_word(*(volatile uint64_t *)&device->host->outcome[rank][0], since);
}

static double timed_vote(Device *device, uint32_t rank, int kernels)
{
    double from = gpu_now_ms();

    for (int i = 0; i < kernels; i++) OK(kvg_vote_launch(&device->rank[rank].board, &device->rank[rank].lane[0].arrays, device->rank[rank].stream));
    CU(cudaStreamSynchronize(device->rank[rank].stream));
    return gpu_now_ms() - from;
}

START_TEST(test_an_absent_peer_ends_the_wait_at_the_deadline_and_the_queue_behind_it)
{
    Device device;

    device_open(&device, &pair, 1, 0);
    kvg_vote_allow(&device.host->control, 50000);
    double took = timed_vote(&device, 0, 20);
    ck_assert_msg(took >= 49 && took < 250, "ended after %.1f ms", took);
    ck_assert_int_eq(outcome_of(&device, 0, 1).kind, KVG_VOTE_WORD_INDOUBT);
    ck_assert_uint_eq(outcome_of(&device, 0, 1).missing, 1);
    /* its record stands, as a record does whose sender died */
    took = timed_vote(&device, 1, 1);
    ck_assert_msg(took < 25, "all records were there, and it took %.1f ms", took);
    ck_assert_int_eq(outcome_of(&device, 1, 1).kind, KVG_VOTE_WORD_DECIDED);
    device_close(&device);
}
END_TEST

START_TEST(test_the_stop_word_ends_a_wait_and_the_deadline_can_be_moved)
{
    Device device;

    device_open(&device, &pair, 1, 0);
    kvg_vote_allow(&device.host->control, 60000000);
    double from = gpu_now_ms();
    OK(kvg_vote_launch(&device.rank[0].board, &device.rank[0].lane[0].arrays, device.rank[0].stream));
    while (gpu_now_ms() - from < 20) ck_assert_int_eq(cudaStreamQuery(device.rank[0].stream), cudaErrorNotReady);
    kvg_vote_stop(&device.host->control, 1);
    CU(cudaStreamSynchronize(device.rank[0].stream));
    ck_assert_msg(gpu_now_ms() - from < 100, "ended after %.1f ms", gpu_now_ms() - from);
    ck_assert_int_eq(outcome_of(&device, 0, 1).kind, KVG_VOTE_WORD_STOPPED);
    kvg_vote_stop(&device.host->control, 0);

    gpu_lane_upload(&device.rank[0].lane[0], device.fleet[0].arena[0]);
    kvg_vote_allow(&device.host->control, 60000);
    from = gpu_now_ms();
    OK(kvg_vote_launch(&device.rank[0].board, &device.rank[0].lane[0].arrays, device.rank[0].stream));
    for (double next = 30; next <= 210; next += 30) {
        while (gpu_now_ms() - from < next) ck_assert_int_eq(cudaStreamQuery(device.rank[0].stream), cudaErrorNotReady);
        kvg_vote_forward(&device.host->control);
    }
    CU(cudaStreamSynchronize(device.rank[0].stream));
    double took = gpu_now_ms() - from;
    ck_assert_msg(took >= 265 && took < 400, "moved to 210 + 60 ms, ended after %.1f", took);
    ck_assert_int_eq(outcome_of(&device, 0, 1).kind, KVG_VOTE_WORD_INDOUBT);
    device_close(&device);
}
END_TEST

START_TEST(test_a_slot_can_be_looked_at_while_records_are_missing)
{
    Device device;
    void  *units = NULL;

    device_open(&device, &pair, 1, 1);
    KvVoteBoard *board = &device.rank[0].board;
    KvVoteRecord *record = calloc(1, kvg_vote_record_bytes(64)), *expected = calloc(1, kvg_vote_record_bytes(64));
    CU(cudaHostAlloc(&units, kvg_vote_slot_bytes(board), cudaHostAllocMapped));
    for (uint32_t posted = 0; posted <= 2; posted++) {
        if (posted > 0) {
            OK(kvg_vote_post_launch(&device.rank[posted - 1].board, &device.rank[posted - 1].lane[0].arrays, device.rank[posted - 1].stream));
            CU(cudaStreamSynchronize(device.rank[posted - 1].stream));
        }
        OK(kvg_vote_peek_launch(board, 1, units, device.rank[0].stream));
        CU(cudaStreamSynchronize(device.rank[0].stream));
        ck_assert_int_eq(kvg_vote_present(board, units, 1, 3), posted == 2);
        for (uint32_t r = 0; r < 2; r++) {
            KvVoteBoard  model = fleet_board(&device.fleet[0], r);
            KvVoteArrays arrays = scene_arrays(&pair, device.fleet[0].arena[r]);
            ck_assert_int_eq(kvg_vote_unpack(board, units, 1, 3, r, record), posted > r);
            if (posted <= r) continue;
            kvg_vote_form_ref(&model, &arrays, expected);
            ck_assert_mem_eq(record, expected, kvg_vote_record_bytes(64));
        }
    }
    free(record);
    free(expected);
    CU(cudaFreeHost(units));
    device_close(&device);
}
END_TEST

START_TEST(test_what_cannot_be_launched_is_refused)
{
    Device device;

    device_open(&device, &pair, 1, 0);
    KvVoteBoard  board = device.rank[0].board;
    KvVoteArrays arrays = device.rank[0].lane[0].arrays;
    board.slots = 3;
    ck_assert_int_eq(kvg_vote_launch(&board, &arrays, NULL), KVG_EINVAL);
    board = device.rank[0].board, board.tp = 3;
    ck_assert_int_eq(kvg_vote_launch(&board, &arrays, NULL), KVG_EINVAL);
    board = device.rank[0].board, board.sequences_max = 63;
    ck_assert_int_eq(kvg_vote_launch(&board, &arrays, NULL), KVG_EINVAL);
    board = device.rank[0].board, board.sequences_max = 65536;
    ck_assert_int_eq(kvg_vote_launch(&board, &arrays, NULL), KVG_ENOTSUP);
    board = device.rank[0].board, arrays.outcome = NULL;
    ck_assert_int_eq(kvg_vote_launch(&board, &arrays, NULL), KVG_EINVAL);
    device_close(&device);
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_loop_test(tcase, test_every_step_ends_as_on_the_host, 0, SOAKS);
    if (patient_ms() == 0) tcase_add_test(tcase, test_an_absent_peer_ends_the_wait_at_the_deadline_and_the_queue_behind_it);
    if (patient_ms() == 0) tcase_add_test(tcase, test_the_stop_word_ends_a_wait_and_the_deadline_can_be_moved);
    tcase_add_test(tcase, test_a_slot_can_be_looked_at_while_records_are_missing);
    tcase_add_test(tcase, test_what_cannot_be_launched_is_refused);
}
#else
static void add(TCase *tcase)
{
    (void)tcase;
}
#endif

int main(void)
{
    return cuda_suite("cuda_vote", add);
}

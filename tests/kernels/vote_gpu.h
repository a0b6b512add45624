/* Votes on devices beside the model's: graphs of many steps, whose every step is compared with the host twins' byte by byte.
 * The includer defines REQUIRE(condition, format, ...), which ends the test. */
#ifndef KVG_VOTE_GPU_H
#define KVG_VOTE_GPU_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>

#include <kvgrid/kvgrid_vote.h>

#include "tests/kernels/vote_scene.h"

enum { GPU_LANES_MAX = 2, GPU_GRAPH_STEPS = 50 };

#define GPU_CUDA(call)                                                                      \
    do {                                                                                    \
        cudaError_t gpu_error_ = (call);                                                    \
        REQUIRE(gpu_error_ == cudaSuccess, "%s: %s", #call, cudaGetErrorString(gpu_error_)); \
    } while (0)
#define GPU_KVG(call) REQUIRE((call) == KVG_OK, "%s: %s", #call, kvg_last_error())

/* One batch of one rank. */
typedef struct GpuLane {
    KvVoteArrays       arrays;
    uint8_t           *arena, *inputs, *log;       /* device; inputs and log [GPU_GRAPH_STEPS] */
    uint8_t           *inputs_host, *log_host;     /* pinned */
    uint8_t           *expected;                   /* [GPU_GRAPH_STEPS] of the model */
    void              *ahead;                      /* device */
    volatile uint64_t *outcome;
    size_t             arena_bytes, input_bytes, counts_at, counts_bytes;
} GpuLane;

typedef struct GpuRank {
    KvVoteBoard     board;
    uint32_t        lanes;
    int             split; /* post and decide are two kernels, and all lanes have posted before any decides */
    int             walks; /* a step at a time, without a graph: for ranks that share a device, whose queues copies must not fill behind a wait */
    cudaStream_t    stream;
    cudaGraph_t     graph;
    cudaGraphExec_t exec;
    GpuLane         lane[GPU_LANES_MAX];
} GpuRank;

enum { GPU_HOST_WORDS = offsetof(KvVoteWords, running) }; /* what the host sets begins here */

static inline double gpu_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static inline void gpu_lane_open(GpuLane *lane, const Scene *scene, volatile uint64_t *outcome, uint64_t *outcome_device)
{
    const SceneParts at = scene_parts(scene);

    lane->arena_bytes = at.bytes;
    lane->counts_at = at.accepted;
    lane->counts_bytes = at.taken - at.accepted;
    lane->input_bytes = (sizeof(KvVoteWords) + lane->counts_bytes + 63) / 64 * 64;
    lane->outcome = outcome;
    GPU_CUDA(cudaMalloc((void **)&lane->arena, lane->arena_bytes));
    GPU_CUDA(cudaMalloc((void **)&lane->inputs, GPU_GRAPH_STEPS * lane->input_bytes));
    GPU_CUDA(cudaMalloc((void **)&lane->log, GPU_GRAPH_STEPS * lane->arena_bytes));
    GPU_CUDA(cudaHostAlloc((void **)&lane->inputs_host, GPU_GRAPH_STEPS * lane->input_bytes, cudaHostAllocDefault));
    GPU_CUDA(cudaHostAlloc((void **)&lane->log_host, GPU_GRAPH_STEPS * lane->arena_bytes, cudaHostAllocDefault));
    lane->expected = (uint8_t *)malloc(GPU_GRAPH_STEPS * lane->arena_bytes);
    REQUIRE(lane->expected != NULL, "no memory");
    lane->arrays = scene_arrays(scene, lane->arena);
    lane->arrays.outcome = outcome_device;
    if (scene->unready || scene->entries == 0) return;
    GPU_CUDA(cudaMalloc(&lane->ahead, kvg_vote_ahead_bytes(scene->entries)));
    GPU_CUDA(cudaMemset(lane->ahead, 0, kvg_vote_ahead_bytes(scene->entries)));
    GPU_CUDA(cudaStreamSynchronize(NULL));
    lane->arrays.ahead = lane->ahead;
}

static inline void gpu_lane_upload(GpuLane *lane, const uint8_t *arena)
{
    GPU_CUDA(cudaMemcpy(lane->arena, arena, lane->arena_bytes, cudaMemcpyHostToDevice));
    GPU_CUDA(cudaStreamSynchronize(NULL)); /* from pageable memory a copy may return before it has arrived */
}

static inline void gpu_lane_close(GpuLane *lane)
{
    GPU_CUDA(cudaFree(lane->arena));
    GPU_CUDA(cudaFree(lane->inputs));
    GPU_CUDA(cudaFree(lane->log));
    GPU_CUDA(cudaFree(lane->ahead));
    GPU_CUDA(cudaFreeHost(lane->inputs_host));
    GPU_CUDA(cudaFreeHost(lane->log_host));
    free(lane->expected);
}

/* ---- the graph: for each step, input to the arena, the vote, the arena to the log */

static inline void gpu_add_input(GpuRank *rank, GpuLane *lane, int step)
{
    const uint8_t *input = lane->inputs + (size_t)step * lane->input_bytes;

    GPU_CUDA(cudaMemcpyAsync(lane->arena + GPU_HOST_WORDS, input + GPU_HOST_WORDS, sizeof(KvVoteWords) - GPU_HOST_WORDS, cudaMemcpyDeviceToDevice,
                             rank->stream));
    if (lane->counts_bytes == 0) return;
    GPU_CUDA(cudaMemcpyAsync(lane->arena + lane->counts_at, input + sizeof(KvVoteWords), lane->counts_bytes, cudaMemcpyDeviceToDevice, rank->stream));
}

static inline void gpu_add_log(GpuRank *rank, GpuLane *lane, int step)
{
    GPU_CUDA(cudaMemcpyAsync(lane->log + (size_t)step * lane->arena_bytes, lane->arena, lane->arena_bytes, cudaMemcpyDeviceToDevice, rank->stream));
}

static inline void gpu_add_step(GpuRank *rank, int step)
{
    for (uint32_t l = 0; l < rank->lanes; l++) {
        if (!rank->walks) gpu_add_input(rank, &rank->lane[l], step);
        if (rank->split) GPU_KVG(kvg_vote_post_launch(&rank->board, &rank->lane[l].arrays, rank->stream));
        else GPU_KVG(kvg_vote_launch(&rank->board, &rank->lane[l].arrays, rank->stream));
    }
    for (uint32_t l = 0; l < rank->lanes; l++) {
        GpuLane *lane = &rank->lane[l];
        if (rank->split) GPU_KVG(kvg_vote_decide_launch(&rank->board, &lane->arrays, rank->stream));
        if (!rank->walks) gpu_add_log(rank, lane, step);
    }
}

/* Nothing is queued behind a kernel that waits but kernels of its own rank. */
static inline void gpu_walk(GpuRank *local, uint32_t count)
{
    for (int step = 0; step < GPU_GRAPH_STEPS; step++) {
        for (uint32_t i = 0; i < count; i++) {
            for (uint32_t l = 0; l < local[i].lanes; l++) gpu_add_input(&local[i], &local[i].lane[l], step);
        }
        GPU_CUDA(cudaDeviceSynchronize());
        for (uint32_t i = 0; i < count; i++) gpu_add_step(&local[i], step);
        GPU_CUDA(cudaDeviceSynchronize());
        for (uint32_t i = 0; i < count; i++) {
            for (uint32_t l = 0; l < local[i].lanes; l++) gpu_add_log(&local[i], &local[i].lane[l], step);
        }
    }
}

static inline void gpu_capture(GpuRank *rank)
{
    GPU_CUDA(cudaStreamBeginCapture(rank->stream, cudaStreamCaptureModeThreadLocal));
    for (int step = 0; step < GPU_GRAPH_STEPS; step++) gpu_add_step(rank, step);
    GPU_CUDA(cudaStreamEndCapture(rank->stream, &rank->graph));
    GPU_CUDA(cudaGraphInstantiate(&rank->exec, rank->graph, 0));
}

/* ---- the model beside it */

/* One graph's worth of steps in host memory: inputs and expected arenas of the ranks that are driven here. Returns how many were decided. */
static inline uint64_t gpu_model(Fleet *fleets, GpuRank *local, uint32_t count)
{
    const uint32_t lanes = local[0].lanes;
    uint64_t       decided = 0, first[GPU_LANES_MAX];

    for (uint32_t l = 0; l < lanes; l++) first[l] = fleet_words(&fleets[l], 0)->step;
    for (int step = 0; step < GPU_GRAPH_STEPS; step++) {
        for (uint32_t l = 0; l < lanes; l++) {
            decided += fleet_words(&fleets[l], 0)->stop == 0;
            fleet_post(&fleets[l], first[l] + (uint64_t)step * lanes);
            if (!local[0].split) fleet_decide(&fleets[l]);
        }
        for (uint32_t l = 0; l < lanes; l++) {
            if (local[0].split) fleet_decide(&fleets[l]);
            for (uint32_t i = 0; i < count; i++) {
                GpuLane *lane = &local[i].lane[l];
                uint8_t *arena = fleets[l].arena[local[i].board.rank], *input = lane->inputs_host + (size_t)step * lane->input_bytes;
                memcpy(lane->expected + (size_t)step * lane->arena_bytes, arena, lane->arena_bytes);
                memcpy(input, arena, sizeof(KvVoteWords));
                memcpy(input + sizeof(KvVoteWords), arena + lane->counts_at, lane->counts_bytes);
            }
        }
    }
    return decided;
}

static inline void gpu_send_inputs(GpuRank *rank)
{
    for (uint32_t l = 0; l < rank->lanes; l++) {
        GpuLane *lane = &rank->lane[l];
        GPU_CUDA(cudaMemcpyAsync(lane->inputs, lane->inputs_host, GPU_GRAPH_STEPS * lane->input_bytes, cudaMemcpyHostToDevice, rank->stream));
    }
    GPU_CUDA(cudaStreamSynchronize(rank->stream));
}

/* The first byte that differs is told by the step and where in the arena it stands. */
static inline void gpu_compare(GpuRank *rank, uint32_t l, const Scene *scene)
{
    GpuLane         *lane = &rank->lane[l];
    const SceneParts at = scene_parts(scene);

    GPU_CUDA(cudaMemcpy(lane->log_host, lane->log, GPU_GRAPH_STEPS * lane->arena_bytes, cudaMemcpyDeviceToHost));
    for (int step = 0; step < GPU_GRAPH_STEPS; step++) {
        uint8_t *seen = lane->log_host + (size_t)step * lane->arena_bytes, *expected = lane->expected + (size_t)step * lane->arena_bytes;
        size_t   byte = 0;
        memset(expected + at.outcome, 0, sizeof(uint64_t)); /* the model's word; the device's stands in host memory */
        memset(seen + offsetof(KvVoteWords, ahead), 0, sizeof(uint64_t)); /* the model forms nothing ahead */
        if (memcmp(seen, expected, lane->arena_bytes) != 0) { /* REQUIRE may be dear where it is met */
            while (seen[byte] == expected[byte]) byte++;
            REQUIRE(0, "rank %u batch %u: after step %llu of the model, byte %zu of the arena is %u, not %u (taken at %zu, "
                    "len at %zu, read at %zu, bases at %zu)", rank->board.rank, l, (unsigned long long)((const KvVoteWords *)expected)->step, byte,
                    seen[byte], expected[byte], at.taken, at.len, at.read, at.base_row);
        }
    }
}

static inline void gpu_check(GpuRank *rank, Fleet *fleets)
{
    uint8_t *block = (uint8_t *)malloc(fleets[0].block_bytes);

    for (uint32_t l = 0; l < rank->lanes; l++) {
        uint64_t expected = *scene_arrays(&fleets[l].scene, fleets[l].arena[rank->board.rank]).outcome;
        gpu_compare(rank, l, &fleets[l].scene);
        REQUIRE(*rank->lane[l].outcome == expected, "rank %u batch %u: outcome word %016llx, not %016llx", rank->board.rank, l,
                (unsigned long long)*rank->lane[l].outcome, (unsigned long long)expected);
    }
    /* every record of the last 2W steps as it arrived */
    GPU_CUDA(cudaMemcpy(block, rank->board.base + rank->board.rank * rank->board.stride, fleets[0].block_bytes, cudaMemcpyDeviceToHost));
    REQUIRE(memcmp(block, fleets[0].blocks + rank->board.rank * fleets[0].block_bytes, fleets[0].block_bytes) == 0,
            "rank %u: the records that arrived are not those that were posted", rank->board.rank);
    free(block);
}

/* As a host would: the stop word cleared, the next number taken. */
static inline void gpu_acknowledge(GpuRank *local, uint32_t count, Fleet *fleets)
{
    for (uint32_t l = 0; l < local[0].lanes; l++) {
        for (uint32_t rank = 0; rank < fleets[l].scene.ranks; rank++) scene_acknowledge(fleets[l].arena[rank]);
        for (uint32_t i = 0; i < count; i++) {
            GPU_CUDA(cudaMemcpy(local[i].lane[l].arena, fleets[l].arena[local[i].board.rank], GPU_HOST_WORDS, cudaMemcpyHostToDevice));
        }
    }
    GPU_CUDA(cudaStreamSynchronize(NULL));
}

/* Replays until `steps` steps have been decided. meet: all processes are here. kinds [7] counts the replays' last outcomes by the word's kind. */
static inline uint64_t gpu_soak(GpuRank *local, uint32_t count, Fleet *fleets, uint64_t steps, void (*meet)(void), uint64_t kinds[7])
{
    uint64_t decided = 0;

    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t l = 0; l < local[i].lanes; l++) gpu_lane_upload(&local[i].lane[l], fleets[l].arena[local[i].board.rank]);
        if (!local[i].walks) gpu_capture(&local[i]);
    }
    while (decided < steps) {
        decided += gpu_model(fleets, local, count);
        for (uint32_t i = 0; i < count; i++) gpu_send_inputs(&local[i]);
        meet();
        for (uint32_t i = 0; i < count && !local[i].walks; i++) GPU_CUDA(cudaGraphLaunch(local[i].exec, local[i].stream));
        if (local[0].walks) gpu_walk(local, count);
        for (uint32_t i = 0; i < count; i++) GPU_CUDA(cudaStreamSynchronize(local[i].stream));
        meet();
        for (uint32_t i = 0; i < count; i++) gpu_check(&local[i], fleets);
        for (uint32_t l = 0; l < local[0].lanes; l++) kinds[*local[0].lane[l].outcome >> 28 & 7]++;
        gpu_acknowledge(local, count, fleets);
        meet();
    }
    for (uint32_t i = 0; i < count && !local[i].walks; i++) {
        GPU_CUDA(cudaGraphExecDestroy(local[i].exec));
        GPU_CUDA(cudaGraphDestroy(local[i].graph));
    }
    return decided;
}

/* Two batches take every other step number, over one board. */
static inline void gpu_two_lanes(Fleet *fleets)
{
    free(fleets[1].blocks);
    fleets[1].blocks = fleets[0].blocks;
    for (uint32_t l = 0; l < 2; l++) {
        for (uint32_t rank = 0; rank < fleets[l].scene.ranks; rank++) {
            KvVoteWords *words = (KvVoteWords *)fleets[l].arena[rank];
            words->step = 1 + l;
            words->advance = 2;
        }
    }
}

#endif

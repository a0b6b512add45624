/* The readers of bench_read_cuda: rows of one head, 136 bytes of q8_0 K and 96 of q5_1 V, as an attention kernel would get them, and XORed instead of
 * attended. Bound by device memory: a reader has to keep some 30 KB a multiprocessor under way at all times. What is lost is the time from a
 * kernel's start to its first row, with slots, then lengths and tables in between: 1 us of 9.5 on an H200, unless the launch is ahead of its turn. */
#ifndef KVG_BENCH_READ_KERNELS_CUH
#define KVG_BENCH_READ_KERNELS_CUH

#include <kvgrid/plane.cuh>

enum { K_ROW = 136, V_ROW = 96, BULK_USERS = 8, STAGES_MAX = 64 };

/* ---- what a reader is given */

typedef struct Job {
    KvPlaneRef      k, v;
    const int32_t  *slots; /* [places]; NULL: place i is slot i */
    const uint32_t *len;   /* [slots] */
    uint32_t        pieces; /* of a place */
    uint32_t        count;  /* of all places */
    uint32_t        runs;   /* 1: a block reads one run of neighbouring pieces; 0: blocks take pieces in turn */
    uint32_t       *sums;   /* [count] */
} Job;

typedef struct Piece {
    const uint8_t *k, *v; /* NULL: past the end of the sequence */
} Piece;

template <int ROWS, bool TABLE> __device__ __forceinline__ Piece locate(const Job &job, uint32_t piece)
{
    if (!TABLE) return {job.k.plane.base + (size_t)piece * ROWS * K_ROW, job.v.plane.base + (size_t)piece * ROWS * V_ROW};
    uint32_t place = piece / job.pieces, row = (piece - place * job.pieces) * ROWS;
    int32_t  slot = job.slots != nullptr ? job.slots[place] : (int32_t)place;
    if (slot < 0) return {nullptr, nullptr};
    Piece at = {kvg_ref_row(job.k, (uint32_t)slot, row), kvg_ref_row(job.v, (uint32_t)slot, row)}; /* the table is asked beside the length, not after it */
    return row < job.len[slot] ? at : Piece{nullptr, nullptr};
}

/* The pieces of share `b` of `shares`: first, first + step, ... */
typedef struct Share {
    uint32_t first, step, count;
} Share;

__device__ __forceinline__ Share share_of(const Job &job, uint32_t b, uint32_t shares)
{
    if (!job.runs) return {b, shares, b < job.count ? (job.count - b - 1) / shares + 1 : 0};
    uint32_t from = (uint32_t)((uint64_t)job.count * b / shares), to = (uint32_t)((uint64_t)job.count * (b + 1) / shares);
    return {from, 1, to - from};
}

__device__ __forceinline__ uint32_t fold(uint4 sum)
{
    return __reduce_xor_sync(0xffffffffu, sum.x ^ sum.y ^ sum.z ^ sum.w);
}

__device__ __forceinline__ void add(uint4 &sum, uint4 other)
{
    sum.x ^= other.x;
    sum.y ^= other.y;
    sum.z ^= other.z;
    sum.w ^= other.w;
}

/* What comes before it in the stream has ended, and what it wrote can be read; then the launch that comes after may come ahead in its turn, so
 * that no look-up is ever ahead of more than the kernel just before. Nothing where the launch was an ordinary one. */
__device__ __forceinline__ void await_turn()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/* ---- a piece a warp */

__device__ __forceinline__ uint4 load_once(const uint8_t *at)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at));
    return v;
}

template <int BYTES, int LOADS> __device__ __forceinline__ void load_piece(const uint8_t *at, uint4 (&data)[LOADS])
{
    const int lane = threadIdx.x & 31;

#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        data[i] = make_uint4(0, 0, 0, 0);
        if (i * 512 + 512 <= BYTES || i * 512 + lane * 16 < BYTES) data[i] = load_once(at + i * 512 + lane * 16);
    }
}

template <int ROWS, bool TABLE> __global__ void __launch_bounds__(256) read_by_warps(const __grid_constant__ Job job)
{
    constexpr int  K_BYTES = ROWS * K_ROW, V_BYTES = ROWS * V_ROW, K_LOADS = (K_BYTES + 511) / 512, V_LOADS = (V_BYTES + 511) / 512;
    const uint32_t warps = blockDim.x / 32;
    const Share    share = share_of(job, blockIdx.x * warps + threadIdx.x / 32, gridDim.x * warps);
    uint32_t       piece = share.first;
    Piece          at = {nullptr, nullptr};

    if (share.count > 0) at = locate<ROWS, TABLE>(job, piece);
    await_turn();
    for (uint32_t n = 0; n < share.count; n++) {
        uint4 k[K_LOADS], v[V_LOADS], sum = make_uint4(0, 0, 0, 0);
        Piece next = {nullptr, nullptr};

        if (at.k != nullptr) {
            load_piece<K_BYTES>(at.k, k);
            load_piece<V_BYTES>(at.v, v);
        }
        if (n + 1 < share.count) next = locate<ROWS, TABLE>(job, piece + share.step); /* while those are under way */
        if (at.k != nullptr) {
#pragma unroll
            for (int i = 0; i < K_LOADS; i++) add(sum, k[i]);
#pragma unroll
            for (int i = 0; i < V_LOADS; i++) add(sum, v[i]);
        }
        uint32_t whole = fold(sum);
        if ((threadIdx.x & 31) == 0) job.sums[piece] = whole;
        piece += share.step;
        at = next;
    }
}

/* ---- bulk copies into a ring */

__device__ __forceinline__ uint32_t shared_address(const void *at)
{
    return (uint32_t)__cvta_generic_to_shared(at);
}

__device__ __forceinline__ void barrier_init(uint64_t *barrier)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void barrier_expect(uint64_t *barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_wait(uint64_t *barrier, uint32_t parity)
{
    uint32_t passed = 0;

    while (!passed) {
        asm volatile("{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\tselp.u32 %0, 1, 0, p;\n\t}"
                     : "=r"(passed) : "r"(shared_address(barrier)), "r"(parity) : "memory");
    }
}

__device__ __forceinline__ void bulk_copy(void *target, const void *source, uint32_t bytes, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(shared_address(target)), "l"(source), "r"(bytes), "r"(shared_address(barrier)) : "memory");
}

typedef struct Ring {
    uint64_t full[STAGES_MAX], empty[STAGES_MAX];
    uint32_t held[STAGES_MAX]; /* 0: a piece past the end, nothing was copied */
} Ring;

template <int ROWS, bool TABLE> __device__ __forceinline__ void fill_ring(const Job &job, Share share, Piece at, Ring &ring, uint8_t *stage_memory,
                                                                           uint32_t stages)
{
    constexpr uint32_t K_BYTES = ROWS * K_ROW, V_BYTES = ROWS * V_ROW;
    const uint32_t     lane = threadIdx.x & 31;
    uint32_t           stage = 0, round = 0;

    for (uint32_t first = 0; first < share.count; first += 32) {
        Piece    next = {nullptr, nullptr};
        uint32_t n = min(32u, share.count - first), later = first + 32 + lane;

        if (later < share.count) next = locate<ROWS, TABLE>(job, share.first + later * share.step);
        for (uint32_t j = 0; j < n; j++) {
            if (round > 0) barrier_wait(&ring.empty[stage], (round - 1) & 1);
            if (lane == j) {
                uint8_t *target = stage_memory + (size_t)stage * (K_BYTES + V_BYTES);
                ring.held[stage] = at.k != nullptr;
                if (at.k != nullptr) {
                    barrier_expect(&ring.full[stage], K_BYTES + V_BYTES);
                    bulk_copy(target, at.k, K_BYTES, &ring.full[stage]);
                    bulk_copy(target + K_BYTES, at.v, V_BYTES, &ring.full[stage]);
                } else {
                    barrier_arrive(&ring.full[stage]);
                }
            }
            if (++stage == stages) {
                stage = 0;
                round++;
            }
        }
        at = next;
    }
}

/* One piece, from a stage that is full; the stage is empty afterwards. */
template <int ROWS> __device__ __forceinline__ void use_stage(Ring &ring, const uint8_t *at, uint32_t stage, uint32_t round, uint32_t *to)
{
    constexpr uint32_t BYTES = ROWS * (K_ROW + V_ROW), LOADS = (BYTES + 511) / 512;
    const uint32_t     lane = threadIdx.x & 31;
    uint4              sum = make_uint4(0, 0, 0, 0);

    barrier_wait(&ring.full[stage], round & 1);
    if (ring.held[stage]) {
#pragma unroll
        for (uint32_t i = 0; i < LOADS; i++) {
            if (i * 512 + 512 <= BYTES || i * 512 + lane * 16 < BYTES) add(sum, *(const uint4 *)(const void *)(at + i * 512 + lane * 16));
        }
    }
    uint32_t whole = fold(sum); /* every lane has read */
    if (lane == 0) {
        barrier_arrive(&ring.empty[stage]);
        *to = whole;
    }
}

/* A stage is always the same warp's: a wait by parity is right only for one who has seen the round before. */
template <int ROWS> __device__ __forceinline__ void use_ring(const Job &job, Share share, Ring &ring, const uint8_t *stage_memory, uint32_t stages)
{
    uint32_t round = 0;

    for (uint32_t first = 0; first < share.count; first += stages, round++) {
        for (uint32_t stage = threadIdx.x / 32 - 1; stage < stages && first + stage < share.count; stage += BULK_USERS) {
            use_stage<ROWS>(ring, stage_memory + (size_t)stage * ROWS * (K_ROW + V_ROW), stage, round, &job.sums[share.first + (first + stage) * share.step]);
        }
    }
}

template <int ROWS, bool TABLE> __global__ void __launch_bounds__(32 * (1 + BULK_USERS)) read_by_bulk(const __grid_constant__ Job job, uint32_t stages)
{
    extern __shared__ __align__(128) uint8_t stage_memory[];
    __shared__ Ring                          ring;
    const Share                              share = share_of(job, blockIdx.x, gridDim.x);
    Piece                                    first = {nullptr, nullptr};

    if (threadIdx.x < 32 && threadIdx.x < share.count) first = locate<ROWS, TABLE>(job, share.first + threadIdx.x * share.step); /* 32 at once */
    if (threadIdx.x < stages) {
        barrier_init(&ring.full[threadIdx.x]);
        barrier_init(&ring.empty[threadIdx.x]);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); /* the copy engine sees them too */
    }
    __syncthreads();
    await_turn();
    if (threadIdx.x < 32) fill_ring<ROWS, TABLE>(job, share, first, ring, stage_memory, stages);
    else use_ring<ROWS>(job, share, ring, stage_memory, stages);
}

#endif

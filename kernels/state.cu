/* State: recurrent columns, moves, taps, patches.
 *
 * All bound by memory, and small ones by latency. A thread owns a state element or a conv channel for the whole pass, so a pass of many rows
 * reads the current column once and keeps it in a register. Moves that overlap run in one block each, tile by tile in the direction that
 * memmove takes: a tile is in registers before any of it is written. */
#include <cuda_runtime_api.h>

#include "kernels/cuda_internal.h"
#include "kernels/cuda_state.h"

namespace {

enum { THREADS = 256, MOVE_THREADS = 1024, MOVE_WORDS = 4 };

/* ---- recurrent */

/* Taps after `rows` rows: those of the column, shifted, then the newest x. Ascending, so that a column may be its own target. */
__device__ __forceinline__ void put_taps(const float *in, float *out, const float *x, uint64_t channels, uint32_t taps, uint32_t rows)
{
    for (uint32_t j = 0; j < taps; j++) out[j] = j + rows < taps ? in[j + rows] : x[(uint64_t)(j + rows - taps) * channels];
}

__device__ void roll_conv(const KvRecurrentPass &pass, uint64_t c)
{
    const uint64_t column = pass.channels * pass.taps;
    const float   *in = pass.conv + pass.read * column + c * pass.taps;

    for (uint32_t i = pass.each ? 0 : pass.rows - 1; i < pass.rows; i++) {
        uint32_t to = pass.each ? (pass.write + i) % pass.columns : pass.write;
        put_taps(in, pass.conv + to * column + c * pass.taps, pass.x + c, pass.channels, pass.taps, i + 1);
    }
}

__device__ void roll_state(const KvRecurrentPass &pass, uint64_t e)
{
    float value = pass.state[pass.read * pass.elements + e];

    for (uint32_t i = 0; i < pass.rows; i++) {
        value = __fadd_rn(__fmul_rn(pass.decay, value), pass.u[i * pass.elements + e]);
        if (pass.each) pass.state[(pass.write + i) % pass.columns * pass.elements + e] = value;
    }
    if (!pass.each) pass.state[pass.write * pass.elements + e] = value;
}

/* State elements first, then conv channels: a block is in one of the two but at their border. */
__device__ __forceinline__ void roll(const KvRecurrentPass &pass, uint64_t i)
{
    if (i < pass.elements) roll_state(pass, i);
    else if (i - pass.elements < pass.channels && pass.taps > 0) roll_conv(pass, i - pass.elements);
}

__global__ void __launch_bounds__(THREADS) recurrent_kernel(const __grid_constant__ KvRecurrentBatch batch)
{
    const KvRecurrentView &view = batch.view;
    const uint32_t         place = blockIdx.y;
    const int32_t          slot = batch.slots[place];
    const uint32_t         rows = batch.rows != nullptr ? batch.rows[place] : batch.rows_max;
    const uint64_t         token = batch.first_token != nullptr ? batch.first_token[place] : (uint64_t)place * batch.rows_max;

    if (slot < 0 || rows == 0) return;
    const KvRecurrentPass pass = {view.conv + slot * view.conv_slot_stride, view.state + slot * view.state_slot_stride,
                                  (uint32_t)view.read[slot], (uint32_t)view.write[slot], (uint32_t)view.each[slot], view.columns,
                                  view.taps, view.conv_channels, view.state_elements, rows, batch.decay,
                                  batch.x + token * view.conv_channels, batch.u + token * view.state_elements};
    roll(pass, (uint64_t)blockIdx.x * THREADS + threadIdx.x);
}

__global__ void __launch_bounds__(THREADS) pass_kernel(const __grid_constant__ KvRecurrentPass pass)
{
    roll(pass, (uint64_t)blockIdx.x * THREADS + threadIdx.x);
}

/* ---- moves */

template <class WORD> __device__ void move_tiles(WORD *target, const WORD *source, uint64_t words)
{
    const uint64_t tile = MOVE_THREADS * MOVE_WORDS, tiles = (words + tile - 1) / tile;
    const bool     down = (uintptr_t)target < (uintptr_t)source; /* ascending */
    WORD           held[MOVE_WORDS];

    for (uint64_t t = 0; t < tiles; t++) {
        uint64_t first = (down ? t : tiles - 1 - t) * tile + threadIdx.x;
#pragma unroll
        for (int k = 0; k < MOVE_WORDS; k++) {
            if (first + k * MOVE_THREADS < words) held[k] = source[first + k * MOVE_THREADS];
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < MOVE_WORDS; k++) {
            if (first + k * MOVE_THREADS < words) target[first + k * MOVE_THREADS] = held[k];
        }
        __syncthreads(); /* written before the next tile is read: tiles may overlap by less than one */
    }
}

__device__ void move_bytes(const KvMove &move)
{
    const uintptr_t odd = ((uintptr_t)move.target | (uintptr_t)move.source | move.bytes) & 15;

    if (move.target == move.source) return;
    if (odd == 0) move_tiles((uint4 *)move.target, (const uint4 *)move.source, move.bytes / 16);
    else if ((odd & 3) == 0) move_tiles((uint32_t *)move.target, (const uint32_t *)move.source, move.bytes / 4);
    else move_tiles((uint8_t *)move.target, (const uint8_t *)move.source, move.bytes);
}

__global__ void __launch_bounds__(MOVE_THREADS) move_kernel(const KvMove *moves)
{
    move_bytes(moves[blockIdx.x]);
}

__global__ void __launch_bounds__(MOVE_THREADS) move_one_kernel(const __grid_constant__ KvMove move)
{
    move_bytes(move);
}

/* ---- taps and patches */

template <class WORD>
__global__ void __launch_bounds__(THREADS) pitched_kernel(uint8_t *target, size_t target_pitch, const uint8_t *source, size_t source_pitch, size_t words,
                                                           size_t rows)
{
    for (size_t row = blockIdx.y; row < rows; row += gridDim.y) {
        WORD       *to = (WORD *)(target + row * target_pitch);
        const WORD *from = (const WORD *)(source + row * source_pitch);
        for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < words; i += (size_t)gridDim.x * THREADS) to[i] = from[i];
    }
}

__global__ void __launch_bounds__(THREADS) patch_kernel(uint32_t *words, const KvPatch *pairs, uint32_t count)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i < count) words[pairs[i].index] = pairs[i].value;
}

uint64_t blocks_for(uint64_t count)
{
    return (count + THREADS - 1) / THREADS;
}

template <class WORD>
void launch_pitched(void *target, size_t target_pitch, const void *source, size_t source_pitch, size_t bytes, size_t rows, cudaStream_t stream)
{
    uint64_t across = blocks_for(bytes / sizeof(WORD));
    dim3     grid((uint32_t)(across < 1024 ? across : 1024), (uint32_t)(rows < 65535 ? rows : 65535));

    pitched_kernel<WORD><<<grid, THREADS, 0, stream>>>((uint8_t *)target, target_pitch, (const uint8_t *)source, source_pitch, bytes / sizeof(WORD),
                                                       rows);
}

} // namespace

extern "C" KvgStatus kvg_recurrent_batch_launch(const KvRecurrentBatch *batch, KvgStream stream)
{
    uint64_t threads = batch->view.state_elements + batch->view.conv_channels;

    if (batch->places > 65535 || blocks_for(threads) > INT32_MAX) {
        return kvg_fail(KVG_EINVAL, "a recurrent pass over %u places: a launch takes at most 65535", batch->places);
    }
    if (batch->places == 0 || batch->rows_max == 0 || threads == 0) return KVG_OK;
    recurrent_kernel<<<dim3((uint32_t)blocks_for(threads), batch->places), THREADS, 0, (cudaStream_t)stream>>>(*batch);
    return kvg_cuda_check(cudaGetLastError(), "launching a recurrent pass");
}

extern "C" KvgStatus kvg_recurrent_pass_launch(const KvRecurrentPass *pass, KvgStream stream)
{
    uint64_t threads = pass->elements + (pass->taps > 0 ? pass->channels : 0);

    if (blocks_for(threads) > INT32_MAX) return kvg_fail(KVG_EINVAL, "a recurrent layer of %llu elements: too many for a launch", (unsigned long long)threads);
    if (pass->rows == 0 || threads == 0) return KVG_OK;
    pass_kernel<<<(uint32_t)blocks_for(threads), THREADS, 0, (cudaStream_t)stream>>>(*pass);
    return kvg_cuda_check(cudaGetLastError(), "launching a recurrent pass");
}

extern "C" KvgStatus kvg_move_launch(const KvMove *moves, uint32_t count, KvgStream stream)
{
    if (count == 0) return KVG_OK;
    move_kernel<<<count, MOVE_THREADS, 0, (cudaStream_t)stream>>>(moves);
    return kvg_cuda_check(cudaGetLastError(), "launching moves");
}

extern "C" KvgStatus kvg_move_one_launch(KvMove move, KvgStream stream)
{
    if (move.bytes == 0) return KVG_OK;
    move_one_kernel<<<1, MOVE_THREADS, 0, (cudaStream_t)stream>>>(move);
    return kvg_cuda_check(cudaGetLastError(), "launching a move");
}

extern "C" KvgStatus kvg_tap_store_launch(void *target, size_t target_pitch, const void *source, size_t source_pitch, size_t bytes, size_t rows,
                                          KvgStream stream)
{
    const uintptr_t odd = ((uintptr_t)target | (uintptr_t)source | target_pitch | source_pitch | bytes) & 15;

    if (bytes == 0 || rows == 0) return KVG_OK;
    if (odd == 0) launch_pitched<uint4>(target, target_pitch, source, source_pitch, bytes, rows, (cudaStream_t)stream);
    else if ((odd & 3) == 0) launch_pitched<uint32_t>(target, target_pitch, source, source_pitch, bytes, rows, (cudaStream_t)stream);
    else launch_pitched<uint8_t>(target, target_pitch, source, source_pitch, bytes, rows, (cudaStream_t)stream);
    return kvg_cuda_check(cudaGetLastError(), "launching a store of taps");
}

extern "C" KvgStatus kvg_patch_launch(uint32_t *words, const KvPatch *pairs, uint32_t count, KvgStream stream)
{
    if (count == 0) return KVG_OK;
    patch_kernel<<<(uint32_t)blocks_for(count), THREADS, 0, (cudaStream_t)stream>>>(words, pairs, count);
    return kvg_cuda_check(cudaGetLastError(), "launching a patch of tables and lengths");
}

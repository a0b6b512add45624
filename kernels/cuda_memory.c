/* CUDA memory: allocations, and the lists that say what is where. */
#include "kernels/cuda_dev.h"

#include <string.h>

#include "runtime/base/memory.h"
#include "runtime/base/mix.h"

/* ---- lists by address */

size_t kvg_cuda_pieces_find(const CudaPieces *pieces, uintptr_t at)
{
    size_t low = 0, high = pieces->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (pieces->at[middle].at + pieces->at[middle].bytes > at) high = middle;
        else low = middle + 1;
    }
    return low;
}

static KvgStatus widen(CudaPieces *pieces)
{
    size_t room = pieces->room == 0 ? 64 : 2 * pieces->room;
    void  *wider = NULL;

    if (pieces->count < pieces->room) return KVG_OK;
    KVG_TRY(kvg_calloc(room, sizeof *pieces->at, "a device's list of memory", &wider));
    if (pieces->count > 0) memcpy(wider, pieces->at, pieces->count * sizeof *pieces->at);
    kvg_free(pieces->at);
    pieces->at = wider;
    pieces->room = room;
    return KVG_OK;
}

KvgStatus kvg_cuda_pieces_add(CudaPieces *pieces, CudaPiece piece)
{
    size_t index = kvg_cuda_pieces_find(pieces, piece.at);

    KVG_TRY(widen(pieces));
    memmove(pieces->at + index + 1, pieces->at + index, (pieces->count - index) * sizeof *pieces->at);
    pieces->at[index] = piece;
    pieces->count++;
    return KVG_OK;
}

KvgStatus kvg_cuda_pieces_push(CudaPieces *pieces, CudaPiece piece)
{
    KVG_TRY(widen(pieces));
    pieces->at[pieces->count++] = piece;
    return KVG_OK;
}

CudaPiece kvg_cuda_pieces_remove(CudaPieces *pieces, size_t index)
{
    CudaPiece piece = pieces->at[index];

    KVG_ASSERT(index < pieces->count);
    pieces->count--;
    memmove(pieces->at + index, pieces->at + index + 1, (pieces->count - index) * sizeof *pieces->at);
    return piece;
}

/* ---- allocations: a first capture takes its memory while a stream is captured already, so each steps out of it */

static KvgStatus allocate_own(size_t bytes, void **memory)
{
    enum cudaStreamCaptureMode mode;
    KvgStatus                  status;

    kvg_cuda_step_out(&mode);
    status = kvg_cuda_check(cudaMalloc(memory, bytes), "allocating");
    kvg_cuda_step_back(&mode);
    return status;
}

static KvgStatus allocate(CudaDev *cuda, size_t bytes, void **memory)
{
    if (kvg_fault_hit()) return kvg_cuda_check(cudaErrorMemoryAllocation, "allocating");
    if (cuda->memory.alloc == NULL) return allocate_own(bytes, memory);
    *memory = cuda->memory.alloc(cuda->memory.user, bytes);
    if (*memory != NULL) return KVG_OK;
    return kvg_fail(KVG_ENOMEM, "the engine's allocator gave none of %zu bytes of device %d; lower the placement's memory", bytes, cuda->ordinal);
}

/* What was given to the own stream has passed when the memory goes. */
static void deallocate(CudaDev *cuda, void *memory, size_t bytes)
{
    enum cudaStreamCaptureMode mode;

    kvg_cuda_step_out(&mode);
    if (cuda->memory.alloc == NULL) (void)cudaFree(memory); /* waits for the device */
    else (void)cudaStreamSynchronize(cuda->own);
    (void)cudaGetLastError(); /* what is reported belongs to work before */
    kvg_cuda_step_back(&mode);
    if (cuda->memory.alloc != NULL) cuda->memory.free(cuda->memory.user, memory, bytes);
}

KvgStatus kvg_cuda_uninit(void *self, size_t bytes, void **memory)
{
    CudaDev  *cuda = self;
    void     *fresh = NULL;
    size_t    size = bytes > 0 ? bytes : 1;
    KvgStatus status;

    if (bytes > SIZE_MAX / 2) return kvg_fail(KVG_EOVERFLOW, "an allocation of %zu bytes: past what a device addresses", bytes);
    KVG_TRY(kvg_cuda_use(cuda));
    KVG_TRY(allocate(cuda, size, &fresh));
    KVG_TRY_GOTO(kvg_cuda_pieces_add(&cuda->blocks, (CudaPiece){.at = (uintptr_t)fresh, .bytes = size}), err_free);
    cuda->taken += size;
    *memory = fresh;
    return KVG_OK;
err_free:
    deallocate(cuda, fresh, size);
    return status;
}

static KvgStatus zero(CudaDev *cuda, void *memory, size_t bytes)
{
    enum cudaStreamCaptureMode mode;
    KvgStatus                  status;

    kvg_cuda_step_out(&mode);
    status = kvg_cuda_check(cudaMemsetAsync(memory, 0, bytes, cuda->own), "zeroing");
    if (status == KVG_OK) status = kvg_cuda_check(cudaStreamSynchronize(cuda->own), "zeroing");
    kvg_cuda_step_back(&mode);
    return status;
}

KvgStatus kvg_cuda_zeros(void *self, size_t bytes, void **memory)
{
    void     *fresh = NULL;
    KvgStatus status;

    KVG_TRY(kvg_cuda_uninit(self, bytes, &fresh));
    status = zero(self, fresh, bytes);
    if (status == KVG_OK) *memory = fresh;
    else kvg_cuda_free(self, fresh);
    return status;
}

void kvg_cuda_free(void *self, void *memory)
{
    CudaDev *cuda = self;

    if (memory == NULL) return;
    size_t index = kvg_cuda_pieces_find(&cuda->blocks, (uintptr_t)memory);
    KVG_ASSERT(index < cuda->blocks.count && cuda->blocks.at[index].at == (uintptr_t)memory);
    CudaPiece block = kvg_cuda_pieces_remove(&cuda->blocks, index);
    cuda->taken -= block.bytes;
    (void)kvg_cuda_use(cuda);
    deallocate(cuda, memory, block.bytes);
}

/* ---- what is left */

KvgStatus kvg_cuda_available(void *self, KvAvailable *available)
{
    CudaDev              *cuda = self;
    size_t                spare = 0, total = 0;
    struct cudaDeviceProp prop;

    if (cuda->memory.alloc != NULL) {
        return kvg_fail(KVG_ENOTSUP, "what the engine's allocator has left of device %d is not known: say how many bytes to take (memory_bytes)",
                        cuda->ordinal);
    }
    KVG_TRY(kvg_cuda_use(cuda));
    KVG_TRY(kvg_cuda_check(cudaMemGetInfo(&spare, &total), "asking for free memory"));
    KVG_TRY(kvg_cuda_check(cudaGetDeviceProperties(&prop, cuda->ordinal), "asking what device this is"));
    *available = (KvAvailable){.bytes = spare + cuda->spare_held, .memory = 1};
    for (size_t i = 0; i < sizeof prop.uuid.bytes; i++) available->memory = kvg_mix64(available->memory + (uint8_t)prop.uuid.bytes[i]);
    return KVG_OK;
}

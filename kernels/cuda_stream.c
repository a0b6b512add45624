/* CUDA streams: the device's own stream in order with the caller's, and pinned pieces for copies from host memory.
 *
 * Work on the own stream comes after everything given to the device before: it waits for each stream that was given work since it last
 * did. Work on a caller's stream waits for the own one, if that was used since. Two streams of the caller's are in no order through this. So an
 * engine with one stream pays an event where the runtime copied something by itself, and nothing else.
 * A stream that is being captured is left alone: its order is the graph's. */
#include "kernels/cuda_dev.h"

#include <string.h>

KvgStatus kvg_cuda_streams_open(CudaDev *cuda)
{
    void *stage = NULL;

    KVG_TRY(kvg_cuda_check(cudaStreamCreateWithFlags(&cuda->own, cudaStreamNonBlocking), "making a stream"));
    KVG_TRY(kvg_cuda_check(cudaEventCreateWithFlags(&cuda->order, cudaEventDisableTiming), "making an event"));
    for (int i = 0; i < CUDA_STAGE_PIECES; i++) {
        KVG_TRY(kvg_cuda_check(cudaEventCreateWithFlags(&cuda->stage_event[i], cudaEventDisableTiming), "making an event"));
    }
    KVG_TRY(kvg_cuda_check(cudaHostAlloc(&stage, CUDA_STAGE_PIECES * CUDA_STAGE_BYTES, cudaHostAllocPortable), "pinning host memory"));
    cuda->stage = stage;
    return KVG_OK;
}

void kvg_cuda_streams_close(CudaDev *cuda)
{
    if (cuda->stage != NULL) (void)cudaFreeHost(cuda->stage);
    for (int i = 0; i < CUDA_STAGE_PIECES; i++) {
        if (cuda->stage_event[i] != NULL) (void)cudaEventDestroy(cuda->stage_event[i]);
    }
    if (cuda->order != NULL) (void)cudaEventDestroy(cuda->order);
    if (cuda->own != NULL) (void)cudaStreamDestroy(cuda->own);
}

/* ---- order */

int kvg_cuda_capturing(cudaStream_t stream)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;

    if (cudaStreamIsCapturing(stream, &status) != cudaSuccess) {
        (void)cudaGetLastError(); /* the legacy stream while another is captured: it cannot be captured itself */
        return 0;
    }
    return status != cudaStreamCaptureStatusNone;
}

static KvgStatus make_wait(CudaDev *cuda, cudaStream_t later, cudaStream_t earlier)
{
    KVG_TRY(kvg_cuda_check(cudaEventRecord(cuda->order, earlier), "recording an event"));
    return kvg_cuda_check(cudaStreamWaitEvent(later, cuda->order, 0), "waiting for an event");
}

static KvgStatus enter_own(CudaDev *cuda)
{
    for (uint32_t i = 0; i < cuda->seen_count; i++) {
        CudaSeen *seen = &cuda->seen[i];

        if (!seen->busy || kvg_cuda_capturing(seen->stream)) continue;
        KVG_TRY(make_wait(cuda, cuda->own, seen->stream));
        seen->busy = 0;
    }
    cuda->own_count++;
    return KVG_OK;
}

/* Where a stream is remembered; with too many, one is waited for and forgotten. */
static KvgStatus find_seen(CudaDev *cuda, cudaStream_t stream, CudaSeen **found)
{
    for (uint32_t i = 0; i < cuda->seen_count; i++) {
        if (cuda->seen[i].stream == stream) {
            *found = &cuda->seen[i];
            return KVG_OK;
        }
    }
    if (cuda->seen_count < CUDA_STREAMS_MAX) {
        *found = &cuda->seen[cuda->seen_count++];
    } else {
        *found = &cuda->seen[cuda->seen_next++ % CUDA_STREAMS_MAX];
        KVG_TRY(kvg_cuda_check(cudaStreamSynchronize((*found)->stream), "waiting for a stream"));
    }
    **found = (CudaSeen){.stream = stream};
    return KVG_OK;
}

KvgStatus kvg_cuda_enter(CudaDev *cuda, KvgStream stream, cudaStream_t *entered)
{
    CudaSeen *seen = NULL;

    KVG_TRY(kvg_cuda_use(cuda));
    *entered = stream != NULL ? (cudaStream_t)stream : cuda->own;
    if (stream == NULL) return enter_own(cuda);
    if (kvg_cuda_capturing(*entered)) return KVG_OK;
    KVG_TRY(find_seen(cuda, *entered, &seen));
    if (seen->own_seen < cuda->own_count) {
        KVG_TRY(make_wait(cuda, *entered, cuda->own));
        seen->own_seen = cuda->own_count;
    }
    seen->busy = 1;
    return KVG_OK;
}

KvgStatus kvg_cuda_forget_stream(KvDev *dev, KvgStream stream)
{
    CudaDev *cuda;

    if (dev == NULL || dev->ops == NULL || strncmp(dev->ops->name, "cuda", 4) != 0 || stream == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_cuda_forget_stream needs a CUDA device and a stream");
    }
    cuda = dev->self;
    KVG_TRY(kvg_cuda_use(cuda));
    KVG_TRY(kvg_cuda_check(cudaStreamSynchronize((cudaStream_t)stream), "waiting for a stream"));
    for (uint32_t i = 0; i < cuda->seen_count; i++) {
        if (cuda->seen[i].stream == (cudaStream_t)stream) cuda->seen[i] = cuda->seen[--cuda->seen_count];
    }
    return KVG_OK;
}

/* ---- pinned pieces */

KvgStatus kvg_cuda_stage_take(CudaDev *cuda, void **piece)
{
    uint32_t index = cuda->stage_next % CUDA_STAGE_PIECES;

    if (cuda->stage_used[index]) {
        enum cudaStreamCaptureMode mode;
        kvg_cuda_step_out(&mode);
        KvgStatus status = kvg_cuda_check(cudaEventSynchronize(cuda->stage_event[index]), "waiting for a copy");
        kvg_cuda_step_back(&mode);
        KVG_TRY(status);
        cuda->stage_used[index] = 0;
    }
    *piece = cuda->stage + index * CUDA_STAGE_BYTES;
    return KVG_OK;
}

KvgStatus kvg_cuda_stage_leave(CudaDev *cuda, cudaStream_t stream)
{
    uint32_t index = cuda->stage_next % CUDA_STAGE_PIECES;

    KVG_TRY(kvg_cuda_check(cudaEventRecord(cuda->stage_event[index], stream), "recording an event"));
    cuda->stage_used[index] = 1;
    cuda->stage_next++;
    return KVG_OK;
}

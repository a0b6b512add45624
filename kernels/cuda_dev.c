/* CUDA device: the operations of the seam. Memory is in cuda_memory.c and cuda_range.c, order and staging in cuda_stream.c, kernels in *.cu. */
#include "kernels/cuda_dev.h"
#include "kernels/cuda_run.h"

#include <string.h>

#include "kernels/cuda_rows.h"
#include "kernels/cuda_state.h"
#include "runtime/base/memory.h"
#include "runtime/base/sized.h"

#define HANDLE_BYTES ((size_t)64 << 20)

static size_t cuda_granularity(void *self)
{
    return ((CudaDev *)self)->grain;
}

static uint64_t cuda_taken_bytes(void *self)
{
    return ((CudaDev *)self)->taken;
}

/* ---- copies */

/* Through pinned pieces, so that the source may change when this returns and nothing waits for the device. */
static KvgStatus stage_to_device(CudaDev *cuda, void *target, const void *source, size_t bytes, cudaStream_t stream)
{
    for (size_t done = 0; done < bytes;) {
        size_t piece = bytes - done < CUDA_STAGE_BYTES ? bytes - done : CUDA_STAGE_BYTES;
        void  *stage = NULL;

        KVG_TRY(kvg_cuda_stage_take(cuda, &stage));
        memcpy(stage, (const uint8_t *)source + done, piece);
        KVG_TRY(kvg_cuda_check(cudaMemcpyAsync((uint8_t *)target + done, stage, piece, cudaMemcpyHostToDevice, stream), "copying to the device"));
        KVG_TRY(kvg_cuda_stage_leave(cuda, stream));
        done += piece;
    }
    return KVG_OK;
}

/* A graph reads the source at each replay: the caller's memory itself, pinned. */
static KvgStatus cuda_htod(void *self, void *target, const void *source, size_t bytes, KvgStream stream)
{
    cudaStream_t entered;

    KVG_TRY(kvg_cuda_enter(self, stream, &entered));
    if (!kvg_cuda_capturing(entered)) return stage_to_device(self, target, source, bytes, entered);
    return kvg_cuda_check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyHostToDevice, entered), "copying to the device");
}

static KvgStatus cuda_dtoh(void *self, void *target, const void *source, size_t bytes, KvgStream stream)
{
    cudaStream_t entered;

    KVG_TRY(kvg_cuda_enter(self, stream, &entered));
    return kvg_cuda_check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToHost, entered), "copying from the device");
}

/* Overlapping ranges far apart go in pieces of their distance, in memmove's direction; close ones through one block's registers. */
static KvgStatus move_overlapping(uint8_t *target, const uint8_t *source, size_t bytes, cudaStream_t stream)
{
    int    down = target < source;
    size_t distance = (size_t)(down ? source - target : target - source), pieces = (bytes + distance - 1) / distance;

    if (pieces > 8) return kvg_move_one_launch((KvMove){.target = target, .source = source, .bytes = bytes}, stream);
    for (size_t i = 0; i < pieces; i++) {
        size_t from = (down ? i : pieces - 1 - i) * distance, piece = bytes - from < distance ? bytes - from : distance;
        KVG_TRY(kvg_cuda_check(cudaMemcpyAsync(target + from, source + from, piece, cudaMemcpyDeviceToDevice, stream), "moving on the device"));
    }
    return KVG_OK;
}

static KvgStatus cuda_move(void *self, void *target, const void *source, size_t bytes, KvgStream stream)
{
    uint8_t       *to = target;
    const uint8_t *from = source;
    cudaStream_t   entered;

    if (bytes == 0 || to == from) return KVG_OK;
    KVG_TRY(kvg_cuda_enter(self, stream, &entered));
    if (to < from + bytes && from < to + bytes) return move_overlapping(to, from, bytes, entered);
    return kvg_cuda_check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToDevice, entered), "moving on the device");
}

static KvgStatus cuda_move_rows(void *self, void *target, size_t target_pitch, const void *source, size_t source_pitch, size_t bytes, size_t rows,
                                KvgStream stream)
{
    cudaStream_t entered;

    KVG_TRY(kvg_cuda_enter(self, stream, &entered));
    return kvg_tap_store_launch(target, target_pitch, source, source_pitch, bytes, rows, entered);
}

static KvgStatus cuda_clear(void *self, void *target, size_t bytes, KvgStream stream)
{
    cudaStream_t entered;

    if (bytes == 0) return KVG_OK;
    KVG_TRY(kvg_cuda_enter(self, stream, &entered));
    return kvg_cuda_check(cudaMemsetAsync(target, 0, bytes, entered), "clearing memory");
}

/* The kernel reads the pinned pairs itself: one launch carries the change of a whole step. */
static KvgStatus cuda_patch(void *self, uint32_t *words, const KvPatch *pairs, uint32_t count, KvgStream stream)
{
    const uint32_t most = CUDA_STAGE_BYTES / sizeof *pairs;
    cudaStream_t   entered;

    KVG_TRY(kvg_cuda_enter(self, stream, &entered));
    if (kvg_cuda_capturing(entered)) {
        return kvg_fail(KVG_EBUSY, "%u tables and lengths changed on the host while the stream is captured: a replay would set them again; let the host "
                        "send them before", count);
    }
    for (uint32_t done = 0; done < count;) {
        uint32_t part = count - done < most ? count - done : most;
        void    *stage = NULL;

        KVG_TRY(kvg_cuda_stage_take(self, &stage));
        memcpy(stage, pairs + done, part * sizeof *pairs);
        KVG_TRY(kvg_patch_launch(words, stage, part, entered));
        KVG_TRY(kvg_cuda_stage_leave(self, entered));
        done += part;
    }
    return KVG_OK;
}

static KvgStatus cuda_set_i32_one(void *self, int32_t *target, int32_t value, KvgStream stream)
{
    KvPatch pair = {.index = 0, .value = (uint32_t)value};
    return cuda_patch(self, (uint32_t *)(void *)target, &pair, 1, stream);
}

/* ---- streams and events */

static KvgStatus cuda_synchronize(void *self, KvgStream stream)
{
    KVG_TRY(kvg_cuda_use(self));
    return kvg_cuda_check(stream != NULL ? cudaStreamSynchronize((cudaStream_t)stream) : cudaDeviceSynchronize(), "waiting for the device");
}

static KvgStatus cuda_event_create(void *self, KvEvent *event)
{
    cudaEvent_t fresh = NULL;

    KVG_TRY(kvg_cuda_use(self));
    KVG_TRY(kvg_cuda_check(cudaEventCreateWithFlags(&fresh, cudaEventDisableTiming), "making an event"));
    *event = fresh;
    return KVG_OK;
}

static void cuda_event_destroy(void *self, KvEvent event)
{
    (void)kvg_cuda_use(self);
    if (event != NULL) (void)cudaEventDestroy((cudaEvent_t)event);
}

static KvgStatus cuda_event_record(void *self, KvEvent event, KvgStream stream)
{
    cudaStream_t entered;

    KVG_TRY(kvg_cuda_enter(self, stream, &entered));
    return kvg_cuda_check(cudaEventRecord((cudaEvent_t)event, entered), "recording an event");
}

static KvgStatus cuda_stream_wait(void *self, KvgStream stream, KvEvent event)
{
    cudaStream_t entered;

    KVG_TRY(kvg_cuda_enter(self, stream, &entered));
    return kvg_cuda_check(cudaStreamWaitEvent(entered, (cudaEvent_t)event, 0), "waiting for an event");
}

/* ---- rows */

/* One run of rows as a batch of one place. */
static KvgStatus batch_of(KvFormat format, const KvRowsIn *in, KvRowsAt at, uint32_t heads, uint32_t dim, uint32_t rows, KvRowsBatch *batch)
{
    uint64_t head_bytes;

    KVG_TRY(kvg_format_row_bytes(format, dim, &head_bytes));
    *batch = (KvRowsBatch){.planes = 1, .heads = heads, .places = 1, .rows_max = rows};
    batch->plane[0].in = *in;
    batch->plane[0].to.plane = (KvPlane){.base = at.target, .head_stride = at.head_stride, .row_stride = at.row_stride, .head_bytes = head_bytes,
                                         .head_dim = dim, .format = format};
    return KVG_OK;
}

static KvgStatus cuda_encode_rows(void *self, KvFormat format, const KvRowsIn *in, KvRowsAt at, uint32_t heads, uint32_t dim, uint32_t rows,
                                  KvEncodeCounts *counts, KvgStream stream)
{
    cudaStream_t entered;
    KvRowsBatch  batch;

    KVG_TRY(batch_of(format, in, at, heads, dim, rows, &batch));
    batch.counts = counts;
    KVG_TRY(kvg_cuda_enter(self, stream, &entered));
    return kvg_encode_batch_launch(&batch, entered);
}

static KvgStatus cuda_decode_rows(void *self, KvFormat format, KvRowsAt at, uint32_t heads, uint32_t dim, uint32_t rows, float *target,
                                  KvgStream stream)
{
    KvRowsIn     in = {.data = target, .type = KVG_F32, .token_stride = (int64_t)heads * dim, .head_stride = dim};
    cudaStream_t entered;
    KvRowsBatch  batch;

    KVG_TRY(batch_of(format, &in, at, heads, dim, rows, &batch));
    KVG_TRY(kvg_cuda_enter(self, stream, &entered));
    return kvg_decode_batch_launch(&batch, entered);
}

static KvgStatus cuda_encode_batch(void *self, const KvRowsBatch *batch, KvgStream stream)
{
    cudaStream_t entered;

    KVG_TRY(kvg_cuda_enter(self, stream, &entered));
    return kvg_encode_batch_launch(batch, entered);
}

static KvgStatus cuda_recurrent_pass(void *self, const KvRecurrentPass *pass, KvgStream stream)
{
    cudaStream_t entered;

    KVG_TRY(kvg_cuda_enter(self, stream, &entered));
    return kvg_recurrent_pass_launch(pass, entered);
}

/* ---- opening and closing */

static void cuda_close(void *self)
{
    CudaDev *cuda = self;

    (void)kvg_cuda_use(cuda);
    (void)cudaDeviceSynchronize();
    (void)cudaGetLastError(); /* belongs to work whose caller has gone */
    KVG_ASSERT(cuda->slabs.count == 0 && cuda->blocks.count == 0); /* memory outlives no device */
    kvg_cuda_trim(cuda);
    kvg_cuda_streams_close(cuda);
    kvg_free(cuda->spares.at);
    kvg_free(cuda->slabs.at);
    kvg_free(cuda->blocks.at);
    kvg_free(cuda);
}

#define CUDA_COMMON_OPS                                                                                                          \
    .direct = 0, .zeros = kvg_cuda_zeros, .uninit = kvg_cuda_uninit, .free = kvg_cuda_free, .granularity = cuda_granularity,     \
    .taken_bytes = cuda_taken_bytes, .htod = cuda_htod, .dtoh = cuda_dtoh, .move = cuda_move, .move_rows = cuda_move_rows,       \
    .set_i32_one = cuda_set_i32_one, .synchronize = cuda_synchronize, .event_create = cuda_event_create,                        \
    .event_destroy = cuda_event_destroy, .event_record = cuda_event_record, .stream_wait = cuda_stream_wait,                    \
    .encode_rows = cuda_encode_rows, .decode_rows = cuda_decode_rows, .patch = cuda_patch, .clear = cuda_clear,                 \
    .recurrent_pass = cuda_recurrent_pass, .encode_batch = cuda_encode_batch, .run = &kvg_cuda_run_ops,                         \
    .available = kvg_cuda_available, .close = cuda_close

static const KvDevOps cuda_ops = {
    .name = "cuda", .reserve = kvg_cuda_reserve, .extend = kvg_cuda_extend, .give_back = kvg_cuda_give_back, .release = kvg_cuda_release,
    .trim = kvg_cuda_trim, CUDA_COMMON_OPS,
};

static const KvDevOps cuda_plain_ops = {.name = "cuda_plain", CUDA_COMMON_OPS};

static KvgStatus open_parts(CudaDev *cuda, const KvDevOps **ops)
{
    KVG_TRY(kvg_cuda_use(cuda));
    KVG_TRY(kvg_cuda_streams_open(cuda));
    *ops = &cuda_plain_ops;
    cuda->grain = (size_t)2 << 20;
    if (cuda->memory.alloc != NULL) return KVG_OK;
    KvgStatus ranges = kvg_cuda_range_open(cuda);
    if (ranges == KVG_OK) *ops = &cuda_ops;
    return ranges == KVG_ENOTSUP ? KVG_OK : ranges; /* planes grow by copying then */
}

KvgStatus kvg_dev_cuda(const KvgCudaOptions *given, KvDev *dev)
{
    static const KvgCudaOptions defaults = KVG_CUDA_OPTIONS_INIT;
    KvgCudaOptions              own, *options = &own;
    const KvDevOps             *ops = NULL;
    CudaDev                    *cuda;
    void                       *memory = NULL;
    KvgStatus                   status;

    KVG_TRY(KVG_SIZED_IN(KvgCudaOptions, given, defaults, own));
    if (dev == NULL || (options->memory != NULL && (options->memory->alloc == NULL || options->memory->free == NULL))) {
        return kvg_fail(KVG_EINVAL, "kvg_dev_cuda: start from KVG_CUDA_OPTIONS_INIT, give a place for the device, and both alloc and free or neither");
    }
    KVG_TRY(kvg_cuda_check_device(options->device));
    KVG_TRY(kvg_calloc(1, sizeof *cuda, "a CUDA device", &memory));
    cuda = memory;
    cuda->ordinal = options->device;
    cuda->handle_bytes = options->handle_bytes != 0 ? options->handle_bytes : HANDLE_BYTES;
    if (options->memory != NULL) cuda->memory = *options->memory;
    cuda->plain = options->plain;
    cuda->spare_bytes = options->spare_bytes;
    KVG_TRY_GOTO(open_parts(cuda, &ops), err_close);
    KvDev fresh = {.ops = ops, .self = cuda};
    if (ops == &cuda_ops) KVG_TRY_GOTO(kvg_cuda_refill(&fresh), err_close);
    *dev = fresh;
    return KVG_OK;
err_close:
    cuda_close(cuda);
    return status;
}

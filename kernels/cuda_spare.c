/* CUDA spares: handles that the device holds without a mapping, so that ranges grow without asking the driver for memory.
 *
 *   made ahead   kvg_cuda_refill makes handles of one grain until spare_bytes are held, off the serving path
 *   kept back    what a range gives back is kept up to spare_bytes
 *   used         an extension takes the largest spare that fits, and makes handles only where none does
 * Spares are memory of the device's: they count as taken. */
#include "kernels/cuda_dev.h"

#include "runtime/base/memory.h"

void kvg_cuda_spare_take(CudaDev *cuda, size_t most, CudaPiece *slab)
{
    CudaPieces *spares = &cuda->spares;
    size_t      best = spares->count;

    for (size_t i = spares->count; i-- > 0;) { /* from the end: nothing moves where all are alike */
        if (spares->at[i].bytes > most || (best < spares->count && spares->at[i].bytes <= spares->at[best].bytes)) continue;
        best = i;
        if (spares->at[i].bytes == most) break;
    }
    if (best == spares->count) return;
    CudaPiece spare = kvg_cuda_pieces_remove(spares, best);
    slab->bytes = spare.bytes;
    slab->handle = spare.handle;
    cuda->spare_held -= spare.bytes;
}

int kvg_cuda_spare_keep(CudaDev *cuda, const CudaPiece *slab)
{
    if (cuda->spare_held + slab->bytes > cuda->spare_bytes) return 0;
    if (kvg_cuda_pieces_push(&cuda->spares, (CudaPiece){.bytes = slab->bytes, .handle = slab->handle}) != KVG_OK) return 0;
    cuda->spare_held += slab->bytes;
    return 1;
}

void kvg_cuda_trim(void *self)
{
    CudaDev *cuda = self;

    while (cuda->spares.count > 0) {
        CudaPiece spare = kvg_cuda_pieces_remove(&cuda->spares, cuda->spares.count - 1);
        (void)cuda->driver.release(spare.handle);
        cuda->taken -= spare.bytes;
        cuda->spare_held -= spare.bytes;
    }
}

static KvgStatus make_spare(CudaDev *cuda)
{
    CudaPiece spare = {.bytes = cuda->grain};

    KVG_TRY(kvg_cuda_create(cuda, spare.bytes, &spare.handle));
    if (!kvg_cuda_spare_keep(cuda, &spare)) {
        (void)cuda->driver.release(spare.handle);
        return kvg_fail(KVG_ENOMEM, "no host memory is left to list spare handles of device %d in", cuda->ordinal);
    }
    cuda->taken += spare.bytes;
    return KVG_OK;
}

KvgStatus kvg_cuda_refill(KvDev *dev)
{
    CudaDev *cuda;

    KVG_TRY(kvg_cuda_check_ours(dev, "kvg_cuda_refill"));
    cuda = dev->self;
    if (cuda->asleep) return kvg_fail(KVG_EBUSY, "device %d is asleep: wake it before spare handles are made", cuda->ordinal);
    KVG_TRY(kvg_cuda_use(cuda));
    while (cuda->spare_held + cuda->grain <= cuda->spare_bytes) KVG_TRY(make_spare(cuda));
    return KVG_OK;
}

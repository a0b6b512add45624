/* CUDA ranges: addresses reserved once, memory mapped into them from the front.
 *
 *   reserve    addresses alone
 *   extend     one handle for each handle_bytes of what is added: create, map, allow access. Cost goes by handle, not by byte. Spares are used first
 *   give_back  unmaps whole handles from the end: a mapping cannot be cut, so the one in which the new end lies stays, and counts as taken
 *
 * Unmapping takes effect at once and waits for no kernel, so the device is synchronised before. Handles can be exported from the start. */
#include "kernels/cuda_dev.h"

#include <string.h>

#include "runtime/base/memory.h"

static size_t grain_round(const CudaDev *cuda, size_t bytes)
{
    return (bytes + cuda->grain - 1) / cuda->grain * cuda->grain;
}

KvgStatus kvg_cuda_range_open(CudaDev *cuda)
{
    CUdevice device = 0;
    int      manages = 0, exports = 0;

    if (cuda->plain) return kvg_fail(KVG_ENOTSUP, "CUDA device %d was opened without reserved ranges", cuda->ordinal);
    KVG_TRY(kvg_cuda_driver_load(&cuda->driver));
    KVG_TRY(kvg_cuda_check_driver(&cuda->driver, cuda->driver.device_get(&device, cuda->ordinal), "asking for a device's", 0));
    (void)cuda->driver.device_attribute(&manages, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
    (void)cuda->driver.device_attribute(&exports, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device);
    if (!manages) return kvg_fail(KVG_ENOTSUP, "CUDA device %d has no virtual memory management", cuda->ordinal);
    memset(&cuda->prop, 0, sizeof cuda->prop);
    cuda->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    cuda->prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    cuda->prop.location.id = cuda->ordinal;
    cuda->prop.requestedHandleTypes = exports ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
    KVG_TRY(kvg_cuda_check_driver(&cuda->driver, cuda->driver.granularity(&cuda->grain, &cuda->prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                                  "asking the granularity of", 0));
    cuda->handle_bytes = grain_round(cuda, cuda->handle_bytes);
    return KVG_OK;
}

/* ---- one slab */

KvgStatus kvg_cuda_create(CudaDev *cuda, size_t bytes, CUmemGenericAllocationHandle *handle)
{
    CUmemGenericAllocationHandle fresh = 0;

    KVG_TRY(kvg_cuda_check_driver(&cuda->driver, kvg_fault_hit() ? CUDA_ERROR_OUT_OF_MEMORY : cuda->driver.create(&fresh, bytes, &cuda->prop, 0),
                                  "getting memory for a range:", bytes));
    *handle = fresh;
    return KVG_OK;
}

static KvgStatus map_handle(CudaDev *cuda, const CudaPiece *slab)
{
    const CudaDriver *driver = &cuda->driver;
    CUmemAccessDesc   access = {.location = cuda->prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    KvgStatus         status;

    KVG_TRY(kvg_cuda_check_driver(driver, driver->map(slab->at, slab->bytes, 0, slab->handle, 0), "mapping", slab->bytes));
    KVG_TRY_GOTO(kvg_cuda_check_driver(driver, driver->set_access(slab->at, slab->bytes, &access, 1), "allowing access to", slab->bytes), err_unmap);
    return KVG_OK;
err_unmap:
    (void)driver->unmap(slab->at, slab->bytes);
    return status;
}

/* Backs the slab by a handle of its own, made here unless it has one. Taken counts what is made, and no longer what is lost. */
static KvgStatus map_slab(CudaDev *cuda, CudaPiece *slab)
{
    KvgStatus status;

    if (slab->handle == 0) {
        KVG_TRY(kvg_cuda_create(cuda, slab->bytes, &slab->handle));
        cuda->taken += slab->bytes;
    }
    KVG_TRY_GOTO(map_handle(cuda, slab), err_release);
    return KVG_OK;
err_release:
    (void)cuda->driver.release(slab->handle);
    cuda->taken -= slab->bytes;
    slab->handle = 0;
    return status;
}

/* The handle goes, or is kept back as a spare. */
static KvgStatus unmap_slab(CudaDev *cuda, CudaPiece *slab, int keep)
{
    KVG_TRY(kvg_cuda_check_driver(&cuda->driver, cuda->driver.unmap(slab->at, slab->bytes), "unmapping", slab->bytes));
    if (!keep || !kvg_cuda_spare_keep(cuda, slab)) {
        (void)cuda->driver.release(slab->handle);
        cuda->taken -= slab->bytes;
    }
    slab->handle = 0;
    return KVG_OK;
}

/* ---- ranges */

KvgStatus kvg_cuda_reserve(void *self, size_t bytes, KvRange *range)
{
    CudaDev    *cuda = self;
    CUdeviceptr at = 0;

    if (bytes == 0 || bytes > (size_t)1 << 47) {
        return kvg_fail(KVG_EINVAL, "a range of %zu bytes cannot be reserved; ask for 1 byte to 2^47", bytes);
    }
    KVG_TRY(kvg_cuda_use(cuda));
    size_t size = grain_round(cuda, bytes);
    KVG_TRY(kvg_cuda_check_driver(&cuda->driver, kvg_fault_hit() ? CUDA_ERROR_OUT_OF_MEMORY
                                                                : cuda->driver.address_reserve(&at, size, cuda->grain, 0, 0),
                                  "reserving addresses for", size));
    *range = (KvRange){.base = (uint8_t *)(uintptr_t)at, .reserved = size, .taken = 0};
    return KVG_OK;
}

/* Unmaps the range's slabs from the end while they begin at or past `kept`. */
static KvgStatus cut(CudaDev *cuda, KvRange *range, size_t kept)
{
    uintptr_t base = (uintptr_t)range->base;

    while (range->taken > kept) {
        size_t           index = kvg_cuda_pieces_find(&cuda->slabs, base + range->taken - 1);
        CudaPiece       *slab = &cuda->slabs.at[index];

        KVG_ASSERT(index < cuda->slabs.count && slab->at + slab->bytes == base + range->taken);
        if (slab->at < base + kept) return KVG_OK;
        if (slab->handle != 0) KVG_TRY(unmap_slab(cuda, slab, 1));
        range->taken -= slab->bytes;
        (void)kvg_cuda_pieces_remove(&cuda->slabs, index);
    }
    return KVG_OK;
}

static KvgStatus add_slab(CudaDev *cuda, KvRange *range, size_t most)
{
    CudaPiece slab = {.at = (uintptr_t)range->base + range->taken, .bytes = most};
    KvgStatus status;

    kvg_cuda_spare_take(cuda, most, &slab);
    KVG_TRY(map_slab(cuda, &slab));
    KVG_TRY_GOTO(kvg_cuda_pieces_add(&cuda->slabs, slab), err_unmap);
    range->taken += slab.bytes;
    return KVG_OK;
err_unmap:
    (void)unmap_slab(cuda, &slab, 1);
    return status;
}

KvgStatus kvg_cuda_extend(void *self, KvRange *range, size_t bytes)
{
    CudaDev  *cuda = self;
    size_t    had = range->taken, wanted = grain_round(cuda, bytes);
    KvgStatus status = KVG_OK;
    enum cudaStreamCaptureMode mode;

    if (bytes > range->reserved) {
        return kvg_fail(KVG_ECAPACITY, "a range of %zu reserved bytes cannot be extended to %zu; reserve more", range->reserved, bytes);
    }
    if (cuda->asleep) return kvg_fail(KVG_EBUSY, "device %d is asleep: wake it before its ranges grow", cuda->ordinal);
    if (wanted <= range->taken) return KVG_OK;
    KVG_TRY(kvg_cuda_use(cuda));
    kvg_cuda_step_out(&mode);
    while (status == KVG_OK && range->taken < wanted) {
        size_t left = wanted - range->taken;
        status = add_slab(cuda, range, left < cuda->handle_bytes ? left : cuda->handle_bytes);
    }
    if (status != KVG_OK) (void)cut(cuda, range, had); /* nothing has been written there */
    kvg_cuda_step_back(&mode);
    return status;
}

KvgStatus kvg_cuda_give_back(void *self, KvRange *range, size_t bytes)
{
    CudaDev  *cuda = self;
    size_t    kept = grain_round(cuda, bytes);
    KvgStatus status;
    enum cudaStreamCaptureMode mode;

    if (kept >= range->taken) return KVG_OK;
    if (kvg_fault_hit()) return kvg_fail(KVG_ENOMEM, "giving back memory of a range fails, as a test asked");
    KVG_TRY(kvg_cuda_use(cuda));
    KVG_TRY(kvg_cuda_check(cudaDeviceSynchronize(), "waiting before unmapping"));
    kvg_cuda_step_out(&mode);
    status = cut(cuda, range, kept);
    kvg_cuda_step_back(&mode);
    return status;
}

void kvg_cuda_release(void *self, KvRange *range)
{
    CudaDev  *cuda = self;
    uintptr_t base = (uintptr_t)range->base;
    enum cudaStreamCaptureMode mode;

    if (range->base == NULL) return;
    (void)kvg_cuda_use(cuda);
    (void)cudaDeviceSynchronize();
    kvg_cuda_step_out(&mode);
    for (size_t index = kvg_cuda_pieces_find(&cuda->slabs, base); index < cuda->slabs.count && cuda->slabs.at[index].at < base + range->reserved;) {
        CudaPiece slab = kvg_cuda_pieces_remove(&cuda->slabs, index);
        if (slab.handle != 0) (void)unmap_slab(cuda, &slab, 0); /* else asleep */
    }
    (void)cuda->driver.address_free(base, range->reserved);
    kvg_cuda_step_back(&mode);
    *range = (KvRange){0};
}

/* ---- sleep and wake */

static int is_cuda(const KvDev *dev)
{
    return dev != NULL && dev->ops != NULL && dev->ops->reserve == kvg_cuda_reserve;
}

KvgStatus kvg_cuda_check_ours(const KvDev *dev, const char *call)
{
    if (is_cuda(dev)) return KVG_OK;
    return kvg_fail(KVG_EINVAL, "%s: it needs a CUDA device with reserved ranges", call);
}

static void unmap_first(CudaDev *cuda, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        CudaPiece *slab = &cuda->slabs.at[i];
        if (slab->handle != 0) (void)unmap_slab(cuda, slab, 0);
    }
}

KvgStatus kvg_cuda_sleep(KvDev *dev)
{
    CudaDev *cuda;
    enum cudaStreamCaptureMode mode;

    KVG_TRY(kvg_cuda_check_ours(dev, "kvg_cuda_sleep"));
    cuda = dev->self;
    if (cuda->asleep) return kvg_fail(KVG_EBUSY, "device %d is asleep already", cuda->ordinal);
    KVG_TRY(kvg_cuda_use(cuda));
    KVG_TRY(kvg_cuda_check(cudaDeviceSynchronize(), "waiting before sleep"));
    kvg_cuda_step_out(&mode);
    unmap_first(cuda, cuda->slabs.count);
    kvg_cuda_trim(cuda);
    kvg_cuda_step_back(&mode);
    cuda->asleep = 1;
    return KVG_OK;
}

KvgStatus kvg_cuda_wake(KvDev *dev)
{
    CudaDev  *cuda;
    KvgStatus status = KVG_OK;
    enum cudaStreamCaptureMode mode;

    KVG_TRY(kvg_cuda_check_ours(dev, "kvg_cuda_wake"));
    cuda = dev->self;
    if (!cuda->asleep) return kvg_fail(KVG_EINVAL, "device %d is not asleep", cuda->ordinal);
    KVG_TRY(kvg_cuda_use(cuda));
    kvg_cuda_step_out(&mode);
    for (size_t i = 0; i < cuda->slabs.count; i++) {
        CudaPiece *slab = &cuda->slabs.at[i];

        if (slab->handle != 0) continue; /* sleep could not unmap it */
        status = map_slab(cuda, slab);
        if (status != KVG_OK) {
            unmap_first(cuda, i);
            break;
        }
    }
    kvg_cuda_step_back(&mode);
    if (status == KVG_OK) cuda->asleep = 0;
    return status;
}

KvgStatus kvg_cuda_export(KvDev *dev, const void *address, int *fd, void **base, size_t *bytes)
{
    CudaDev *cuda;
    int      descriptor = -1;

    KVG_TRY(kvg_cuda_check_ours(dev, "kvg_cuda_export"));
    cuda = dev->self;
    size_t index = kvg_cuda_pieces_find(&cuda->slabs, (uintptr_t)address);
    if (index >= cuda->slabs.count || cuda->slabs.at[index].at > (uintptr_t)address || cuda->slabs.at[index].handle == 0 ||
        cuda->prop.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE) {
        return kvg_fail(KVG_EINVAL, "no memory of device %d that can be exported is mapped at %p", cuda->ordinal, address);
    }
    const CudaPiece *slab = &cuda->slabs.at[index];
    KVG_TRY(kvg_cuda_use(cuda));
    KVG_TRY(kvg_cuda_check_driver(&cuda->driver,
                                  cuda->driver.export_handle(&descriptor, slab->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), "exporting",
                                  slab->bytes));
    *fd = descriptor;
    *base = (void *)slab->at;
    *bytes = slab->bytes;
    return KVG_OK;
}

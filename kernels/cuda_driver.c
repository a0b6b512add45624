/* CUDA driver: entry points by name and version, and why there may be none. */
#include "kernels/cuda_dev.h"

#include <stdio.h>
#include <string.h>

#include "kernels/cuda_arch.h"

#ifndef KVG_CUDA_ARCHS
#define KVG_CUDA_ARCHS "90"
#endif

/* ---- errors */

KvgStatus kvg_cuda_check(cudaError_t error, const char *act)
{
    if (error == cudaSuccess) return KVG_OK;
    (void)cudaGetLastError(); /* what is not sticky is told once */
    return kvg_fail(error == cudaErrorMemoryAllocation ? KVG_ENOMEM : KVG_EDEVICE, "CUDA, %s: %s (%s)%s", act, cudaGetErrorString(error),
                    cudaGetErrorName(error), error == cudaErrorMemoryAllocation ? "; free device memory or ask for less" : "");
}

KvgStatus kvg_cuda_check_driver(const CudaDriver *driver, CUresult result, const char *act, size_t bytes)
{
    const char *text = NULL;

    if (result == CUDA_SUCCESS) return KVG_OK;
    if (driver->error_string(result, &text) != CUDA_SUCCESS || text == NULL) text = "an unknown error";
    return kvg_fail(result == CUDA_ERROR_OUT_OF_MEMORY ? KVG_ENOMEM : KVG_EDEVICE, "CUDA, %s %zu bytes: %s%s", act, bytes, text,
                    result == CUDA_ERROR_OUT_OF_MEMORY ? "; free device memory or ask for less" : "");
}

/* ---- entry points */

/* `version` is that of the type's name: later ones may take other arguments. */
static KvgStatus look_up(const char *name, unsigned version, void *entry)
{
    void       *found = NULL; /* left alone where there is no driver */
    enum cudaDriverEntryPointQueryResult query = cudaDriverEntryPointSymbolNotFound;
    cudaError_t error = cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &query);

    if (error != cudaSuccess || found == NULL || query != cudaDriverEntryPointSuccess) {
        (void)cudaGetLastError();
        return kvg_fail(KVG_ENOTSUP, "the CUDA driver has no %s (%s); install a driver for CUDA %d", name, cudaGetErrorName(error), CUDART_VERSION / 1000);
    }
    memcpy(entry, &found, sizeof found);
    return KVG_OK;
}

KvgStatus kvg_cuda_driver_load(CudaDriver *driver)
{
    KVG_TRY(look_up("cuGetErrorString", 6000, &driver->error_string));
    KVG_TRY(look_up("cuDeviceGet", 2000, &driver->device_get));
    KVG_TRY(look_up("cuDeviceGetAttribute", 2000, &driver->device_attribute));
    KVG_TRY(look_up("cuMemGetAllocationGranularity", 10020, &driver->granularity));
    KVG_TRY(look_up("cuMemAddressReserve", 10020, &driver->address_reserve));
    KVG_TRY(look_up("cuMemAddressFree", 10020, &driver->address_free));
    KVG_TRY(look_up("cuMemCreate", 10020, &driver->create));
    KVG_TRY(look_up("cuMemRelease", 10020, &driver->release));
    KVG_TRY(look_up("cuMemMap", 10020, &driver->map));
    KVG_TRY(look_up("cuMemUnmap", 10020, &driver->unmap));
    KVG_TRY(look_up("cuMemSetAccess", 10020, &driver->set_access));
    return look_up("cuMemExportToShareableHandle", 10020, &driver->export_handle);
}

/* ---- is there a device? */

static KvgStatus count_devices(int *count)
{
    int         found = 0, version = 0;
    cudaError_t error = cudaGetDeviceCount(&found);

    *count = 0;
    if (error == cudaErrorInsufficientDriver) {
        (void)cudaGetLastError();
        (void)cudaDriverGetVersion(&version);
        if (version == 0) return kvg_fail(KVG_ENOTSUP, "no CUDA driver is installed; install one, or use the host device");
        return kvg_fail(KVG_ENOTSUP, "the CUDA driver serves CUDA %d.%d, and this build needs %d.%d; install a newer driver", version / 1000,
                        version % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    }
    if (error == cudaErrorNoDevice || (error == cudaSuccess && found == 0)) {
        (void)cudaGetLastError();
        return kvg_fail(KVG_ENOTSUP, "no CUDA device is visible; look at CUDA_VISIBLE_DEVICES and nvidia-smi, or use the host device");
    }
    KVG_TRY(kvg_cuda_check(error, "counting devices"));
    *count = found;
    return KVG_OK;
}

KvgStatus kvg_cuda_check_device(int ordinal)
{
    int count, major = 0, minor = 0;

    KVG_TRY(count_devices(&count));
    if (ordinal < 0 || ordinal >= count) {
        return kvg_fail(KVG_ENOTSUP, "there is no CUDA device %d: devices are 0 to %d", ordinal, count - 1);
    }
    KVG_TRY(kvg_cuda_check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal), "asking a device's capability"));
    KVG_TRY(kvg_cuda_check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, ordinal), "asking a device's capability"));
    if (!kvg_cuda_archs_run(KVG_CUDA_ARCHS, 10 * major + minor)) {
        return kvg_fail(KVG_ENOTSUP, "CUDA device %d has compute capability %d.%d, and this build has code for %s; build with "
                        "-DCMAKE_CUDA_ARCHITECTURES=%d%d", ordinal, major, minor, KVG_CUDA_ARCHS, major, minor);
    }
    return KVG_OK;
}

int kvg_cuda_probe(char *why, size_t bytes)
{
    int       count = 0, usable = 0;
    KvgStatus status = count_devices(&count);

    for (int i = 0; i < count; i++) {
        KvgStatus device = kvg_cuda_check_device(i);
        if (device == KVG_OK) usable++;
        else status = device;
    }
    if (why != NULL && bytes > 0) snprintf(why, bytes, "%s", status == KVG_OK ? "" : kvg_last_error());
    return usable;
}

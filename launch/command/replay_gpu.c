/* Replay's GPU. */
#include "launch/command/replay_gpu.h"

#include "runtime/base/error.h"

#if KVG_HAVE_CUDA
#include <stdio.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include <kvgrid/kvgrid_cuda.h>

#include "kernels/cuda_dev.h"

/* 0: the driver does not answer, and what opens the device will say why. */
static int describe_gpu(int ordinal, RankDevice *device)
{
    struct cudaDeviceProp about;
    int                   node = -1;

    *device = (RankDevice){ .ordinal = ordinal, .node = -1 };
    if (cudaGetDeviceProperties(&about, ordinal) != cudaSuccess ||
        cudaDeviceGetPCIBusId(device->bus, (int)sizeof device->bus, ordinal) != cudaSuccess) {
        return 0;
    }
    memcpy(device->id, &about.uuid, sizeof device->id);
    snprintf(device->name, sizeof device->name, "%.*s", (int)sizeof device->name - 1, about.name);
    if (cudaDeviceGetAttribute(&node, cudaDevAttrHostNumaId, ordinal) == cudaSuccess) { /* B109: it knows better than the bus */
        device->node = node;
    }
    return 1;
}

void kvg_replay_gpu_list(RankDevices *devices)
{
    int count = 0;

    devices->count = 0;
    if (kvg_cuda_probe(NULL, 0) == 0 || cudaGetDeviceCount(&count) != cudaSuccess) {
        return;
    }
    for (int ordinal = 0; ordinal < count && devices->count < RANK_DEVICES_MAX; ordinal++) {
        if (kvg_cuda_check_device(ordinal) == KVG_OK && describe_gpu(ordinal, &devices->device[devices->count])) {
            devices->count++;
        }
    }
    (void)cudaGetLastError(); /* a question that this driver does not know */
}

KvgStatus kvg_replay_gpu_open(int ordinal, KvDev *dev)
{
    KvgCudaOptions want = KVG_CUDA_OPTIONS_INIT;
    char           why[256];
    int            count = kvg_cuda_probe(why, sizeof why);

    if (count == 0) {
        return kvg_fail(KVG_ENOTSUP, "--device cuda: %s", why);
    }
    want.device = ordinal;
    kvg_tracer_set(kvg_cuda_tracer()); /* for a profiler, if one is attached */
    return kvg_dev_cuda(&want, dev);
}

KvgStatus kvg_replay_gpu_free_bytes(KvDev *dev, uint64_t *bytes)
{
    size_t      free_bytes = 0, total = 0;
    cudaError_t error;

    KVG_TRY(dev->ops->synchronize(dev->self, NULL)); /* and makes the device current */
    error = cudaMemGetInfo(&free_bytes, &total);
    if (error != cudaSuccess) {
        return kvg_fail(KVG_EDEVICE, "asking the driver what is free: %s", cudaGetErrorString(error));
    }
    *bytes = free_bytes;
    return KVG_OK;
}

#else

void kvg_replay_gpu_list(RankDevices *devices)
{
    devices->count = 0;
}

KvgStatus kvg_replay_gpu_open(int ordinal, KvDev *dev)
{
    (void)ordinal, (void)dev;
    return kvg_fail(KVG_ENOTSUP, "--device cuda: this kvgrid was built without CUDA: build it where nvcc is found");
}

KvgStatus kvg_replay_gpu_free_bytes(KvDev *dev, uint64_t *bytes)
{
    (void)dev, (void)bytes;
    return kvg_fail(KVG_ENOTSUP, "this kvgrid was built without CUDA");
}

#endif

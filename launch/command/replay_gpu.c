/* Replay's GPU. */
#include "launch/command/replay_gpu.h"

#include "runtime/base/error.h"

#if KVG_HAVE_CUDA
#include <cuda_runtime_api.h>

#include <kvgrid/kvgrid_cuda.h>

KvgStatus kvg_replay_gpu_open(int place, KvDev *dev)
{
    KvgCudaOptions want = KVG_CUDA_OPTIONS_INIT;
    char           why[256];
    int            count = kvg_cuda_probe(why, sizeof why);

    if (count == 0) {
        return kvg_fail(KVG_ENOTSUP, "--device cuda: %s", why);
    }
    want.device = place % count;
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

KvgStatus kvg_replay_gpu_open(int place, KvDev *dev)
{
    (void)place, (void)dev;
    return kvg_fail(KVG_ENOTSUP, "--device cuda: this kvgrid was built without CUDA: build it where nvcc is found");
}

KvgStatus kvg_replay_gpu_free_bytes(KvDev *dev, uint64_t *bytes)
{
    (void)dev, (void)bytes;
    return kvg_fail(KVG_ENOTSUP, "this kvgrid was built without CUDA");
}

#endif

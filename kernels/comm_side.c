/* Side stream. See the header. */
#include "kernels/comm_side.h"

#include "kernels/cuda_dev.h"

KvgStatus kvg_cuda_side_open(int device, CudaSide *side)
{
    int lowest = 0, highest = 0;

    KVG_TRY(kvg_cuda_check_device(device));
    KVG_TRY(kvg_cuda_check(cudaSetDevice(device), "choosing the device"));
    KVG_TRY(kvg_cuda_check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "asking for priorities"));
    side->device = device;
    return kvg_cuda_check(cudaStreamCreateWithPriority(&side->stream, cudaStreamNonBlocking, highest), "making a stream");
}

void kvg_cuda_side_close(CudaSide *side)
{
    if (side->stream == NULL) return;
    (void)cudaSetDevice(side->device);
    (void)cudaStreamSynchronize(side->stream);
    (void)cudaStreamDestroy(side->stream);
    (void)cudaGetLastError();
    side->stream = NULL;
}

KvgStatus kvg_cuda_side_enter(const CudaSide *side, enum cudaStreamCaptureMode *mode)
{
    *mode = cudaStreamCaptureModeRelaxed;
    KVG_TRY(kvg_cuda_check(cudaSetDevice(side->device), "choosing the device"));
    return kvg_cuda_check(cudaThreadExchangeStreamCaptureMode(mode), "stepping out of a capture");
}

void kvg_cuda_side_leave(enum cudaStreamCaptureMode mode)
{
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
}

KvgStatus kvg_cuda_side_passed(cudaEvent_t event, const char *act, int *yes)
{
    cudaError_t error = cudaEventQuery(event);

    *yes = error == cudaSuccess;
    if (error == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return KVG_OK;
    }
    return kvg_cuda_check(error, act);
}

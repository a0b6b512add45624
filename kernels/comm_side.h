/* Side stream: where comms put their work, so that it neither waits for an engine's kernels nor is captured with them. Private. */
#ifndef KVG_COMM_SIDE_H
#define KVG_COMM_SIDE_H

#include "kernels/cuda_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CudaSide {
    int          device;
    cudaStream_t stream; /* non-blocking, of the highest priority */
} CudaSide;

/* ENOTSUP a device that this build has no code for; EDEVICE. */
KvgStatus kvg_cuda_side_open(int device, CudaSide *side);
/* Waits for what is on it. */
void kvg_cuda_side_close(CudaSide *side);

/* Around every act of a comm's: its device is current, and a capture of this thread in any mode is not disturbed. `mode` is for leave. */
KvgStatus kvg_cuda_side_enter(const CudaSide *side, enum cudaStreamCaptureMode *mode);
void      kvg_cuda_side_leave(enum cudaStreamCaptureMode mode);

/* *yes: the event has passed. */
KvgStatus kvg_cuda_side_passed(cudaEvent_t event, const char *act, int *yes);

#ifdef __cplusplus
}
#endif
#endif

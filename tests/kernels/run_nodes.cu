/* Nodes of a test's captured step; a thread a place, bound by their launch. */
#include <cuda_runtime_api.h>

#include "tests/kernels/run_nodes.h"

static __global__ void keep_kernel(RunNodes nodes)
{
    const uint32_t i = threadIdx.x;

    if (i >= nodes.places || nodes.slots[i] < 0) return;
    nodes.accepted[i] = run_kept(nodes.keys[nodes.slots[i]], nodes.first_row[i], nodes.rows[i]);
}

static __global__ void refuse_kernel(const uint32_t *first_row, uint32_t from, int32_t code, int32_t *status)
{
    if (first_row[0] >= from) *status = code;
}

int run_keep_launch(const RunNodes *nodes, void *stream)
{
    keep_kernel<<<1, nodes->places, 0, (cudaStream_t)stream>>>(*nodes);
    return (int)cudaGetLastError();
}

int run_refuse_launch(const uint32_t *first_row, uint32_t from, int32_t code, int32_t *status, void *stream)
{
    refuse_kernel<<<1, 1, 0, (cudaStream_t)stream>>>(first_row, from, code, status);
    return (int)cudaGetLastError();
}

/* CUDA, captured runs: stream capture, graphs, mapped host words, and the vote's kernels behind the device seam. */
#include "kernels/cuda_run.h"

#include <string.h>

#include "kernels/kvgrid_vote.h"

/* ---- words that both sides see */

static KvgStatus map_words(size_t bytes, void **host, void **device)
{
    KvgStatus status;

    KVG_TRY(kvg_cuda_check(cudaHostAlloc(host, bytes, cudaHostAllocMapped | cudaHostAllocPortable), "getting mapped host memory"));
    status = kvg_cuda_check(cudaHostGetDevicePointer(device, *host, 0), "mapping host memory");
    if (status != KVG_OK) (void)cudaFreeHost(*host);
    return status;
}

static KvgStatus words_new(void *self, size_t bytes, void **host, void **device)
{
    enum cudaStreamCaptureMode mode; /* a first capture takes its words in it */
    void                      *memory = NULL, *seen = NULL;
    KvgStatus                  status;

    KVG_TRY(kvg_cuda_use(self));
    kvg_cuda_step_out(&mode);
    status = map_words(bytes, &memory, &seen);
    kvg_cuda_step_back(&mode);
    KVG_TRY(status);
    memset(memory, 0, bytes);
    *host = memory;
    *device = seen;
    return KVG_OK;
}

static void words_free(void *self, void *host)
{
    enum cudaStreamCaptureMode mode;

    (void)kvg_cuda_use(self);
    kvg_cuda_step_out(&mode);
    (void)cudaFreeHost(host);
    kvg_cuda_step_back(&mode);
}

/* ---- graphs */

static KvgStatus capture_begin(void *self, KvgStream stream, int *joined)
{
    KVG_TRY(kvg_cuda_use(self));
    *joined = kvg_cuda_capturing((cudaStream_t)stream);
    if (*joined) return KVG_OK;
    /* relaxed: other threads, and other ranks of this process, may allocate meanwhile */
    return kvg_cuda_check(cudaStreamBeginCapture((cudaStream_t)stream, cudaStreamCaptureModeRelaxed), "beginning a capture");
}

static KvgStatus capture_end(void *self, KvgStream stream, void **graph_p)
{
    cudaGraph_t     graph = NULL;
    cudaGraphExec_t exec = NULL;
    KvgStatus       status;

    KVG_TRY(kvg_cuda_use(self));
    KVG_TRY(kvg_cuda_check(cudaStreamEndCapture((cudaStream_t)stream, &graph), "ending a capture"));
    status = kvg_cuda_check(cudaGraphInstantiate(&exec, graph, 0), "making a graph");
    (void)cudaGraphDestroy(graph);
    if (status == KVG_OK) status = kvg_cuda_check(cudaGraphUpload(exec, (cudaStream_t)stream), "sending a graph");
    if (status != KVG_OK) {
        if (exec != NULL) (void)cudaGraphExecDestroy(exec);
        return status;
    }
    *graph_p = exec;
    return KVG_OK;
}

static void capture_drop(void *self, KvgStream stream)
{
    cudaGraph_t graph = NULL;

    (void)kvg_cuda_use(self);
    if (cudaStreamEndCapture((cudaStream_t)stream, &graph) == cudaSuccess && graph != NULL) (void)cudaGraphDestroy(graph);
    (void)cudaGetLastError(); /* a capture that something else has broken ends with an error */
}

static KvgStatus graph_launch(void *self, void *graph, KvgStream stream)
{
    cudaStream_t entered;

    KVG_TRY(kvg_cuda_enter(self, stream, &entered));
    return kvg_cuda_check(cudaGraphLaunch(graph, entered), "launching a graph");
}

static void graph_free(void *self, void *graph)
{
    (void)kvg_cuda_use(self);
    (void)cudaGraphExecDestroy(graph);
}

/* ---- the vote */

static KvgStatus vote(void *self, unsigned acts, const KvVoteBoard *board, const KvVoteArrays *arrays, KvgStream stream)
{
    cudaStream_t entered;

    KVG_TRY(kvg_cuda_enter(self, stream, &entered));
    switch (acts) {
    case KVG_VOTE_ACT_POST: return kvg_vote_post_launch(board, arrays, entered);
    case KVG_VOTE_ACT_DECIDE: return kvg_vote_decide_launch(board, arrays, entered);
    default: return kvg_vote_launch(board, arrays, entered);
    }
}

static KvgStatus peek(void *self, const KvVoteBoard *board, uint64_t step, void *units, KvgStream stream)
{
    cudaStream_t entered;

    KVG_TRY(kvg_cuda_enter(self, stream, &entered));
    return kvg_vote_peek_launch(board, step, units, entered);
}

static KvgStatus event_test(void *self, KvEvent event, int *done)
{
    cudaError_t result;

    KVG_TRY(kvg_cuda_use(self));
    result = cudaEventQuery((cudaEvent_t)event);
    *done = result == cudaSuccess;
    return result == cudaErrorNotReady ? KVG_OK : kvg_cuda_check(result, "asking after an event");
}

const KvDevRunOps kvg_cuda_run_ops = {
    .words_new = words_new, .words_free = words_free, .capture_begin = capture_begin, .capture_end = capture_end, .capture_drop = capture_drop,
    .graph_launch = graph_launch, .graph_free = graph_free, .vote = vote, .peek = peek, .event_test = event_test,
};

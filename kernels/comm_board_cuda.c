/* Board comm, the acts on a GPU: one stream, one event, pinned memory. */
#include "kernels/comm_board.h"
#include "kernels/comm_side.h"
#include "kernels/kvgrid_comm_board.h"
#include "kernels/kvgrid_vote.h"
#include "runtime/base/memory.h"
#include "runtime/base/sized.h"

typedef struct CudaBoard {
    KvVoteBoard        board;
    KvCommBoardOptions options;
    CudaSide           side;
    cudaEvent_t        mark;
    uint8_t           *pinned; /* records, then units */
} CudaBoard;

static KvgStatus open_memory(CudaBoard *cuda, size_t record_bytes, size_t unit_bytes)
{
    if (cuda->pinned != NULL) KVG_TRY(kvg_cuda_check(cudaFreeHost(cuda->pinned), "freeing pinned memory"));
    cuda->pinned = NULL;
    return kvg_cuda_check(cudaHostAlloc((void **)&cuda->pinned, record_bytes + unit_bytes, cudaHostAllocPortable | cudaHostAllocMapped),
                          "getting pinned memory");
}

static KvgStatus cuda_open(void *user, size_t record_stride, KvBoardPlaces *memory)
{
    CudaBoard   *cuda = user;
    const size_t records = cuda->board.slots * record_stride, units = cuda->board.slots * kvg_vote_slot_bytes(&cuda->board);
    enum cudaStreamCaptureMode mode;

    KVG_TRY(kvg_cuda_side_enter(&cuda->side, &mode));
    KvgStatus status = open_memory(cuda, records, units);
    kvg_cuda_side_leave(mode);
    if (status == KVG_OK) *memory = (KvBoardPlaces){.records = cuda->pinned, .units = cuda->pinned + records};
    return status;
}

static KvgStatus cuda_send(void *user, const KvVoteRecord *record)
{
    CudaBoard *cuda = user;
    enum cudaStreamCaptureMode mode;

    KVG_TRY(kvg_cuda_side_enter(&cuda->side, &mode));
    KvgStatus status = kvg_vote_send_launch(&cuda->board, record, cuda->side.stream);
    kvg_cuda_side_leave(mode);
    return status;
}

static KvgStatus cuda_peek(void *user, uint64_t step, void *units)
{
    CudaBoard *cuda = user;
    enum cudaStreamCaptureMode mode;

    KVG_TRY(kvg_cuda_side_enter(&cuda->side, &mode));
    KvgStatus status = kvg_vote_peek_launch(&cuda->board, step, units, cuda->side.stream);
    kvg_cuda_side_leave(mode);
    return status;
}

static KvgStatus cuda_mark(void *user)
{
    CudaBoard *cuda = user;
    enum cudaStreamCaptureMode mode;

    KVG_TRY(kvg_cuda_side_enter(&cuda->side, &mode));
    KvgStatus status = kvg_cuda_check(cudaEventRecord(cuda->mark, cuda->side.stream), "recording an event");
    kvg_cuda_side_leave(mode);
    return status;
}

static KvgStatus cuda_passed(void *user, int *yes)
{
    CudaBoard *cuda = user;
    enum cudaStreamCaptureMode mode;

    KVG_TRY(kvg_cuda_side_enter(&cuda->side, &mode));
    KvgStatus status = kvg_cuda_side_passed(cuda->mark, "looking at a vote's records", yes);
    kvg_cuda_side_leave(mode);
    return status;
}

static void cuda_close(void *user)
{
    CudaBoard *cuda = user;

    kvg_cuda_side_close(&cuda->side);
    if (cuda->mark != NULL) (void)cudaEventDestroy(cuda->mark);
    if (cuda->pinned != NULL) (void)cudaFreeHost(cuda->pinned);
    if (cuda->options.release != NULL) cuda->options.release(cuda->options.user);
    kvg_free(cuda);
}

static const KvBoardActs cuda_acts = {
    .open = cuda_open, .send = cuda_send, .peek = cuda_peek, .mark = cuda_mark, .passed = cuda_passed, .close = cuda_close,
};

KvgStatus kvg_comm_board_create(const KvVoteBoard *board, const KvCommBoardOptions *given, KvComm *comm)
{
    static const KvCommBoardOptions defaults = KVG_COMM_BOARD_OPTIONS_INIT;
    KvCommBoardOptions              own, *options = &own;
    KvgStatus  status;
    CudaBoard *cuda;
    void      *memory = NULL;

    KVG_TRY(KVG_SIZED_IN(KvCommBoardOptions, given, defaults, own));
    if (board == NULL || options->base == NULL || options->base->ops == NULL || comm == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_comm_board_create: a board, options that start from KVG_COMM_BOARD_OPTIONS_INIT with a base comm, and a place "
                        "for the comm");
    }
    KVG_TRY(kvg_calloc(1, sizeof *cuda, "a comm", &memory));
    cuda = memory;
    cuda->board = *board;
    const KvCarriedOptions carried = {.base = *options->base, .epoch = options->epoch};
    KVG_TRY_GOTO(kvg_cuda_side_open(options->device, &cuda->side), err_close);
    KVG_TRY_GOTO(kvg_cuda_check(cudaEventCreateWithFlags(&cuda->mark, cudaEventDisableTiming), "making an event"), err_close);
    KVG_TRY_GOTO(kvg_comm_board(&carried, board, &cuda_acts, cuda, comm), err_close);
    cuda->options = *options; /* from here on the board is ours to release */
    return KVG_OK;
err_close:
    cuda_close(cuda);
    return status;
}

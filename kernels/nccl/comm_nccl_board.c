/* Board comm over NCCL: a communicator, a vote's board in its window, and the comm over it. */
#include "kernels/comm_carried.h"
#include "kernels/kvgrid_comm_board.h"
#include "kernels/nccl/comm_open.h"
#include "kernels/nccl/kvgrid_vote_nccl.h"
#include "kernels/nccl/nccl_calls.h"
#include "runtime/base/memory.h"

typedef struct NcclBoard {
    ncclComm_t          comm;
    KvNcclVote         *vote;
    const KvgBootstrap *bootstrap; /* during set-up */
    uint32_t            setup_ms;
} NcclBoard;

static void release(void *user)
{
    NcclBoard *board = user;

    kvg_nccl_vote_destroy(board->vote);
    if (board->comm != NULL) (void)ncclCommAbort(board->comm); /* waits for nobody, as destroying might */
    kvg_free(board);
}

static KvgStatus agree(void *user, KvgStatus mine)
{
    const NcclBoard *board = user;
    return kvg_nccl_agree(board->bootstrap, board->setup_ms, mine);
}

static KvgStatus make_vote(NcclBoard *board, const KvNcclCommOptions *options)
{
    KvNcclVoteOptions want = KVG_NCCL_VOTE_OPTIONS_INIT;

    want.tp = options->tp;
    want.window_steps = kvg_nccl_window_steps(options, board->bootstrap->ranks);
    want.sequences_max = options->sequences_max;
    want.timeout_ms = board->setup_ms;
    want.agree = agree;
    want.user = board;
    return kvg_nccl_vote_create(board->comm, &want, &board->vote);
}

static KvgStatus make_comm(NcclBoard *board, const KvNcclCommOptions *options, KvComm *comm)
{
    KvCommBoardOptions want = KVG_COMM_BOARD_OPTIONS_INIT;

    want.device = options->device;
    want.base = options->base;
    want.epoch = options->epoch;
    want.release = release;
    want.user = board;
    return kvg_comm_board_create(kvg_nccl_vote_board(board->vote), &want, comm);
}

/* Whether this rank may have a board at all, before anything collective. */
static KvgStatus get_board(NcclBoard **board)
{
    void *memory = NULL;

    KVG_TRY(kvg_nccl_vote_probe(NULL, 0));
    KVG_TRY(kvg_calloc(1, sizeof **board, "a board", &memory));
    *board = memory;
    return KVG_OK;
}

KvgStatus kvg_comm_nccl_board_create(const KvgBootstrap *bootstrap, const KvNcclCommOptions *given, KvComm *comm)
{
    KvNcclCommOptions taken, *options = &taken;
    KvgStatus  status;
    ncclComm_t own = NULL;
    NcclBoard *board = NULL;
    KvComm     made = { 0 };

    KVG_TRY(kvg_nccl_take_options(given, options));
    KVG_TRY(kvg_nccl_comm_open(bootstrap, options, 1, &own));
    KVG_TRY_GOTO(kvg_nccl_agree(bootstrap, kvg_nccl_setup_ms(options), get_board(&board)), err_abort);
    *board = (NcclBoard){.comm = own, .bootstrap = bootstrap, .setup_ms = kvg_nccl_setup_ms(options)};
    KVG_TRY_GOTO(make_vote(board, options), err_release);
    KVG_TRY_GOTO(kvg_nccl_agree(bootstrap, board->setup_ms, make_comm(board, options, &made)), err_undo);
    board->bootstrap = NULL;
    *comm = made;
    return KVG_OK;
err_undo:
    if (made.ops != NULL) {
        kvg_comm_carried_undo(&made); /* releases the board */
        return status;
    }
err_release:
    release(board);
    return status;
err_abort:
    (void)ncclCommAbort(own);
    kvg_free(board);
    return status;
}

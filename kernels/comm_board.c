/* Board carrier. See the header. */
#include "kernels/comm_board.h"

#include <string.h>

#include "runtime/base/memory.h"

typedef struct Awaited { /* a step that was posted; its place is its slot on the board */
    uint64_t step;    /* 0: none */
    uint32_t epoch;
    uint32_t missing; /* ranks */
    int      peeked;  /* in the round that is under way, or was the last */
    uint8_t  here[KVG_VOTE_DEVICE_RANKS_MAX];
} Awaited;

typedef struct Board {
    KvVoteBoard        is;
    const KvBoardActs *acts;
    void              *user;
    KvBoardPlaces      memory;
    size_t             record_bytes, record_stride;
    Awaited           *awaited; /* [slots] */
    KvVoteRecord      *given;   /* the one that was unpacked last */
    uint32_t           open;    /* steps that miss a record */
    int                round;   /* peeks are under way */
    int                fresh;   /* the last round's copies are still to be unpacked */
    uint32_t           next_slot, next_rank; /* of them */
} Board;

static uint8_t *units_of(const Board *board, uint32_t slot)
{
    return board->memory.units + slot * kvg_vote_slot_bytes(&board->is);
}

static KvgStatus board_open(void *self, size_t record_bytes)
{
    Board       *board = self;
    const size_t most = kvg_vote_record_bytes(board->is.sequences_max);
    void        *given = NULL;

    if (record_bytes > most) {
        return kvg_fail(KVG_EINVAL, "board comm: records of %zu bytes on a board for %u sequences a step (%zu bytes); make the board for "
                        "max_step_sequences", record_bytes, board->is.sequences_max, most);
    }
    KVG_ASSERT(!board->round); /* nothing is in flight */
    board->record_bytes = record_bytes;
    board->record_stride = (most + 15) / 16 * 16; /* whole: what a shorter record leaves is 0 */
    KVG_TRY(kvg_calloc(1, board->record_stride, "a record", &given));
    kvg_free(board->given);
    board->given = given;
    board->open = 0;
    board->fresh = 0;
    memset(board->awaited, 0, board->is.slots * sizeof(Awaited));
    return board->acts->open(board->user, board->record_stride, &board->memory);
}

/* ---- rounds */

static KvgStatus start_round(Board *board)
{
    for (uint32_t slot = 0; slot < board->is.slots; slot++) {
        Awaited *awaited = &board->awaited[slot];
        awaited->peeked = awaited->missing > 0;
        if (awaited->peeked) {
            KVG_TRY(board->acts->peek(board->user, awaited->step, units_of(board, slot)));
        }
    }
    board->round = 1;
    return board->acts->mark(board->user);
}

static KvgStatus board_poll(void *self)
{
    Board *board = self;

    if (board->round) {
        int yes = 0;
        KVG_TRY(board->acts->passed(board->user, &yes));
        if (yes) {
            board->round = 0;
            board->fresh = 1;
            board->next_slot = board->next_rank = 0;
        }
        return KVG_OK;
    }
    return board->fresh || board->open == 0 ? KVG_OK : start_round(board);
}

static KvgStatus board_post(void *self, const KvVoteRecord *record, uint64_t now_ns)
{
    Board         *board = self;
    const uint32_t slot = (uint32_t)(record->step & (board->is.slots - 1));
    Awaited       *awaited = &board->awaited[slot];
    uint8_t       *copy = board->memory.records + slot * board->record_stride;

    (void)now_ns;
    if (awaited->missing > 0) {
        return kvg_fail(KVG_ECAPACITY, "board comm: step %llu would use the place of step %llu, which still misses a record; make the board for more "
                        "steps in flight", (unsigned long long)record->step, (unsigned long long)awaited->step);
    }
    memcpy(copy, record, board->record_bytes);
    *awaited = (Awaited){ .step = record->step, .epoch = record->epoch, .missing = board->is.ranks - 1 };
    awaited->here[board->is.rank] = 1;
    board->open += awaited->missing > 0;
    return board->acts->send(board->user, (const KvVoteRecord *)(const void *)copy);
}

/* ---- what a round brought */

static int unpack(Board *board, uint32_t slot, uint32_t rank)
{
    Awaited *awaited = &board->awaited[slot];

    if (!awaited->peeked || awaited->here[rank] ||
        !kvg_vote_unpack(&board->is, units_of(board, slot), awaited->step, awaited->epoch, rank, board->given)) {
        return 0;
    }
    awaited->here[rank] = 1;
    awaited->missing--;
    board->open -= awaited->missing == 0;
    return 1;
}

static const void *board_take(void *self, int *peer)
{
    Board *board = self;

    *peer = -1;
    for (; board->fresh; board->next_slot++, board->next_rank = 0) {
        if (board->next_slot == board->is.slots) {
            board->fresh = 0;
            break;
        }
        while (board->awaited[board->next_slot].peeked && board->next_rank < board->is.ranks) {
            uint32_t rank = board->next_rank++;
            if (unpack(board, board->next_slot, rank)) {
                *peer = (int)rank;
                return board->given;
            }
        }
    }
    return NULL;
}

static void board_stop(void *self)
{
    (void)self; /* sends and peeks end by themselves */
}

static void board_close(void *self)
{
    Board *board = self;

    board->acts->close(board->user);
    kvg_free(board->given);
    kvg_free(board->awaited);
    kvg_free(board);
}

static const KvCarrierOps board_ops = {
    .name = "board", .open = board_open, .post = board_post, .poll = board_poll, .take = board_take, .stop = board_stop, .close = board_close,
};

KvgStatus kvg_comm_board(const KvCarriedOptions *carried, const KvVoteBoard *is, const KvBoardActs *acts, void *user, KvComm *comm)
{
    KvgStatus        status;
    Board           *board;
    KvCarriedOptions with = *carried;
    void            *memory = NULL, *awaited = NULL;

    if ((uint32_t)carried->base.size != is->ranks || (uint32_t)carried->base.rank != is->rank || is->ranks > KVG_VOTE_DEVICE_RANKS_MAX) {
        return kvg_fail(KVG_EINVAL, "board comm: rank %u of %u on the board, %d of %d in the base comm; they must be the same, at most %u", is->rank,
                        is->ranks, carried->base.rank, carried->base.size, KVG_VOTE_DEVICE_RANKS_MAX);
    }
    KVG_TRY(kvg_calloc(1, sizeof *board, "a comm", &memory));
    board = memory;
    KVG_TRY_GOTO(kvg_calloc(is->slots, sizeof(Awaited), "a comm", &awaited), err_free);
    board->awaited = awaited;
    board->is = *is;
    board->acts = acts;
    board->user = user;
    with.again = is->slots;
    KVG_TRY_GOTO(kvg_comm_carried(&with, &board_ops, board, comm), err_free);
    return KVG_OK;
err_free:
    kvg_free(awaited);
    kvg_free(board);
    return status;
}

/* Board carrier: a record goes into every rank's block of a vote's board, and what has come is looked at by copying the own block's slots. Private; the
 * state machine alone, so that it is tested on the host twins.
 *
 *   post   one send
 *   poll   a round: peeks of the steps that still miss a record, then a mark; when the mark has passed, what they brought is unpacked
 *
 * Nothing waits on the device, so nothing can hang there. A record of a step that this rank has not posted stays on the board until it has. */
#ifndef KVG_COMM_BOARD_H
#define KVG_COMM_BOARD_H

#include <kvgrid/device_vote.h>

#include "kernels/comm_carried.h"

typedef struct KvBoardPlaces {
    uint8_t *records; /* [slots][record_stride] what send reads */
    uint8_t *units;   /* [slots][kvg_vote_slot_bytes] what peek writes */
} KvBoardPlaces;

typedef struct KvBoardActs {
    KvgStatus (*open)(void *user, size_t record_stride, KvBoardPlaces *memory);
    KvgStatus (*send)(void *user, const KvVoteRecord *record);
    KvgStatus (*peek)(void *user, uint64_t step, void *units);
    KvgStatus (*mark)(void *user);
    KvgStatus (*passed)(void *user, int *yes); /* all that was asked for before the mark */
    void (*close)(void *user); /* when what was asked for has ended; frees the memory, too */
} KvBoardActs;

/* ENOMEM; EINVAL more ranks than a board has. On success acts and user are taken over. */
KvgStatus kvg_comm_board(const KvCarriedOptions *carried, const KvVoteBoard *board, const KvBoardActs *acts, void *user, KvComm *comm);

#endif

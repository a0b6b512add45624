/* Replay's check of stored bytes: sampled rows against a fresh encode, sampled recurrent state against its recomputation from the first
 * token. Private to the command. Threads: the main thread. */
#ifndef KVG_COMMAND_REPLAY_VERIFY_H
#define KVG_COMMAND_REPLAY_VERIFY_H

#include "launch/command/replay_sight.h"

typedef struct ReplayCheck {
    uint64_t rows;       /* head rows (and stretches of recurrent state) compared */
    uint64_t mismatches; /* of those, different, or not to be read */
    char     first[256]; /* the first mismatch as a sentence, "" while there is none */
    float   *values;     /* what must stand there, before it is encoded */
    float   *inputs;     /* an update's row */
    float   *pool;       /* a pool's index rows; NULL without pooled indexers */
    uint8_t *bytes;      /* encoded */
} ReplayCheck;

KvgStatus kvg_replay_check_create(const ReplayPlanes *planes, ReplayCheck *check);
void      kvg_replay_check_free(ReplayCheck *check);

/* Compares the sampled rows of every layer, plane and head that this rank holds of a request with `len` committed rows, and of every part of a
 * recurrent layer a stretch of one head. */
void kvg_replay_check_sequence(ReplayCheck *check, const ReplayPlanes *planes, ReplaySight *sight, const ReplayMaker *maker,
                               uint64_t request, uint32_t slot, uint64_t len);

#endif

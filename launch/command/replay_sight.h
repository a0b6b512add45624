/* Replay's sight: stored bytes as the host reads them, wherever they are. Private to the command.
 *
 * On the host device a layer is looked at as it is. Elsewhere the words that say where its rows are (tables, bases, column indices) are brought from
 * the device, so they are the very ones that kernels go by, and so are the stored bytes, piece by piece. Threads: the main thread. */
#ifndef KVG_COMMAND_REPLAY_SIGHT_H
#define KVG_COMMAND_REPLAY_SIGHT_H

#include "launch/command/replay_device.h"

enum { REPLAY_SIGHT_WORDS = 5 }; /* kinds of words: table, base, read, write, each */

typedef struct ReplaySight {
    KvgPlacement   *placement;
    ReplayDevice   *device;
    ReplayLayer     layer; /* as seen: the views are those below */
    KvPlaneView     kv;
    KvLatentView    latent;
    KvRecurrentView recurrent;
    int32_t        *words[REPLAY_SIGHT_WORDS];
    size_t          words_room[REPLAY_SIGHT_WORDS];
    void           *bytes; /* those last looked at */
    size_t          bytes_room;
} ReplaySight;

ReplaySight kvg_replay_sight(KvgPlacement *placement, ReplayDevice *device);
void        kvg_replay_sight_free(ReplaySight *sight);

/* Before the first look after a step: what the step has changed is on the device from here on. */
KvgStatus kvg_replay_sight_refresh(ReplaySight *sight);
/* The layer for host readers, of this slot alone; until the next call. */
KvgStatus kvg_replay_sight_layer(ReplaySight *sight, const ReplayLayer *layer, uint32_t slot, const ReplayLayer **seen);
/* `bytes` bytes that are stored at an address of such a layer; until the next call. */
KvgStatus kvg_replay_sight_bytes(ReplaySight *sight, const void *stored, size_t bytes, const void **seen);
/* Flips one bit of one stored byte. */
KvgStatus kvg_replay_sight_flip(ReplaySight *sight, void *stored, unsigned bit);

#endif

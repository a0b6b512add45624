/* Replay's device: where the state lives, and how a step's rows get there. Private to the command.
 *
 * On the host device rows are lent as they are. On CUDA they are copied to a buffer of the device first, in the order of its own stream; the
 * engine's kernels would have made them there. What replay does with host pointers is refused there by name: recurrent state and pool keys, which
 * it makes itself, --verify and --fault flip, which look at stored bytes. The digest needs none of that. Threads: the main thread. */
#ifndef KVG_COMMAND_REPLAY_DEVICE_H
#define KVG_COMMAND_REPLAY_DEVICE_H

#include <kvgrid/kvgrid.h>

#include "launch/command/replay_options.h"

typedef struct ReplayDevice {
    KvDev  dev;        /* valid while is_cuda */
    int    is_cuda;
    void  *buffer[2];  /* device memory, grown as steps ask */
    size_t bytes[2];
} ReplayDevice;

/* Opens what --device asks for: this rank's GPU is its place on the machine modulo the devices. ENOTSUP by name. */
KvgStatus kvg_replay_device_open(const ReplayOptions *options, const ModelConfig *config, ReplayDevice *device);
void      kvg_replay_device_close(ReplayDevice *device);
/* Makes `bytes` bytes of host rows readable for the device; `which` is 0 or 1, and what was lent before under it is gone. */
KvgStatus kvg_replay_device_lend(ReplayDevice *device, int which, const void *rows, size_t bytes, const void **lent);

#endif

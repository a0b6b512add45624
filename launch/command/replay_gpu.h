/* Replay's GPU: the device that --device cuda opens, and what its driver says is free. Private to the command.
 *
 * Alone in a source of its own, so that a test puts a device without a GPU into its place. Threads: the main thread. */
#ifndef KVG_COMMAND_REPLAY_GPU_H
#define KVG_COMMAND_REPLAY_GPU_H

#include <kvgrid/kvgrid.h>

#include "launch/rank/device_choice.h"

/* The GPUs that this process can use; none without CUDA, a driver or a GPU, which kvg_replay_gpu_open says. No context is created. */
void kvg_replay_gpu_list(RankDevices *devices);
/* Opens GPU `ordinal`, as the driver counts. ENOTSUP by name. */
KvgStatus kvg_replay_gpu_open(int ordinal, KvDev *dev);
/* Bytes of the device's memory that nobody holds, by its driver, once all that was given to the device is done. EDEVICE. */
KvgStatus kvg_replay_gpu_free_bytes(KvDev *dev, uint64_t *bytes);

#endif

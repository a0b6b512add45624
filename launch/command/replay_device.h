/* Replay's device: where the state lives, and how a step's rows get there. Private to the command.
 *
 * On the host device rows are lent as they are. On a GPU they are copied to a buffer of the device first, in the order of its own stream; the
 * engine's kernels would have made them there. How stored bytes come back to be looked at is replay_sight.h. Threads: the main thread. */
#ifndef KVG_COMMAND_REPLAY_DEVICE_H
#define KVG_COMMAND_REPLAY_DEVICE_H

#include <kvgrid/kvgrid.h>

#include "launch/command/replay_options.h"

typedef struct ReplayDevice {
    KvDev    dev;       /* valid while is_gpu */
    int      is_gpu;
    void    *buffer[2]; /* device memory, grown as steps ask */
    size_t   bytes[2];
    uint64_t free_before; /* by the driver, before anything was placed */
} ReplayDevice;

/* Opens what --device asks for; GPU `ordinal` is this rank's. ENOTSUP by name. */
KvgStatus kvg_replay_device_open(const ReplayOptions *options, int ordinal, ReplayDevice *device);
void      kvg_replay_device_close(ReplayDevice *device);
/* Makes `bytes` bytes of host rows readable for the device; `which` is 0 or 1, and what was lent before under it is gone. */
KvgStatus kvg_replay_device_lend(ReplayDevice *device, int which, const void *rows, size_t bytes, const void **lent);

/* What a GPU's memory has become less by since it was opened: by our count, and by the driver's, which rounds allocations up and counts what other
 * processes take. All 0 on the host device. */
typedef struct ReplayDriver {
    uint64_t counted; /* by ranges and allocations of this device */
    int64_t  driver;
    uint64_t grain;   /* what the driver rounds an allocation up to */
} ReplayDriver;
KvgStatus kvg_replay_device_driver(ReplayDevice *device, ReplayDriver *driver);

#endif

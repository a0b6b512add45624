/* Replay's device. */
#include "launch/command/replay_device.h"

#include <string.h>

#include "launch/command/replay_gpu.h"
#include "runtime/base/error.h"

KvgStatus kvg_replay_device_open(const ReplayOptions *options, int ordinal, ReplayDevice *device)
{
    memset(device, 0, sizeof *device);
    if (options->device == REPLAY_DEVICE_HOST) {
        return KVG_OK;
    }
    KvgStatus status = kvg_replay_gpu_open(ordinal, &device->dev);
    if (status != KVG_OK) {
        return options->device == REPLAY_DEVICE_AUTO && status == KVG_ENOTSUP ? KVG_OK : status;
    }
    device->is_gpu = 1;
    return kvg_replay_gpu_free_bytes(&device->dev, &device->free_before);
}

void kvg_replay_device_close(ReplayDevice *device)
{
    if (!device->is_gpu) {
        return;
    }
    for (int i = 0; i < 2; i++) {
        device->dev.ops->free(device->dev.self, device->buffer[i]);
    }
    kvg_dev_close(&device->dev);
    device->is_gpu = 0;
}

KvgStatus kvg_replay_device_driver(ReplayDevice *device, ReplayDriver *driver)
{
    uint64_t free_now = 0;

    *driver = (ReplayDriver){ 0 };
    if (!device->is_gpu) {
        return KVG_OK;
    }
    if (device->dev.ops->trim != NULL) {
        device->dev.ops->trim(device->dev.self); /* what is kept back for later is nobody's, and gone by the driver's count */
    }
    KVG_TRY(kvg_replay_gpu_free_bytes(&device->dev, &free_now));
    driver->counted = device->dev.ops->taken_bytes(device->dev.self);
    driver->driver = (int64_t)(device->free_before - free_now);
    driver->grain = device->dev.ops->granularity(device->dev.self);
    return KVG_OK;
}

KvgStatus kvg_replay_device_lend(ReplayDevice *device, int which, const void *rows, size_t bytes, const void **lent)
{
    const KvDevOps *ops = device->dev.ops;

    *lent = rows;
    if (!device->is_gpu || bytes == 0) {
        return KVG_OK;
    }
    if (bytes > device->bytes[which]) {
        void *grown = NULL;
        KVG_TRY(ops->uninit(device->dev.self, bytes, &grown));
        KVG_TRY(ops->synchronize(device->dev.self, NULL)); /* what was lent before is read to its end */
        if (device->buffer[which] != NULL) {
            ops->free(device->dev.self, device->buffer[which]);
        }
        device->buffer[which] = grown;
        device->bytes[which] = bytes;
    }
    KVG_TRY(ops->htod(device->dev.self, device->buffer[which], rows, bytes, NULL));
    *lent = device->buffer[which];
    return KVG_OK;
}

/* Dev: what every device has in common: checked copies, clones, closing. */
#include <kvgrid/dev.h>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"

void kvg_dev_close(KvDev *dev)
{
    if (dev->ops == NULL) return;
    dev->ops->close(dev->self);
    *dev = (KvDev){0};
}

static KvgStatus check_range(const char *side, size_t buffer_bytes, size_t offset, size_t bytes)
{
    uint64_t end;

    if (!kvg_add_u64(offset, bytes, &end)) {
        return kvg_fail(KVG_EOVERFLOW, "copy of %zu bytes at offset %zu of the %s: past 64 bits", bytes, offset, side);
    }
    if (end > buffer_bytes) {
        return kvg_fail(KVG_EINVAL, "copy of %zu bytes at offset %zu of the %s: it has %zu bytes; copy fewer", bytes, offset,
                        side, buffer_bytes);
    }
    return KVG_OK;
}

KvgStatus kvg_dev_copy_range_into(KvDev *dev, void *target, size_t target_bytes, size_t target_offset, const void *source,
                                  size_t source_bytes, size_t source_offset, size_t bytes, KvgStream stream)
{
    KVG_TRY(check_range("target", target_bytes, target_offset, bytes));
    KVG_TRY(check_range("source", source_bytes, source_offset, bytes));
    if (bytes == 0) return KVG_OK;
    return dev->ops->move(dev->self, (uint8_t *)target + target_offset, (const uint8_t *)source + source_offset, bytes, stream);
}

KvgStatus kvg_dev_clone(KvDev *dev, const void *source, size_t bytes, KvgStream stream, void **clone)
{
    void     *fresh = NULL;
    KvgStatus status;

    KVG_TRY(dev->ops->uninit(dev->self, bytes, &fresh));
    KVG_TRY_GOTO(dev->ops->move(dev->self, fresh, source, bytes, stream), err_free);
    *clone = fresh;
    return KVG_OK;
err_free:
    dev->ops->free(dev->self, fresh);
    return status;
}

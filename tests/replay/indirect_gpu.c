/* Replay's GPU without a GPU: the tests' device whose memory the host cannot touch, so that any access of the command that is no operation of the
 * device stops it. Linked into a second `kvgrid` in the place of launch/command/replay_gpu.c; `--device cuda` opens it.
 *
 * Its driver says what it has taken, and KVG_TEST_DRIVER_EXTRA bytes more, once something is taken: what a report that compares must notice. */
#include <stdlib.h>

#include "launch/command/replay_gpu.h"
#include "tests/support/indirect_dev.h"

#define ALL_BYTES ((uint64_t)1 << 40)

KvgStatus kvg_replay_gpu_open(int place, KvDev *dev)
{
    (void)place;
    return indirect_dev_open(getenv("KVG_TEST_PLAIN") == NULL, dev);
}

KvgStatus kvg_replay_gpu_free_bytes(KvDev *dev, uint64_t *bytes)
{
    const char *extra = getenv("KVG_TEST_DRIVER_EXTRA");
    uint64_t    taken = dev->ops->taken_bytes(dev->self);

    *bytes = ALL_BYTES - taken - (taken > 0 && extra != NULL ? strtoull(extra, NULL, 10) : 0);
    return KVG_OK;
}

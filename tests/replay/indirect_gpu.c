/* Replay's GPU without a GPU: the tests' device whose memory the host cannot touch, so that any access of the command that is no operation of the
 * device stops it. Linked into a second `kvgrid` in the place of launch/command/replay_gpu.c; `--device cuda` opens it.
 *
 * Its driver says what it has taken, and KVG_TEST_DRIVER_EXTRA bytes more, once something is taken: what a report that compares must notice. */
#include <stdlib.h>

#include "launch/command/replay_gpu.h"
#include "tests/support/indirect_dev.h"

#define ALL_BYTES ((uint64_t)1 << 40)

/* As many as a machine may have, since any number of them cost nothing; KVG_TEST_GPUS of them, if it is set. */
void kvg_replay_gpu_list(RankDevices *devices)
{
    const char *most = getenv("KVG_TEST_GPUS");

    devices->count = most != NULL ? (uint32_t)atoi(most) : RANK_DEVICES_MAX;
    for (uint32_t i = 0; i < devices->count; i++) {
        devices->device[i] = (RankDevice){ .id = { (uint8_t)i }, .name = "indirect", .ordinal = (int32_t)i, .node = -1 };
    }
}

KvgStatus kvg_replay_gpu_open(int ordinal, KvDev *dev)
{
    (void)ordinal;
    return indirect_dev_open(getenv("KVG_TEST_PLAIN") == NULL, dev);
}

KvgStatus kvg_replay_gpu_free_bytes(KvDev *dev, uint64_t *bytes)
{
    const char *extra = getenv("KVG_TEST_DRIVER_EXTRA");
    uint64_t    taken = dev->ops->taken_bytes(dev->self);

    *bytes = ALL_BYTES - taken - (taken > 0 && extra != NULL ? strtoull(extra, NULL, 10) : 0);
    return KVG_OK;
}

#include "launch/rank/device_choice.h"

#include <string.h>

#include "runtime/base/error.h"
#include "runtime/base/memory.h"

/* Kuhn's matching, in rounds: in round r a device takes its r-th rank, so that no device has two before each has one. */
typedef struct Choice {
    const RankDevices *const *seen;
    int                       ranks;
    int                       round; /* ranks a device may have now */
    int                      *taken; /* [ranks] index of what rank i has; -1 none */
    uint8_t                  *tried; /* [ranks][RANK_DEVICES_MAX] in this search */
} Choice;

static const RankDevice *device_of(const Choice *choice, int rank, int index)
{
    return &choice->seen[rank]->device[index];
}

static int is_same(const RankDevice *left, const RankDevice *right)
{
    return memcmp(left->id, right->id, RANK_DEVICE_ID) == 0;
}

/* Marks the device as tried, by whatever index each rank sees it; 0: it was already. */
static int try_device(Choice *choice, int rank, int index)
{
    const RankDevice *device = device_of(choice, rank, index);

    if (choice->tried[rank * RANK_DEVICES_MAX + index]) {
        return 0;
    }
    for (int other = 0; other < choice->ranks; other++) {
        for (uint32_t i = 0; i < choice->seen[other]->count; i++) {
            choice->tried[other * RANK_DEVICES_MAX + (int)i] |= (uint8_t)is_same(device, device_of(choice, other, (int)i));
        }
    }
    return 1;
}

static int users_of(const Choice *choice, const RankDevice *device)
{
    int users = 0;

    for (int rank = 0; rank < choice->ranks; rank++) {
        users += choice->taken[rank] >= 0 && is_same(device, device_of(choice, rank, choice->taken[rank]));
    }
    return users;
}

/* The first that has room. 0: none has. */
static int take_free_device(Choice *choice, int rank)
{
    for (int index = 0; index < (int)choice->seen[rank]->count; index++) {
        if (users_of(choice, device_of(choice, rank, index)) < choice->round) {
            choice->taken[rank] = index;
            return 1;
        }
    }
    return 0;
}

/* Gives `rank` a device, moving others where nothing else makes room. Depth: at most the devices of the machine. */
static int take_device(Choice *choice, int rank)
{
    if (take_free_device(choice, rank)) {
        return 1;
    }
    for (int index = 0; index < (int)choice->seen[rank]->count; index++) {
        const RankDevice *device = device_of(choice, rank, index);

        if (!try_device(choice, rank, index)) {
            continue;
        }
        int has_room = 0;
        for (int other = 0; other < choice->ranks && !has_room; other++) {
            has_room = choice->taken[other] >= 0 && is_same(device, device_of(choice, other, choice->taken[other])) && take_device(choice, other);
        }
        if (has_room) {
            choice->taken[rank] = index;
            return 1;
        }
    }
    return 0;
}

/* Devices that any rank sees. */
static int count_devices(Choice *choice)
{
    int count = 0;

    memset(choice->tried, 0, (size_t)choice->ranks * RANK_DEVICES_MAX);
    for (int rank = 0; rank < choice->ranks; rank++) {
        for (int index = 0; index < (int)choice->seen[rank]->count; index++) {
            count += try_device(choice, rank, index);
        }
    }
    return count;
}

static KvgStatus refuse(Choice *choice, const char *host, int rank)
{
    const int devices = count_devices(choice), ranks = choice->ranks, enough = (ranks + devices - 1) / devices;

    if (enough > choice->round) {
        return kvg_fail(KVG_EINVAL, "%d ranks and %d device%s on %s: start %d there, or say --ranks-per-device %d, or --device host", ranks, devices,
                        devices == 1 ? "" : "s", host, devices * choice->round, enough);
    }
    return kvg_fail(KVG_EINVAL, "local rank %d of %d on %s sees %u of the machine's %d devices, and other ranks take them, since they see no others: let all "
                                "ranks see all devices (srun --gpu-bind=none, one CUDA_VISIBLE_DEVICES), or say --ranks-per-device %d",
                    rank, ranks, host, choice->seen[rank]->count, devices, choice->round + 1);
}

static KvgStatus check_seen(const char *host, const RankDevices *const *seen, int ranks)
{
    for (int rank = 0; rank < ranks; rank++) {
        KVG_ASSERT(seen[rank]->count <= RANK_DEVICES_MAX);
        if (seen[rank]->count == 0) {
            return kvg_fail(KVG_EINVAL, "local rank %d of %d on %s sees no device: let every rank see one (CUDA_VISIBLE_DEVICES, srun --gpus-per-task), or say "
                                        "--device host",
                            rank, ranks, host);
        }
    }
    return KVG_OK;
}

/* One round after the other until every rank has a device; *left: the first that has none. */
static int match(Choice *choice, int per_device)
{
    int left = 0;

    for (choice->round = 1; choice->round <= per_device; choice->round++) {
        left = -1;
        for (int rank = 0; rank < choice->ranks; rank++) {
            memset(choice->tried, 0, (size_t)choice->ranks * RANK_DEVICES_MAX);
            if (choice->taken[rank] < 0 && !take_device(choice, rank) && left < 0) {
                left = rank;
            }
        }
        if (left < 0) {
            return -1;
        }
    }
    choice->round = per_device;
    return left;
}

KvgStatus kvg_device_choose(const char *host, const RankDevices *const *seen, int ranks, int per_device, int *chosen)
{
    Choice    choice = { .seen = seen, .ranks = ranks };
    void     *memory = NULL;
    KvgStatus status = KVG_OK;

    KVG_ASSERT(ranks >= 1 && per_device >= 1);
    KVG_TRY(check_seen(host, seen, ranks));
    KVG_TRY(kvg_calloc((size_t)ranks, sizeof(int) + RANK_DEVICES_MAX, "the ranks' devices", &memory));
    choice.taken = memory;
    choice.tried = (uint8_t *)(choice.taken + ranks);
    for (int rank = 0; rank < ranks; rank++) {
        choice.taken[rank] = -1;
    }
    const int left = match(&choice, per_device);
    if (left >= 0) {
        status = refuse(&choice, host, left);
    } else {
        memcpy(chosen, choice.taken, (size_t)ranks * sizeof *chosen);
    }
    kvg_free(memory);
    return status;
}

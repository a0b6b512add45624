/* Device choice: which of the devices that it sees each rank of a machine takes. A pure function. Private.
 *
 * One rank a device unless asked otherwise. Where all ranks see the same devices they take them in turn, rank by rank; where a launcher has narrowed
 * what each sees (CUDA_VISIBLE_DEVICES, srun --gpu-bind) they are matched, so that a rank with a choice makes room for one without. The list of
 * CUDA_VISIBLE_DEVICES is never parsed: the driver counts what is left of it from 0 (B107). */
#ifndef KVG_RANK_DEVICE_CHOICE_H
#define KVG_RANK_DEVICE_CHOICE_H

#include <stdint.h>

#include <kvgrid/status.h>

enum { RANK_DEVICES_MAX = 16, RANK_DEVICE_ID = 16 };

typedef struct RankDevice {
    uint8_t id[RANK_DEVICE_ID]; /* its UUID: slices of one GPU share a bus id, not this */
    char    bus[20];            /* "0000:1b:00.0"; "" if nobody says */
    char    name[40];
    int32_t ordinal;            /* as the driver counts for this process */
    int32_t node;               /* of the host's memory that the driver calls nearest; -1: it does not say */
} RankDevice;

typedef struct RankDevices { /* what one rank sees, by the driver's count */
    uint32_t   count;
    RankDevice device[RANK_DEVICES_MAX];
} RankDevices;

/* Chooses for ranks [0, ranks) of a machine called `host`: chosen[i] is an index of seen[i]. EINVAL with the cure: a rank sees none, or there are more
 * ranks than devices times `per_device` (at least 1); chosen is unchanged then. */
KvgStatus kvg_device_choose(const char *host, const RankDevices *const *seen, int ranks, int per_device, int *chosen);

#endif

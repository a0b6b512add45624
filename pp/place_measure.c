/* Place, measured memory: what each rank that did not say gives to sequence state. Every rank asks its device after all have come, so nothing that
 * precedes placement (contexts, communicators, weights) is still to be taken by another rank of the same memory.
 *
 *   share = (least that ranks on this memory see free - what ranks on it asked for by number) / ranks on it that measure
 *   memory_bytes = share - memory_reserve_bytes of the rank, or a tenth of the share */
#include "pp/place.h"

#include "runtime/base/checked.h"

int kvg_place_measures(const PlaceHello *hellos, int ranks)
{
    for (int rank = 0; rank < ranks; rank++) {
        if (hellos[rank].memory_bytes == 0) {
            return 1;
        }
    }
    return 0;
}

KvgStatus kvg_place_measure(const KvgPlacement *placement, PlaceMeasure *measure)
{
    const KvDev *device = &placement->device;
    KvAvailable  available = { 0, 0 };
    int          must = placement->options.memory_bytes == 0;

    *measure = (PlaceMeasure){ 0 };
    if (device->ops->available == NULL) {
        return must ? kvg_fail(KVG_ENOTSUP, "memory_bytes is 0 and device %s cannot say what it has free: say how many bytes this rank gives to sequence "
                               "state", device->ops->name) : KVG_OK;
    }
    KvgStatus status = device->ops->available(device->self, &available);
    if (status != KVG_OK) {
        return must ? status : KVG_OK; /* who said how many bytes need not know */
    }
    *measure = (PlaceMeasure){ .available = available.bytes, .memory = available.memory };
    return KVG_OK;
}

static uint64_t share_of(const PlaceHello *hellos, const PlaceMeasure *measures, int ranks, int of)
{
    uint64_t least = measures[of].available, told = 0, count = 0;

    for (int rank = 0; rank < ranks; rank++) {
        if (measures[rank].memory != measures[of].memory) {
            continue;
        }
        least = kvg_min_u64(least, measures[rank].available);
        count += hellos[rank].memory_bytes == 0;
        if (!kvg_add_u64(told, hellos[rank].memory_bytes, &told)) {
            told = UINT64_MAX;
        }
    }
    return kvg_monus_u64(least, told) / count;
}

KvgStatus kvg_place_share(PlaceHello *hellos, const PlaceMeasure *measures, int ranks)
{
    uint64_t *bytes;
    KvgStatus status = KVG_OK;

    KVG_TRY(KVG_NEW((size_t)ranks, "a placement", &bytes));
    for (int rank = 0; rank < ranks && status == KVG_OK; rank++) {
        bytes[rank] = hellos[rank].memory_bytes;
        if (bytes[rank] > 0) {
            continue;
        }
        uint64_t share = share_of(hellos, measures, ranks, rank);
        uint64_t reserve = hellos[rank].memory_reserve_bytes > 0 ? hellos[rank].memory_reserve_bytes : share / 10;
        bytes[rank] = kvg_monus_u64(share, reserve);
        if (bytes[rank] == 0) {
            status = kvg_fail(KVG_ENOMEM, "rank %d measured %llu bytes of free memory as its share and leaves %llu: nothing is left for sequence state; "
                              "free memory, or lower memory_reserve_bytes", rank, (unsigned long long)share, (unsigned long long)reserve);
        }
    }
    for (int rank = 0; rank < ranks && status == KVG_OK; rank++) {
        hellos[rank].memory_max_bytes = hellos[rank].memory_bytes == 0 && hellos[rank].memory_max_bytes == 0 ? kvg_quadruple(bytes[rank]) :
                                                                                                             hellos[rank].memory_max_bytes;
        hellos[rank].memory_bytes = bytes[rank];
    }
    kvg_free(bytes);
    return status;
}

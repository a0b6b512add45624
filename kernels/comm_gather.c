/* Gather carrier. See the header. */
#include "kernels/comm_gather.h"

#include <string.h>

#include "runtime/base/memory.h"

typedef struct Gather {
    KvCarrierOps    ops; /* with the name */
    KvGatherOptions is;
    KvGatherPlaces  memory;
    size_t          record_bytes, stride;
    uint64_t        posted, started, launched, arrived, given;
    int             next_rank; /* of the step that is given next */
    uint64_t       *posted_ns; /* [places] */
    int             stopped;
} Gather;

static uint32_t place_of(const Gather *gather, uint64_t step)
{
    return (uint32_t)(step % gather->is.places);
}

static KvgStatus gather_open(void *self, size_t record_bytes)
{
    Gather *gather = self;

    KVG_ASSERT(gather->posted == gather->arrived); /* nothing is in flight */
    gather->record_bytes = record_bytes;
    gather->stride = (record_bytes + 15) / 16 * 16;
    gather->given = gather->arrived;
    gather->next_rank = 0;
    return gather->is.acts->open(gather->is.user, gather->stride, gather->is.places, &gather->memory);
}

static KvgStatus launch_queued(Gather *gather)
{
    const KvGatherActs *acts = gather->is.acts;

    for (;;) {
        int yes = 0;
        if (gather->launched < gather->started) {
            KVG_TRY(acts->launched(gather->is.user, place_of(gather, gather->launched), &yes));
            if (!yes) {
                return KVG_OK;
            }
            gather->launched++;
        }
        if (gather->started == gather->posted) {
            return KVG_OK;
        }
        KVG_TRY(acts->start(gather->is.user, place_of(gather, gather->started)));
        gather->started++;
    }
}

static KvgStatus gather_poll(void *self)
{
    Gather *gather = self;

    KVG_TRY(launch_queued(gather));
    while (gather->arrived < gather->launched) {
        int yes = 0;
        KVG_TRY(gather->is.acts->arrived(gather->is.user, place_of(gather, gather->arrived), &yes));
        if (!yes) {
            return KVG_OK;
        }
        gather->arrived++;
    }
    return KVG_OK;
}

static KvgStatus gather_post(void *self, const KvVoteRecord *record, uint64_t now_ns)
{
    Gather        *gather = self;
    const uint32_t place = place_of(gather, gather->posted);

    if (gather->posted - gather->given >= gather->is.places) {
        return kvg_fail(KVG_ECAPACITY, "%s comm: %u steps are in flight, which is all that it has places for; create it for more", gather->is.name,
                        gather->is.places);
    }
    memcpy(gather->memory.own + place * gather->stride, record, gather->record_bytes);
    gather->posted_ns[place] = now_ns;
    gather->posted++;
    return launch_queued(gather);
}

static const void *gather_take(void *self, int *peer)
{
    Gather *gather = self;

    *peer = -1;
    while (gather->given < gather->arrived) {
        if (gather->next_rank == gather->is.ranks) { /* the last one given has been read by now */
            gather->next_rank = 0;
            gather->given++;
            continue;
        }
        int rank = gather->next_rank++;
        if (rank != gather->is.rank) {
            *peer = rank;
            return gather->memory.all + ((size_t)place_of(gather, gather->given) * (size_t)gather->is.ranks + (size_t)rank) * gather->stride;
        }
    }
    return NULL;
}

static uint64_t gather_hangs_since(void *self)
{
    const Gather *gather = self;
    return gather->arrived < gather->posted ? gather->posted_ns[place_of(gather, gather->arrived)] : 0;
}

static void gather_stop(void *self)
{
    Gather *gather = self;

    if (!gather->stopped) {
        gather->stopped = 1;
        gather->is.acts->stop(gather->is.user);
    }
}

static void gather_close(void *self)
{
    Gather *gather = self;

    gather_stop(gather);
    gather->is.acts->close(gather->is.user);
    kvg_free(gather->posted_ns);
    kvg_free(gather);
}

KvgStatus kvg_comm_gather(const KvCarriedOptions *carried, const KvGatherOptions *options, KvComm *comm)
{
    KvgStatus        status;
    Gather          *gather;
    KvCarriedOptions with = *carried;
    void            *memory = NULL, *times = NULL;

    KVG_TRY(kvg_calloc(1, sizeof *gather, "a comm", &memory));
    gather = memory;
    KVG_TRY_GOTO(kvg_calloc(options->places, sizeof(uint64_t), "a comm", &times), err_free);
    gather->posted_ns = times;
    gather->is = *options;
    with.again = options->places;
    gather->ops = (KvCarrierOps){ .name = options->name, .open = gather_open, .post = gather_post, .poll = gather_poll, .take = gather_take,
                                  .hangs_since = gather_hangs_since, .stop = gather_stop, .close = gather_close };
    KVG_TRY_GOTO(kvg_comm_carried(&with, &gather->ops, gather, comm), err_free);
    return KVG_OK;
err_free:
    kvg_free(times);
    kvg_free(gather);
    return status;
}

#include "launch/command/replay_place.h"

#include <stdio.h>
#include <string.h>

#include "launch/command/replay_gpu.h"
#include "runtime/base/memory.h"

/* --vote nccl and --vote device send records by GPUs, wherever the state is. */
static int wants_device(const ReplayOptions *options)
{
    const int by_devices = options->vote == REPLAY_VOTE_NCCL || options->vote == REPLAY_VOTE_DEVICE;
    return options->device != REPLAY_DEVICE_HOST || (by_devices && options->tp * options->pp > 1);
}

/* Every rank's words to all; a rank that failed has none, and is heard elsewhere. */
static KvgStatus share_words(const RankPlace *place, ReplayLaunch *launch)
{
    char  mine[RANK_WORDS];
    void *all = NULL;
    memset(mine, 0, sizeof mine);
    kvg_binding_words(&place->binding, mine, sizeof mine);
    KVG_TRY(kvg_calloc((size_t)launch->bootstrap.ranks, sizeof mine, "the words on the ranks' bindings", &all));
    KvgStatus status = launch->bootstrap.allgather(launch->bootstrap.user, mine, all, sizeof mine, launch->timeout_ms);
    if (status != KVG_OK) {
        kvg_free(all);
        return status;
    }
    launch->binding = all;
    return KVG_OK;
}

KvgStatus kvg_replay_place(const ReplayOptions *options, ReplayLaunch *launch)
{
    const RankAsk ask = { .per_device = (int)options->ranks_per_device, .bind = options->bind };
    RankSeat      seat = { .pid = 0 };
    RankPlace     place = { .device = -1 };
    void         *seats = NULL;
    KVG_TRY(kvg_calloc((size_t)launch->bootstrap.ranks, sizeof seat, "what the ranks say of themselves", &seats));
    if (wants_device(options)) {
        kvg_replay_gpu_list(&seat.devices); /* none: what wants one says so by name, with the reason */
    }
    KvgStatus status = kvg_rank_place(&launch->bootstrap, launch->timeout_ms, &ask, &seat, seats, &place);
    if (place.device >= 0) {
        launch->device = seat.devices.device[place.device].ordinal;
        memcpy(launch->device_id, seat.devices.device[place.device].id, sizeof launch->device_id);
    }
    kvg_free(seats);
    if (status != KVG_OK && status != KVG_EINVAL) { /* not all ranks can be asked */
        return status;
    }
    char sentence[512];
    snprintf(sentence, sizeof sentence, "%s", kvg_last_error());
    KVG_TRY(share_words(&place, launch));
    return status == KVG_OK ? KVG_OK : kvg_fail(status, "%s", sentence);
}

void kvg_replay_place_print(const char (*words)[RANK_WORDS], int ranks)
{
    int alike = 1;
    for (int rank = 1; words != NULL && rank < ranks; rank++) {
        alike &= strcmp(words[rank], words[0]) == 0;
    }
    for (int rank = 0; words != NULL && rank < (alike ? 1 : ranks); rank++) {
        if (alike) {
            printf("binding     %s%s\n", ranks > 1 ? "every rank " : "", words[0]);
        } else {
            printf("binding     rank %d %s\n", rank, words[rank]);
        }
    }
}

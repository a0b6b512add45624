/* Replay's survivors.
 *
 * Every survivor asks the launcher who is left, settles with those, and asks again where another dies on the way. Then all hold the same; each looks
 * at what it holds, checks it against a fresh encode, and stays until those who were left out have gone: what they send must change nothing. */
#include "launch/command/replay_survive.h"

#include "launch/command/command.h"
#include "launch/command/replay_fork.h"
#include "runtime/base/memory.h"

static int is_own_failure(KvgStatus status)
{
    return status == KVG_ENOMEM || status == KVG_EDEVICE || status == KVG_EIO;
}

int kvg_replay_is_bereaved(const ReplayRun *run, KvgStatus *served)
{
    const ReplayLaunch *launch = run->launch;
    uint8_t             here = 1, all[FORK_RANKS_MAX];
    if (launch->fork == NULL) {
        return 0;
    }
    if (is_own_failure(*served)) { /* the others are in the midst of their steps: they see this rank's connections close */
        kvg_replay_launch_abort(launch, KVG_EXIT_FAILED);
    }
    if (*served == KVG_OK) {
        *served = launch->bootstrap.allgather(launch->bootstrap.user, &here, all, sizeof here, launch->timeout_ms);
    }
    return *served == KVG_EINDOUBT || *served == KVG_EPEER;
}

static void check_stored(ReplayRun *run, const ReplaySeat *at, const KvgSequenceInfo *info, ReplayHolding *holding)
{
    ReplayShared *shared = &run->shared;
    const uint64_t rows = shared->check.rows, mismatches = shared->check.mismatches;
    kvg_replay_check_sequence(&shared->check, &shared->planes, &shared->sight, &shared->maker, at->request, info->slot, info->rows);
    holding->checked += shared->check.rows - rows;
    holding->mismatches += shared->check.mismatches - mismatches;
}

static KvgStatus look_at_seat(ReplayRun *run, const ReplaySeat *at, ReplayHolding *holding)
{
    const uint64_t   total = kvg_replay_total(&run->shared.requests[at->request]);
    KvgSequenceInfo  info = { .size = sizeof info };
    ReplayTrailPoint term;
    KVG_TRY(kvg_sequence_info(at->sequence, &info));
    KVG_TRY(kvg_replay_trail_term(&run->shared.trail, at->request, total, at->sequence, &term));
    holding->agreed += term.agreed;
    holding->stored += term.stored;
    if (info.rows > 0 && info.rows < total) {
        holding->requests++;
        holding->rows += info.rows;
        if (info.replay == 0) {
            check_stored(run, at, &info, holding);
        }
    }
    return KVG_OK;
}

static KvgStatus look(void *user, ReplayHolding *holding)
{
    ReplayRun    *run = user;
    ReplayShared *shared = &run->shared;
    KvgStats      stats = { .size = sizeof stats };
    *holding = (ReplayHolding){ .epoch = kvg_grid_epoch(run->grid) };
    KVG_TRY(kvg_stats(shared->placement, &stats));
    holding->commit = stats.commits;
    holding->grows = stats.grows;
    for (uint64_t request = 0; request < shared->queue.count; request++) {
        ReplayTrailPoint term;
        if (shared->queue.states[request] == REPLAY_DONE) {
            KVG_TRY(kvg_replay_trail_term(&shared->trail, request, kvg_replay_total(&shared->requests[request]), NULL, &term));
            holding->agreed += term.agreed;
        }
    }
    for (uint32_t i = 0; i < shared->lane_count; i++) {
        for (uint32_t seat = 0; seat < shared->lanes[i].count; seat++) {
            if (shared->lanes[i].seats[seat].sequence != NULL) {
                KVG_TRY(look_at_seat(run, &shared->lanes[i].seats[seat], holding));
            }
        }
    }
    return KVG_OK;
}

int kvg_replay_survive(ReplayRun *run)
{
    ReplayFork *fork = run->launch->fork;
    int         survivors[FORK_RANKS_MAX], count = 0;
    do {
        if (!kvg_replay_fork_survivors(fork, run->grid, kvg_last_error(), survivors, &count)) {
            kvg_replay_fork_out(fork);
            return KVG_EXIT_FAILED;
        }
    } while (kvg_grid_settle(run->grid, survivors, count) != KVG_OK || !kvg_replay_fork_all_settled(fork, run->grid));
    kvg_replay_fork_show(fork, run->grid, look, run);
    return KVG_EXIT_FAILED;
}

/* Meeting: what set-ups of ends have in common. */
#include "runtime/comm/meeting.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/base/sized.h"
#include "runtime/comm/clock.h"

#define TIMEOUT_MS_DEFAULT 30000u

KvgStatus kvg_meeting_open(const char *what, const KvgBootstrap *given, int ranks_max, const KvComm *comm, const KvLiveness *liveness, Meeting *meeting)
{
    static const KvgBootstrap alone = KVG_BOOTSTRAP_INIT;
    KvgBootstrap             *own = &meeting->bootstrap;

    KVG_TRY(KVG_SIZED_IN(KvgBootstrap, given, alone, *own));
    if (given == NULL || comm == NULL || liveness == NULL) {
        return kvg_fail(KVG_EINVAL, "%s: bootstrap %p, comm %p, liveness %p; all must be given", what, (const void *)given, (const void *)comm,
                        (const void *)liveness);
    }
    if (own->ranks < 1 || own->ranks > ranks_max || own->rank < 0 || own->rank >= own->ranks) {
        return kvg_fail(KVG_EINVAL, "%s: rank %d of %d; 1 to %d ranks are possible", what, own->rank, own->ranks, ranks_max);
    }
    if (own->allgather == NULL && own->ranks > 1) {
        return kvg_fail(KVG_EINVAL, "%s: the bootstrap has no all-gather", what);
    }
    meeting->what = what;
    meeting->status = KVG_OK;
    return KVG_OK;
}

void kvg_meeting_start(Meeting *meeting, uint32_t timeout_ms)
{
    meeting->deadline_ns = kvg_clock_ns() + (uint64_t)(timeout_ms > 0 ? timeout_ms : TIMEOUT_MS_DEFAULT) * 1000000u;
}

uint64_t kvg_meeting_work_until_ns(const Meeting *meeting)
{
    uint64_t now_ns = kvg_clock_ns();

    return now_ns + kvg_monus_u64(meeting->deadline_ns, now_ns) / 4 * 3;
}

KvgStatus kvg_meeting_note(Meeting *meeting, KvgStatus step)
{
    if (meeting->status == KVG_OK && step != KVG_OK) {
        meeting->status = step;
        snprintf(meeting->sentence, sizeof meeting->sentence, "%s", kvg_last_error());
    }
    return meeting->status;
}

KvgStatus kvg_meeting_gather(const Meeting *meeting, const void *mine, void *all, size_t bytes)
{
    const KvgBootstrap *bootstrap = &meeting->bootstrap;
    uint64_t            left_ms = kvg_monus_u64(meeting->deadline_ns, kvg_clock_ns()) / 1000000;

    if (bootstrap->ranks == 1) { /* which needs no all-gather */
        memcpy(all, mine, bytes);
        return KVG_OK;
    }
    return bootstrap->allgather(bootstrap->user, mine, all, bytes, left_ms > 0 ? (uint32_t)left_ms : 1);
}

KvgStatus kvg_meeting_fail_for(const Meeting *meeting, int rank, KvgStatus status)
{
    return kvg_fail(KVG_EPEER, "%s: rank %d could not set up (%s); see its own message", meeting->what, rank, kvg_status_name(status));
}

KvgStatus kvg_meeting_verdict(const Meeting *meeting)
{
    return meeting->status == KVG_OK ? KVG_OK : kvg_fail(meeting->status, "%s", meeting->sentence);
}

/* Meeting: how ranks set up an end together, over a bootstrap. Private.
 *
 * It is a few all-gathers under one deadline, with work of each rank between them. What goes wrong on a rank is noted and rides along with what it
 * gives next, so that all leave at the same all-gather and none waits for one that has given up. */
#ifndef KVG_MEETING_H
#define KVG_MEETING_H

#include <stddef.h>
#include <stdint.h>

#include <kvgrid/bootstrap.h>
#include <kvgrid/comm.h>

typedef struct Meeting {
    const char  *what;      /* is set up: its sentences begin with it */
    KvgBootstrap bootstrap; /* own copy */
    uint64_t     deadline_ns;
    KvgStatus    status;        /* this rank's first failure */
    char         sentence[900]; /* which said this; all-gathers after it may overwrite the last error */
} Meeting;

/* Checks what a caller gave to set up `what`: a bootstrap of 1 to ranks_max ranks, and places for both ends. EINVAL. */
KvgStatus kvg_meeting_open(const char *what, const KvgBootstrap *given, int ranks_max, const KvComm *comm, const KvLiveness *liveness, Meeting *meeting);
/* Time runs from here. timeout_ms 0: 30 s. */
void kvg_meeting_start(Meeting *meeting, uint32_t timeout_ms);
/* When the work before the last all-gather must be over, so that this one can still say who is missing: three quarters of what is left. */
uint64_t kvg_meeting_work_until_ns(const Meeting *meeting);

/* Keeps the first failure of this rank and its sentence. Returns what is kept. */
KvgStatus kvg_meeting_note(Meeting *meeting, KvgStatus step);
/* all [ranks][bytes] = every rank's `mine`, until the deadline. */
KvgStatus kvg_meeting_gather(const Meeting *meeting, const void *mine, void *all, size_t bytes);
/* EPEER: the rank noted `status`. */
KvgStatus kvg_meeting_fail_for(const Meeting *meeting, int rank, KvgStatus status);
/* What is kept, its sentence the last error again. */
KvgStatus kvg_meeting_verdict(const Meeting *meeting);

#endif

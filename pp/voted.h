/* Voted: what resize, sleep and wake have in common: a change of a placement's memory that every rank makes or none does. Private.
 *
 *   say       undecided steps are decided; where this rank stands, and its value
 *   prepare   all stand at the same point; what can fail is done and its answer cast
 *   publish   all could: the change counts. Else every rank undoes it
 * A rank that voted yes and cannot hear all votes does neither: it is in doubt, and settling tells it whether another has published. */
#ifndef KVG_VOTED_H
#define KVG_VOTED_H

#include "pp/internal.h"

typedef struct VotedHello { /* crosses the wire */
    uint64_t value, running, begun;
} VotedHello;

typedef struct Voted { /* the first member of an operation's state */
    KvgPlacement *placement;   /* NULL: of all of them */
    int           answered;    /* `local` is this rank's vote */
    KvgStatus     local;
    char          local_why[384];
    uint64_t      answered_ns;
} Voted;

/* Starts the operation `what`, whose state has `state_bytes` and begins with a Voted. EBUSY while a step is begun and not posted here; EPEER. */
KvgStatus kvg_voted_start(KvgPlacement *placement, const char *what, size_t state_bytes, KvgSetup **setup);
/* First phase. Runs again while a step is undecided. */
KvgStatus kvg_voted_say(KvgSetup *setup, uint64_t value);
/* Begins the second: the gathered VotedHellos are of one point of the program, so agreed state is the same on every rank. ELAYOUT. */
KvgStatus kvg_voted_together(const KvgSetup *setup);
/* The second: how this rank's preparations went, once; then (in every turn until it is under way) the vote is cast. A rank that is short of memory for that
 * tries again, up to the deadline, rather than leave the others in doubt. */
void      kvg_voted_answer(KvgSetup *setup, KvgStatus local);
KvgStatus kvg_voted_cast(KvgSetup *setup);
/* EREFUSED naming the first rank that voted no, and its reason where it is this one. */
KvgStatus kvg_voted_count(const KvgSetup *setup, const char *none);
/* The third: publishes by setup->posted and setup->publish. EREFUSED naming the first rank that could not, and its reason where it is this one; `none`
 * says what has not happened. */
KvgStatus kvg_voted_publish(KvgSetup *setup, const char *none, int *done);

#endif

/* Crew: the workers as the frontend sees them: it forks them, orders all of them alike, hears their reports, and knows who died. Nothing outlives it: a worker
 * is killed by the kernel when the frontend ends, however that happens. */
#ifndef EMBED_CREW_H
#define EMBED_CREW_H

#include <poll.h>
#include <sys/types.h>

#include "worker.h"

typedef struct Crew {
    uint32_t      ranks;
    uint32_t      timeout_ms, peer_ms; /* the policy's */
    Between      *between;
    Transport     transport;
    pid_t         pid[BETWEEN_RANKS_MAX];
    struct pollfd heard[BETWEEN_RANKS_MAX]; /* their sockets, for poll */
    int           fault_rank;               /* -1: none that can be named */
    char          fault[WORDS_MAX + 128];   /* "": all is well; the first sentence stays */
} Crew;

/* Forks tp*pp workers and hears each say READY: *ledger is what they agreed on. EPEER, EINDOUBT: crew->fault says who and why. */
KvgStatus crew_start(const WorkerOptions *options, Crew *crew, KvgLedger *ledger);
/* The same order to every worker. What fails is found by the next crew_hear. */
void crew_order(Crew *crew, const Order *order);
/* A report that is there, of a worker whose `heard` is ready: 1; 0: none. EOF and FAULT reports become the crew's fault. */
int crew_hear(Crew *crew, uint32_t rank, Report *report);
/* The frontend's own word. The first stays. */
void crew_blame(Crew *crew, int rank, const char *why);
/* Something is wrong, and `words` is what is known; but whoever died or is stopped is the cause, and the kernel may take a moment to say so. */
void crew_find_cause(Crew *crew, int rank, const char *words);
/* Orders STOP, hears DONE of everyone; *most is the fullest rank's bytes booked, and the times of the rank that waits for votes. */
KvgStatus crew_stop(Crew *crew, Report *most);
/* Hangs up, and ends who does not leave. */
void crew_end(Crew *crew);

#endif

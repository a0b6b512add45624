/** In-process transport: one thread drives all ranks of a grid, on a virtual clock, so that a run is deterministic.
 *
 * A hub holds every rank's inbox. Faults are scripted: a filter sees each message and record and says what becomes of it;
 * ranks can be killed or frozen. relax() lets virtual time pass (1 ms a fruitless round), which also delivers what was delayed.
 * Every call through a rank's own comm or liveness is its sign of life, so a wait for a rank that nobody drives ends.
 * A rank is lost when it is killed, or when both its ends are closed; one that has not been attached yet is not.
 * Its first allocations over (records_open), a post allocates only when more than 4 records a pair of ranks are in flight.
 * Threads: one. Reach: local. */
#ifndef KVG_INPROC_H
#define KVG_INPROC_H

#include <kvgrid/comm.h>

KVG_BEGIN_DECLS

typedef struct KvInproc KvInproc;

typedef enum KvInprocFate { KVG_INPROC_DELIVER = 0, KVG_INPROC_DROP = 1, KVG_INPROC_DELAY = 2, KVG_INPROC_DUPLICATE = 3 } KvInprocFate;

/** What becomes of one message or record on its way from `from` to `to`. For DELAY set *delay_ns.
 *  Records may overtake each other by delays, messages of one sender never do. The filter may not call back into the hub. */
typedef KvInprocFate (*KvInprocFilter)(void *user, int from, int to, int is_record, const void *bytes, size_t byte_count,
                                       uint64_t *delay_ns);

/** A hub for ranks 0 .. ranks-1, none attached, its clock at 0. EINVAL outside 1..65536; ENOMEM. */
KVG_API KvgStatus kvg_inproc_create(int ranks, KvInproc **hub);
/** NULL is allowed. All comms and livenesses of the hub must be closed first. */
KVG_API void kvg_inproc_destroy(KvInproc *hub);
/** Rank `rank`'s ends. Each may be taken once at a time: EBUSY until both are closed. EINVAL; EPEER for a killed rank. */
KVG_API KvgStatus kvg_inproc_attach(KvInproc *hub, int rank, KvComm *comm, KvLiveness *liveness);
KVG_API void kvg_inproc_set_filter(KvInproc *hub, KvInprocFilter filter, void *user);
/** From now on the rank is lost to all others: what it sent before still arrives, nothing reaches it. */
KVG_API void kvg_inproc_kill(KvInproc *hub, int rank);
/** Frozen: gives no sign of life and receives nothing until thawed (its inbox keeps filling);
 *  what is sent through it meanwhile is held until then. Not reported lost. */
KVG_API void kvg_inproc_freeze(KvInproc *hub, int rank, int frozen);
KVG_API uint64_t kvg_inproc_now_ns(const KvInproc *hub);
KVG_API void     kvg_inproc_advance_ns(KvInproc *hub, uint64_t ns);

KVG_END_DECLS
#endif

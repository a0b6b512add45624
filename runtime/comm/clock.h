/* Clock: the real clock and the polite wait that self, mesh and MPI share. Private; exported for kvgrid_mpi
 * alone. */
#ifndef KVG_CLOCK_H
#define KVG_CLOCK_H

#include <stdint.h>

#include <kvgrid/export.h>

/* CLOCK_MONOTONIC in nanoseconds. */
KVG_API uint64_t kvg_clock_ns(void);

/* One fruitless round of a wait; `rounds` counts them from 0: spin at first, then yield the core, then sleep 50 us,
 * since ranks may outnumber cores and the peer waited for may need this one. */
KVG_API void kvg_clock_relax(uint64_t rounds);

#endif

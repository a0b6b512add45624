/* Replay's default for --memory: what the run can use, bounded by what the machine has. Private to the command. */
#ifndef KVG_COMMAND_REPLAY_MEMORY_H
#define KVG_COMMAND_REPLAY_MEMORY_H

#include <kvgrid/kvgrid.h>

/* Bytes on one rank for `sequences` sequences of `rows` rows, from a plan without memory. EOVERFLOW. */
KvgStatus kvg_replay_memory_need(const KvGridPlan *plan, uint32_t rank, uint64_t rows, uint64_t sequences, uint64_t *bytes);
/* Bytes that a rank may take on this machine: three fifths of what is available now (MemAvailable, less where a control group is
 * tighter), shared by the ranks that run here. */
uint64_t kvg_replay_memory_available(int local_ranks);

#endif

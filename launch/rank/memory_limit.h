/* Memory limits: what a process's cgroups, its limits and the machine leave it. Private. */
#ifndef KVG_RANK_MEMORY_LIMIT_H
#define KVG_RANK_MEMORY_LIMIT_H

#include <stdint.h>

/* Bytes that the machine and this process's cgroups leave, which all ranks in them share; UINT64_MAX: not known. */
uint64_t kvg_memory_limit_here(void);
/* RLIMIT_AS of this process alone; UINT64_MAX: no limit. */
uint64_t kvg_memory_limit_addresses(void);

/* The least that `path` ("/a/b", as /proc/self/cgroup says) and the groups above it leave, by memory.max and memory.current under `root`;
 * UINT64_MAX: no limit. */
uint64_t kvg_memory_limit_cgroup(const char *root, const char *path);

#endif

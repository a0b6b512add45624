/** Partition: contiguous layers to stages, as evenly as their cost and the stages' budgets allow (S9).
 *
 *   fence  0 = fence[0] < fence[1] < ... < fence[stages] = n;  stage s owns layers [fence[s], fence[s+1])
 *   load   sum of its layers' costs, plus first_extra on the first stage and last_extra on the last
 *
 * Of all legal fences: the smallest largest share load/budget, then the smallest sum of squared loads, then the
 * lexicographically smallest. Compared exactly, in 128 bits. Units of cost, extras and budgets are the caller's, bytes as
 * a rule. Takes O(stages * n^2) steps and O(stages * n) memory: milliseconds for 200 layers on 64 stages.
 * Threads: any thread. Reach: local. */
#ifndef KVG_PARTITION_H
#define KVG_PARTITION_H

#include <stdint.h>

#include <kvgrid/status.h>

KVG_BEGIN_DECLS

/** Cuts `n` layers into `stages`.
 *   cost       [n]
 *   budgets    [stages], or NULL for equal ones without a limit
 *   forbidden  [forbidden_count] cuts c that may not be made, between layers c-1 and c; any order; others than 1..n-1
 *              could not be made anyway. May be NULL when the count is 0
 *   fence      [stages + 1] written
 *   loads      [stages] written; may be NULL
 *  EINVAL: stages 0 or above n, a budget of 0; EOVERFLOW: the costs add up past 64 bits; EGEOM: too few cuts are left;
 *  ENOMEM: even the best fence puts a load over its budget (naming stage and bytes), or the host is out of memory. */
KVG_API KvgStatus kvg_partition(const uint64_t cost[], uint32_t n, uint32_t stages, uint64_t first_extra,
                                uint64_t last_extra, const uint64_t budgets[], const uint32_t forbidden[],
                                uint32_t forbidden_count, uint32_t fence[], uint64_t loads[]);

/** The stage that owns `layer`: binary search; a layer at or past the fence's end (an MTP block) is the last stage's. */
KVG_API uint32_t kvg_fence_stage(const uint32_t fence[], uint32_t stages, uint32_t layer);
/** Whether a caller's fence is one: [0, ..., n], strictly ascending. EINVAL, naming the place. */
KVG_API KvgStatus kvg_fence_check(const uint32_t fence[], uint32_t stages, uint32_t n);

KVG_END_DECLS
#endif

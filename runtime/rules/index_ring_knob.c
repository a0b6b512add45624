/* Index ring, by the process's knob: apart from the pure rules, which read no environment. See index_ring.h. */
#include <kvgrid/index_ring.h>
#include <kvgrid/policy.h>

uint64_t kvg_index_ring_rows(uint64_t max_ctx)
{
    const KvgPolicy *policy;
    if (kvg_policy_process(&policy) != KVG_OK) return kvg_index_ring_default_rows(max_ctx);
    return kvg_index_ring_rows_for(policy->dsa_index_ring, max_ctx);
}

/* No hwloc in this build. No topology can be opened, so nothing else here is ever called with one. */
#include "launch/rank/topology.h"

#include <errno.h>
#include <stddef.h>

#include "runtime/base/error.h"

KvgStatus kvg_topology_open(const char *from, int with_devices, RankTopology **topology)
{
    (void)from, (void)with_devices, (void)topology;
    return kvg_fail(KVG_ENOTSUP, "hwloc is not compiled in: install libhwloc-dev and build again");
}

void kvg_topology_close(RankTopology *topology)
{
    KVG_ASSERT(topology == NULL);
}

TopologyCounts kvg_topology_counts(const RankTopology *topology)
{
    KVG_ASSERT(topology != NULL);
    return (TopologyCounts){ 0 };
}

void kvg_topology_gpus(const RankTopology *topology, RankDevices *devices)
{
    KVG_ASSERT(topology != NULL);
    devices->count = 0;
}

IndexSet kvg_topology_allowed(const RankTopology *topology)
{
    KVG_ASSERT(topology != NULL);
    return (IndexSet){ { 0 } };
}

const char *kvg_topology_near(const RankTopology *topology, const char *sysfs, const RankDevice *device, IndexSet *near)
{
    (void)sysfs, (void)device, (void)near;
    KVG_ASSERT(topology != NULL);
    return NULL;
}

IndexSet kvg_topology_nodes(const RankTopology *topology, const IndexSet *cpus)
{
    (void)cpus;
    KVG_ASSERT(topology != NULL);
    return (IndexSet){ { 0 } };
}

unsigned kvg_topology_cores(const RankTopology *topology, const IndexSet *cpus)
{
    (void)cpus;
    KVG_ASSERT(topology != NULL);
    return 0;
}

int kvg_topology_part(const RankTopology *topology, const IndexSet *cpus, int parts, int which, IndexSet *part)
{
    (void)cpus, (void)parts, (void)which, (void)part;
    KVG_ASSERT(topology != NULL);
    return 0;
}

int kvg_topology_bind_cpus(const RankTopology *topology, const IndexSet *cpus)
{
    (void)topology, (void)cpus;
    errno = ENOSYS;
    return 0;
}

int kvg_topology_bind_memory(const RankTopology *topology, const IndexSet *nodes)
{
    (void)topology, (void)nodes;
    errno = ENOSYS;
    return 0;
}

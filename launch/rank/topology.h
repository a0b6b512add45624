/* Topology: a machine's cores, NUMA nodes and devices, by hwloc; this machine's, a recorded one's (XML), or a made-up one's. Private.
 *
 * hwloc is optional: without it a topology cannot be opened (ENOTSUP), and nothing is bound. Processors that a cgroup forbids are part of the topology,
 * so that ranks with different cgroups see one machine. hwloc's own looks at GPUs are left out: they would start the driver before its time.
 * Threads: one at a time. */
#ifndef KVG_RANK_TOPOLOGY_H
#define KVG_RANK_TOPOLOGY_H

#include <kvgrid/status.h>

#include "launch/rank/device_choice.h"
#include "launch/rank/index_set.h"

typedef struct RankTopology RankTopology;

/* `from` NULL: this machine, or what hwloc's own HWLOC_XMLFILE and HWLOC_SYNTHETIC say; "synthetic:NODE:2 CORE:4 PU:1" as hwloc describes; else the path of
 * an XML file as lstopo writes it. with_devices 0: PCI is not looked at, which takes a while. ENOTSUP hwloc is not compiled in; EIO, EFORMAT. */
KvgStatus kvg_topology_open(const char *from, int with_devices, RankTopology **topology);
/* NULL is allowed. */
void kvg_topology_close(RankTopology *topology);

typedef struct TopologyCounts {
    int packages, nodes, cores, processors;
    int is_this; /* 1: binding by it has an effect here */
} TopologyCounts;
TopologyCounts kvg_topology_counts(const RankTopology *topology);

/* NVIDIA GPUs by bus id, for topologies of other machines; here the driver is asked. */
void kvg_topology_gpus(const RankTopology *topology, RankDevices *devices);

/* Processors that this process may use; of another machine's topology, those that were allowed there. */
IndexSet kvg_topology_allowed(const RankTopology *topology);

/* Processors near a device. NULL: nobody says where it is. Else who says so: the driver's NUMA node is asked first (hwloc may err where memory of CPU and
 * GPU is one, B109), then the bus by hwloc, then, of this machine, `sysfs`/bus/pci/devices (NULL: /sys). Static. */
const char *kvg_topology_near(const RankTopology *topology, const char *sysfs, const RankDevice *device, IndexSet *near);

/* The host's NUMA nodes of these processors that may be used; memory that is a GPU's is none of them. */
IndexSet kvg_topology_nodes(const RankTopology *topology, const IndexSet *cpus);
/* Cores with a processor among these; processors where no cores are known. */
unsigned kvg_topology_cores(const RankTopology *topology, const IndexSet *cpus);
/* Part `which` of `parts` when whole cores of `cpus` are dealt out evenly, to NUMA nodes and caches first. 0: there are fewer cores than parts, or hwloc
 * cannot; *part is unchanged, and may be *cpus. */
int kvg_topology_part(const RankTopology *topology, const IndexSet *cpus, int parts, int which, IndexSet *part);

/* Binds this process's threads; and its memory, preferred and not forced, so that it does not run out where other nodes have some. 0: errno says why. */
int kvg_topology_bind_cpus(const RankTopology *topology, const IndexSet *cpus);
int kvg_topology_bind_memory(const RankTopology *topology, const IndexSet *nodes);

#endif

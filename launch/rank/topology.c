#include "launch/rank/topology.h"

#include <ctype.h>
#include <errno.h>
#include <hwloc.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/error.h"
#include "runtime/base/input.h"
#include "runtime/base/memory.h"

#define SYNTHETIC "synthetic:"

enum { PROCESSORS_MAX = 2 * INDEX_SET_MAX, /* of a machine in hwloc's words; its time grows with the square, and more */
       XML_BYTES_MAX = 16 << 20 };              /* the largest machines have some MB */

_Static_assert(RANK_DEVICE_ID <= sizeof ((RankDevice *)NULL)->bus, "a bus id stands in for a UUID");

enum { VENDOR_NVIDIA = 0x10de, CLASS_DISPLAY = 0x03 };

struct RankTopology {
    hwloc_topology_t machine;
};

/* ---- sets */

static IndexSet from_bitmap(hwloc_const_bitmap_t bitmap)
{
    IndexSet set = { { 0 } };

    for (int index = hwloc_bitmap_first(bitmap); index >= 0 && index < INDEX_SET_MAX; index = hwloc_bitmap_next(bitmap, index)) {
        kvg_index_set_add(&set, (unsigned)index);
    }
    return set;
}

/* NULL: no memory. */
static hwloc_bitmap_t to_bitmap(const IndexSet *set)
{
    hwloc_bitmap_t bitmap = hwloc_bitmap_alloc();

    for (unsigned index = 0; bitmap != NULL && index < INDEX_SET_MAX; index++) {
        if (kvg_index_set_has(set, index) && hwloc_bitmap_set(bitmap, index) != 0) {
            hwloc_bitmap_free(bitmap);
            return NULL;
        }
    }
    return bitmap;
}

/* ---- opening */

/* How many processors hwloc's words ask for: its counts, one after a colon or at a word's begin, multiplied; attributes in parentheses count nothing. */
static uint64_t synthetic_processors(const char *words)
{
    uint64_t product = 1;
    int      depth = 0;
    char     before = ' ';

    for (char *end; *words != '\0'; before = *words++) {
        depth += (*words == '(' || *words == '[') - (*words == ')' || *words == ']');
        if (depth != 0 || !isdigit((unsigned char)*words) || (before != ' ' && before != ':')) {
            continue;
        }
        const uint64_t count = strtoull(words, &end, 10);
        product = count > 0 && product <= PROCESSORS_MAX ? product * (count < PROCESSORS_MAX + 1 ? count : PROCESSORS_MAX + 1) : product;
        words = end - 1;
    }
    return product;
}

/* The text, which hwloc would read without a bound, and from a pipe that nobody writes without an end. */
static KvgStatus set_xml(hwloc_topology_t machine, const char *from)
{
    FILE     *file = NULL;
    void     *text = NULL;
    KvgStatus status = KVG_OK;

    KVG_TRY(kvg_input_open(from, "give the XML that lstopo --of xml writes", KVG_INPUT_WAIT_MS, &file));
    KVG_TRY_GOTO(kvg_calloc(XML_BYTES_MAX, 1, "a topology's text", &text), done);
    const size_t bytes = fread(text, 1, XML_BYTES_MAX - 1, file); /* hwloc counts the NUL behind it */

    if (ferror(file)) {
        status = kvg_fail(KVG_EIO, "%s: cannot be read: %s; give the XML that lstopo --of xml writes", from, strerror(errno));
    } else if (hwloc_topology_set_xmlbuffer(machine, text, (int)bytes + 1) != 0) {
        status = kvg_fail(KVG_EFORMAT, "%s: hwloc cannot read it as a topology: write it by lstopo --of xml of hwloc 2", from);
    }
    kvg_free(text);
done:
    fclose(file);
    return status;
}

static KvgStatus choose_source(hwloc_topology_t machine, const char *from)
{
    if (from == NULL) {
        return KVG_OK;
    }
    if (strncmp(from, SYNTHETIC, strlen(SYNTHETIC)) == 0) {
        if (synthetic_processors(from + strlen(SYNTHETIC)) > PROCESSORS_MAX) {
            return kvg_fail(KVG_EFORMAT, "the topology \"%s\" has more than %d processors, which hwloc would be long about: write a smaller one", from, PROCESSORS_MAX);
        }
        return hwloc_topology_set_synthetic(machine, from + strlen(SYNTHETIC)) == 0
                   ? KVG_OK
                   : kvg_fail(KVG_EFORMAT, "hwloc does not understand the topology \"%s\": write it like \"synthetic:NUMANode:2 Core:4 PU:1\"", from);
    }
    return set_xml(machine, from);
}

static void choose_parts(hwloc_topology_t machine, int with_devices)
{
    static const char *const skipped[] = { "cuda", "nvml", "rsmi", "levelzero", "opencl", "gl" };

    for (size_t i = 0; i < sizeof skipped / sizeof *skipped; i++) {
        (void)hwloc_topology_set_components(machine, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, skipped[i]); /* unknown ones are not there anyway */
    }
    if (with_devices) {
        hwloc_topology_set_io_types_filter(machine, HWLOC_TYPE_FILTER_KEEP_IMPORTANT); /* they are left out by default */
    }
    hwloc_topology_set_flags(machine, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
}

KvgStatus kvg_topology_open(const char *from, int with_devices, RankTopology **topology)
{
    KvgStatus status = KVG_OK;

    setenv("HWLOC_HIDE_ERRORS", "2", 0); /* hwloc's own words about odd firmware would come once a rank */
    RankTopology *opened = NULL;
    KVG_TRY(KVG_NEW(1, "the machine's topology", &opened));
    if (hwloc_topology_init(&opened->machine) != 0) {
        KVG_TRY_GOTO(kvg_fail(KVG_EIO, "hwloc cannot start: %s", strerror(errno)), err_free);
    }
    choose_parts(opened->machine, with_devices);
    KVG_TRY_GOTO(choose_source(opened->machine, from), err_destroy);
    if (hwloc_topology_load(opened->machine) != 0) {
        KVG_TRY_GOTO(from == NULL ? kvg_fail(KVG_EIO, "hwloc cannot read this machine: %s", strerror(errno))
                                  : kvg_fail(KVG_EFORMAT, "%s: hwloc cannot load this topology (%s): write it by lstopo --of xml of hwloc 2", from, strerror(errno)),
                     err_destroy);
    }
    *topology = opened;
    return KVG_OK;
err_destroy:
    hwloc_topology_destroy(opened->machine);
err_free:
    kvg_free(opened);
    return status;
}

void kvg_topology_close(RankTopology *topology)
{
    if (topology != NULL) {
        hwloc_topology_destroy(topology->machine);
        kvg_free(topology);
    }
}

/* ---- looking */

static int count_type(const RankTopology *topology, hwloc_obj_type_t type)
{
    int count = hwloc_get_nbobjs_by_type(topology->machine, type);

    return count > 0 ? count : 0; /* -1: on several depths */
}

TopologyCounts kvg_topology_counts(const RankTopology *topology)
{
    return (TopologyCounts){
        .packages = count_type(topology, HWLOC_OBJ_PACKAGE),
        .nodes = count_type(topology, HWLOC_OBJ_NUMANODE),
        .cores = count_type(topology, HWLOC_OBJ_CORE),
        .processors = count_type(topology, HWLOC_OBJ_PU),
        .is_this = hwloc_topology_is_thissystem(topology->machine),
    };
}

/* What hwloc knows of its model: from what drivers said when the topology was recorded, or from the list of PCI ids. */
static const char *name_of(hwloc_obj_t object)
{
    const char *name = hwloc_obj_get_info_by_name(object, "PCIDevice");

    for (hwloc_obj_t part = object->io_first_child; part != NULL && name == NULL; part = part->next_sibling) {
        name = hwloc_obj_get_info_by_name(part, "GPUModel");
    }
    return name != NULL ? name : "GPU";
}

static void add_gpu(RankDevices *devices, hwloc_obj_t object)
{
    const struct hwloc_pcidev_attr_s *at = &object->attr->pcidev;
    RankDevice                       *device = &devices->device[devices->count];

    *device = (RankDevice){ .ordinal = (int32_t)devices->count, .node = -1 };
    snprintf(device->bus, sizeof device->bus, "%04x:%02x:%02x.%01x", at->domain, at->bus, at->dev, at->func);
    memcpy(device->id, device->bus, RANK_DEVICE_ID); /* nobody says its UUID */
    snprintf(device->name, sizeof device->name, "%s", name_of(object));
    devices->count++;
}

void kvg_topology_gpus(const RankTopology *topology, RankDevices *devices)
{
    devices->count = 0;
    for (hwloc_obj_t object = NULL; (object = hwloc_get_next_pcidev(topology->machine, object)) != NULL && devices->count < RANK_DEVICES_MAX;) {
        if (object->attr->pcidev.vendor_id == VENDOR_NVIDIA && object->attr->pcidev.class_id >> 8 == CLASS_DISPLAY) {
            add_gpu(devices, object);
        }
    }
}

IndexSet kvg_topology_allowed(const RankTopology *topology)
{
    hwloc_bitmap_t bound = hwloc_bitmap_alloc();
    IndexSet       allowed = from_bitmap(hwloc_topology_get_allowed_cpuset(topology->machine));

    if (bound != NULL && hwloc_topology_is_thissystem(topology->machine) && hwloc_get_cpubind(topology->machine, bound, HWLOC_CPUBIND_THREAD) == 0) {
        IndexSet narrowed = from_bitmap(bound);
        narrowed = kvg_index_set_and(&allowed, &narrowed);
        allowed = kvg_index_set_count(&narrowed) > 0 ? narrowed : allowed;
    }
    hwloc_bitmap_free(bound);
    return allowed;
}

static int near_node(const RankTopology *topology, int node, IndexSet *near)
{
    hwloc_obj_t object = node >= 0 ? hwloc_get_numanode_obj_by_os_index(topology->machine, (unsigned)node) : NULL;

    if (object == NULL || hwloc_bitmap_iszero(object->cpuset)) {
        return 0;
    }
    *near = from_bitmap(object->cpuset);
    return 1;
}

static int near_bus(const RankTopology *topology, const char *bus, IndexSet *near)
{
    hwloc_obj_t device = bus[0] != '\0' ? hwloc_get_pcidev_by_busidstring(topology->machine, bus) : NULL;
    hwloc_obj_t above = device != NULL ? hwloc_get_non_io_ancestor_obj(topology->machine, device) : NULL;

    if (above == NULL || above->cpuset == NULL || hwloc_bitmap_iszero(above->cpuset)) {
        return 0;
    }
    *near = from_bitmap(above->cpuset);
    return 1;
}

/* A file of the device, first line. */
static int read_sysfs(const char *sysfs, const char *bus, const char *name, char *line, int bytes)
{
    char path[PATH_MAX];
    char lower[sizeof ((RankDevice *)NULL)->bus];

    for (size_t i = 0; i < sizeof lower; i++) {
        lower[i] = (char)tolower((unsigned char)bus[i]);
    }
    snprintf(path, sizeof path, "%s/bus/pci/devices/%s/%s", sysfs != NULL ? sysfs : "/sys", lower, name);
    FILE *file = fopen(path, "r");
    int   found = file != NULL && fgets(line, bytes, file) != NULL;
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

static int near_sysfs(const RankTopology *topology, const char *sysfs, const char *bus, IndexSet *near)
{
    char     line[4096];
    IndexSet cpus;

    if (bus[0] == '\0' || !hwloc_topology_is_thissystem(topology->machine)) {
        return 0;
    }
    if (read_sysfs(sysfs, bus, "local_cpulist", line, sizeof line) && kvg_index_set_read(line, &cpus) && kvg_index_set_count(&cpus) > 0) {
        *near = cpus;
        return 1;
    }
    return read_sysfs(sysfs, bus, "numa_node", line, sizeof line) && near_node(topology, atoi(line), near); /* -1: not known */
}

const char *kvg_topology_near(const RankTopology *topology, const char *sysfs, const RankDevice *device, IndexSet *near)
{
    if (near_node(topology, device->node, near)) {
        return "the driver";
    }
    if (near_bus(topology, device->bus, near)) {
        return "hwloc";
    }
    return near_sysfs(topology, sysfs, device->bus, near) ? "sysfs" : NULL;
}

IndexSet kvg_topology_nodes(const RankTopology *topology, const IndexSet *cpus)
{
    hwloc_const_nodeset_t allowed = hwloc_topology_get_allowed_nodeset(topology->machine);
    IndexSet              nodes = { { 0 } };

    for (hwloc_obj_t node = NULL; (node = hwloc_get_next_obj_by_type(topology->machine, HWLOC_OBJ_NUMANODE, node)) != NULL;) {
        IndexSet local = from_bitmap(node->cpuset), both = kvg_index_set_and(&local, cpus);

        if (kvg_index_set_count(&both) > 0 && hwloc_bitmap_isset(allowed, (int)node->os_index) &&
            (node->subtype == NULL || strcmp(node->subtype, "GPUMemory") != 0)) {
            kvg_index_set_add(&nodes, node->os_index);
        }
    }
    return nodes;
}

/* ---- dealing out */

/* One processor a core, of those given; a new bitmap. */
static hwloc_bitmap_t one_a_core(const RankTopology *topology, const IndexSet *cpus)
{
    hwloc_bitmap_t one = to_bitmap(cpus);

    if (one != NULL && hwloc_bitmap_singlify_per_core(topology->machine, one, 0) != 0) {
        hwloc_bitmap_free(one);
        return NULL;
    }
    return one;
}

unsigned kvg_topology_cores(const RankTopology *topology, const IndexSet *cpus)
{
    hwloc_bitmap_t one = one_a_core(topology, cpus);
    int            cores = one != NULL ? hwloc_bitmap_weight(one) : 0;

    hwloc_bitmap_free(one);
    return cores > 0 ? (unsigned)cores : 0;
}

/* Adds what `cpus` has of every core that is in `dealt` by one of its processors. */
static void widen_to_cores(const RankTopology *topology, const IndexSet *cpus, hwloc_const_bitmap_t dealt, IndexSet *part)
{
    IndexSet wide = from_bitmap(dealt); /* `part` may be `cpus` */

    for (hwloc_obj_t core = NULL; (core = hwloc_get_next_obj_by_type(topology->machine, HWLOC_OBJ_CORE, core)) != NULL;) {
        for (int index = hwloc_bitmap_first(core->cpuset); index >= 0 && hwloc_bitmap_intersects(core->cpuset, dealt);
             index = hwloc_bitmap_next(core->cpuset, index)) {
            if (kvg_index_set_has(cpus, (unsigned)index)) {
                kvg_index_set_add(&wide, (unsigned)index);
            }
        }
    }
    *part = wide;
}

/* hwloc deals a tree out; with one processor a core left in it, all cores weigh the same. */
static int deal(const RankTopology *topology, const IndexSet *cpus, hwloc_const_bitmap_t one, hwloc_bitmap_t *sets, int parts, int which, IndexSet *part)
{
    hwloc_topology_t copy = NULL;
    int              dealt = 0;

    if (hwloc_topology_dup(&copy, topology->machine) != 0) {
        return 0;
    }
    if (hwloc_topology_restrict(copy, one, 0) == 0) {
        hwloc_obj_t root = hwloc_get_root_obj(copy);
        dealt = hwloc_distrib(copy, &root, 1, sets, (unsigned)parts, INT_MAX, 0) == 0;
    }
    if (dealt) {
        widen_to_cores(topology, cpus, sets[which], part);
    }
    for (int i = 0; i < parts; i++) {
        hwloc_bitmap_free(sets[i]); /* NULL is allowed */
    }
    hwloc_topology_destroy(copy);
    return dealt;
}

int kvg_topology_part(const RankTopology *topology, const IndexSet *cpus, int parts, int which, IndexSet *part)
{
    hwloc_bitmap_t one = one_a_core(topology, cpus);
    void          *sets = NULL;
    int            dealt = 0;

    KVG_ASSERT(parts >= 1 && which >= 0 && which < parts);
    if (one != NULL && hwloc_bitmap_weight(one) >= parts && kvg_calloc((size_t)parts, sizeof(hwloc_bitmap_t), "the ranks' cores", &sets) == KVG_OK) {
        dealt = deal(topology, cpus, one, sets, parts, which, part);
    }
    kvg_free(sets);
    hwloc_bitmap_free(one);
    return dealt;
}

/* ---- binding */

int kvg_topology_bind_cpus(const RankTopology *topology, const IndexSet *cpus)
{
    hwloc_bitmap_t set = to_bitmap(cpus), now = hwloc_bitmap_alloc();
    int            bound = set != NULL && now != NULL && hwloc_set_cpubind(topology->machine, set, HWLOC_CPUBIND_PROCESS) == 0;

    if (bound && hwloc_get_cpubind(topology->machine, now, HWLOC_CPUBIND_THREAD) == 0 && !hwloc_bitmap_isincluded(now, set)) {
        errno = EINVAL; /* taken without a word, and not done */
        bound = 0;
    }
    hwloc_bitmap_free(now);
    hwloc_bitmap_free(set);
    return bound;
}

int kvg_topology_bind_memory(const RankTopology *topology, const IndexSet *nodes)
{
    hwloc_bitmap_t set = to_bitmap(nodes);
    int            bound = set != NULL && hwloc_set_membind(topology->machine, set, HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET) == 0;

    hwloc_bitmap_free(set);
    return bound;
}

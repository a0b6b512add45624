/* Binding on topologies that are recorded (tests/data/topologies), made up by hwloc's words, and this machine's. */
#include "launch/rank/binding.h"

#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/memory.h"
#include "tests/launch/suite.h"

#define RECORDED KVG_TEST_DATA "/topologies/power8-4gpu.xml"
#define EIGHT    KVG_TEST_DATA "/topologies/two-socket-8gpu.xml"
#define SHARED   KVG_TEST_DATA "/topologies/gpu-memory-node.xml"

enum { SEATS = 16 };

static BindingSeat seats[SEATS];
static RankBinding bound[SEATS];

static IndexSet read_set(const char *text)
{
    IndexSet set = { { 0 } };

    ck_assert_msg(kvg_index_set_read(text, &set) == 1, "\"%s\"", text);
    return set;
}

static RankTopology *open_topology(const char *from)
{
    RankTopology *topology = NULL;

    ck_assert_msg(kvg_topology_open(from, 1, &topology) == KVG_OK, "%s", kvg_last_error());
    return topology;
}

static void sit(int rank, const char *allowed, const char *bus)
{
    seats[rank] = (BindingSeat){ .allowed = read_set(allowed), .has_device = bus != NULL, .device = { .node = -1 } };
    if (bus != NULL) {
        snprintf(seats[rank].device.bus, sizeof seats[rank].device.bus, "%s", bus);
    }
}

/* Plans for all of seats [count]. */
static void plan(const RankTopology *topology, int count)
{
    for (int rank = 0; rank < count; rank++) {
        kvg_binding_plan(topology, "no hwloc", seats, count, rank, &bound[rank]);
    }
}

static void check(int rank, BindingKind kind, const char *cpus, const char *nodes)
{
    char text[2][INDEX_SET_TEXT];

    kvg_index_set_text(&bound[rank].cpus, text[0], INDEX_SET_TEXT);
    kvg_index_set_text(&bound[rank].nodes, text[1], INDEX_SET_TEXT);
    ck_assert_msg(bound[rank].kind == kind && strcmp(text[0], cpus) == 0 && strcmp(text[1], nodes) == 0, "rank %d: kind %d, cpus %s, memory of %s: %s", rank,
                  (int)bound[rank].kind, text[0], text[1], bound[rank].why);
}

#if KVG_HAVE_HWLOC

START_TEST(test_binding_on_a_recorded_machine_is_near_each_gpu)
{
    RankTopology *topology = open_topology(RECORDED);
    RankDevices   gpus;
    char          allowed[INDEX_SET_TEXT];
    IndexSet      all = kvg_topology_allowed(topology);

    kvg_topology_gpus(topology, &gpus);
    ck_assert_uint_eq(gpus.count, 4);
    ck_assert_str_eq(gpus.device[2].bus, "000a:01:00.0");
    ck_assert_str_eq(gpus.device[2].name, "Tesla P100-SXM2-16GB");
    for (int rank = 0; rank < 4; rank++) {
        sit(rank, kvg_index_set_text(&all, allowed, sizeof allowed), gpus.device[rank].bus);
    }
    plan(topology, 4);
    check(0, BINDING_SET, "0-1,8-9", "0");
    check(1, BINDING_SET, "16-17,24-25", "0");
    check(2, BINDING_SET, "80-81,88-89", "1");
    check(3, BINDING_SET, "96-97,104-105", "1");
    plan(topology, 1); /* alone it has all that is near */
    check(0, BINDING_SET, "0-1,8-9,16-17,24-25", "0");
    ck_assert_ptr_nonnull(strstr(bound[0].why, "near device 0002:01:00.0 by hwloc"));
    kvg_topology_close(topology);
}
END_TEST

START_TEST(test_binding_deals_whole_cores_out_evenly)
{
    RankTopology *topology = open_topology(EIGHT);
    RankDevices   gpus;

    kvg_topology_gpus(topology, &gpus);
    ck_assert_uint_eq(gpus.count, 8); /* an NVSwitch is none */
    for (int rank = 0; rank < 8; rank++) {
        sit(rank, "0-31", gpus.device[rank].bus);
    }
    plan(topology, 8);
    check(0, BINDING_SET, "0-1,16-17", "0");
    check(3, BINDING_SET, "6-7,22-23", "0");
    check(4, BINDING_SET, "8-9,24-25", "1");
    check(7, BINDING_SET, "14-15,30-31", "1");
    plan(topology, 5);
    check(3, BINDING_SET, "6-7,22-23", "0");
    check(4, BINDING_SET, "8-15,24-31", "1");
    plan(topology, 3); /* 8 cores by 3 */
    check(0, BINDING_SET, "0-1,16-17", "0");
    check(1, BINDING_SET, "2-4,18-20", "0");
    check(2, BINDING_SET, "5-7,21-23", "0");
    kvg_topology_close(topology);
}
END_TEST

START_TEST(test_binding_stays_within_what_is_allowed)
{
    RankTopology *topology = open_topology(EIGHT);

    sit(0, "0-3,8-31", "0000:1b:00.0"); /* of the near cores 0 to 3, and 4 to 7 by one processor */
    sit(1, "0-3,8-31", "0000:43:00.0");
    plan(topology, 2);
    check(0, BINDING_SET, "0-3,16-19", "0");
    check(1, BINDING_SET, "20-23", "0");
    sit(0, "2,18", "0000:1b:00.0"); /* bound to a core each, near their devices */
    sit(1, "3,19", "0000:43:00.0");
    plan(topology, 2);
    check(0, BINDING_KEPT, "2,18", "none");
    check(1, BINDING_KEPT, "3,19", "none");
    ck_assert_int_eq(bound[0].amiss, 0);
    sit(0, "9,25", "0000:1b:00.0"); /* bound away from its device: kept, and said */
    plan(topology, 2);
    check(0, BINDING_KEPT, "9,25", "none");
    ck_assert_int_eq(bound[0].amiss, 1);
    ck_assert_ptr_nonnull(strstr(bound[0].why, "none of the allowed processors is near device 0000:1b:00.0 (those are 0-7,16-23)"));
    kvg_topology_close(topology);
}
END_TEST

START_TEST(test_binding_of_more_ranks_than_cores_shares_them_all)
{
    RankTopology *topology = open_topology(EIGHT);

    for (int rank = 0; rank < 3; rank++) {
        sit(rank, "0-1,8-31", "0000:1b:00.0");
    }
    sit(3, "0-1,16-17", "0000:1b:00.0"); /* others' processors are not its */
    seats[0].allowed = seats[1].allowed = seats[2].allowed = read_set("0-1,16-17,8-9");
    plan(topology, 2);
    check(0, BINDING_SET, "0,16", "0");
    plan(topology, 3);
    for (int rank = 0; rank < 3; rank++) {
        check(rank, BINDING_SET, "0-1,16-17", "0");
        ck_assert_int_eq(bound[rank].shared, 3);
    }
    kvg_topology_close(topology);
}
END_TEST

START_TEST(test_binding_without_a_device_deals_numa_nodes_out)
{
    RankTopology *topology = open_topology("synthetic:NUMANode:2 Core:4 PU:2");

    for (int rank = 0; rank < 4; rank++) {
        sit(rank, "0-15", NULL);
    }
    plan(topology, 4);
    check(0, BINDING_SET, "0-3", "0");
    check(1, BINDING_SET, "4-7", "0");
    check(2, BINDING_SET, "8-11", "1");
    check(3, BINDING_SET, "12-15", "1");
    plan(topology, 3); /* none lies on two nodes */
    check(0, BINDING_SET, "0-3", "0");
    check(1, BINDING_SET, "4-7", "0");
    check(2, BINDING_SET, "8-15", "1");
    plan(topology, 1);
    check(0, BINDING_KEPT, "0-15", "none");
    for (int rank = 0; rank < 9; rank++) {
        sit(rank, "0-15", NULL);
    }
    plan(topology, 9);
    check(8, BINDING_KEPT, "0-15", "none");
    ck_assert_ptr_nonnull(strstr(bound[8].why, "9 ranks share these cores"));
    kvg_topology_close(topology);
    topology = open_topology("synthetic:NUMANode:4 Core:2 PU:1");
    for (int rank = 0; rank < 2; rank++) {
        sit(rank, "0-7", NULL);
    }
    plan(topology, 2); /* fewer ranks than nodes */
    check(0, BINDING_SET, "0-3", "0-1");
    check(1, BINDING_SET, "4-7", "2-3");
    kvg_topology_close(topology);
}
END_TEST

START_TEST(test_binding_of_one_node_and_no_device_is_none)
{
    RankTopology *topology = open_topology("synthetic:NUMANode:1 Core:4 PU:1");

    sit(0, "0-3", NULL);
    sit(1, "0-3", NULL);
    plan(topology, 2);
    check(0, BINDING_NONE, "0-3", "none");
    ck_assert_str_eq(bound[0].why, "one NUMA node and no device");
    sit(0, "0-3", "0000:1b:00.0"); /* a virtual machine that tells nothing, and nothing is lost by it */
    plan(topology, 2);
    check(0, BINDING_NONE, "0-3", "none");
    ck_assert_ptr_nonnull(strstr(bound[0].why, "nobody says where device 0000:1b:00.0 is"));
    ck_assert_int_eq(bound[0].amiss, 0);
    kvg_topology_close(topology);
    topology = open_topology(EIGHT);
    sit(0, "0-31", "0000:1c:00.0"); /* here it matters */
    plan(topology, 1);
    check(0, BINDING_NONE, "0-31", "none");
    ck_assert_int_eq(bound[0].amiss, 1);
    kvg_topology_close(topology);
    plan(NULL, 1);
    check(0, BINDING_NONE, "0-31", "none");
    ck_assert_str_eq(bound[0].why, "no hwloc");
}
END_TEST

/* B109 */
START_TEST(test_binding_believes_the_driver_before_the_bus)
{
    RankTopology *topology = open_topology(EIGHT);

    sit(0, "0-31", "0000:1b:00.0");
    seats[0].device.node = 1;
    plan(topology, 1);
    check(0, BINDING_SET, "8-15,24-31", "1");
    ck_assert_ptr_nonnull(strstr(bound[0].why, "by the driver"));
    seats[0].device.node = 7; /* there is none */
    plan(topology, 1);
    check(0, BINDING_SET, "0-7,16-23", "0");
    kvg_topology_close(topology);
    topology = open_topology(SHARED); /* memory of the GPU is none of the host's nodes */
    sit(0, "0-3", "0009:01:00.0");
    sit(1, "0-3", "0009:01:00.0");
    plan(topology, 2);
    check(0, BINDING_SET, "0-1", "0");
    check(1, BINDING_SET, "2-3", "0");
    kvg_topology_close(topology);
}
END_TEST

/* Invariants over random allowed sets and devices. */
START_TEST(test_binding_holds_its_invariants_for_random_launches)
{
    RankTopology *topology = open_topology(EIGHT);
    RankDevices   gpus;
    unsigned      seed = 11;
    int           set = 0;

    kvg_topology_gpus(topology, &gpus);
    for (int trial = 0; trial < 300; trial++) {
        int      count = 1 + rand_r(&seed) % SEATS;
        IndexSet common = { { 0 } };
        for (unsigned cpu = 0; cpu < 32; cpu++) {
            if (rand_r(&seed) % 3 != 0) {
                kvg_index_set_add(&common, cpu);
            }
        }
        kvg_index_set_add(&common, 5);
        for (int rank = 0; rank < count; rank++) {
            sit(rank, "0", rand_r(&seed) % 4 != 0 ? gpus.device[rand_r(&seed) % 8].bus : NULL);
            seats[rank].allowed = common;
        }
        plan(topology, count);
        for (int rank = 0; rank < count; rank++) {
            IndexSet inside = kvg_index_set_and(&bound[rank].cpus, &common), none = { { 0 } };
            ck_assert_msg(kvg_index_set_equal(&inside, &bound[rank].cpus) && !kvg_index_set_equal(&inside, &none), "trial %d rank %d", trial, rank);
            set += bound[rank].kind == BINDING_SET;
            for (int other = 0; other < rank; other++) { /* of one device and not shared: apart */
                int      same = seats[rank].has_device && seats[other].has_device && strcmp(seats[rank].device.bus, seats[other].device.bus) == 0;
                IndexSet both = kvg_index_set_and(&bound[rank].cpus, &bound[other].cpus);
                int      kept = bound[rank].kind == BINDING_KEPT && bound[rank].amiss;
                ck_assert_msg(!same || bound[rank].shared > 0 || kept || kvg_index_set_equal(&both, &none), "trial %d ranks %d and %d", trial, other, rank);
                unsigned cores[2] = { kvg_topology_cores(topology, &bound[rank].cpus), kvg_topology_cores(topology, &bound[other].cpus) };
                ck_assert_msg(!same || (cores[0] > cores[1] ? cores[0] - cores[1] : cores[1] - cores[0]) <= 1, "trial %d ranks %d and %d: %u and %u cores", trial,
                              other, rank, cores[0], cores[1]);
            }
        }
    }
    ck_assert_int_gt(set, 1000);
    kvg_topology_close(topology);
}
END_TEST

/* ---- this machine, told to be of two NUMA nodes */

static void pretend(const char *words)
{
    ck_assert_int_eq(setenv("HWLOC_SYNTHETIC", words, 1), 0);
    ck_assert_int_eq(setenv("HWLOC_THISSYSTEM", "1", 1), 0);
}

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[256];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

START_TEST(test_binding_asks_sysfs_where_hwloc_does_not_see_the_bus)
{
    char          root[] = "/tmp/kvg_sysfs_XXXXXX", folder[128];
    RankDevice    device = { .bus = "0000:AB:00.0", .node = -1 }; /* drivers may write it so */
    IndexSet      near = { { 0 } }, want = read_set("2-3");
    RankTopology *topology;

    pretend("NUMANode:2 Core:2 PU:1");
    topology = open_topology(NULL);
    ck_assert_ptr_nonnull(mkdtemp(root));
    snprintf(folder, sizeof folder, "%s/bus", root);
    static const char *const steps[] = { "", "/pci", "/devices", "/0000:ab:00.0" };
    for (size_t i = 0; i < 4; i++) {
        strcat(folder, steps[i]);
        ck_assert_int_eq(mkdir(folder, 0700), 0);
    }
    ck_assert_ptr_null(kvg_topology_near(topology, root, &device, &near));
    write_file(folder, "numa_node", "-1\n");
    ck_assert_ptr_null(kvg_topology_near(topology, root, &device, &near));
    write_file(folder, "numa_node", "1\n");
    ck_assert_str_eq(kvg_topology_near(topology, root, &device, &near), "sysfs");
    ck_assert(kvg_index_set_equal(&near, &want));
    write_file(folder, "local_cpulist", "0-2\n");
    want = read_set("0-2");
    ck_assert_str_eq(kvg_topology_near(topology, root, &device, &near), "sysfs");
    ck_assert(kvg_index_set_equal(&near, &want));
    write_file(folder, "local_cpulist", "\n"); /* firmware that does not say */
    want = read_set("2-3");
    ck_assert_str_eq(kvg_topology_near(topology, root, &device, &near), "sysfs");
    ck_assert(kvg_index_set_equal(&near, &want));
    kvg_topology_close(topology);
    char command[160];
    snprintf(command, sizeof command, "rm -r %s", root);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

START_TEST(test_binding_is_done_to_this_process)
{
    cpu_set_t now;
    char      allowed[INDEX_SET_TEXT];

    ck_assert_int_eq(sched_getaffinity(0, sizeof now, &now), 0);
    if (!CPU_ISSET(0, &now) || !CPU_ISSET(1, &now)) {
        printf("skipped: processors 0 and 1 are not both allowed here\n");
        return;
    }
    pretend("NUMANode:2 Core:1 PU:1");
    RankTopology *topology = open_topology(NULL);
    IndexSet      all = kvg_topology_allowed(topology);
    for (int rank = 0; rank < 2; rank++) {
        sit(rank, kvg_index_set_text(&all, allowed, sizeof allowed), NULL);
    }
    plan(topology, 2);
    check(0, BINDING_SET, "0", "0");
    check(1, BINDING_SET, "1", "1");
    kvg_binding_do(topology, &bound[1]);
    ck_assert_int_eq(bound[1].kind, BINDING_SET);
    ck_assert_int_eq(sched_getaffinity(0, sizeof now, &now), 0);
    ck_assert(CPU_COUNT(&now) == 1 && CPU_ISSET(1, &now));
    IndexSet narrowed = kvg_topology_allowed(topology), want = read_set("1"); /* from now on it is all that is allowed */
    ck_assert(kvg_index_set_equal(&narrowed, &want));
    kvg_topology_close(topology);
}
END_TEST

START_TEST(test_binding_that_the_system_refuses_is_said_and_no_error)
{
    cpu_set_t before, after;

    pretend("NUMANode:2 Core:1000 PU:1");
    RankTopology *topology = open_topology(NULL);
    sit(0, "900-1999", NULL); /* no machine of the tests has them */
    sit(1, "900-1999", NULL);
    plan(topology, 2);
    check(1, BINDING_SET, "1000-1999", "1");
    ck_assert_int_eq(sched_getaffinity(0, sizeof before, &before), 0);
    kvg_binding_do(topology, &bound[1]);
    ck_assert_int_eq(sched_getaffinity(0, sizeof after, &after), 0);
    ck_assert(CPU_EQUAL(&before, &after));
    ck_assert_int_eq(bound[1].kind, BINDING_NONE);
    ck_assert_int_eq(bound[1].amiss, 1);
    ck_assert_ptr_nonnull(strstr(bound[1].why, "the system refuses: "));
    ck_assert_uint_eq(kvg_index_set_count(&bound[1].nodes), 0);
    kvg_topology_close(topology);
}
END_TEST

START_TEST(test_binding_by_another_machines_topology_is_not_done)
{
    RankTopology *topology = open_topology(EIGHT);
    char          words[320];

    sit(0, "0-31", "0000:df:00.0");
    plan(topology, 1);
    ck_assert_str_eq(kvg_binding_words(&bound[0], words, sizeof words), "cpus 8-15,24-31, memory of node 1: near device 0000:df:00.0 by hwloc");
    kvg_binding_do(topology, &bound[0]);
    check(0, BINDING_NONE, "8-15,24-31", "none");
    ck_assert_str_eq(kvg_binding_words(&bound[0], words, sizeof words), "not bound: the topology is not this machine's (HWLOC_XMLFILE)");
    kvg_topology_close(topology);
}
END_TEST

START_TEST(test_topology_that_cannot_be_read_is_named)
{
    RankTopology *topology = NULL;
    uint64_t      live = kvg_live_allocations();

    ck_assert_int_eq(kvg_topology_open("/no/such.xml", 1, &topology), KVG_EIO);
    SAYS("/no/such.xml: cannot be opened: No such file");
    ck_assert_int_eq(kvg_topology_open(KVG_TEST_DATA "/topologies/README.md", 1, &topology), KVG_EFORMAT);
    SAYS("README.md: hwloc cannot");
    static const char *const huge[] = { "synthetic:NUMANode:64 Core:64 PU:8", "synthetic:NUMANode:99999999999999999999999 PU:1", "synthetic:PU:4097",
                                        "synthetic:4097", "synthetic:NUMANode:1000(memory=1GB) Core:1000 PU:1000" };
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
        ck_assert_int_eq(kvg_topology_open(huge[i], 1, &topology), KVG_EFORMAT);
        SAYS("more than 4096 processors");
    }
    ck_assert_int_eq(kvg_topology_open("synthetic:two nodes", 1, &topology), KVG_EFORMAT);
    SAYS("hwloc does not understand the topology \"synthetic:two nodes\"");
    kvg_fault_arm(0);
    ck_assert_int_eq(kvg_topology_open(NULL, 1, &topology), KVG_ENOMEM);
    ck_assert_int_eq(kvg_fault_disarm(), 1);
    ck_assert_ptr_null(topology);
    ck_assert_uint_eq(kvg_live_allocations(), live);
}
END_TEST

START_TEST(test_topology_of_this_machine_is_counted)
{
    RankTopology  *topology = open_topology(NULL);
    TopologyCounts counts = kvg_topology_counts(topology);
    IndexSet       allowed = kvg_topology_allowed(topology);
    cpu_set_t      now;

    ck_assert_int_eq(sched_getaffinity(0, sizeof now, &now), 0);
    ck_assert_int_eq(counts.is_this, 1);
    ck_assert_int_ge(counts.nodes, 1);
    ck_assert_int_ge(counts.processors, CPU_COUNT(&now));
    ck_assert_uint_eq(kvg_index_set_count(&allowed), (unsigned)CPU_COUNT(&now));
    ck_assert_uint_ge(kvg_index_set_count(&allowed), kvg_topology_cores(topology, &allowed));
    kvg_topology_close(topology);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        test_binding_on_a_recorded_machine_is_near_each_gpu, test_binding_deals_whole_cores_out_evenly, test_binding_stays_within_what_is_allowed,
        test_binding_of_more_ranks_than_cores_shares_them_all, test_binding_without_a_device_deals_numa_nodes_out,
        test_binding_of_one_node_and_no_device_is_none, test_binding_believes_the_driver_before_the_bus,
        test_binding_holds_its_invariants_for_random_launches, test_binding_asks_sysfs_where_hwloc_does_not_see_the_bus,
        test_binding_is_done_to_this_process, test_binding_that_the_system_refuses_is_said_and_no_error,
        test_binding_by_another_machines_topology_is_not_done, test_topology_that_cannot_be_read_is_named, test_topology_of_this_machine_is_counted,
    };

    unsetenv("HWLOC_XMLFILE");
    unsetenv("HWLOC_SYNTHETIC");
    return run_suite("binding", tests, sizeof tests / sizeof *tests);
}

#else

START_TEST(test_binding_without_hwloc_is_none_and_says_so)
{
    RankTopology *topology = NULL;

    ck_assert_int_eq(kvg_topology_open(NULL, 1, &topology), KVG_ENOTSUP);
    SAYS("hwloc is not compiled in");
    ck_assert_ptr_null(topology);
    sit(0, "0-3", "0000:1b:00.0");
    plan(topology, 1);
    check(0, BINDING_NONE, "0-3", "none");
    ck_assert_str_eq(bound[0].why, "no hwloc");
    kvg_binding_do(topology, &bound[0]);
    check(0, BINDING_NONE, "0-3", "none");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = { test_binding_without_hwloc_is_none_and_says_so };

    (void)open_topology;
    return run_suite("binding", tests, 1);
}

#endif

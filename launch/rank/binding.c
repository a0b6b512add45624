#include "launch/rank/binding.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/error.h"

static void say(RankBinding *binding, BindingKind kind, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void say(RankBinding *binding, BindingKind kind, const char *format, ...)
{
    va_list arguments;

    binding->kind = kind;
    va_start(arguments, format);
    vsnprintf(binding->why, sizeof binding->why, format, arguments);
    va_end(arguments);
}

/* What a rank would take if it were alone: near its device, or all that is allowed. 0: there is nothing to choose for it. */
static int wants(const RankTopology *topology, const BindingSeat *seat, IndexSet *cpus)
{
    IndexSet near;

    *cpus = seat->allowed;
    if (!seat->has_device) {
        return kvg_topology_counts(topology).nodes > 1;
    }
    if (kvg_topology_near(topology, NULL, &seat->device, &near) == NULL) {
        return 0;
    }
    *cpus = kvg_index_set_and(&seat->allowed, &near);
    return kvg_index_set_count(cpus) > 0;
}

/* Says why `wants` answered 0. */
static void say_nothing_to_choose(const RankTopology *topology, const BindingSeat *seat, RankBinding *binding)
{
    char     near_text[INDEX_SET_TEXT / 2];
    IndexSet near;

    if (!seat->has_device) {
        say(binding, BINDING_NONE, "one NUMA node and no device");
        return;
    }
    binding->amiss = kvg_topology_counts(topology).nodes > 1; /* else it is as near as can be */
    if (kvg_topology_near(topology, NULL, &seat->device, &near) == NULL) {
        say(binding, BINDING_NONE, "nobody says where device %s is", seat->device.bus[0] != '\0' ? seat->device.bus : seat->device.name);
        return;
    }
    say(binding, BINDING_KEPT, "none of the allowed processors is near device %s (those are %s)", seat->device.bus,
        kvg_index_set_text(&near, near_text, sizeof near_text));
}

/* Ranks that want the same processors, of them this one's place. */
static int count_sharers(const RankTopology *topology, const BindingSeat *seats, int count, int me, const IndexSet *mine, int *place)
{
    int sharers = 0;

    *place = 0;
    for (int i = 0; i < count; i++) {
        IndexSet theirs;

        if (i == me || (wants(topology, &seats[i], &theirs) && kvg_index_set_equal(&theirs, mine))) {
            *place = i == me ? sharers : *place;
            sharers++;
        }
    }
    return sharers;
}

static void say_what_for(const RankTopology *topology, const BindingSeat *seat, RankBinding *binding)
{
    const BindingKind kind = kvg_index_set_equal(&binding->cpus, &seat->allowed) ? BINDING_KEPT : BINDING_SET;
    const char       *kept = kind == BINDING_KEPT ? "already " : "";
    IndexSet          near;

    if (seat->has_device) {
        say(binding, kind, "%snear device %s by %s", kept, seat->device.bus, kvg_topology_near(topology, NULL, &seat->device, &near));
    } else if (kind == BINDING_KEPT && binding->shared > 0) {
        say(binding, kind, "no device, and %d ranks share these cores", binding->shared);
    } else if (kind == BINDING_KEPT) {
        say(binding, kind, "no device, and no other rank wants its processors");
    } else {
        say(binding, kind, "no device: its part of the NUMA nodes");
    }
}

void kvg_binding_plan(const RankTopology *topology, const char *missing, const BindingSeat *seats, int count, int me, RankBinding *binding)
{
    const BindingSeat *seat = &seats[me];
    int                place = 0;

    KVG_ASSERT(me >= 0 && me < count);
    *binding = (RankBinding){ .cpus = seat->allowed };
    if (topology == NULL) {
        say(binding, BINDING_NONE, "%s", missing);
        return;
    }
    if (!wants(topology, seat, &binding->cpus)) {
        binding->cpus = seat->allowed;
        binding->on = kvg_topology_nodes(topology, &binding->cpus);
        say_nothing_to_choose(topology, seat, binding);
        return;
    }
    const int sharers = count_sharers(topology, seats, count, me, &binding->cpus, &place);
    if (kvg_topology_cores(topology, &binding->cpus) < (unsigned)sharers) {
        binding->shared = sharers;
    } else if (sharers > 1) {
        (void)kvg_topology_part(topology, &binding->cpus, sharers, place, &binding->cpus); /* else they share: no reason to fail */
    }
    say_what_for(topology, seat, binding);
    binding->on = kvg_topology_nodes(topology, &binding->cpus);
    if (binding->kind == BINDING_SET && kvg_topology_counts(topology).nodes > 1) {
        binding->nodes = binding->on;
    }
}

void kvg_binding_do(const RankTopology *topology, RankBinding *binding)
{
    if (binding->kind != BINDING_SET) {
        return;
    }
    if (!kvg_topology_counts(topology).is_this) {
        memset(&binding->nodes, 0, sizeof binding->nodes);
        say(binding, BINDING_NONE, "the topology is not this machine's (HWLOC_XMLFILE)");
        return;
    }
    if (!kvg_topology_bind_cpus(topology, &binding->cpus)) {
        memset(&binding->nodes, 0, sizeof binding->nodes);
        binding->amiss = 1;
        say(binding, BINDING_NONE, "the system refuses: %s", strerror(errno));
        return;
    }
    if (kvg_index_set_count(&binding->nodes) > 0 && !kvg_topology_bind_memory(topology, &binding->nodes)) {
        const size_t used = strlen(binding->why);
        memset(&binding->nodes, 0, sizeof binding->nodes);
        snprintf(binding->why + used, sizeof binding->why - used, "; memory not bound: %s", strerror(errno));
    }
}

const char *kvg_binding_words(const RankBinding *binding, char *text, size_t bytes)
{
    char cpus[INDEX_SET_TEXT], nodes[INDEX_SET_TEXT];
    int  on_nodes = kvg_index_set_count(&binding->nodes) > 0;

    if (binding->kind == BINDING_NONE) {
        snprintf(text, bytes, "not bound: %s", binding->why);
        return text;
    }
    snprintf(text, bytes, "%s %s%s%s: %s", binding->kind == BINDING_SET ? "cpus" : "left on cpus", kvg_index_set_text(&binding->cpus, cpus, sizeof cpus),
             on_nodes ? ", memory of node " : "", on_nodes ? kvg_index_set_text(&binding->nodes, nodes, sizeof nodes) : "", binding->why);
    return text;
}

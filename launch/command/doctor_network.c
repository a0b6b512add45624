#include "launch/command/doctor_network.h"

#include <kvgrid/policy.h>

#include "runtime/comm/mesh_internal.h"

/* As a rank between machines would: the address is chosen and listened on for a moment. */
void kvg_doctor_network(Finding *finding)
{
    KvgPolicy               policy;
    struct sockaddr_storage chosen;
    MeshAddress             address = { 0 };
    char                    place[KVG_MESH_PLACE_BYTES], list[KVG_MESH_INTERFACES_BYTES];
    int                     fd = -1;

    if (kvg_policy_from_env(&policy) != KVG_OK) { /* said beside the knobs */
        kvg_policy_default(&policy);
    }
    const char *interface = policy.interface[0] != '\0' ? policy.interface : NULL;
    KvgStatus   status = kvg_mesh_choose(interface, 0, &chosen);
    if (status == KVG_OK) {
        status = kvg_mesh_listen_tcp(interface, 0, &fd, &address);
        kvg_mesh_close_fd(&fd);
    }
    if (status != KVG_OK) {
        kvg_finding(finding, interface != NULL ? VERDICT_FAIL : VERDICT_WARN, "%s", kvg_last_error());
        return;
    }
    kvg_mesh_place(&chosen, place);
    kvg_mesh_interfaces(list, sizeof list);
    kvg_finding(finding, VERDICT_OK, "ranks on other hosts would be told %s%s; KVGRID_INTERFACE chooses among %s", place,
                interface != NULL ? ", by KVGRID_INTERFACE" : "", list);
}

/* Mesh interfaces: which of this host's addresses the others are told to connect to.
 *
 *   asked for   the first address of the interface of that name, or that address
 *   within a host  127.0.0.1
 *   else        the first address of the host's name that is not loopback, else the first interface's that leads out */
#include "runtime/comm/mesh_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/error.h"

static int is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        return (ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24) == 127;
    }
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

/* 0.0.0.0, or ::, which each host takes for itself. */
static int is_any(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        return ((const struct sockaddr_in *)address)->sin_addr.s_addr == htonl(INADDR_ANY);
    }
    return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

socklen_t kvg_mesh_address_bytes(const void *address)
{
    return ((const struct sockaddr *)address)->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

void kvg_mesh_place(const void *address, char place[KVG_MESH_PLACE_BYTES])
{
    const struct sockaddr *at = address;
    char                   host[INET6_ADDRSTRLEN + IF_NAMESIZE + 1], port[8];

    if ((at->sa_family != AF_INET && at->sa_family != AF_INET6) ||
        getnameinfo(at, kvg_mesh_address_bytes(at), host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        snprintf(place, KVG_MESH_PLACE_BYTES, "?");
    } else if (strcmp(port, "0") == 0) {
        snprintf(place, KVG_MESH_PLACE_BYTES, "%s", host);
    } else {
        snprintf(place, KVG_MESH_PLACE_BYTES, at->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
    }
}

/* ---- what there is */

/* An interface's entry that others could be told: link-local addresses of IPv6 mean nothing without the interface of whoever connects. */
static int is_address(const struct ifaddrs *each)
{
    const struct sockaddr *address = each->ifa_addr;

    if (address == NULL || !(each->ifa_flags & IFF_UP)) {
        return 0;
    }
    return address->sa_family == AF_INET ||
           (address->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr));
}

void kvg_mesh_interfaces(char *list, size_t bytes)
{
    struct ifaddrs *all = NULL;
    size_t          used = 0;

    snprintf(list, bytes, "no interface with an address");
    if (getifaddrs(&all) != 0) {
        return;
    }
    for (const struct ifaddrs *each = all; each != NULL; each = each->ifa_next) {
        char place[KVG_MESH_PLACE_BYTES], entry[KVG_MESH_PLACE_BYTES + IF_NAMESIZE + 4];

        if (!is_address(each)) {
            continue;
        }
        kvg_mesh_place(each->ifa_addr, place);
        int length = snprintf(entry, sizeof entry, "%s%s %s", used > 0 ? ", " : "", each->ifa_name, place);
        if (used + (size_t)length + sizeof ", .." > bytes) { /* a host of containers has hundreds */
            snprintf(list + used, bytes - used, ", ..");
            break;
        }
        used += (size_t)snprintf(list + used, bytes - used, "%s", entry);
    }
    freeifaddrs(all);
}

/* The first address of the interface `name`, of IPv4 if it has one. 0: there is none; -1, with errno: the host's interfaces cannot be read. */
static int named_interface(const char *name, struct sockaddr_storage *found)
{
    struct ifaddrs *all = NULL;
    int             family = 0;

    if (getifaddrs(&all) != 0) {
        return -1;
    }
    for (const struct ifaddrs *each = all; each != NULL && family != AF_INET; each = each->ifa_next) {
        if (strcmp(each->ifa_name, name) == 0 && is_address(each) && (family == 0 || each->ifa_addr->sa_family == AF_INET)) {
            family = each->ifa_addr->sa_family;
            memcpy(found, each->ifa_addr, kvg_mesh_address_bytes(each->ifa_addr));
        }
    }
    freeifaddrs(all);
    return family != 0;
}

/* The first IPv4 address of an interface that is up and leads out of this host. 0: there is none. */
static int first_interface(struct sockaddr_storage *found)
{
    struct ifaddrs *list = NULL;
    int             any = 0;

    if (getifaddrs(&list) != 0) {
        return 0;
    }
    for (const struct ifaddrs *each = list; each != NULL && !any; each = each->ifa_next) {
        if (!is_address(each) || each->ifa_addr->sa_family != AF_INET || (each->ifa_flags & IFF_LOOPBACK) ||
            strncmp(each->ifa_name, "docker", 6) == 0 || strncmp(each->ifa_name, "veth", 4) == 0 || strncmp(each->ifa_name, "br-", 3) == 0) {
            continue; /* bridges of containers answer on every host and reach none */
        }
        memcpy(found, each->ifa_addr, sizeof(struct sockaddr_in));
        any = 1;
    }
    freeifaddrs(list);
    return any;
}

/* The first address that `name` resolves to; with `reachable`, the first that is not loopback. 0: there is none. */
static int resolve(const char *name, int flags, int reachable, struct sockaddr_storage *found)
{
    struct addrinfo  hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags };
    struct addrinfo *list = NULL;
    int              any = 0;

    if (getaddrinfo(name, NULL, &hints, &list) != 0) {
        return 0;
    }
    for (const struct addrinfo *each = list; each != NULL && !any; each = each->ai_next) {
        if ((each->ai_family == AF_INET || each->ai_family == AF_INET6) && !(reachable && is_loopback(each->ai_addr))) {
            memcpy(found, each->ai_addr, each->ai_addrlen);
            any = 1;
        }
    }
    freeaddrinfo(list);
    return any;
}

/* ---- the choice */

static KvgStatus choose_named(const char *interface, struct sockaddr_storage *chosen)
{
    char list[KVG_MESH_INTERFACES_BYTES], host[KVG_MESH_HOST_BYTES] = "";

    int known = named_interface(interface, chosen), code = errno;

    if (known > 0) {
        return KVG_OK;
    }
    if (resolve(interface, AI_NUMERICHOST, 0, chosen) && !is_any((const struct sockaddr *)chosen)) {
        return KVG_OK; /* one that is another host's is found when it is listened on */
    }
    if (known < 0) {
        return kvg_fail(KVG_EIO, "mesh: the host's interfaces cannot be read, to find \"%.63s\": %s; raise the limit of open files, or give an address",
                        interface, strerror(code));
    }
    gethostname(host, sizeof host - 1);
    kvg_mesh_interfaces(list, sizeof list);
    return kvg_fail(KVG_EINVAL, "mesh: \"%.63s\" is no interface of host %s that has an address, and no address to be told to others; the host has %s: set "
                    "KVGRID_INTERFACE to one of them, by name or address", interface, host, list);
}

KvgStatus kvg_mesh_choose(const char *interface, int local, struct sockaddr_storage *chosen)
{
    char host[KVG_MESH_HOST_BYTES] = "";

    memset(chosen, 0, sizeof *chosen);
    if (interface != NULL) {
        return choose_named(interface, chosen);
    }
    if (local) {
        struct sockaddr_in *loopback = (struct sockaddr_in *)chosen;

        loopback->sin_family = AF_INET;
        loopback->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        return KVG_OK;
    }
    gethostname(host, sizeof host - 1);
    /* Debian resolves the own name to 127.0.1.1, which other hosts cannot reach */
    if (!resolve(host, 0, 1, chosen) && !first_interface(chosen)) {
        char list[KVG_MESH_INTERFACES_BYTES];

        kvg_mesh_interfaces(list, sizeof list);
        return kvg_fail(KVG_EIO, "mesh: host %s has no address that other hosts would reach; the host has %s: KVGRID_INTERFACE chooses one", host, list);
    }
    return KVG_OK;
}

/* Rendezvous addresses: "host:port", "[::1]:port", ":port". */
#include "runtime/comm/rendezvous_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/error.h"
#include "runtime/comm/mesh_internal.h"

#define HOST_MAX 254
#define PORT_MAX 65535

/* 1 to 65535, in decimal digits alone. */
static int port_is_sound(const char *port)
{
    unsigned value = 0;

    if (strlen(port) > 5 || strspn(port, "0123456789") != strlen(port)) {
        return 0;
    }
    (void)sscanf(port, "%u", &value);
    return value > 0 && value <= PORT_MAX;
}

/* Cuts the address in two; 0: it is none. */
static int cut(const char *address, char host[HOST_MAX], const char **port)
{
    const char *colon = strrchr(address, ':');
    size_t      host_bytes = colon != NULL ? (size_t)(colon - address) : 0;

    if (colon == NULL || host_bytes >= HOST_MAX || !port_is_sound(colon + 1)) {
        return 0;
    }
    memcpy(host, address, host_bytes);
    host[host_bytes] = '\0';
    *port = colon + 1;
    if (host[0] == '[') {
        int closed = host_bytes > 2 && host[host_bytes - 1] == ']';

        memmove(host, host + 1, host_bytes);
        host[closed ? host_bytes - 2 : 0] = '\0';
        return closed;
    }
    if (strchr(host, ':') != NULL) {
        return 0; /* an IPv6 address without brackets: which colon is the port's? */
    }
    if (host[0] == '\0') {
        strcpy(host, "127.0.0.1");
    }
    return 1;
}

KvgStatus kvg_rv_resolve(const char *address, struct addrinfo **list)
{
    struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV };
    char            host[HOST_MAX];
    const char     *port = NULL;

    if (address == NULL || !cut(address, host, &port)) {
        return kvg_fail(KVG_EINVAL, "rendezvous: the address \"%.300s\" is not host:port, [::1]:port or :port, with a port from 1 to %d",
                        address != NULL ? address : "(none)", PORT_MAX);
    }
    int code = getaddrinfo(host, port, &hints, list);

    if (code != 0) {
        return kvg_fail(KVG_EINVAL, "rendezvous: the host of \"%.300s\" is not known: %s", address, gai_strerror(code));
    }
    return KVG_OK;
}

int kvg_rv_is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        return (ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24) == 127;
    }
    return address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

static KvgStatus check_place(const struct sockaddr *address, int has_secret)
{
    char place[KVG_MESH_PLACE_BYTES];

    if (has_secret || kvg_rv_is_loopback(address)) {
        return KVG_OK;
    }
    kvg_mesh_place(address, place);
    return kvg_fail(KVG_EINVAL, "rendezvous: %s is not loopback and there is no secret, so anybody could take a seat; give all ranks the same secret", place);
}

KvgStatus kvg_rv_listen(const char *address, int has_secret, int *fd_p)
{
    struct addrinfo *list = NULL;
    int              one = 1, fd = -1;
    char             place[KVG_MESH_PLACE_BYTES];

    KVG_TRY(kvg_rv_resolve(address, &list));
    KvgStatus status = check_place(list->ai_addr, has_secret);

    if (status != KVG_OK) {
        freeaddrinfo(list);
        return status;
    }
    kvg_mesh_place(list->ai_addr, place);
    fd = kvg_mesh_denied() ? -1 : socket(list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    /* connections of a rendezvous before this one may still hold the port */
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 || bind(fd, list->ai_addr, list->ai_addrlen) != 0 ||
        listen(fd, SOMAXCONN) != 0) {
        status = kvg_fail(KVG_EIO, "rendezvous: rank 0 cannot listen at %s: %s", place, strerror(errno));
        kvg_mesh_close_fd(&fd);
    }
    freeaddrinfo(list);
    *fd_p = fd;
    return status;
}

KvgStatus kvg_rv_check_listener(int fd, int has_secret)
{
    struct sockaddr_storage address;
    socklen_t               bytes = sizeof address, listens_bytes = sizeof(int);
    int                     listens = 0;

    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &listens_bytes) != 0 || !listens ||
        getsockname(fd, (struct sockaddr *)&address, &bytes) != 0 || (address.ss_family != AF_INET && address.ss_family != AF_INET6)) {
        return kvg_fail(KVG_EINVAL, "rendezvous: descriptor %d is no TCP socket that listens", fd);
    }
    return check_place((const struct sockaddr *)&address, has_secret);
}

/* Mesh addresses: who this process is, where it listens.
 *
 * Within a host ranks listen in the abstract Unix name space: the kernel picks a free name and forgets it with the
 * socket. It has no permissions, so a connection proves nothing until its secret does (mesh_connect.c). */
#include "runtime/comm/mesh_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/base/memory.h"

int kvg_mesh_denied(void)
{
    int denied = kvg_fault_hit();

    if (denied) {
        errno = EMFILE;
    }
    return denied;
}

void kvg_mesh_close_fd(int *fd)
{
    if (*fd != -1) {
        close(*fd);
        *fd = -1;
    }
}

/* ---- who */

/* The first line of a file of the kernel, or "" where there is none. EIO where it cannot be known: too many files are open. */
static KvgStatus read_line(const char *path, char *line, size_t line_bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
        return kvg_fail(KVG_EIO, "mesh: %s cannot be opened: %s; raise the limit of open files", path, strerror(errno));
    }
    ssize_t got = fd >= 0 ? read(fd, line, line_bytes - 1) : 0;

    line[got > 0 ? got : 0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    kvg_mesh_close_fd(&fd);
    return KVG_OK;
}

KvgStatus kvg_mesh_identify(MeshIdentity *identity)
{
    struct stat network;

    memset(identity, 0, sizeof *identity);
    identity->magic = KVG_MESH_MAGIC;
    identity->version = KVG_MESH_VERSION;
    identity->pid = getpid();
    if (gethostname(identity->host, sizeof identity->host - 1) != 0) {
        snprintf(identity->host, sizeof identity->host, "?");
    }
    KVG_TRY(read_line("/proc/sys/kernel/random/boot_id", identity->boot, sizeof identity->boot));
    if (stat("/proc/self/ns/net", &network) == 0) {
        identity->network = network.st_ino;
    }
    if (getrandom(identity->secret, sizeof identity->secret, 0) != (ssize_t)sizeof identity->secret) {
        return kvg_fail(KVG_EIO, "mesh: the kernel gives no random bytes: %s", strerror(errno));
    }
    return KVG_OK;
}

int kvg_mesh_same_host(const MeshIdentity *a, const MeshIdentity *b)
{
    return strncmp(a->host, b->host, sizeof a->host) == 0 && strncmp(a->boot, b->boot, sizeof a->boot) == 0 &&
           a->network == b->network;
}

/* ---- where */

static KvgStatus listen_on(int family, const void *wanted, socklen_t wanted_bytes, int *fd_p, void *bound, uint32_t *bound_bytes)
{
    int       fd = kvg_mesh_denied() ? -1 : socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    socklen_t length = sizeof ((MeshAddress *)0)->tcp_address;

    if (fd < 0 || bind(fd, wanted, wanted_bytes) != 0 || listen(fd, SOMAXCONN) != 0 || getsockname(fd, bound, &length) != 0) {
        int code = errno;

        kvg_mesh_close_fd(&fd);
        return kvg_fail(KVG_EIO, "mesh: cannot listen on a %s socket: %s; check the address and the limit of open files",
                        family == AF_UNIX ? "Unix" : "TCP", strerror(code));
    }
    *bound_bytes = length;
    *fd_p = fd;
    return KVG_OK;
}

KvgStatus kvg_mesh_listen_unix(int *fd, MeshAddress *address)
{
    struct sockaddr_un any = { .sun_family = AF_UNIX };

    /* A name of no bytes: the kernel picks one. */
    return listen_on(AF_UNIX, &any, sizeof any.sun_family, fd, address->unix_address, &address->unix_bytes);
}

static int is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        return (ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24) == 127;
    }
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

static socklen_t address_bytes(const struct sockaddr *address)
{
    return address->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
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

/* The first IPv4 address of an interface that is up and leads out of this host. 0: there is none. */
static int first_interface(struct sockaddr_storage *found)
{
    struct ifaddrs *list = NULL;
    int             any = 0;

    if (getifaddrs(&list) != 0) {
        return 0;
    }
    for (const struct ifaddrs *each = list; each != NULL && !any; each = each->ifa_next) {
        if (each->ifa_addr == NULL || each->ifa_addr->sa_family != AF_INET || !(each->ifa_flags & IFF_UP) ||
            (each->ifa_flags & IFF_LOOPBACK) || strncmp(each->ifa_name, "docker", 6) == 0 ||
            strncmp(each->ifa_name, "veth", 4) == 0 || strncmp(each->ifa_name, "br-", 3) == 0) {
            continue; /* bridges of containers answer on every host and reach none */
        }
        memcpy(found, each->ifa_addr, sizeof(struct sockaddr_in));
        any = 1;
    }
    freeifaddrs(list);
    return any;
}

KvgStatus kvg_mesh_listen_tcp(const char *ip, int local, int *fd, MeshAddress *address)
{
    struct sockaddr_storage wanted = { 0 };
    char                    host[KVG_MESH_HOST_BYTES] = "";

    if (ip != NULL) {
        if (!resolve(ip, AI_NUMERICHOST, 0, &wanted)) {
            return kvg_fail(KVG_EINVAL, "mesh: interface_ip \"%s\" is no IP address; give one such as 10.0.0.7", ip);
        }
    } else if (local) {
        struct sockaddr_in *loopback = (struct sockaddr_in *)&wanted;

        loopback->sin_family = AF_INET;
        loopback->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    } else {
        gethostname(host, sizeof host - 1);
        /* Debian resolves the own name to 127.0.1.1, which other hosts cannot reach */
        if (!resolve(host, 0, 1, &wanted) && !first_interface(&wanted)) {
            return kvg_fail(KVG_EIO, "mesh: host %s has no address that other hosts reach; set interface_ip", host);
        }
    }
    return listen_on(wanted.ss_family, &wanted, address_bytes((const struct sockaddr *)&wanted), fd, address->tcp_address,
                     &address->tcp_bytes);
}

/* Mesh addresses: who this process is, where it listens; on which address, mesh_interface.c says.
 *
 * Within a host ranks listen in the abstract Unix name space: the kernel picks a free name and forgets it with the
 * socket. It has no permissions, so a connection proves nothing until its secret does (mesh_connect.c). */
#include "runtime/comm/mesh_internal.h"

#include <errno.h>
#include <fcntl.h>
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

static KvgStatus fail_to_listen(int family, const void *wanted, int code)
{
    char place[KVG_MESH_PLACE_BYTES], list[KVG_MESH_INTERFACES_BYTES];

    if (family == AF_UNIX) {
        return kvg_fail(KVG_EIO, "mesh: cannot listen on a Unix socket: %s; raise the limit of open files", strerror(code));
    }
    kvg_mesh_place(wanted, place);
    if (code != EADDRNOTAVAIL) {
        return kvg_fail(KVG_EIO, "mesh: cannot listen at %s: %s; raise the limit of open files, or choose another address by KVGRID_INTERFACE", place,
                        strerror(code));
    }
    kvg_mesh_interfaces(list, sizeof list);
    return kvg_fail(KVG_EINVAL, "mesh: %s is no address of this host; the host has %s: set KVGRID_INTERFACE to one of them, by name or address", place, list);
}

static KvgStatus listen_on(int family, const void *wanted, socklen_t wanted_bytes, int *fd_p, void *bound, uint32_t *bound_bytes)
{
    int       fd = kvg_mesh_denied() ? -1 : socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    socklen_t length = sizeof ((MeshAddress *)0)->tcp_address;

    if (fd < 0 || bind(fd, wanted, wanted_bytes) != 0 || listen(fd, SOMAXCONN) != 0 || getsockname(fd, bound, &length) != 0) {
        int code = errno;

        kvg_mesh_close_fd(&fd);
        return fail_to_listen(family, wanted, code);
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

KvgStatus kvg_mesh_listen_tcp(const char *interface, int local, int *fd, MeshAddress *address)
{
    struct sockaddr_storage wanted;

    KVG_TRY(kvg_mesh_choose(interface, local, &wanted));
    return listen_on(wanted.ss_family, &wanted, kvg_mesh_address_bytes(&wanted), fd, address->tcp_address, &address->tcp_bytes);
}

/* Shared segments: memfd, seals, SCM_RIGHTS. */
#include "runtime/comm/shm_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/comm/clock.h"
#include "runtime/comm/mesh_internal.h"

#define SEALS      (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) /* or a peer could cut it under our feet: SIGBUS */
#define CALL_MS    1000 /* the longest wait for an answer before the deadline is looked at */
#define PAUSE_NS   1000000
#define SERVES_MAX 64   /* in one go */

/* ---- memory */

KvgStatus kvg_shm_segment_create(size_t bytes, int *fd_p)
{
    int fd = kvg_mesh_denied() ? -1 : memfd_create("kvgrid", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0 || fcntl(fd, F_ADD_SEALS, SEALS) != 0) {
        int code = errno;

        kvg_mesh_close_fd(&fd);
        return kvg_fail(code == ENOSYS ? KVG_ENOTSUP : KVG_EIO, "shared memory: %zu bytes are not to be had: %s; check the limits of open files and memory",
                        bytes, strerror(code));
    }
    *fd_p = fd;
    return KVG_OK;
}

KvgStatus kvg_shm_segment_map(int fd, void **memory, size_t *bytes)
{
    struct stat about;
    int         seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &about) != 0 || about.st_size <= 0) {
        return kvg_fail(KVG_EINVAL, "shared memory: descriptor %d is none that kvg_shm_memory gave", fd);
    }
    void *mapped = kvg_mesh_denied() ? MAP_FAILED : mmap(NULL, (size_t)about.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (mapped == MAP_FAILED) {
        return kvg_fail(KVG_ENOMEM, "shared memory: %lld bytes cannot be mapped: %s", (long long)about.st_size, strerror(errno));
    }
    *memory = mapped;
    *bytes = (size_t)about.st_size;
    return KVG_OK;
}

void kvg_shm_segment_unmap(void *memory, size_t bytes)
{
    if (memory != NULL) {
        munmap(memory, bytes);
    }
}

/* ---- the door */

static socklen_t door_address(const char *name, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){ .sun_family = AF_UNIX }; /* its first byte is 0: abstract */
    int length = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "kvgrid/%s", name);

    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static int other_end(int fd, struct ucred *other)
{
    socklen_t bytes = sizeof *other;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, other, &bytes) == 0;
}

static int unix_socket(int flags)
{
    return kvg_mesh_denied() ? -1 : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
}

static KvgStatus fail_held(const char *name)
{
    struct sockaddr_un address;
    struct ucred       holder = { .pid = -1, .uid = (uid_t)-1 };
    socklen_t          length = door_address(name, &address);
    int                fd = unix_socket(SOCK_NONBLOCK);

    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, length) == 0) {
        (void)other_end(fd, &holder);
    }
    kvg_mesh_close_fd(&fd);
    return kvg_fail(KVG_EINVAL, "shared memory: the name \"%s\" is taken by process %d of user %d; take another name, one for each set of processes", name,
                    (int)holder.pid, (int)holder.uid);
}

KvgStatus kvg_shm_door_open(const char *name, ShmDoor *door)
{
    struct sockaddr_un address;
    socklen_t          length = door_address(name, &address);
    int                fd = unix_socket(SOCK_NONBLOCK);

    if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) != 0 || listen(fd, SOMAXCONN) != 0) {
        int code = errno;

        kvg_mesh_close_fd(&fd);
        if (code == EADDRINUSE) {
            return fail_held(name);
        }
        return kvg_fail(KVG_EIO, "shared memory: cannot listen as \"%s\": %s; check the limit of open files", name, strerror(code));
    }
    *door = (ShmDoor){ .fd = fd };
    return KVG_OK;
}

/* One byte, and the segment beside it. */
static void hand_over(int fd, int segment)
{
    union {
        struct cmsghdr header;
        char           room[CMSG_SPACE(sizeof(int))];
    } control = { .room = { 0 } };
    struct iovec  part = { .iov_base = "k", .iov_len = 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room };

    control.header = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int)) };
    memcpy(CMSG_DATA(&control.header), &segment, sizeof segment);
    (void)sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT); /* a caller that is gone again */
}

void kvg_shm_door_serve(ShmDoor *door, int segment)
{
    for (int served = 0; served < SERVES_MAX; served++) {
        struct ucred caller;
        int          fd = accept4(door->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0) {
            return;
        }
        if (other_end(fd, &caller) && caller.uid == geteuid()) {
            hand_over(fd, segment);
        } else {
            snprintf(door->last_stranger, sizeof door->last_stranger, "; process %d of user %d called and was turned away", (int)caller.pid,
                     (int)caller.uid);
        }
        kvg_mesh_close_fd(&fd);
    }
}

void kvg_shm_door_close(ShmDoor *door)
{
    kvg_mesh_close_fd(&door->fd);
}

/* What the door's owner sends. 0: it went away. */
static int take_over(int fd, int *segment)
{
    union {
        struct cmsghdr header;
        char           room[CMSG_SPACE(sizeof(int))];
    } control;
    char          byte;
    struct iovec  part = { .iov_base = &byte, .iov_len = 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room };

    if (recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1) {
        return 0;
    }
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);

    if (header == NULL || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof(int))) {
        return 0;
    }
    memcpy(segment, CMSG_DATA(header), sizeof *segment);
    return 1;
}

/* One call. KVG_OK with *segment -1: not now. */
static KvgStatus call_once(const char *name, uint64_t deadline_ns, int *segment)
{
    struct sockaddr_un address;
    struct ucred       owner;
    socklen_t          length = door_address(name, &address);
    KvgStatus          status = KVG_OK;
    int                fd = unix_socket(SOCK_NONBLOCK);

    *segment = -1;
    if (fd < 0) {
        return kvg_fail(KVG_EIO, "shared memory: no socket: %s; raise the limit of open files", strerror(errno));
    }
    if (connect(fd, (struct sockaddr *)&address, length) == 0 && other_end(fd, &owner)) {
        if (owner.uid != geteuid()) {
            status = kvg_fail(KVG_EINVAL, "shared memory: the name \"%s\" is taken by process %d of user %d, this is user %d; take another name", name,
                              (int)owner.pid, (int)owner.uid, (int)geteuid());
        }
        for (int answered = 0; status == KVG_OK && !answered && kvg_clock_ns() < deadline_ns;) {
            struct pollfd wait = { .fd = fd, .events = POLLIN };
            uint64_t      left_ms = kvg_monus_u64(deadline_ns, kvg_clock_ns()) / 1000000 + 1;

            answered = poll(&wait, 1, (int)(left_ms < CALL_MS ? left_ms : CALL_MS)) == 1;
            if (answered && !take_over(fd, segment)) {
                *segment = -1; /* its owner has closed the door: perhaps another opens it */
            }
        }
    }
    kvg_mesh_close_fd(&fd);
    return status;
}

KvgStatus kvg_shm_door_call(const char *name, uint64_t deadline_ns, int *segment)
{
    for (;;) {
        KVG_TRY(call_once(name, deadline_ns, segment));
        if (*segment != -1) {
            return KVG_OK;
        }
        if (kvg_clock_ns() >= deadline_ns) {
            return kvg_fail(KVG_EINDOUBT, "shared memory: rank 0 did not give its memory as \"%s\" before the deadline; was it started, on this host?", name);
        }
        nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
    }
}

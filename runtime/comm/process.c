/* Process: pidfds, and the moment a process began from /proc. */
#include "runtime/comm/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/error.h"

/* Field 22 of /proc/PID/stat; 0: not known, and *code says why, ENOENT and ESRCH for no such process. The name before it may hold anything, ")" too,
 * so fields are counted from the last one. */
static uint64_t began_at(int64_t pid, int *code)
{
    char  path[48], text[1024];
    char *field;

    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    int     fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;

    *code = got < 0 ? errno : 0;
    kvg_mesh_close_fd(&fd);
    text[got > 0 ? got : 0] = '\0';
    field = strrchr(text, ')');
    for (int i = 2; field != NULL && i < 22; i++) {
        field = strchr(field + 1, ' ');
    }
    return field != NULL ? strtoull(field, NULL, 10) : 0;
}

static int is_our_limit(int code) { return code == EMFILE || code == ENFILE; }

KvgStatus kvg_process_self(KvProcess *self)
{
    struct stat space;
    int         code = 0;

    memset(self, 0, sizeof *self);
    KVG_TRY(kvg_mesh_identify(&self->who));
    self->uid = (uint32_t)geteuid();
    self->began = began_at(self->who.pid, &code);
    if (is_our_limit(code)) {
        return kvg_fail(KVG_EIO, "shared memory: /proc/%lld/stat cannot be opened: %s; raise the limit of open files", (long long)self->who.pid,
                        strerror(code));
    }
    if (self->began == 0 || stat("/proc/self/ns/pid", &space) != 0) {
        return kvg_fail(KVG_ENOTSUP, "shared memory: /proc says nothing of process %lld; mount it, or use the socket mesh", (long long)self->who.pid);
    }
    self->pid_space = space.st_ino;
    return KVG_OK;
}

KvgStatus kvg_process_near(const KvProcess *a, int rank_a, const KvProcess *b, int rank_b)
{
    const char *differs = NULL;

    if (strncmp(a->who.host, b->who.host, sizeof a->who.host) != 0 || strncmp(a->who.boot, b->who.boot, sizeof a->who.boot) != 0) {
        differs = "hosts";
    } else if (a->pid_space != b->pid_space) {
        differs = "pid name spaces (containers)";
    } else if (a->who.network != b->who.network) {
        differs = "network name spaces (containers)";
    } else if (a->uid != b->uid) {
        differs = "users";
    }
    if (differs == NULL) {
        return KVG_OK;
    }
    return kvg_fail(KVG_ENOTSUP, "shared memory: rank %d (host %.63s, pid %lld, uid %u) and rank %d (host %.63s, pid %lld, uid %u) are of different %s; "
                    "use the socket mesh", rank_a, a->who.host, (long long)a->who.pid, a->uid, rank_b, b->who.host, (long long)b->who.pid, b->uid, differs);
}

KvgStatus kvg_process_open(const KvProcess *process, int rank, int *fd_p)
{
    const MeshIdentity *who = &process->who;
    int                 fd = kvg_mesh_denied() ? -1 : (int)syscall(SYS_pidfd_open, (pid_t)who->pid, 0);
    int                 code = errno;

    if (fd < 0 && code == ENOSYS) {
        return kvg_fail(KVG_ENOTSUP, "shared memory: this kernel has no pidfd_open, by which deaths are seen (Linux 5.3); use the socket mesh");
    }
    if (fd < 0 && code != ESRCH) {
        return kvg_fail(KVG_EIO, "shared memory: rank %d (host %.63s, pid %lld) cannot be watched: %s%s", rank, who->host, (long long)who->pid, strerror(code),
                        is_our_limit(code) ? "; raise the limit of open files" : "");
    }
    const uint64_t began = fd >= 0 ? began_at(who->pid, &code) : 0;

    if (fd >= 0 && is_our_limit(code)) { /* it may live: nothing is known of it */
        kvg_mesh_close_fd(&fd);
        return kvg_fail(KVG_EIO, "shared memory: rank %d (host %.63s, pid %lld) cannot be watched: %s; raise the limit of open files", rank, who->host,
                        (long long)who->pid, strerror(code));
    }
    if (fd < 0 || began != process->began) {
        kvg_mesh_close_fd(&fd);
        return kvg_fail(KVG_EPEER, "shared memory: rank %d (host %.63s, pid %lld) ended during set-up", rank, who->host, (long long)who->pid);
    }
    *fd_p = fd;
    return KVG_OK;
}

int kvg_process_ended(int fd)
{
    struct pollfd poll_fd = { .fd = fd, .events = POLLIN };

    return poll(&poll_fd, 1, 0) == 1 && poll_fd.revents != 0;
}

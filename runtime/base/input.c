/* Input files. */
#include "runtime/base/input.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/error.h"

/* Bytes, or the end that a writer left: poll tells neither of a pipe that no writer has opened yet, so such a one is waited for. 1: there. */
static int has_come(int fd, int wait_ms)
{
    struct pollfd pipe = { .fd = fd, .events = POLLIN };
    int           found;

    do {
        found = poll(&pipe, 1, wait_ms);
    } while (found < 0 && errno == EINTR);
    return found > 0;
}

static KvgStatus prepare(int fd, const char *path, const char *cure, int wait_ms)
{
    struct stat about;

    if (fstat(fd, &about) == 0 && S_ISFIFO(about.st_mode) && !has_come(fd, wait_ms)) {
        return kvg_fail(KVG_EIO, "%s: a pipe into which nothing was written within %d ms; %s", path, wait_ms, cure);
    }
    if (fcntl(fd, F_SETFL, O_RDONLY) != 0) { /* reading may wait again */
        return kvg_fail(KVG_EIO, "%s: cannot be opened: %s; %s", path, strerror(errno), cure);
    }
    return KVG_OK;
}

KvgStatus kvg_input_open(const char *path, const char *cure, int wait_ms, FILE **file)
{
    KvgStatus status = KVG_OK;
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

    if (fd >= 0) {
        KVG_TRY_GOTO(prepare(fd, path, cure, wait_ms), err_close);
    }
    *file = fd >= 0 ? fdopen(fd, "rb") : NULL;
    if (*file == NULL) {
        status = kvg_fail(KVG_EIO, "%s: cannot be opened: %s; %s", path, strerror(errno), cure);
    }
err_close:
    if (status != KVG_OK && fd >= 0) {
        close(fd);
    }
    return status;
}

/* Whole files. */
#include "launch/command/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/error.h"

static KvgStatus fail_file(KvgStatus status, const char *option, const char *path, int error)
{
    return kvg_fail(status, "%s: %s cannot be written: %s", option, path, strerror(error));
}

/* A device or a pipe. */
static int is_special(const char *path)
{
    struct stat found;

    return stat(path, &found) == 0 && !S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode);
}

static int is_directory(const char *path)
{
    struct stat found;

    return stat(path, &found) == 0 && S_ISDIR(found.st_mode);
}

/* A pipe that nobody reads is refused (ENXIO) instead of waited for; one that is read may be waited for. */
static int open_special(const char *path)
{
    const int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);

    if (fd >= 0) {
        fcntl(fd, F_SETFL, O_WRONLY);
    }
    return fd;
}

/* The file that a link names is replaced, not the link; a link to nothing is. `path` is then `place`, which has PATH_MAX bytes. */
static const char *follow(const char *path, char *place)
{
    struct stat found;

    return lstat(path, &found) == 0 && S_ISLNK(found.st_mode) && realpath(path, place) != NULL ? place : path;
}

/* Where the text goes; its descriptor, or -1 with errno set. A link that lies there already is not followed. */
static int open_beside(const char *path, char *beside, size_t bytes)
{
    const size_t length = strlen(path);

    beside[0] = '\0';
    if (is_special(path)) {
        return open_special(path);
    }
    if (length == 0 || path[length - 1] == '/' || is_directory(path)) {
        errno = length == 0 ? ENOENT : EISDIR;
        return -1;
    }
    if ((size_t)snprintf(beside, bytes, "%s.tmp", path) >= bytes) {
        beside[0] = '\0';
        errno = ENAMETOOLONG;
        return -1;
    }
    return open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
}

KvgStatus kvg_whole_file_check(const char *option, const char *path)
{
    char beside[PATH_MAX], place[PATH_MAX];
    int  fd;

    if (is_special(path)) { /* to open a pipe and go away again would be an end to its reader */
        return access(path, W_OK) == 0 ? KVG_OK : fail_file(KVG_EINVAL, option, path, errno);
    }
    fd = open_beside(follow(path, place), beside, sizeof beside);
    if (fd < 0) {
        return fail_file(KVG_EINVAL, option, path, errno);
    }
    close(fd);
    if (beside[0] != '\0') {
        unlink(beside);
    }
    return KVG_OK;
}

KvgStatus kvg_whole_file_begin(const char *option, const char *path, WholeFile *file)
{
    int fd;

    file->option = option;
    file->path = path;
    file->target = follow(path, file->place);
    fd = open_beside(file->target, file->beside, sizeof file->beside);
    file->stream = fd < 0 ? NULL : fdopen(fd, "w");
    if (file->stream == NULL) {
        KvgStatus status = fail_file(KVG_EIO, option, path, errno);
        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    return KVG_OK;
}

KvgStatus kvg_whole_file_end(WholeFile *file, KvgStatus status)
{
    const int wrong = ferror(file->stream);

    if (fclose(file->stream) != 0 || wrong) {
        status = status != KVG_OK ? status : fail_file(KVG_EIO, file->option, file->path, errno);
    }
    if (status == KVG_OK && file->beside[0] != '\0' && rename(file->beside, file->target) != 0) {
        status = fail_file(KVG_EIO, file->option, file->path, errno);
    }
    if (status != KVG_OK && file->beside[0] != '\0') {
        unlink(file->beside);
    }
    file->stream = NULL;
    return status;
}

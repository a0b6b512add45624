/* Replay's trail. */
#include "launch/command/replay_trail.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "runtime/base/error.h"
#include "runtime/base/memory.h"
#include "runtime/base/mix.h"

enum { FIRST_POINTS = 1024, PATH_BYTES = 4096 };

KvgStatus kvg_replay_trail_create(uint64_t requests, size_t leaves_max, ReplayTrail *trail)
{
    ReplayTrail made = { .kept = 1, .leaves_max = leaves_max };
    void       *memory = NULL;
    KvgStatus   status = KVG_OK;
    KVG_TRY_GOTO(kvg_calloc(requests, sizeof(ReplayTrailPoint), "the trail's requests", &memory), err_free);
    made.terms = memory;
    KVG_TRY_GOTO(kvg_calloc(leaves_max, sizeof(KvLeaf), "the trail's leaves", &memory), err_free);
    made.leaves = memory;
    *trail = made;
    return KVG_OK;
err_free:
    kvg_replay_trail_free(&made);
    return status;
}

void kvg_replay_trail_free(ReplayTrail *trail)
{
    kvg_free(trail->terms);
    kvg_free(trail->points);
    kvg_free(trail->leaves);
    *trail = (ReplayTrail){ 0 };
}

KvgStatus kvg_replay_trail_term(ReplayTrail *trail, uint64_t request, uint64_t total, const KvgSequence *sequence, ReplayTrailPoint *term)
{
    KvgSequenceInfo info = { .size = sizeof info, .rows = total };
    size_t          count = 0;
    *term = (ReplayTrailPoint){ 0 };
    if (sequence != NULL) {
        KVG_TRY(kvg_sequence_info(sequence, &info));
    }
    if (info.rows == 0) {
        return KVG_OK;
    }
    term->agreed = kvg_mix_term(request, info.rows, info.replay, 0);
    if (info.rows == total) {
        return KVG_OK;
    }
    KvgStatus status = kvg_sequence_leaves(sequence, trail->leaves, trail->leaves_max, &count);
    if (status == KVG_EBUSY && info.replay > 0) { /* its rows are to be written again: they cannot be hashed, and are the same on no account */
        return KVG_OK;
    }
    KVG_TRY(status);
    KVG_ASSERT(count <= trail->leaves_max);
    term->stored = kvg_mix_term(request, info.rows, 0, XXH3_64bits(trail->leaves, count * sizeof(KvLeaf)));
    return KVG_OK;
}

void kvg_replay_trail_set(ReplayTrail *trail, uint64_t request, ReplayTrailPoint term)
{
    ReplayTrailPoint *at = &trail->terms[request];
    trail->sum.agreed += term.agreed - at->agreed;
    trail->sum.stored += term.stored - at->stored;
    *at = term;
}

KvgStatus kvg_replay_trail_mark(ReplayTrail *trail)
{
    if (trail->count == trail->capacity) {
        uint64_t capacity = trail->capacity > 0 ? 2 * trail->capacity : FIRST_POINTS;
        void    *memory = NULL;
        KVG_TRY(kvg_calloc(capacity, sizeof(ReplayTrailPoint), "the trail's commits", &memory));
        if (trail->count > 0) {
            memcpy(memory, trail->points, trail->count * sizeof(ReplayTrailPoint));
        }
        kvg_free(trail->points);
        trail->points = memory;
        trail->capacity = capacity;
    }
    trail->points[trail->count++] = trail->sum;
    return KVG_OK;
}

static int write_lines(const ReplayTrail *trail, FILE *file)
{
    for (uint64_t i = 0; i < trail->count; i++) {
        if (fprintf(file, "%" PRIu64 " %016" PRIx64 " %016" PRIx64 "\n", i + 1, trail->points[i].agreed, trail->points[i].stored) < 0) {
            return 0;
        }
    }
    return fflush(file) == 0 && fsync(fileno(file)) == 0;
}

static KvgStatus fail_file(KvgStatus status, const char *path, const char *what)
{
    return kvg_fail(status, "--trail: %s cannot be %s: %s", path, what, strerror(errno));
}

static KvgStatus name_file(const char *path, int rank, char mine[PATH_BYTES])
{
    if (snprintf(mine, PATH_BYTES, "%s.%d", path, rank) >= PATH_BYTES) {
        return kvg_fail(KVG_EINVAL, "--trail: a path of %zu bytes, at most %d: give a shorter one", strlen(path), PATH_BYTES - 16);
    }
    return KVG_OK;
}

/* A file without a name until it is whole, where the file system has such: a rank that is killed leaves nothing then. */
static FILE *open_beside(const char *path, char *beside, size_t bytes)
{
    char directory[PATH_BYTES];
    snprintf(directory, sizeof directory, "%s", path);
    char *slash = strrchr(directory, '/');
    snprintf(slash != NULL ? slash + 1 : directory, 2, "%s", slash != NULL ? "" : ".");
    int fd = open(directory, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    snprintf(beside, bytes, "%s.partial", path);
    if (fd < 0) {
        fd = open(beside, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666);
    } else {
        beside[0] = '\0'; /* it has no name yet */
    }
    return fd < 0 ? NULL : fdopen(fd, "w");
}

/* Gives the whole file its name. */
static int put_in_place(FILE *file, const char *path, const char *beside)
{
    char proc[64], named[PATH_BYTES + 16];
    if (beside[0] != '\0') {
        return rename(beside, path) == 0;
    }
    snprintf(proc, sizeof proc, "/proc/self/fd/%d", fileno(file));
    if (linkat(AT_FDCWD, proc, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0) {
        return 1;
    }
    snprintf(named, sizeof named, "%s.partial", path); /* there is an older one: a link does not replace, a rename does */
    return errno == EEXIST && (unlink(named) == 0 || errno == ENOENT) && linkat(AT_FDCWD, proc, AT_FDCWD, named, AT_SYMLINK_FOLLOW) == 0 &&
           rename(named, path) == 0;
}

KvgStatus kvg_replay_trail_check(const char *path, int rank)
{
    char        mine[PATH_BYTES], beside[PATH_BYTES + 16];
    struct stat found;
    KVG_TRY(name_file(path, rank, mine));
    const int there = stat(mine, &found) == 0;
    if (there && S_ISDIR(found.st_mode)) {
        errno = EISDIR;
        return fail_file(KVG_EINVAL, mine, "made");
    }
    FILE *file = there || errno == ENOENT ? open_beside(mine, beside, sizeof beside) : NULL; /* else the name is too long, or the like */
    if (file == NULL) {
        return fail_file(KVG_EINVAL, mine, "made");
    }
    fclose(file);
    if (beside[0] != '\0') {
        unlink(beside);
    }
    return KVG_OK;
}

KvgStatus kvg_replay_trail_write(const ReplayTrail *trail, const char *path, int rank)
{
    char      mine[PATH_BYTES], beside[PATH_BYTES + 16];
    KvgStatus status = KVG_OK;
    KVG_TRY(name_file(path, rank, mine));
    FILE *file = open_beside(mine, beside, sizeof beside);
    if (file == NULL) {
        return fail_file(KVG_EIO, mine, "made");
    }
    if (!write_lines(trail, file)) {
        status = fail_file(KVG_EIO, mine, "written");
    } else if (!put_in_place(file, mine, beside)) {
        status = fail_file(KVG_EIO, mine, "put in its place");
    }
    fclose(file);
    if (status != KVG_OK && beside[0] != '\0') {
        unlink(beside);
    }
    return status;
}

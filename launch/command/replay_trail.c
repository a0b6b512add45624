/* Replay's trail. */
#include "launch/command/replay_trail.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "launch/command/whole_file.h"
#include "runtime/base/error.h"
#include "runtime/base/memory.h"
#include "runtime/base/mix.h"

enum { FIRST_POINTS = 1024, PATH_BYTES = 4096 };

KvgStatus kvg_replay_trail_create(uint64_t requests, size_t leaves_max, ReplayTrail *trail)
{
    ReplayTrail made = { .kept = 1, .leaves_max = leaves_max };
    KvgStatus   status = KVG_OK;
    KVG_TRY_GOTO(KVG_NEW(requests, "the trail's requests", &made.terms), err_free);
    KVG_TRY_GOTO(KVG_NEW(leaves_max, "the trail's leaves", &made.leaves), err_free);
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

static KvgStatus write_lines(const ReplayTrail *trail, const char *path, FILE *file)
{
    for (uint64_t i = 0; i < trail->count; i++) {
        fprintf(file, "%" PRIu64 " %016" PRIx64 " %016" PRIx64 "\n", i + 1, trail->points[i].agreed, trail->points[i].stored);
    }
    if (fflush(file) == 0 && fsync(fileno(file)) != 0 && errno != EINVAL) { /* a device or a pipe has nothing to wait for */
        return kvg_fail(KVG_EIO, "--trail: %s cannot be written: %s", path, strerror(errno));
    }
    return KVG_OK; /* what else went wrong shows at the file's end */
}

static KvgStatus name_file(const char *path, int rank, char mine[PATH_BYTES])
{
    if (snprintf(mine, PATH_BYTES, "%s.%d", path, rank) >= PATH_BYTES) {
        return kvg_fail(KVG_EINVAL, "--trail: a path of %zu bytes, at most %d: give a shorter one", strlen(path), PATH_BYTES - 16);
    }
    return KVG_OK;
}

KvgStatus kvg_replay_trail_check(const char *path, int rank)
{
    char mine[PATH_BYTES];
    KVG_TRY(name_file(path, rank, mine));
    return kvg_whole_file_check("--trail", mine);
}

KvgStatus kvg_replay_trail_write(const ReplayTrail *trail, const char *path, int rank)
{
    char      mine[PATH_BYTES];
    WholeFile file;
    KVG_TRY(name_file(path, rank, mine));
    KVG_TRY(kvg_whole_file_begin("--trail", mine, &file));
    return kvg_whole_file_end(&file, write_lines(trail, mine, file.stream));
}

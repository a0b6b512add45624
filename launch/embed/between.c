#include "between.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { WORLD, STAGE, GROUPS };

/* A rank's own part: the two halves alternate, since nobody writes piece g+2 before all have read piece g: all must arrive at g+1 in between. */
typedef struct Seat {
    atomic_uint arrived[GROUPS];                  /* pieces of all-gathers entered */
    uint8_t     piece[GROUPS][2][BETWEEN_GATHER_BYTES]; /* pages come on first touch */
    atomic_uint handed, taken;                    /* by the rank before this one, and by this one */
    uint8_t     chain[BETWEEN_DEPTH][BETWEEN_CHAIN_BYTES];
} Seat;

struct Between { /* the worker's copy after the fork; `seat` is shared */
    Seat      *seat;
    uint32_t   tp, pp, rank, timeout_ms;
    KvgStatus (*turn)(void *user);
    void      *user;
    int        aborted;
    char       why[512];
};

Between *between_create(uint32_t tp, uint32_t pp)
{
    Between *between = calloc(1, sizeof *between);

    if (between == NULL) return NULL;
    between->tp = tp;
    between->pp = pp;
    between->seat = mmap(NULL, (size_t)tp * pp * sizeof(Seat), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (between->seat == MAP_FAILED) {
        free(between);
        return NULL;
    }
    return between;
}

void between_free(Between *between)
{
    munmap(between->seat, (size_t)between->tp * between->pp * sizeof(Seat));
    free(between);
}

void between_join(Between *between, uint32_t rank, uint32_t timeout_ms)
{
    between->rank = rank;
    between->timeout_ms = timeout_ms;
}

void between_turn(Between *between, KvgStatus (*turn)(void *user), void *user)
{
    between->turn = turn;
    between->user = user;
}

void between_abort(Between *between, const char *why)
{
    between->aborted = 1;
    snprintf(between->why, sizeof between->why, "%s", why);
}

const char *between_why(const Between *between)
{
    return between->why;
}

/* ---- waiting */

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static KvgStatus fail(Between *between, KvgStatus status, uint32_t peer, const char *what)
{
    if (between->why[0] == '\0') snprintf(between->why, sizeof between->why, "rank %u waits for rank %u: %s", between->rank, peer, what);
    return status;
}

/* One fruitless round of a wait: yields, then sleeps; looks after the grid now and then. */
static KvgStatus relax(Between *between, uint32_t peer, uint64_t rounds, uint64_t deadline_ns)
{
    if (rounds < 200) sched_yield();
    else nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
    if (rounds % 32 != 31) return KVG_OK;
    if (between->turn != NULL && between->turn(between->user) != KVG_OK) return fail(between, KVG_EPEER, peer, kvg_last_error());
    if (between->aborted) return KVG_EPEER;
    return now_ns() < deadline_ns ? KVG_OK : fail(between, KVG_EINDOUBT, peer, "it did not come before the deadline");
}

/* Until `counter` is at least `value`; counts wrap. */
static KvgStatus await(Between *between, uint32_t peer, atomic_uint *counter, uint32_t value, uint32_t timeout_ms)
{
    const uint64_t deadline_ns = now_ns() + timeout_ms * UINT64_C(1000000);

    for (uint64_t rounds = 0; (int32_t)(atomic_load(counter) - value) < 0; rounds++) {
        KvgStatus status = relax(between, peer, rounds, deadline_ns);
        if (status != KVG_OK) return status;
    }
    return KVG_OK;
}

/* ---- all-gathers, piece by piece */

static KvgStatus gather(Between *between, int group, uint32_t first, uint32_t count, const uint8_t *mine, uint8_t *all, size_t bytes,
                        uint32_t timeout_ms)
{
    Seat *own = &between->seat[between->rank];

    for (size_t from = 0; from < bytes; from += BETWEEN_GATHER_BYTES) {
        const size_t   part = bytes - from < BETWEEN_GATHER_BYTES ? bytes - from : BETWEEN_GATHER_BYTES;
        const uint32_t piece = atomic_load(&own->arrived[group]) + 1;
        memcpy(own->piece[group][piece % 2], mine + from, part);
        atomic_store(&own->arrived[group], piece);
        for (uint32_t i = 0; i < count; i++) {
            Seat     *peer = &between->seat[first + i];
            KvgStatus status = await(between, first + i, &peer->arrived[group], piece, timeout_ms);
            if (status != KVG_OK) return status;
            memcpy(all + i * bytes + from, peer->piece[group][piece % 2], part);
        }
    }
    return KVG_OK;
}

KvgStatus between_world(void *user, const void *mine, void *all, size_t bytes, uint32_t timeout_ms)
{
    Between *between = user;

    return gather(between, WORLD, 0, between->tp * between->pp, mine, all, bytes, timeout_ms);
}

KvgStatus between_stage(Between *between, const void *mine, void *all, size_t bytes)
{
    return gather(between, STAGE, between->rank / between->tp * between->tp, between->tp, mine, all, bytes, between->timeout_ms);
}

/* ---- the chain of stages */

KvgStatus between_hand(Between *between, const void *rows, size_t bytes)
{
    const uint32_t peer = between->rank + between->tp;
    Seat          *to = &between->seat[peer];
    const uint32_t number = atomic_load(&to->handed);
    KvgStatus      status = await(between, peer, &to->taken, number + 1 - BETWEEN_DEPTH, between->timeout_ms);

    if (status != KVG_OK) return status;
    memcpy(to->chain[number % BETWEEN_DEPTH], rows, bytes);
    atomic_store(&to->handed, number + 1);
    return KVG_OK;
}

KvgStatus between_take(Between *between, void *rows, size_t bytes)
{
    Seat          *own = &between->seat[between->rank];
    const uint32_t number = atomic_load(&own->taken);
    KvgStatus      status = await(between, between->rank - between->tp, &own->handed, number + 1, between->timeout_ms);

    if (status != KVG_OK) return status;
    memcpy(rows, own->chain[number % BETWEEN_DEPTH], bytes);
    atomic_store(&own->taken, number + 1);
    return KVG_OK;
}

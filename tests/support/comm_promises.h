/* What every transport between processes promises at its two ends, as parts of a rank's body: each begins with both ends made and closes them.
 *
 *   promise_records    all post at once; each gets all others' records, in order
 *   promise_messages   of given sizes, whole and in order, everybody sending first
 *   promise_early      a record that comes before records_open is kept; two ranks
 *   promise_loss       rank 1 of three is killed: named within a second, and what it had sent counts */
#ifndef TESTS_SUPPORT_COMM_PROMISES_H
#define TESTS_SUPPORT_COMM_PROMISES_H

#include <signal.h>
#include <string.h>

#include "runtime/base/memory.h"
#include "tests/support/comm_wait.h"

static inline int promise_records(const ForkRank *rank, KvComm *comm, KvLiveness *live)
{
    enum { WORDS = 72, LAST = WORDS - 1, COUNT = 100 };
    uint64_t record[WORDS] = { 0 }, next[FORK_RANKS_MAX] = { 0 };
    int      peer;

    FORK_CHECK(comm->rank == rank->bootstrap.rank && comm->size == rank->bootstrap.ranks);
    FORK_CHECK(comm->ops->records_open(comm->self, sizeof record) == KVG_OK);
    for (uint64_t i = 0; i < COUNT; i++) { /* 57 KiB a rank, in flight at once */
        record[0] = i;
        record[LAST] = (uint64_t)comm->rank * 1000 + i;
        FORK_CHECK(comm->ops->post(comm->self, record) == KVG_OK);
        record[LAST] = 0; /* it was copied */
    }
    for (int i = 0; i < COUNT * (comm->size - 1); i++) {
        const uint64_t *got = await_record(comm, &peer);

        FORK_CHECK(got != NULL && (uintptr_t)got % 8 == 0 && peer >= 0 && peer < comm->size && peer != comm->rank);
        FORK_CHECK(got[0] == next[peer] && got[LAST] == (uint64_t)peer * 1000 + next[peer]);
        next[peer]++;
    }
    FORK_CHECK(comm->ops->take(comm->self, &peer) == NULL && peer == -1);
    close_both(comm, live);
    FORK_CHECK(kvg_live_allocations() == 0);
    return 0;
}

static inline uint8_t promised_byte(int from, int index, size_t at)
{
    return (uint8_t)(at * 31 + (size_t)from * 7 + (size_t)index * 3 + (at >> 12));
}

/* The last bytes leave while each that has all of its own calls in. */
static inline void call_in_until_all_are_done(const ForkRank *rank, KvLiveness *live)
{
    atomic_fetch_add(&rank->shared->words[0], 1);
    while (atomic_load(&rank->shared->words[0]) < rank->bootstrap.ranks) {
        live->ops->poll(live->self);
        fork_sleep_ms(1);
    }
}

static inline int promise_messages(const ForkRank *rank, KvComm *comm, KvLiveness *live, const size_t *sizes, int count, size_t largest)
{
    int         next[FORK_RANKS_MAX] = { 0 }, peer = -1;
    const void *bytes = NULL;
    size_t      byte_count = 0;
    uint8_t    *text = malloc(largest);

    FORK_CHECK(text != NULL);
    for (int index = 0; index < count; index++) {
        for (size_t at = 0; at < sizes[index]; at++) {
            text[at] = promised_byte(comm->rank, index, at);
        }
        for (int to = 0; to < comm->size; to++) {
            FORK_CHECK(to == comm->rank || comm->ops->send(comm->self, to, text, sizes[index]) == KVG_OK);
        }
    }
    free(text);
    for (int i = 0; i < count * (comm->size - 1); i++) {
        FORK_CHECK(await_message(comm, &peer, &bytes, &byte_count));
        int index = next[peer]++;

        FORK_CHECK(byte_count == sizes[index]);
        for (size_t at = 0; at < byte_count; at += at > 20000 && at + 40000 < byte_count ? 997 : 1) {
            FORK_CHECK(((const uint8_t *)bytes)[at] == promised_byte(peer, index, at));
        }
    }
    call_in_until_all_are_done(rank, live);
    close_both(comm, live);
    FORK_CHECK(kvg_live_allocations() == 0);
    return 0;
}

static inline int promise_early(const ForkRank *rank, KvComm *comm, KvLiveness *live)
{
    uint64_t value = 77;
    int      peer;

    if (comm->rank == 0) {
        FORK_CHECK(comm->ops->records_open(comm->self, sizeof value) == KVG_OK);
        FORK_CHECK(comm->ops->post(comm->self, &value) == KVG_OK);
        atomic_store(&rank->shared->words[0], 1);
    } else {
        FORK_CHECK(fork_await(rank->shared, 0, 1));
        for (int i = 0; i < 5; i++) { /* where bytes are read as they come it is read, and kept */
            live->ops->poll(live->self);
            fork_sleep_ms(1);
        }
        FORK_CHECK(comm->ops->take(comm->self, &peer) == NULL);
        FORK_CHECK(comm->ops->records_open(comm->self, sizeof value) == KVG_OK);
        const uint64_t *got = await_record(comm, &peer);

        FORK_CHECK(got != NULL && *got == 77 && peer == 0);
        atomic_store(&rank->shared->words[1], 1);
    }
    FORK_CHECK(fork_await(rank->shared, 1, 1));
    close_both(comm, live);
    return 0;
}

/* The dead rank is named with its host and pid; writing to it is no error and raises no signal. */
static inline int promise_loss_is_named(const ForkRank *rank, KvComm *comm, KvLiveness *live)
{
    double      took = await_loss(live, 1, 5);
    const char *why = live->ops->why(live->self, 1);
    uint64_t    value = 5;
    char        pid[32];

    FORK_CHECK(took >= 0 && took < 1.0);
    snprintf(pid, sizeof pid, "pid %d", atomic_load(&rank->shared->words[1]));
    FORK_CHECK(strstr(why, "rank 1") != NULL && strstr(why, "host ") != NULL && strstr(why, pid) != NULL);
    for (int i = 0; i < 200; i++) {
        FORK_CHECK(comm->ops->post(comm->self, &value) == KVG_OK);
        FORK_CHECK(comm->ops->send(comm->self, 1, &value, sizeof value) == KVG_OK);
    }
    return 0;
}

static inline int promise_loss(const ForkRank *rank, KvComm *comm, KvLiveness *live)
{
    uint64_t value = 5;
    int      peer, living = 2 - comm->rank, from_dead = 0, from_living = 0;

    FORK_CHECK(comm->ops->records_open(comm->self, sizeof value) == KVG_OK);
    if (comm->rank == 1) {
        comm->ops->post(comm->self, &value);
        atomic_store(&rank->shared->words[1], getpid());
        raise(SIGKILL);
    }
    FORK_CHECK(promise_loss_is_named(rank, comm, live) == 0);
    while (from_dead + from_living < 201 && await_record(comm, &peer) != NULL) {
        from_dead += peer == 1;
        from_living += peer == living;
    }
    FORK_CHECK(from_dead == 1 && from_living == 200); /* what it sent before its death counts */
    FORK_CHECK(live->ops->lost(live->self, living) == 0);
    FORK_CHECK(strncmp(live->ops->why(live->self, living), "host ", 5) == 0 && strstr(live->ops->why(live->self, living), ", pid ") != NULL);
    atomic_fetch_add(&rank->shared->words[0], 1);
    for (uint64_t begin = comm->ops->now_ns(comm->self); atomic_load(&rank->shared->words[0]) < 2;) { /* what waits for room leaves meanwhile */
        FORK_CHECK(comm->ops->now_ns(comm->self) - begin < COMM_WAIT_NS && comm->ops->take(comm->self, &peer) == NULL);
    }
    close_both(comm, live);
    FORK_CHECK(kvg_live_allocations() == 0);
    return 0;
}

#endif

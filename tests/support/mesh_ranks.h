/* Ranks of a socket mesh between forked processes, over Unix sockets and over TCP. */
#ifndef KVG_TEST_MESH_RANKS_H
#define KVG_TEST_MESH_RANKS_H

#include <check.h>

#include <kvgrid/mesh.h>

#include "tests/support/fork_bootstrap.h"

#define TRIES 2 /* Unix sockets and TCP: argument of the bodies is 0 or 1 */

typedef struct Plan {
    int tcp, which;
} Plan;

static inline KvMeshOptions options_of(const Plan *plan)
{
    KvMeshOptions options = KVG_MESH_OPTIONS_INIT;

    options.timeout_ms = 5000;
    options.heartbeat_ms = 20;
    options.tcp = plan->tcp;
    return options;
}

static inline void run(int ranks, ForkBody body)
{
    for (int tcp = 0; tcp < TRIES; tcp++) {
        ck_assert_int_eq(fork_ranks(ranks, 20000, body, &(Plan){ .tcp = tcp }, NULL), 0);
    }
}

#endif

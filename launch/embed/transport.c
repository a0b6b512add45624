#include "transport.h"

#include <string.h>

static int is(const char *word, const char *name)
{
    return strcmp(word, name) == 0;
}

int transport_is_known(const char *word)
{
    return is(word, "shm") || is(word, "callback");
}

KvgStatus transport_prepare(const char *word, int ranks, Between *between, Transport *transport)
{
    *transport = (Transport){ .word = word, .between = between, .ranks = ranks, .fd = -1 };
    return is(word, "shm") ? kvg_shm_memory(ranks, &transport->fd) : KVG_OK;
}

static KvgStatus join_shm(const Transport *transport, int rank, uint32_t timeout_ms, KvgBootstrap *bootstrap)
{
    KvShmOptions options = KVG_SHM_OPTIONS_INIT;

    options.fd = transport->fd;
    options.rank = rank;
    options.ranks = transport->ranks;
    options.timeout_ms = timeout_ms;
    return kvg_shm_bootstrap_create(&options, bootstrap);
}

KvgStatus transport_join(const Transport *transport, int rank, uint32_t timeout_ms, KvgBootstrap *bootstrap)
{
    if (is(transport->word, "shm")) return join_shm(transport, rank, timeout_ms, bootstrap);
    *bootstrap = (KvgBootstrap){ .size = sizeof *bootstrap, .user = transport->between, .rank = rank, .ranks = transport->ranks, .allgather = between_world };
    return KVG_OK;
}

void transport_leave(const Transport *transport, KvgBootstrap *bootstrap)
{
    if (is(transport->word, "shm")) kvg_shm_bootstrap_destroy(bootstrap);
}

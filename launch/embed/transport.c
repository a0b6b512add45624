#include "transport.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

static int is(const char *word, const char *name)
{
    return strcmp(word, name) == 0;
}

int transport_is_known(const char *word)
{
    return is(word, "shm") || is(word, "tcp") || is(word, "callback");
}

static KvgStatus prepare_tcp(Transport *transport)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t          length = sizeof address;
    uint8_t            random[16];

    transport->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (transport->fd < 0 || bind(transport->fd, (struct sockaddr *)&address, length) != 0 || listen(transport->fd, transport->ranks) != 0 ||
        getsockname(transport->fd, (struct sockaddr *)&address, &length) != 0 || getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) return KVG_EIO;
    snprintf(transport->address, sizeof transport->address, "127.0.0.1:%u", ntohs(address.sin_port));
    for (size_t i = 0; i < sizeof random; i++) snprintf(transport->secret + 2 * i, 3, "%02x", random[i]);
    return KVG_OK;
}

KvgStatus transport_prepare(const char *word, int ranks, Between *between, Transport *transport)
{
    *transport = (Transport){ .word = word, .between = between, .ranks = ranks, .fd = -1 };
    if (is(word, "tcp")) return prepare_tcp(transport);
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

static KvgStatus join_tcp(const Transport *transport, int rank, uint32_t timeout_ms, KvgBootstrap *bootstrap)
{
    KvRendezvousOptions options = KVG_RENDEZVOUS_OPTIONS_INIT;

    options.address = transport->address;
    options.secret = transport->secret;
    options.rank = rank;
    options.ranks = transport->ranks;
    options.timeout_ms = timeout_ms;
    if (rank == 0) options.listen_fd = transport->fd;
    else close(transport->fd);
    return kvg_rendezvous_create(&options, bootstrap);
}

KvgStatus transport_join(const Transport *transport, int rank, uint32_t timeout_ms, KvgBootstrap *bootstrap)
{
    if (is(transport->word, "shm")) return join_shm(transport, rank, timeout_ms, bootstrap);
    if (is(transport->word, "tcp")) return join_tcp(transport, rank, timeout_ms, bootstrap);
    *bootstrap = (KvgBootstrap){ .size = sizeof *bootstrap, .user = transport->between, .rank = rank, .ranks = transport->ranks, .allgather = between_world };
    return KVG_OK;
}

void transport_leave(const Transport *transport, KvgBootstrap *bootstrap)
{
    if (is(transport->word, "shm")) {
        kvg_shm_bootstrap_destroy(bootstrap);
        close(transport->fd);
    }
    if (is(transport->word, "tcp")) kvg_rendezvous_destroy(bootstrap);
}

/* Rendezvous: one rank sets up its mesh among others of which the input speaks: what they say in the all-gathers (identities, addresses, readiness), who
 * connects to this rank and with which hello, and what answers where it connects to. Then the grid's own handshake over hellos of any content.
 * connect() goes to a pair of sockets in this process: no input reaches another one. */
#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "pp/handshake.h"
#include "runtime/comm/mesh_internal.h"
#include "tests/fuzz/fuzz.h"

#define RANKS_MAX  4
#define GUESTS_MAX 4
#define BYTES_MAX  ((uint64_t)512 << 10)

typedef struct Party {
    KvgBootstrap bootstrap;
    FuzzInput    input;
    MeshIdentity mine;              /* as this rank has said */
    int          guests[GUESTS_MAX];
    int          answers[RANKS_MAX * 2]; /* the far ends of what this rank connected to */
    int          guest_count, answer_count;
} Party;

static Party *party; /* for connect() */

/* ---- what others are made of */

/* Changes some bytes, words or long words, as the input says. */
static void change(FuzzInput *input, void *block, size_t bytes)
{
    for (int changes = fuzz_u8(input) % 4; changes > 0; changes--) {
        size_t   width = (size_t)1 << fuzz_u8(input) % 4;
        size_t   at = fuzz_u16(input) % bytes / width * width;
        uint64_t value = fuzz_any(input);

        memcpy((uint8_t *)block + at, &value, at + width <= bytes ? width : bytes - at);
    }
}

static MeshHello make_hello(FuzzInput *input, int from)
{
    MeshHello hello = { .magic = KVG_MESH_MAGIC, .version = KVG_MESH_VERSION, .from = from, .to = party->bootstrap.rank };

    memcpy(hello.secret, party->mine.secret, sizeof hello.secret);
    change(input, &hello, sizeof hello);
    return hello;
}

/* A hello, or the part of one, on its way to this rank; then perhaps more bytes. */
static void say_hello(FuzzInput *input, int fd, int from)
{
    MeshHello hello = make_hello(input, from);
    uint8_t   how = fuzz_u8(input);

    (void)!send(fd, &hello, (how & 3) == 3 ? how / 4 % sizeof hello : sizeof hello, MSG_NOSIGNAL | MSG_DONTWAIT);
    if ((how & 3) == 2) {
        shutdown(fd, SHUT_RDWR);
    }
}

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t bytes);
int __real_connect(int fd, const struct sockaddr *address, socklen_t bytes);

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t bytes)
{
    uint8_t how = fuzz_u8(&party->input);
    int     ends[2];

    (void)address;
    (void)bytes;
    if (how % 4 == 3 || party->answer_count == RANKS_MAX * 2) {
        errno = how % 8 == 3 ? ECONNREFUSED : EAGAIN;
        return -1;
    }
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0 && dup2(ends[0], fd) == fd);
    close(ends[0]);
    party->answers[party->answer_count++] = ends[1];
    say_hello(&party->input, ends[1], how / 4 % RANKS_MAX);
    return 0;
}

/* Strangers and ranks connect to where this rank listens, before it looks. */
static void send_guests(FuzzInput *input, const MeshAddress *mine)
{
    for (int count = fuzz_u8(input) % (GUESTS_MAX + 1); count > 0 && mine->unix_bytes > 0; count--) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);

        FUZZ_CHECK(fd >= 0);
        party->guests[party->guest_count++] = fd;
        if (__real_connect(fd, (const struct sockaddr *)mine->unix_address, mine->unix_bytes) == 0) {
            say_hello(input, fd, fuzz_u8(input) % RANKS_MAX);
        }
    }
}

static KvgStatus gather(void *user, const void *mine, void *all, size_t bytes, uint32_t timeout_ms)
{
    FuzzInput *input = &party->input;

    (void)user;
    (void)timeout_ms;
    for (int rank = 0; rank < party->bootstrap.ranks; rank++) {
        uint8_t *block = (uint8_t *)all + (size_t)rank * bytes;

        memcpy(block, mine, bytes);
        if (rank != party->bootstrap.rank) {
            change(input, block, bytes);
        }
    }
    if (bytes == sizeof(MeshIdentity)) {
        memcpy(&party->mine, mine, bytes);
    } else if (bytes == sizeof(MeshAddress)) {
        send_guests(input, mine);
    }
    return fuzz_u8(input) == 255 ? kvg_fail(KVG_EINDOUBT, "a rank did not come") : KVG_OK;
}

/* ---- the two handshakes */

static void try_mesh(FuzzInput *input, uint8_t shape)
{
    KvMeshOptions options = KVG_MESH_OPTIONS_INIT;
    KvComm        comm = { NULL, NULL, 0, 0 };
    KvLiveness    liveness;
    Party         here = { .bootstrap = KVG_BOOTSTRAP_INIT, .input = *input };

    party = &here;
    here.bootstrap.ranks = 1 + shape % RANKS_MAX;
    here.bootstrap.rank = shape / 4 % here.bootstrap.ranks;
    here.bootstrap.allgather = gather;
    options.timeout_ms = 2;
    options.tcp = shape / 16 % 8 == 7;
    options.interface = "127.0.0.1";
    KvgStatus status = kvg_mesh_create(&here.bootstrap, &options, &comm, &liveness);

    if (status == KVG_OK) {
        comm.ops->close(comm.self);
        liveness.ops->close(liveness.self);
    } else {
        fuzz_check_failure(status);
        FUZZ_CHECK(comm.self == NULL);
    }
    for (int i = 0; i < here.guest_count; i++) {
        close(here.guests[i]);
    }
    for (int i = 0; i < here.answer_count; i++) {
        close(here.answers[i]);
    }
    *input = here.input;
}

static void try_hellos(FuzzInput *input, uint8_t shape)
{
    KvHello hellos[RANKS_MAX];
    int     ranks = 1 + shape % RANKS_MAX, rank = shape / 4 % ranks, alike = 1;

    for (int i = 0; i < ranks; i++) {
        hellos[i] = (KvHello){ .version = 1, .rank = (uint64_t)i, .ranks = (uint64_t)ranks, .tp = 1, .pp = (uint64_t)ranks, .epoch = 1, .window = 2 };
        KvHello honest = hellos[i];

        if (i != rank) {
            change(input, &hellos[i], sizeof hellos[i]);
        }
        alike &= memcmp(&honest, &hellos[i], sizeof honest) == 0;
    }
    FUZZ_CHECK((kvg_hello_compare(hellos, ranks, rank) == KVG_OK) == alike);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzCount count = fuzz_begin();
    FuzzInput input = { data, size };
    uint8_t   shape = fuzz_u8(&input);

    if (shape >= 128) {
        try_hellos(&input, shape);
    } else {
        try_mesh(&input, shape);
    }
    fuzz_end(&count, size, 0, BYTES_MAX);
    return 0;
}

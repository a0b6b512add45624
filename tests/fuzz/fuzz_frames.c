/* Frames: any bytes on the connection to a peer of the socket mesh, in pieces of any size, held against a plain reading of the same bytes. */
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/comm/mesh_internal.h"
#include "tests/fuzz/fuzz.h"

#define MESSAGE_MAX 4096u
#define BYTES_MAX   ((uint64_t)1 << 20) /* the mesh itself, spares, one frame of each kind on its way */

typedef struct Expected { /* the next message of the plain reading */
    const uint8_t *at, *end;
    size_t         bytes;
} Expected;

/* Moves on to the next message; 0: there is none that is whole and sound. */
static int next_message(Expected *expected)
{
    MeshHeader header;

    while ((size_t)(expected->end - expected->at) >= sizeof header) {
        memcpy(&header, expected->at, sizeof header);
        expected->at += sizeof header;
        if (header.magic != KVG_MESH_MAGIC || header.byte_count > (uint64_t)(expected->end - expected->at)) {
            return 0;
        }
        expected->bytes = (size_t)header.byte_count;
        expected->at += expected->bytes;
        if (header.kind == MESH_MESSAGE) {
            return 1;
        }
        if (header.kind != MESH_RECORD && !(header.kind == MESH_BEAT && expected->bytes == 0)) {
            return 0;
        }
    }
    return 0;
}

/* Every message that comes is the next of the plain reading. */
static void take_messages(KvComm *comm, Expected *expected)
{
    const void *bytes = NULL;
    size_t      byte_count = 0;
    int         from = -1;

    while (comm->ops->recv(comm->self, &from, &bytes, &byte_count) == KVG_OK && from >= 0) {
        FUZZ_CHECK(from == 1 && next_message(expected) && expected->bytes == byte_count);
        FUZZ_CHECK(memcmp(expected->at - byte_count, bytes, byte_count) == 0);
    }
}

static void take_records(KvComm *comm, size_t record_bytes)
{
    const uint8_t *record;
    int            from = -1;
    volatile uint8_t sum = 0;

    while ((record = comm->ops->take(comm->self, &from)) != NULL) {
        FUZZ_CHECK(from == 1 && (uintptr_t)record % sizeof(uint64_t) == 0);
        for (size_t i = 0; i < record_bytes; i++) { /* as long as records are */
            sum = (uint8_t)(sum + record[i]);
        }
    }
}

static void feed(FuzzInput *input, int fd, KvComm *comm, size_t record_bytes)
{
    Expected expected = { input->at, input->at + input->left, 0 };
    uint8_t  piece = input->left > 0 ? input->at[input->left - 1] : 0; /* how it is cut up */

    while (input->left > 0) {
        size_t  now = 1 + (size_t)piece * piece % 1500;
        ssize_t sent = send(fd, input->at, now < input->left ? now : input->left, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent <= 0) {
            break; /* the mesh has hung up */
        }
        input->at += sent;
        input->left -= (size_t)sent;
        piece = (uint8_t)(piece * 13 + 7);
        if (record_bytes > 0) {
            take_records(comm, record_bytes);
        }
        take_messages(comm, &expected);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzCount  count = fuzz_begin();
    FuzzInput  input = { data, size };
    KvComm     comm;
    KvLiveness liveness;
    Mesh      *mesh = NULL;
    int        ends[2];
    uint8_t    shape = fuzz_u8(&input);
    size_t     record_bytes = (shape & 1) != 0 ? 64 + 2u * (shape >> 4) : 0;

    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    FUZZ_CHECK(kvg_mesh_new(0, 2, &mesh) == KVG_OK);
    mesh->message_max = (shape & 2) != 0 ? MESSAGE_MAX : KVG_MESH_MESSAGE_MAX;
    mesh->heartbeat_ns = (shape & 4) != 0 ? 0 : 1000000000;
    FUZZ_CHECK(kvg_mesh_adopt(mesh, 1, ends[0]) == KVG_OK);
    kvg_mesh_ends(mesh, &comm, &liveness);
    if (record_bytes > 0) {
        FUZZ_CHECK(comm.ops->records_open(comm.self, record_bytes) == KVG_OK);
    }
    feed(&input, ends[1], &comm, record_bytes);
    liveness.ops->poll(liveness.self);
    FUZZ_CHECK((liveness.ops->why(liveness.self, 1)[0] != '\0') == liveness.ops->lost(liveness.self, 1));
    comm.ops->close(comm.self);
    close(ends[1]);
    liveness.ops->close(liveness.self);
    fuzz_end(&count, size, 16, BYTES_MAX);
    return 0;
}

/* A grid of 2 x 2 processes from the installed headers and libkvgrid alone: no MPI is in the process. Argument: "tcp" (a rendezvous, then the socket mesh) or
 * "shm" (shared memory for both). Each worker runs steps with rows of its own heads; the sequence's digest is printed by rank 0. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvgrid/kvgrid.h>

#define RANKS 4

static const char config_text[] = "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_attention_heads\":2,\"num_key_value_heads\":2,\"head_dim\":32,"
                                  "\"num_hidden_layers\":4,\"vocab_size\":100,\"intermediate_size\":64,\"max_position_embeddings\":128}";

static int join(const char *way, int fd, const char *address, int rank, KvgBootstrap *bootstrap)
{
    KvShmOptions        shm = KVG_SHM_OPTIONS_INIT;
    KvRendezvousOptions tcp = KVG_RENDEZVOUS_OPTIONS_INIT;

    if (strcmp(way, "shm") == 0) {
        shm.fd = fd;
        shm.rank = rank;
        shm.ranks = RANKS;
        return kvg_shm_bootstrap_create(&shm, bootstrap) == KVG_OK;
    }
    tcp.address = address;
    tcp.secret = "0123456789abcdef0123456789abcdef";
    tcp.rank = rank;
    tcp.ranks = RANKS;
    if (rank == 0) tcp.listen_fd = fd;
    else close(fd);
    return kvg_rendezvous_create(&tcp, bootstrap) == KVG_OK;
}

/* Rows that depend on layer, head and position alone, whichever rank holds the head. */
static int write_rows(KvgBatch *batch, KvgStep *step, uint32_t il)
{
    static float        k[8 * 64], v[8 * 64];
    KvgRows             rows = KVG_ROWS_INIT;
    const KvPlaneView  *view = kvg_plane_view(batch, il);
    uint32_t            count = kvg_step_rows(step)[0];
    uint64_t            first = kvg_step_first_rows(step)[0];

    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t h = 0; h < view->heads; h++) {
            for (uint32_t e = 0; e < 32; e++) {
                float value = (float)((il * 7 + (view->head_first + h) * 5 + (first + i) * 3 + e) % 19) - 9.0f;

                k[(i * view->heads + h) * 32 + e] = value;
                v[(i * view->heads + h) * 32 + e] = -value;
            }
        }
    }
    rows.k = k;
    rows.v = v;
    return kvg_write_kv(batch, il, &rows, NULL) == KVG_OK;
}

static int run_steps(KvgPlacement *placement, KvgBatch *batch)
{
    uint32_t lo, hi;

    kvg_placement_layers(placement, &lo, &hi);
    for (uint32_t n = 0; n < 10; n++) {
        uint32_t  rows[1] = { 1 + n % 3 };
        KvgCommit commit = KVG_COMMIT_INIT;
        KvgStep  *step = NULL;

        if (kvg_step_begin(batch, rows, &step) != KVG_OK) return 0;
        for (uint32_t il = lo; il < hi; il++) {
            if (!write_rows(batch, step, il)) return 0;
        }
        commit.accept_all = 1;
        if (kvg_step_post(step, &commit) != KVG_OK || kvg_step_wait(step, NULL) != KVG_OK) return 0;
    }
    return 1;
}

static int worker(const char *way, int fd, const char *address, int rank)
{
    KvgBootstrap    bootstrap = KVG_BOOTSTRAP_INIT;
    KvgGridOptions  options = KVG_GRID_OPTIONS_INIT;
    KvgPlaceOptions place = KVG_PLACE_OPTIONS_INIT;
    ModelConfig     config;
    KvgGrid        *grid = NULL;
    KvgPlacement   *placement = NULL;
    KvgBatch       *batch = NULL;
    KvgSequence    *sequence = NULL;
    KvDigest        digest;
    char            hex[33];

    options.tp = options.pp = 2;
    place.max_sequences = 1;
    place.memory_bytes = 4u << 20;
    if (!join(way, fd, address, rank, &bootstrap) || kvg_grid_create(&bootstrap, &options, &grid) != KVG_OK ||
        kvg_model_config_parse_json(config_text, strlen(config_text), "outside", &config) != KVG_OK ||
        kvg_place(grid, &config, &place, &placement) != KVG_OK || kvg_batch_create(placement, 1, &batch) != KVG_OK ||
        kvg_sequence_open(placement, 1, 0, &sequence) != KVG_OK || kvg_batch_set(batch, 0, sequence) != KVG_OK || !run_steps(placement, batch) ||
        kvg_sequence_digest(sequence, &digest) != KVG_OK) {
        fprintf(stderr, "outside_grid: rank %d: %s\n", rank, kvg_last_error());
        return 1;
    }
    kvg_digest_hex(&digest, hex);
    if (rank == 0) printf("2 x 2 over %s: %s\n", way, hex);
    kvg_batch_destroy(batch);
    kvg_placement_destroy(placement);
    kvg_grid_destroy(grid);
    kvg_model_config_free(&config);
    strcmp(way, "shm") == 0 ? kvg_shm_bootstrap_destroy(&bootstrap) : kvg_rendezvous_destroy(&bootstrap);
    fflush(NULL);
    return 0;
}

/* A socket that listens at a free port of loopback: the workers know the address before rank 0 is there. */
static int listen_anywhere(char address[16])
{
    struct sockaddr_in any = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t          bytes = sizeof any;
    int                fd = socket(AF_INET, SOCK_STREAM, 0);

    if (bind(fd, (struct sockaddr *)&any, bytes) != 0 || listen(fd, 16) != 0 || getsockname(fd, (struct sockaddr *)&any, &bytes) != 0) exit(2);
    snprintf(address, 16, ":%u", (unsigned)ntohs(any.sin_port));
    return fd;
}

int main(int argc, char **argv)
{
    char        address[16] = "";
    const char *way = argc > 1 ? argv[1] : "shm";
    int         fd = -1, failed = 0;

    if (strcmp(way, "shm") != 0) fd = listen_anywhere(address);
    else if (kvg_shm_memory(RANKS, &fd) != KVG_OK) return 2;
    for (int rank = 0; rank < RANKS; rank++) {
        pid_t pid = fork();

        if (pid == 0) _exit(worker(way, fd, address, rank));
        if (pid < 0) return 2;
    }
    for (int rank = 0, status; rank < RANKS; rank++) failed |= wait(&status) < 0 || status != 0;
    return failed;
}

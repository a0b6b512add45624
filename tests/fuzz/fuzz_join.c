/* Joining: a rank is lost and a new process takes its place, while what one rank says of itself is changed on its way as the input says: a survivor's words to the
 * newcomer, or the newcomer's to the survivors. All end in time, none breaks or keeps memory, and what the newcomer then holds fits together. */
#include "tests/fuzz/ranks.h"

#include "pp/rebuild_impl.h"

#define CALLS_MAX  16
#define BYTES_MAX  ((uint64_t)64 << 20) /* pieces of rows have buffers of 4 MiB */
#define CAN_GROW   64

static const char kv_model[] =
    "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":32,\"num_hidden_layers\":4,"
    "\"vocab_size\":100,\"intermediate_size\":64,\"max_position_embeddings\":512,\"sliding_window\":40,"
    "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\",\"full_attention\"]}";
static const char latent_model[] =
    "{\"model_type\":\"deepseek_v32\",\"hidden_size\":64,\"num_attention_heads\":2,\"num_key_value_heads\":2,\"kv_lora_rank\":64,\"qk_rope_head_dim\":32,"
    "\"qk_nope_head_dim\":32,\"v_head_dim\":32,\"index_head_dim\":32,\"index_n_heads\":2,\"num_hidden_layers\":4,\"vocab_size\":100,\"intermediate_size\":64,"
    "\"max_position_embeddings\":512}";
static const char pooled_model[] =
    "{\"model_type\":\"glm5_next\",\"text_config\":{\"model_type\":\"glm5_next_text\",\"hidden_size\":64,\"num_attention_heads\":2,"
    "\"num_key_value_heads\":2,\"head_dim\":0,\"kv_lora_rank\":64,\"qk_rope_head_dim\":0,\"qk_nope_head_dim\":32,\"v_head_dim\":32,\"index_head_dim\":16,"
    "\"index_kpool\":4,\"index_kpool_compress\":true,\"num_hidden_layers\":2,\"layer_types\":[\"deepseek_sparse_attention\",\"deepseek_sparse_attention\"],"
    "\"indexer_types\":[\"full\",\"full\"],\"vocab_size\":100,\"intermediate_size\":64,\"max_position_embeddings\":512}}";
static const char *const fuzz_models[] = { kv_model, latent_model, pooled_model };

/* ---- what one rank says */

static struct {
    KvComm    inner;
    KvCommOps ops;
    FuzzInput input;
} wire;

/* A word of an account is what matters: most changes set one, or move it a little. */
static size_t change(uint8_t *bytes, size_t count, uint8_t how)
{
    uint64_t value = fuzz_any(&wire.input), word;
    size_t   at = count >= 8 ? fuzz_u16(&wire.input) % (count / 8) * 8 : 0;

    switch (how % 6) {
    case 0: return count > 0 ? (size_t)value % count : 0;
    case 1: return count + (size_t)value % CAN_GROW;
    case 2: at += value / 8 % 8; bytes[at] ^= (uint8_t)(1u << value % 8); return count > at ? count : at + 1;
    case 3: at += value % 2 * 4; memcpy(bytes + at, &value, 4); return count;
    case 4: memcpy(&word, bytes + at, 8); word += value % 2 != 0 ? value / 2 % 256 : 0 - value / 2 % 256; memcpy(bytes + at, &word, 8); return count;
    default: memcpy(bytes + at, &value, 8); return count;
    }
}

static KvgStatus wire_send(void *self, int peer, const void *bytes, size_t byte_count)
{
    const KvMessageHeader *header = bytes;
    uint8_t               *copy = calloc(1, byte_count + CAN_GROW + 16);
    size_t                 body = byte_count - sizeof *header;
    uint8_t                how = header->kind == KVG_MESSAGE_REBUILD ? fuzz_u8(&wire.input) : 0;

    FUZZ_CHECK(copy != NULL);
    memcpy(copy, bytes, byte_count);
    for (int i = 0; i < how % 4; i++) {
        body = change(copy + sizeof *header, body, (uint8_t)(how / 4 + i));
    }
    KvgStatus status = wire.inner.ops->send(self, peer, copy, sizeof *header + body);
    free(copy);
    return status;
}

static void tap_wire(KvComm *comm, const FuzzInput *input)
{
    wire.inner = *comm;
    wire.input = *input;
    wire.ops = *comm->ops;
    wire.ops.send = wire_send;
    comm->ops = &wire.ops;
}

/* ---- what the ranks have done before */

static void steps(FuzzRanks *r, const int *who, int count, const uint32_t rows[FUZZ_SEQUENCES])
{
    KvgStep *step[FUZZ_RANKS_MAX] = { NULL };
    int      done[FUZZ_RANKS_MAX], left = 0;

    for (int n = 0; n < count; n++) {
        KvgCommit commit = KVG_COMMIT_INIT;
        int       rank = who[n];
        commit.accept_all = 1;
        for (uint32_t i = 0; r->batch[rank] != NULL && i < FUZZ_SEQUENCES; i++) { /* none: it was told that its placement is asleep */
            kvg_batch_set(r->batch[rank], i, r->sequence[rank][i]);
        }
        done[n] = r->batch[rank] == NULL || kvg_step_begin(r->batch[rank], rows, &step[n]) != KVG_OK;
        if (!done[n]) {
            kvg_step_post(step[n], &commit);
        }
        left += !done[n];
    }
    for (int rounds = 0; left > 0; rounds++) {
        FUZZ_CHECK(rounds < FUZZ_ROUNDS_MAX);
        for (int n = 0; n < count; n++) {
            if (!done[n]) {
                KvgStatus status = kvg_step_test(step[n], &done[n], NULL);
                done[n] |= status == KVG_EINDOUBT || status == KVG_EPEER || status == KVG_ELAYOUT;
                left -= done[n];
            }
        }
        kvg_inproc_advance_ns(r->hub, 1000000);
    }
}

static void call(FuzzRanks *r, const int *who, int count, uint8_t what, uint8_t how)
{
    uint32_t place = how % FUZZ_SEQUENCES, rows[FUZZ_SEQUENCES] = { 0 };

    rows[place] = how;
    if (what % 8 < 3) {
        steps(r, who, count, rows);
        return;
    }
    for (int n = 0; n < count; n++) {
        KvgSequence **sequence = &r->sequence[who[n]][place], **other = &r->sequence[who[n]][(place + 1) % FUZZ_SEQUENCES];
        KvgSequenceInfo info = { .size = sizeof info };
        if (*sequence == NULL) {
            kvg_sequence_open(r->placement[who[n]], what / 8u * 4 + place, what, sequence); /* ids that forks have lower and higher ones than */
            continue;
        }
        FUZZ_CHECK(kvg_sequence_info(*sequence, &info) == KVG_OK);
        switch (what % 8) {
        case 3: kvg_sequence_close(*sequence, NULL); *sequence = NULL; break;
        case 4: case 5: if (*other == NULL) kvg_sequence_fork(*sequence, info.rows - info.rows * (how / 3 % 4) / 8, what / 8u * 4 + 3, other); break;
        case 6: kvg_sequence_rewind(*sequence, info.rows - info.rows * (how / 3 % 8) / 16); break;
        default: kvg_sequence_taint(*sequence);
        }
    }
}

/* ---- a loss, and a newcomer */

typedef struct Joining {
    int               victim;
    KvInproc         *hub;
    KvComm            comm[FUZZ_RANKS_MAX];
    KvLiveness        liveness[FUZZ_RANKS_MAX];
    KvgSetup         *setup[FUZZ_RANKS_MAX];
    KvgStatus         result[FUZZ_RANKS_MAX];
    KvgRebuildReport *report[FUZZ_RANKS_MAX];
    KvgJoin           join;
    KvgGrid          *grid; /* the newcomer's */
} Joining;

static void start(FuzzRanks *r, Joining *j, uint32_t tp, uint32_t pp)
{
    int survivors[FUZZ_RANKS_MAX], count = 0;

    for (int rank = 0; rank < r->ranks; rank++) {
        if (rank != j->victim) survivors[count++] = rank;
    }
    for (int rank = 0; rank < r->ranks; rank++) {
        if (rank == j->victim) {
            KvgGridOptions options = KVG_GRID_OPTIONS_INIT;
            KvgPolicy      policy = fuzz_policy();
            options.tp = tp;
            options.pp = pp;
            options.policy = &policy;
            options.comm = &j->comm[rank];
            options.liveness = &j->liveness[rank];
            FUZZ_CHECK(kvg_grid_join_start(rank, r->ranks, &options, &j->join, 1, &j->grid, &j->report[rank], &j->setup[rank]) == KVG_OK);
        } else {
            KvgRebuildOptions options = KVG_REBUILD_OPTIONS_INIT;
            options.comm = &j->comm[rank];
            options.liveness = &j->liveness[rank];
            FUZZ_CHECK(kvg_grid_rebuild_start(r->grid[rank], survivors, count, &options, &j->report[rank], &j->setup[rank]) == KVG_OK);
        }
    }
}

static void finish(FuzzRanks *r, Joining *j)
{
    int left = r->ranks, done[FUZZ_RANKS_MAX] = { 0 };

    for (int rounds = 0; left > 0; rounds++) {
        FUZZ_CHECK(rounds < FUZZ_ROUNDS_MAX);
        for (int rank = 0; rank < r->ranks; rank++) {
            if (!done[rank]) {
                j->result[rank] = kvg_setup_test(j->setup[rank], &done[rank]);
                FUZZ_CHECK(!done[rank] || j->result[rank] == KVG_OK || kvg_last_error()[0] != '\0');
                left -= done[rank];
            }
        }
        kvg_inproc_advance_ns(j->hub, 1000000);
        kvg_inproc_advance_ns(r->hub, 1000000);
    }
    for (int rank = 0; rank < r->ranks; rank++) {
        kvg_setup_free(j->setup[rank]);
    }
}

/* Handles as the report of each has them: a survivor's are those it had, or closed. */
static void take_handles(FuzzRanks *r, Joining *j, int rank, const uint64_t id[FUZZ_SEQUENCES])
{
    for (int i = 0; i < FUZZ_SEQUENCES; i++) {
        r->sequence[rank][i] = NULL;
        for (uint32_t n = 0; id[i] != UINT64_MAX && n < j->report[rank]->count; n++) {
            if (j->report[rank]->sequences[n].id == id[i]) r->sequence[rank][i] = j->report[rank]->sequences[n].sequence;
        }
    }
}

/* The lost rank's objects go; the newcomer stands in its place. Sequences that only a changed word named are closed. */
static void replace(FuzzRanks *r, Joining *j)
{
    int victim = j->victim;

    kvg_batch_destroy(r->batch[victim]);
    kvg_placement_destroy(r->placement[victim]);
    kvg_grid_destroy(r->grid[victim]);
    r->batch[victim] = NULL;
    r->grid[victim] = j->grid;
    r->placement[victim] = j->join.placement;
    if (j->grid != NULL) {
        FUZZ_CHECK(kvg_batch_create(r->placement[victim], FUZZ_SEQUENCES, &r->batch[victim]) == KVG_OK || kvg_placement_asleep(r->placement[victim]));
        FUZZ_CHECK(kvg_store_check(r->placement[victim]->store) == KVG_OK);
    }
}

static void close_strangers(FuzzRanks *r, Joining *j)
{
    KvgRebuildReport *report = j->report[j->victim];

    for (uint32_t n = 0; report != NULL && n < report->count; n++) {
        int known = report->sequences[n].sequence == NULL;
        for (int i = 0; i < FUZZ_SEQUENCES; i++) known |= r->sequence[j->victim][i] == report->sequences[n].sequence;
        if (!known) kvg_sequence_close(report->sequences[n].sequence, NULL);
    }
}

static void join_in(FuzzRanks *r, Joining *j, const ModelConfig *config, const KvgPlaceOptions *options, uint32_t tp, uint32_t pp, int speaker, const FuzzInput *input)
{
    uint64_t id[FUZZ_SEQUENCES];

    for (int i = 0; i < FUZZ_SEQUENCES; i++) {
        const KvgSequence *one = r->sequence[j->victim][i];
        id[i] = one != NULL ? one->id : UINT64_MAX;
    }
    kvg_inproc_kill(r->hub, j->victim);
    FUZZ_CHECK(kvg_inproc_create(r->ranks, &j->hub) == KVG_OK);
    kvg_inproc_advance_ns(j->hub, kvg_inproc_now_ns(r->hub));
    for (int rank = 0; rank < r->ranks; rank++) {
        FUZZ_CHECK(kvg_inproc_attach(j->hub, rank, &j->comm[rank], &j->liveness[rank]) == KVG_OK);
    }
    tap_wire(&j->comm[speaker], input);
    j->join = (KvgJoin){ config, options, NULL };
    start(r, j, tp, pp);
    finish(r, j);
    replace(r, j);
    FUZZ_CHECK((j->result[j->victim] == KVG_OK) == (j->grid != NULL));
    for (int rank = 0; rank < r->ranks; rank++) {
        if (j->result[rank] == KVG_OK) {
            take_handles(r, j, rank, id);
        } else if (rank == j->victim) {
            memset(r->sequence[rank], 0, sizeof r->sequence[rank]);
        }
    }
    close_strangers(r, j);
    for (int rank = 0; rank < r->ranks; rank++) kvg_rebuild_report_free(j->report[rank]);
}

/* Where all say that it was rebuilt they go on, whatever one was made to believe. */
static void go_on(FuzzRanks *r, Joining *j)
{
    KvInproc *old = r->hub;
    int       who[FUZZ_RANKS_MAX] = { 0, 1, 2, 3 };

    for (int rank = 0; rank < r->ranks; rank++) {
        if (j->result[rank] != KVG_OK) return;
    }
    r->hub = j->hub;
    for (uint8_t i = 0; i < 8; i++) {
        call(r, who, r->ranks, (uint8_t)(i % 2 == 0 ? 0 : 3 + i), (uint8_t)(40 * i + i % 3));
    }
    r->hub = old;
}

static void play(const ModelConfig *config, uint8_t shape, FuzzInput *input)
{
    KvgPlaceOptions options = fuzz_place_options();
    uint32_t        tp = 2, pp = shape & 1 ? 2 : 1;
    Joining         j = { .victim = (int)(shape >> 1) % (int)(tp * pp) };
    int             who[FUZZ_RANKS_MAX] = { 0, 1, 2, 3 }, speaker;
    FuzzRanks       r;
    uint8_t         calls = fuzz_u8(input) % CALLS_MAX;

    options.memory_bytes = 2 << 20;
    options.layout = shape & 8 ? KVG_LAYOUT_FLAT : KVG_LAYOUT_POOL;
    options.prefill_chunk_max = 256;
    speaker = shape & 16 ? j.victim : (j.victim + 1) % (int)(tp * pp);
    ranks_connect(&r, tp, pp);
    ranks_place_model(&r, config, &options);
    for (int i = 0; i < calls && r.placement[0] != NULL; i++) {
        uint8_t what = fuzz_u8(input), how = fuzz_u8(input);
        call(&r, who, r.ranks, what, how);
    }
    FUZZ_CHECK(r.placement[0] != NULL);
    join_in(&r, &j, config, &options, tp, pp, speaker, input);
    go_on(&r, &j);
    ranks_close(&r);
    kvg_inproc_destroy(j.hub);
}

/* The first byte says which model and grid, then what was done before; the rest how the wire changes what is said. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzCount   count = fuzz_begin();
    FuzzInput   input = { data, size };
    uint8_t     shape = fuzz_u8(&input);
    const char *text = fuzz_models[shape / 32 % 3];
    ModelConfig config;

    FUZZ_CHECK(kvg_model_config_parse_json(text, strlen(text), "fuzz", &config) == KVG_OK);
    play(&config, shape, &input);
    kvg_model_config_free(&config);
    fuzz_end(&count, size, 64, BYTES_MAX);
    return 0;
}

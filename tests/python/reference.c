/* What tests/python writes, written by C on one rank: prints the digests of sequences 1 and 2, a line each.
 *   reference CONFIG
 * Steps: 70 rows; 1 row, three times; 4 rows of which 2 are kept; 3 rows refused; a fork of 66 rows; 5 and 2 rows of both in one step. */
#include <kvgrid/kvgrid.h>
#include <stdio.h>
#include <stdlib.h>

#define TRY(call) do { if ((call) != KVG_OK) { fprintf(stderr, "reference: %s\n", kvg_last_error()); exit(1); } } while (0)
#define ROWS_MAX 80

typedef struct Engine {
    KvgPlacement *placement;
    KvgBatch     *batch;
    uint64_t      ids[2];
} Engine;

/* bf16 bits of one element; rows.py has the same formula. */
static uint16_t element(uint64_t id, uint32_t layer, uint32_t plane, uint32_t head, uint64_t row, uint32_t dim)
{
    return (uint16_t)(0x3f80 + ((row * 131 + layer * 31 + plane * 17 + head * 7 + dim * 3 + id * 13) & 0x3ff));
}

static void fill(const Engine *engine, const KvgStep *step, const KvPlaneView *view, uint32_t plane, uint32_t dims, uint16_t *out)
{
    const uint32_t *rows = kvg_step_rows(step);
    const uint64_t *first = kvg_step_first_rows(step);

    for (uint32_t slot = 0; slot < 2; slot++)
        for (uint32_t row = 0; row < rows[slot]; row++)
            for (uint32_t head = 0; head < view->heads; head++)
                for (uint32_t dim = 0; dim < dims; dim++)
                    *out++ = element(engine->ids[slot], view->layer, plane, view->head_first + head, first[slot] + row, dim);
}

static KvgStatus step_of(const Engine *engine, const uint32_t rows[2], const uint32_t *accepted, KvgStatus refuse)
{
    static uint16_t k[ROWS_MAX * 4096], v[ROWS_MAX * 4096];
    KvgCommit       commit = KVG_COMMIT_INIT;
    KvgStep        *step;
    uint32_t        lo, hi;

    TRY(kvg_step_begin(engine->batch, rows, &step));
    kvg_placement_layers(engine->placement, &lo, &hi);
    for (uint32_t il = lo; il < hi; il++) {
        const KvPlaneView *view = kvg_plane_view(engine->batch, il);
        KvgRows            in = KVG_ROWS_INIT;

        fill(engine, step, view, KVG_PLANE_K, view->k.head_dim, k);
        fill(engine, step, view, KVG_PLANE_V, view->v.head_dim, v);
        in.k = k;
        in.v = v;
        in.dtype = KVG_BF16;
        TRY(kvg_write_kv(engine->batch, il, &in, NULL));
    }
    commit.accepted = accepted;
    commit.accept_all = accepted == NULL;
    commit.refuse = refuse;
    TRY(kvg_step_post(step, &commit));
    return kvg_step_wait(step, NULL);
}

static void print_digest(KvgSequence *sequence)
{
    KvDigest digest;
    char     hex[33];

    TRY(kvg_sequence_digest(sequence, &digest));
    kvg_digest_hex(&digest, hex);
    puts(hex);
}

int main(int argc, char **argv)
{
    KvgBootstrap    bootstrap = KVG_BOOTSTRAP_INIT;
    KvgGridOptions  on = KVG_GRID_OPTIONS_INIT;
    KvgPlaceOptions as = KVG_PLACE_OPTIONS_INIT;
    ModelConfig     config;
    KvgGrid        *grid;
    KvgSequence    *sequence, *fork;
    Engine          engine = { .ids = { 1, 2 } };

    TRY(kvg_model_config_load(argc > 1 ? argv[1] : "config.json", &config));
    TRY(kvg_grid_create(&bootstrap, &on, &grid));
    as.format_k = as.format_v = KVG_BF16;
    as.memory_bytes = 64u << 20;
    as.max_sequences = 4;
    TRY(kvg_place(grid, &config, &as, &engine.placement));
    TRY(kvg_batch_create(engine.placement, 2, &engine.batch));
    TRY(kvg_sequence_open(engine.placement, 1, 0, &sequence));
    TRY(kvg_batch_set(engine.batch, 0, sequence));

    TRY(step_of(&engine, (uint32_t[2]){ 70, 0 }, NULL, KVG_OK));
    for (int turn = 0; turn < 3; turn++) TRY(step_of(&engine, (uint32_t[2]){ 1, 0 }, NULL, KVG_OK));
    TRY(step_of(&engine, (uint32_t[2]){ 4, 0 }, (uint32_t[2]){ 2, 0 }, KVG_OK));
    if (step_of(&engine, (uint32_t[2]){ 3, 0 }, NULL, KVG_EIO) != KVG_EREFUSED) return 1;
    TRY(kvg_sequence_fork(sequence, 66, 2, &fork));
    TRY(kvg_batch_set(engine.batch, 1, fork));
    TRY(step_of(&engine, (uint32_t[2]){ 5, 2 }, NULL, KVG_OK));
    print_digest(sequence);
    print_digest(fork);

    kvg_batch_destroy(engine.batch);
    kvg_placement_destroy(engine.placement);
    kvg_grid_destroy(grid);
    kvg_model_config_free(&config);
    return 0;
}

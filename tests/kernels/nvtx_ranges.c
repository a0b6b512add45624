/* A tool that listens to NVTX hears the library's ranges: a domain, names, values, pairs. Needs no GPU.
 *   nvtx_ranges TOOL     exit 0 passed */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvgrid/kvgrid.h>
#include <kvgrid/kvgrid_cuda.h>

#include "tests/kernels/nvtx_heard.h"

#define REQUIRE(condition)                                                                \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: %s; %s\n", __FILE__, __LINE__, #condition, kvg_last_error()); \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

static const char config[] = "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_attention_heads\":2,\"num_key_value_heads\":2,\"head_dim\":32,"
                             "\"num_hidden_layers\":1,\"vocab_size\":100,\"intermediate_size\":64,\"max_position_embeddings\":256}";

static void one_empty_step(void)
{
    KvgGridOptions  grid_options = KVG_GRID_OPTIONS_INIT;
    KvgPlaceOptions options = KVG_PLACE_OPTIONS_INIT;
    KvgCommit       commit = KVG_COMMIT_INIT;
    uint32_t        rows = 0;
    ModelConfig     model;
    KvInproc       *hub = NULL;
    KvgGrid        *grid = NULL;
    KvgPlacement   *placement = NULL;
    KvgBatch       *batch = NULL;
    KvgStep        *step = NULL;

    options.memory_bytes = 1 << 20;
    options.max_sequences = 1;
    grid_options.tp = grid_options.pp = 1;
    commit.accept_all = 1;
    REQUIRE(kvg_inproc_create(1, &hub) == KVG_OK);
    REQUIRE(kvg_grid_create_inproc(hub, 1, &grid_options, &grid) == KVG_OK);
    REQUIRE(kvg_model_config_parse_json(config, strlen(config), "test", &model) == KVG_OK);
    REQUIRE(kvg_place(grid, &model, &options, &placement) == KVG_OK);
    REQUIRE(kvg_batch_create(placement, 1, &batch) == KVG_OK);
    REQUIRE(kvg_step_begin(batch, &rows, &step) == KVG_OK);
    REQUIRE(kvg_step_post(step, &commit) == KVG_OK);
    REQUIRE(kvg_step_wait(step, NULL) == KVG_OK);
    kvg_batch_destroy(batch);
    kvg_placement_destroy(placement);
    kvg_grid_destroy(grid);
    kvg_inproc_destroy(hub);
    kvg_model_config_free(&model);
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 2 && setenv("NVTX_INJECTION64_PATH", argv[1], 1) == 0);
    void      *tool = dlopen(argv[1], RTLD_NOW); /* as NVTX will find it */
    NvtxHeard *heard = tool != NULL ? dlsym(tool, "nvtx_heard") : NULL;
    REQUIRE(heard != NULL);
    one_empty_step();
    REQUIRE(heard->pushed == 0); /* nobody has asked for ranges */
    kvg_tracer_set(kvg_cuda_tracer());
    one_empty_step();
    kvg_tracer_set(NULL);
    REQUIRE(strcmp(heard->domain, "kvgrid") == 0);
    REQUIRE(heard->pushed == 4 && heard->popped == 4 && heard->foreign == 0); /* plan, post, decide, publish */
    REQUIRE(strcmp(heard->last, "publish") == 0 && heard->payload == 1);
    printf("%d ranges of the domain %s\n", heard->pushed, heard->domain);
    return 0;
}

/* One rank, one model, from the installed umbrella header alone. Prints the version and a figure that README.md also shows. */
#include <stdio.h>
#include <string.h>

#include <kvgrid/kvgrid.h>

static const char config_text[] = "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_attention_heads\":2,\"num_key_value_heads\":2,"
                                  "\"num_hidden_layers\":3,\"vocab_size\":100,\"intermediate_size\":64,\"max_position_embeddings\":128}";

int main(void)
{
    ModelConfig     config;
    KvgGrid        *grid = NULL;
    KvgPlacement   *placement = NULL;
    KvgBootstrap    bootstrap = KVG_BOOTSTRAP_INIT;
    KvgGridOptions  grid_options = KVG_GRID_OPTIONS_INIT;
    KvgPlaceOptions options = KVG_PLACE_OPTIONS_INIT;
    options.memory_bytes = 4u << 20;
    options.max_sequences = 2;

    if (kvg_model_config_parse_json(config_text, strlen(config_text), "outside", &config) != KVG_OK ||
        kvg_grid_create(&bootstrap, &grid_options, &grid) != KVG_OK || kvg_place(grid, &config, &options, &placement) != KVG_OK) {
        fprintf(stderr, "outside: %s\n", kvg_last_error());
        return 1;
    }
    printf("kvgrid %s: %llu bytes a token\n", kvg_version(NULL, NULL, NULL),
           (unsigned long long)kvg_placement_plan(placement)->ranks[0].bytes_per_token);
    kvg_placement_destroy(placement);
    kvg_grid_destroy(grid);
    kvg_model_config_free(&config);
    return 0;
}

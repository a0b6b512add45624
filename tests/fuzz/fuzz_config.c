/* Config: any bytes as a model's config.json. */
#include "tests/fuzz/use_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzCount   count = fuzz_begin();
    ModelConfig config = { .context = 0 };

    fuzz_use_config(kvg_model_config_parse_json((const char *)data, size, "fuzz", &config), &config);
    fuzz_end(&count, size, 2, FUZZ_CONFIG_BYTES);
    return 0;
}

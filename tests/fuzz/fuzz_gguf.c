/* GGUF: any bytes as the head of a model file. An entry of the index is 48 bytes, the least that it can be made from 14. */
#include "tests/fuzz/use_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzCount   count = fuzz_begin();
    ModelConfig config = { .context = 0 };

    fuzz_use_config(kvg_model_config_parse_gguf(data, size, "fuzz", &config), &config);
    fuzz_end(&count, size, 4, FUZZ_CONFIG_BYTES);
    return 0;
}

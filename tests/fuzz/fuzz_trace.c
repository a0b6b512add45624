/* Trace: any bytes as a CSV of requests, then fitted on a small grid. A line, which may be one byte, is a request of 8. */
#include "launch/command/plan_trace.h"
#include "tests/fuzz/fuzz.h"

#define PLAN_BYTES ((uint64_t)64 << 10)

static const char model[] = "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_attention_heads\":2,\"head_dim\":32,\"num_hidden_layers\":2,"
                            "\"vocab_size\":100,\"intermediate_size\":64,\"max_position_embeddings\":4096}";

static void fit(const Trace *trace)
{
    const uint64_t    bytes = 1 << 20;
    KvGridPlanOptions options = KVG_GRID_PLAN_OPTIONS_INIT;
    ModelConfig       config;
    KvGridPlan        plan;
    TraceFit          found;

    kvg_policy_default(&options.sizing.policy);
    options.state_bytes = &bytes;
    FUZZ_CHECK(kvg_model_config_parse_json(model, sizeof model - 1, "fuzz", &config) == KVG_OK);
    FUZZ_CHECK(kvg_grid_plan(&config, &options, &plan) == KVG_OK);
    FUZZ_CHECK(kvg_plan_trace(&plan, trace, &found) == KVG_OK);
    FUZZ_CHECK(found.requests == trace->count && found.past_context + found.fit <= found.requests);
    FUZZ_CHECK(found.content_bytes <= found.booked_bytes && found.booked_bytes <= bytes);
    kvg_grid_plan_free(&plan);
    kvg_model_config_free(&config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzCount count = fuzz_begin();
    Trace     trace = { NULL, 0 };
    KvgStatus status = kvg_trace_parse((const char *)data, size, "fuzz", &trace);

    if (status == KVG_OK) {
        FUZZ_CHECK(trace.count > 0 && trace.count < size);
        for (size_t i = 0; i < trace.count; i++) {
            FUZZ_CHECK((uint64_t)trace.requests[i].context + trace.requests[i].generated <= INT32_MAX);
        }
        fit(&trace);
        kvg_trace_free(&trace);
    } else {
        fuzz_check_failure(status);
        FUZZ_CHECK(trace.requests == NULL);
    }
    fuzz_end(&count, size, 8, PLAN_BYTES);
    return 0;
}

/* `kvgrid plan`, run as a user runs it. */
#include "tests/launch/command_run.h"

#include <jansson.h>
#include <sys/stat.h>

/* stdout is one object and nothing else. */
static json_t *read_json(void)
{
    json_error_t error;
    json_t      *object = json_loads(out, JSON_REJECT_DUPLICATES, &error);

    ck_assert_msg(object != NULL, "%s in %s", error.text, out);
    ck_assert(json_is_object(object));
    return object;
}

static json_t *plan_json(const char *model, const char *rest)
{
    char line[1024];

    snprintf(line, sizeof line, "%s --json", rest);
    ck_assert_msg(run_model(model, line) == 0, "%s %s: %s", model, rest, err);
    return read_json();
}

static json_int_t number(const json_t *object, const char *key)
{
    ck_assert_msg(json_is_integer(json_object_get(object, key)), "%s is no number", key);
    return json_integer_value(json_object_get(object, key));
}

static int is_null(const json_t *object, const char *key)
{
    ck_assert_msg(json_object_get(object, key) != NULL, "%s is missing", key);
    return json_is_null(json_object_get(object, key));
}

static void check_model_refused(const char *model, const char *rest, const char *sentence)
{
    char line[2048];

    snprintf(line, sizeof line, "plan --model %s/models/%s.json %s", KVG_TEST_DATA, model, rest);
    check_refused(line, 2, sentence);
}

/* ---- JSON */

START_TEST(test_plan_json_has_every_key_with_and_without_memory)
{
    static const char *const keys[] = { "bytes_per_token", "ring_bytes_per_token", "ring_row_cap", "fixed_bytes", "mtp_bytes_per_token" };
    static const char *const rank_keys[] = { "rank", "stage", "tp_rank", "bytes_per_token", "ring_bytes_per_token", "fixed_bytes",
                                             "duplicate_bytes_per_token" };
    json_t *object = plan_json("llama-3.1-8b", "--tp 2 --pp 2"), *rank;
    size_t  index;

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        (void)number(object, keys[i]);
    }
    ck_assert_int_eq(number(object, "bytes_per_token"), 59392);
    ck_assert_int_eq(number(object, "fixed_bytes"), 640);
    ck_assert_str_eq(json_string_value(json_object_get(json_object_get(object, "formats"), "k")), "q8_0");
    ck_assert_str_eq(json_string_value(json_object_get(json_object_get(object, "formats"), "v")), "q5_1");
    ck_assert_ptr_null(json_object_get(object, "formats_by_class"));
    ck_assert_uint_eq(json_array_size(json_object_get(object, "fence")), 3);
    ck_assert_uint_eq(json_array_size(json_object_get(object, "ranks")), 4);
    json_array_foreach(json_object_get(object, "ranks"), index, rank) {
        json_t *layers = json_object_get(rank, "layers");

        for (size_t i = 0; i < sizeof rank_keys / sizeof rank_keys[0]; i++) {
            (void)number(rank, rank_keys[i]);
        }
        ck_assert_int_eq(number(rank, "rank"), (json_int_t)index);
        ck_assert_int_eq(number(rank, "stage"), (json_int_t)index / 2); /* B34: rank 3 is stage 1, tp rank 1 */
        ck_assert_int_eq(number(rank, "tp_rank"), (json_int_t)index % 2);
        ck_assert_int_eq(json_integer_value(json_array_get(layers, 0)), index < 2 ? 0 : 16);
        ck_assert_int_eq(json_integer_value(json_array_get(layers, 1)), index < 2 ? 16 : 32);
    }
    ck_assert(is_null(object, "max_context") && is_null(object, "max_sequences") && is_null(object, "limiting_rank"));
    json_decref(object);

    object = plan_json("llama-3.1-8b", "--tp 2 --pp 2 --device-memory 24GB");
    ck_assert_int_eq(number(object, "max_context"), 131072);
    ck_assert_int_gt(number(object, "max_sequences"), 0);
    ck_assert_int_eq(number(object, "limiting_rank"), 0);
    json_decref(object);
}
END_TEST

/* The layers of every rank less what others hold too are the trunk, whole. */
static void check_sums(const char *model, const char *grid)
{
    json_t    *object, *rank;
    json_int_t own = 0;
    size_t     index;
    char       rest[256];

    snprintf(rest, sizeof rest, "%s --format-k bf16 --format-v bf16 --json", grid);
    if (run_model(model, rest) != 0) {
        ck_assert_str_eq(out, "");
        return;
    }
    object = read_json();
    json_array_foreach(json_object_get(object, "ranks"), index, rank) {
        own += number(rank, "bytes_per_token") - number(rank, "duplicate_bytes_per_token");
    }
    ck_assert_msg(own == number(object, "bytes_per_token"), "%s %s: %lld", model, grid, (long long)own);
    json_decref(object);
}

START_TEST(test_plan_ranks_less_duplicates_are_the_trunk_for_all_models)
{
    static const char *const grids[] = { "--tp 1 --pp 1", "--tp 2 --pp 2", "--tp 16 --pp 1", "--tp 4 --pp 3" };
    DIR                     *models = opendir(KVG_TEST_DATA "/models");
    int                      count = 0;

    ck_assert_ptr_nonnull(models);
    for (struct dirent *entry; (entry = readdir(models)) != NULL;) {
        char *end = strstr(entry->d_name, ".json");

        if (end == NULL) {
            continue;
        }
        *end = '\0';
        for (size_t g = 0; g < sizeof grids / sizeof grids[0]; g++) {
            check_sums(entry->d_name, grids[g]);
        }
        count++;
    }
    closedir(models);
    ck_assert_int_ge(count, 30);
}
END_TEST

START_TEST(test_plan_known_bytes_of_real_models)
{
    static const struct { const char *model, *rest; json_int_t token, ring, cap, fixed, mtp; } cases[] = {
        { "llama-3.3-70b", "", 148480, 0, 0, 1600, 0 },
        { "gemma-3-27b", "", 253952, 0, 0, 1240, 0 },
        { "gemma-3-27b", "--format-k q8_0 --format-v q5_1 --ring on", 230144, 52 * 3712, 5663, 1240, 0 },
        { "gemma-3-27b", "--format-k bf16 --format-v bf16 --ring on", 507904, 507904 - 81920, 5663, 1240, 0 },
        { "gemma-4-e4b", "", 28672, 0, 0, 480, 0 },
        { "gpt-oss-120b", "--format-k bf16 --format-v bf16 --ring on", 73728, 36864, 4767, 720, 0 },
        { "kimi-linear-48b-a3b", "--format-latent bf16", 8064, 0, 0, 2 * 44892160 + 7 * 12, 0 },
        { "glm-5.3-flash", "", 23936, 0, 0, 57671680 + 2 * 152633344 + 11 * 12, -1 },
        { "deepseek-v3.2", "--format-latent bf16", 70272 + 15616, 0, 0, 61 * 12, -1 },
        { "glm-4.5", "--format-k bf16 --format-v bf16", 376832, 0, 0, 1840, 4096 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *object = plan_json(cases[i].model, cases[i].rest);

        ck_assert_msg(number(object, "bytes_per_token") == cases[i].token, "case %zu", i);
        ck_assert_msg(number(object, "ring_bytes_per_token") == cases[i].ring, "case %zu", i);
        ck_assert_msg(number(object, "ring_row_cap") == cases[i].cap, "case %zu", i);
        ck_assert_msg(number(object, "fixed_bytes") == cases[i].fixed, "case %zu: %lld", i, (long long)number(object, "fixed_bytes"));
        ck_assert_msg(cases[i].mtp < 0 || number(object, "mtp_bytes_per_token") == cases[i].mtp, "case %zu", i);
        json_decref(object);
    }
}
END_TEST

START_TEST(test_plan_formats_that_differ_by_class_are_listed_by_class)
{
    json_t *object, *classes;

    ck_assert_int_eq(setenv("KVGRID_GEMMA_GKV", "0", 1), 0);
    object = plan_json("gemma-3-27b", "");
    ck_assert_int_eq(unsetenv("KVGRID_GEMMA_GKV"), 0);
    ck_assert(is_null(object, "formats"));
    classes = json_object_get(object, "formats_by_class");
    ck_assert_uint_eq(json_object_size(classes), 2);
    ck_assert_str_eq(json_string_value(json_object_get(json_object_get(classes, "full"), "k")), "q8_0");
    ck_assert_str_eq(json_string_value(json_object_get(json_object_get(classes, "window 1024"), "v")), "fp8");
    json_decref(object);
}
END_TEST

START_TEST(test_plan_that_holds_nothing_says_zero_and_why)
{
    json_t *object = plan_json("llama-3.3-70b", "--device-memory 24GB --tp 2");

    ck_assert_int_eq(number(object, "max_context"), 0);
    ck_assert_int_eq(number(object, "max_sequences"), 0);
    ck_assert_int_eq(number(object, "limiting_rank"), 0);
    ck_assert_ptr_nonnull(strstr(err, "nothing fits: stage 0 (rank 0) of llama-3.3-70b needs 70.6 GB (70552387584 bytes) for weights and its device has "
                                      "24.0 GB (24000000000): use more ranks"));
    json_decref(object);
    object = plan_json("llama-3.3-70b", "--device-memory 24GB --tp 2 --weights-bytes 1GB --reserve 24GB"); /* the reserve leaves none */
    ck_assert_int_eq(number(object, "max_sequences"), 0);
    ck_assert_ptr_nonnull(strstr(err, "nothing fits: not one unit of 64 rows is left on rank 0, where weights take 500 MB (499999979 bytes) and the reserve "
                                      "24.0 GB (24000000000) of the device's 24.0 GB (24000000000): lower --reserve"));
    json_decref(object);
    object = plan_json("llama-3.3-70b", "--device-memory 24GB --tp 2 --weights-bytes 10GB");
    ck_assert_int_eq(number(object, "max_context"), 131072);
    ck_assert_int_eq(number(object, "max_sequences"), (24000000000 - 5000000000) / (131072ll * 74240));
    json_decref(object);
    object = plan_json("llama-3.3-70b", "--device-memory 10GB --weights-bytes 1GB"); /* T does not fit, less of it does */
    ck_assert_int_eq(number(object, "max_sequences"), 0);
    ck_assert_int_eq(number(object, "max_context"), (10000000000 - 1000000000 - 80) / (148480 * 64) * 64);
    json_decref(object);
}
END_TEST

START_TEST(test_plan_fence_takes_cuts_or_the_whole_of_it)
{
    static const char *const fences[] = { "--fence 21", "--fence 0,21,42" };

    for (size_t i = 0; i < 2; i++) {
        char    rest[64];
        json_t *object, *fence;

        snprintf(rest, sizeof rest, "--pp 2 %s", fences[i]);
        object = plan_json("gemma-4-e4b", rest);
        fence = json_object_get(object, "fence");
        ck_assert_int_eq(json_integer_value(json_array_get(fence, 1)), 21);
        ck_assert_int_eq(json_integer_value(json_array_get(fence, 2)), 42);
        json_decref(object);
    }
    check_model_refused("gemma-4-e4b", "--pp 2 --fence 23", "between a layer that shares");
    check_model_refused("gemma-4-e4b", "--pp 2 --fence 11,22", "2 stages have 1 cuts");
    check_model_refused("gemma-4-e4b", "--pp 2 --fence x", "not a list of numbers");
    check_model_refused("gemma-4-e4b", "--pp 2 --fence 42", "fence");
    check_model_refused("gemma-4-e4b", "--pp 4 --fence 11,22,32", "between a layer that shares");
}
END_TEST

START_TEST(test_plan_mtp_blocks_ride_on_the_last_stage)
{
    json_t    *object = plan_json("glm-4.5", "--pp 2 --format-k bf16 --format-v bf16 --mtp");
    json_t    *last = json_array_get(json_object_get(object, "ranks"), 1);
    json_int_t hi = json_integer_value(json_array_get(json_object_get(last, "layers"), 1));

    ck_assert_int_eq(number(object, "bytes_per_token"), 376832);
    ck_assert_int_eq(hi, 93);
    ck_assert_int_eq(json_integer_value(json_array_get(json_object_get(object, "fence"), 2)), 92);
    json_decref(object);
}
END_TEST

/* ---- grids, traces, picture, table */

START_TEST(test_plan_gpus_lists_the_grids_that_fit_best_first)
{
    json_t    *object = plan_json("llama-3.1-8b", "--gpus 24 --device-memory 24GB"), *grid;
    json_int_t before = INT64_MAX;
    size_t     index;

    ck_assert_uint_eq(json_array_size(json_object_get(object, "grids")) + json_array_size(json_object_get(object, "left_out")), 8);
    ck_assert_uint_ge(json_array_size(json_object_get(object, "grids")), 4); /* tp 1, 2, 4, 8; 3, 6, 12, 24 do not fall */
    json_array_foreach(json_object_get(object, "grids"), index, grid) {
        ck_assert_int_eq(number(grid, "tp") * number(grid, "pp"), 24);
        ck_assert_int_le(number(grid, "max_sequences"), before);
        before = number(grid, "max_sequences");
        ck_assert_int_ne(number(grid, "tp"), 3);
    }
    ck_assert_int_eq(number(object, "tp"), number(json_array_get(json_object_get(object, "grids"), 0), "tp"));
    ck_assert_int_eq(number(object, "max_sequences"), number(json_array_get(json_object_get(object, "grids"), 0), "max_sequences"));
    json_decref(object);
}
END_TEST

START_TEST(test_plan_gpus_and_one_side_give_the_other)
{
    static const struct { const char *rest; int tp, pp; } cases[] = {
        { "--gpus 8 --tp 2", 2, 4 }, { "--gpus 8 --pp 2", 4, 2 }, { "--gpus 8 --tp 8", 8, 1 }, { "--gpus 8 --tp 4 --pp 2", 4, 2 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *object = plan_json("llama-3.1-8b", cases[i].rest); /* the details are of the grid asked for */

        ck_assert_int_eq(number(object, "tp"), cases[i].tp);
        ck_assert_int_eq(number(object, "pp"), cases[i].pp);
        ck_assert_uint_eq(json_array_size(json_object_get(object, "grids")), 4);
        json_decref(object);
    }
    check_model_refused("llama-3.1-8b", "--gpus 8 --tp 2 --pp 1", "--tp 2 times --pp 1 is a grid of 2 ranks, and --gpus says 8");
    check_model_refused("llama-3.1-8b", "--gpus 8 --tp 3", "--gpus 8 is no multiple of --tp 3");
    check_model_refused("llama-3.1-8b", "--gpus 8 --pp 3", "--gpus 8 is no multiple of --pp 3");
    check_model_refused("llama-3.1-8b", "--gpus 8 --tp 16", "--gpus 8 is no multiple of --tp 16");
    check_model_refused("llama-3.1-8b", "--gpus 129", "falls on no grid of 129 ranks");
}
END_TEST

START_TEST(test_plan_gpus_that_hold_nothing_are_an_answer_too)
{
    json_t *object = plan_json("llama-3.3-70b", "--gpus 4 --device-memory 24GB");

    ck_assert_uint_eq(json_array_size(json_object_get(object, "grids")), 0);
    ck_assert_uint_eq(json_array_size(json_object_get(object, "left_out")), 3);
    ck_assert_int_eq(number(object, "tp") * number(object, "pp"), 4);
    ck_assert_int_eq(number(object, "max_context"), 0);
    ck_assert_int_eq(number(object, "max_sequences"), 0);
    ck_assert_ptr_nonnull(strstr(err, "nothing fits on any grid of 4 ranks"));
    ck_assert_ptr_nonnull(strstr(err, "--weights-bytes"));
    json_decref(object);
    ck_assert_int_eq(run_model("llama-3.1-8b", "--gpus 2 --device-memory 1GB"), 0);
    ck_assert_ptr_nonnull(strstr(out, "nothing fits"));
}
END_TEST

START_TEST(test_plan_trace_counts_requests_that_fit_together)
{
    char       rest[512];
    json_t    *object, *trace;
    json_int_t fit;

    snprintf(rest, sizeof rest, "--tp 8 --device-memory 60GB --trace %s/traces/azure_llm_2023_conv.csv", KVG_TEST_DATA);
    object = plan_json("llama-3.3-70b", rest);
    trace = json_object_get(object, "trace");
    ck_assert_int_eq(number(trace, "requests"), 19366);
    ck_assert_int_eq(number(trace, "past_context"), 0);
    fit = number(trace, "fit");
    ck_assert_int_gt(fit, 100);
    ck_assert_int_lt(fit, 19366);
    ck_assert_int_ge(number(trace, "booked_bytes"), number(trace, "content_bytes"));
    ck_assert_int_eq(number(trace, "content_bytes"), number(trace, "tokens") * 18560);
    ck_assert_double_le((double)number(trace, "booked_bytes"), 1.05 * (double)number(trace, "content_bytes"));
    json_decref(object);

    snprintf(rest, sizeof rest, "--trace %s/traces/azure_llm_2023_conv.csv", KVG_TEST_DATA); /* no memory given: all of it */
    object = plan_json("tinyllama-1.1b", rest);
    trace = json_object_get(object, "trace");
    ck_assert_int_gt(number(trace, "past_context"), 0); /* a context of 2048 */
    ck_assert_int_eq(number(trace, "fit") + number(trace, "past_context"), 19366);
    ck_assert(is_null(trace, "limiting_rank"));
    json_decref(object);
}
END_TEST

static void write_file(const char *name, const char *text, char path[512])
{
    FILE *file;

    snprintf(path, 512, "%s/%s", folder, name);
    file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

START_TEST(test_plan_malformed_files_are_named)
{
    char path[512], rows[512], line[1200];

    write_file("bad.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\r\na,1,2\r\na,1,x", path);
    snprintf(line, sizeof line, "plan --model %s/models/llama-3.1-8b.json --json --trace %s", KVG_TEST_DATA, path);
    check_refused(line, 2, "bad.csv, line 3: GeneratedTokens is \"x\"");
    write_file("bad.json", "{\"num_hidden_layers\": 2,,}", path);
    snprintf(line, sizeof line, "plan --model %s", path);
    check_refused(line, 2, "bad.json: line 1");
    write_file("half.json", "{\"num_hidden_layers\": 2", path);
    snprintf(line, sizeof line, "plan --model %s", path);
    check_refused(line, 2, "half.json: line 1");
    write_file("empty.json", "", path);
    snprintf(line, sizeof line, "plan --model %s", path);
    check_refused(line, 2, "empty");
    write_file("vast.json", "{\"num_hidden_layers\":2,\"hidden_size\":2147483647,\"num_attention_heads\":8,\"head_dim\":128,"
                            "\"num_local_experts\":4000000,\"moe_intermediate_size\":2147483647}", path);
    snprintf(line, sizeof line, "plan --model %s --pp 2", path);
    check_refused(line, 2, "vast.json: the layers' weight bytes add up past 64 bits");
    write_file("rows.json", "{\"model_type\":\"llama\",\"num_hidden_layers\":1024,\"num_attention_heads\":1,\"head_dim\":2147483616,\"hidden_size\":64,"
                            "\"max_position_embeddings\":100000000000}", path);
    write_file("rows.csv", "ContextTokens,GeneratedTokens\n1,1\n2147483600,1\n2147483600,1\n", rows);
    snprintf(line, sizeof line, "plan --model %s --ctx 64 --format-k bf16 --format-v bf16 --trace %s", path, rows);
    check_refused(line, 2, "after 1 requests of the trace the next one takes rank 0 past what 64 bits can say");
    write_file("twice.json", "{\"num_hidden_layers\": 2, \"num_hidden_layers\": 3}", path);
    snprintf(line, sizeof line, "plan --model %s", path);
    check_refused(line, 2, "twice.json: line 1");
    check_refused("plan --model /nonexistent/config.json", 2, "/nonexistent/config.json");
    check_model_refused("llama-3.1-8b", "--trace /nonexistent.csv", "/nonexistent.csv");
    check_model_refused("deepseek-v4-flash", "", "compress_ratios");
    check_model_refused("llama-3.1-8b", "--device-memory 80", "--device-memory is 80, which is 80 bytes: did you mean 80GB?");
    check_model_refused("llama-3.1-8b", "--device-memory 999999", "at least 1000000 bytes");
    check_model_refused("llama-3.1-8b", "--device-memory 999kB", "--device-memory is 999kB: it is at least 1000000 bytes");
    check_model_refused("llama-3.1-8b", "--device-memory 0", "--device-memory is 0: it is at least 1000000 bytes");
    ck_assert_int_eq(run_model("llama-3.1-8b", "--device-memory 1000000"), 0);
    check_model_refused("llama-3.1-8b", "--device-memory 80G", "write 80GB (powers of 1000) or 80GiB (powers of 1024)");
}
END_TEST

START_TEST(test_plan_picture_is_written_whole_or_not_at_all)
{
    char        rest[512], path[512];
    struct stat found;

    snprintf(rest, sizeof rest, "--tp 2 --pp 2 --ring on --device-memory 80GiB --reserve 2GB --svg %s/a.svg", folder);
    ck_assert_int_eq(run_model("gemma-3-27b", rest), 0);
    snprintf(path, sizeof path, "%s/a.svg", folder);
    slurp(path, out);
    ck_assert_int_eq(strncmp(out, "<svg xmlns=", 11), 0);
    ck_assert_str_eq(out + strlen(out) - 7, "</svg>\n");
    static const char *const labels[] = { "gemma-3-27b on tp 2 x pp 2", "rank 3", "stage 1", "weights (estimate)", "cache, full",
                                          "cache, window 1024", "reserve", "limits the grid", "KV cache: " };
    for (size_t i = 0; i < sizeof labels / sizeof labels[0]; i++) {
        ck_assert_msg(strstr(out, labels[i]) != NULL, "the picture does not say %s", labels[i]);
    }
    ck_assert_int_eq(run_model("gemma-3-27b", rest), 0); /* over the old one */
    snprintf(rest, sizeof rest, "--svg %s/none/a.svg", folder);
    check_model_refused("llama-3.1-8b", rest, "none/a.svg cannot be written");
    snprintf(rest, sizeof rest, "--json --svg %s", folder); /* a directory stands in the way: nothing is left behind */
    check_model_refused("llama-3.1-8b", rest, "cannot be written");
    snprintf(path, sizeof path, "%s/b.svg", folder);
    ck_assert_int_ne(stat(path, &found), 0);
}
END_TEST

START_TEST(test_plan_table_speaks_as_engines_do)
{
    ck_assert_int_eq(run_model("llama-3.3-70b", "--tp 4 --pp 2 --device-memory 141GB"), 0);
    static const char *const words[] = { "KV cache: ", " tokens; ", "x concurrency at 131,072 tokens; limited by rank 0 (stage 0)",
                                         "K q8_0, V q5_1 (lossy; the default)", "fence       0 | 40 | 80", "estimate", "duplicates: none" };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        ck_assert_msg(strstr(out, words[i]) != NULL, "%s is missing in\n%s", words[i], out);
    }
    ck_assert_str_eq(err, "");
    ck_assert_int_eq(run_model("llama-3.3-70b", "--format-k bf16 --format-v f16 --weights-bytes 141GB --tp 16"), 0);
    ck_assert_ptr_null(strstr(out, "lossy"));
    ck_assert_ptr_nonnull(strstr(out, "K bf16, V f16\n"));
    ck_assert_ptr_null(strstr(out, "estimate"));
    ck_assert_ptr_nonnull(strstr(out, "are copies (50 %"));
}
END_TEST

START_TEST(test_plan_table_says_whose_choice_formats_and_context_are)
{
    char path[512], line[600];

    ck_assert_int_eq(run_model("gemma-3-27b", ""), 0);
    ck_assert_ptr_nonnull(strstr(out, "K fp8, V fp8 (lossy; the default)\n"));
    ck_assert_int_eq(run_model("llama-3.1-8b", "--format-v bf16"), 0);
    ck_assert_ptr_nonnull(strstr(out, "K q8_0, V bf16 (lossy)\n"));
    ck_assert_ptr_nonnull(strstr(out, "T = 131,072 tokens\n"));
    ck_assert_int_eq(setenv("KVGRID_KV_K", "bf16", 1), 0);
    ck_assert_int_eq(run_model("llama-3.1-8b", ""), 0);
    ck_assert_ptr_nonnull(strstr(out, "K bf16, V q5_1 (lossy; of the knobs)\n"));
    ck_assert_int_eq(setenv("KVGRID_KV_V", "bf16", 1), 0);
    ck_assert_int_eq(run_model("llama-3.1-8b", ""), 0);
    ck_assert_ptr_nonnull(strstr(out, "K bf16, V bf16 (of the knobs)\n"));
    ck_assert_int_eq(unsetenv("KVGRID_KV_K") | unsetenv("KVGRID_KV_V"), 0);
    write_file("short.json", "{\"num_hidden_layers\":2,\"hidden_size\":512,\"num_attention_heads\":8}", path);
    snprintf(line, sizeof line, "plan --model %s", path);
    ck_assert_int_eq(run(line), 0);
    ck_assert_ptr_nonnull(strstr(out, "T = 32,768 tokens (assumed: the config names no context; --ctx says it)\n"));
    snprintf(line, sizeof line, "plan --model %s --ctx 32768", path);
    ck_assert_int_eq(run(line), 0);
    ck_assert_ptr_nonnull(strstr(out, "T = 32,768 tokens\n"));
}
END_TEST

START_TEST(test_plan_of_a_family_that_is_not_known_says_so_beside_the_result)
{
    char    path[512], line[600];
    json_t *object;

    write_file("mystery.json", "{\"model_type\":\"mystery\",\"num_hidden_layers\":2,\"hidden_size\":512,\"num_attention_heads\":8}", path);
    snprintf(line, sizeof line, "plan --model %s --json", path);
    ck_assert_int_eq(run(line), 0);
    ck_assert_int_eq(strncmp(err, "kvgrid plan: ", 13), 0);
    ck_assert_ptr_nonnull(strstr(err, "mystery.json: model_type mystery is not known here"));
    ck_assert_ptr_eq(strchr(err, '\n'), err + strlen(err) - 1); /* one line */
    object = read_json();
    ck_assert_int_eq(number(object, "tp"), 1);
    json_decref(object);
}
END_TEST

/* ---- bad use */

START_TEST(test_plan_bad_use_is_one_sentence_and_status_2)
{
    check_refused("plan", 2, "--model says which model");
    check_model_refused("llama-3.1-8b", "--tp 3", "TP sizes that work for this model are 1, 2, 4, 8, 16, 32;");
    check_model_refused("llama-3.1-8b", "--tp 3 --json", "TP sizes that work");
    check_model_refused("llama-3.1-8b", "--pp 33", "more stages than");
    check_model_refused("llama-3.1-8b", "--tp 0", "--tp is 0");
    check_model_refused("llama-3.1-8b", "--tpp 2", "did you mean --tp?");
    check_model_refused("llama-3.1-8b", "--device-memory 141G", "has two meanings");
    check_model_refused("llama-3.1-8b", "--format-k q5_1", "not legal for K");
    check_model_refused("llama-3.1-8b", "--format-v q6", "--format-v");
    check_model_refused("llama-3.1-8b", "--format-latent q8_0", "f32 or bf16");
    check_model_refused("stories15m", "", "48");
    ck_assert_int_eq(setenv("KVGRID_KV_K", "q3_9", 1), 0);
    check_model_refused("llama-3.1-8b", "", "q3_9");
    ck_assert_int_eq(unsetenv("KVGRID_KV_K"), 0);
    check_refused("plann", 2, "did you mean \"plan\"");
    check_refused("serve", 2, "there is no part \"serve\": kvgrid --help lists");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan_command");
    TCase *tcase = tcase_create("plan_command");

    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_plan_json_has_every_key_with_and_without_memory);
    tcase_add_test(tcase, test_plan_ranks_less_duplicates_are_the_trunk_for_all_models);
    tcase_add_test(tcase, test_plan_known_bytes_of_real_models);
    tcase_add_test(tcase, test_plan_formats_that_differ_by_class_are_listed_by_class);
    tcase_add_test(tcase, test_plan_that_holds_nothing_says_zero_and_why);
    tcase_add_test(tcase, test_plan_fence_takes_cuts_or_the_whole_of_it);
    tcase_add_test(tcase, test_plan_mtp_blocks_ride_on_the_last_stage);
    tcase_add_test(tcase, test_plan_gpus_lists_the_grids_that_fit_best_first);
    tcase_add_test(tcase, test_plan_gpus_and_one_side_give_the_other);
    tcase_add_test(tcase, test_plan_gpus_that_hold_nothing_are_an_answer_too);
    tcase_add_test(tcase, test_plan_trace_counts_requests_that_fit_together);
    tcase_add_test(tcase, test_plan_malformed_files_are_named);
    tcase_add_test(tcase, test_plan_picture_is_written_whole_or_not_at_all);
    tcase_add_test(tcase, test_plan_table_speaks_as_engines_do);
    tcase_add_test(tcase, test_plan_table_says_whose_choice_formats_and_context_are);
    tcase_add_test(tcase, test_plan_of_a_family_that_is_not_known_says_so_beside_the_result);
    tcase_add_test(tcase, test_plan_bad_use_is_one_sentence_and_status_2);
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

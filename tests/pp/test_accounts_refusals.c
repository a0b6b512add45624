/* Accounts, what is refused: calls without what they need, texts that cannot be a placement's, a resize that is none. Nothing changes then. */
#include "tests/support/grid_life.h"

enum { TEXT_MAX = 1 << 16 };

static const char windowed[] =
    "{\"model_type\":\"gemma3\",\"hidden_size\":64,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":32,\"num_hidden_layers\":4,"
    "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\",\"full_attention\"],\"sliding_window\":64,\"vocab_size\":100,"
    "\"intermediate_size\":64,\"max_position_embeddings\":2048}";

static struct {
    char         text[TEXT_MAX];
    size_t       bytes;
    KvgAccounts *accounts;
} scene;

/* The text of a small placement, and accounts of it with sequence 1 open; the placement is gone then. */
static void scene_open(void)
{
    KvgPlaceOptions options = life_options(6, 4u << 20);
    KvgPolicy       policy = life_policy(1);
    TestGrid        g;

    options.ctx = 600;
    options.prefill_chunk_max = 128;
    grid_connect(&g, 1, 2, &policy, 3);
    ck_assert_msg(kvg_model_config_parse_json(windowed, strlen(windowed), "small", &g.config) == KVG_OK, "%s", kvg_last_error());
    ck_assert_msg(grid_place(&g, &g.config, &options, NULL) == KVG_OK, "%s", kvg_last_error());
    ck_assert_int_eq(kvg_placement_to_json(g.placement[0], scene.text, sizeof scene.text, &scene.bytes), KVG_OK);
    ck_assert_int_eq(kvg_placement_to_json(NULL, scene.text, sizeof scene.text, &scene.bytes), KVG_EINVAL);
    ck_assert_int_eq(kvg_placement_to_json(g.placement[0], NULL, 1, &scene.bytes), KVG_EINVAL);
    ck_assert_int_eq(kvg_placement_to_json(g.placement[0], scene.text, sizeof scene.text, NULL), KVG_EINVAL);
    grid_close(&g);
    scene.bytes--;
    ck_assert_msg(kvg_accounts_from_json(scene.text, scene.bytes, NULL, &scene.accounts) == KVG_OK, "%s", kvg_last_error());
    ck_assert_int_eq(kvg_accounts_open(scene.accounts, 1, 0), KVG_OK);
}

static void scene_close(void)
{
    kvg_accounts_destroy(scene.accounts);
    scene.accounts = NULL;
}

/* The text with the first `from` behind `after` replaced by `to`. */
static size_t changed(const char *after, const char *from, const char *to, char *text)
{
    const char *start = strstr(scene.text, after), *at = start != NULL ? strstr(start, from) : NULL;

    ck_assert_msg(at != NULL, "%s is not behind %s in the text: %s", from, after, scene.text);
    return (size_t)snprintf(text, TEXT_MAX, "%.*s%s%s", (int)(at - scene.text), scene.text, to, at + strlen(from));
}

static void says(KvgStatus status, KvgStatus want, const char *names)
{
    ck_assert_msg(status == want && strstr(kvg_last_error(), names) != NULL, "%s is wanted with %s: %s: %s", kvg_status_name(want), names,
                  kvg_status_name(status), kvg_last_error());
}

/* ---- calls */

START_TEST(a_call_without_what_it_needs_says_so)
{
    KvgAccounts    *accounts = NULL;
    KvgAccountsMark mark;
    KvgLedger       ledger;
    KvgStatus       answer;
    uint64_t        id = 1, step = 0;
    uint32_t        rows = 2;
    size_t          bytes;

    scene_open();
    says(kvg_accounts_from_json(NULL, 1, NULL, &accounts), KVG_EINVAL, "kvg_accounts_from_json");
    says(kvg_accounts_from_json(scene.text, scene.bytes, NULL, NULL), KVG_EINVAL, "kvg_accounts_from_json");
    says(kvg_ledger_from_json(NULL, 1, &ledger), KVG_EINVAL, "kvg_ledger_from_json");
    says(kvg_ledger_from_json(scene.text, scene.bytes, NULL), KVG_EINVAL, "kvg_ledger_from_json");
    says(kvg_accounts_to_json(NULL, NULL, 0, &bytes), KVG_EINVAL, "kvg_accounts_to_json");
    says(kvg_accounts_to_json(scene.accounts, NULL, 1, &bytes), KVG_EINVAL, "kvg_accounts_to_json");
    says(kvg_accounts_resize(NULL, scene.text, scene.bytes), KVG_EINVAL, "kvg_accounts_resize");
    says(kvg_accounts_resize(scene.accounts, NULL, 1), KVG_EINVAL, "kvg_accounts_resize");
    says(kvg_accounts_open(NULL, 2, 0), KVG_EINVAL, "no accounts");
    says(kvg_accounts_snapshot(scene.accounts, 1, NULL), KVG_EINVAL, "kvg_accounts_snapshot");
    says(kvg_accounts_rollback(scene.accounts, NULL, 0), KVG_EINVAL, "kvg_accounts_rollback");
    says(kvg_accounts_begin(scene.accounts, &id, NULL, 1, &answer, &step), KVG_EINVAL, "a step needs");
    says(kvg_accounts_begin(scene.accounts, &id, &rows, 1, &answer, NULL), KVG_EINVAL, "kvg_accounts_begin");
    says(kvg_accounts_extend(NULL, 1, &rows, &answer), KVG_EINVAL, "no accounts");
    ck_assert_int_eq(kvg_accounts_begin(scene.accounts, &id, &rows, 1, &answer, &step), KVG_OK);
    says(kvg_accounts_extend(scene.accounts, step, NULL, &answer), KVG_EINVAL, "kvg_accounts_extend");
    says(kvg_accounts_decide(scene.accounts, step, NULL, NULL), KVG_EINVAL, "kvg_accounts_decide");
    says(kvg_accounts_snapshot(scene.accounts, 1, &mark), KVG_EBUSY, "sequence 1");
    scene_close();
}
END_TEST

/* ---- texts */

static void refused(const char *after, const char *from, const char *to, KvgStatus status, const char *names)
{
    static char  text[TEXT_MAX];
    KvgAccounts *accounts = NULL;
    size_t       bytes = changed(after, from, to, text);

    says(kvg_accounts_from_json(text, bytes, NULL, &accounts), status, names);
    ck_assert_ptr_null(accounts);
}

START_TEST(a_text_of_another_make_is_refused_by_name)
{
    KvgAccounts       *accounts = NULL;
    KvgAccountsOptions small = KVG_ACCOUNTS_OPTIONS_INIT;

    scene_open();
    refused("\"classes\"", "[\n    {", "[\n 5, {", KVG_EFORMAT, "classes[0] is no object");
    refused("\"kvgrid", "\"classes\": [", "\"classes\": 7, \"more\": [", KVG_EFORMAT, "more");
    refused("\"kvgrid", "\"ranks\": [", "\"rank\": [", KVG_EFORMAT, "rank is no member");
    refused("\"ranks\"", "\"unit_bytes\": [", "\"unit_bytes\": 3, \"more\": [", KVG_EFORMAT, "ranks[0].more");
    refused("\"kvgrid", "\"tp\": 1,", "\"tp\": 40000,", KVG_EFORMAT, "tp 40000 x pp 2");
    refused("\"kvgrid", "\"prefill_chunk_max\": 128", "\"prefill_chunk_max\": 4097", KVG_EFORMAT, "4097");
    refused("\"classes\"", "\"units_per_sequence\": ", "\"units_per_sequence\": 9", KVG_EFORMAT, "units_per_sequence");
    says(kvg_accounts_from_json(scene.text, ((size_t)16 << 20) + 1, NULL, &accounts), KVG_EFORMAT, "bytes of text"); /* not one of them is looked at */
    small.memory_max_bytes = 1000;
    says(kvg_accounts_from_json(scene.text, scene.bytes, &small, &accounts), KVG_ECAPACITY, "memory_max_bytes is 1000");
    ck_assert_ptr_null(accounts);
    scene_close();
}
END_TEST

/* What would be allocated is more than 64 bits can say. */
START_TEST(a_text_that_wants_more_memory_than_there_are_addresses_is_refused)
{
    static char  text[TEXT_MAX];
    KvgAccounts *accounts = NULL;
    char        *at;

    scene_open();
    changed("\"kvgrid", "\"max_in_flight\": 3", "\"max_in_flight\": 2147483647", text);
    memcpy(scene.text, text, sizeof text);
    at = strstr(scene.text, "\"max_step_sequences\": ") + strlen("\"max_step_sequences\": ");
    size_t bytes = (size_t)snprintf(text, sizeof text, "%.*s2147483647%s", (int)(at - scene.text), scene.text, strchr(at, ','));
    says(kvg_accounts_from_json(text, bytes, NULL, &accounts), KVG_ECAPACITY, "18446744073709551615 bytes");
    ck_assert_ptr_null(accounts);
    scene_close();
}
END_TEST

START_TEST(a_list_that_is_none_is_refused_by_name)
{
    static char  text[TEXT_MAX];
    KvgAccounts *accounts = NULL;

    scene_open();
    const char *list = strstr(scene.text, "\"classes\": ");
    size_t      head = (size_t)(list - scene.text);
    const char *why[2][2] = { { "\"classes\": 7, \"ranks\": []}", "classes is no list" }, { "\"ranks\": []}", "classes is missing" } };
    for (int i = 0; i < 2; i++) {
        int bytes = snprintf(text, sizeof text, "%.*s%s", (int)head, scene.text, why[i][0]);
        says(kvg_accounts_from_json(text, (size_t)bytes, NULL, &accounts), KVG_EFORMAT, why[i][1]);
    }
    ck_assert_ptr_null(accounts);
    scene_close();
}
END_TEST

/* ---- resize */

static void not_resized(const char *after, const char *from, const char *to, KvgStatus status, const char *names)
{
    static char text[TEXT_MAX], now[TEXT_MAX];
    size_t      bytes = changed(after, from, to, text), written = 0;

    says(kvg_accounts_resize(scene.accounts, text, bytes), status, names);
    ck_assert_int_eq(kvg_accounts_to_json(scene.accounts, now, sizeof now, &written), KVG_OK);
    ck_assert_str_eq(now, scene.text);
}

START_TEST(a_resize_to_another_placement_or_within_a_step_changes_nothing)
{
    uint64_t  id = 1, step = 0;
    uint32_t  rows = 2;
    KvgStatus answer;

    scene_open();
    not_resized("\"kvgrid", "\"max_sequences\": 6", "\"max_sequences\": 5", KVG_EFORMAT, "its limits and shape differ");
    not_resized("\"classes\"", "\"layers\": 2", "\"layers\": 3", KVG_EFORMAT, "class 0 differs");
    ck_assert_int_eq(kvg_accounts_begin(scene.accounts, &id, &rows, 1, &answer, &step), KVG_OK);
    not_resized("\"kvgrid", "\"cache_tokens\": ", "\"cache_tokens\": 1", KVG_EBUSY, "step 1");
    scene_close();
}
END_TEST

/* Without its last class, in the list and in each rank's bytes. */
START_TEST(a_resize_to_fewer_classes_changes_nothing)
{
    static char text[TEXT_MAX];
    size_t      bytes = 0;

    scene_open();
    const char *at = scene.text, *second = strstr(strstr(at, "\"classes\""), ",\n    {"), *end = strchr(second, '}') + 1;
    bytes = (size_t)snprintf(text, sizeof text, "%.*s", (int)(second - at), at);
    for (at = end; *at != '\0';) {
        const char *list = strstr(at, "\"unit_bytes\": ["), *comma = list != NULL ? strchr(list, ',') : at + strlen(at);
        bytes += (size_t)snprintf(text + bytes, sizeof text - bytes, "%.*s", (int)(comma - at), at);
        at = list != NULL ? strchr(comma, ']') : comma;
    }
    says(kvg_accounts_resize(scene.accounts, text, bytes), KVG_EFORMAT, "it has 1 classes, not 2");
    scene_close();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("accounts_refusals");
    TCase *tc = tcase_create("accounts_refusals");

    tcase_add_test(tc, a_call_without_what_it_needs_says_so);
    tcase_add_test(tc, a_text_of_another_make_is_refused_by_name);
    tcase_add_test(tc, a_text_that_wants_more_memory_than_there_are_addresses_is_refused);
    tcase_add_test(tc, a_list_that_is_none_is_refused_by_name);
    tcase_add_test(tc, a_resize_to_another_placement_or_within_a_step_changes_nothing);
    tcase_add_test(tc, a_resize_to_fewer_classes_changes_nothing);
    suite_add_tcase(suite, tc);
    return life_run(suite);
}

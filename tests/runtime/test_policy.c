/* The knobs: what each variable says, what its alias says, and what neither says. */
#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <kvgrid/log.h>
#include <kvgrid/policy.h>

static const char *const variables[] = {
    "KVGRID_KV_K", "KVGRID_KV_V", "KVGRID_GEMMA_GKV", "KVGRID_GEMMA_WKV", "KVGRID_DRAFT", "KVGRID_KV_FP8", "KVGRID_SWA_RING",
    "KVGRID_DSA_INDEX_RING", "KVGRID_TIMEOUT_MS", "KVGRID_PEER_MS", "KVGRID_INTERFACE", "MEMRA_KV_K", "MEMRA_KV_V", "MEMRA_GEMMA_GKV",
    "MEMRA_GEMMA_WKV", "MEMRA_DRAFT", "MEMRA_KV_FP8", "MEMRA_SWA_RING", "MEMRA_DSA_INDEX_RING",
};

static int warnings;

static void count_warning(void *user, KvgLogLevel level, const char *sentence)
{
    (void)user;
    (void)sentence;
    warnings += level == KVG_LOG_WARN;
}

static void setup(void)
{
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        unsetenv(variables[i]);
    }
    warnings = 0;
    kvg_log_set(count_warning, NULL);
}

static void teardown(void)
{
    kvg_log_set(NULL, NULL);
}

static KvgPolicy with(const char *variable, const char *text)
{
    KvgPolicy policy;

    setenv(variable, text, 1);
    ck_assert_msg(kvg_policy_from_env(&policy) == KVG_OK, "%s", kvg_last_error());
    unsetenv(variable);
    return policy;
}

static bool same(const KvgPolicy *a, const KvgPolicy *b)
{
    return a->size == b->size && a->format_k == b->format_k && a->format_v == b->format_v && a->gemma_gkv == b->gemma_gkv &&
           a->gemma_wkv == b->gemma_wkv && a->kv_fp8 == b->kv_fp8 && a->kv_fp8_force == b->kv_fp8_force &&
           a->swa_ring == b->swa_ring && a->swa_ring_default == b->swa_ring_default &&
           a->dsa_index_ring == b->dsa_index_ring && a->timeout_ms == b->timeout_ms && a->peer_ms == b->peer_ms &&
           strcmp(a->interface, b->interface) == 0;
}

START_TEST(test_defaults_are_those_of_the_table)
{
    KvgPolicy policy, fresh;

    kvg_policy_default(&fresh);
    ck_assert_int_eq(kvg_policy_from_env(&policy), KVG_OK);
    ck_assert(same(&policy, &fresh));
    ck_assert_uint_eq(policy.size, sizeof policy);
    ck_assert_int_eq(policy.format_k, KVG_Q8_0);
    ck_assert_int_eq(policy.format_v, KVG_Q5_1);
    ck_assert_uint_eq(policy.gemma_gkv, 1);
    ck_assert_uint_eq(policy.gemma_wkv, 1);
    ck_assert_int_eq(policy.kv_fp8, -1);
    ck_assert_int_eq(policy.swa_ring, -1);
    ck_assert_int_eq(policy.dsa_index_ring, -1);
    ck_assert_uint_eq(policy.timeout_ms, 30000);
    ck_assert_uint_eq(policy.peer_ms, 1000);
    ck_assert_str_eq(policy.interface, "");
    ck_assert(!kvg_policy_swa_ring_on(&policy));
    ck_assert(!kvg_policy_kv_fp8_on(&policy));
}
END_TEST

START_TEST(test_an_empty_variable_is_unset)
{
    KvgPolicy fresh;

    kvg_policy_default(&fresh);
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        KvgPolicy policy = with(variables[i], "");
        ck_assert(same(&policy, &fresh));
    }
}
END_TEST

START_TEST(test_every_legal_format_word_is_taken_and_no_other)
{
    static const struct {
        const char *word;
        KvFormat    format;
        int         k, v;
    } rows[] = {{"q8_0", KVG_Q8_0, 1, 1}, {"q5_1", KVG_Q5_1, 0, 1}, {"q4_0", KVG_Q4_0, 1, 1}, {"fp8", KVG_FP8, 1, 1},
                {"bf16", KVG_BF16, 1, 1}, {"f16", KVG_F16, 1, 1},   {"f32", KVG_F32, 0, 0},   {"q4_1", 0, 0, 0},
                {"Q8_0", 0, 0, 0},        {" q8_0", 0, 0, 0},       {"policy", 0, 0, 0}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        KvgPolicy policy;
        setenv("KVGRID_KV_K", rows[i].word, 1);
        ck_assert_int_eq(kvg_policy_from_env(&policy), rows[i].k ? KVG_OK : KVG_EINVAL);
        if (rows[i].k) {
            ck_assert_int_eq(policy.format_k, rows[i].format);
        } else {
            ck_assert_ptr_nonnull(strstr(kvg_last_error(), "q8_0, fp8, q4_0, bf16, f16"));
            ck_assert_ptr_nonnull(strstr(kvg_last_error(), "KVGRID_KV_K"));
        }
        unsetenv("KVGRID_KV_K");
        setenv("MEMRA_KV_V", rows[i].word, 1);
        ck_assert_int_eq(kvg_policy_from_env(&policy), rows[i].v ? KVG_OK : KVG_EINVAL);
        if (rows[i].v) {
            ck_assert_int_eq(policy.format_v, rows[i].format);
        } else {
            ck_assert_ptr_nonnull(strstr(kvg_last_error(), "q5_1, q4_0, fp8, q8_0, bf16, f16"));
            ck_assert_ptr_nonnull(strstr(kvg_last_error(), "MEMRA_KV_V"));
        }
        unsetenv("MEMRA_KV_V");
    }
}
END_TEST

START_TEST(test_an_alias_is_read_only_while_the_knob_is_unset)
{
    KvgPolicy policy;

    setenv("MEMRA_KV_K", "bf16", 1);
    ck_assert_int_eq(with("KVGRID_KV_K", "f16").format_k, KVG_F16);
    ck_assert_int_eq(with("KVGRID_KV_K", "").format_k, KVG_BF16); /* empty is unset, so the alias speaks */
    ck_assert_int_eq(kvg_policy_from_env(&policy), KVG_OK);
    ck_assert_int_eq(policy.format_k, KVG_BF16);
    setenv("MEMRA_KV_K", "nonsense", 1); /* not looked at */
    ck_assert_int_eq(with("KVGRID_KV_K", "f16").format_k, KVG_F16);
}
END_TEST

START_TEST(test_gemma_switches_are_on_unless_zero)
{
    ck_assert_uint_eq(with("KVGRID_GEMMA_GKV", "0").gemma_gkv, 0);
    ck_assert_uint_eq(with("KVGRID_GEMMA_GKV", "1").gemma_gkv, 1);
    ck_assert_uint_eq(with("KVGRID_GEMMA_GKV", "no").gemma_gkv, 1);
    ck_assert_uint_eq(with("MEMRA_GEMMA_GKV", "0").gemma_gkv, 0);
    ck_assert_uint_eq(with("KVGRID_GEMMA_WKV", "0").gemma_wkv, 0);
    ck_assert_uint_eq(with("KVGRID_GEMMA_WKV", "2").gemma_wkv, 1);
    ck_assert_uint_eq(with("KVGRID_GEMMA_WKV", "0").gemma_gkv, 1);
}
END_TEST

START_TEST(test_a_draft_model_turns_the_windowed_default_off_but_not_a_choice)
{
    ck_assert_uint_eq(with("KVGRID_DRAFT", "path/to/draft").gemma_wkv, 0);
    ck_assert_uint_eq(with("MEMRA_DRAFT", "0").gemma_wkv, 0); /* set is set */
    ck_assert_uint_eq(with("KVGRID_DRAFT", "x").gemma_gkv, 1);
    setenv("KVGRID_DRAFT", "x", 1);
    ck_assert_uint_eq(with("KVGRID_GEMMA_WKV", "1").gemma_wkv, 1);
    ck_assert_uint_eq(with("MEMRA_GEMMA_WKV", "0").gemma_wkv, 0);
}
END_TEST

START_TEST(test_kv_fp8_is_one_or_not_and_unset_leaves_it_to_the_model)
{
    KvgPolicy policy = with("KVGRID_KV_FP8", "1");

    ck_assert(kvg_policy_kv_fp8_on(&policy));
    policy = with("KVGRID_KV_FP8", "yes");
    policy.kv_fp8_force = 1;
    ck_assert(!kvg_policy_kv_fp8_on(&policy)); /* any other value: none does, whatever the model says */
    kvg_policy_default(&policy);
    for (int force = -1; force <= 1; force++) {
        policy.kv_fp8_force = (int8_t)force;
        ck_assert_int_eq(kvg_policy_kv_fp8_on(&policy), force == 1);
    }
}
END_TEST

START_TEST(test_the_ring_knob_forces_and_else_the_default_decides)
{
    static const struct {
        const char *text;
        int         with_default_off, with_default_on;
    } rows[] = {{"1", 1, 1}, {"0", 0, 0}, {"", 0, 1}, {"on", 0, 1}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        KvgPolicy policy = with("KVGRID_SWA_RING", rows[i].text);
        ck_assert_int_eq(kvg_policy_swa_ring_on(&policy), rows[i].with_default_off);
        policy.swa_ring_default = 1;
        ck_assert_int_eq(kvg_policy_swa_ring_on(&policy), rows[i].with_default_on);
    }
}
END_TEST

START_TEST(test_an_unreadable_index_ring_counts_as_unset_and_warns_once)
{
    static const char *const bad[] = {"many", "-1", "12x", "1e3", "99999999999999999999", "+5", " 5", "0x10"};

    ck_assert_int_eq(with("KVGRID_DSA_INDEX_RING", "0").dsa_index_ring, 0);
    ck_assert_int_eq(with("KVGRID_DSA_INDEX_RING", "5120").dsa_index_ring, 5120);
    ck_assert_int_eq(with("MEMRA_DSA_INDEX_RING", "9223372036854775807").dsa_index_ring, INT64_MAX);
    ck_assert_int_eq(warnings, 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_int_eq(with("KVGRID_DSA_INDEX_RING", bad[i]).dsa_index_ring, -1);
    }
    ck_assert_int_eq(warnings, 1);
}
END_TEST

START_TEST(test_timeouts_are_whole_milliseconds_above_zero)
{
    static const char *const bad[] = {"0", "-5", "1s", "2147483648", "ten"};
    KvgPolicy                policy;

    ck_assert_uint_eq(with("KVGRID_TIMEOUT_MS", "250").timeout_ms, 250);
    ck_assert_uint_eq(with("KVGRID_PEER_MS", "2147483647").peer_ms, 2147483647u);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        setenv("KVGRID_TIMEOUT_MS", bad[i], 1);
        ck_assert_int_eq(kvg_policy_from_env(&policy), KVG_EINVAL);
        ck_assert_ptr_nonnull(strstr(kvg_last_error(), "KVGRID_TIMEOUT_MS"));
    }
}
END_TEST

START_TEST(test_an_interface_is_kept_as_it_stands_and_refused_where_it_is_longer_than_any)
{
    char      text[KVG_INTERFACE_BYTES + 1];
    KvgPolicy policy;

    ck_assert_str_eq(with("KVGRID_INTERFACE", "ib0").interface, "ib0");
    ck_assert_str_eq(with("KVGRID_INTERFACE", "2001:db8::1").interface, "2001:db8::1");
    memset(text, 'x', sizeof text);
    text[KVG_INTERFACE_BYTES - 1] = '\0';
    ck_assert_str_eq(with("KVGRID_INTERFACE", text).interface, text); /* the longest */
    text[KVG_INTERFACE_BYTES - 1] = 'x';
    text[KVG_INTERFACE_BYTES] = '\0';
    setenv("KVGRID_INTERFACE", text, 1);
    ck_assert_int_eq(kvg_policy_from_env(&policy), KVG_EINVAL);
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "KVGRID_INTERFACE is \"xxx"));
    ck_assert_ptr_nonnull(strstr(kvg_last_error(), "63 letters"));
}
END_TEST

START_TEST(test_a_refused_environment_leaves_the_policy_as_it_was)
{
    KvgPolicy policy, before;

    kvg_policy_default(&policy);
    policy.timeout_ms = 7;
    before = policy;
    setenv("KVGRID_KV_V", "q9_9", 1);
    ck_assert_int_eq(kvg_policy_from_env(&policy), KVG_EINVAL);
    ck_assert(same(&policy, &before));
}
END_TEST

START_TEST(test_the_process_policy_is_refused_until_mended_and_then_kept)
{
    const KvgPolicy *policy = NULL, *again = NULL;
    KvFormat         k = KVG_POLICY, v = KVG_POLICY;
    uint32_t         k_bytes = 0, v_bytes = 0;

    setenv("KVGRID_KV_K", "nonsense", 1);
    ck_assert_int_eq(kvg_policy_process(&policy), KVG_EINVAL);
    ck_assert_int_eq(kvg_policy_process(&policy), KVG_EINVAL);
    ck_assert_ptr_null(policy);
    kvg_kv_cache_formats(&k, &v); /* the defaults meanwhile */
    ck_assert_int_eq(k, KVG_Q8_0);
    setenv("KVGRID_KV_K", "bf16", 1);
    ck_assert_int_eq(kvg_policy_process(&policy), KVG_OK);
    ck_assert_int_eq(policy->format_k, KVG_BF16);
    setenv("KVGRID_KV_K", "f16", 1); /* too late */
    ck_assert_int_eq(kvg_policy_process(&again), KVG_OK);
    ck_assert_ptr_eq(policy, again);
    kvg_kv_cache_formats(&k, &v);
    kvg_kv_blk_bytes(&k_bytes, &v_bytes);
    ck_assert_int_eq(k, KVG_BF16);
    ck_assert_int_eq(v, KVG_Q5_1);
    ck_assert_uint_eq(k_bytes, 64);
    ck_assert_uint_eq(v_bytes, 24);
}
END_TEST

START_TEST(test_the_default_blocks_take_34_and_24_bytes)
{
    uint32_t k_bytes = 0, v_bytes = 0;

    kvg_kv_blk_bytes(&k_bytes, &v_bytes);
    ck_assert_uint_eq(k_bytes, 34);
    ck_assert_uint_eq(v_bytes, 24);
    ck_assert(kvg_gkv_on() && kvg_wkv_on());
}
END_TEST

START_TEST(test_setters_count_before_and_after_the_first_use)
{
    const KvgPolicy *policy = NULL;

    kvg_set_swa_ring_default(1);
    ck_assert(kvg_swa_ring_on());
    kvg_kv_fp8_force_set(1);
    ck_assert(kvg_kv_fp8_on());
    ck_assert_int_eq(kvg_policy_process(&policy), KVG_OK);
    ck_assert_int_eq(policy->kv_fp8_force, 1);
    kvg_kv_fp8_force_set(-1);
    kvg_set_swa_ring_default(0);
    ck_assert(!kvg_kv_fp8_on() && !kvg_swa_ring_on());
    ck_assert_int_eq(policy->swa_ring_default, 0);
}
END_TEST

START_TEST(test_knobs_show_value_and_source)
{
    KvgKnob knob;
    int     seen = 0;

    setenv("MEMRA_KV_K", "fp8", 1);
    setenv("KVGRID_DRAFT", "some/draft", 1);
    setenv("KVGRID_KV_V", "nonsense", 1);
    setenv("KVGRID_SWA_RING", "yes", 1);
    setenv("KVGRID_INTERFACE", "2001:0db8:0123:4567:89ab:cdef:192.168.100.200", 1);
    for (int i = 0; i < kvg_knob_count(); i++) {
        ck_assert_int_eq(kvg_knob_get(i, &knob), KVG_OK);
        ck_assert_ptr_nonnull(knob.meaning);
        if (strcmp(knob.name, "KVGRID_KV_K") == 0) {
            ck_assert_str_eq(knob.value, "fp8");
            ck_assert_str_eq(knob.source, "MEMRA_KV_K");
            seen++;
        } else if (strcmp(knob.name, "KVGRID_GEMMA_WKV") == 0) {
            ck_assert_str_eq(knob.value, "off");
            ck_assert_str_eq(knob.source, "KVGRID_DRAFT");
            seen++;
        } else if (strcmp(knob.name, "KVGRID_KV_V") == 0) {
            ck_assert_str_eq(knob.value, "nonsense"); /* shown as it stands */
            ck_assert(knob.unread);
            seen++;
        } else if (strcmp(knob.name, "KVGRID_SWA_RING") == 0) { /* counts as unset, which is no mistake to begin with */
            ck_assert_str_eq(knob.value, "yes");
            ck_assert(knob.unread);
            seen++;
        } else if (strcmp(knob.name, "KVGRID_DRAFT") == 0) {
            ck_assert_str_eq(knob.value, "some/draft");
            ck_assert(!knob.unread);
            seen++;
        } else if (strcmp(knob.name, "KVGRID_TIMEOUT_MS") == 0) {
            ck_assert_str_eq(knob.value, "30000");
            ck_assert_str_eq(knob.source, "default");
            ck_assert_ptr_null(knob.alias);
            ck_assert(!knob.unread);
            seen++;
        } else if (strcmp(knob.name, "KVGRID_INTERFACE") == 0) { /* of IPv6, the longest that there are */
            ck_assert_str_eq(knob.value, "2001:0db8:0123:4567:89ab:cdef:192.168.100.200");
            ck_assert_str_eq(knob.source, "KVGRID_INTERFACE");
            ck_assert(!knob.unread);
            seen++;
        }
    }
    ck_assert_int_eq(seen, 7);
    ck_assert_int_eq(kvg_knob_get(-1, &knob), KVG_EINVAL);
    ck_assert_int_eq(kvg_knob_get(kvg_knob_count(), &knob), KVG_EINVAL);
}
END_TEST

int main(void)
{
    Suite   *suite = suite_create("policy");
    TCase   *knobs = tcase_create("knobs");
    SRunner *runner;
    int      failed, run;

    tcase_add_checked_fixture(knobs, setup, teardown);
    tcase_add_test(knobs, test_defaults_are_those_of_the_table);
    tcase_add_test(knobs, test_an_empty_variable_is_unset);
    tcase_add_test(knobs, test_every_legal_format_word_is_taken_and_no_other);
    tcase_add_test(knobs, test_an_alias_is_read_only_while_the_knob_is_unset);
    tcase_add_test(knobs, test_gemma_switches_are_on_unless_zero);
    tcase_add_test(knobs, test_a_draft_model_turns_the_windowed_default_off_but_not_a_choice);
    tcase_add_test(knobs, test_kv_fp8_is_one_or_not_and_unset_leaves_it_to_the_model);
    tcase_add_test(knobs, test_the_ring_knob_forces_and_else_the_default_decides);
    tcase_add_test(knobs, test_an_unreadable_index_ring_counts_as_unset_and_warns_once);
    tcase_add_test(knobs, test_timeouts_are_whole_milliseconds_above_zero);
    tcase_add_test(knobs, test_an_interface_is_kept_as_it_stands_and_refused_where_it_is_longer_than_any);
    tcase_add_test(knobs, test_a_refused_environment_leaves_the_policy_as_it_was);
    tcase_add_test(knobs, test_the_process_policy_is_refused_until_mended_and_then_kept);
    tcase_add_test(knobs, test_the_default_blocks_take_34_and_24_bytes);
    tcase_add_test(knobs, test_setters_count_before_and_after_the_first_use);
    tcase_add_test(knobs, test_knobs_show_value_and_source);
    suite_add_tcase(suite, knobs);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV); /* each test in a process of its own: the process's policy is read once */
    failed = srunner_ntests_failed(runner);
    run = srunner_ntests_run(runner);
    srunner_free(runner);
    return failed == 0 && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

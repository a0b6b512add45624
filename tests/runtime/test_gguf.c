/* GGUF files: versions, alignment, hostile counts, damage everywhere, and how much of a file is read. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvgrid/model.h>

#include "runtime/base/memory.h"
#include "runtime/model/gguf.h"
#include "tests/support/small_gguf.h"

START_TEST(test_versions_2_and_3_load_and_others_are_refused)
{
    for (uint32_t version = 0; version < 6; version++) {
        Head        head;
        ModelConfig config;
        KvgStatus   expected = version == 2 || version == 3 ? KVG_OK : version == 0 ? KVG_EFORMAT : KVG_ENOTSUP;
        llama(&head, version);
        ck_assert_int_eq(parse(&head, &config), expected);
        kvg_model_config_free(&config);
    }
}
END_TEST

START_TEST(test_alignment_must_be_a_small_power_of_two)
{
    static const struct {
        uint32_t  alignment;
        KvgStatus status;
    } rows[] = {{32, KVG_OK},     {8, KVG_OK},      {64, KVG_OK},          {0, KVG_EFORMAT}, {3, KVG_EFORMAT},
                {33, KVG_EFORMAT}, {1u << 31, KVG_EFORMAT}, {1, KVG_EFORMAT}, {UINT32_MAX, KVG_EFORMAT}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        Head        head;
        ModelConfig config;
        llama(&head, 3);
        key_u32(&head, "general.alignment", rows[i].alignment);
        ck_assert_int_eq(parse(&head, &config), rows[i].status);
        kvg_model_config_free(&config);
    }
}
END_TEST

START_TEST(test_a_key_that_stands_twice_is_refused)
{
    Head head;

    llama(&head, 3);
    key_u32(&head, "llama.block_count", 5);
    refuse(&head, KVG_EFORMAT, "llama.block_count stands twice");
}
END_TEST

/* Counts far beyond the bytes that are there: none may be believed, looped over or multiplied. */
START_TEST(test_hostile_counts_are_refused_at_once)
{
    static const uint64_t counts[] = {1000, 1u << 31, 1ull << 60, 1ull << 61, 1ull << 63, UINT64_MAX, UINT64_MAX - 7};

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        for (uint32_t type = 0; type < GGUF_TYPE_COUNT; type++) {
            Head head;
            llama(&head, 3);
            key(&head, "an.array", GGUF_ARRAY);
            put_le(&head, type, 4);
            put_le(&head, counts[i], 8);
            put_le(&head, 0, 16);
            refuse(&head, KVG_EFORMAT, "head");
        }
        Head head;
        llama(&head, 3);
        head.keys = counts[i];
        set_counts(&head);
        refuse(&head, KVG_EFORMAT, "head");
        start(&head, 3);
        key(&head, "general.architecture", GGUF_STRING);
        put_le(&head, counts[i], 8);
        put(&head, "llama", 5);
        refuse(&head, KVG_EFORMAT, "head");
    }
}
END_TEST

START_TEST(test_deeply_nested_arrays_are_refused_and_shallow_ones_skipped)
{
    for (int depth = 1; depth < 64; depth++) {
        Head        head;
        ModelConfig config;
        llama(&head, 3);
        key(&head, "an.array", GGUF_ARRAY);
        for (int i = 0; i < depth; i++) {
            put_le(&head, i + 1 < depth ? GGUF_ARRAY : GGUF_U8, 4);
            put_le(&head, 1, 8);
        }
        put_le(&head, 7, 1);
        ck_assert_int_eq(parse(&head, &config), depth <= 4 ? KVG_OK : KVG_EFORMAT);
        kvg_model_config_free(&config);
    }
}
END_TEST

START_TEST(test_tensor_dimensions_that_wrap_or_are_zero_are_refused)
{
    static const uint64_t dims[][2] = {{UINT64_MAX, 2}, {1152, (1ull << 62) + 1}, {1152, (1ull << 42) + 1}, {0, 5}, {5, 0},
                                         {1ull << 32, 1ull << 32}, {1ull << 62, 1}, {1ull << 50, 2}};
    Head                  head;
    ModelConfig           config;

    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        llama(&head, 3);
        tensor(&head, "blk.0.attn_q.weight", dims[i][0], dims[i][1], 1);
        refuse(&head, KVG_EFORMAT, "blk.0.attn_q.weight");
    }
    llama(&head, 3);
    tensor(&head, "blk.0.attn_q.weight", 512, 512, 255); /* a type from the future: estimated from the keys */
    ck_assert_int_eq(parse(&head, &config), KVG_OK);
    ck_assert_uint_gt(config.weight_bytes[3], 0);
    kvg_model_config_free(&config);
}
END_TEST

/* ---- damage everywhere */

static void rich(Head *head)
{
    static const uint32_t flags[4] = {1, 1, 0, 1}, heads[4] = {2, 4, 2, 8};

    start(head, 3);
    key_string(head, "general.architecture", "llama");
    key_u32(head, "general.alignment", 32);
    key_u32(head, "llama.block_count", 4);
    key_u32(head, "llama.context_length", 4096);
    key_u32(head, "llama.embedding_length", 512);
    key_u32(head, "llama.attention.head_count", 8);
    key_array(head, "llama.attention.head_count_kv", GGUF_U32, 4, heads, 4);
    key_u32(head, "llama.attention.sliding_window", 64);
    key_array(head, "llama.attention.sliding_window_pattern", GGUF_BOOL, 1, flags, 4);
    key(head, "tokenizer.ggml.tokens", GGUF_ARRAY);
    put_le(head, GGUF_STRING, 4);
    put_le(head, 3, 8);
    put_string(head, "a");
    put_string(head, "");
    put_string(head, "ccc");
}

START_TEST(test_a_head_cut_at_any_length_within_the_keys_is_refused)
{
    Head   head;
    size_t whole;

    rich(&head);
    whole = head.used;
    tensor(&head, "token_embd.weight", 512, 3, 1);
    tensor(&head, "blk.0.attn_q.weight", 512, 512, 1);
    for (size_t length = 0; length <= head.used; length++) {
        ModelConfig config = {.context = 0};
        /* In a block of its own size, so that a sanitizer sees a read past the end. */
        uint8_t    *cut = malloc(length > 0 ? length : 1);
        memcpy(cut, head.bytes, length);
        ck_assert_int_eq(kvg_model_config_parse_gguf(cut, length, "cut", &config), length < whole ? KVG_EFORMAT : KVG_OK);
        kvg_model_config_free(&config);
        free(cut);
    }
}
END_TEST

START_TEST(test_any_flipped_bit_gives_a_config_or_an_error_and_nothing_else)
{
    Head head;
    int  refused = 0;

    rich(&head);
    tensor(&head, "blk.0.attn_q.weight", 512, 512, 1);
    for (size_t bit = 0; bit < head.used * 8; bit++) {
        ModelConfig config = {.context = 0};
        uint8_t    *copy = malloc(head.used);
        KvgStatus   status;
        memcpy(copy, head.bytes, head.used);
        copy[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        status = kvg_model_config_parse_gguf(copy, head.used, "flipped", &config);
        ck_assert(status == KVG_OK || status == KVG_EFORMAT || status == KVG_ENOTSUP || status == KVG_EOVERFLOW);
        refused += status != KVG_OK;
        for (uint32_t il = 0; status == KVG_OK && il < config.plan.n_layer + config.plan.n_mtp; il++) {
            ck_assert_uint_lt(config.plan.layers[il].kind, KVG_STATE_KIND_COUNT);
        }
        kvg_model_config_free(&config);
        free(copy);
    }
    ck_assert_int_gt(refused, 500);
}
END_TEST

START_TEST(test_every_allocation_may_fail)
{
    Head head;

    rich(&head);
    for (uint64_t nth = 0;; nth++) {
        ModelConfig config = {.context = 7};
        KvgStatus   status;
        kvg_fault_arm(nth);
        status = kvg_model_config_parse_gguf(head.bytes, head.used, "head", &config);
        if (!kvg_fault_disarm()) {
            ck_assert_int_eq(status, KVG_OK);
            ck_assert_uint_ge(nth, 4);
            kvg_model_config_free(&config);
            break;
        }
        ck_assert_int_eq(status, KVG_ENOMEM);
        ck_assert_uint_eq(config.context, 7);
        ck_assert_uint_eq(kvg_live_allocations(), 0);
    }
}
END_TEST

/* ---- files */

static void write_file(const char *path, const Head *head, size_t tail)
{
    FILE *file = fopen(path, "wb");

    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(head->bytes, 1, head->used, file), head->used);
    if (tail > 0) {
        ck_assert_int_eq(fseek(file, (long)tail, SEEK_CUR), 0);
        ck_assert_uint_eq(fwrite("", 1, 1, file), 1);
    }
    fclose(file);
}

START_TEST(test_a_file_is_known_by_its_magic_and_only_its_head_is_read)
{
    char        path[] = "/tmp/kvg_gguf_XXXXXX";
    Head        head;
    ModelConfig config = {.context = 0};
    int         fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    close(fd);
    llama(&head, 3);
    tensor(&head, "blk.0.attn_q.weight", 512, 512, 1);
    write_file(path, &head, (size_t)1 << 33); /* sparse: 8 GiB of tensor data that nobody may read */
    ck_assert_msg(kvg_model_config_load(path, &config) == KVG_OK, "%s", kvg_last_error());
    ck_assert_uint_eq(config.weight_bytes[0], 512 * 512 * 2);
    kvg_model_config_free(&config);

    head.used = 60;
    write_file(path, &head, 0);
    ck_assert_int_eq(kvg_model_config_load(path, &config), KVG_EFORMAT);
    unlink(path);
}
END_TEST

/* Metadata larger than the first read: the loader reads on, as far as it must. */
START_TEST(test_keys_of_several_megabytes_load)
{
    char        path[] = "/tmp/kvg_gguf_XXXXXX";
    static char filler[1 << 16];
    Head        head;
    ModelConfig config = {.context = 0};
    FILE       *file;
    int         fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    close(fd);
    llama(&head, 3);
    key(&head, "tokenizer.blob", GGUF_ARRAY);
    put_le(&head, GGUF_U8, 4);
    put_le(&head, 80 * sizeof filler, 8);
    file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(head.bytes, 1, head.used, file), head.used);
    for (int i = 0; i < 80; i++) {
        ck_assert_uint_eq(fwrite(filler, 1, sizeof filler, file), sizeof filler);
    }
    fclose(file);
    ck_assert_msg(kvg_model_config_load(path, &config) == KVG_OK, "%s", kvg_last_error());
    ck_assert_uint_eq(config.plan.n_layer, 4);
    kvg_model_config_free(&config);
    unlink(path);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gguf");
    TCase *tcase = tcase_create("gguf");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, no_leak_setup, no_leak_teardown);
    tcase_add_test(tcase, test_versions_2_and_3_load_and_others_are_refused);
    tcase_add_test(tcase, test_a_file_is_known_by_its_magic_and_only_its_head_is_read);
    tcase_add_test(tcase, test_keys_of_several_megabytes_load);
    tcase_add_test(tcase, test_alignment_must_be_a_small_power_of_two);
    tcase_add_test(tcase, test_a_key_that_stands_twice_is_refused);
    tcase_add_test(tcase, test_hostile_counts_are_refused_at_once);
    tcase_add_test(tcase, test_deeply_nested_arrays_are_refused_and_shallow_ones_skipped);
    tcase_add_test(tcase, test_tensor_dimensions_that_wrap_or_are_zero_are_refused);
    tcase_add_test(tcase, test_a_head_cut_at_any_length_within_the_keys_is_refused);
    tcase_add_test(tcase, test_any_flipped_bit_gives_a_config_or_an_error_and_nothing_else);
    tcase_add_test(tcase, test_every_allocation_may_fail);
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* What a newcomer is told and cannot be: one word of a survivor's account is another, and the newcomer says no by name, before it has taken anything for it. */
#include "pp/rebuild_impl.h"
#include "tests/support/rebuild_scene.h"
#include "tests/support/wire_edit.h"

/* One KV head: each of two ranks has it. Every second layer is windowed. */
static const char kv1[] =
    "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":32,\"num_hidden_layers\":4,"
    "\"sliding_window\":40,\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\",\"full_attention\"],"
    "\"vocab_size\":100,\"intermediate_size\":64,\"max_position_embeddings\":2048}";
static const Model one_head = {"one KV head", kv1, 2};

/* ---- words of an account */

typedef enum Part { HELLO, PLACE, BYTES, SEQUENCE, STREAM, SHARE } Part;

typedef struct Word {
    Part     part;
    uint32_t nth, offset, width; /* width 0: no word */
    uint64_t value;
} Word;

#define HELLO_WORD(field, value) {HELLO, 0, offsetof(RebuildHello, field), 8, value}
#define PLACE_WORD(field, value) {PLACE, 0, offsetof(RebuildPlace, field), 8, value}
#define SEQUENCE_WORD(n, field, value) {SEQUENCE, n, offsetof(RebuildSequence, field), sizeof(((RebuildSequence *)0)->field), value}
#define SHARE_WORD(n, field, value) {SHARE, n, offsetof(KvCarryShare, field), 8, value}

static const Word *words; /* two that are changed in the next account */

static uint8_t *word_at(uint8_t *body, const Word *word)
{
    RebuildAccount account;

    kvg_rebuild_account(body, 2, 1, &account);
    switch (word->part) {
    case HELLO: return body + word->offset;
    case PLACE: return body + sizeof(RebuildHello) + word->offset;
    case BYTES: return body + sizeof(RebuildHello) + sizeof(RebuildPlace) + word->nth * sizeof(uint64_t);
    case SEQUENCE: return (uint8_t *)(uintptr_t)kvg_rebuild_sequence_in(&account, word->nth) + word->offset;
    case STREAM: return (uint8_t *)(uintptr_t)(kvg_rebuild_sequence_in(&account, word->nth) + 1);
    default: return (uint8_t *)(uintptr_t)&account.shares[word->nth] + word->offset;
    }
}

static size_t change_words(const KvMessageHeader *header, uint8_t *body, size_t bytes)
{
    uint8_t *at[2];

    if (header->kind != KVG_MESSAGE_REBUILD || words == NULL || bytes < sizeof(RebuildHello) + sizeof(RebuildPlace)) return bytes;
    for (int i = 0; i < 2; i++) at[i] = words[i].width > 0 ? word_at(body, &words[i]) : NULL; /* where they stand follows from words, too */
    for (int i = 0; i < 2; i++) {
        if (at[i] != NULL) memcpy(at[i], &words[i].value, words[i].width);
    }
    words = NULL;
    return bytes;
}

/* ---- a pair of ranks, and what is tried */

typedef struct Told {
    Word        word[2];
    const char *part;
    KvgStatus   status;   /* 0: EFORMAT */
    int         measured; /* the newcomer is given no number of bytes */
} Told;

static Scene scene;

/* Sequences 101 (162 rows), 102 (73), 103 (0), and 200 and 201, forks of the first: chunks 0 and 1 are all three's. */
static void open_forks(void)
{
    scene = (Scene){0};
    open_scene(&scene, &one_head, 2, 1, KVG_LAYOUT_POOL);
    for (int r = 0; r < 2; r++) {
        KvgSequence *fork;
        ck_assert_int_eq(kvg_sequence_fork(scene.s[r][0], 162, 200, &fork), KVG_OK);
        ck_assert_int_eq(kvg_sequence_fork(fork, 162, 201, &fork), KVG_OK);
    }
    kill_rank(&scene, 1);
}

static void refused(const Told *told)
{
    KvgPlaceOptions   place = scene_options(&scene);
    KvgPolicy         policy = scene_policy(&scene);
    KvgGridOptions    options = KVG_GRID_OPTIONS_INIT;
    KvgRebuildOptions with = KVG_REBUILD_OPTIONS_INIT;
    KvgJoin           join = {&scene.g.config, &place, NULL};
    KvgSetup         *setups[2];
    KvgGrid          *grid = NULL;
    KvInproc         *hub;
    KvComm            comm[2];
    KvLiveness        liveness[2];
    KvgStatus         status[2] = {KVG_OK, KVG_OK};
    char              why[2][600] = {"", ""};
    int               done[2] = {0};

    if (told->measured) place.memory_bytes = 0;
    ck_assert_int_eq(kvg_inproc_create(2, &hub), KVG_OK);
    kvg_inproc_advance_ns(hub, kvg_inproc_now_ns(scene.g.hub));
    for (int r = 0; r < 2; r++) ck_assert_int_eq(kvg_inproc_attach(hub, r, &comm[r], &liveness[r]), KVG_OK);
    words = told->word;
    edit_messages_of(&comm[0], change_words);
    with.comm = &comm[0];
    with.liveness = &liveness[0];
    ck_assert_int_eq(kvg_grid_rebuild_start(scene.g.grid[0], (int[]){0}, 1, &with, NULL, &setups[0]), KVG_OK);
    options.tp = 2;
    options.policy = &policy;
    options.comm = &comm[1];
    options.liveness = &liveness[1];
    ck_assert_int_eq(kvg_grid_join_start(1, 2, &options, &join, 1, &grid, NULL, &setups[1]), KVG_OK);
    for (int rounds = 0; !done[0] || !done[1]; rounds++) {
        ck_assert_int_lt(rounds, 100000);
        for (int r = 0; r < 2; r++) {
            if (done[r]) continue;
            status[r] = kvg_setup_test(setups[r], &done[r]);
            if (done[r]) snprintf(why[r], sizeof why[r], "%s", kvg_last_error());
        }
        kvg_inproc_advance_ns(hub, 100000);
        kvg_inproc_advance_ns(scene.g.hub, 100000);
    }
    for (int r = 0; r < 2; r++) kvg_setup_free(setups[r]);
    scene.hubs[scene.hub_count++] = scene.g.hub = hub; /* they have settled over it */
    ck_assert_ptr_null(words);
    ck_assert_ptr_null(grid);
    ck_assert_msg(status[1] == (told->status != KVG_OK ? told->status : KVG_EFORMAT) && strstr(why[1], told->part) != NULL, "%s, not with '%s': %s",
                  kvg_status_name(status[1]), told->part, why[1]);
    ck_assert_msg(status[0] == KVG_EREFUSED, "%s: %s", told->part, why[0]);
    for (int q = 0; q < SEQUENCES; q++) ck_assert_uint_eq(life_info(scene.s[0][q]).rows, scene.rows[q]);
}

/* Units that sequences hold of class 0, for cases that change how many. */
static uint64_t held(int more)
{
    const KvStore *store = scene.g.placement[0]->store;
    return kvg_store_units_total(store, 0) - kvg_store_units_free(store, 0) + (uint64_t)(int64_t)more;
}

static void try_all(const Told *told, size_t count)
{
    open_forks();
    for (size_t i = 0; i < count; i++) refused(&told[i]);
    kvg_rebuild_report_free(scene.report[0]);
    scene.report[0] = NULL;
    ck_assert_msg(rebuild_joined(&scene, NULL, NULL) == KVG_OK, "%s", kvg_last_error()); /* nothing of it has stayed */
    ck_assert_uint_eq(scene.report[0]->kept, 5);
    close_scene(&scene);
}

START_TEST(test_words_about_the_grid_and_its_placements)
{
    static const Told told[] = {
        {{HELLO_WORD(sequences, UINT64_MAX / 8)}, "no account of its sequences", 0, 0},
        {{HELLO_WORD(shares, 1)}, "no account of its sequences", 0, 0},
        {{HELLO_WORD(placements, UINT64_MAX)}, "no account of its sequences", 0, 0},
        {{HELLO_WORD(epoch, UINT32_MAX - 1)}, "the epoch", 0, 0},
        {{HELLO_WORD(placed, (uint64_t)1 << 40)}, "the number of placements so far", 0, 0},
        {{HELLO_WORD(placed, 0)}, "a placement's number", 0, 0},
        {{HELLO_WORD(max_step_sequences, (uint64_t)1 << 20)}, "max_step_sequences", 0, 0},
        {{HELLO_WORD(max_step_sequences, 0)}, "max_step_sequences", 0, 0},
        {{HELLO_WORD(begun, UINT64_MAX)}, "the step", 0, 0},
        {{PLACE_WORD(number, 7)}, "a placement's number", 0, 0},
        {{PLACE_WORD(asleep, 2)}, "its placements", 0, 0},
        {{PLACE_WORD(asleep, 1)}, "its sequences", 0, 0},
        {{PLACE_WORD(class_count, KVG_CLASSES_MAX + 1)}, "its placements", 0, 0},
        {{PLACE_WORD(class_count, 1)}, "its placements", 0, 0},
        {{PLACE_WORD(class_count, 3)}, "the number of classes", 0, 0},
        {{PLACE_WORD(units_max[0], INT32_MAX)}, "may grow to", 0, 0},
        {{PLACE_WORD(units_max[1], UINT32_MAX)}, "its placements", 0, 0},
        {{PLACE_WORD(held[0], 1)}, "its units", 0, 0},
        {{PLACE_WORD(held[0], 40)}, "its units", 0, 0},
        {{{BYTES, 1, 0, 8, (uint64_t)1 << 50}}, "give as many, or 0", KVG_ENOMEM, 0},
        {{{BYTES, 1, 0, 8, (uint64_t)1 << 50}}, "free here", KVG_ENOMEM, 1},
    };
    try_all(told, sizeof told / sizeof *told);
}
END_TEST

START_TEST(test_words_about_where_a_sequence_stands)
{
    static const Told told[] = {
        {{SEQUENCE_WORD(0, tainted, 2)}, "its sequences", 0, 0},
        {{SEQUENCE_WORD(0, placement, 5)}, "its sequences", 0, 0},
        {{SEQUENCE_WORD(1, id, 1)}, "its sequences", 0, 0},
        {{SEQUENCE_WORD(0, place.at, 163)}, "its sequences", 0, 0},
        {{SEQUENCE_WORD(0, place.base[1], 163)}, "its sequences", 0, 0},
        {{SEQUENCE_WORD(0, place.first[0], 9)}, "its sequences", 0, 0},
        {{SEQUENCE_WORD(0, place.end[5], 1)}, "its sequences", 0, 0},
        {{SEQUENCE_WORD(0, place.end[0], 9)}, "its units", 0, 0},
        {{SEQUENCE_WORD(0, place.len, (uint64_t)1 << 40)}, "its length", 0, 0},
        {{SEQUENCE_WORD(1, place.len, 400), SEQUENCE_WORD(1, place.at, 400)}, "its length", 0, 0},
        {{SEQUENCE_WORD(0, place.at, 161)}, "its slot state's row", 0, 0},
        {{SEQUENCE_WORD(0, place.guarantee, 2049)}, "its guarantee", 0, 0},
        {{SEQUENCE_WORD(1, place.base[0], 32), SEQUENCE_WORD(1, place.base[1], 32)}, "its base", 0, 0},
        {{{STREAM, 0, 0, 8, UINT64_MAX}}, "bytes of sequence 101", 0, 0},
        {{{STREAM, 3, 0, 8, 0}}, "bytes of sequence 200", 0, 0},
    };
    try_all(told, sizeof told / sizeof *told);
}
END_TEST

/* Cases whose sums of units are right again. */
START_TEST(test_tables_that_no_sequence_can_have)
{
    uint64_t now;

    open_forks();
    now = held(0);
    refused(&(Told){{SEQUENCE_WORD(1, place.first[0], 1), PLACE_WORD(held[0], now - 1)}, "its first table entry", 0, 0});
    refused(&(Told){{SEQUENCE_WORD(2, place.end[0], 40), PLACE_WORD(held[0], now + 40)}, "its table", 0, 0});
    refused(&(Told){{SEQUENCE_WORD(2, place.end[0], 2), PLACE_WORD(held[0], now + 1)}, "its units", 0, 0});
    close_scene(&scene);
}
END_TEST

/* Shares stand by sequence, class and entry: those of 200 (3) in both classes, then those of 201 (4); all of 101 (0). */
START_TEST(test_shares_that_no_sequences_can_have)
{
    static const Told told[] = {
        {{SHARE_WORD(0, owner, 3)}, "chunks that sequences share", 0, 0},
        {{SHARE_WORD(0, owner, 2)}, "chunks that sequences share", 0, 0}, /* 103 has none */
        {{SHARE_WORD(2, owner, 3)}, "chunks that sequences share", 0, 0}, /* who is no owner of these */
        {{SHARE_WORD(3, sequence, 5)}, "chunks that sequences share", 0, 0},
        {{SHARE_WORD(0, sequence, 4)}, "chunks that sequences share", 0, 0}, /* out of order */
        {{SHARE_WORD(1, class_index, 0)}, "chunks that sequences share", 0, 0}, /* twice */
        {{SHARE_WORD(3, class_index, KVG_CLASSES_MAX)}, "chunks that sequences share", 0, 0},
        {{SHARE_WORD(0, first, 2)}, "chunks that sequences share", 0, 0},
        {{SHARE_WORD(0, end, 3)}, "chunks that sequences share", 0, 0}, /* the last one is partial: a copy */
        {{SHARE_WORD(0, end, UINT64_MAX)}, "chunks that sequences share", 0, 0},
        {{SHARE_WORD(0, end, 1)}, "its units", 0, 0},
        {{SEQUENCE_WORD(3, tainted, 1)}, "chunks that sequences share", 0, 0},
    };
    try_all(told, sizeof told / sizeof *told);
}
END_TEST

/* ---- among survivors: what each says can be, and is not the same */

static size_t shares_less(const KvMessageHeader *header, uint8_t *body, size_t bytes)
{
    RebuildAccount account;
    RebuildPlace  *place = (RebuildPlace *)(void *)(body + sizeof(RebuildHello));

    if (header->kind != KVG_MESSAGE_SETUP || bytes < sizeof(RebuildHello) + sizeof *place || ((RebuildHello *)(void *)body)->shares == 0) return bytes;
    kvg_rebuild_account(body, 3, 0, &account);
    ((KvCarryShare *)(uintptr_t)&account.shares[0])->end--;
    place->held[account.shares[0].class_index]++;
    return bytes;
}

START_TEST(test_shares_that_survivors_tell_otherwise_keep_lengths_alone)
{
    KvgSetup *setups[2] = {0};
    int       done[2] = {0};

    scene = (Scene){0};
    open_scene(&scene, &some_models[1], 3, 1, KVG_LAYOUT_POOL);
    for (int r = 0; r < 3; r++) {
        KvgSequence *fork;
        ck_assert_int_eq(kvg_sequence_fork(scene.s[r][0], 162, 200, &fork), KVG_OK);
    }
    kill_rank(&scene, 2);
    edit_messages_of(&scene.g.grid[1]->comm, shares_less);
    for (int r = 0; r < 2; r++) ck_assert_int_eq(kvg_grid_rebuild_start(scene.g.grid[r], (int[]){0, 1}, 2, NULL, &scene.report[r], &setups[r]), KVG_OK);
    for (int rounds = 0; !done[0]; rounds++) {
        ck_assert_int_lt(rounds, 100000);
        if (!done[1]) kvg_setup_test(setups[1], &done[1]);
        kvg_setup_test(setups[0], &done[0]);
        kvg_inproc_advance_ns(scene.g.hub, 100000);
    }
    ck_assert_ptr_nonnull(scene.report[0]);
    ck_assert_uint_eq(scene.report[0]->count, SEQUENCES + 1);
    for (uint32_t n = 0; n < scene.report[0]->count; n++) ck_assert_int_eq(scene.report[0]->sequences[n].loss, KVG_LOSS_CALLS);
    for (int r = 0; r < 2; r++) kvg_setup_free(setups[r]);
    close_scene(&scene);
}
END_TEST

LIFE_MAIN("rebuild_told", test_words_about_the_grid_and_its_placements, test_words_about_where_a_sequence_stands, test_tables_that_no_sequence_can_have,
          test_shares_that_no_sequences_can_have, test_shares_that_survivors_tell_otherwise_keep_lengths_alone)

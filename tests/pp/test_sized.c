/* Sized structs: callers that know fewer fields, or more, over every public struct that says its size. */
#include <dirent.h>
#include <unistd.h>

#include <kvgrid/mesh.h>
#include <kvgrid/rendezvous.h>
#include <kvgrid/shm.h>

#include "runtime/base/sized.h"
#include "pp/stats_impl.h"
#include "tests/support/grid_life.h"
#include "tests/support/kinds_run.h"

enum { ROOM = 4096 };

/* ---- a rank with all it needs, for calls that take such a struct */

static struct {
    TestGrid     g;
    KvgSequence *sequence;
    KvgStep     *step;
    KvgAccounts *accounts;
} world;

static void open_world(const char *model)
{
    KvgPlaceOptions options = life_options(2, 4u << 20);
    static char     text[1 << 14];
    size_t          bytes = 0;

    memset(&world, 0, sizeof world);
    grid_connect(&world.g, 1, 1, NULL, 0);
    ck_assert_int_eq(kvg_model_config_parse_json(model, strlen(model), "small", &world.g.config), KVG_OK);
    ck_assert_msg(grid_place(&world.g, &world.g.config, &options, NULL) == KVG_OK, "%s", kvg_last_error());
    ck_assert_int_eq(kvg_batch_create(world.g.placement[0], 1, &world.g.batch[0]), KVG_OK);
    ck_assert_int_eq(kvg_sequence_open(world.g.placement[0], 1, 0, &world.sequence), KVG_OK);
    ck_assert_int_eq(kvg_batch_set(world.g.batch[0], 0, world.sequence), KVG_OK);
    ck_assert_int_eq(kvg_placement_to_json(world.g.placement[0], text, sizeof text, &bytes), KVG_OK);
    ck_assert_int_eq(kvg_accounts_from_json(text, bytes - 1, NULL, &world.accounts), KVG_OK);
    ck_assert_int_eq(kvg_accounts_open(world.accounts, 1, 0), KVG_OK);
}

static void close_world(void)
{
    kvg_accounts_destroy(world.accounts);
    kvg_sequence_close(world.sequence, NULL);
    grid_close(&world.g);
}

static void begin(void)
{
    ck_assert_msg(kvg_step_begin(world.g.batch[0], (uint32_t[]){ 1 }, &world.step) == KVG_OK, "%s", kvg_last_error());
}

static void end(void)
{
    KvgCommit commit = KVG_COMMIT_INIT;

    commit.accept_all = 1;
    ck_assert_msg(kvg_step_post(world.step, &commit) == KVG_OK && kvg_step_wait(world.step, NULL) == KVG_OK, "%s", kvg_last_error());
}

/* The first layer of the model that has a view of the kind. */
static uint32_t layer_with(const void *(*view)(uint32_t il))
{
    for (uint32_t il = 0; il < 4; il++) {
        if (view(il) != NULL) return il;
    }
    ck_abort_msg("the model has no such layer");
    return 0;
}
static const void *kv_view(uint32_t il) { return kvg_plane_view(world.g.batch[0], il); }
static const void *latent_view(uint32_t il) { return kvg_latent_view(world.g.batch[0], il); }
static const void *recurrent_view(uint32_t il) { return kvg_recurrent_view(world.g.batch[0], il); }

/* ---- structs that go in: a call whose struct is `given` */

static KvgStatus give_grid_options(void *given)
{
    KvgBootstrap bootstrap = KVG_BOOTSTRAP_INIT;
    KvgGrid     *grid = NULL;
    KvgStatus    status = kvg_grid_create(&bootstrap, given, &grid);

    kvg_grid_destroy(grid);
    return status;
}

static KvgStatus give_bootstrap(void *given)
{
    KvgGridOptions options = KVG_GRID_OPTIONS_INIT;
    KvgGrid       *grid = NULL;
    KvgStatus      status = kvg_grid_create(given, &options, &grid);

    kvg_grid_destroy(grid);
    return status;
}

static KvgStatus give_policy(void *given)
{
    KvgGridOptions options = KVG_GRID_OPTIONS_INIT;

    options.policy = given;
    return give_grid_options(&options);
}

static KvgStatus give_mesh_options(void *given)
{
    KvgBootstrap bootstrap = KVG_BOOTSTRAP_INIT;
    KvComm       comm;
    KvLiveness   liveness;
    KvgStatus    status = kvg_mesh_create(&bootstrap, given, &comm, &liveness);

    if (status == KVG_OK) {
        comm.ops->close(comm.self);
        liveness.ops->close(liveness.self);
    }
    return status;
}

static KvgStatus give_shm_options(void *given)
{
    KvgBootstrap bootstrap = KVG_BOOTSTRAP_INIT;
    int          fd = -1;
    KvgStatus    status;

    ck_assert_int_eq(kvg_shm_memory(1, &fd), KVG_OK);
    ((KvShmOptions *)given)->fd = fd;
    status = kvg_shm_bootstrap_create(given, &bootstrap);
    kvg_shm_bootstrap_destroy(&bootstrap);
    close(fd);
    return status;
}

static KvgStatus give_rendezvous_options(void *given)
{
    KvgBootstrap bootstrap = KVG_BOOTSTRAP_INIT;
    KvgStatus    status = kvg_rendezvous_create(given, &bootstrap);

    kvg_rendezvous_destroy(&bootstrap);
    return status;
}

static KvgStatus give_shm_comm_options(void *given)
{
    KvgBootstrap bootstrap = KVG_BOOTSTRAP_INIT;
    KvComm       comm;
    KvLiveness   liveness;
    KvgStatus    status = kvg_comm_shm_create(&bootstrap, given, &comm, &liveness);

    if (status == KVG_OK) {
        comm.ops->close(comm.self);
        liveness.ops->close(liveness.self);
    }
    return status;
}

static KvgStatus give_plan_options(void *given)
{
    KvGridPlan plan;
    KvgStatus  status = kvg_grid_plan(&world.g.config, given, &plan);

    if (status == KVG_OK) kvg_grid_plan_free(&plan);
    return status;
}

static KvgStatus give_place_options(void *given)
{
    KvgPlacement *placement = NULL;
    KvgStatus     status;

    ((KvgPlaceOptions *)given)->memory_bytes = 4u << 20;
    status = kvg_place(world.g.grid[0], &world.g.config, given, &placement);
    kvg_placement_destroy(placement);
    return status;
}

static KvgStatus give_rebuild_options(void *given)
{
    return kvg_grid_rebuild(world.g.grid[0], NULL, (int[]){ 0 }, 1, given, NULL);
}

static KvgStatus give_accounts_options(void *given)
{
    static char  text[1 << 14];
    size_t       bytes = 0;
    KvgAccounts *accounts = NULL;
    KvgStatus    status;

    ck_assert_int_eq(kvg_placement_to_json(world.g.placement[0], text, sizeof text, &bytes), KVG_OK);
    status = kvg_accounts_from_json(text, bytes - 1, given, &accounts);
    kvg_accounts_destroy(accounts);
    return status;
}

static KvgStatus give_rows(void *given)
{
    static float values[4096];
    KvgRows     *rows = given;
    KvgStatus    status;

    begin();
    rows->k = rows->v = values;
    status = kvg_write_kv(world.g.batch[0], layer_with(kv_view), rows, NULL);
    end();
    return status;
}

static KvgStatus give_latent_rows(void *given)
{
    static float   values[4096];
    KvgLatentRows *rows = given;
    KvgStatus      status;

    begin();
    rows->latent = rows->index = values;
    status = kvg_write_latent(world.g.batch[0], layer_with(latent_view), rows, NULL);
    end();
    return status;
}

static void fill_nothing(void *user, uint32_t il, uint32_t slot, uint64_t row, float *x, float *u)
{
    (void)user, (void)il, (void)slot, (void)row, (void)x, (void)u;
}

static KvgStatus give_recurrent_rows(void *given)
{
    static float      values[4096];
    KvgRecurrentRows *rows = given;
    KvgStatus         status;

    begin();
    rows->fill = fill_nothing;
    rows->scratch = values;
    status = kvg_recurrent_update(world.g.batch[0], layer_with(recurrent_view), rows, NULL);
    end();
    return status;
}

static KvgStatus give_commit(void *given)
{
    KvgStatus status;

    begin();
    status = kvg_step_post(world.step, given);
    if (status == KVG_OK) kvg_step_wait(world.step, NULL); /* nobody accepted: rolled back */
    else end();
    return status;
}

static KvgStatus give_capture(void *given)
{
    return kvg_batch_capture_begin(world.g.batch[0], given, NULL);
}

static KvgPolicy policy_init;
static const KvgGridOptions     grid_init = KVG_GRID_OPTIONS_INIT;
static const KvgBootstrap       bootstrap_init = KVG_BOOTSTRAP_INIT;
static const KvMeshOptions      mesh_init = KVG_MESH_OPTIONS_INIT;
static const KvShmOptions       shm_init = KVG_SHM_OPTIONS_INIT;
static const KvRendezvousOptions rendezvous_init = KVG_RENDEZVOUS_OPTIONS_INIT;
static const KvShmCommOptions   shm_comm_init = KVG_SHM_COMM_OPTIONS_INIT;
static const KvGridPlanOptions  plan_init = KVG_GRID_PLAN_OPTIONS_INIT;
static const KvgPlaceOptions    place_init = KVG_PLACE_OPTIONS_INIT;
static const KvgRebuildOptions  rebuild_init = KVG_REBUILD_OPTIONS_INIT;
static const KvgAccountsOptions accounts_init = KVG_ACCOUNTS_OPTIONS_INIT;
static const KvgRows            rows_init = KVG_ROWS_INIT;
static const KvgLatentRows      latent_init = KVG_LATENT_ROWS_INIT;
static const KvgRecurrentRows   recurrent_init = KVG_RECURRENT_ROWS_INIT;
static const KvgCommit          commit_init = KVG_COMMIT_INIT;
static const KvgCapture         capture_init = KVG_CAPTURE_INIT;

static const struct {
    const char *name;
    const void *init;
    size_t      bytes, needed; /* fields that the call here sets end there */
    KvgStatus (*give)(void *given);
    const char *model;
} ins[] = {
#define IN(type, init, needed, give, model) { #type, &init, sizeof(type), needed, give, model }
    IN(KvgGridOptions, grid_init, 0, give_grid_options, qwen3_next),
    IN(KvgBootstrap, bootstrap_init, 0, give_bootstrap, qwen3_next),
    IN(KvgPolicy, policy_init, 0, give_policy, qwen3_next),
    IN(KvMeshOptions, mesh_init, 0, give_mesh_options, qwen3_next),
    IN(KvShmOptions, shm_init, offsetof(KvShmOptions, rank), give_shm_options, qwen3_next),
    IN(KvRendezvousOptions, rendezvous_init, 0, give_rendezvous_options, qwen3_next),
    IN(KvShmCommOptions, shm_comm_init, 0, give_shm_comm_options, qwen3_next),
    IN(KvGridPlanOptions, plan_init, 0, give_plan_options, qwen3_next),
    IN(KvgPlaceOptions, place_init, offsetof(KvgPlaceOptions, memory_max_bytes), give_place_options, qwen3_next),
    IN(KvgRebuildOptions, rebuild_init, 0, give_rebuild_options, qwen3_next),
    IN(KvgAccountsOptions, accounts_init, 0, give_accounts_options, qwen3_next),
    IN(KvgRows, rows_init, offsetof(KvgRows, dtype), give_rows, qwen3_next),
    IN(KvgLatentRows, latent_init, offsetof(KvgLatentRows, dtype), give_latent_rows, deepseek),
    IN(KvgRecurrentRows, recurrent_init, sizeof(KvgRecurrentRows), give_recurrent_rows, qwen3_next),
    IN(KvgCommit, commit_init, 0, give_commit, qwen3_next),
    IN(KvgCapture, capture_init, 0, give_capture, qwen3_next),
};
enum { INS = sizeof ins / sizeof *ins };

/* The call with a struct of `size`, whose byte at `set` (0: none) is not zero. What the call does not read is poison. */
static KvgStatus give(int which, size_t size, size_t told, size_t set)
{
    static union {
        uint64_t align;
        uint8_t  bytes[ROOM];
    } room;

    memset(&room, 0xdb, sizeof room);
    memset(&room, 0, size);
    memcpy(&room, ins[which].init, size < ins[which].bytes ? size : ins[which].bytes);
    memcpy(&room, &told, sizeof told);
    if (set != 0) room.bytes[set] = 1;
    return ins[which].give(&room);
}

static int names_size(int which)
{
    char what[64];

    snprintf(what, sizeof what, "%s.size", ins[which].name);
    return strstr(kvg_last_error(), what) != NULL;
}

START_TEST(a_struct_of_another_size_is_taken_for_an_older_or_newer_callers)
{
    size_t    bytes = ins[_i].bytes;
    KvgStatus now;

    kvg_policy_default(&policy_init);
    open_world(ins[_i].model);
    now = give(_i, bytes, bytes, 0);
    for (size_t size = ins[_i].needed > 16 ? (ins[_i].needed + 7) / 8 * 8 : 16; size < bytes; size += 8) { /* fields that it does not know are as always */
        KvgStatus status = give(_i, size, size, 0);
        ck_assert_msg(status == now, "%s of %zu bytes: %s, whole: %s [%s]", ins[_i].name, size, kvg_status_name(status), kvg_status_name(now), kvg_last_error());
    }
    ck_assert_int_eq(give(_i, bytes + 8, bytes + 8, 0), now); /* a newer caller that asks for nothing new */
    ck_assert_int_eq(give(_i, bytes + 64, bytes + 64, 0), now);
    ck_assert_int_eq(give(_i, bytes + 8, bytes + 8, bytes), KVG_EINVAL);
    ck_assert(names_size(_i) && strstr(kvg_last_error(), "newer") != NULL);
    ck_assert_int_eq(give(_i, bytes + 64, bytes + 64, bytes + 63), KVG_EINVAL);
    ck_assert(names_size(_i));
    for (size_t i = 0; i < 6; i++) {
        size_t never[] = { 0, 1, 8, bytes - 4, bytes + 1, SIZE_MAX / 2 };
        ck_assert_int_eq(give(_i, bytes, never[i], 0), KVG_EINVAL);
        ck_assert_msg(names_size(_i), "%s: %s", ins[_i].name, kvg_last_error());
    }
    close_world();
}
END_TEST

/* ---- structs that come out */

static KvgStatus take_stats(void *target) { return kvg_stats(world.g.placement[0], target); }
static KvgStatus take_info(void *target) { return kvg_sequence_info(world.sequence, target); }
static KvgStatus take_account(void *target) { return kvg_accounts_info(world.accounts, 1, target); }
static KvgStatus take_arrays(void *target) { return kvg_run_arrays(world.g.batch[0], target); }
static KvgStatus take_result(void *target) { return kvg_run_result(NULL, target); }

static const struct {
    const char *name;
    size_t      bytes;
    KvgStatus (*take)(void *target);
    KvgStatus   now; /* there is no run on a host: only the size is judged */
    size_t      least; /* of its first version */
    const char *words; /* of the refusal */
} outs[] = {
    { "KvgStats", sizeof(KvgStats), take_stats, KVG_OK, KVG_STATS_FIRST_BYTES, "KvgStats" },
    { "KvgSequenceInfo", sizeof(KvgSequenceInfo), take_info, KVG_OK, 16, "KvgSequenceInfo.size" },
    { "KvgSequenceInfo", sizeof(KvgSequenceInfo), take_account, KVG_OK, 16, "KvgSequenceInfo.size" },
    { "KvgRunArrays", sizeof(KvgRunArrays), take_arrays, KVG_ESTALE, 16, "KvgRunArrays.size" },
    { "KvgRunResult", sizeof(KvgRunResult), take_result, KVG_EINVAL, 16, "KvgRunResult.size" },
};
enum { OUTS = sizeof outs / sizeof *outs };

START_TEST(a_result_fills_what_the_caller_has_room_for)
{
    static uint8_t whole[ROOM], room[ROOM];
    size_t         bytes = outs[_i].bytes;

    open_world(qwen3_next);
    memcpy(whole, &bytes, sizeof bytes);
    ck_assert_int_eq(outs[_i].take(whole), outs[_i].now);
    for (size_t size = outs[_i].least; size <= bytes + 64; size += 8) {
        memset(room, 0xdb, sizeof room);
        memcpy(room, &size, sizeof size);
        ck_assert_int_eq(outs[_i].take(room), outs[_i].now);
        ck_assert_mem_eq(room, &size, sizeof size);
        if (outs[_i].now == KVG_OK) {
            ck_assert_mem_eq(room + 8, whole + 8, (size < bytes ? size : bytes) - 8);
            for (size_t i = bytes; i < size; i++) {
                if (room[i] != 0) ck_abort_msg("%s: byte %zu of a newer caller's is not 0", outs[_i].name, i);
            }
        }
        for (size_t i = size; i < ROOM; i++) {
            if (room[i] != 0xdb) ck_abort_msg("%s of %zu bytes: byte %zu was written", outs[_i].name, size, i);
        }
    }
    for (size_t i = 0; i < 4; i++) {
        size_t never[] = { 0, 1, 8, bytes + 1 };
        memcpy(room, &never[i], sizeof *never);
        ck_assert_int_eq(outs[_i].take(room), KVG_EINVAL);
        ck_assert_msg(strstr(kvg_last_error(), outs[_i].words) != NULL, "%s", kvg_last_error());
    }
    close_world();
}
END_TEST

/* ---- nobody is forgotten */

/* Filled whole by the library or a table of functions (kvgrid.h), or of a library that is not linked here. */
static const char *const elsewhere[] = { "KvgOutcome", "KvgLedger", "KvgRebuildReport", "KvgTracer", "KvgCudaOptions", "KvCommBoardOptions", "KvNcclVoteOptions",
                                         "KvNcclCommOptions" };

static int is_tabled(const char *name)
{
    int found = 0;

    for (int i = 0; i < INS; i++) found |= strcmp(ins[i].name, name) == 0;
    for (int i = 0; i < OUTS; i++) found |= strcmp(outs[i].name, name) == 0;
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) found |= strcmp(elsewhere[i], name) == 0;
    return found;
}

/* Reads one header: after "typedef struct NAME {", a first member "size_t size;". */
static int read_header(const char *path)
{
    char  line[4096], name[64] = "";
    int   sized = 0;
    FILE *file = fopen(path, "r");

    ck_assert_msg(file != NULL, "%s", path);
    while (fgets(line, sizeof line, file) != NULL) {
        char member[64];
        int  at = 0;

        if (sscanf(line, "typedef struct %63[A-Za-z] {", member) == 1) {
            snprintf(name, sizeof name, "%s", member);
        } else if (name[0] != '\0' && sscanf(line, " size_t size;%n", &at) == 0 && at > 0) {
            sized++;
            ck_assert_msg(is_tabled(name), "%s of %s has a size and is not in this test's table", name, path);
            name[0] = '\0';
        } else {
            name[0] = '\0';
        }
    }
    fclose(file);
    return sized;
}

START_TEST(every_public_struct_with_a_size_stands_in_the_table)
{
    char           path[1024];
    struct dirent *entry;
    DIR           *directory = opendir(KVG_BUILD_DIR "/include/kvgrid");
    int            sized = 0;

    ck_assert_ptr_nonnull(directory);
    while ((entry = readdir(directory)) != NULL) {
        if (strstr(entry->d_name, ".h") == NULL) continue;
        snprintf(path, sizeof path, KVG_BUILD_DIR "/include/kvgrid/%s", entry->d_name);
        sized += read_header(path);
    }
    closedir(directory);
    ck_assert_int_ge(sized, INS + OUTS - 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sized");
    TCase *tc = tcase_create("sized");

    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, a_struct_of_another_size_is_taken_for_an_older_or_newer_callers, 0, INS);
    tcase_add_loop_test(tc, a_result_fills_what_the_caller_has_room_for, 0, OUTS);
    tcase_add_test(tc, every_public_struct_with_a_size_stands_in_the_table);
    suite_add_tcase(suite, tc);
    return life_run(suite);
}

/* Accounts: their life, looking at them, and the posted calls. Steps are in accounts_step.c. */
#include "pp/accounts_impl.h"

#include <string.h>

#include "runtime/base/checked.h"

#define MEMORY_MAX_DEFAULT ((uint64_t)256 << 20)

/* ---- loading */

/* *sum += a * b * c, as far as 64 bits go. */
static void add_product(uint64_t *sum, uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t product;

    if (!kvg_mul_u64(a, b, &product) || !kvg_mul_u64(product, c, &product) || !kvg_add_u64(*sum, product, sum)) {
        *sum = UINT64_MAX;
    }
}

/* What a text says of slots and units is not bounded by its size: the sum of what will be allocated for it. */
static uint64_t memory_of(const Placed *placed)
{
    uint64_t classes = placed->class_count > 0 ? placed->class_count : 1, sum = sizeof(KvgAccounts);
    uint64_t stride = placed->layout == KVG_LAYOUT_POOL ? kvg_ceil_div_u64(placed->max_ctx, KVG_CHUNK_ROWS) : 0;
    uint64_t unit_bytes = placed->layout == KVG_LAYOUT_POOL ? 2 * sizeof(uint32_t) : 0;

    add_product(&sum, placed->max_sequences, sizeof(Account) + sizeof(uint32_t), 1);
    add_product(&sum, placed->max_sequences, 6 + classes * (1 + stride), sizeof(int32_t));
    add_product(&sum, placed->max_sequences, classes, 4 * sizeof(uint64_t)); /* spans and slots of the store */
    for (uint32_t c = 0; c < placed->class_count; c++) {
        add_product(&sum, placed->classes[c].units_max, unit_bytes, 1);
    }
    if (placed->class_count == 0) {
        add_product(&sum, kvg_ceil_div_u64(placed->max_ctx, KVG_CHUNK_ROWS), placed->max_sequences, unit_bytes);
    }
    add_product(&sum, 2 * placed->max_in_flight, sizeof(AccountsStep), 1);
    add_product(&sum, 2 * placed->max_in_flight, placed->max_step_sequences, sizeof(AccountsEntry));
    return sum;
}

static KvgStatus check_memory(const Placed *placed, const KvgAccountsOptions *options)
{
    uint64_t most = options->memory_max_bytes != 0 ? options->memory_max_bytes : MEMORY_MAX_DEFAULT, need = memory_of(placed);

    if (need <= most) {
        return KVG_OK;
    }
    return kvg_fail(KVG_ECAPACITY, "accounts of %llu slots with tables for %llu rows take %llu bytes and memory_max_bytes is %llu; raise it if the text "
                    "is your placement's", (unsigned long long)placed->max_sequences, (unsigned long long)placed->max_ctx, (unsigned long long)need,
                    (unsigned long long)most);
}

static KvgStatus create_store(KvgAccounts *accounts)
{
    const Placed   *placed = &accounts->placed;
    KvClassGeometry classes[KVG_CLASSES_MAX];
    KvStoreOptions  options = { .dev = &accounts->device, .layout = (KvLayout)placed->layout, .classes = classes,
                                .class_count = kvg_placed_classes(placed, classes), .slots = accounts->slots, .max_ctx = placed->max_ctx,
                                .has_recurrent = placed->columns != 0, .columns = (uint32_t)placed->columns,
                                .index_pool = (uint32_t)placed->index_pool, .index_ring_rows = placed->index_ring };

    return kvg_store_create(&options, &accounts->store);
}

static KvgStatus create_steps(KvgAccounts *accounts)
{
    size_t places = (size_t)accounts->placed.max_step_sequences;

    accounts->ring = 2 * (uint32_t)accounts->placed.max_in_flight;
    KVG_TRY(KVG_NEW(accounts->ring, "accounts' steps", &accounts->steps));
    KVG_TRY(KVG_NEW(accounts->ring * places, "accounts' steps", &accounts->entries));
    for (uint32_t i = 0; i < accounts->ring; i++) {
        accounts->steps[i].entries = accounts->entries + i * places;
    }
    return KVG_OK;
}

/* From accounts->placed; what is made in part is freed by destroy. */
static KvgStatus create(KvgAccounts *accounts)
{
    accounts->slots = (uint32_t)accounts->placed.max_sequences;
    for (uint32_t c = 0; c < accounts->placed.class_count; c++) {
        accounts->classes[c] = kvg_placed_class(&accounts->placed, c);
    }
    KVG_TRY(kvg_dev_host(&accounts->device));
    KVG_TRY(create_store(accounts));
    KVG_TRY(KVG_NEW(accounts->slots, "accounts", &accounts->account));
    KVG_TRY(KVG_NEW(accounts->slots, "accounts", &accounts->free_slots));
    for (uint32_t i = 0; i < accounts->slots; i++) {
        accounts->free_slots[i] = accounts->slots - 1 - i; /* slot 0 is taken first, as on a rank */
    }
    accounts->free_count = accounts->slots;
    return create_steps(accounts);
}

KvgStatus kvg_accounts_from_json(const char *text, size_t bytes, const KvgAccountsOptions *options, KvgAccounts **accounts_p)
{
    static const KvgAccountsOptions defaults = KVG_ACCOUNTS_OPTIONS_INIT;
    KvgAccountsOptions              own;
    Placed                          placed = { .ranks = NULL };
    KvgAccounts                    *accounts;
    KvgStatus                       status;

    if (text == NULL || accounts_p == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_accounts_from_json needs a text and a place for the accounts");
    }
    KVG_TRY(KVG_SIZED_IN(KvgAccountsOptions, options, defaults, own));
    KVG_TRY(kvg_placed_parse(text, bytes, &placed));
    KVG_TRY_GOTO(check_memory(&placed, &own), err_free_placed);
    KVG_TRY_GOTO(KVG_NEW(1, "accounts", &accounts), err_free_placed);
    accounts->placed = placed;
    status = create(accounts);
    if (status != KVG_OK) {
        kvg_accounts_destroy(accounts);
        return status;
    }
    *accounts_p = accounts;
    return KVG_OK;
err_free_placed:
    kvg_placed_free(&placed);
    return status;
}

static void drop(KvgAccounts *accounts, Account *account)
{
    AccountsStep *step = kvg_accounts_step_at(accounts, account->last_step);

    if (account->last_step != 0 && step->number == account->last_step) {
        step->entries[account->entry].account = NULL; /* the step goes on without it; nothing is left to free behind it */
    }
    accounts->free_slots[accounts->free_count++] = account->cache.slot;
    kvg_kv_cache_close(&account->cache, NULL);
    account->open = 0;
}

void kvg_accounts_destroy(KvgAccounts *accounts)
{
    if (accounts == NULL) {
        return;
    }
    for (uint32_t i = 0; accounts->account != NULL && i < accounts->slots; i++) {
        if (accounts->account[i].open) {
            drop(accounts, &accounts->account[i]);
        }
    }
    kvg_store_destroy(accounts->store);
    if (accounts->device.ops != NULL) {
        kvg_dev_close(&accounts->device);
    }
    kvg_free(accounts->entries);
    kvg_free(accounts->steps);
    kvg_free(accounts->free_slots);
    kvg_free(accounts->account);
    kvg_placed_free(&accounts->placed);
    kvg_free(accounts);
}

KvgStatus kvg_accounts_to_json(const KvgAccounts *accounts, char *text, size_t room, size_t *bytes)
{
    if (accounts == NULL || bytes == NULL || (text == NULL && room > 0)) {
        return kvg_fail(KVG_EINVAL, "kvg_accounts_to_json needs accounts, a place for the count, and room for the text or none");
    }
    return kvg_placed_write(&accounts->placed, text, room, bytes);
}

/* ---- resize */

/* All but what a resize changes. */
static KvgStatus check_same(const Placed *now, const Placed *next)
{
    const uint64_t *a = (const uint64_t *)now, *b = (const uint64_t *)next;

    for (size_t i = 0; i < offsetof(Placed, cache_tokens) / sizeof *a; i++) {
        if (a[i] != b[i]) {
            return kvg_fail(KVG_EFORMAT, "the text is another placement's: its limits and shape differ; load it as accounts of its own");
        }
    }
    if (now->class_count != next->class_count) {
        return kvg_fail(KVG_EFORMAT, "the text is another placement's: it has %u classes, not %u", next->class_count, now->class_count);
    }
    for (uint32_t c = 0; c < now->class_count; c++) {
        const PlacedClass *x = &now->classes[c], *y = &next->classes[c];
        if (x->window != y->window || x->ring != y->ring || x->kind != y->kind || x->units_max != y->units_max || x->layers != y->layers) {
            return kvg_fail(KVG_EFORMAT, "the text is another placement's: class %u differs in more than its units", c);
        }
    }
    return KVG_OK;
}

static KvgStatus resize(KvgAccounts *accounts, const Placed *next)
{
    uint32_t units[KVG_CLASSES_MAX] = { kvg_store_units_total(accounts->store, 0) }; /* of recurrent layers alone: they stay */

    KVG_TRY(check_same(&accounts->placed, next));
    if (accounts->ended != accounts->begun) {
        return kvg_fail(KVG_EBUSY, "the end of step %llu has not been told; a rank decides it before it resizes", (unsigned long long)accounts->ended + 1);
    }
    for (uint32_t c = 0; c < next->class_count; c++) {
        units[c] = (uint32_t)next->classes[c].units;
    }
    KVG_TRY(kvg_store_resize_prepare(accounts->store, units));
    kvg_store_resize_publish(accounts->store);
    return KVG_OK;
}

KvgStatus kvg_accounts_resize(KvgAccounts *accounts, const char *text, size_t bytes)
{
    Placed    next = { .ranks = NULL };
    KvgStatus status;

    if (accounts == NULL || text == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_accounts_resize needs accounts and a text");
    }
    KVG_TRY(kvg_placed_parse(text, bytes, &next));
    status = resize(accounts, &next);
    if (status != KVG_OK) {
        kvg_placed_free(&next);
        return status;
    }
    kvg_placed_free(&accounts->placed);
    accounts->placed = next;
    for (uint32_t c = 0; c < next.class_count; c++) {
        accounts->classes[c] = kvg_placed_class(&next, c);
    }
    return KVG_OK;
}

/* ---- looking */

void kvg_accounts_ledger(const KvgAccounts *accounts, KvgLedger *ledger)
{
    *ledger = (KvgLedger){ .size = sizeof *ledger, .class_count = accounts->placed.class_count, .slots_total = accounts->slots,
                           .slots_free = accounts->free_count, .max_ctx = accounts->placed.max_ctx };
    for (uint32_t c = 0; c < accounts->placed.class_count; c++) {
        ledger->classes[c] = accounts->classes[c];
        ledger->units_free[c] = kvg_store_units_free(accounts->store, c);
    }
}

Account *kvg_accounts_find(const KvgAccounts *accounts, uint64_t id)
{
    for (uint32_t i = 0; i < accounts->slots; i++) {
        if (accounts->account[i].open && accounts->account[i].id == id) {
            return &accounts->account[i];
        }
    }
    return NULL;
}

KvgStatus kvg_accounts_need(const KvgAccounts *accounts, uint64_t id, Account **account)
{
    if (accounts == NULL || (*account = kvg_accounts_find(accounts, id)) == NULL) {
        return kvg_fail(KVG_ESTALE, "no sequence with id %llu is open", (unsigned long long)id);
    }
    return KVG_OK;
}

int kvg_account_in_step(const KvgAccounts *accounts, const Account *account)
{
    const AccountsStep *step = kvg_accounts_step_at(accounts, account->last_step);

    return account->last_step > accounts->ended && step->number == account->last_step && !step->ended;
}

KvgStatus kvg_accounts_info(const KvgAccounts *accounts, uint64_t id, KvgSequenceInfo *info)
{
    KvgSequenceInfo own;
    Account        *account;

    KVG_TRY(kvg_accounts_need(accounts, id, &account));
    own = (KvgSequenceInfo){ .id = id, .rows = account->cache.pos, .rows_staged = kvg_kv_cache_staged(&account->cache),
                             .rows_booked = kvg_kv_cache_rows_booked(&account->cache), .replay = kvg_kv_cache_replay(&account->cache),
                             .generation = account->generation, .slot = account->cache.slot, .tainted = account->cache.tainted,
                             .in_step = kvg_account_in_step(accounts, account) ? 2 : 0 };
    return KVG_SIZED_OUT(KvgSequenceInfo, own, info);
}

KvgStatus kvg_accounts_booked_bytes(const KvgAccounts *accounts, uint32_t rank, uint64_t *bytes)
{
    const PlacedRank *at;
    uint64_t          sum;

    if (accounts == NULL || bytes == NULL || rank >= kvg_placed_ranks(&accounts->placed)) {
        return kvg_fail(KVG_EINVAL, "kvg_accounts_booked_bytes needs accounts, a rank of theirs and a place for the bytes; rank %u", rank);
    }
    at = &accounts->placed.ranks[rank];
    sum = (accounts->slots - accounts->free_count) * at->slot_bytes;
    for (uint32_t c = 0; c < kvg_store_class_count(accounts->store); c++) {
        uint64_t units = kvg_store_units_total(accounts->store, c) - kvg_store_units_free(accounts->store, c);

        sum += units * at->unit_bytes[c]; /* 0 where there are recurrent layers alone */
        for (uint32_t slot = 0; accounts->placed.layout == KVG_LAYOUT_POOL && slot < accounts->slots; slot++) {
            sum += (uint64_t)kvg_store_held(accounts->store, c, slot) * sizeof(int32_t);
        }
    }
    *bytes = sum;
    return KVG_OK;
}

/* ---- posted calls */

/* As kvg_sequence_settle_last: a moment at which every rank frees what fell behind windows. */
static KvgStatus settled(KvgAccounts *accounts, uint64_t id, Account **account)
{
    KVG_TRY(kvg_accounts_need(accounts, id, account));
    if (kvg_account_in_step(accounts, *account)) {
        return kvg_fail(KVG_EBUSY, "sequence %llu is in step %llu, whose end has not been told; kvg_accounts_decide it first", (unsigned long long)id,
                        (unsigned long long)(*account)->last_step);
    }
    kvg_kv_cache_release_behind(&(*account)->cache);
    return KVG_OK;
}

static KvgStatus check_id(const KvgAccounts *accounts, uint64_t id)
{
    if (accounts == NULL) {
        return kvg_fail(KVG_EINVAL, "no accounts");
    }
    if (kvg_accounts_find(accounts, id) != NULL) {
        return kvg_fail(KVG_EINVAL, "a sequence with id %llu is open already; ids are unique among open sequences", (unsigned long long)id);
    }
    if (accounts->free_count == 0) {
        return kvg_fail(KVG_EBUSY, "all %u sequences (max_sequences) are open; close one first", accounts->slots);
    }
    return KVG_OK;
}

static Account *take(KvgAccounts *accounts, uint64_t id)
{
    uint32_t slot = accounts->free_slots[--accounts->free_count];
    Account *account = &accounts->account[slot];

    memset(account, 0, sizeof *account);
    account->id = id;
    account->open = 1;
    account->generation = (uint64_t)1 << 32; /* a grid's first epoch */
    kvg_kv_cache_open(accounts->store, slot, ++accounts->serial, &account->cache);
    return account;
}

KvgStatus kvg_accounts_open(KvgAccounts *accounts, uint64_t id, uint64_t rows)
{
    Account  *account;
    KvgStatus status;

    KVG_TRY(check_id(accounts, id));
    account = take(accounts, id);
    status = kvg_kv_cache_book(&account->cache, rows);
    if (status != KVG_OK) {
        drop(accounts, account);
    }
    return status;
}

KvgStatus kvg_accounts_close(KvgAccounts *accounts, uint64_t id)
{
    Account *account;

    KVG_TRY(kvg_accounts_need(accounts, id, &account));
    drop(accounts, account);
    return KVG_OK;
}

KvgStatus kvg_accounts_book(KvgAccounts *accounts, uint64_t id, uint64_t rows)
{
    Account *account;

    KVG_TRY(settled(accounts, id, &account));
    return kvg_kv_cache_book(&account->cache, rows);
}

KvgStatus kvg_accounts_rewind(KvgAccounts *accounts, uint64_t id, uint64_t rows)
{
    Account *account;

    KVG_TRY(settled(accounts, id, &account));
    return kvg_kv_cache_rewind_to(&account->cache, rows, NULL);
}

KvgStatus kvg_accounts_trim(KvgAccounts *accounts, uint64_t id)
{
    Account *account;

    KVG_TRY(settled(accounts, id, &account));
    return kvg_kv_cache_trim(&account->cache);
}

KvgStatus kvg_accounts_fork(KvgAccounts *accounts, uint64_t id, uint64_t rows, uint64_t fork_id)
{
    Account  *account, *child;
    KvgStatus status;

    KVG_TRY(settled(accounts, id, &account));
    KVG_TRY(check_id(accounts, fork_id));
    child = take(accounts, fork_id);
    status = kvg_kv_cache_fork(&account->cache, rows, &child->cache, NULL);
    if (status != KVG_OK) {
        drop(accounts, child);
    }
    return status;
}

KvgStatus kvg_accounts_restore(KvgAccounts *accounts, uint64_t id, uint64_t rows, uint64_t first_row)
{
    Account *account;

    KVG_TRY(settled(accounts, id, &account));
    return kvg_kv_cache_hydrate(&account->cache, rows, first_row);
}

KvgStatus kvg_accounts_snapshot(const KvgAccounts *accounts, uint64_t id, KvgAccountsMark *mark)
{
    KvCacheSnapshot snapshot = { .image = NULL };
    Account        *account;

    KVG_TRY(kvg_accounts_need(accounts, id, &account));
    if (mark == NULL || kvg_account_in_step(accounts, account)) {
        return mark == NULL ? kvg_fail(KVG_EINVAL, "kvg_accounts_snapshot needs a place for the mark")
                            : kvg_fail(KVG_EBUSY, "sequence %llu is in a step whose end has not been told", (unsigned long long)id);
    }
    snapshot.dev = kvg_store_dev(accounts->store);
    KVG_TRY(kvg_kv_cache_snapshot_into(&account->cache, &snapshot, NULL));
    *mark = (KvgAccountsMark){ .id = id, .serial = snapshot.serial, .rows = snapshot.pos, .cuts = snapshot.cuts };
    return KVG_OK;
}

KvgStatus kvg_accounts_rollback(KvgAccounts *accounts, const KvgAccountsMark *mark, uint64_t accept)
{
    KvCacheSnapshot snapshot = { .image = NULL };
    Account        *account;

    if (mark == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_accounts_rollback needs a mark of kvg_accounts_snapshot");
    }
    KVG_TRY(settled(accounts, mark->id, &account));
    snapshot.dev = kvg_store_dev(accounts->store);
    snapshot.serial = mark->serial;
    snapshot.pos = mark->rows;
    snapshot.cuts = mark->cuts;
    return kvg_kv_cache_rollback(&account->cache, &snapshot, accept, NULL);
}

KvgStatus kvg_accounts_taint(KvgAccounts *accounts, uint64_t id)
{
    Account *account;

    KVG_TRY(kvg_accounts_need(accounts, id, &account));
    kvg_kv_cache_taint(&account->cache);
    return KVG_OK;
}

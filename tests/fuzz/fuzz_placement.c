/* A placement's text, as a scheduler loads it, and a life of sequences over what it says: the calls are drawn from the text itself. */
#include <kvgrid/accounts.h>

#include "tests/fuzz/fuzz.h"

#define MEMORY_MAX ((uint64_t)1 << 20) /* that the accounts may take */
#define CALLS_MAX  64

static uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static KvgStatus step(KvgAccounts *accounts, uint64_t *state)
{
    uint64_t  ids[2] = { draw(state) % 4, draw(state) % 4 }, number = 0;
    uint32_t  rows[2] = { (uint32_t)(draw(state) % 300), (uint32_t)(draw(state) % 3) }, accepted[2] = { 0 }, replay[2];
    KvgStatus refused[2];
    KvgStatus status = kvg_accounts_begin(accounts, ids, rows, 2, refused, &number);

    if (status != KVG_OK) return status;
    KvgOutcome outcome = { .kind = draw(state) % 4 == 0 ? KVG_OUTCOME_DISAGREE : KVG_OUTCOME_PUBLISHED, .field = draw(state) % 2 ? "targets" : "", .accepted = accepted };
    for (int place = 0; place < 2; place++) {
        KvgSequenceInfo info = { .size = sizeof info };
        if (rows[place] == 0 || refused[place] != KVG_OK) continue;
        FUZZ_CHECK(kvg_accounts_info(accounts, ids[place], &info) == KVG_OK && info.in_step == 2);
        accepted[place] = (uint32_t)(draw(state) % (info.rows_staged - info.rows + 1));
    }
    FUZZ_CHECK(kvg_accounts_decide(accounts, number, &outcome, replay) == KVG_OK);
    return KVG_OK;
}

static KvgStatus call(KvgAccounts *accounts, uint64_t *state)
{
    uint64_t id = draw(state) % 4, rows = draw(state) % 1500;

    switch (draw(state) % 8) {
    case 0: return kvg_accounts_open(accounts, id, draw(state) % 2 ? rows : 0);
    case 1: return kvg_accounts_close(accounts, id);
    case 2: return kvg_accounts_book(accounts, id, rows);
    case 3: return kvg_accounts_rewind(accounts, id, rows % 64);
    case 4: return kvg_accounts_trim(accounts, id);
    case 5: return kvg_accounts_fork(accounts, id, rows % 200, draw(state) % 4);
    default: return step(accounts, state);
    }
}

static void same_free(const KvgLedger *ledger, const KvgLedger *empty)
{
    FUZZ_CHECK(ledger->slots_free == empty->slots_free);
    for (uint32_t c = 0; c < ledger->class_count; c++) FUZZ_CHECK(ledger->units_free[c] == empty->units_free[c]);
}

static void live(KvgAccounts *accounts, uint64_t state)
{
    KvgLedger empty, ledger;

    kvg_accounts_ledger(accounts, &empty);
    for (int i = 0; i < CALLS_MAX; i++) {
        KvgStatus status = call(accounts, &state);
        if (status != KVG_OK) fuzz_check_failure(status);
        kvg_accounts_ledger(accounts, &ledger);
        for (uint32_t c = 0; c < ledger.class_count; c++) FUZZ_CHECK(ledger.units_free[c] <= empty.units_free[c]);
    }
    for (uint64_t id = 0; id < 4; id++) kvg_accounts_close(accounts, id);
    kvg_accounts_ledger(accounts, &ledger);
    same_free(&ledger, &empty);
}

/* What is written is read again, and says the same. */
static void round_trip(KvgAccounts *accounts)
{
    KvgAccountsOptions options = KVG_ACCOUNTS_OPTIONS_INIT;
    KvgAccounts       *again = NULL;
    size_t             bytes = 0, count = 0;

    FUZZ_CHECK(kvg_accounts_to_json(accounts, NULL, 0, &bytes) == KVG_ECAPACITY);
    char *text = malloc(bytes), *other = malloc(bytes);

    FUZZ_CHECK(text != NULL && other != NULL);
    FUZZ_CHECK(kvg_accounts_to_json(accounts, text, bytes, &count) == KVG_OK && count == bytes && strlen(text) + 1 == bytes);
    options.memory_max_bytes = MEMORY_MAX;
    FUZZ_CHECK(kvg_accounts_from_json(text, bytes - 1, &options, &again) == KVG_OK);
    FUZZ_CHECK(kvg_accounts_to_json(again, other, bytes, &count) == KVG_OK && strcmp(text, other) == 0);
    FUZZ_CHECK(kvg_accounts_resize(accounts, text, bytes - 1) == KVG_OK);
    kvg_accounts_destroy(again);
    free(text);
    free(other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzCount          count = fuzz_begin();
    KvgAccountsOptions options = KVG_ACCOUNTS_OPTIONS_INIT;
    KvgAccounts       *accounts = NULL;
    KvgLedger          ledger;
    uint64_t           state = size;

    for (size_t i = 0; i < size; i++) state = state * 31 + data[i];
    options.memory_max_bytes = MEMORY_MAX;
    KvgStatus status = kvg_accounts_from_json((const char *)data, size, &options, &accounts);

    if (status != KVG_OK) {
        FUZZ_CHECK(accounts == NULL);
        fuzz_check_failure(status);
    } else {
        FUZZ_CHECK(kvg_ledger_from_json((const char *)data, size, &ledger) == KVG_OK);
        round_trip(accounts);
        live(accounts, state);
        kvg_accounts_destroy(accounts);
    }
    fuzz_end(&count, size, 8, 4 * MEMORY_MAX);
    return 0;
}

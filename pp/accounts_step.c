/* Accounts, steps: begin plans as step_begin.c does on a rank and frees at the same moments; the end is told. */
#include "pp/accounts_impl.h"

#include <string.h>

#include <kvgrid/vote.h>

/* ---- begin */

static KvgStatus check_named(const KvgAccounts *accounts, uint64_t id, uint32_t place)
{
    const Account *account = kvg_accounts_find(accounts, id);

    if (account == NULL) {
        return kvg_fail(KVG_ESTALE, "place %u names sequence %llu, and none of that id is open", place, (unsigned long long)id);
    }
    if (kvg_account_in_step(accounts, account)) {
        return kvg_fail(KVG_EBUSY, "sequence %llu is in step %llu, whose end has not been told; kvg_accounts_decide it first", (unsigned long long)id,
                        (unsigned long long)account->last_step);
    }
    return KVG_OK;
}

static KvgStatus check_begin(const KvgAccounts *accounts, const uint64_t *ids, const uint32_t *rows, uint32_t count, const KvgStatus *refused)
{
    if (accounts == NULL || (count > 0 && (ids == NULL || rows == NULL || refused == NULL))) {
        return kvg_fail(KVG_EINVAL, "a step needs accounts, and for each place an id, rows and room for an answer");
    }
    if (count > accounts->placed.max_step_sequences) {
        return kvg_fail(KVG_EINVAL, "a step of %u places: records have room for %llu (max_step_sequences)", count,
                        (unsigned long long)accounts->placed.max_step_sequences);
    }
    if (accounts->ended + accounts->placed.max_in_flight < accounts->begun + 1) {
        return kvg_fail(KVG_EBUSY, "%llu steps have not ended; kvg_accounts_decide step %llu before another begins",
                        (unsigned long long)accounts->placed.max_in_flight, (unsigned long long)accounts->ended + 1);
    }
    for (uint32_t place = 0; place < count; place++) {
        if (rows[place] > 0) {
            KVG_TRY(check_named(accounts, ids[place], place));
        }
    }
    return KVG_OK;
}

/* What fell behind windows in steps up to m-W, unless a later step has named the sequence since. */
static void release_window(KvgAccounts *accounts)
{
    uint64_t window = accounts->placed.max_in_flight, upto = accounts->begun + 1 > window ? accounts->begun + 1 - window : 0;

    for (; accounts->released < upto; accounts->released++) {
        AccountsStep *step = kvg_accounts_step_at(accounts, accounts->released + 1);
        for (uint32_t i = 0; step->number == accounts->released + 1 && i < step->count; i++) {
            Account *account = step->entries[i].account;
            if (account != NULL && account->last_step == step->number) {
                kvg_kv_cache_release_behind(&account->cache);
            }
        }
    }
}

static KvgStatus stage(KvgAccounts *accounts, Account *account, uint64_t staged_before, uint32_t rows)
{
    KVG_TRY(kvg_classes_check_chunk(accounts->classes, accounts->placed.class_count, (uint32_t)accounts->placed.prefill_chunk_max,
                                    staged_before + rows, "step"));
    return kvg_kv_cache_append(&account->cache, rows, NULL);
}

static KvgStatus enter(KvgAccounts *accounts, AccountsStep *step, Account *account, uint32_t place, uint32_t rows)
{
    uint32_t  owed;
    KvgStatus status;

    if (account->named_in == step->number) {
        return kvg_fail(KVG_EBUSY, "sequence %llu is named twice", (unsigned long long)account->id);
    }
    KVG_TRY(kvg_kv_cache_begin(&account->cache));
    owed = kvg_kv_cache_replay(&account->cache);
    status = stage(accounts, account, 0, rows);
    if (status != KVG_OK) {
        kvg_kv_cache_refuse(&account->cache);
        return status;
    }
    account->generation++;
    account->last_step = account->named_in = step->number;
    account->entry = step->count;
    step->entries[step->count++] = (AccountsEntry){ .account = account, .place = place, .staged = rows - owed };
    return KVG_OK;
}

KvgStatus kvg_accounts_begin(KvgAccounts *accounts, const uint64_t *ids, const uint32_t *rows, uint32_t count, KvgStatus *refused,
                             uint64_t *step_p)
{
    AccountsStep *step;

    KVG_TRY(check_begin(accounts, ids, rows, count, refused));
    if (step_p == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_accounts_begin needs a place for the step's number");
    }
    release_window(accounts);
    for (uint32_t place = 0; place < count; place++) {
        if (rows[place] > 0) {
            kvg_kv_cache_release_behind(&kvg_accounts_find(accounts, ids[place])->cache);
        }
    }
    step = kvg_accounts_step_at(accounts, ++accounts->begun);
    KVG_ASSERT(step->number == 0 || step->ended);
    *step = (AccountsStep){ .number = accounts->begun, .places = count, .entries = step->entries };
    for (uint32_t place = 0; place < count; place++) {
        refused[place] = rows[place] == 0 ? KVG_OK : enter(accounts, step, kvg_accounts_find(accounts, ids[place]), place, rows[place]);
    }
    *step_p = step->number;
    return KVG_OK;
}

static KvgStatus find_step(const KvgAccounts *accounts, uint64_t number, AccountsStep **step)
{
    if (accounts == NULL) {
        return kvg_fail(KVG_EINVAL, "no accounts");
    }
    *step = kvg_accounts_step_at(accounts, number);
    if (number == 0 || (*step)->number != number || (*step)->ended) {
        return kvg_fail(KVG_ESTALE, "step %llu has ended, or was never begun", (unsigned long long)number);
    }
    return KVG_OK;
}

KvgStatus kvg_accounts_extend(KvgAccounts *accounts, uint64_t number, const uint32_t *rows, KvgStatus *refused)
{
    AccountsStep *step = NULL;

    KVG_TRY(find_step(accounts, number, &step));
    if (rows == NULL || refused == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_accounts_extend needs rows and room for an answer for each place");
    }
    for (uint32_t place = 0; place < step->places; place++) { /* places that take no part in the step cannot join it */
        refused[place] = rows[place] > 0 ? KVG_EINVAL : KVG_OK;
    }
    for (uint32_t i = 0; i < step->count; i++) {
        AccountsEntry *entry = &step->entries[i];
        uint32_t       more = rows[entry->place];

        if (more == 0 || entry->account == NULL) {
            continue;
        }
        refused[entry->place] = more > UINT32_MAX - entry->staged ? KVG_EOVERFLOW : stage(accounts, entry->account, entry->staged, more);
        entry->staged += refused[entry->place] == KVG_OK ? more : 0;
    }
    return KVG_OK;
}

/* ---- the end */

static KvgStatus check_accepted(const AccountsStep *step, const uint32_t *accepted)
{
    if (accepted == NULL && step->count > 0) {
        return kvg_fail(KVG_EINVAL, "step %llu was published: the outcome says how many rows of each place", (unsigned long long)step->number);
    }
    for (uint32_t i = 0; i < step->count; i++) {
        if (accepted[step->entries[i].place] > step->entries[i].staged) {
            return kvg_fail(KVG_EINVAL, "step %llu, place %u: %u rows are accepted of %u staged", (unsigned long long)step->number,
                            step->entries[i].place, accepted[step->entries[i].place], step->entries[i].staged);
        }
    }
    return KVG_OK;
}

/* Ranks may have staged unlike rows: they level what that has left, and so do the accounts. */
static int unlike(const KvgOutcome *outcome)
{
    return outcome->kind == KVG_OUTCOME_DISAGREE && outcome->field != NULL && strcmp(outcome->field, kvg_vote_field_name(KVG_VOTE_FIELD_TARGETS)) == 0;
}

static void take_back(KvCache *cache, const KvgOutcome *outcome)
{
    kvg_kv_cache_refuse(cache);
    if (unlike(outcome) && !cache->tainted) {
        KvgStatus status = kvg_kv_cache_level_unlike(cache, NULL);
        KVG_ASSERT(status == KVG_OK); /* without layers nothing is moved */
    }
}

KvgStatus kvg_accounts_decide(KvgAccounts *accounts, uint64_t number, const KvgOutcome *outcome, uint32_t *replay)
{
    AccountsStep *step = NULL;

    KVG_TRY(find_step(accounts, number, &step));
    if (outcome == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_accounts_decide needs the outcome that a rank has reported");
    }
    if (outcome->kind == KVG_OUTCOME_PUBLISHED) {
        KVG_TRY(check_accepted(step, outcome->accepted));
    }
    if (replay != NULL) {
        memset(replay, 0, step->places * sizeof *replay);
    }
    for (uint32_t i = 0; i < step->count; i++) {
        const AccountsEntry *entry = &step->entries[i];
        if (entry->account == NULL) {
            continue;
        }
        if (outcome->kind == KVG_OUTCOME_PUBLISHED) {
            kvg_kv_cache_finalize(&entry->account->cache, outcome->accepted[entry->place]);
        } else {
            take_back(&entry->account->cache, outcome);
        }
        if (replay != NULL) {
            replay[entry->place] = kvg_kv_cache_replay(&entry->account->cache);
        }
    }
    step->ended = 1;
    while (accounts->ended < accounts->begun && kvg_accounts_step_at(accounts, accounts->ended + 1)->ended) {
        accounts->ended++;
    }
    return KVG_OK;
}

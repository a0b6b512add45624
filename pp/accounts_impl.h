/* Accounts, inside. Private to pp/accounts*.c.
 *
 * A rank whose stage has no layer of any class still counts every unit, so that all ranks count alike (store.h). Accounts are such a rank's share
 * of a placement: a store without layers, a cache a sequence, and the steps that are not told the end of yet. So what is answered here is
 * decided by the code that decides on the workers. */
#ifndef KVG_ACCOUNTS_IMPL_H
#define KVG_ACCOUNTS_IMPL_H

#include <kvgrid/accounts.h>

#include "pp/internal.h"
#include "pp/placed.h"

typedef struct Account {
    int      open;
    uint64_t id, generation;
    uint64_t last_step, named_in; /* as KvgSequence's */
    uint32_t entry;               /* in its last step */
    KvCache  cache;
} Account;

typedef struct AccountsEntry {
    Account *account; /* NULL: closed since */
    uint32_t place, staged;
} AccountsEntry;

typedef struct AccountsStep {
    uint64_t       number; /* 0: never used */
    int            ended;
    uint32_t       places, count;
    AccountsEntry *entries; /* [max_step_sequences] */
} AccountsStep;

struct KvgAccounts {
    Placed         placed;
    KvClassPlan    classes[KVG_PLAN_CLASSES_MAX]; /* placed.class_count of them */
    KvDev          device; /* host memory for tables */
    KvStore       *store;
    uint32_t       slots;
    Account       *account;    /* [slots] */
    uint32_t      *free_slots; /* stack */
    uint32_t       free_count;
    uint64_t       serial;
    uint32_t       ring;       /* 2 * max_in_flight */
    AccountsStep  *steps;      /* [ring], step s at s % ring */
    AccountsEntry *entries;    /* all steps' */
    uint64_t       begun, ended, released; /* every step up to these */
};

static inline AccountsStep *kvg_accounts_step_at(const KvgAccounts *accounts, uint64_t number)
{
    return &accounts->steps[number % accounts->ring];
}

/* The open sequence of that id; NULL. */
Account *kvg_accounts_find(const KvgAccounts *accounts, uint64_t id);
/* ESTALE there is none. */
KvgStatus kvg_accounts_need(const KvgAccounts *accounts, uint64_t id, Account **account);
/* It is in a step that has not ended. */
int kvg_account_in_step(const KvgAccounts *accounts, const Account *account);

#endif

#include "runtime/base/error.h"

#include <string.h>

#include <kvgrid/ledger.h>

typedef unsigned long long Long;

KvgStatus kvg_ledger_init(const KvGridPlan *plan, KvgLedger *ledger)
{
    if (plan == NULL || ledger == NULL) {
        return kvg_fail(KVG_EINVAL, "a ledger needs a plan and a place for itself");
    }
    if (!plan->memory_known) {
        return kvg_fail(KVG_EINVAL, "a ledger needs a plan whose memory is known: give the ranks' state_bytes or device_bytes");
    }
    memset(ledger, 0, sizeof *ledger);
    ledger->size = sizeof *ledger;
    ledger->class_count = plan->class_count;
    for (uint32_t c = 0; c < plan->class_count; c++) {
        ledger->classes[c] = plan->classes[c];
        ledger->units_free[c] = plan->classes[c].units;
    }
    ledger->slots_total = ledger->slots_free = plan->slots;
    ledger->max_ctx = plan->max_ctx;
    return KVG_OK;
}

/* The units of class `c` that a sequence needs more at `to` rows than at `from`. */
static uint32_t units_more(const KvgLedger *ledger, uint32_t c, uint64_t from, uint64_t to)
{
    return kvg_class_plan_units(&ledger->classes[c], to) - kvg_class_plan_units(&ledger->classes[c], from);
}

static KvgStatus check_units(const KvgLedger *ledger, uint64_t from, uint64_t to)
{
    if (to > ledger->max_ctx) {
        return kvg_fail(KVG_ECAPACITY, "%llu rows are past the longest context of %llu; it will never be admitted", (Long)to,
                        (Long)ledger->max_ctx);
    }
    for (uint32_t c = 0; c < ledger->class_count; c++) {
        uint32_t need = units_more(ledger, c, from, to);
        uint32_t held = kvg_class_plan_units(&ledger->classes[c], from);

        if (need > ledger->units_free[c]) {
            int never = (uint64_t)need + held > ledger->classes[c].units;
            return kvg_fail(KVG_ECAPACITY, "class %u (window %llu) needs %u more units of %d rows and %u of %u are free; %s", c,
                            (Long)ledger->classes[c].window, need, KVG_CHUNK_ROWS, ledger->units_free[c], ledger->classes[c].units,
                            never ? "the pool is smaller than this sequence: give it more memory" : "wait for a sequence to close");
        }
    }
    return KVG_OK;
}

KvgStatus kvg_ledger_check(const KvgLedger *ledger, uint64_t rows)
{
    if (rows <= ledger->max_ctx && ledger->slots_free == 0) {
        return kvg_fail(KVG_EBUSY, "all %u slots are taken; wait for a sequence to close, or place with a larger max_sequences",
                        ledger->slots_total);
    }
    return check_units(ledger, 0, rows);
}

static void take_units(KvgLedger *ledger, uint64_t from, uint64_t to)
{
    for (uint32_t c = 0; c < ledger->class_count; c++) {
        ledger->units_free[c] -= units_more(ledger, c, from, to);
    }
}

KvgStatus kvg_ledger_admit(KvgLedger *ledger, uint64_t rows)
{
    KVG_TRY(kvg_ledger_check(ledger, rows));
    ledger->slots_free--;
    take_units(ledger, 0, rows);
    return KVG_OK;
}

KvgStatus kvg_ledger_grow(KvgLedger *ledger, uint64_t from, uint64_t to)
{
    if (to <= from) {
        return KVG_OK; /* what is booked suffices */
    }
    KVG_TRY(check_units(ledger, from, to));
    take_units(ledger, from, to);
    return KVG_OK;
}

void kvg_ledger_close(KvgLedger *ledger, uint64_t rows)
{
    KVG_ASSERT(ledger->slots_free < ledger->slots_total);
    ledger->slots_free++;
    for (uint32_t c = 0; c < ledger->class_count; c++) {
        ledger->units_free[c] += kvg_class_plan_units(&ledger->classes[c], rows);
        KVG_ASSERT(ledger->units_free[c] <= ledger->classes[c].units);
    }
}

/** Ledger: admission as a pure function of agreed numbers, the same on every rank and in a scheduler that is no rank (S9). */
#ifndef KVG_LEDGER_H
#define KVG_LEDGER_H

#include <kvgrid/grid_plan.h>

KVG_BEGIN_DECLS

typedef struct KvgLedger {
    size_t      size;
    uint32_t    class_count;
    KvClassPlan classes[KVG_PLAN_CLASSES_MAX];
    uint32_t    units_free[KVG_PLAN_CLASSES_MAX];
    uint32_t    slots_total, slots_free;
    uint64_t    max_ctx;
} KvgLedger;

/** An empty grid's ledger from a plan whose memory is known. EINVAL otherwise. */
KVG_API KvgStatus kvg_ledger_init(const KvGridPlan *plan, KvgLedger *ledger);
/** The same from what kvg_placement_to_json wrote (accounts.h), with its errors: an empty grid's, before anything is opened. */
KVG_API KvgStatus kvg_ledger_from_json(const char *text, size_t bytes, KvgLedger *ledger);
/** Would a sequence of `rows` booked rows be admitted now? Changes nothing. ECAPACITY past max_ctx (it never will be), or for want of units, naming
 *  class, need and free; EBUSY no slot is free. */
KVG_API KvgStatus kvg_ledger_check(const KvgLedger *ledger, uint64_t rows);
/** Admits it: its units and slot are taken from the ledger. Errors as check; nothing taken then. */
KVG_API KvgStatus kvg_ledger_admit(KvgLedger *ledger, uint64_t rows);
/** A sequence grows from booked `from` rows to `to` rows. ECAPACITY: nothing taken. */
KVG_API KvgStatus kvg_ledger_grow(KvgLedger *ledger, uint64_t from, uint64_t to);
/** A sequence with `rows` booked rows closes. */
KVG_API void kvg_ledger_close(KvgLedger *ledger, uint64_t rows);

KVG_END_DECLS
#endif

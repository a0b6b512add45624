/* Attach: what an engine keeps beside a sequence, and when it stops being true. */
#include "pp/internal.h"

#include <string.h>

static KvgStatus check(const KvgSequence *sequence)
{
    if (sequence == NULL || !sequence->open) {
        return kvg_fail(KVG_ESTALE, "the sequence is closed");
    }
    if (sequence->cache.tainted || sequence->taint_pending) {
        return kvg_fail(KVG_ETAINTED, "sequence %llu is tainted: nothing is kept with it; close it", (unsigned long long)sequence->id);
    }
    return KVG_OK;
}

KvgStatus kvg_sequence_attach_taps(KvgSequence *sequence, DflashTapSink *dflash, HcTapSink *hc)
{
    if (sequence == NULL || !sequence->open || dflash != NULL || hc != NULL) { /* detaching is always legal */
        KVG_TRY(check(sequence));
    }
    sequence->dflash = dflash;
    sequence->hc = hc;
    return KVG_OK;
}

KvgStatus kvg_sequence_park_logits(KvgSequence *sequence, const float *logits, uint32_t count)
{
    void *copy = NULL;

    KVG_TRY(check(sequence));
    if (count > 0 && logits == NULL) {
        return kvg_fail(KVG_EINVAL, "%u logits are to be parked and none were given", count);
    }
    if (count > 0) {
        KVG_TRY(kvg_calloc(count, sizeof *logits, "parked logits", &copy));
        memcpy(copy, logits, count * sizeof *logits);
    }
    kvg_sequence_forget_logits(sequence);
    sequence->logits = copy;
    sequence->logits_count = count;
    return KVG_OK;
}

const float *kvg_sequence_parked_logits(const KvgSequence *sequence, uint32_t *count)
{
    *count = sequence->logits_count;
    return sequence->logits;
}

void kvg_sequence_forget_logits(KvgSequence *sequence)
{
    kvg_free(sequence->logits);
    sequence->logits = NULL;
    sequence->logits_count = 0;
}

void kvg_sequence_drop_attached(KvgSequence *sequence)
{
    kvg_sequence_forget_logits(sequence);
    if (sequence->dflash != NULL) {
        kvg_dflash_tap_drop(sequence->dflash);
    }
    if (sequence->hc != NULL) {
        kvg_hc_tap_drop(sequence->hc);
    }
    sequence->dflash = NULL;
    sequence->hc = NULL;
}

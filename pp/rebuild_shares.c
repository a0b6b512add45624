/* Rebuild, shares: which chunks sequences hold together. A survivor reads it off its tables, where ids are its own; what it says names entries and sequences,
 * which are the same on every rank. Of all that hold a chunk the first is its owner: it is sent with that one, and the others hold it too at the newcomer.
 * A tainted sequence comes back nowhere, so it neither owns nor shares. */
#include "pp/rebuild_impl.h"

#include <string.h>

/* ---- reading them off the tables */

typedef struct ShareWalk {
    KvCarryShare  last;   /* grows while entries go on with the same owner; end 0: none yet */
    uint64_t      count;
    KvCarryShare *out;    /* NULL: they are counted */
    uint32_t     *holder; /* by class and chunk: 1 + the first sequence that holds it; 0: none so far */
} ShareWalk;

static uint64_t chunks_of(const KvgPlacement *placement)
{
    uint64_t chunks = 0;

    for (uint32_t c = 0; c < kvg_store_class_count(placement->store); c++) {
        chunks += kvg_store_units_total(placement->store, c);
    }
    return chunks;
}

static void note_share(ShareWalk *walk, uint64_t sequence, uint64_t owner, uint32_t class_index, uint32_t entry)
{
    KvCarryShare *last = &walk->last;

    if (last->end == entry && entry > 0 && last->sequence == sequence && last->owner == owner && last->class_index == class_index) {
        last->end++;
    } else {
        *last = (KvCarryShare){ sequence, owner, class_index, entry, (uint64_t)entry + 1 };
        walk->count++;
    }
    if (walk->out != NULL) {
        walk->out[walk->count - 1] = *last;
    }
}

static void walk_sequence(ShareWalk *walk, const KvgSequence *sequence, uint64_t i)
{
    const KvStore *store = sequence->placement->store;
    uint32_t       slot = sequence->cache.slot, *holder = walk->holder;

    for (uint32_t c = 0; c < kvg_store_class_count(store); c++) {
        uint32_t end = kvg_store_end(store, c, slot);
        for (uint32_t e = end - kvg_store_held(store, c, slot); e < end; e++) {
            uint32_t *first = &holder[kvg_store_chunk(store, c, slot, e)];
            if (*first == 0) {
                *first = (uint32_t)i + 1;
            } else {
                note_share(walk, i, *first - 1, c, e);
            }
        }
        holder += kvg_store_units_total(store, c);
    }
}

static void walk_all(ShareWalk *walk, const KvgSequence *const *sequences, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const KvgPlacement *placement = sequences[i]->placement;
        if (i == 0 || sequences[i - 1]->placement != placement) {
            memset(walk->holder, 0, chunks_of(placement) * sizeof *walk->holder);
        }
        if (!sequences[i]->cache.tainted && kvg_store_layout(placement->store) == KVG_LAYOUT_POOL) {
            walk_sequence(walk, sequences[i], i);
        }
    }
}

KvgStatus kvg_rebuild_find_shares(const KvgSequence *const *sequences, uint64_t count, KvCarryShare **shares, uint64_t *share_count)
{
    ShareWalk walk = { .count = 0 }, again;
    uint64_t  most = 1;
    KvgStatus status;

    for (uint64_t i = 0; i < count; i++) {
        uint64_t chunks = chunks_of(sequences[i]->placement);
        most = chunks > most ? chunks : most;
    }
    KVG_TRY(KVG_NEW(most, "rebuilding", &walk.holder));
    again = walk;
    walk_all(&walk, sequences, count);
    status = KVG_NEW(walk.count, "rebuilding", &again.out);
    if (status == KVG_OK) {
        walk_all(&again, sequences, count);
        *shares = again.out;
        *share_count = walk.count;
    }
    kvg_free(walk.holder);
    return status;
}

/* ---- looking them up in what was said: they stand by sequence, class and entry */

const KvCarryShare *kvg_rebuild_shares_of(const RebuildAccount *account, uint64_t i, uint64_t *count)
{
    uint64_t low = 0, high = account->share_count, end;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (account->shares[middle].sequence < i) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (end = low; end < account->share_count && account->shares[end].sequence == i; end++) {
    }
    *count = end - low;
    return account->shares + low;
}

void kvg_rebuild_part(const RebuildAccount *account, uint64_t i, KvCarryPart *part)
{
    part->place = kvg_rebuild_sequence_in(account, i)->place;
    part->shares = kvg_rebuild_shares_of(account, i, &part->share_count);
    memcpy(part->from, part->place.base, sizeof part->from);
    for (uint64_t n = 0; n < account->share_count; n++) { /* who holds its chunks may read rows of them that it does not need itself */
        const KvCarryShare *share = &account->shares[n];
        if (share->owner == i) {
            uint64_t base = kvg_rebuild_sequence_in(account, share->sequence)->place.base[share->class_index], first = share->first * KVG_CHUNK_ROWS;
            uint64_t from = base > first ? base : first;
            part->from[share->class_index] = from < part->from[share->class_index] ? from : part->from[share->class_index];
        }
    }
}

/* ---- whether they can be */

static int overlaps(const KvCarryShare *shares, uint64_t count, const KvCarryShare *with)
{
    for (uint64_t n = 0; n < count; n++) {
        if (shares[n].class_index == with->class_index && shares[n].first < with->end && with->first < shares[n].end) {
            return 1;
        }
    }
    return 0;
}

/* Whole committed chunks, which neither writes again. */
static int within(const RebuildSequence *sequence, const KvCarryShare *share)
{
    const KvCarryPlace *place = &sequence->place;

    return !sequence->tainted && share->first >= place->first[share->class_index] && share->end <= place->end[share->class_index] &&
           share->end <= place->at / KVG_CHUNK_ROWS;
}

static int share_stands(const RebuildAccount *account, const KvCarryShare *share)
{
    uint64_t            count;
    const KvCarryShare *of_owner;

    if (share->sequence >= account->sequence_count || share->owner >= share->sequence || share->class_index >= KVG_CLASSES_MAX ||
        share->first >= share->end) {
        return 0;
    }
    const RebuildSequence *sequence = kvg_rebuild_sequence_in(account, share->sequence), *owner = kvg_rebuild_sequence_in(account, share->owner);
    of_owner = kvg_rebuild_shares_of(account, share->owner, &count);
    return sequence->placement == owner->placement && within(sequence, share) && within(owner, share) && !overlaps(of_owner, count, share);
}

static int is_after(const KvCarryShare *share, const KvCarryShare *before)
{
    if (share->sequence != before->sequence) {
        return share->sequence > before->sequence;
    }
    return share->class_index != before->class_index ? share->class_index > before->class_index : share->first >= before->end;
}

int kvg_rebuild_shares_stand(const RebuildAccount *account)
{
    for (uint64_t n = 0; n < account->share_count; n++) { /* the order first: looking up goes by it */
        if (n > 0 && !is_after(&account->shares[n], &account->shares[n - 1])) {
            return 0;
        }
    }
    for (uint64_t n = 0; n < account->share_count; n++) {
        if (!share_stands(account, &account->shares[n])) {
            return 0;
        }
    }
    return 1;
}

/* Units that sequences [first, end) hold of a class, each counted once: the reference counts of a newcomer come to the same. Tainted ones may share with any. */
int kvg_rebuild_units_stand(const RebuildAccount *account, const RebuildPlace *place, uint64_t first, uint64_t end)
{
    for (uint32_t c = 0; c < KVG_CLASSES_MAX; c++) {
        uint64_t own = 0, tainted = 0;
        for (uint64_t i = first; i < end; i++) {
            const RebuildSequence *sequence = kvg_rebuild_sequence_in(account, i);
            uint64_t               entries = sequence->place.end[c] - sequence->place.first[c], count;
            const KvCarryShare    *shares = kvg_rebuild_shares_of(account, i, &count);
            for (uint64_t n = 0; n < count; n++) {
                entries -= shares[n].class_index == c ? shares[n].end - shares[n].first : 0;
            }
            *(sequence->tainted ? &tainted : &own) += entries;
        }
        if (own > place->held[c] || place->held[c] > own + tainted || place->held[c] > place->units[c]) {
            return 0;
        }
    }
    return 1;
}

/* Carry: one sequence's rows and slot state as they are stored, on their way from a rank that has them to one that has the same share of the layers
 * and none of the rows. Nothing is decoded: what arrives has the same digest. Private.
 *
 *   place   where the sequence stands: lengths, bases, which table entries it holds; agreed, so that the receiver counts as the sender does
 *   share   entries whose chunks another sequence holds, too, at the same places of its table (forks): they go once, with that one, the owner
 *   part    what is sent of one sequence: its place, without what it shares with owners
 *   walk    the bytes in one order on both sides: of each layer in `mine` its planes, their heads, their rows; the slot image last
 * The sender reads pieces of the walk, the receiver writes them, each at its own addresses. No step is open; the store's device may be any. */
#ifndef KVG_CACHE_CARRY_H
#define KVG_CACHE_CARRY_H

#include "runtime/state/cache.h"

typedef struct KvCarryPlace { /* crosses the wire */
    uint64_t len, at; /* committed rows; the row at which the slot state stands */
    uint64_t guarantee;
    uint64_t base[KVG_CLASSES_MAX];
    uint32_t first[KVG_CLASSES_MAX], end[KVG_CLASSES_MAX]; /* table entries held */
} KvCarryPlace;

void kvg_kv_cache_carry_place(const KvCache *cache, KvCarryPlace *place);

typedef struct KvCarryShare { /* crosses the wire */
    uint64_t sequence, owner; /* how manieth of those that are carried; owner < sequence */
    uint64_t class_index, first, end; /* table entries */
} KvCarryShare;

typedef struct KvCarryPart {
    KvCarryPlace        place;
    uint64_t            from[KVG_CLASSES_MAX]; /* rows from here on are sent: the base, or below it what others read in its chunks */
    const KvCarryShare *shares;                /* that come with their owners: by class and first entry, none twice */
    uint64_t            share_count;
} KvCarryPart;

/* EFORMAT: no cache of this store can stand there. The cache is fresh; `place` is from the wire, and so far nothing is known of it. */
KvgStatus kvg_kv_cache_carry_check(const KvCache *cache, const KvCarryPlace *place);
/* The fresh cache holds what the part says from here on, its rows undefined; chunks that are shared are those of owners [owner], which are open already.
 * The place has been checked, and the shares lie within it and within their owners'. ECAPACITY for want of units; ENOMEM is local (flat): closing it
 * undoes that. */
KvgStatus kvg_kv_cache_carry_open(KvCache *cache, const KvCarryPart *part, const KvCache *const *owners);
/* Its rows have come: they are committed. */
void kvg_kv_cache_carry_end(KvCache *cache, const KvCarryPlace *place);

typedef struct KvCarryWalk {
    const KvCache  *cache;
    const uint8_t  *mine;   /* [layers of the store] 1: of this walk; the walk's caller keeps it */
    int             image;  /* the slot image is of this walk */
    KvCarryPart     part;
    uint32_t        layer, plane, head;
    uint64_t        row;
    uint64_t        done;   /* bytes so far */
    void           *image_memory; /* device memory, of the walk */
} KvCarryWalk;

/* ENOMEM: the slot image's copy. The sender's image is taken here; the receiver's is put in place by kvg_carry_arrived. */
KvgStatus kvg_carry_begin(const KvCache *cache, const KvCarryPart *part, const uint8_t *mine, int image, int sends, KvCarryWalk *walk);
/* Bytes of the whole walk. Reads geometry and `part` alone. */
uint64_t  kvg_carry_bytes(const KvCache *cache, const KvCarryPart *part, const uint8_t *mine, int image);
/* Copies the walk's next bytes, at most `bytes`, to (read) or from (write) host memory; *done says how many. EDEVICE, ENOMEM. */
KvgStatus kvg_carry_read(KvCarryWalk *walk, void *target, size_t bytes, size_t *done);
KvgStatus kvg_carry_write(KvCarryWalk *walk, const void *source, size_t bytes, size_t *done);
KvgStatus kvg_carry_arrived(KvCarryWalk *walk);
void      kvg_carry_end(KvCarryWalk *walk); /* a walk of zeros is allowed */

#endif

/* Memory: the library's own host allocations, counted, and made to fail on request by tests. Private.
 *
 * Every allocation of the library goes through here, so that a test can prove that nothing leaked and can fail
 * the nth allocation until none is left. Exported, where it is, for kvgrid_mpi alone. */
#ifndef KVG_MEMORY_H
#define KVG_MEMORY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "runtime/base/error.h"

/* Zeroed array of `count` elements of `bytes`; the product is checked. ENOMEM names `what`. count 0 gives a valid pointer. */
KVG_API KvgStatus kvg_calloc(size_t count, size_t bytes, const char *what, void **memory);
/* Frees what kvg_calloc and KVG_NEW gave; NULL is allowed. */
KVG_API void kvg_free(void *memory);

/* Makes *array_p an array of `count` zeroed elements of what it points to; it changes only on success. */
#define KVG_NEW(count, what, array_p) kvg_new((count), sizeof **(array_p), (what), (array_p))
static inline KvgStatus kvg_new(size_t count, size_t bytes, const char *what, void *array_p)
{
    void *fresh = NULL;

    KVG_TRY(kvg_calloc(count, bytes, what, &fresh));
    memcpy(array_p, &fresh, sizeof fresh); /* it points to a pointer of another type: C lets no void * be stored there */
    return KVG_OK;
}

/* A copy of a string, freed by kvg_free. */
KVG_API KvgStatus kvg_strdup(const char *text, const char *what, char **copy);

/* Allocations alive now: a test's teardown compares it with its setup. */
uint64_t kvg_live_allocations(void);
/* Bytes asked for since the process began, given back or not: a test holds what an input made the library ask for against the input's size. */
uint64_t kvg_asked_bytes(void);

/* Fails the nth fallible acquisition (allocation, reservation, mapping) from here, once; nth counts from 0. Tests only. */
void kvg_fault_arm(uint64_t nth);
/* Disarms; returns 1 if the armed failure was delivered, 0 if the code ran to its end before it. */
int kvg_fault_disarm(void);
/* One fallible acquisition happens: true if it must fail. Called by kvg_calloc and by devices. */
KVG_API int kvg_fault_hit(void);

#endif

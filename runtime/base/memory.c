#include "runtime/base/memory.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static atomic_uint_fast64_t live_allocations, asked_bytes;

static struct {
    int      armed;
    int      delivered;
    uint64_t left;
} fault; /* tests arm it from the one thread that drives the library */

void kvg_fault_arm(uint64_t nth)
{
    fault.armed = 1;
    fault.delivered = 0;
    fault.left = nth;
}

int kvg_fault_disarm(void)
{
    fault.armed = 0;
    return fault.delivered;
}

int kvg_fault_hit(void)
{
    if (!fault.armed || fault.delivered) {
        return 0;
    }
    if (fault.left > 0) {
        fault.left--;
        return 0;
    }
    fault.delivered = 1;
    return 1;
}

KvgStatus kvg_calloc(size_t count, size_t bytes, const char *what, void **memory)
{
    void *fresh = kvg_fault_hit() ? NULL : calloc(count > 0 ? count : 1, bytes > 0 ? bytes : 1);

    if (fresh == NULL) {
        return kvg_fail(KVG_ENOMEM, "no host memory for %s: %zu elements of %zu bytes; free memory or ask for less",
                        what, count, bytes);
    }
    atomic_fetch_add(&live_allocations, 1);
    atomic_fetch_add(&asked_bytes, (uint64_t)count * bytes); /* there are that many: it does not wrap */
    *memory = fresh;
    return KVG_OK;
}

void kvg_free(void *memory)
{
    if (memory != NULL) {
        atomic_fetch_sub(&live_allocations, 1);
        free(memory);
    }
}

KvgStatus kvg_strdup(const char *text, const char *what, char **copy)
{
    size_t bytes = strlen(text) + 1;
    void  *fresh = NULL;

    KVG_TRY(kvg_calloc(bytes, 1, what, &fresh));
    *copy = memcpy(fresh, text, bytes);
    return KVG_OK;
}

uint64_t kvg_live_allocations(void)
{
    return atomic_load(&live_allocations);
}

uint64_t kvg_asked_bytes(void)
{
    return atomic_load(&asked_bytes);
}

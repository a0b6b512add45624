#include "runtime/base/sized.h"

#include <stdint.h>
#include <string.h>

/* Far above any struct: what was never set is told from what is only newer. */
#define SIZE_MOST ((size_t)1 << 16)

static size_t size_of(const void *object)
{
    size_t size;

    memcpy(&size, object, sizeof size);
    return size;
}

KvgStatus kvg_sized_check(const char *name, const void *target, size_t bytes)
{
    if (target == NULL) {
        return kvg_fail(KVG_EINVAL, "a %s is needed, and there is none", name);
    }
    if (size_of(target) < 2 * sizeof(size_t) || size_of(target) % sizeof(size_t) != 0 || size_of(target) > SIZE_MOST) {
        return kvg_fail(KVG_EINVAL, "%s.size is %zu and was never set: start from its _INIT, or set it to sizeof(%s), which is %zu here", name,
                        size_of(target), name, bytes);
    }
    return KVG_OK;
}

KvgStatus kvg_sized_in(const char *name, const void *given, const void *defaults, size_t bytes, void *own)
{
    const uint8_t *from = given;

    if (given != NULL) {
        KVG_TRY(kvg_sized_check(name, given, bytes));
        for (size_t i = bytes; i < size_of(given); i++) {
            if (from[i] != 0) {
                return kvg_fail(KVG_EINVAL, "%s.size is %zu, %zu here, and byte %zu is set: the caller was compiled against a newer kvgrid and asks for "
                                "what this one has not; use that one", name, size_of(given), bytes, i);
            }
        }
    }
    memcpy(own, defaults, bytes);
    if (given != NULL) {
        memcpy(own, given, size_of(given) < bytes ? size_of(given) : bytes);
    }
    memcpy(own, &bytes, sizeof bytes);
    return KVG_OK;
}

KvgStatus kvg_sized_out(const char *name, const void *own, size_t bytes, void *target)
{
    uint8_t *to = target;

    KVG_TRY(kvg_sized_check(name, target, bytes));
    size_t size = size_of(target), known = size < bytes ? size : bytes;

    memcpy(to + sizeof size, (const uint8_t *)own + sizeof size, known - sizeof size);
    memset(to + known, 0, size - known);
    return KVG_OK;
}

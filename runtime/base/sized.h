/* Sized: structs of callers that were compiled against another version. Private.
 *
 * A public struct of options or results begins with `size_t size`, which the caller sets to the size it knows; later versions append fields, and
 * every field's zero or the _INIT's value means "as before". So:
 *   smaller than ours   an older caller: fields it does not know have the defaults, and results it has no room for are left out
 *   larger than ours    a newer one: options past ours must be zero (it does not ask for what we lack), results past ours are set to zero
 *   anything else       (0, less than the size and one more word, no whole words) was never set: EINVAL naming the struct */
#ifndef KVG_SIZED_H
#define KVG_SIZED_H

#include <stddef.h>

#include "runtime/base/error.h"

/* *own [bytes] = the caller's fields over `defaults` [bytes], own->size = bytes. given NULL: the defaults. EINVAL. */
KvgStatus kvg_sized_in(const char *name, const void *given, const void *defaults, size_t bytes, void *own);
/* The caller's struct can be filled: for calls that must know before they do anything. EINVAL. */
KvgStatus kvg_sized_check(const char *name, const void *target, size_t bytes);
/* The caller's struct, as far as its size goes, is filled from `own` [bytes]; its size stays. EINVAL. */
KvgStatus kvg_sized_out(const char *name, const void *own, size_t bytes, void *target);

#define KVG_SIZED_IN(type, given, defaults, own) kvg_sized_in(#type, (given), &(defaults), sizeof(type), &(own))
#define KVG_SIZED_CHECK(type, target)            kvg_sized_check(#type, (target), sizeof(type))
#define KVG_SIZED_OUT(type, own, target)         kvg_sized_out(#type, &(own), sizeof(type), (target))

#endif

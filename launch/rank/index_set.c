#include "launch/rank/index_set.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/error.h"

void kvg_index_set_add(IndexSet *set, unsigned index)
{
    if (index < INDEX_SET_MAX) {
        set->words[index / 64] |= UINT64_C(1) << (index % 64);
    }
}

int kvg_index_set_has(const IndexSet *set, unsigned index)
{
    return index < INDEX_SET_MAX && (set->words[index / 64] >> (index % 64) & 1) != 0;
}

unsigned kvg_index_set_count(const IndexSet *set)
{
    unsigned count = 0;

    for (size_t i = 0; i < INDEX_SET_MAX / 64; i++) {
        count += (unsigned)__builtin_popcountll(set->words[i]);
    }
    return count;
}

int kvg_index_set_equal(const IndexSet *left, const IndexSet *right)
{
    return memcmp(left, right, sizeof *left) == 0;
}

IndexSet kvg_index_set_and(const IndexSet *left, const IndexSet *right)
{
    IndexSet both;

    for (size_t i = 0; i < INDEX_SET_MAX / 64; i++) {
        both.words[i] = left->words[i] & right->words[i];
    }
    return both;
}

/* The range that begins at `first`: its last index. */
static unsigned end_of_range(const IndexSet *set, unsigned first)
{
    while (kvg_index_set_has(set, first + 1)) {
        first++;
    }
    return first;
}

const char *kvg_index_set_text(const IndexSet *set, char *text, size_t bytes)
{
    size_t used = 0;

    KVG_ASSERT(bytes >= 16);
    snprintf(text, bytes, "none");
    for (unsigned first = 0; first < INDEX_SET_MAX; first++) {
        char     range[24];
        unsigned last = first;

        if (!kvg_index_set_has(set, first)) {
            continue;
        }
        last = end_of_range(set, first);
        snprintf(range, sizeof range, last > first ? "%s%u-%u" : "%s%u", used > 0 ? "," : "", first, last);
        if (used + strlen(range) + sizeof ",..." > bytes) { /* room for the dots stays */
            snprintf(text + used, bytes - used, ",...");
            return text;
        }
        used += (size_t)snprintf(text + used, bytes - used, "%s", range);
        first = last;
    }
    return text;
}

/* A number at *at, which moves behind it. -1: there is none, or one too large. */
static long read_index(const char **at)
{
    char *end = NULL;

    if (!isdigit((unsigned char)**at)) {
        return -1;
    }
    long index = strtol(*at, &end, 10);
    *at = end;
    return index < INDEX_SET_MAX ? index : -1;
}

int kvg_index_set_read(const char *text, IndexSet *set)
{
    IndexSet    read = { { 0 } };
    const char *at = text;

    do {
        long first = read_index(&at), last = first;

        if (*at == '-') {
            at++;
            last = read_index(&at);
        }
        if (first < 0 || last < first) {
            return 0;
        }
        for (long index = first; index <= last; index++) {
            kvg_index_set_add(&read, (unsigned)index);
        }
    } while (*at == ',' && *++at != '\0');
    if (at[strspn(at, " \t\n")] != '\0' || (at > text && at[-1] == ',')) {
        return 0;
    }
    *set = read;
    return 1;
}

/* Index sets: processors or NUMA nodes by the system's numbers. A value of fixed size, so that ranks can send each other theirs. Private. */
#ifndef KVG_RANK_INDEX_SET_H
#define KVG_RANK_INDEX_SET_H

#include <stddef.h>
#include <stdint.h>

enum { INDEX_SET_MAX = 2048, INDEX_SET_TEXT = 96 };

typedef struct IndexSet {
    uint64_t words[INDEX_SET_MAX / 64];
} IndexSet;

/* Indices past INDEX_SET_MAX are left out. */
void     kvg_index_set_add(IndexSet *set, unsigned index);
int      kvg_index_set_has(const IndexSet *set, unsigned index);
unsigned kvg_index_set_count(const IndexSet *set);
int      kvg_index_set_equal(const IndexSet *left, const IndexSet *right);
IndexSet kvg_index_set_and(const IndexSet *left, const IndexSet *right);

/* "0-3,8", "none"; cut to whole ranges and ",..." where it does not fit. `bytes` is at least 16. Returns `text`. */
const char *kvg_index_set_text(const IndexSet *set, char *text, size_t bytes);
/* Reads the system's own lists: "0-3,8" and white space behind it. 0: it is none, and *set is unchanged. */
int kvg_index_set_read(const char *text, IndexSet *set);

#endif

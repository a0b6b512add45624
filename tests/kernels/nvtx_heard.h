/* What the tool of test nvtx_ranges has heard: shared by the tool, which NVTX loads, and the program that asks it. */
#ifndef KVG_TEST_NVTX_HEARD_H
#define KVG_TEST_NVTX_HEARD_H

typedef struct NvtxHeard {
    int                pushed, popped, foreign; /* foreign: ranges of another domain */
    char               domain[32], last[32];
    unsigned long long payload;
} NvtxHeard;

#endif

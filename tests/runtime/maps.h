/* What the system says about an address range: bytes of it that are mapped read-write, by /proc/self/maps. */
#ifndef KVG_TEST_MAPS_H
#define KVG_TEST_MAPS_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

static inline uint64_t maps_backed_bytes(const void *base, size_t bytes)
{
    uint64_t lo = (uint64_t)(uintptr_t)base, hi = lo + bytes, from, to, sum = 0;
    char     mode[8], line[512];
    FILE    *file = fopen("/proc/self/maps", "r");

    if (file == NULL) return UINT64_MAX;
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s", &from, &to, mode) != 3 || mode[0] != 'r' || mode[1] != 'w') continue;
        from = from > lo ? from : lo;
        to = to < hi ? to : hi;
        if (from < to) sum += to - from;
    }
    fclose(file);
    return sum;
}

#endif

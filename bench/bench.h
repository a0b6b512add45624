/* Bench: what every bench shares: a clock, order statistics, a header line that says how it was run. */
#ifndef KVG_BENCH_H
#define KVG_BENCH_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static inline double bench_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static inline int bench_by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts `values` and gives the value below which `percent` of them lie. */
static inline double bench_percentile(double *values, size_t count, double percent)
{
    qsort(values, count, sizeof *values, bench_by_value);
    size_t at = (size_t)((double)(count - 1) * percent / 100.0 + 0.5);
    return values[at];
}

static inline double bench_median(double *values, size_t count)
{
    return bench_percentile(values, count, 50.0);
}

/* 1 if the option is among the arguments. */
static inline int bench_has(int argc, char **argv, const char *option)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], option) == 0) return 1;
    }
    return 0;
}

/* The number after the option, or `otherwise`. */
static inline long bench_number(int argc, char **argv, const char *option, long otherwise)
{
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], option) == 0) return strtol(argv[i + 1], NULL, 10);
    }
    return otherwise;
}

static inline void bench_header(const char *name, const char *how)
{
    char host[64] = "?";
    gethostname(host, sizeof host - 1);
    printf("# %s %s  host %s  cores %ld  %s\n", name, KVG_VERSION, host, sysconf(_SC_NPROCESSORS_ONLN), how);
}

#endif

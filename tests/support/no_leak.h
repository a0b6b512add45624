/* A fixture for suites of what allocates: when a test ends, as many allocations of the library live as when it began. */
#ifndef TESTS_SUPPORT_NO_LEAK_H
#define TESTS_SUPPORT_NO_LEAK_H

#include <check.h>

#include "runtime/base/memory.h"

static uint64_t no_leak_live;

static inline void no_leak_setup(void)
{
    no_leak_live = kvg_live_allocations();
}

static inline void no_leak_teardown(void)
{
    ck_assert_uint_eq(kvg_live_allocations(), no_leak_live);
}

#endif

#include "runtime/comm/clock.h"

#include <sched.h>
#include <time.h>

#define SPIN_ROUNDS  48u   /* a record of a peer on another core arrives within these */
#define YIELD_ROUNDS 3000u /* about 2 ms of yields that found nobody else to run */
#define SLEEP_NS     50000

uint64_t kvg_clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void pause_core(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

void kvg_clock_relax(uint64_t rounds)
{
    if (rounds < SPIN_ROUNDS) {
        pause_core();
    } else if (rounds < SPIN_ROUNDS + YIELD_ROUNDS) {
        sched_yield();
    } else {
        nanosleep(&(struct timespec){ .tv_nsec = SLEEP_NS }, NULL);
    }
}

/* simulate --seed N --steps N [--seconds N] [--life K] [--verbose]
 * Runs lives until `steps` steps have been decided, or that long. A violation ends the run with status 1 and one sentence that names seed, life, step and what
 * differs; the same command finds it again, and --life K goes straight to it. */
#include "tests/simulate/sim.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static World world;

static const char *const model_name[] = { "full", "windowed", "hybrid", "pooled latent", "latent" };

static void say_where(FILE *to, const World *w)
{
    fprintf(to, "seed %llu life %llu step %llu (of the life %llu; %ux%u, %s, %s layout, W %u): ", (unsigned long long)w->seed, (unsigned long long)w->life,
            (unsigned long long)w->step, (unsigned long long)w->life_step, w->tp, w->pp, model_name[w->model], w->layout == KVG_LAYOUT_POOL ? "pool" : "flat",
            w->window_steps);
}

_Noreturn void sim_fail(World *w, const char *format, ...)
{
    va_list arguments;

    fflush(stdout);
    fprintf(stderr, "simulate: ");
    say_where(stderr, w);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\nreplay: simulate --seed %llu --life %llu\n", (unsigned long long)w->seed, (unsigned long long)w->life);
    _exit(1);
}

static void on_signal(int number)
{
    sim_fail(&world, "the library stopped with signal %d", number);
}

static void on_log(void *user, KvgLogLevel level, const char *sentence)
{
    (void)user;
    if (level == KVG_LOG_ERROR && strstr(sentence, "rank ") != sentence) { /* an assertion, not a rank's own report */
        fprintf(stderr, "simulate: %s\n", sentence);
    }
}

static uint64_t number_of(const char *text)
{
    char              *end;
    unsigned long long value = strtoull(text, &end, 10);

    if (end == text || *end != '\0') {
        fprintf(stderr, "simulate: \"%s\" is no number\n", text);
        exit(2);
    }
    return value;
}

static void one_life(World *w, int verbose)
{
    w->life_seed = kvg_mix64(w->seed * 0x9e3779b97f4a7c15u + w->life);
    world_open(w);
    if (verbose) {
        say_where(stdout, w);
        puts("begins");
        fflush(stdout);
    }
    drive(w);
    world_close(w);
}

int main(int argc, char **argv)
{
    uint64_t        steps = 100000, life = 0, seconds_most = UINT64_MAX;
    int             verbose = 0, single = 0;
    struct timespec from, to;
    World          *w = &world;

    w->seed = 1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--verbose") == 0) verbose = 1;
        else if (i + 1 < argc && strcmp(argv[i], "--seed") == 0) w->seed = number_of(argv[++i]);
        else if (i + 1 < argc && strcmp(argv[i], "--steps") == 0) steps = number_of(argv[++i]);
        else if (i + 1 < argc && strcmp(argv[i], "--seconds") == 0) seconds_most = number_of(argv[++i]);
        else if (i + 1 < argc && strcmp(argv[i], "--life") == 0) life = number_of(argv[++i]), single = 1;
        else {
            fprintf(stderr, "use: simulate --seed N --steps N [--seconds N] [--life K] [--verbose]\n");
            return 2;
        }
    }
    signal(SIGABRT, on_signal);
    signal(SIGSEGV, on_signal);
    kvg_log_set(on_log, NULL);
    content_init();
    clock_gettime(CLOCK_MONOTONIC, &from);
    to = from;
    for (w->life = life; w->step < steps && (uint64_t)(to.tv_sec - from.tv_sec) < seconds_most && (!single || w->life == life); w->life++) {
        one_life(w, verbose);
        clock_gettime(CLOCK_MONOTONIC, &to);
    }
    double seconds = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9;
    printf("seed %llu: %llu steps in %llu lives, no violation: %llu published, %llu not; %llu settled, %llu ranks lost, %llu rebuilt (%llu joined, %llu with places empty; %llu sequences kept, %llu reset), %llu resizes (%llu torn), %llu whole comparisons; %.1f s, %.0f steps/s\n",
           (unsigned long long)w->seed, (unsigned long long)w->step, (unsigned long long)w->lives, (unsigned long long)w->publishes,
           (unsigned long long)w->rollbacks, (unsigned long long)w->settles, (unsigned long long)w->losses,
           (unsigned long long)w->rebuilds, (unsigned long long)w->joined, (unsigned long long)w->emptied, (unsigned long long)w->kept, (unsigned long long)w->reset,
           (unsigned long long)w->resized, (unsigned long long)w->torn, (unsigned long long)w->compares, seconds,
           (double)w->step / seconds);
    return 0;
}

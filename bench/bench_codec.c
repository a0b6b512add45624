/* How fast are rows encoded and decoded, beside memcpy of as many f32 bytes? One core, one thread.
 *
 * Working set: 4 MiB of f32 per measurement, a slice of 64 MiB of source, 64 MiB of f32 target and 64 MiB for rows. Each
 * measurement is a pair of memcpy and codec in alternating order, so that a drift of the machine meets both. The two take
 * slices half a buffer apart, and a slice is used again only after more than 100 MiB of others: neither finds in a cache
 * what the other has brought there. The codec is charged the slice's f32 bytes, as memcpy is, though it writes (encode) or
 * reads (decode) fewer. The ratio is the median over pairs; GB/s are medians too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/rules/codec.h"

enum { SLICE = 1 << 20, SLICES = 16, WARMUP = 4, ROUNDS_DEFAULT = 41, ROUNDS_MAX = 1001 };

typedef struct Room {
    float   *source, *target;
    uint8_t *row, *wanted;
} Room;

typedef struct Case {
    KvFormat       format;
    const KvCodec *codec;
    int            decode;
    double         ratio, ratio_low, ratio_high; /* median, tenth and ninetieth percentile over the pairs */
    double         codec_gbs, memcpy_gbs;
    uint64_t       wrong;
    double         bar; /* least ratio, 0: none */
} Case;

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Bell-shaped values as attention heads have them: the sum of four uniforms, a scale a head of 128. */
static void fill(float *x, size_t elements, uint64_t seed)
{
    uint64_t state = seed;

    for (size_t i = 0; i < elements; i++) {
        float sum = 0.0f;

        for (int k = 0; k < 4; k++) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            sum += (float)(int32_t)(state >> 32) * 0x1p-31f;
        }
        x[i] = sum * (1.0f + (float)(i / 128 % 7));
    }
}

static size_t slice_bytes(KvFormat format)
{
    return (size_t)SLICE / KVG_BLOCK_ELEMENTS * kvg_format_bytes_per_32(format);
}

static void run_once(const Case *c, const Room *room, size_t slice, KvEncodeCounts *counts)
{
    uint8_t *row = room->row + slice * slice_bytes(c->format);

    if (c->decode) {
        c->codec->decode[c->format](row, SLICE, room->target + slice * SLICE);
    } else {
        c->codec->encode[c->format](room->source + slice * SLICE, SLICE, row, counts);
    }
}

static double time_codec(const Case *c, const Room *room, size_t slice, KvEncodeCounts *counts)
{
    double start = now_us();

    run_once(c, room, slice, counts);
    return now_us() - start;
}

static double time_memcpy(const Room *room, size_t slice)
{
    double start = now_us();

    memcpy(room->target + slice * SLICE, room->source + slice * SLICE, SLICE * sizeof(float));
    return now_us() - start;
}

static void measure(Case *c, const Room *room, int rounds)
{
    static double  ratio[ROUNDS_MAX], copy_us[ROUNDS_MAX], codec_us[ROUNDS_MAX];
    KvEncodeCounts counts = {0, 0};
    const double   bytes = SLICE * sizeof(float);

    for (int r = -WARMUP; r < rounds; r++) {
        size_t slice = (size_t)(r + WARMUP) % SLICES;
        size_t other = (slice + SLICES / 2) % SLICES;
        int    codec_first = r & 1;
        double codec = codec_first ? time_codec(c, room, other, &counts) : 0;
        double copy = time_memcpy(room, slice);

        if (!codec_first) {
            codec = time_codec(c, room, other, &counts);
        }
        if (r >= 0) {
            copy_us[r] = copy;
            codec_us[r] = codec;
            ratio[r] = copy / codec;
        }
    }
    qsort(ratio, (size_t)rounds, sizeof *ratio, by_value);
    qsort(copy_us, (size_t)rounds, sizeof *copy_us, by_value);
    qsort(codec_us, (size_t)rounds, sizeof *codec_us, by_value);
    c->ratio = ratio[rounds / 2];
    c->ratio_low = ratio[rounds / 10];
    c->ratio_high = ratio[rounds - 1 - rounds / 10];
    c->memcpy_gbs = bytes / copy_us[rounds / 2] * 1e-3;
    c->codec_gbs = bytes / codec_us[rounds / 2] * 1e-3;
    c->wrong = counts.nonfinite + counts.saturated; /* the source has none */
}

/* Largest error of a format for an element of a block whose largest magnitude is `amax`; a little more than the format's own. */
static float step(KvFormat format, float amax)
{
    switch (format) {
    case KVG_Q8_0: return amax / 127;
    case KVG_Q5_1: return 2 * amax / 31;
    case KVG_Q4_0: return amax / 7; /* the clipped end is a whole step off */
    case KVG_FP8: return amax / 15;
    case KVG_F16: return amax / 2000;
    case KVG_BF16: return amax / 250;
    default: return 0;
    }
}

static uint64_t far_from(const float *x, const float *y, KvFormat format)
{
    uint64_t wrong = 0;

    for (size_t i = 0; i < SLICE; i += KVG_BLOCK_ELEMENTS) {
        float amax = 0;

        for (size_t k = 0; k < KVG_BLOCK_ELEMENTS; k++) {
            amax = x[i + k] > amax ? x[i + k] : -x[i + k] > amax ? -x[i + k] : amax;
        }
        for (size_t k = 0; k < KVG_BLOCK_ELEMENTS; k++) {
            float error = x[i + k] - y[i + k];

            wrong += !(error <= step(format, amax) && -error <= step(format, amax));
        }
    }
    return wrong;
}

/* Elements of slice 0 that the case gets wrong: bytes or values unequal to the reference's, values too far from the source. */
static uint64_t count_wrong(const Case *c, const Room *room)
{
    KvEncodeCounts counts = {0, 0};
    uint64_t       wrong = 0;
    float         *values = (float *)room->wanted;

    run_once(c, room, 0, &counts);
    if (!c->decode) {
        kvg_encode_f32_ref(c->format, room->source, SLICE, room->wanted, &counts);
        for (size_t i = 0; i < slice_bytes(c->format); i++) {
            wrong += room->row[i] != room->wanted[i];
        }
        c->codec->decode[c->format](room->row, SLICE, room->target);
    } else {
        kvg_codec_portable()->decode[c->format](room->row, SLICE, values);
        wrong += memcmp(values, room->target, SLICE * sizeof(float)) != 0;
    }
    return wrong + far_from(room->source, room->target, c->format) + counts.nonfinite + counts.saturated;
}

static size_t list_cases(Case *cases)
{
    const KvCodec *codecs[2] = {kvg_codec_portable(), kvg_codec_avx2()};
    size_t         n = 0;

    for (int decode = 0; decode < 2; decode++) {
        for (int format = KVG_POLICY + 1; format < KVG_FORMAT_COUNT; format++) {
            for (int k = 0; k < 2 && codecs[k] != NULL; k++) {
                int barred = format == KVG_Q8_0 && !decode;

                cases[n++] = (Case){.format = (KvFormat)format, .codec = codecs[k], .decode = decode,
                                    .bar = !barred ? 0 : k == 0 ? 0.2 : 0.7};
            }
        }
    }
    return n;
}

/* Bars are for release builds without sanitizers; others report and do not judge. */
static int below_bar(const Case *c)
{
#if defined(__OPTIMIZE__) && defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__)
    return c->ratio < c->bar;
#else
    (void)c;
    return 0;
#endif
}

static void print_table(const Case *cases, size_t n, int rounds)
{
    printf("# bench_codec %s  threads 1  slice %zu MiB of f32 in %zu MiB  warmup %d  pairs %d  check 1  seed 7\n", KVG_VERSION,
           SLICE * sizeof(float) >> 20, (size_t)SLICE * SLICES * sizeof(float) >> 20, WARMUP, rounds);
    printf("# ratio: codec over memcpy of as many f32 bytes in the same pair, median; GB/s of f32\n");
    printf("# %6s %6s %9s  %6s %6s %6s  %8s %8s  %6s  %6s\n", "call", "format", "path", "ratio", "p10", "p90", "codec",
           "memcpy", "bar", "wrong");
    printf("# %6s %6s %9s  %6s %6s %6s  %8s %8s  %6s  %6s\n", "", "", "", "(x)", "(x)", "(x)", "(GB/s)", "(GB/s)", "(x)", "");
    for (size_t i = 0; i < n; i++) {
        const Case *c = &cases[i];
        char        bar[16] = "-";

        if (c->bar > 0) {
            snprintf(bar, sizeof bar, "%.2f", c->bar);
        }
        printf("  %6s %6s %9s  %6.2f %6.2f %6.2f  %8.2f %8.2f  %6s  %6llu%s\n", c->decode ? "decode" : "encode",
               kvg_format_name(c->format), c->codec->name, c->ratio, c->ratio_low, c->ratio_high, c->codec_gbs, c->memcpy_gbs,
               bar, (unsigned long long)c->wrong, below_bar(c) ? "  BELOW BAR" : "");
    }
}

/* A line a case. */
static void print_json(const Case *cases, size_t n, int rounds)
{
    for (size_t i = 0; i < n; i++) {
        const Case *c = &cases[i];

        printf("{\"bench\": \"codec\", \"slice_bytes\": %zu, \"buffer_bytes\": %zu, \"pairs\": %d, "
               "\"call\": \"%s\", \"format\": \"%s\", \"path\": \"%s\", \"ratio\": %.4f, \"ratio_p10\": %.4f, "
               "\"ratio_p90\": %.4f, \"codec_gb_per_s\": %.3f, \"memcpy_gb_per_s\": %.3f, \"wrong\": %llu",
               SLICE * sizeof(float), (size_t)SLICE * SLICES * sizeof(float), rounds, c->decode ? "decode" : "encode",
               kvg_format_name(c->format), c->codec->name, c->ratio, c->ratio_low, c->ratio_high, c->codec_gbs, c->memcpy_gbs,
               (unsigned long long)c->wrong);
        if (c->bar > 0) {
            printf(", \"bar\": %.2f", c->bar);
        }
        printf(", \"ok\": %s}\n", c->wrong == 0 && !below_bar(c) ? "true" : "false");
    }
}

/* Every page is written once, so that no measurement pays for the first touch. */
static int make_room(Room *room)
{
    const size_t bytes = (size_t)SLICE * SLICES * sizeof(float);

    room->source = malloc(bytes);
    room->target = malloc(bytes);
    room->row = malloc(bytes);
    room->wanted = malloc(SLICE * sizeof(float));
    if (room->source == NULL || room->target == NULL || room->row == NULL || room->wanted == NULL) {
        return -1;
    }
    fill(room->source, (size_t)SLICE * SLICES, 7);
    memset(room->target, 1, bytes);
    memset(room->row, 1, bytes);
    memset(room->wanted, 1, SLICE * sizeof(float));
    return 0;
}

static void free_room(Room *room)
{
    free(room->source);
    free(room->target);
    free(room->row);
    free(room->wanted);
}

/* Decodes find rows of their format: each slice is encoded before, outside the clock. */
static void run_case(Case *c, const Room *room, int rounds)
{
    KvEncodeCounts counts = {0, 0};

    for (size_t slice = 0; c->decode && slice < SLICES; slice++) {
        kvg_encode_f32(c->format, room->source + slice * SLICE, SLICE, room->row + slice * slice_bytes(c->format), &counts);
    }
    measure(c, room, rounds);
    c->wrong += count_wrong(c, room);
}

static int read_options(int argc, char **argv, int *json, int *rounds)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            *json = 1;
        } else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) {
            *rounds = atoi(argv[++i]);
        } else {
            *rounds = 0;
        }
    }
    if (*rounds < 1 || *rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: bench_codec [--json] [--rounds 1..%d]\n", ROUNDS_MAX);
        return -1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    Case     cases[4 * KVG_FORMAT_COUNT];
    Room     room = {NULL, NULL, NULL, NULL};
    int      json = 0, rounds = ROUNDS_DEFAULT, missed = 0;
    uint64_t wrong = 0;

    if (read_options(argc, argv, &json, &rounds) != 0) {
        return EXIT_FAILURE;
    }
    if (make_room(&room) != 0) {
        fprintf(stderr, "bench_codec: no memory for its buffers\n");
        free_room(&room);
        return EXIT_FAILURE;
    }
    size_t n = list_cases(cases);

    for (size_t i = 0; i < n; i++) {
        run_case(&cases[i], &room, rounds);
        wrong += cases[i].wrong;
        missed += below_bar(&cases[i]);
    }
    if (json) {
        print_json(cases, n, rounds);
    } else {
        print_table(cases, n, rounds);
        printf("# wrong values %llu %s; below bar %d %s\n", (unsigned long long)wrong, wrong == 0 ? "OK" : "FAILED", missed,
               missed == 0 ? "OK" : "FAILED");
    }
    free_room(&room);
    return wrong == 0 && missed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

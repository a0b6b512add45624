/* What does a vote over MPI cost, beside a bare MPI_Allgather of as many bytes in the same run?
 *
 *   allgather  MPI_Allgather of one record a rank
 *   exchange   the same bytes through the KvComm seam: post, then take everybody's
 *   vote       the whole of it: build the record (sums given, accepted counts of all sequences copied in), post, take all
 *              into their places, decide
 *
 * Rounds of the three alternate, with a barrier before each, so that a drift of the machine meets all three; a round's
 * ratio is of neighbours in time, and the ratio reported is the median over rounds. Times are rank 0's. Both ranks need a
 * core each: mpirun --bind-to core -n 2. Every record received and every decision is checked. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvgrid/kvgrid_mpi.h>
#include <kvgrid/vote.h>

#include "runtime/comm/clock.h"

enum { ROUNDS_DEFAULT = 201, ROUNDS_MAX = 2001, ITERS_DEFAULT = 500, SEQUENCES_DEFAULT = 256, SEQUENCES_MAX = 16384, WARMUP = 3 };

typedef enum Kind { ALLGATHER = 0, EXCHANGE = 1, VOTE = 2, KINDS = 3 } Kind;

static const char *const kind_names[KINDS] = { "allgather", "exchange", "vote" };

#define BAR 1.5 /* vote over allgather, 2 ranks, 576 bytes */

typedef struct Options {
    int rounds, iters, sequences, json;
} Options;

typedef struct Table {
    KvComm         comm;
    int            sequences;
    size_t         bytes, stride;
    uint64_t       step; /* of the next exchange, the same on all ranks */
    uint64_t       wrong;
    uint16_t      *accepted; /* [sequences] as a step would have them */
    uint8_t       *own;      /* [stride] */
    uint8_t       *all;      /* [2][ranks][stride]: places of even and odd steps, since a peer may be one step ahead */
    KvVoteRecord **records;  /* [2][ranks] into all */
    int            arrived[2];
} Table;

static KvVoteRecord *own_record(const Table *table)
{
    return (KvVoteRecord *)table->own;
}

/* What a record of this step must hold where this bench looks. */
static uint64_t is_wrong(const Table *table, const void *record, uint64_t step, int rank)
{
    KvVoteRecord head; /* copies: an all-gather packs records of any size, and they may lie unaligned */
    uint16_t     last;

    memcpy(&head, record, sizeof head);
    memcpy(&last, (const uint8_t *)record + table->bytes - sizeof last, sizeof last);
    return head.step != step || head.rank != rank || last != (uint16_t)table->sequences;
}

static void exchange_allgather(Table *table)
{
    own_record(table)->step = table->step;
    MPI_Allgather(table->own, (int)table->bytes, MPI_BYTE, table->all, (int)table->bytes, MPI_BYTE, MPI_COMM_WORLD);
    for (int rank = 0; rank < table->comm.size; rank++) {
        table->wrong += is_wrong(table, table->all + (size_t)rank * table->bytes, table->step, rank);
    }
}

/* Takes until every other rank's record of this step is here. With `keep`, each goes into its place. */
static void take_all(Table *table, int keep)
{
    const KvCommOps *ops = table->comm.ops;
    int              now = (int)(table->step % 2), peers = table->comm.size - 1, peer = -1;

    for (uint64_t rounds = 0; table->arrived[now] < peers; rounds++) {
        const KvVoteRecord *record = ops->take(table->comm.self, &peer);

        if (record == NULL) {
            ops->relax(table->comm.self, rounds);
            continue;
        }
        int parity = (int)(record->step % 2);

        table->wrong += is_wrong(table, record, table->step + (uint64_t)(parity != now), peer);
        table->arrived[parity]++;
        if (keep) {
            memcpy(table->records[parity * table->comm.size + peer], record, table->bytes);
        }
    }
    table->arrived[now] = 0;
}

static void exchange_comm(Table *table)
{
    own_record(table)->step = table->step;
    table->wrong += table->comm.ops->post(table->comm.self, table->own) != KVG_OK;
    take_all(table, 0);
}

/* A record as kvg_step_post makes it from the step's sums. */
static void build(Table *table, KvVoteRecord *record)
{
    *record = (KvVoteRecord){ .step = table->step,
                              .epoch = 1,
                              .rank = (uint16_t)table->comm.rank,
                              .targets = table->step * 3 + 1,
                              .accepted = table->step * 5 + 1,
                              .layout = 7,
                              .user = table->step * 11 + 1,
                              .decided = table->step - 1,
                              .count = (uint32_t)table->sequences };
    memcpy(record->accepted_rows, table->accepted, (size_t)table->sequences * sizeof *table->accepted);
}

static void vote(Table *table)
{
    KvVoteRecord **records = table->records + (table->step % 2) * (size_t)table->comm.size;
    KvVoteRecord  *own = records[table->comm.rank];
    KvVoteOutcome  outcome;

    build(table, own);
    table->wrong += table->comm.ops->post(table->comm.self, own) != KVG_OK;
    take_all(table, 1);
    kvg_vote_decide((const KvVoteRecord *const *)records, (uint32_t)table->comm.size, (uint32_t)table->comm.size, &outcome);
    table->wrong += outcome.kind != KVG_VOTE_PUBLISH;
}

/* Microseconds a call. */
static double time_kind(Table *table, Kind kind, int iters)
{
    void (*const calls[KINDS])(Table *) = { exchange_allgather, exchange_comm, vote };

    build(table, own_record(table));
    MPI_Barrier(MPI_COMM_WORLD);
    uint64_t begin = kvg_clock_ns();

    for (int i = 0; i < iters; i++) {
        table->step++;
        calls[kind](table);
    }
    return (double)(kvg_clock_ns() - begin) * 1e-3 / iters;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

typedef struct Result {
    double us[KINDS], us_min[KINDS];          /* median and least over rounds */
    double ratio[KINDS], low[KINDS], high[KINDS]; /* to the allgather of the same round: median, tenth, ninetieth percentile */
} Result;

static void measure(Table *table, const Options *options, Result *result)
{
    static double us[KINDS][ROUNDS_MAX], ratio[KINDS][ROUNDS_MAX];
    int           rounds = options->rounds;

    for (int round = -WARMUP; round < rounds; round++) {
        for (int k = 0; k < KINDS; k++) {
            int    kind = (k + round + WARMUP) % KINDS; /* each is first, second and third in turn */
            double took = time_kind(table, (Kind)kind, options->iters);

            if (round >= 0) {
                us[kind][round] = took;
            }
        }
    }
    for (int kind = 0; kind < KINDS; kind++) {
        for (int round = 0; round < rounds; round++) {
            ratio[kind][round] = us[kind][round] / us[ALLGATHER][round];
        }
    }
    for (int kind = 0; kind < KINDS; kind++) {
        qsort(us[kind], (size_t)rounds, sizeof us[kind][0], by_value);
        qsort(ratio[kind], (size_t)rounds, sizeof ratio[kind][0], by_value);
        result->us[kind] = us[kind][rounds / 2];
        result->us_min[kind] = us[kind][0];
        result->ratio[kind] = ratio[kind][rounds / 2];
        result->low[kind] = ratio[kind][rounds / 10];
        result->high[kind] = ratio[kind][rounds - 1 - rounds / 10];
    }
}

/* Bars are for release builds without sanitizers, on the grid they were set for. */
static int over_bar(const Table *table, const Result *result)
{
#if defined(__OPTIMIZE__) && defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__)
    return table->comm.size == 2 && table->sequences == SEQUENCES_DEFAULT && result->ratio[VOTE] > BAR;
#else
    (void)table, (void)result;
    return 0;
#endif
}

static void print_table(const Table *table, const Options *options, const Result *result)
{
    printf("# bench_vote %s  comm %s  ranks %d  record %zu bytes (%d sequences)  warmup %d  rounds %d  iters %d  check 1\n", KVG_VERSION,
           table->comm.ops->name, table->comm.size, table->bytes, table->sequences, WARMUP, options->rounds, options->iters);
    printf("# ratio: time over MPI_Allgather of as many bytes in the same round, median over rounds\n");
    printf("# %9s  %6s %6s %6s  %8s %8s  %5s\n", "call", "ratio", "p10", "p90", "t_med", "t_min", "bar");
    printf("# %9s  %6s %6s %6s  %8s %8s  %5s\n", "", "(x)", "(x)", "(x)", "(us)", "(us)", "(x)");
    for (int kind = VOTE; kind >= 0; kind--) {
        printf("  %9s  %6.2f %6.2f %6.2f  %8.3f %8.3f  %5s\n", kind_names[kind], result->ratio[kind], result->low[kind],
               result->high[kind], result->us[kind], result->us_min[kind], kind == VOTE ? "1.50" : "-");
    }
    printf("# wrong records or decisions %llu %s; vote within the bar %s\n", (unsigned long long)table->wrong,
           table->wrong == 0 ? "OK" : "FAILED", over_bar(table, result) ? "FAILED" : "OK");
}

/* A line a call. */
static void print_json(const Table *table, const Options *options, const Result *result)
{
    for (int kind = 0; kind < KINDS; kind++) {
        printf("{\"bench\": \"vote\", \"comm\": \"%s\", \"ranks\": %d, \"record_bytes\": %zu, \"rounds\": %d, \"iters\": %d, "
               "\"call\": \"%s\", \"ratio\": %.4f, \"ratio_p10\": %.4f, \"ratio_p90\": %.4f, \"us\": %.4f, \"us_min\": %.4f",
               table->comm.ops->name, table->comm.size, table->bytes, options->rounds, options->iters, kind_names[kind],
               result->ratio[kind], result->low[kind], result->high[kind], result->us[kind], result->us_min[kind]);
        if (kind == VOTE) {
            printf(", \"bar\": %.2f", BAR);
        }
        printf(", \"wrong\": %llu, \"ok\": %s}\n", (unsigned long long)table->wrong,
               table->wrong == 0 && (kind != VOTE || !over_bar(table, result)) ? "true" : "false");
    }
}

static int read_number(const char *text, int most, int *number)
{
    char *end = NULL;
    long  value = strtol(text, &end, 10);

    *number = (int)value;
    return end != text && *end == '\0' && value >= 1 && value <= most;
}

static int read_options(int argc, char **argv, Options *options)
{
    *options = (Options){ .rounds = ROUNDS_DEFAULT, .iters = ITERS_DEFAULT, .sequences = SEQUENCES_DEFAULT };
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";

        if (strcmp(argv[i], "--json") == 0) {
            options->json = 1;
            continue;
        }
        int ok = strcmp(argv[i], "--rounds") == 0      ? read_number(value, ROUNDS_MAX, &options->rounds)
                 : strcmp(argv[i], "--iters") == 0     ? read_number(value, 1000000, &options->iters)
                 : strcmp(argv[i], "--sequences") == 0 ? read_number(value, SEQUENCES_MAX, &options->sequences)
                                                       : 0;
        if (!ok) {
            return 0;
        }
        i++;
    }
    return 1;
}

static int table_new(const Options *options, Table *table)
{
    size_t ranks = (size_t)table->comm.size;

    table->sequences = options->sequences;
    table->bytes = kvg_vote_record_bytes((uint32_t)options->sequences);
    table->stride = (table->bytes + 63) / 64 * 64;
    table->step = 1;
    table->accepted = calloc((size_t)options->sequences, sizeof *table->accepted);
    table->own = calloc(1, table->stride);
    table->all = calloc(2 * ranks, table->stride);
    table->records = calloc(2 * ranks, sizeof *table->records);
    if (table->accepted == NULL || table->own == NULL || table->all == NULL || table->records == NULL) {
        return 0;
    }
    for (int i = 0; i < options->sequences; i++) {
        table->accepted[i] = (uint16_t)(i + 1);
    }
    for (size_t i = 0; i < 2 * ranks; i++) {
        table->records[i] = (KvVoteRecord *)(table->all + i * table->stride);
    }
    return table->comm.ops->records_open(table->comm.self, table->bytes) == KVG_OK;
}

static void table_free(Table *table)
{
    free(table->accepted);
    free(table->own);
    free(table->all);
    free(table->records);
}

int main(int argc, char **argv)
{
    Table    table = { 0 };
    Options  options;
    Result   result;
    uint64_t wrong = 0;

    MPI_Init(&argc, &argv);
    if (!read_options(argc, argv, &options)) {
        fprintf(stderr, "usage: mpirun --bind-to core -n 2 bench_vote [--json] [--rounds 1..%d] [--iters N] [--sequences 1..%d]\n",
                ROUNDS_MAX, SEQUENCES_MAX);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (kvg_mpi_comm_create(MPI_COMM_WORLD, &table.comm) != KVG_OK || !table_new(&options, &table)) {
        fprintf(stderr, "bench_vote: no set-up: %s\n", kvg_last_error());
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    }
    measure(&table, &options, &result);
    MPI_Allreduce(&table.wrong, &wrong, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    table.wrong = wrong;
    int failed = wrong != 0 || (table.comm.rank == 0 && over_bar(&table, &result));

    if (table.comm.rank == 0) {
        (options.json ? print_json : print_table)(&table, &options, &result);
    }
    table.comm.ops->close(table.comm.self);
    table_free(&table);
    MPI_Finalize();
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Doctor's table of ranks and its checks, of rows as values. What they print goes to a file. */
#include "launch/command/doctor_ranks.h"

#include <stdio.h>
#include <unistd.h>

#include "tests/launch/suite.h"

static DoctorRank rows[4];
static DoctorAsk  ask = DOCTOR_ASK_INIT;
static char       out[8192];
static int        failed;

/* `count` ranks of one machine, each with two cores of its own, 8 GB for all, a device of its own of two that all see. */
static void setup(void)
{
    memset(rows, 0, sizeof rows);
    for (int rank = 0; rank < 4; rank++) {
        DoctorRank *row = &rows[rank];
        snprintf(row->seat.host, sizeof row->seat.host, rank < 2 ? "n01" : "n02");
        row->seat.pid = 100 + rank;
        row->seat.cores = 2;
        row->seat.memory = UINT64_C(8000000000);
        row->seat.addresses = UINT64_MAX;
        for (int i = 0; i < 2; i++) {
            RankDevice *device = &row->seat.devices.device[i];
            *device = (RankDevice){ .id = { (uint8_t)(rank / 2 * 2 + i + 1) }, .bus = "0000:1b:00.0", .name = "NVIDIA H200", .ordinal = i, .node = -1 };
            kvg_index_set_add(&row->seat.allowed, (unsigned)(rank % 2 * 2 + i));
            kvg_index_set_add(&row->binding.cpus, (unsigned)(rank % 2 * 2 + i));
        }
        row->seat.devices.count = 2;
        row->device = rank % 2;
        row->local = rank % 2;
        row->locals = 2;
        row->binding.kind = BINDING_SET;
        snprintf(row->binding.why, sizeof row->binding.why, "near");
        snprintf(row->source, sizeof row->source, "SLURM_LOCALID");
    }
    ask = (DoctorAsk)DOCTOR_ASK_INIT;
}

/* Prints table and checks into `out`. */
static void show(int count)
{
    FILE *file = tmpfile();
    int   before = dup(STDOUT_FILENO);

    ck_assert_ptr_nonnull(file);
    fflush(stdout);
    dup2(fileno(file), STDOUT_FILENO);
    kvg_doctor_table(rows, count);
    failed = kvg_doctor_table_checks(rows, count, &ask);
    fflush(stdout);
    dup2(before, STDOUT_FILENO);
    close(before);
    rewind(file);
    size_t used = fread(out, 1, sizeof out - 1, file);
    out[used] = '\0';
    fclose(file);
}

#define SHOWS(text) ck_assert_msg(strstr(out, (text)) != NULL, "no \"%s\" in:\n%s", (text), out)

START_TEST(test_doctor_table_has_a_row_a_rank)
{
    setup();
    kvg_index_set_add(&rows[3].binding.on, 1);
    kvg_index_set_add(&rows[3].binding.nodes, 1);
    rows[0].device = -1;
    rows[0].seat.devices.count = 0;
    show(4);
    SHOWS("\nrank  host             pid      local   device ");
    SHOWS("\n0     n01              100      0 of 2  host ");
    SHOWS("\n1     n01              101      1 of 2  1 0000:1b:00.0 NVIDIA H200           2-3                  -      cpus 2-3: near\n");
    SHOWS("\n3     n02              103      1 of 2  1 0000:1b:00.0 NVIDIA H200           2-3                  1      cpus 2-3, memory of node 1: near\n");
}
END_TEST

START_TEST(test_doctor_table_is_fine_when_all_is)
{
    setup();
    show(4);
    ck_assert_int_eq(failed, 0);
    ck_assert_msg(strstr(out, "warn") == NULL && strstr(out, "FAIL") == NULL, "%s", out);
    SHOWS("ok    ranks       4 ranks on 2 machines, local ranks by SLURM_LOCALID");
    SHOWS("ok    devices     4 of 4 ranks on a device of their own");
    SHOWS("ok    binding     4 of 4 ranks bound\n");
    SHOWS("ok    rank memory at least 4.00 GB of host memory a rank; --memory SIZE asks whether that will do");
}
END_TEST

START_TEST(test_doctor_table_names_ranks_that_could_not_be_placed)
{
    setup();
    rows[2].status = KVG_EINVAL;
    rows[2].device = -1;
    snprintf(rows[2].sentence, sizeof rows[2].sentence, "4 ranks and 2 devices: start 2");
    show(4);
    ck_assert_int_eq(failed, 1);
    SHOWS("FAIL  ranks       rank 2: 4 ranks and 2 devices: start 2\n");
    SHOWS("warn  devices     rank 2 sees 2 device(s) and has none");
}
END_TEST

START_TEST(test_doctor_table_warns_of_devices_that_are_shared_or_hidden)
{
    setup();
    rows[3].device = 0;
    show(4);
    ck_assert_int_eq(failed, 0);
    SHOWS("warn  devices     on n02 ranks 2 and 3 share a device");
    setup();
    rows[1].seat.devices.count = 1; /* B106 */
    rows[1].device = 0;
    rows[1].seat.devices.device[0].id[0] = 2;
    show(4);
    SHOWS("warn  devices     on n01 rank 0 sees 2 device(s) and rank 1 sees 1: let all see all of them (srun --gpu-bind=none");
    setup();
    for (int rank = 0; rank < 4; rank++) {
        rows[rank].device = -1;
        rows[rank].seat.devices.count = 0;
    }
    show(4);
    SHOWS("ok    devices     no rank on a device: 0 of 4; state lives in host memory");
}
END_TEST

START_TEST(test_doctor_table_warns_of_more_ranks_than_cores)
{
    setup();
    rows[1].seat.allowed = rows[0].seat.allowed;
    show(4);
    SHOWS("ok    cores       no more ranks than cores"); /* two of two */
    rows[0].seat.cores = rows[1].seat.cores = 1;           /* two processors of one core */
    show(4);
    ck_assert_int_eq(failed, 0);
    SHOWS("warn  cores       2 ranks of n01 share 1 core(s) (cpus 0-1) and take turns");
}
END_TEST

START_TEST(test_doctor_table_warns_of_bindings_that_are_amiss)
{
    setup();
    rows[1].binding.kind = BINDING_KEPT;
    show(4);
    SHOWS("ok    binding     3 of 4 ranks bound; others run where they were started");
    rows[1].binding.amiss = 1;
    snprintf(rows[1].binding.why, sizeof rows[1].binding.why, "none of the allowed processors is near device X");
    show(4);
    ck_assert_int_eq(failed, 0);
    SHOWS("warn  binding     rank 1: none of the allowed processors is near device X; what a launcher has bound is not widened");
}
END_TEST

START_TEST(test_doctor_table_fails_where_memory_asked_for_is_not_left)
{
    setup();
    for (int rank = 0; rank < 4; rank++) {
        rows[rank].device = -1;
        rows[rank].seat.devices.count = 0;
    }
    ask.memory = UINT64_C(4000000000);
    show(4);
    ck_assert_int_eq(failed, 0);
    SHOWS("ok    rank memory at least 4.00 GB of host memory a rank\n");
    ask.memory++;
    show(4);
    ck_assert_int_eq(failed, 1);
    SHOWS("FAIL  rank memory 2 rank(s) of n01 are to take 4.00 GB each, and 8.00 GB are left there");
    ask.memory = UINT64_C(4000000000);
    rows[3].seat.memory--; /* the least that any of them says */
    show(4);
    SHOWS("FAIL  rank memory 2 rank(s) of n02");
    setup(); /* on GPUs, host memory is not what it takes */
    ask.memory = UINT64_C(90000000000);
    show(4);
    ck_assert_int_eq(failed, 0);
    rows[1].seat.addresses = ask.memory - 1;
    show(4);
    ck_assert_int_eq(failed, 1);
    SHOWS("FAIL  rank memory rank 1 on n01 is to take 90.0 GB and may map 90.0 GB (RLIMIT_AS): run ulimit -v unlimited");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        test_doctor_table_has_a_row_a_rank, test_doctor_table_is_fine_when_all_is, test_doctor_table_names_ranks_that_could_not_be_placed,
        test_doctor_table_warns_of_devices_that_are_shared_or_hidden, test_doctor_table_warns_of_more_ranks_than_cores,
        test_doctor_table_warns_of_bindings_that_are_amiss, test_doctor_table_fails_where_memory_asked_for_is_not_left,
    };

    return run_suite("doctor_table", tests, sizeof tests / sizeof *tests);
}

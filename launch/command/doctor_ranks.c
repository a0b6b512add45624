/* Doctor, the ranks: where the rows of the table come from. */
#include "launch/command/doctor_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/command/replay_gpu.h"
#include "launch/command/replay_mpi.h"
#include "launch/command/slurm.h"
#include "runtime/base/memory.h"

KvgStatus kvg_doctor_ask_check(const DoctorAsk *ask)
{
    if (strcmp(ask->bind, "auto") != 0 && strcmp(ask->bind, "none") != 0) {
        return kvg_fail(KVG_EINVAL, "--bind \"%s\" is unknown: give auto or none", ask->bind);
    }
    return KVG_OK;
}

static RankAsk rank_ask(const DoctorAsk *ask)
{
    return (RankAsk){ .per_device = (int)ask->per_device, .bind = strcmp(ask->bind, "auto") == 0 };
}

/* A row, from what placing its rank has come to. */
static void fill_row(DoctorRank *row, const RankPlace *place, KvgStatus status)
{
    row->binding = place->binding;
    row->local = place->local.rank;
    row->locals = place->local.ranks;
    row->device = place->device;
    row->status = (int32_t)status;
    snprintf(row->source, sizeof row->source, "%s", place->local.source != NULL ? place->local.source : "");
    if (status != KVG_OK) {
        snprintf(row->sentence, sizeof row->sentence, "%s", kvg_last_error());
    }
}

static int show(const DoctorRank *rows, int count, const DoctorAsk *ask)
{
    kvg_doctor_table(rows, count);
    return kvg_doctor_table_checks(rows, count, ask);
}

static int show_failure(const char *name)
{
    Finding finding;

    kvg_finding(&finding, VERDICT_FAIL, "%s", kvg_last_error());
    return kvg_finding_print(&finding, name);
}

/* ---- ranks that would be */

/* What each of `count` ranks would say of itself; all see the same. */
static void imagine_seat(const DoctorAsk *ask, const RankTopology *topology, const RankDevices *here, RankSeat *seat)
{
    kvg_rank_seat(topology, seat);
    seat->pid = 0;
    if (ask->topology == NULL) {
        seat->devices = *here;
        return;
    }
    kvg_topology_gpus(topology, &seat->devices);
    snprintf(seat->host, sizeof seat->host, "that machine");
    seat->memory = seat->addresses = UINT64_MAX;
}

static KvgStatus imagine_rows(const DoctorAsk *ask, const RankTopology *topology, const char *missing, const RankSeat *seat, int count, DoctorRank **rows)
{
    const LocalRankSources nobody = { .found_ranks = 0 };
    const RankAsk          want = rank_ask(ask);
    void                  *memory = NULL, *seats_memory = NULL;
    KvgStatus              status = KVG_OK;

    KVG_TRY(kvg_calloc((size_t)count, sizeof(DoctorRank), "the table of ranks", &memory));
    KVG_TRY_GOTO(kvg_calloc((size_t)count, sizeof *seat, "what the ranks say of themselves", &seats_memory), err_free_rows);
    DoctorRank *row = memory;
    RankSeat   *seats = seats_memory;
    for (int rank = 0; rank < count; rank++) {
        seats[rank] = row[rank].seat = *seat;
    }
    for (int rank = 0; rank < count; rank++) {
        RankPlace place;
        KvgStatus placed = kvg_rank_place_among(topology, missing, seats, count, rank, &nobody, &want, &place);
        fill_row(&row[rank], &place, placed);
    }
    kvg_free(seats_memory);
    *rows = row;
    return KVG_OK;
err_free_rows:
    kvg_free(memory);
    return status;
}

static int imagine(const DoctorAsk *ask)
{
    RankTopology *topology = NULL;
    DoctorRank   *rows = NULL;
    RankSeat      seat;
    RankDevices   devices;
    char          missing[RANK_WORDS] = "";
    int           failed = 0;

    kvg_replay_gpu_list(&devices); /* of this machine */
    if (kvg_topology_open(ask->topology, ask->topology != NULL || devices.count > 0, &topology) != KVG_OK) {
        if (ask->topology != NULL) {
            return show_failure("topology");
        }
        snprintf(missing, sizeof missing, "%s", kvg_last_error());
    }
    imagine_seat(ask, topology, &devices, &seat);
    const int one_each = seat.devices.count > 0 ? (int)seat.devices.count : 1;
    const int count = ask->ranks != 0 ? (int)ask->ranks : one_each;
    if (imagine_rows(ask, topology, missing, &seat, count, &rows) != KVG_OK) {
        failed = show_failure("ranks");
    } else {
        failed = show(rows, count, ask);
    }
    kvg_free(rows);
    kvg_topology_close(topology);
    return failed;
}

/* ---- ranks that are */

/* Somebody did not come: nobody can be asked any more, and MPI would wait for ever on its way out. */
static _Noreturn void leave(void)
{
    fflush(stdout);
    fprintf(stderr, "kvgrid doctor: %s\n", kvg_last_error());
    _Exit(1);
}

static int gather(const DoctorAsk *ask, const KvgBootstrap *bootstrap, uint32_t timeout_ms)
{
    const RankAsk want = rank_ask(ask);
    DoctorRank    mine;
    RankPlace     place;
    void         *seats = NULL, *rows = NULL;

    memset(&mine, 0, sizeof mine); /* it crosses the wire */
    if (kvg_calloc((size_t)bootstrap->ranks, sizeof mine.seat, "what the ranks say of themselves", &seats) != KVG_OK ||
        kvg_calloc((size_t)bootstrap->ranks, sizeof mine, "the table of ranks", &rows) != KVG_OK) {
        leave();
    }
    kvg_replay_gpu_list(&mine.seat.devices);
    KvgStatus status = kvg_rank_place(bootstrap, timeout_ms, &want, &mine.seat, seats, &place);
    if (status == KVG_OK || status == KVG_EINVAL) {
        fill_row(&mine, &place, status);
        status = bootstrap->allgather(bootstrap->user, &mine, rows, sizeof mine, timeout_ms);
    }
    if (status != KVG_OK) {
        leave();
    }
    int failed = show(rows, bootstrap->ranks, ask);
    kvg_free(rows);
    kvg_free(seats);
    return failed;
}

int kvg_doctor_ranks(const DoctorAsk *ask)
{
    ReplayLaunch launch;

    if (ask->topology != NULL || ask->ranks != 0) {
        return imagine(ask);
    }
    if (!kvg_slurm_is_launched()) {
        return ask->memory != 0 ? imagine(ask) : 0; /* what each rank is to take is a question about ranks */
    }
    if (kvg_replay_launch_start(&launch) != KVG_OK && launch.lost == NULL) {
        return show_failure("ranks"); /* it is no rank; else it is SLURM's count, of which the line on SLURM tells */
    }
    int failed = gather(ask, &launch.bootstrap, launch.timeout_ms);
    kvg_replay_launch_stop(&launch);
    return failed;
}

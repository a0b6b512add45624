/* Doctor, the ranks: a table of what each is given, and what is wrong with it. Private.
 *
 * Under mpirun or srun of the ranks there are, from rank 0; by --ranks and --topology of those there would be. */
#ifndef KVG_COMMAND_DOCTOR_RANKS_H
#define KVG_COMMAND_DOCTOR_RANKS_H

#include <stdint.h>

#include "launch/command/doctor_host.h"
#include "launch/rank/place_rank.h"

typedef struct DoctorAsk {
    const char *topology; /* NULL: this machine's */
    const char *bind;     /* "auto", "none" */
    uint64_t    ranks;    /* 0: those there are; of a topology, one a device */
    uint64_t    per_device;
    uint64_t    memory;   /* bytes a rank is to take; 0: not said */
} DoctorAsk;
#define DOCTOR_ASK_INIT { .bind = "auto", .per_device = 1 }

/* EINVAL: a word that is none. */
KvgStatus kvg_doctor_ask_check(const DoctorAsk *ask);

/* Prints the table and its checks, where there are several ranks or ranks are asked about; 1: a check failed. Reach: collective under a launcher. */
int kvg_doctor_ranks(const DoctorAsk *ask);

/* ---- the parts, for tests */

typedef struct DoctorRank { /* crosses the wire */
    RankSeat    seat;
    RankBinding binding;
    int32_t     local, locals, device;
    int32_t     status;        /* KvgStatus of its placing */
    char        source[32];    /* of its local rank */
    char        sentence[400]; /* why not */
} DoctorRank;

void kvg_doctor_table(const DoctorRank *ranks, int count);
/* The checks of the table; 1: one failed. */
int  kvg_doctor_table_checks(const DoctorRank *ranks, int count, const DoctorAsk *ask);

#endif

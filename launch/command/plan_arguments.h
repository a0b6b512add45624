/* Plan's arguments: what `kvgrid plan` was asked for. Private to the command. */
#ifndef KVG_COMMAND_PLAN_ARGUMENTS_H
#define KVG_COMMAND_PLAN_ARGUMENTS_H

#include <stdint.h>
#include <stdio.h>

#include <kvgrid/format.h>

typedef struct PlanArguments {
    const char *model;
    uint64_t    tp, pp;        /* 0: not given */
    uint64_t    device_memory; /* bytes of each rank's device; 0: not given */
    uint64_t    weights_bytes; /* 0: the config's estimate */
    uint64_t    reserve_bytes;
    uint64_t    ctx;
    uint64_t    columns; /* of recurrent state; 0: 2 */
    uint64_t    gpus; /* 0: no table of grids */
    const char *fence, *trace, *svg;
    KvFormat    format_k, format_v, format_latent;
    int         ring; /* -1: the policy's */
    int         mtp, json, help;
} PlanArguments;

/* Parses the arguments after "plan", and does nothing else. EINVAL with the cure; *arguments is unchanged then. */
KvgStatus kvg_plan_arguments_parse(int argc, char **argv, PlanArguments *arguments);
/* `kvgrid plan --help`. */
void kvg_plan_arguments_print(FILE *stream);

#endif

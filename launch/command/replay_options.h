/* Replay's options: what `kvgrid replay` was asked for. Private to the command. */
#ifndef KVG_COMMAND_REPLAY_OPTIONS_H
#define KVG_COMMAND_REPLAY_OPTIONS_H

#include <stdio.h>

#include <kvgrid/kvgrid.h>

#include "launch/command/replay_fault.h"

typedef enum ReplayDeviceKind { REPLAY_DEVICE_HOST = 0, REPLAY_DEVICE_CUDA, REPLAY_DEVICE_AUTO } ReplayDeviceKind;

typedef enum ReplayVoteKind { REPLAY_VOTE_AUTO = 0, REPLAY_VOTE_DEVICE, REPLAY_VOTE_NCCL, REPLAY_VOTE_HOST } ReplayVoteKind;

typedef struct ReplayOptions {
    const char *model, *trace; /* paths; the argument vector's */
    const char *trail;         /* likewise; NULL: none */
    const char *metrics, *report, *placement; /* likewise */
    char      **words;         /* [word_count] all that was given, "replay" first; the argument vector */
    int         word_count;
    uint32_t    ranks;         /* to fork on this machine; 0: a launcher has started them */
    uint32_t    tp, pp;
    uint64_t    requests;      /* the first of the trace; REPLAY_NO_LIMIT: all */
    uint64_t    max_tokens;    /* a request's; REPLAY_NO_LIMIT: as the trace says */
    uint32_t    concurrency;   /* most requests open at once */
    uint32_t    chunk;         /* most prompt rows of a request a step */
    uint32_t    spec;          /* rows a decode round; 0: none */
    uint32_t    columns;       /* of recurrent state a sequence; as asked, else one a row of a round and the current one */
    uint64_t    seed;
    KvFormat    format_k, format_v, format_latent; /* KVG_POLICY: not asked for */
    int         ring;          /* -1: as the environment says, 0, 1 */
    KvLayout    layout;
    ReplayDeviceKind device;   /* AUTO: a GPU if one can be used for this run, else the host */
    ReplayVoteKind vote;       /* AUTO: the host's */
    uint64_t    memory;        /* bytes a rank; 0: chosen */
    uint32_t    ranks_per_device; /* that may share a GPU, from 1 */
    int         bind;          /* 1: near its device, or among NUMA nodes; 0: left as it is */
    int         mtp;           /* MTP blocks on the last stage, written and committed with the trunk */
    int         verify, json, help;
    ReplayFault fault;
} ReplayOptions;

/* Parses the arguments after "replay". EINVAL with the cure; *options is unchanged then. */
KvgStatus kvg_replay_options_parse(int argc, char **argv, ReplayOptions *options);
/* `kvgrid replay --help`. */
void kvg_replay_options_print(FILE *stream);

#endif

/* Options: the embedding's command line. */
#ifndef EMBED_OPTIONS_H
#define EMBED_OPTIONS_H

#include "worker.h"

typedef struct Options {
    WorkerOptions worker;
    uint32_t      chunk;  /* most prompt tokens of a request in one step */
    uint32_t      spec;   /* most drafts behind a token */
    const char   *system; /* the shared prompt; NULL: none */
    int           forks;  /* 0: it is computed anew for every request */
    int           summary;
} Options;

/* 0 and *options; or 2, having said on stderr what is wrong; or -1 after --help. */
int options_read(int argc, char **argv, Options *options);

#endif

/* Wire: the lines that clients write and read, one JSON object each.
 *
 *   in   {"id": "a", "prompt": "text" or [tokens 0..255], "max_tokens": 16, "system": true}
 *        {"abort": "a"}
 *   out  {"id": "a", "step": 7, "tokens": [104, 12]}                  what a step committed of it; the last has "done": true
 *        {"id": "a", "aborted": true}        {"id": "a", "error": "..."}        {"error": "..."} where the line names nobody
 *        {"fault": "...", "rank": 2}         {"summary": {...}}
 *
 * A line has at most WIRE_LINE_MAX bytes; of a longer one the rest is skipped. A bad line is answered, and the next one read. */
#ifndef EMBED_WIRE_H
#define EMBED_WIRE_H

#include <stddef.h>
#include <stdint.h>

enum { WIRE_LINE_MAX = 64 << 10, WIRE_ID_MAX = 64, WIRE_TOKENS_MAX = 4096 };

typedef enum WireKind { WIRE_REQUEST, WIRE_ABORT, WIRE_BAD } WireKind;

typedef struct WireLine {
    WireKind kind;
    char     id[WIRE_ID_MAX + 1];    /* "" where a bad line names nobody */
    uint32_t max_tokens;
    int      system;                 /* 1: behind the shared prompt */
    uint32_t prompt_count;
    uint16_t prompt[WIRE_TOKENS_MAX];
    char     why[256];               /* BAD */
} WireLine;

typedef struct WireReader {
    int      fd;
    int      skipping;               /* 1: inside a line that was too long */
    size_t   have;
    char     bytes[WIRE_LINE_MAX];
    WireLine line;
} WireReader;

/* Reads once what `fd` has. 0 at its end (a last line without a newline still counts), -1 when it cannot be read (errno), 1 else. */
int wire_read(WireReader *reader);
/* The next whole line, in reader->line; 0 when there is none yet. Empty lines are passed over. */
int wire_next(WireReader *reader);

/* Each writes a line to stdout at once. -1 when nobody reads it any more. */
int wire_tokens(const char *id, uint64_t step, const uint16_t *tokens, uint32_t count, int done);
int wire_aborted(const char *id);
int wire_error(const char *id, const char *why); /* "": without an id */
int wire_fault(int rank, const char *why);       /* -1: no rank to name */
/* names [count], values [count], all numbers. */
int wire_summary(const char *const *names, const double *values, uint32_t count);

#endif

/* Trace: real requests from a CSV file, in the file's order. Private.
 *
 *   TIMESTAMP,ContextTokens,GeneratedTokens
 *   2023-11-16 18:15:46.6805900,374,44
 *
 * Columns are found by the names of the first line, in any order; others are ignored. CRLF, a missing last newline, a UTF-8
 * mark at the front and blank lines at the end are fine. */
#ifndef KVG_COMMAND_TRACE_H
#define KVG_COMMAND_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include <kvgrid/status.h>

typedef struct TraceRequest {
    uint32_t context;   /* tokens of the prompt */
    uint32_t generated; /* tokens of the answer */
} TraceRequest;

typedef struct Trace {
    TraceRequest *requests;
    size_t        count;
} Trace;

/* EIO: unreadable; EFORMAT: malformed, naming file and line; ENOMEM. Freed by kvg_trace_free. */
KvgStatus kvg_trace_load(const char *path, Trace *trace);
/* The same from text in memory; `name` is for the sentences. */
KvgStatus kvg_trace_parse(const char *text, size_t bytes, const char *name, Trace *trace);
/* Frees and zeroes; a zeroed trace is allowed. */
void kvg_trace_free(Trace *trace);

#endif

/* A stream of host memory that can be captured: outside a capture work is done at once, inside one it is kept as a node of a graph, with a copy of its
 * arguments. So a captured run can be tried without a GPU. NULL: never captured. C and C++. */
#ifndef KVG_TEST_HOST_STREAM_H
#define KVG_TEST_HOST_STREAM_H

#include <stdlib.h>
#include <string.h>

typedef void (*HostWork)(const void *arguments);

enum { HOST_NODES_MAX = 32 };

typedef struct HostGraph {
    HostWork work[HOST_NODES_MAX];
    void    *arguments[HOST_NODES_MAX];
    int      count;
} HostGraph;

typedef struct HostStream {
    HostGraph *capturing; /* NULL: work is done at once */
} HostStream;

static inline void host_stream_do(void *stream, HostWork work, const void *arguments, size_t bytes)
{
    HostGraph *graph = stream != NULL ? ((HostStream *)stream)->capturing : NULL;

    if (graph == NULL) {
        work(arguments);
        return;
    }
    if (graph->count == HOST_NODES_MAX) abort(); /* a test of more nodes raises it */
    void *copy = malloc(bytes);
    memcpy(copy, arguments, bytes);
    graph->work[graph->count] = work;
    graph->arguments[graph->count++] = copy;
}

static inline void host_graph_run(const HostGraph *graph)
{
    for (int i = 0; i < graph->count; i++) graph->work[i](graph->arguments[i]);
}

static inline void host_graph_free(HostGraph *graph)
{
    for (int i = 0; i < graph->count; i++) free(graph->arguments[i]);
    free(graph);
}

#endif

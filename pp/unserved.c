/* Named, known, and not served yet: each answers ENOTSUP and says what to do instead. */
#include "pp/internal.h"

KvgStatus kvg_grid_rebuild(KvgGrid *grid, const KvgBootstrap *bootstrap, const int *survivors, int survivor_count)
{
    (void)grid, (void)bootstrap, (void)survivors, (void)survivor_count;
    return kvg_fail(KVG_ENOTSUP, "kvg_grid_rebuild is not served yet: destroy the grid and create one over the survivors");
}

static KvgStatus no_graphs(const char *call)
{
    return kvg_fail(KVG_ENOTSUP, "%s is not served yet: begin and post each step", call);
}

KvgStatus kvg_batch_capture_begin(KvgBatch *batch, const uint32_t *rows_per_slot, KvgStream stream)
{
    (void)batch, (void)rows_per_slot, (void)stream;
    return no_graphs("kvg_batch_capture_begin");
}

KvgStatus kvg_batch_capture_end(KvgBatch *batch, KvgGraph **graph)
{
    (void)batch, (void)graph;
    return no_graphs("kvg_batch_capture_end");
}

KvgStatus kvg_run_begin(KvgBatch *batch, uint32_t steps, uint32_t rows_max)
{
    (void)batch, (void)steps, (void)rows_max;
    return no_graphs("kvg_run_begin");
}

KvgStatus kvg_run_end(KvgBatch *batch)
{
    (void)batch;
    return no_graphs("kvg_run_end");
}

/* Named, known, and not served yet: each answers ENOTSUP and says what to do instead. */
#include "pp/internal.h"

KvgStatus kvg_grid_rebuild(KvgGrid *grid, const KvgBootstrap *bootstrap, const int *survivors, int survivor_count)
{
    (void)grid, (void)bootstrap, (void)survivors, (void)survivor_count;
    return kvg_fail(KVG_ENOTSUP, "kvg_grid_rebuild is not served yet: destroy the grid and create one over the survivors");
}

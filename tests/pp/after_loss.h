/* After a loss: on_lost of KvgGridOptions, and what an engine does once its collectives have come back. */
static void lost(void *user, int rank, const char *why) /* called by kvg_grid_progress, or whatever else waits on the grid */
{
    (void)rank, (void)why;
    my_collectives_abort((Engine *)user); /* ncclCommAbort, a closed socket: whoever is stuck in one comes back with an error */
}

static KvgStatus go_on(Engine *engine, const KvgBootstrap *bootstrap, const int *survivors, int count)
{
    KvgRebuildReport *report = NULL;
    KvgStatus         status = kvg_grid_rebuild(engine->grid, bootstrap, survivors, count, NULL, &report);

    for (uint32_t i = 0; report != NULL && i < report->count; i++) {
        const KvgRebuiltSequence *one = &report->sequences[i];
        if (one->rows_held < one->rows) my_request_recompute(engine, one->id, one->rows); /* open still, under its handle, with 0 rows */
    }
    kvg_rebuild_report_free(report);
    return status;
}

/* Run, watching: the board that votes meet on, and the host's eye on a run that is on: signs of life move the deadline, a loss ends the waits. */
#include "pp/run_impl.h"

#include <string.h>

/* ---- the grid's board */

uint32_t kvg_grid_record_sequences(const KvgGrid *grid)
{
    return grid != NULL && grid->votes != NULL ? grid->votes->max_step_sequences : 0;
}

KvgStatus kvg_grid_vote_on_device(KvgGrid *grid, const KvVoteBoard *board, KvVoteControl *control)
{
    if (grid == NULL || (board != NULL && control == NULL)) {
        return kvg_fail(KVG_EINVAL, "kvg_grid_vote_on_device: a grid, and with a board the host's side of its control block");
    }
    if (grid->run_count != 0) {
        return kvg_fail(KVG_EBUSY, "a run of this grid is on; end it before its board changes");
    }
    if (board == NULL) {
        memset(&grid->board, 0, sizeof grid->board);
        grid->board_control = NULL;
        return KVG_OK;
    }
    KVG_TRY(kvg_grid_no_hole(grid, "kvg_grid_vote_on_device"));
    if (board->ranks != (uint32_t)grid->ranks || board->rank != (uint32_t)grid->rank || board->tp != grid->tp) {
        return kvg_fail(KVG_EINVAL, "the board is for rank %u of %u in stages of %u, and this is rank %d of %d in stages of %u", board->rank, board->ranks,
                        board->tp, grid->rank, grid->ranks, grid->tp);
    }
    if (board->base == NULL || board->slots < kvg_vote_slots(grid->window) || board->sequences_max != kvg_grid_record_sequences(grid)) {
        return kvg_fail(KVG_EINVAL, "the board has %u slots for records of %u sequences; the grid needs %u slots and exactly %u sequences", board->slots,
                        board->sequences_max, kvg_vote_slots(grid->window), kvg_grid_record_sequences(grid));
    }
    grid->board = *board;
    grid->board_control = control;
    return KVG_OK;
}

/* ---- watching */

/* The sign of life of the rank that has been silent longest. */
static uint64_t oldest_sign(const KvgGrid *grid)
{
    uint64_t oldest = UINT64_MAX;

    for (int rank = 0; rank < grid->ranks; rank++) {
        if (rank == grid->rank) continue;
        uint64_t sign = grid->liveness.ops->last_sign_ns(grid->liveness.self, rank);
        oldest = sign < oldest ? sign : oldest;
    }
    return oldest;
}

static uint64_t steps_published(const KvgRun *run, KvVoteWord *word_p)
{
    KvVoteWord word = kvg_vote_word(*kvg_run_outcome_word(run), run->first - 1);

    *word_p = word;
    if (word.kind == KVG_VOTE_WORD_NONE) return 0;
    return (word.step - run->first) / run->advance + (uint64_t)kvg_run_word_publishes(&word);
}

/* Waits in the stream go on while every peer gives signs of life, and end at once when one is lost. One that lives and never votes ends them too, after many deadlines. */
static void watch(const KvgGrid *grid, KvgRun *run)
{
    uint64_t   now = kvg_grid_now(grid), oldest = grid->ranks > 1 ? oldest_sign(grid) : now, published;
    KvVoteWord word;

    if (grid->lost_count > 0) {
        kvg_vote_stop(run->control, 1);
        return;
    }
    published = steps_published(run, &word);
    if (published != run->progress) {
        run->progress = published;
        run->progress_ns = now;
    }
    if (oldest > run->moved_ns && now - run->progress_ns < KVG_LIVELY_DEADLINES * grid->timeout_ns) {
        run->moved_ns = oldest;
        kvg_vote_forward(run->control);
    }
}

void kvg_run_watch(KvgGrid *grid)
{
    for (uint32_t b = 0; b < grid->run_count; b++) watch(grid, grid->run[b]->run);
}

KvgStatus kvg_run_test(KvgGraph *graph, uint64_t *published, int *stopped)
{
    KvgBatch  *batch = graph != NULL ? graph->batch : NULL;
    KvVoteWord word;

    if (published == NULL || stopped == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_run_test: places for what is published and whether it has stopped are needed");
    }
    if (batch == NULL || batch->run->graph != graph) {
        return kvg_fail(KVG_ESTALE, "kvg_run_test: no run of this graph is on");
    }
    KVG_TRY(kvg_grid_turn(batch->placement->grid));
    *published = steps_published(batch->run, &word);
    *stopped = kvg_run_word_ends(&word) || (kvg_run_word_publishes(&word) && word.step == batch->run->last);
    return KVG_OK;
}

/* Taps of several stages to the last: agree once, then pieces of rows, each one exchange.
 *   1 say    what this rank's sink is, and whether its slots are whole
 *   2 agree  item by item and layer by layer, from the same words on every rank
 *   3 pieces tp_rank 0 of each earlier stage sends its slots to the ranks of the last stage, which store them */
#include <kvgrid/taps_gather.h>

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "pp/internal.h"
#include "runtime/base/checked.h"
#include "runtime/state/tap_rows.h"

#define PIECE_BYTES ((uint64_t)4 << 20)

typedef struct TapsHello { /* crosses the wire; 64-bit fields, so that they compare alike */
    uint64_t status;
    uint64_t n_taps, layers, hidden, dtype, t, origin, base, rows;
    uint64_t lo, hi; /* differ by stage */
} TapsHello;

#define ITEM(name, field) { name, offsetof(TapsHello, field) }

static const KvItem taps_items[] = {
    ITEM("the number of taps", n_taps),
    ITEM("the tapped layers (hash)", layers),
    ITEM("the hidden size", hidden),
    ITEM("the type of hidden states (format number)", dtype),
    ITEM("the sink's rows (t)", t),
    ITEM("the sink's origin", origin),
    ITEM("the forward's base row", base),
    ITEM("the rows to gather", rows),
};

typedef struct TapsState {
    KvTapRows *sink;
    uint64_t   rows;
    KvgStream  stream;
    uint64_t   piece_rows;
    uint64_t   sent, stored;  /* rows */
    uint8_t   *piece;         /* [piece_rows][own][hidden], where this rank sends */
    uint8_t   *receiver;      /* [ranks] 1: of the last stage */
    uint32_t  *lo, *hi;       /* [pp], as agreed */
    KvgStatus  local;         /* what this rank's own checks said */
    char       local_why[384];
} TapsState;

static int is_last_stage(const KvgGrid *grid)
{
    return kvg_grid_stage(grid) + 1 == grid->pp;
}

static int sends(const KvgGrid *grid)
{
    return !is_last_stage(grid) && kvg_grid_tp_rank(grid) == 0;
}

static size_t slot_bytes(const KvTapRows *sink)
{
    return (size_t)sink->hidden * sink->element_bytes;
}

/* ---- 1 say */

static KvgStatus phase_say(KvgSetup *setup)
{
    const TapsState *state = setup->state;
    const KvTapRows *sink = state->sink;
    TapsHello        hello = {.status = (uint64_t)state->local};

    if (state->local == KVG_OK) {
        hello = (TapsHello){.n_taps = sink->n_taps, .layers = XXH3_64bits(sink->layers, sink->n_taps * sizeof *sink->layers),
                            .hidden = sink->hidden, .dtype = sink->dtype, .t = sink->t, .origin = sink->origin, .base = sink->base,
                            .rows = state->rows, .lo = sink->lo, .hi = sink->hi};
    }
    return kvg_setup_gather(setup, &hello, sizeof hello);
}

/* ---- 2 agree */

static const TapsHello *hello_of(const KvgSetup *setup, int rank)
{
    return setup->gather.body[rank];
}

static KvgStatus check_statuses(const KvgSetup *setup)
{
    const TapsState *state = setup->state;

    for (int rank = 0; rank < setup->grid->ranks; rank++) {
        if (setup->gather.bytes[rank] != sizeof(TapsHello)) {
            return kvg_fail(KVG_ELAYOUT, "taps: rank %d sent %zu bytes where %zu belong; run one version of kvgrid everywhere", rank,
                            setup->gather.bytes[rank], sizeof(TapsHello));
        }
    }
    if (state->local != KVG_OK) {
        return kvg_fail(state->local, "%s", state->local_why);
    }
    for (int rank = 0; rank < setup->grid->ranks; rank++) {
        if (hello_of(setup, rank)->status != KVG_OK) {
            return kvg_fail(KVG_EREFUSED, "taps: nothing was gathered: rank %d answers %s; its own message says why", rank,
                            kvg_status_name((KvgStatus)hello_of(setup, rank)->status));
        }
    }
    return KVG_OK;
}

/* Ranks of one stage name the same layers. */
static KvgStatus agree_stages(const KvgSetup *setup)
{
    TapsState *state = setup->state;
    KvgGrid   *grid = setup->grid;

    for (int rank = 0; rank < grid->ranks; rank++) {
        const TapsHello *hello = hello_of(setup, rank);
        int              first = rank - rank % (int)grid->tp;
        if (hello->lo != hello_of(setup, first)->lo || hello->hi != hello_of(setup, first)->hi) {
            return kvg_fail(KVG_ELAYOUT, "taps: rank %d and rank %d are of one stage, and name its layers [%" PRIu64 ", %" PRIu64 ") and [%" PRIu64
                            ", %" PRIu64 ")", first, rank, hello_of(setup, first)->lo, hello_of(setup, first)->hi, hello->lo, hello->hi);
        }
        state->lo[rank / (int)grid->tp] = (uint32_t)hello->lo;
        state->hi[rank / (int)grid->tp] = (uint32_t)hello->hi;
    }
    return KVG_OK;
}

static KvgStatus agree_owners(const KvgSetup *setup)
{
    const TapsState *state = setup->state;

    for (uint32_t slot = 0; slot < state->sink->n_taps; slot++) {
        uint32_t layer = state->sink->layers[slot], owners = 0;
        for (uint32_t stage = 0; stage < setup->grid->pp; stage++) {
            owners += state->lo[stage] <= layer && layer < state->hi[stage];
        }
        if (owners != 1) {
            return kvg_fail(KVG_ELAYOUT, "taps: layer %u is tapped and %u stages own it; give every sink its stage's layers of one fence", layer,
                            owners);
        }
    }
    return KVG_OK;
}

static KvgStatus agree(KvgSetup *setup)
{
    KVG_TRY(check_statuses(setup));
    KVG_TRY(kvg_items_compare("taps: nothing was gathered", taps_items, sizeof taps_items / sizeof *taps_items,
                              (const void *const *)setup->gather.body, setup->grid->ranks));
    KVG_TRY(agree_stages(setup));
    return agree_owners(setup);
}

/* ---- 3 pieces */

static KvgStatus send_piece(KvgSetup *setup)
{
    TapsState       *state = setup->state;
    const KvTapRows *sink = state->sink;
    uint64_t         count = kvg_min_u64(state->piece_rows, state->rows - state->sent);
    size_t           bytes = sends(setup->grid) ? count * sink->own * slot_bytes(sink) : 0;
    KvgStatus        status = KVG_OK, sent;

    if (bytes > 0) {
        status = kvg_tap_rows_pack(sink, state->sent, count, sink->first, sink->own, state->piece, state->stream);
    }
    state->sent += count;
    /* A device that failed here is told by a message without rows: nobody has to wait for the deadline. */
    sent = kvg_setup_gather_to(setup, state->receiver, state->piece, status == KVG_OK ? bytes : 0);
    return status != KVG_OK ? status : sent;
}

static KvgStatus check_piece(const KvgSetup *setup, uint32_t stage, size_t bytes)
{
    int rank = (int)(stage * setup->grid->tp);

    if (setup->gather.bytes[rank] != bytes) {
        return kvg_fail(KVG_EREFUSED, "taps: rank %d sent %zu bytes of rows where %zu belong: it failed part-way, and its own message says why", rank,
                        setup->gather.bytes[rank], bytes);
    }
    return KVG_OK;
}

/* Layers ascend: the slots of a stage are a run. */
static void find_slots(const KvTapRows *sink, uint32_t lo, uint32_t hi, uint32_t *first, uint32_t *count)
{
    *first = *count = 0;
    for (uint32_t slot = 0; slot < sink->n_taps; slot++) {
        *first += sink->layers[slot] < lo;
        *count += sink->layers[slot] >= lo && sink->layers[slot] < hi;
    }
}

static KvgStatus store_piece(KvgSetup *setup)
{
    TapsState       *state = setup->state;
    const KvTapRows *sink = state->sink;
    uint64_t         count = state->sent - state->stored;

    for (uint32_t stage = 0; is_last_stage(setup->grid) && stage + 1 < setup->grid->pp; stage++) {
        uint32_t first, slots;
        find_slots(sink, state->lo[stage], state->hi[stage], &first, &slots);
        KVG_TRY(check_piece(setup, stage, count * slots * slot_bytes(sink)));
        if (count * slots > 0) {
            KVG_TRY(kvg_tap_rows_unpack(sink, state->stored, count, first, slots, setup->gather.body[stage * setup->grid->tp], state->stream));
        }
    }
    state->stored = state->sent;
    return KVG_OK;
}

static void mark_whole(KvgSetup *setup)
{
    TapsState *state = setup->state;

    for (uint32_t slot = 0; is_last_stage(setup->grid) && slot < state->sink->n_taps; slot++) {
        kvg_tap_rows_mark(state->sink, slot, 0, state->rows, KVG_TAP_LANDED);
    }
}

static KvgStatus run(KvgSetup *setup, int *done)
{
    TapsState *state = setup->state;

    if (setup->phase == 0) {
        return phase_say(setup);
    }
    KVG_TRY(setup->phase == 1 ? agree(setup) : store_piece(setup));
    if (state->stored < state->rows && setup->grid->pp > 1) {
        return send_piece(setup);
    }
    mark_whole(setup);
    *done = 1;
    return KVG_OK;
}

/* ---- the calls */

static void drop(KvgSetup *setup)
{
    TapsState *state = setup->state;

    kvg_free(state->piece);
    kvg_free(state->receiver);
    kvg_free(state->lo);
    kvg_free(state->hi);
}

static KvgStatus make(const KvgGrid *grid, TapsState *state)
{
    const KvTapRows *sink = state->sink;
    void            *memory = NULL;

    /* From what every rank has in common, so that all walk the same number of pieces. */
    state->piece_rows = kvg_max_u64(PIECE_BYTES / (sink->n_taps * slot_bytes(sink)), 1);
    KVG_TRY(kvg_tap_rows_whole(sink, state->rows));
    KVG_TRY(KVG_NEW((size_t)grid->ranks, "gathering taps", &state->receiver));
    memset(state->receiver + (grid->pp - 1) * grid->tp, 1, grid->tp);
    KVG_TRY(KVG_NEW(grid->pp, "gathering taps", &state->lo));
    KVG_TRY(KVG_NEW(grid->pp, "gathering taps", &state->hi));
    if (sends(grid)) {
        KVG_TRY(kvg_calloc(kvg_min_u64(state->piece_rows, state->rows), sink->own * slot_bytes(sink), "gathering taps", &memory));
        state->piece = memory;
    }
    return KVG_OK;
}

static KvgStatus start(KvgGrid *grid, const char *what, KvTapRows *sink, uint64_t rows, KvgStream stream, KvgSetup **setup)
{
    TapsState *state;

    KVG_TRY(kvg_grid_whole(grid));
    KVG_TRY(kvg_grid_no_hole(grid, what));
    KVG_TRY(kvg_setup_new(grid, what, sizeof *state, setup));
    state = (*setup)->state;
    state->sink = sink;
    state->rows = rows;
    state->stream = stream;
    (*setup)->run = run;
    (*setup)->drop = drop;
    /* A rank that cannot take part still walks the first phase, so that the others learn of it instead of waiting. */
    state->local = make(grid, state);
    if (state->local != KVG_OK) {
        snprintf(state->local_why, sizeof state->local_why, "%s", kvg_last_error());
    }
    return KVG_OK;
}

KvgStatus kvg_taps_gather_start(KvgGrid *grid, DflashTapSink *sink, uint64_t rows, KvgStream stream, KvgSetup **setup)
{
    if (grid == NULL || sink == NULL || setup == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_taps_gather needs a grid, a sink and a place for the operation");
    }
    return start(grid, "kvg_taps_gather", kvg_dflash_tap_rows_of(sink), rows, stream, setup);
}

KvgStatus kvg_taps_gather(KvgGrid *grid, DflashTapSink *sink, uint64_t rows, KvgStream stream)
{
    KvgSetup *setup = NULL;
    return kvg_setup_finish(kvg_taps_gather_start(grid, sink, rows, stream, &setup), &setup);
}

KvgStatus kvg_hc_taps_gather_start(KvgGrid *grid, HcTapSink *sink, uint64_t rows, KvgSetup **setup)
{
    if (grid == NULL || sink == NULL || setup == NULL) {
        return kvg_fail(KVG_EINVAL, "kvg_hc_taps_gather needs a grid, a sink and a place for the operation");
    }
    return start(grid, "kvg_hc_taps_gather", kvg_hc_tap_rows_of(sink), rows, NULL, setup);
}

KvgStatus kvg_hc_taps_gather(KvgGrid *grid, HcTapSink *sink, uint64_t rows)
{
    KvgSetup *setup = NULL;
    return kvg_setup_finish(kvg_hc_taps_gather_start(grid, sink, rows, &setup), &setup);
}

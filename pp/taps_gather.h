/** Taps of several stages, gathered to the last stage once a walk (S8).
 *
 * Each stage's sink holds the slots of its own layers. Rank tp_rank 0 of every other stage sends its own slots of rows [0, rows) of the
 * forward; the sinks of the last stage's ranks end whole. Ranks of one stage hold equal copies: they must have written the same.
 * Sinks of the other stages are read and never changed.
 *   agreed on first  kind, layers, hidden size, element type, t, origin, base and `rows`, and one owner for every tapped layer: a rank that
 *                    cannot take part says so, and then nothing moves on any rank
 *   then             the rows in pieces of some MiB, so that no rank needs a second copy of them
 * A failure after the agreement (ENOMEM, EDEVICE, a lost peer) is this rank's alone: slots of other stages count as not written in its sink;
 * refuse the step, or arm again.
 * Threads: one at a time per grid and per sink. Reach: setup. The sink may not be armed, written, dropped or freed until it ended.
 *
 * Returns  EINVAL rows past t - base; ESTALE a row of this stage's layers not written since arm, a staged HcTapSink not drained, a sink dropped
 *          or never armed (each on the rank it concerns; the others EREFUSED naming that rank); ELAYOUT naming the item, or the layer
 *          that no stage or two stages own; EPEER; EINDOUBT a rank did not come; ENOMEM; EDEVICE. */
#ifndef KVG_TAPS_GATHER_H
#define KVG_TAPS_GATHER_H

#include <kvgrid/grid.h>
#include <kvgrid/taps.h>

KVG_BEGIN_DECLS

/** stream: the rows were written on it; waited for. rows 0 is allowed: every check is made and nothing moves. */
KVG_API KvgStatus kvg_taps_gather(KvgGrid *grid, DflashTapSink *sink, uint64_t rows, KvgStream stream);
KVG_API KvgStatus kvg_taps_gather_start(KvgGrid *grid, DflashTapSink *sink, uint64_t rows, KvgStream stream, KvgSetup **setup);
/** Host rows: after the drain of a staged sink. */
KVG_API KvgStatus kvg_hc_taps_gather(KvgGrid *grid, HcTapSink *sink, uint64_t rows);
KVG_API KvgStatus kvg_hc_taps_gather_start(KvgGrid *grid, HcTapSink *sink, uint64_t rows, KvgSetup **setup);

KVG_END_DECLS
#endif

/** Device vote, the kernels: post and decide inside a stream (what they do and what they share: device_vote.h). For programs that link kvgrid_cuda.
 *
 * Pointers in arrays are device memory unless said otherwise. Nothing is allocated here. Threads: any. Reach: local, posted where it says so. Set up
 * over NCCL: kvgrid_vote_nccl.h. */
#ifndef KVG_KVGRID_VOTE_H
#define KVG_KVGRID_VOTE_H

#include <kvgrid/dev.h>
#include <kvgrid/device_vote.h>

KVG_BEGIN_DECLS

/* ---- kernels: enqueue on `stream` and return; may be captured, since all that changes from step to step is read from memory.
 * EINVAL: a count out of range, a NULL that must not be; ENOTSUP: records too large for the device's shared memory; EDEVICE. */

/** Posts. Counts that cannot be (more than staged) are posted as this rank's "no", EINVAL. */
KVG_API KvgStatus kvg_vote_post_launch(const KvVoteBoard *board, const KvVoteArrays *arrays, KvgStream stream);
KVG_API KvgStatus kvg_vote_decide_launch(const KvVoteBoard *board, const KvVoteArrays *arrays, KvgStream stream);
/** Both in one. */
KVG_API KvgStatus kvg_vote_launch(const KvVoteBoard *board, const KvVoteArrays *arrays, KvgStream stream);
/** Copies the own block's slot of `step`, as it is now, into `units` [kvg_vote_slot_bytes] of mapped or pinned host memory. */
KVG_API KvgStatus kvg_vote_peek_launch(const KvVoteBoard *board, uint64_t step, void *units, KvgStream stream);
/** Posts a record that the host has formed: stores it into every rank's block, under the step and epoch that it names. Nothing waits.
 *  record  [kvg_vote_record_bytes, rounded up to 4; what is over is 0] device memory, or mapped or pinned host memory; read in stream order */
KVG_API KvgStatus kvg_vote_send_launch(const KvVoteBoard *board, const KvVoteRecord *record, KvgStream stream);
/** Its host twin. Blocks and record are host memory. */
KVG_API void kvg_vote_send_ref(const KvVoteBoard *board, const KvVoteRecord *record);

KVG_END_DECLS
#endif

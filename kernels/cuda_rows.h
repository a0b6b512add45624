/** Kernels over rows: a batch's rows encoded into planes, and decoded out of them, in one launch (S1, S8).
 *
 *   batch->plane[p].in.data   [token][head][dim], strides in elements; f32, f16 or bf16
 *   batch->plane[p].to        K and V, or latent rows and keys, or the ring of index rows
 * Arrays of the batch, tables and planes: device memory. A place whose slot is -1, or that has no rows, is skipped. Rows must be booked and
 * held; nothing is checked on the device. Fastest where `in.data` is 16-byte aligned, with strides and head_dim that are multiples of 8.
 * Both enqueue on `stream` and return, and may be captured: all that differs from step to step is read from the batch's arrays.
 * Errors: EINVAL (a type, 0 or more than 2 planes, more than 65535 places), EDEVICE. Threads: any. Reach: local. */
#ifndef KVG_CUDA_ROWS_H
#define KVG_CUDA_ROWS_H

#include <kvgrid/rows_batch.h>

KVG_BEGIN_DECLS

/** NULL stream: CUDA's legacy default stream here, for there is no device of ours at hand. */
KVG_API KvgStatus kvg_encode_batch_launch(const KvRowsBatch *batch, KvgStream stream);
/** in.type f32 or bf16: where decoded values go, rounded to nearest even. counts are not used. */
KVG_API KvgStatus kvg_decode_batch_launch(const KvRowsBatch *batch, KvgStream stream);

/** The host twins: the same over host memory, by the library's codec: the reference. Decodes to f32 alone. */
KVG_API void kvg_encode_batch_ref(const KvRowsBatch *batch);
KVG_API void kvg_decode_batch_ref(const KvRowsBatch *batch);

KVG_END_DECLS
#endif

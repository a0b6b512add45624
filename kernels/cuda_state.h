/** Kernels over everything that is no encoded row: recurrent columns, moves within a device, taps.
 *
 * All enqueue on `stream` (NULL: CUDA's legacy default stream) and return, and may be captured. Device memory throughout, save for the twins
 * named _ref, which are the same over host memory: the reference. Errors: EINVAL, EDEVICE. Threads: any. Reach: local. */
#ifndef KVG_CUDA_STATE_H
#define KVG_CUDA_STATE_H

#include <kvgrid/dev.h>
#include <kvgrid/recurrent.h>

KVG_BEGIN_DECLS

/** A pass of a recurrent layer, for all places of a batch: kvg_recurrent_token row by row, through the columns that read, write and each of the
 *  view name (recurrent.h).
 *   slots        [places] -1: skipped
 *   rows         [places] 0: skipped; NULL: rows_max each
 *   first_token  [places] of the place's rows in x and u; NULL: place * rows_max
 *   x            [token][conv_channels] f32   u [token][state_elements] f32 */
typedef struct KvRecurrentBatch {
    KvRecurrentView view; /* conv, state, read, write, each: device memory */
    uint32_t        places, rows_max;
    const int32_t  *slots;
    const uint32_t *rows;
    const uint32_t *first_token;
    const float    *x, *u;
    float           decay;
} KvRecurrentBatch;

KVG_API KvgStatus kvg_recurrent_batch_launch(const KvRecurrentBatch *batch, KvgStream stream);
KVG_API void      kvg_recurrent_batch_ref(const KvRecurrentBatch *batch);

/** kvg_recurrent_pass over device memory, of one slot whose columns the host knows. Its twin is kvg_recurrent_pass itself. */
KVG_API KvgStatus kvg_recurrent_pass_launch(const KvRecurrentPass *pass, KvgStream stream);

/** Moves with memmove's meaning, each by one block: a flat ring's rows in every plane and sequence at once.
 *   moves [count] device memory; addresses and bytes of any alignment, fastest at 16 */
typedef struct KvMove {
    void       *target;
    const void *source;
    uint64_t    bytes;
} KvMove;
KVG_API KvgStatus kvg_move_launch(const KvMove *moves, uint32_t count, KvgStream stream);
KVG_API void      kvg_move_ref(const KvMove *moves, uint32_t count);
/** One move that is given by value. */
KVG_API KvgStatus kvg_move_one_launch(KvMove move, KvgStream stream);

/** `rows` pieces of `bytes` bytes, each pitch bytes apart, copied bit for bit: hidden states of a tapped layer into their slots of
 *  DflashTapSink's buffer [t][n_taps][hidden]. No overlap. */
KVG_API KvgStatus kvg_tap_store_launch(void *target, size_t target_pitch, const void *source, size_t source_pitch, size_t bytes, size_t rows,
                                       KvgStream stream);
KVG_API void      kvg_tap_store_ref(void *target, size_t target_pitch, const void *source, size_t source_pitch, size_t bytes, size_t rows);

/** words[pairs[i].index] = pairs[i].value: tables and lengths that changed. pairs: device memory, or host memory that the device can read. */
KVG_API KvgStatus kvg_patch_launch(uint32_t *words, const KvPatch *pairs, uint32_t count, KvgStream stream);

KVG_END_DECLS
#endif

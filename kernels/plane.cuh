/** plane.cuh: rows of a plane in device code: where a row is, and a block of 32 elements encoded and decoded, inline (S1, S8).
 *
 * kvgrid's own kernels are made of these, so an engine that fuses the write into its own kernel stores the same bytes. Bit-equal to
 * kvg_encode_f32 and kvg_decode_f32 of <kvgrid/format.h>: IEEE binary32, nothing contracted, denormals kept. Every operation that rounds is
 * written as an intrinsic, so the caller's -fmad does not matter; -use_fast_math and -ftz=true do, and are refused.
 *
 * Two widths:
 *   a thread a block   kvg_encode_block, kvg_decode_block: 32 elements in registers; for fused kernels
 *   a quad a block     kvg_quad_*: lanes 4b..4b+3 of a warp hold 8 neighbouring elements each: 16-byte loads of bf16, and scales by shuffles
 *
 * Compiles as plain C++ too (the host's bytes, element by element): tests hold it to the reference without a GPU. */
#ifndef KVG_PLANE_CUH
#define KVG_PLANE_CUH

#include "plane_quad.cuh"

#include <kvgrid/rows_batch.h>

/** The address of head 0 of absolute row `row`; head h stands plane.head_stride*h further. */
KVG_DEV uint8_t *kvg_ref_row(const KvPlaneRef &ref, uint32_t slot, uint32_t row)
{
    if (ref.rows_per_chunk != 0) {
        int32_t chunk = ref.table[(size_t)slot * ref.table_stride + row / ref.rows_per_chunk];
        return ref.plane.base + (size_t)chunk * ref.plane.chunk_bytes + (row % ref.rows_per_chunk) * ref.plane.row_stride;
    }
    uint32_t at = ref.base_row != nullptr ? row - ref.base_row[slot] : row;
    if (ref.ring_rows != 0 && at >= ref.ring_rows) at %= (uint32_t)ref.ring_rows;
    return ref.plane.base + (size_t)slot * ref.plane.slot_bytes + (size_t)at * ref.plane.row_stride;
}

#endif

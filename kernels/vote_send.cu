/* Send: a record formed by the host, into every rank's block of a board.
 *
 * Bound by latency alone: the launch, one load of the record across PCIe where it lies in host memory, one store across NVLink. So a thread takes a
 * unit, reads its words once and stores it to all ranks; the words that make the tag are read by all threads at once, which is one request. */
#include <cuda_runtime_api.h>

#include <kvgrid/kvgrid_vote.h>

#include "kernels/cuda_internal.h"
#include "runtime/dev/device_vote_entry.h"

namespace {

const uint32_t THREADS_MAX = 1024;

/* 128 bits as one access: data and tag are seen together or not at all. */
__device__ __forceinline__ void store_unit(void *at, const uint32_t word[KVG_VOTE_UNIT_WORDS], uint32_t tag)
{
    const uint64_t low = (uint64_t)word[1] << 32 | word[0], high = (uint64_t)tag << 32 | word[2];
    asm volatile("{ .reg .b128 t; mov.b128 t, {%1, %2}; st.relaxed.sys.global.b128 [%0], t; }" ::"l"(at), "l"(low), "l"(high) : "memory");
}

__global__ void __launch_bounds__(THREADS_MAX) send_kernel(const __grid_constant__ KvVoteBoard board, const uint32_t *record)
{
    const uint64_t step = (uint64_t)record[1] << 32 | record[0];
    const uint32_t units = kvg_vote_units(board.sequences_max), words = KVG_VOTE_HEADER_WORDS + (board.sequences_max + 1) / 2;
    const uint32_t tag = kvg_vote_tag(step, record[2]);
    const uint64_t own = kvg_vote_slot_offset(&board, step) + (uint64_t)board.rank * units * 16u;

    for (uint32_t u = threadIdx.x; u < units; u += blockDim.x) {
        uint32_t word[KVG_VOTE_UNIT_WORDS];
        for (uint32_t w = 0; w < KVG_VOTE_UNIT_WORDS; w++) {
            const uint32_t k = u * KVG_VOTE_UNIT_WORDS + w;
            word[w] = k < words ? record[k] : 0;
        }
        for (uint32_t to = 0; to < board.ranks; to++) store_unit(board.base + to * board.stride + own + u * 16u, word, tag);
    }
}

} // namespace

KvgStatus kvg_vote_send_launch(const KvVoteBoard *board, const KvVoteRecord *record, KvgStream stream)
{
    if (board == nullptr || board->base == nullptr || board->ranks == 0 || board->ranks > KVG_VOTE_DEVICE_RANKS_MAX || board->rank >= board->ranks ||
        board->slots < 2 || (board->slots & (board->slots - 1)) != 0 || record == nullptr) {
        return kvg_fail(KVG_EINVAL, "device vote: sending takes a record and a board with a base, 1 to %u ranks and a power of two of slots",
                        KVG_VOTE_DEVICE_RANKS_MAX);
    }
    const uint32_t units = kvg_vote_units(board->sequences_max), threads = units < THREADS_MAX ? (units + 31) / 32 * 32 : THREADS_MAX;

    send_kernel<<<1, threads, 0, (cudaStream_t)stream>>>(*board, reinterpret_cast<const uint32_t *>(record));
    return kvg_cuda_check(cudaGetLastError(), "sending a record");
}

/* Vote: post and decide, one block each.
 *
 * Bound by latency alone: the launch, loads that depend on each other, one store across NVLink and the poll that sees it. Two kinds of kernels:
 *
 *   vote_kernel   serves every case; what it is made of is in vote_device.h
 *     1 load words and entries      2 digests, counts       3 barrier     4 units to every rank
 *     5 poll units, record by record into shared memory     6 barrier     7 decide, outcome word, publish
 *   quick_..      (vote_quick.h) where the record was formed ahead and its units have a thread each; they fall back on the same functions where a
 *                 step is not the common case */
#include "kernels/vote_quick.h"

#include "kernels/cuda_internal.h"

namespace {

template <bool POST, bool DECIDE>
__global__ void __launch_bounds__(WARPS_MAX * 32) vote_kernel(const __grid_constant__ Board board, const __grid_constant__ KvVoteArrays arrays)
{
    extern __shared__ __align__(16) uint32_t records[]; /* [ranks][record_words] if it decides, then the own one if it posts */
    __shared__ Shared shared;
    KvVoteWords       words = *arrays.words;

    if (words.stop != 0 || (!POST && words.posted == 0)) return;
    if (!POST) words.step = words.posted;
    vote_step<POST, DECIDE>(board, arrays, words, records, shared);
}

__global__ void peek_kernel(const __grid_constant__ Board board, uint64_t step, uint4 *units)
{
    const uint64_t offset = kvg_vote_slot_offset(&board.is, step);
    const uint32_t total = board.is.ranks * board.units;

    for (uint32_t i = threadIdx.x; i < total; i += blockDim.x) {
        const Unit unit = load_unit(unit_of(board, offset, board.is.rank, 0, i));
        units[i] = make_uint4(unit.word[0], unit.word[1], unit.word[2], unit.tag);
    }
}

/* ---- launching */

KvgStatus check_board(const KvVoteBoard *board)
{
    if (board == nullptr || board->base == nullptr || board->ranks == 0 || board->ranks > KVG_VOTE_DEVICE_RANKS_MAX || board->rank >= board->ranks ||
        board->tp == 0 || board->ranks % board->tp != 0 || board->slots < 2 || (board->slots & (board->slots - 1)) != 0 || board->control == nullptr) {
        return kvg_fail(KVG_EINVAL, "device vote: a board needs a base, 1 to %u ranks in whole stages, a power of two of slots and a control block",
                        KVG_VOTE_DEVICE_RANKS_MAX);
    }
    return KVG_OK;
}

KvgStatus check_arrays(const KvVoteBoard *board, const KvVoteArrays *arrays)
{
    if (arrays == nullptr || arrays->words == nullptr || arrays->outcome == nullptr || arrays->entries > board->sequences_max ||
        arrays->classes > KVG_VOTE_CLASSES_MAX || (arrays->entries != 0 && (arrays->ids == nullptr || arrays->generations == nullptr ||
        arrays->len == nullptr || arrays->len_staged == nullptr)) ||
        (arrays->columns != 0 && (arrays->read == nullptr || arrays->write == nullptr || arrays->each == nullptr))) {
        return kvg_fail(KVG_EINVAL, "device vote: words, outcome, ids, generations and lengths must be given, and read, write and each with columns; "
                        "entries at most %u, classes at most %u", board->sequences_max, KVG_VOTE_CLASSES_MAX);
    }
    return KVG_OK;
}

/* Dynamic shared memory past 48 KiB is asked for by name, once a device and kernel; asking again changes nothing. */
KvgStatus allow_shared(const void *kernel, size_t bytes)
{
    int device = 0, most = 0;

    if (bytes <= 40u << 10) return KVG_OK;
    KVG_TRY(kvg_cuda_check(cudaGetDevice(&device), "asking for the device"));
    KVG_TRY(kvg_cuda_check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "asking for shared memory"));
    if (bytes + sizeof(Shared) > (size_t)most) {
        return kvg_fail(KVG_ENOTSUP, "device vote: the records of all ranks take %zu bytes of shared memory, and this device has %d; lower "
                        "max_step_sequences, or vote on the host", bytes + sizeof(Shared), most);
    }
    return kvg_cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes), "asking for shared memory");
}

uint32_t threads_for(uint32_t work)
{
    const uint32_t most = WARPS_MAX * 32;
    return work >= most ? most : work < 64 ? 64 : (work + 31) / 32 * 32;
}

template <bool POST, bool DECIDE> KvgStatus launch(const KvVoteBoard *is, const KvVoteArrays *arrays, KvgStream stream)
{
    KVG_TRY(check_board(is));
    KVG_TRY(check_arrays(is, arrays));
    const Board    board = {*is, kvg_vote_units(is->sequences_max), kvg_vote_record_words(is->sequences_max)};
    const size_t   bytes = sizeof(uint32_t) * board.record_words * ((DECIDE ? is->ranks : 0) + (POST ? 1 : 0));
    const uint32_t units = is->ranks * board.units;

    KvVoteArrays plain = *arrays;
    plain.ahead = nullptr; /* nobody looks at it who is launched from here */
    KVG_TRY(allow_shared(reinterpret_cast<const void *>(&vote_kernel<POST, DECIDE>), bytes));
    vote_kernel<POST, DECIDE><<<1, threads_for(units > arrays->entries ? units : arrays->entries), bytes, (cudaStream_t)stream>>>(board, plain);
    return kvg_cuda_check(cudaGetLastError(), "launching a vote");
}

template <class Kernel> KvgStatus launch_quick(Kernel kernel, uint32_t blocks, const KvVoteBoard *board, const KvVoteArrays *arrays, KvgStream stream)
{
    KVG_TRY(check_board(board));
    KVG_TRY(check_arrays(board, arrays));
    const Quick  quick = quick_of(*board, *arrays);
    const size_t bytes = quick_shared_bytes(quick);

    KVG_TRY(allow_shared(reinterpret_cast<const void *>(kernel), bytes));
    kernel<<<blocks, quick.threads, bytes, (cudaStream_t)stream>>>(quick, NoMarks());
    return kvg_cuda_check(cudaGetLastError(), "launching a vote");
}

bool serves(const KvVoteBoard *board, const KvVoteArrays *arrays)
{
    return board != nullptr && arrays != nullptr && board->ranks != 0 && quick_serves(*board, *arrays);
}

} // namespace

KvgStatus kvg_vote_post_launch(const KvVoteBoard *board, const KvVoteArrays *arrays, KvgStream stream)
{
    if (!serves(board, arrays)) return launch<true, false>(board, arrays, stream);
    return launch_quick(quick_post_kernel<NoMarks>, 1, board, arrays, stream);
}

KvgStatus kvg_vote_decide_launch(const KvVoteBoard *board, const KvVoteArrays *arrays, KvgStream stream)
{
    if (!serves(board, arrays)) return launch<false, true>(board, arrays, stream);
    return launch_quick(quick_decide_kernel<NoMarks>, 2, board, arrays, stream);
}

KvgStatus kvg_vote_launch(const KvVoteBoard *board, const KvVoteArrays *arrays, KvgStream stream)
{
    if (!serves(board, arrays) || board->tp != board->ranks) return launch<true, true>(board, arrays, stream);
    return launch_quick(quick_kernel<NoMarks>, 2, board, arrays, stream);
}

KvgStatus kvg_vote_peek_launch(const KvVoteBoard *is, uint64_t step, void *units, KvgStream stream)
{
    KVG_TRY(check_board(is));
    if (units == nullptr) return kvg_fail(KVG_EINVAL, "device vote: nowhere to copy a slot to");
    const Board board = {*is, kvg_vote_units(is->sequences_max), kvg_vote_record_words(is->sequences_max)};

    peek_kernel<<<1, threads_for(is->ranks * board.units), 0, (cudaStream_t)stream>>>(board, step, (uint4 *)units);
    return kvg_cuda_check(cudaGetLastError(), "looking at a vote's records");
}

/* Blocks of threads on a host, for the vote's device code: a thread is a fiber, all fibers of all blocks take turns in one OS thread, and what a
 * GPU does for a warp or a block is a meeting of its fibers. So barriers, shuffles and sums are as on a GPU, and the order of everything else is
 * any order that the seed says. Loads and stores are seen at once: what only memory can show is in gpu_vote and test_cuda_vote. */
#ifndef KVG_VOTE_BLOCK_H
#define KVG_VOTE_BLOCK_H

#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <ucontext.h>
#include <vector>

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static /* a kernel's template has an instance for every block */
#define KVG_VOTE_DYNAMIC_SHARED(type, name) alignas(16) static type name[1 << 14]
#define __align__(n) alignas(n)

struct Dim { uint32_t x; };

struct Meeting { /* of `size` fibers: the last one to come lets all go on */
    uint32_t size = 0, here = 0, turn = 0;
    uint64_t gathered[32] = {}, left[32] = {};
    bool     any = false, all = true, said_any = false, said_all = true;
};

struct Block;
struct Fiber {
    Block                      *block;
    uint32_t                    index;
    std::unique_ptr<char[]>     stack;
    jmp_buf                     at;
    bool                        begun = false, done = false;
};

struct Block {
    uint32_t              threads, index; /* index: of its grid */
    std::function<void()> body;
    std::vector<Fiber>    fibers;
    std::vector<Meeting>  warps;
    Meeting               whole;
};

static Fiber     *fiber_now;
static jmp_buf    scheduler;
static Dim        threadIdx, blockIdx, blockDim;
static uint64_t   host_ns;

static void give_turn()
{
    if (_setjmp(fiber_now->at) == 0) _longjmp(scheduler, 1);
}

static void meet(Meeting &meeting)
{
    const uint32_t turn = meeting.turn;

    if (++meeting.here == meeting.size) {
        meeting.said_any = meeting.any, meeting.said_all = meeting.all;
        memcpy(meeting.left, meeting.gathered, sizeof meeting.left);
        meeting.here = 0, meeting.any = false, meeting.all = true, meeting.turn++;
        return;
    }
    while (meeting.turn == turn) give_turn();
}

static bool meet_saying(Meeting &meeting, bool mine, bool any)
{
    meeting.any |= mine, meeting.all &= mine;
    meet(meeting);
    return any ? meeting.said_any : meeting.said_all;
}

static Meeting &warp_now() { return fiber_now->block->warps[fiber_now->index / 32]; }
static void __syncthreads() { meet(fiber_now->block->whole); }
static int __syncthreads_or(int mine) { return meet_saying(fiber_now->block->whole, mine != 0, true); }
static int __syncthreads_and(int mine) { return meet_saying(fiber_now->block->whole, mine != 0, false); }
static int __all_sync(uint32_t, int mine) { return meet_saying(warp_now(), mine != 0, false); }

static int __any_sync(uint32_t, int mine) { return meet_saying(warp_now(), mine != 0, true); }

static void __syncwarp() { meet(warp_now()); }
template <class T> T settled(T value) { return value; }

static uint32_t __reduce_add_sync(uint32_t, uint32_t mine)
{
    Meeting &warp = warp_now();
    uint32_t sum = 0;

    warp.gathered[fiber_now->index % 32] = mine;
    meet(warp);
    for (uint64_t value : warp.left) sum += (uint32_t)value;
    return sum;
}

static uint32_t __shfl_sync(uint32_t, uint32_t mine, int from)
{
    Meeting &warp = warp_now();

    warp.gathered[fiber_now->index % 32] = mine;
    meet(warp);
    return (uint32_t)warp.left[from];
}

static uint32_t atomicOr(uint32_t *at, uint32_t value)
{
    const uint32_t before = *at;
    *at |= value;
    return before;
}

static uint32_t atomicMin(uint32_t *at, uint32_t value)
{
    const uint32_t before = *at;
    if (value < before) *at = value;
    return before;
}

static uint32_t atomicMax(uint32_t *at, uint32_t value)
{
    const uint32_t before = *at;
    if (value > before) *at = value;
    return before;
}

/* ---- running */

static void fiber_main()
{
    fiber_now->block->body();
    fiber_now->done = true;
    _longjmp(scheduler, 1);
}

static void begin(Fiber &fiber)
{
    enum { STACK_BYTES = 64 << 10 };
    ucontext_t context;

    fiber.begun = true;
    fiber.stack.reset(new char[STACK_BYTES]);
    getcontext(&context);
    context.uc_stack.ss_sp = fiber.stack.get();
    context.uc_stack.ss_size = STACK_BYTES;
    context.uc_link = nullptr;
    makecontext(&context, fiber_main, 0);
    setcontext(&context);
}

/* The fiber whose turn it is goes on until it gives its turn. */
static void __attribute__((noinline)) take_turn()
{
    if (_setjmp(scheduler) != 0) return;
    if (!fiber_now->begun) begin(*fiber_now);
    _longjmp(fiber_now->at, 1);
}

static void open_block(Block &block)
{
    block.fibers = std::vector<Fiber>(block.threads);
    block.warps = std::vector<Meeting>(block.threads / 32);
    block.whole = Meeting();
    block.whole.size = block.threads;
    for (Meeting &warp : block.warps) warp.size = 32;
    for (uint32_t i = 0; i < block.threads; i++) block.fibers[i].block = &block, block.fibers[i].index = i;
}

/* Runs the blocks side by side to their ends; `seed` draws whose turn it is. */
static void run_blocks(std::vector<Block> &blocks, uint64_t seed)
{
    std::vector<Fiber *> live;

    for (Block &block : blocks) {
        open_block(block);
        for (Fiber &fiber : block.fibers) live.push_back(&fiber);
    }
    while (!live.empty()) {
        static size_t at;
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        at = (at + 1 + (seed >> 60 == 0 ? (size_t)(seed >> 33) : 0)) % live.size(); /* in order, with a jump now and then */
        fiber_now = live[at];
        threadIdx.x = fiber_now->index, blockIdx.x = fiber_now->block->index, blockDim.x = fiber_now->block->threads;
        take_turn();
        if (live[at]->done) live[at] = live.back(), live.pop_back();
    }
}

/* ---- memory, as vote_memory.h has it */

struct Unit {
    uint32_t word[3], tag;
};

static void store_unit(void *at, const Unit &unit) { memcpy(at, &unit, sizeof unit); }
static uint64_t load_host(const uint64_t *at) { return *at; }
static void store_host(uint64_t *at, uint64_t value) { *at = value; }
static uint64_t now_ns() { return host_ns += 100000; }

static Unit load_unit(const void *at)
{
    Unit unit;
    give_turn(); /* whoever polls lets others go on */
    memcpy(&unit, at, sizeof unit);
    return unit;
}

static void load_pair(const void *at, uint64_t &low, uint64_t &high)
{
    memcpy(&low, at, 8);
    memcpy(&high, (const uint8_t *)at + 8, 8);
}

static void store_pair(void *at, uint64_t low, uint64_t high)
{
    memcpy(at, &low, 8);
    memcpy((uint8_t *)at + 8, &high, 8);
}

static Unit load_own_unit(const void *at)
{
    Unit unit;
    memcpy(&unit, at, sizeof unit);
    return unit;
}

#endif

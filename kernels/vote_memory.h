/* Vote, memory: each access that must be just one instruction, or must stand just where it is written. For .cu files alone. Private. */
#ifndef KVG_VOTE_MEMORY_H
#define KVG_VOTE_MEMORY_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#define KVG_VOTE_DYNAMIC_SHARED(type, name) extern __shared__ __align__(16) type name[]

namespace {

struct Unit {
    uint32_t word[3], tag;
};

/* ---- that others write or read */

/* 128 bits as one access (PTX: b128 is one memory operation): data and tag are seen together or not at all. */
__device__ __forceinline__ void store_unit(void *at, const Unit &unit)
{
    uint64_t low = (uint64_t)unit.word[1] << 32 | unit.word[0], high = (uint64_t)unit.tag << 32 | unit.word[2];
    asm volatile("{ .reg .b128 t; mov.b128 t, {%1, %2}; st.relaxed.sys.global.b128 [%0], t; }" ::"l"(at), "l"(low), "l"(high) : "memory");
}

__device__ __forceinline__ Unit load_unit(const void *at)
{
    uint64_t low, high;
    asm volatile("{ .reg .b128 t; ld.relaxed.sys.global.b128 t, [%2]; mov.b128 {%0, %1}, t; }" : "=l"(low), "=l"(high) : "l"(at) : "memory");
    return Unit{{(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high}, (uint32_t)(high >> 32)};
}

__device__ __forceinline__ uint64_t load_host(const uint64_t *at)
{
    uint64_t value;
    asm volatile("ld.relaxed.sys.global.b64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
    return value;
}

__device__ __forceinline__ void store_host(uint64_t *at, uint64_t value)
{
    asm volatile("st.relaxed.sys.global.b64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}

__device__ __forceinline__ uint64_t now_ns()
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/* ---- the own GPU's: two words at once */

__device__ __forceinline__ void load_pair(const void *at, uint64_t &low, uint64_t &high)
{
    asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];" : "=l"(low), "=l"(high) : "l"(at) : "memory");
}

__device__ __forceinline__ void store_pair(void *at, uint64_t low, uint64_t high)
{
    asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(low), "l"(high) : "memory");
}

__device__ __forceinline__ Unit load_own_unit(const void *at)
{
    uint64_t low, high;
    load_pair(at, low, high);
    return Unit{{(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high}, (uint32_t)(high >> 32)};
}

} // namespace
#endif

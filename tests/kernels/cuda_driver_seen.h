/* What the CUDA suites see of the driver: how much is free, and which calls that take and map memory are made of it. */
#ifndef KVG_TEST_CUDA_DRIVER_SEEN_H
#define KVG_TEST_CUDA_DRIVER_SEEN_H

#include <stdint.h>

#include "kernels/cuda_dev.h"
#include "tests/kernels/cuda_test.h"

#define MIB ((size_t)1 << 20)

static inline size_t free_bytes(void)
{
    size_t spare = 0, total = 0;
    CU(cudaMemGetInfo(&spare, &total));
    return spare;
}

/* What the driver says is gone is what was taken, page tables of its own apart. */
static inline void expect_taken(size_t before, size_t taken)
{
    size_t gone = before - free_bytes();
    ck_assert_msg(gone + 4 * MIB >= taken && gone <= taken + 4 * MIB, "%zu bytes are taken, the driver says %zd", taken, (ptrdiff_t)gone);
}

static inline void fill(void *memory, int value, size_t bytes)
{
    CU(cudaMemset(memory, value, bytes));
    CU(cudaDeviceSynchronize());
}

static inline void expect_bytes(const void *memory, int value, size_t bytes)
{
    uint8_t *got = malloc(bytes);
    from_device(got, memory, bytes);
    size_t first = 0; /* asserted once: Check logs every assertion, and these are millions of bytes */
    while (first < bytes && got[first] == (uint8_t)value) first++;
    ck_assert_msg(first == bytes, "byte %zu of %zu is not %02x", first, bytes, value);
    free(got);
}

/* ---- calls, counted */

static struct {
    CudaDriver real;
    uint64_t   create, map, set_access, unmap, release;
} calls;

static inline CUresult count_create(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags)
{
    calls.create++;
    return calls.real.create(handle, bytes, prop, flags);
}

static inline CUresult count_map(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    calls.map++;
    return calls.real.map(at, bytes, offset, handle, flags);
}

static inline CUresult count_set_access(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    calls.set_access++;
    return calls.real.set_access(at, bytes, access, count);
}

static inline CUresult count_unmap(CUdeviceptr at, size_t bytes)
{
    calls.unmap++;
    return calls.real.unmap(at, bytes);
}

static inline CUresult count_release(CUmemGenericAllocationHandle handle)
{
    calls.release++;
    return calls.real.release(handle);
}

/* The driver's calls that take and map memory, counted from here. */
static inline void count_calls(KvDev *on)
{
    CudaDev *cuda = on->self;

    if (cuda->driver.create != count_create) calls.real = cuda->driver;
    calls.create = calls.map = calls.set_access = calls.unmap = calls.release = 0;
    cuda->driver.create = count_create;
    cuda->driver.map = count_map;
    cuda->driver.set_access = count_set_access;
    cuda->driver.unmap = count_unmap;
    cuda->driver.release = count_release;
}

#endif

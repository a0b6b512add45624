/* The device that a suite runs on. The same suites are built for the host, for one whose memory the host cannot touch (KVG_TEST_INDIRECT), and
 * for CUDA (KVG_TEST_CUDA), where a machine without a device skips them. */
#ifndef KVG_TEST_DEVICE_H
#define KVG_TEST_DEVICE_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include <kvgrid/dev.h>

#if defined(KVG_TEST_INDIRECT)
#include "tests/support/indirect_dev.h"
#elif defined(KVG_TEST_CUDA)
#include <cuda_runtime_api.h>

#include <kvgrid/kvgrid_cuda.h>

static inline void *test_device_alloc(void *user, size_t bytes)
{
    void *memory = NULL;
    (void)user;
    return cudaMalloc(&memory, bytes) == cudaSuccess ? memory : NULL;
}

static inline void test_device_dealloc(void *user, void *memory, size_t bytes)
{
    (void)user;
    (void)bytes;
    ck_assert_int_eq(cudaFree(memory), cudaSuccess);
}
#endif

/* 77: the suite's main returns it. */
static inline int test_device_missing(void)
{
#if defined(KVG_TEST_CUDA)
    char why[512];

    if (kvg_cuda_probe(why, sizeof why) > 0) return 0;
    printf("skipped: %s\n", why);
    return 77;
#else
    return 0;
#endif
}

static inline KvgStatus test_device_open(int reserves, KvDev *dev)
{
#if defined(KVG_TEST_INDIRECT)
    return indirect_dev_open(reserves, dev);
#elif defined(KVG_TEST_CUDA)
    static const KvMemory memory = {test_device_alloc, test_device_dealloc, NULL};
    KvgCudaOptions            options = KVG_CUDA_OPTIONS_INIT;

    options.memory = reserves ? NULL : &memory;
    return kvg_dev_cuda(&options, dev);
#else
    return reserves ? kvg_dev_host(dev) : kvg_dev_host_plain(dev);
#endif
}

/* Host memory as the device may read it, until the same place of the same device is lent again. On the host: the memory itself. */
#define TEST_LENT_MAX 16
typedef struct TestLent {
    void  *self, *memory;
    int    place;
    size_t bytes;
} TestLent;
static TestLent test_lent[TEST_LENT_MAX];

static inline TestLent *test_device_place(const KvDev *dev, int place)
{
    for (int i = 0; i < TEST_LENT_MAX; i++) {
        if (test_lent[i].self == dev->self && test_lent[i].place == place) return &test_lent[i];
    }
    for (int i = 0; i < TEST_LENT_MAX; i++) {
        if (test_lent[i].self != NULL) continue;
        test_lent[i] = (TestLent){.self = dev->self, .place = place};
        return &test_lent[i];
    }
    ck_abort_msg("more than %d places are lent", TEST_LENT_MAX);
    return NULL;
}

static inline const void *test_device_lend(KvDev *dev, int place, const void *data, size_t bytes)
{
    TestLent *lent;

    if (dev->ops->direct) return data;
    lent = test_device_place(dev, place);
    if (lent->bytes < bytes) {
        dev->ops->free(dev->self, lent->memory);
        ck_assert_msg(dev->ops->uninit(dev->self, bytes, &lent->memory) == KVG_OK, "%s", kvg_last_error());
        lent->bytes = bytes;
    }
    ck_assert_msg(dev->ops->htod(dev->self, lent->memory, data, bytes, NULL) == KVG_OK, "%s", kvg_last_error());
    return lent->memory;
}

/* Device memory as the host may read it: valid until the next look. NULL: the host device. */
static inline const void *test_device_look(KvDev *dev, const void *memory, size_t bytes)
{
    static uint8_t *seen;
    static size_t   room;

    if (dev == NULL || dev->ops->direct) return memory;
    if (room < bytes) {
        free(seen);
        seen = malloc(bytes);
        room = bytes;
    }
    ck_assert_msg(dev->ops->dtoh(dev->self, seen, memory, bytes, NULL) == KVG_OK, "%s", kvg_last_error());
    ck_assert_msg(dev->ops->synchronize(dev->self, NULL) == KVG_OK, "%s", kvg_last_error());
    return seen;
}

/* Gives back what was lent; nothing may be left. */
static inline void test_device_close(KvDev *dev)
{
    for (int i = 0; i < TEST_LENT_MAX; i++) {
        if (test_lent[i].self == NULL || test_lent[i].self != dev->self) continue;
        dev->ops->free(dev->self, test_lent[i].memory);
        test_lent[i] = (TestLent){0};
    }
    ck_assert_uint_eq(dev->ops->taken_bytes(dev->self), 0);
    kvg_dev_close(dev);
}

#endif

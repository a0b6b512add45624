/* What the CUDA suites share: a device for each test, buffers on both sides, random elements with specials. */
#ifndef KVG_CUDA_TEST_H
#define KVG_CUDA_TEST_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef KVG_TEST_CUDA
#include <cuda_runtime_api.h>

#include <kvgrid/kvgrid_cuda.h>

#include "runtime/base/memory.h"
#include "runtime/base/mix.h"

#define OK(call) ck_assert_msg((call) == KVG_OK, "%s: %s", #call, kvg_last_error())
#define CU(call) ck_assert_msg((call) == cudaSuccess, "%s: %s", #call, cudaGetErrorString(cudaGetLastError()))

static KvDev    dev;
static uint64_t live_before;

static inline void cuda_setup(void)
{
    live_before = kvg_live_allocations();
    OK(kvg_dev_cuda(NULL, &dev));
    void *memory = NULL; /* what the runtime takes at its first use is no test's matter */
    OK(dev.ops->zeros(dev.self, 1 << 20, &memory));
    OK(kvg_tap_store_launch(memory, 4096, (uint8_t *)memory + (1 << 19), 4096, 64, 4, NULL));
    CU(cudaDeviceSynchronize());
    dev.ops->free(dev.self, memory);
}

/* Nothing leaked on either side. */
static inline void cuda_teardown(void)
{
    ck_assert_uint_eq(dev.ops->taken_bytes(dev.self), 0);
    kvg_dev_close(&dev);
    ck_assert_uint_eq(kvg_live_allocations(), live_before);
}

static inline void *to_device(const void *data, size_t bytes)
{
    void *memory = NULL;

    OK(dev.ops->uninit(dev.self, bytes, &memory));
    OK(dev.ops->htod(dev.self, memory, data, bytes, NULL));
    return memory;
}

static inline void from_device(void *data, const void *memory, size_t bytes)
{
    OK(dev.ops->dtoh(dev.self, data, memory, bytes, NULL));
    OK(dev.ops->synchronize(dev.self, NULL));
}

static inline void device_free(void *memory)
{
    dev.ops->free(dev.self, memory);
}

static inline uint32_t bits_at(uint64_t seed, uint64_t i)
{
    return (uint32_t)(kvg_mix64(seed * 0x9e3779b97f4a7c15u + i) >> 32);
}

static inline float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* kind 0: ordinary; 1: every pattern; 2: zeros of both signs and small integers, where ties are; 3: about the limits; 4: ordinary with
 * one special in fifty */
static inline float element_at(uint64_t seed, uint64_t i, int kind)
{
    static const uint32_t special[] = {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xffc12345u, 0x80000000u, 0x00000001u, 0x807fffffu, 0x7f7fffffu,
                                       0x477fe000u, 0x47800000u, 0x4afde041u, 0x43e00001u, 0x48ffe001u};
    uint32_t bits = bits_at(seed, i);

    switch (kind) {
    case 1: return float_of(bits);
    case 2: return bits % 4 == 0 ? (bits & 16 ? 0.0f : -0.0f) : (float)((int)(bits >> 8 & 15) - 8) * 0.5f;
    case 3: return float_of((bits & 0x80ffffffu) | 0x47000000u);
    case 4:
        if (bits % 50 == 0) return float_of(special[bits / 64 % (sizeof special / sizeof *special)]);
        /* fall through */
    default: return (float)((double)(int32_t)bits_at(seed + 1, i) / (double)(1 << 28));
    }
}

/* `count` elements of `type` from those; returns their bytes. */
static inline size_t fill_elements(KvFormat type, uint64_t seed, int kind, size_t count, void *target)
{
    for (size_t i = 0; i < count; i++) {
        float    value = element_at(seed, i, kind);
        uint32_t bits;

        memcpy(&bits, &value, sizeof bits);
        if (type == KVG_F32) {
            ((float *)target)[i] = value;
        } else if (type == KVG_BF16) { /* NaN and infinities survive a cut */
            ((uint16_t *)target)[i] = (uint16_t)(bits >> 16);
        } else if (kind == 1) {
            ((uint16_t *)target)[i] = (uint16_t)bits;
        } else {
            kvg_encode_f32_ref(KVG_F16, &value, 1, (uint16_t *)target + i, NULL);
            if ((bits & 0x7f800000u) == 0x7f800000u) ((uint16_t *)target)[i] = (uint16_t)(0x7c00 | (bits >> 16 & 0x8001));
        }
    }
    return count * (type == KVG_F32 ? 4 : 2);
}
#endif

/* A suite of one case, in this process: a CUDA context does not cross fork. 77 without a device. */
static inline int cuda_suite(const char *name, void (*add)(TCase *))
{
#ifdef KVG_TEST_CUDA
    char why[512];

    /* Ranks of one process wait in kernels for each other's: the first launch of a kernel may not wait for them to load it. */
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    if (kvg_cuda_probe(why, sizeof why) == 0) {
        printf("skipped: %s\n", why);
        return 77;
    }
    Suite *suite = suite_create(name);
    TCase *tcase = tcase_create(name);
    tcase_add_checked_fixture(tcase, cuda_setup, cuda_teardown);
    tcase_set_timeout(tcase, 200);
    add(tcase);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_ENV);
    int bad = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
    srunner_free(runner);
    return bad;
#else
    (void)add;
    printf("skipped: %s was built without CUDA\n", name);
    return 77;
#endif
}

#endif

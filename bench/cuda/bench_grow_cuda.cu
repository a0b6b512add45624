/* What does it cost to take memory into a reserved range, against the bare driver calls for the same handles in the same run?
 *
 * For each size: extend a range by that much and give it back, and create, map and set access on handles of the same size (at most 64 MiB)
 * with the driver's own calls. Then the same growth into spare handles, made ahead: of whole handles (64 MiB, as a range gave them back) and of one grain
 * (2 MiB, as kvg_cuda_refill makes them). Medians of alternating rounds, so that a driver that gets slower is slower for all. */
#include <cuda_runtime.h>

#include "bench/bench.h"
#include "kernels/cuda_dev.h"

enum { ROUNDS = 15 };
static const size_t MIB = (size_t)1 << 20, HANDLE = (size_t)64 << 20;

#define OK(call)                                                  \
    do {                                                          \
        if ((call) != KVG_OK) {                                   \
            fprintf(stderr, "%s: %s\n", #call, kvg_last_error()); \
            exit(1);                                              \
        }                                                         \
    } while (0)
#define DRIVER(call)                                                       \
    do {                                                                   \
        if ((call) != CUDA_SUCCESS) {                                      \
            fprintf(stderr, "%s failed\n", #call);                         \
            exit(1);                                                       \
        }                                                                  \
    } while (0)

typedef struct Bare {
    CUdeviceptr                  at;
    CUmemGenericAllocationHandle handles[64];
} Bare;

/* Handles one after the other, each mapped before the next is made: the order that extend has. */
static void take_bare(const CudaDev *cuda, Bare *bare, size_t bytes)
{
    CUmemAccessDesc access = {};
    int             i = 0;

    access.location = cuda->prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    for (size_t done = 0; done < bytes; done += HANDLE, i++) {
        size_t piece = bytes - done < HANDLE ? bytes - done : HANDLE;
        DRIVER(cuda->driver.create(&bare->handles[i], piece, &cuda->prop, 0));
        DRIVER(cuda->driver.map(bare->at + done, piece, 0, bare->handles[i], 0));
        DRIVER(cuda->driver.set_access(bare->at + done, piece, &access, 1));
    }
}

static void drop_bare(const CudaDev *cuda, const Bare *bare, size_t bytes)
{
    int i = 0;

    for (size_t done = 0; done < bytes; done += HANDLE, i++) {
        size_t piece = bytes - done < HANDLE ? bytes - done : HANDLE;
        DRIVER(cuda->driver.unmap(bare->at + done, piece));
        DRIVER(cuda->driver.release(bare->handles[i]));
    }
}

static double grow_once(KvDev *dev, KvRange *range, size_t bytes)
{
    double from = bench_now_us();
    OK(dev->ops->extend(dev->self, range, bytes));
    double took = bench_now_us() - from;
    OK(dev->ops->give_back(dev->self, range, 0));
    return took;
}

static double bare_once(const CudaDev *cuda, Bare *bare, size_t bytes)
{
    double from = bench_now_us();
    take_bare(cuda, bare, bytes);
    double took = bench_now_us() - from;
    drop_bare(cuda, bare, bytes);
    return took;
}

/* A device that holds 1 GiB of spares; grains: of one grain each, else as a range gave them back. */
static void open_spares(KvDev *dev, KvRange *range, int grains)
{
    KvgCudaOptions options = KVG_CUDA_OPTIONS_INIT;

    options.spare_bytes = 1024 * MIB;
    OK(kvg_dev_cuda(&options, dev));
    OK(dev->ops->reserve(dev->self, 1024 * MIB, range));
    if (grains) return;
    dev->ops->trim(dev->self);
    OK(dev->ops->extend(dev->self, range, 1024 * MIB));
    OK(dev->ops->give_back(dev->self, range, 0));
}

static void close_spares(KvDev *dev, KvRange *range)
{
    dev->ops->release(dev->self, range);
    kvg_dev_close(dev);
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {2, 32, 64, 256, 1024};
    char                why[512];
    int                 json = bench_has(argc, argv, "--json"), missed = 0;
    KvDev               dev, whole, grains;
    KvRange             range, whole_range, grains_range;
    Bare                bare = {};

    if (kvg_cuda_probe(why, sizeof why) == 0) {
        printf("skipped: %s\n", why);
        return 77;
    }
    OK(kvg_dev_cuda(NULL, &dev));
    const CudaDev *cuda = (const CudaDev *)dev.self;
    OK(dev.ops->reserve(dev.self, 1024 * MIB, &range));
    DRIVER(cuda->driver.address_reserve(&bare.at, 1024 * MIB, cuda->grain, 0, 0));
    open_spares(&whole, &whole_range, 0);
    open_spares(&grains, &grains_range, 1);
    if (!json) {
        bench_header("bench_grow_cuda", "device 0, alternating rounds 15, handles of at most 64 MiB");
        printf("#     size   ratio     extend   bare calls   into spares of 64 MiB   of 2 MiB\n#    (MiB)               (us)         (us)                   (us)       (us)\n");
    }
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        double ours[ROUNDS], theirs[ROUNDS], large[ROUNDS], small[ROUNDS];
        int    fits = sizes[s] * MIB % HANDLE == 0; /* whole spares are of 64 MiB */

        (void)grow_once(&dev, &range, sizes[s] * MIB);
        (void)bare_once(cuda, &bare, sizes[s] * MIB);
        for (int i = 0; i < ROUNDS; i++) {
            ours[i] = grow_once(&dev, &range, sizes[s] * MIB);
            theirs[i] = bare_once(cuda, &bare, sizes[s] * MIB);
            large[i] = fits ? grow_once(&whole, &whole_range, sizes[s] * MIB) : 0;
            small[i] = grow_once(&grains, &grains_range, sizes[s] * MIB);
        }
        double spare = bench_median(large, ROUNDS), grain = bench_median(small, ROUNDS);
        double mine = bench_median(ours, ROUNDS), limit = bench_median(theirs, ROUNDS), ratio = mine / limit;
        missed += ratio > 1.2;
        if (json) printf("{\"bench\":\"grow_cuda\",\"mib\":%zu,\"ratio\":%.3f,\"extend_us\":%.1f,\"bare_us\":%.1f,\"spare_us\":%.1f,\"spare_grains_us\":%.1f}\n",
                         sizes[s], ratio, mine, limit, spare, grain);
        else printf("%10zu  %6.3f %10.1f   %10.1f   %20.1f %10.1f  %s\n", sizes[s], ratio, mine, limit, spare, grain, ratio > 1.2 ? "above 1.2" : "ok");
    }
    if (!json) printf("# %d above 1.2\n", missed);
    DRIVER(cuda->driver.address_free(bare.at, 1024 * MIB));
    dev.ops->release(dev.self, &range);
    kvg_dev_close(&dev);
    close_spares(&whole, &whole_range);
    close_spares(&grains, &grains_range);
    return 0;
}

/* A device over a GPU from the installed headers: links and starts without a driver, and says why there is no device. */
#include <stdio.h>

#include <kvgrid/kvgrid.h>
#include <kvgrid/kvgrid_cuda.h>

int main(void)
{
    KvgCudaOptions options = KVG_CUDA_OPTIONS_INIT;
    KvDev          dev;
    char           why[512] = "";

    options.size = 0;
    if (kvg_dev_cuda(&options, &dev) != KVG_EINVAL) {
        fprintf(stderr, "outside_cuda: options without a size were taken\n");
        return 1;
    }
    printf("kvgrid with CUDA: %d GPUs here %s\n", kvg_cuda_probe(why, sizeof why), why);
    return 0;
}

/* A grid over MPI with a device over a GPU, from the installed headers: both have the last error of the one library that they stand on. */
#include <stdio.h>
#include <string.h>

#include <kvgrid/kvgrid.h>
#include <kvgrid/kvgrid_cuda.h>
#include <kvgrid/kvgrid_mpi.h>

int main(int argc, char **argv)
{
    KvgBootstrap   bootstrap = KVG_BOOTSTRAP_INIT;
    KvgCudaOptions options = KVG_CUDA_OPTIONS_INIT;
    KvDev          dev;
    int            failed = 1;
    MPI_Init(&argc, &argv);
    options.size = 0;
    if (kvg_mpi_bootstrap(MPI_COMM_NULL, &bootstrap) != KVG_EINVAL || strstr(kvg_last_error(), "MPI_COMM_NULL") == NULL) {
        fprintf(stderr, "outside_mpi_cuda: the last error is not that of kvgrid_mpi: %s\n", kvg_last_error());
    } else if (kvg_dev_cuda(&options, &dev) != KVG_EINVAL || strstr(kvg_last_error(), "MPI_COMM_NULL") != NULL) {
        fprintf(stderr, "outside_mpi_cuda: the last error is not that of kvgrid_cuda: %s\n", kvg_last_error());
    } else {
        failed = 0;
    }
    MPI_Finalize();
    return failed;
}

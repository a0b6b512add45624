/* A grid over MPI from the installed headers; an error of kvgrid_mpi must be the last error of the library beside it. */
#include <stdio.h>
#include <string.h>

#include <kvgrid/kvgrid.h>
#include <kvgrid/kvgrid_mpi.h>

int main(int argc, char **argv)
{
    KvgBootstrap   bootstrap = KVG_BOOTSTRAP_INIT;
    KvgGridOptions options = KVG_GRID_OPTIONS_INIT;
    KvgGrid       *grid = NULL;
    int            failed = 1;
    MPI_Init(&argc, &argv);
    if (kvg_mpi_bootstrap(MPI_COMM_NULL, &bootstrap) != KVG_EINVAL || strstr(kvg_last_error(), "MPI_COMM_NULL") == NULL) {
        fprintf(stderr, "outside_mpi: the last error is not ours: %s\n", kvg_last_error());
    } else if (kvg_mpi_bootstrap(MPI_COMM_WORLD, &bootstrap) != KVG_OK || kvg_grid_create(&bootstrap, &options, &grid) != KVG_OK) {
        fprintf(stderr, "outside_mpi: %s\n", kvg_last_error());
    } else {
        printf("kvgrid over MPI: %d rank\n", kvg_grid_ranks(grid));
        failed = 0;
    }
    kvg_grid_destroy(grid);
    kvg_mpi_bootstrap_free(&bootstrap);
    MPI_Finalize();
    return failed;
}

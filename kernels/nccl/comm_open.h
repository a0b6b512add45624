/* A communicator of our own, over a bootstrap: made together or not at all. Private. */
#ifndef KVG_NCCL_COMM_OPEN_H
#define KVG_NCCL_COMM_OPEN_H

#include "kernels/nccl/kvgrid_comm_nccl.h"
#include "kernels/nccl/nccl_api.h"

/* The caller's options as this library knows them. EINVAL. */
KvgStatus kvg_nccl_take_options(const KvNcclCommOptions *given, KvNcclCommOptions *options);
/* Checks the options, then NCCL and the device of each rank, then makes a communicator. On any failure, of any rank, none is left.
 *   blocking  0: making it is bounded, and so is what hangs on it. 1: for a device communicator, which NCCL 2.28.3 leaves empty for the other kind (seen on
 *             two H200s); all ranks have just met, and one that goes meanwhile closes its connections, which NCCL's set-up sees */
KvgStatus kvg_nccl_comm_open(const KvgBootstrap *bootstrap, const KvNcclCommOptions *options, int blocking, ncclComm_t *comm);

/* Collective: KVG_OK where every rank has it; else this rank's failure, or the first other's with its sentence. */
KvgStatus kvg_nccl_agree(const KvgBootstrap *bootstrap, uint32_t timeout_ms, KvgStatus mine);

#define KVG_NCCL_CURE "NCCL_DEBUG=INFO shows which network interface each rank has taken, NCCL_SOCKET_IFNAME names another"

/* Waits for what `result` says is in progress on comm: EPEER at the deadline, EDEVICE or ENOTSUP with NCCL's words. */
KvgStatus kvg_nccl_await(ncclComm_t comm, ncclResult_t result, uint32_t timeout_ms, const char *act);
KvgStatus kvg_nccl_check(ncclComm_t comm, ncclResult_t result, const char *act);

uint32_t kvg_nccl_setup_ms(const KvNcclCommOptions *options);
/* W of the options. */
uint32_t kvg_nccl_window_steps(const KvNcclCommOptions *options, int ranks);

#endif

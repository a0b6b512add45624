/* CUDA's part in captured runs. Private. */
#ifndef KVG_CUDA_RUN_H
#define KVG_CUDA_RUN_H

#include <kvgrid/dev_run.h>

#include "kernels/cuda_dev.h"

extern const KvDevRunOps kvg_cuda_run_ops;

#endif

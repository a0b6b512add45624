/* Doctor, NCCL's check. Private. */
#ifndef KVG_COMMAND_DOCTOR_NCCL_H
#define KVG_COMMAND_DOCTOR_NCCL_H

#include "launch/command/doctor_host.h"

/* The NCCL compiled against and the one that is loaded; what votes they serve. */
void kvg_doctor_nccl(Finding *finding);

#endif

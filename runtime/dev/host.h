/* Host: the device seam over this machine's memory. Private; opened by kvg_dev_host and kvg_dev_host_plain (dev.h). */
#ifndef KVG_DEV_HOST_H
#define KVG_DEV_HOST_H

#include <kvgrid/dev.h>

/* What this process could still take of the machine's memory: the least of what the kernel calls available, what its control groups leave and what
 * ulimit -v leaves. ENOTSUP where the kernel does not say. */
KvgStatus kvg_host_available(KvAvailable *available);

#endif

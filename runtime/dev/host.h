/* Host: the device seam over this machine's memory. Private; opened by kvg_dev_host and kvg_dev_host_plain (dev.h). */
#ifndef KVG_DEV_HOST_H
#define KVG_DEV_HOST_H

#include <kvgrid/dev.h>

#endif

/* Shared-memory bootstrap, inside. Private. */
#ifndef KVG_SHM_BOOTSTRAP_H
#define KVG_SHM_BOOTSTRAP_H

#include <kvgrid/bootstrap.h>

/* 1 for a bootstrap of kvg_shm_bootstrap_create: its ranks are on one host and can share memory. */
int kvg_shm_is(const KvgBootstrap *bootstrap);

#endif

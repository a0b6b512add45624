/** kvgrid: the sequence state of large language models over a grid of TP x PP ranks, changed in steps that every rank accepts or none does.
 *
 * The umbrella header. C11 and C++17.
 *
 * Structs of options and results that begin with `size` grow from version to version, and the size says which one the caller was compiled against.
 * A smaller size than the library's is an older caller: what it does not know has the _INIT's value. A larger one is a newer caller: accepted while what
 * the library does not know is zero. A size of 0, or one that was never set, is EINVAL. KvgBootstrap, KvgOutcome, KvgPolicy, KvgLedger and the structs of views,
 * plans and tables of functions are filled by the library whole or stand in arrays: they change only with the SONAME. */
#ifndef KVGRID_H
#define KVGRID_H

#include <kvgrid/status.h>
#include <kvgrid/log.h>
#include <kvgrid/tracer.h>
#include <kvgrid/policy.h>
#include <kvgrid/format.h>
#include <kvgrid/model.h>
#include <kvgrid/sizing.h>
#include <kvgrid/ring.h>
#include <kvgrid/index_ring.h>
#include <kvgrid/transaction.h>
#include <kvgrid/vote.h>
#include <kvgrid/device_vote.h>
#include <kvgrid/head_shard.h>
#include <kvgrid/shape.h>
#include <kvgrid/resident.h>
#include <kvgrid/partition.h>
#include <kvgrid/dev.h>
#include <kvgrid/bootstrap.h>
#include <kvgrid/comm.h>
#include <kvgrid/inproc.h>
#include <kvgrid/mesh.h>
#include <kvgrid/rendezvous.h>
#include <kvgrid/shm.h>
#include <kvgrid/view.h>
#include <kvgrid/latent.h>
#include <kvgrid/latent_snapshot.h>
#include <kvgrid/recurrent.h>
#include <kvgrid/rows_batch.h>
#include <kvgrid/taps.h>
#include <kvgrid/digest.h>
#include <kvgrid/grid_plan.h>
#include <kvgrid/ledger.h>
#include <kvgrid/grid.h>
#include <kvgrid/placement.h>
#include <kvgrid/sequence.h>
#include <kvgrid/rebuild.h>
#include <kvgrid/run.h>
#include <kvgrid/stats.h>
#include <kvgrid/step.h>
#include <kvgrid/accounts.h>
#include <kvgrid/taps_gather.h>

KVG_BEGIN_DECLS

#define KVG_VERSION_MAJOR 0
#define KVG_VERSION_MINOR 1
#define KVG_VERSION_PATCH 0

/** "0.1.0" of the library that is linked, and the three numbers. */
KVG_API const char *kvg_version(int *major, int *minor, int *patch);

KVG_END_DECLS
#endif

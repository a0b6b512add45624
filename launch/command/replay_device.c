/* Replay's device. */
#include "launch/command/replay_device.h"

#include <stdlib.h>
#include <string.h>

#if KVG_HAVE_CUDA
#include <kvgrid/kvgrid_cuda.h>
#endif

#include "runtime/base/error.h"

#if KVG_HAVE_CUDA

/* This process's place on its machine, as the launcher says; 0 alone. */
static int place_on_machine(void)
{
    static const char *const names[] = { "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value != NULL && *value != '\0') {
            return atoi(value);
        }
    }
    return 0;
}

static KvgStatus check_served(const ReplayOptions *options, const ModelConfig *config)
{
    if (options->verify || options->fault.kind == REPLAY_FAULT_FLIP) {
        return kvg_fail(KVG_ENOTSUP, "--device cuda: --verify and --fault flip look at stored bytes on the host and are not served on a GPU; the digest is");
    }
    for (uint32_t il = 0; il < config->plan.n_layer + (options->mtp ? config->plan.n_mtp : 0); il++) {
        const StatePlan *layer = &config->plan.layers[il];
        if (layer->kind == KVG_STATE_RECURRENT || (layer->kind == KVG_STATE_LATENT && layer->u.latent.index_kind == KVG_INDEX_POOLED)) {
            return kvg_fail(KVG_ENOTSUP, "--device cuda: layer %u of %s is %s, whose state replay makes on the host; give --device host", il, config->name,
                            layer->kind == KVG_STATE_RECURRENT ? "Recurrent" : "LatentKvCache with a pooled indexer");
        }
    }
    return KVG_OK;
}

static KvgStatus open_cuda(const ReplayOptions *options, const ModelConfig *config, ReplayDevice *device)
{
    KvgCudaOptions want = KVG_CUDA_OPTIONS_INIT;
    char           why[256];
    int            count = kvg_cuda_probe(why, sizeof why);

    if (count == 0) {
        return kvg_fail(KVG_ENOTSUP, "--device cuda: %s", why);
    }
    KVG_TRY(check_served(options, config));
    want.device = place_on_machine() % count;
    KVG_TRY(kvg_dev_cuda(&want, &device->dev));
    device->is_cuda = 1;
    return KVG_OK;
}

#else

static KvgStatus open_cuda(const ReplayOptions *options, const ModelConfig *config, ReplayDevice *device)
{
    (void)options, (void)config, (void)device;
    return kvg_fail(KVG_ENOTSUP, "--device cuda: this kvgrid was built without CUDA: build it where nvcc is found");
}

#endif

KvgStatus kvg_replay_device_open(const ReplayOptions *options, const ModelConfig *config, ReplayDevice *device)
{
    memset(device, 0, sizeof *device);
    if (options->device == REPLAY_DEVICE_HOST) {
        return KVG_OK;
    }
    KvgStatus status = open_cuda(options, config, device);
    return options->device == REPLAY_DEVICE_AUTO && status == KVG_ENOTSUP ? KVG_OK : status;
}

void kvg_replay_device_close(ReplayDevice *device)
{
    if (!device->is_cuda) {
        return;
    }
    for (int i = 0; i < 2; i++) {
        if (device->buffer[i] != NULL) {
            device->dev.ops->free(device->dev.self, device->buffer[i]);
        }
    }
    kvg_dev_close(&device->dev);
    device->is_cuda = 0;
}

KvgStatus kvg_replay_device_lend(ReplayDevice *device, int which, const void *rows, size_t bytes, const void **lent)
{
    const KvDevOps *ops = device->dev.ops;

    *lent = rows;
    if (!device->is_cuda || bytes == 0) {
        return KVG_OK;
    }
    if (bytes > device->bytes[which]) {
        void *grown = NULL;
        KVG_TRY(ops->uninit(device->dev.self, bytes, &grown));
        KVG_TRY(ops->synchronize(device->dev.self, NULL)); /* what was lent before is read to its end */
        if (device->buffer[which] != NULL) {
            ops->free(device->dev.self, device->buffer[which]);
        }
        device->buffer[which] = grown;
        device->bytes[which] = bytes;
    }
    KVG_TRY(ops->htod(device->dev.self, device->buffer[which], rows, bytes, NULL));
    *lent = device->buffer[which];
    return KVG_OK;
}

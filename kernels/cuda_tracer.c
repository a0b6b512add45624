/* NVTX: the library's ranges in a profiler's time line. The header is all of it: with no tool attached a range is a look at a pointer. */
#include <kvgrid/kvgrid_cuda.h>

#include <nvtx3/nvToolsExt.h>

/* Made by the first range. Threads whose first ranges meet may each make one, of the same name; NULL while no tool listens. */
static nvtxDomainHandle_t domain_now(void)
{
    static nvtxDomainHandle_t domain;
    nvtxDomainHandle_t        made = __atomic_load_n(&domain, __ATOMIC_ACQUIRE);

    if (made == NULL) {
        made = nvtxDomainCreateA("kvgrid");
        __atomic_store_n(&domain, made, __ATOMIC_RELEASE);
    }
    return made;
}

static void begin(void *user, KvgRange range, uint64_t value)
{
    nvtxEventAttributes_t what = { 0 };

    (void)user;
    what.version = NVTX_VERSION;
    what.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    what.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    what.payload.ullValue = value;
    what.messageType = NVTX_MESSAGE_TYPE_ASCII;
    what.message.ascii = kvg_range_name(range);
    nvtxDomainRangePushEx(domain_now(), &what);
}

static void end(void *user, KvgRange range)
{
    (void)user, (void)range;
    nvtxDomainRangePop(domain_now());
}

const KvgTracer *kvg_cuda_tracer(void)
{
    static const KvgTracer tracer = { sizeof tracer, begin, end, NULL };

    return &tracer;
}

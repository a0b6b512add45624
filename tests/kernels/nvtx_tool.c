/* A tool as NVTX loads one: keeps what it hears. */
#include "tests/kernels/nvtx_heard.h"

#include <nvtx3/nvToolsExt.h>
#include <stdint.h>
#include <stdio.h>

#define SEEN __attribute__((visibility("default")))

extern NvtxHeard nvtx_heard;
SEEN NvtxHeard   nvtx_heard;

static nvtxDomainHandle_t const ours = (nvtxDomainHandle_t)(uintptr_t)0x51;

static nvtxDomainHandle_t made(const char *name)
{
    snprintf(nvtx_heard.domain, sizeof nvtx_heard.domain, "%s", name);
    return ours;
}

static int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *what)
{
    nvtx_heard.foreign += domain != ours;
    snprintf(nvtx_heard.last, sizeof nvtx_heard.last, "%s", what->message.ascii);
    nvtx_heard.payload = what->payload.ullValue;
    return nvtx_heard.pushed++;
}

static int pop(nvtxDomainHandle_t domain)
{
    nvtx_heard.foreign += domain != ours;
    return nvtx_heard.popped++;
}

SEEN int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table);

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table)
{
    const NvtxExportTableCallbacks *callbacks = table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable               functions;
    unsigned                        size = 0;

    if (callbacks == NULL || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &functions, &size) == 0 || size <= NVTX_CBID_CORE2_DomainCreateA) return 0;
    *functions[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)made;
    *functions[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
    *functions[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
    return 1;
}

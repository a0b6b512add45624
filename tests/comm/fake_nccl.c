/* An NCCL by name alone, of another version than any that is compiled against: loaded before the real one, it is the process's. */
#include <stddef.h>

int ncclGetVersion(int *version);
int ncclGetVersion(int *version)
{
    *version = FAKE_VERSION;
    return 0;
}

#ifdef FAKE_WHOLE
#define FAKE(name)  \
    int name(void); \
    int name(void)  \
    {               \
        return 3; /* ncclInternalError */ \
    }
FAKE(ncclGetUniqueId)
FAKE(ncclCommInitRankConfig)
FAKE(ncclCommSplit)
FAKE(ncclCommGetAsyncError)
FAKE(ncclCommAbort)
FAKE(ncclAllGather)
FAKE(ncclGetErrorString)
FAKE(ncclGetLastError)
FAKE(ncclCommUserRank)
FAKE(ncclCommCount)
FAKE(ncclCommCuDevice)
#endif

/* NCCL's functions. See the header. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "kernels/nccl/nccl_api.h"

#define SONAME "libnccl.so.2"

static struct {
    pthread_once_t once;
    KvgNccl        api;
    int            loaded;
    char           why[256];
} nccl = { .once = PTHREAD_ONCE_INIT };

/* 1 and a library that dlsym looks into. */
static int open_library(void **library)
{
    *library = RTLD_DEFAULT;
    if (dlsym(RTLD_DEFAULT, "ncclGetVersion") != NULL) {
        return 1;
    }
    *library = dlopen(SONAME, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
#ifdef KVG_NCCL_LIBRARY
    if (*library == NULL) {
        *library = dlopen(KVG_NCCL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    }
#endif
    if (*library == NULL) {
        *library = dlopen(SONAME, RTLD_NOW | RTLD_LOCAL);
    }
    return *library != NULL;
}

/* 1 when it is there. */
static int find(void *library, const char *name, void *field)
{
    void *found = dlsym(library, name);

    memcpy(field, &found, sizeof found);
    return found != NULL;
}

static void load(void)
{
    void       *library = NULL;
    const char *missing = NULL;

    if (!open_library(&library)) {
        const char *words = dlerror();
        snprintf(nccl.why, sizeof nccl.why, "%s", words != NULL ? words : SONAME " is not there");
        return;
    }
#define FIND_OLD(name) missing = find(library, #name, &nccl.api.name##_) ? missing : #name;
#define FIND_NEW(name) (void)find(library, #name, &nccl.api.name##_);
    KVG_NCCL_OLD_NAMES(FIND_OLD)
    KVG_NCCL_NEW_NAMES(FIND_NEW)
    (void)find(library, "ncclDevCommCreate", &nccl.api.dev_comm_create);
    (void)find(library, "ncclDevCommDestroy", &nccl.api.dev_comm_destroy);
    nccl.loaded = missing == NULL;
    if (missing != NULL) {
        snprintf(nccl.why, sizeof nccl.why, "it has no %s", missing);
    }
}

KvgStatus kvg_nccl_load(void)
{
    pthread_once(&nccl.once, load);
    if (nccl.loaded) {
        return KVG_OK;
    }
    return kvg_fail(KVG_ENOTSUP, "no NCCL can be used here (%s); install NCCL 2.18 or newer, say where it is by LD_LIBRARY_PATH, or vote on the host",
                    nccl.why);
}

const KvgNccl *kvg_nccl(void)
{
    return &nccl.api;
}

/* The version of the library that is linked. */
#include <kvgrid/kvgrid.h>

const char *kvg_version(int *major, int *minor, int *patch)
{
    if (major != NULL) *major = KVG_VERSION_MAJOR;
    if (minor != NULL) *minor = KVG_VERSION_MINOR;
    if (patch != NULL) *patch = KVG_VERSION_PATCH;
    return KVG_VERSION;
}

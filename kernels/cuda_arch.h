/* CUDA architectures: whether code built for a list of them runs on a device. Values in, values out: no driver is asked. Private. */
#ifndef KVG_CUDA_ARCH_H
#define KVG_CUDA_ARCH_H

#include <stdlib.h>
#include <string.h>

#define KVG_CUDA_ARCHS_BYTES_MAX 256

/* One word of a list: "90" machine code for 9.x from 9.0 on, and code that drivers compile for newer devices; "90-real" no such code; "90-virtual"
 * that code alone; "90a" 9.0 alone; "100f" 10.x from 10.0 on alone. */
static inline int kvg_cuda_arch_runs(const char *word, int capability)
{
    char *end = NULL;
    int   arch = (int)strtol(word, &end, 10), family = capability / 10 == arch / 10 && capability >= arch;

    if (end == word) return 0;
    if (*end == 'a') return capability == arch;
    if (*end == 'f' || strcmp(end, "-real") == 0) return family;
    return capability >= arch;
}

/* A list as CMAKE_CUDA_ARCHITECTURES has it, separated by ; , or spaces; capability 90 is 9.0. A list past KVG_CUDA_ARCHS_BYTES_MAX is read so far. */
static inline int kvg_cuda_archs_run(const char *archs, int capability)
{
    char   list[KVG_CUDA_ARCHS_BYTES_MAX];
    size_t length = strlen(archs);
    char  *rest = NULL;

    if (length > sizeof list - 1) length = sizeof list - 1;
    memcpy(list, archs, length);
    list[length] = '\0';
    for (char *word = strtok_r(list, ";, ", &rest); word != NULL; word = strtok_r(NULL, ";, ", &rest)) {
        if (kvg_cuda_arch_runs(word, capability)) return 1;
    }
    return 0;
}

#endif

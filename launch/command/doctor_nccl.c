/* Doctor, NCCL's check. */
#include "launch/command/doctor_nccl.h"

#include <stdio.h>

#include <kvgrid/status.h>

#if KVG_HAVE_NCCL
#include <kvgrid/kvgrid_comm_nccl.h>
#include <kvgrid/kvgrid_vote_nccl.h>

/* 22809 as 2.28.9. */
static const char *version_words(int code, char words[16])
{
    snprintf(words, 16, "%d.%d.%d", code / 10000 % 100, code / 100 % 100, code % 100);
    return words;
}

void kvg_doctor_nccl(Finding *finding)
{
    char compiled_words[16], loaded_words[16], why[FINDING_MOST];
    int  compiled = 0, loaded = 0;

    if (kvg_nccl_versions(&compiled, &loaded) != KVG_OK) {
        kvg_finding(finding, VERDICT_WARN, "device vote off: compiled against NCCL %s, and %s", version_words(compiled, compiled_words), kvg_last_error());
    } else if (kvg_nccl_vote_probe(why, sizeof why) != KVG_OK) {
        kvg_finding(finding, VERDICT_WARN, "device vote off: compiled against NCCL %s and running with %s, whose device structures may differ; build "
                    "against the one that is loaded (NCCL_HOME), or vote by nccl or on the host", version_words(compiled, compiled_words),
                    version_words(loaded, loaded_words));
    } else {
        kvg_finding(finding, VERDICT_OK, "NCCL %s, compiled against and loaded: a device vote can be had between GPUs of one host",
                    version_words(loaded, loaded_words));
    }
}

#else

void kvg_doctor_nccl(Finding *finding)
{
    kvg_finding(finding, VERDICT_OK, "no NCCL in this build: votes are the host's, by MPI or sockets, which is all that replay needs");
}

#endif

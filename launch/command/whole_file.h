/* Whole files: a file that is seen as it was or as it is, never in part. Private to the command.
 *
 * Text goes to a file without a name, so that nothing is left of it where the process is killed; once whole it is PATH.tmp for a moment, which takes
 * PATH's name. Where the file system has no such files it is PATH.tmp from the beginning. A device or a pipe is written as it is: there is nothing to
 * replace. A link stays: what it names is replaced. */
#ifndef KVG_COMMAND_WHOLE_FILE_H
#define KVG_COMMAND_WHOLE_FILE_H

#include <limits.h>
#include <stdio.h>

#include <kvgrid/status.h>

typedef struct WholeFile {
    FILE       *stream;
    const char *option, *path; /* the caller's; `option` names the file in sentences */
    const char *target;        /* what is replaced: `path`, or in `place` what a link there names */
    char        place[PATH_MAX], beside[PATH_MAX]; /* beside "" where the path is written as it is */
    int         unnamed;       /* 1: `beside` is not there yet */
} WholeFile;

/* Can a file be made there? Makes one beside it and takes it away again; PATH is not touched. EINVAL, naming option, path and reason. */
KvgStatus kvg_whole_file_check(const char *option, const char *path);

/* Opened, to be written; then put in its place by _end, or dropped where `status` is not KVG_OK, which is passed on. EIO. */
KvgStatus kvg_whole_file_begin(const char *option, const char *path, WholeFile *file);
KvgStatus kvg_whole_file_end(WholeFile *file, KvgStatus status);

#endif

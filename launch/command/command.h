/* Command: what the parts of `kvgrid` share. Private.
 *
 * A part gets its own arguments (argv[0] is its name) and returns the process's exit status. Errors are one sentence on stderr,
 * "kvgrid plan: ...", with the cure; stdout carries results alone. */
#ifndef KVG_COMMAND_H
#define KVG_COMMAND_H

#include <kvgrid/status.h>

enum { KVG_EXIT_DONE = 0, KVG_EXIT_FAILED = 1, KVG_EXIT_USE = 2 };

int kvg_command_plan(int argc, char **argv);
int kvg_command_replay(int argc, char **argv);
int kvg_command_doctor(int argc, char **argv);
int kvg_command_knobs(int argc, char **argv);

/* 2 for bad use, input, geometry or grid; 1 for a run that failed. */
int kvg_command_exit_status(KvgStatus status);
/* Passes `status` on; a sum past 64 bits, which speaks of layers and ranks alone, gets the model's path before its sentence. */
KvgStatus kvg_command_name_model(KvgStatus status, const char *path);
/* Prints "kvgrid PART: SENTENCE" with this thread's last error to stderr; returns the exit status of `status`. */
int kvg_command_refuse(const char *part, KvgStatus status);
/* Flushes stdout; 1, said on stderr, if what was printed did not all go out (a full disk, a closed pipe). */
int kvg_command_finish(const char *part, int exit_status);

#endif

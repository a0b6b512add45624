/* Poll open: poll over a table of which much is empty. poll(2) passes over negative descriptors but counts them, and refuses (EINVAL) more entries than the
 * process may have files: a table with room for every guest would not be looked at under a small `ulimit -n`. */
#ifndef KVG_POLL_OPEN_H
#define KVG_POLL_OPEN_H

#include <poll.h>
#include <stddef.h>

/* As poll over polls[0 .. count), of which only those with a descriptor are given to the kernel. polls [2 * count]: the second half is scratch. */
int kvg_poll_open(struct pollfd *polls, size_t count, int timeout_ms);

#endif

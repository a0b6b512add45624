/* Files that a caller names and that are read once, front to back. Private. */
#ifndef KVG_INPUT_H
#define KVG_INPUT_H

#include <stdio.h>

#include <kvgrid/status.h>

/* How long a pipe may stay without a byte before it is refused: to open one that nobody writes would be a wait without end. */
#define KVG_INPUT_WAIT_MS 5000

/* Opens `path` to be read; EIO, naming it and ending in `cure`: it cannot be opened, or is a pipe into which nothing was written within wait_ms. */
KvgStatus kvg_input_open(const char *path, const char *cure, int wait_ms, FILE **file);

#endif

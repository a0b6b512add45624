/** Log callback. The library writes nothing to stdout or stderr; it hands sentences to the host program.
 *  One exception: where an assertion of its own does not hold, a bug of kvgrid, and no callback is installed, that sentence
 *  goes to stderr before the process is aborted. */
#ifndef KVG_LOG_H
#define KVG_LOG_H

#include <kvgrid/export.h>

KVG_BEGIN_DECLS

typedef enum KvgLogLevel { KVG_LOG_ERROR = 0, KVG_LOG_WARN = 1, KVG_LOG_INFO = 2 } KvgLogLevel;

/** Receives one sentence without a newline. `sentence` is valid during the call only. */
typedef void (*KvgLogFn)(void *user, KvgLogLevel level, const char *sentence);

/** Installs the process's log callback; NULL (the default) is silence. Reach: local.
 *  Threads: install it before other threads use the library. */
KVG_API void kvg_log_set(KvgLogFn fn, void *user);

/** Formats a sentence and hands it to the callback, if there is one. */
KVG_API void kvg_log(KvgLogLevel level, const char *format, ...) __attribute__((format(printf, 2, 3)));

KVG_END_DECLS
#endif

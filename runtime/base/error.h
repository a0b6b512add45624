/* Error: whoever picks the code writes the sentence; three macros carry it upward. Private; two of its functions are exported for
 * kvgrid_mpi alone, which must set the last error of the libkvgrid.so it is linked to. */
#ifndef KVG_ERROR_H
#define KVG_ERROR_H

#include <kvgrid/log.h>
#include <kvgrid/status.h>

/* Sets this thread's last error to the formatted sentence and returns `status`. The sentence says what, where,
 * the values, and the cure; it has no trailing newline. */
KVG_API KvgStatus kvg_fail(KvgStatus status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A bug in the library (never bad input): says file, line and expression, and aborts. The sentence goes to the log callback, else to
 * stderr, so that a process never ends without a word: it is the only thing that the library writes there. */
KVG_API _Noreturn void kvg_assert_failed(const char *file, int line, const char *expression);

#define KVG_ASSERT(expression) \
    ((expression) ? (void)0 : kvg_assert_failed(__FILE__, __LINE__, #expression))

/* In log.c: hands a finished sentence to the log callback; 0: there is none. */
int kvg_log_one(KvgLogLevel level, const char *sentence);

/* Return the status upward. */
#define KVG_TRY(call)                             \
    do {                                          \
        KvgStatus kvg_try_ = (call);              \
        if (kvg_try_ != KVG_OK) return kvg_try_;  \
    } while (0)

/* Set the local `status` and unwind. */
#define KVG_TRY_GOTO(call, label)                 \
    do {                                          \
        status = (call);                          \
        if (status != KVG_OK) goto label;         \
    } while (0)

/* Teardown: do every step, keep the first failure. */
#define KVG_TRY_KEEP(call, first)                                      \
    do {                                                               \
        KvgStatus kvg_try_ = (call);                                   \
        if (kvg_try_ != KVG_OK && (first) == KVG_OK) (first) = kvg_try_; \
    } while (0)

#endif

#include "runtime/base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define ERROR_SENTENCE_MAX 1024

static _Thread_local char last_error[ERROR_SENTENCE_MAX];

static const char *const status_names[KVG_STATUS_COUNT] = {
    [KVG_OK] = "OK",               [KVG_EINVAL] = "EINVAL",       [KVG_EGEOM] = "EGEOM",
    [KVG_EOVERFLOW] = "EOVERFLOW", [KVG_ENOMEM] = "ENOMEM",       [KVG_ECAPACITY] = "ECAPACITY",
    [KVG_EBUSY] = "EBUSY",         [KVG_ESTALE] = "ESTALE",       [KVG_ELAPPED] = "ELAPPED",
    [KVG_ENOFIT] = "ENOFIT",       [KVG_ELAYOUT] = "ELAYOUT",     [KVG_ETAINTED] = "ETAINTED",
    [KVG_EREFUSED] = "EREFUSED",   [KVG_EINDOUBT] = "EINDOUBT",   [KVG_EPEER] = "EPEER",
    [KVG_EDEVICE] = "EDEVICE",     [KVG_EIO] = "EIO",             [KVG_EFORMAT] = "EFORMAT",
    [KVG_ENOTSUP] = "ENOTSUP",
};

const char *kvg_status_name(KvgStatus status)
{
    return (unsigned)status < KVG_STATUS_COUNT ? status_names[status] : "?";
}

const char *kvg_last_error(void)
{
    return last_error;
}

KvgStatus kvg_fail(KvgStatus status, const char *format, ...)
{
    char    sentence[ERROR_SENTENCE_MAX]; /* apart, so that an argument may be the last error itself */
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    snprintf(last_error, sizeof last_error, "%s", sentence);
    return status;
}

void kvg_assert_failed(const char *file, int line, const char *expression)
{
    char sentence[ERROR_SENTENCE_MAX];

    snprintf(sentence, sizeof sentence, "%s:%d: KVG_ASSERT(%s) does not hold: a bug of kvgrid " KVG_VERSION
             ", which stops the process here; please report this sentence and the calls before it", file, line, expression);
    if (!kvg_log_one(KVG_LOG_ERROR, sentence)) {
        fprintf(stderr, "kvgrid: %s\n", sentence);
    }
    abort();
}

#include <kvgrid/log.h>

#include <stdarg.h>
#include <stdio.h>

#include "runtime/base/error.h"

#define LOG_SENTENCE_MAX 1024

static KvgLogFn log_fn;
static void    *log_user;

void kvg_log_set(KvgLogFn fn, void *user)
{
    log_fn = fn;
    log_user = user;
}

void kvg_log(KvgLogLevel level, const char *format, ...)
{
    char    sentence[LOG_SENTENCE_MAX];
    va_list arguments;

    if (log_fn == NULL) {
        return;
    }
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    kvg_log_one(level, sentence);
}

int kvg_log_one(KvgLogLevel level, const char *sentence)
{
    if (log_fn == NULL) {
        return 0;
    }
    log_fn(log_user, level, sentence);
    return 1;
}

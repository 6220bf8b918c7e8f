#include "err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void clean(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
}

int hutch_err_set(struct hutch_err *err, int errnum, const char *fmt, ...)
{
    va_list ap;
    int n;

    err->errnum = errnum;
    va_start(ap, fmt);
    n = vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
    va_end(ap);
    if (n < 0)
        err->msg[0] = '\0';
    if (errnum && n >= 0 && (size_t)n < sizeof(err->msg)) {
        const char *why = strerrordesc_np(errnum); /* strerror() may allocate, and we may be after clone() */

        snprintf(err->msg + n, sizeof(err->msg) - (size_t)n, ": %s", why ? why : "unknown error");
    }
    clean(err->msg);
    return -1;
}

int hutch_err_wrap(struct hutch_err *err, const char *fmt, ...)
{
    char inner[sizeof(err->msg)];
    va_list ap;
    int n;

    memcpy(inner, err->msg, sizeof(inner));
    va_start(ap, fmt);
    n = vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof(err->msg))
        snprintf(err->msg + n, sizeof(err->msg) - (size_t)n, ": %s", inner);
    clean(err->msg);
    return -1;
}

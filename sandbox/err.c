#include "sandbox/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void clean(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
}

/* Appends ": text" at offset @n, as much as fits; strerror() and friends may allocate, and we may be after clone(2). */
static void append(struct hutch_err *err, int n, const char *text)
{
    size_t room, len = strlen(text);
    char *end;

    if (n < 0 || (size_t)n + 3 >= sizeof(err->msg))
        return;
    end = err->msg + n;
    room = sizeof(err->msg) - (size_t)n - 3;
    if (len > room)
        len = room;
    memcpy(end, ": ", 2);
    memcpy(end + 2, text, len);
    end[2 + len] = '\0';
}

/* The length of the whole text, also where it was cut; negative: it could not be written. */
static int HUTCH_PRINTF(3, 0) begin_message(struct hutch_err *err, int errnum, const char *fmt, va_list ap)
{
    int n = vsnprintf(err->msg, sizeof(err->msg), fmt, ap);

    err->errnum = errnum;
    if (n < 0)
        err->msg[0] = '\0';
    return n;
}

int hutch_err_set(struct hutch_err *err, int errnum, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = begin_message(err, errnum, fmt, ap);
    va_end(ap);
    if (errnum) {
#ifdef HUTCH_ANY_LIBC /* code inside an image: GNU's name is not everywhere, and no locale was set here */
        const char *why = strerror(errnum);
#else
        const char *why = strerrordesc_np(errnum);
#endif

        append(err, n, why ? why : "unknown error");
    }
    clean(err->msg);
    return -1;
}

int hutch_err_say(struct hutch_err *err, int code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    begin_message(err, code, fmt, ap);
    va_end(ap);
    clean(err->msg);
    return -1;
}

void hutch_err_receive(struct hutch_err *err, const char *who)
{
    err->msg[sizeof(err->msg) - 1] = '\0';
    clean(err->msg);
    if (!err->msg[0])
        hutch_err_set(err, err->errnum > 0 && err->errnum < 4096 ? err->errnum : 0, "%s failed and did not say why",
                      who);
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
    append(err, n, inner);
    clean(err->msg);
    return -1;
}

/* python_error.h - the exception that ended a Python program, as the hook in rootfs/python reports it.
 *
 * The hook writes one record to a pipe. Anything inside the sandbox can write there too, so what is read is hostile
 * text: good enough to show, never to decide anything. A record:
 *     8 bytes  "HUTCHPY1"
 *     3 x 4    lengths of name, value and traceback, little endian
 *     then the three texts, UTF-8, without terminators; nothing after them. */
#ifndef HUTCH_LANG_PYTHON_ERROR_H
#define HUTCH_LANG_PYTHON_ERROR_H

#include "sandbox/err.h"

#include <stddef.h>

#define PYREPORT_MAGIC "HUTCHPY1"
#define PYREPORT_HEADER_LEN 20
#define PYREPORT_MAX_NAME (4u << 10)
#define PYREPORT_MAX_VALUE (64u << 10)
#define PYREPORT_MAX_TRACEBACK (256u << 10)
/* Whoever reads the pipe keeps this much, and takes more for no report at all. */
#define PYREPORT_MAX (PYREPORT_HEADER_LEN + PYREPORT_MAX_NAME + PYREPORT_MAX_VALUE + PYREPORT_MAX_TRACEBACK)

struct sandbox_spec;

/* All NULL, or all set: owned, NUL-terminated. */
struct error_report {
    char *name;      /* "ZeroDivisionError" */
    char *value;     /* "division by zero"; may be empty */
    char *traceback; /* what Python printed on stderr */
};
#define ERROR_REPORT_INIT { .name = NULL }

/* 1 and a filled @ret when @buf holds one well-formed record and nothing else; 0 when it does not, @ret
 * untouched; -1 on ENOMEM. NUL bytes inside become U+FFFD. */
int hutch_pyreport_parse(const char *buf, size_t len, struct error_report *ret);
void hutch_error_report_done(struct error_report *report);

/* Gives the sandbox the hook: its files below /run/hutch/site, and the environment that makes Python load it. The
 * program finds the write end of the pipe at descriptor @report_fd. Call it after the policy's and the user's
 * environment is in @spec: a PYTHONPATH that is there stays in force. */
int hutch_pyreport_attach(struct sandbox_spec *spec, int report_fd, struct hutch_err *err);

#endif

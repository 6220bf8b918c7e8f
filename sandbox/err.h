/* err.h - the one error value: a root errno and one sentence for a human.
 *
 * A function that fails returns -1 and fills *err; on success it leaves *err alone. A caller adds what
 * it was doing with hutch_err_wrap(). Only the edge (main, a response writer) prints. The size is fixed
 * so that a child between clone(2) and execve(2) can fill it without malloc and send it whole. */
#ifndef HUTCH_ERR_H
#define HUTCH_ERR_H

#include <limits.h>

#define HUTCH_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

struct hutch_err {
    int  errnum;   /* errno of the root cause; one of our own rules: 0, or what a caller is told */
    char msg[508]; /* "outer: inner", no newline; longer text is cut, never overflowed */
};
_Static_assert(sizeof(struct hutch_err) <= PIPE_BUF, "crosses a pipe in one write, pipe(7)");

/* Starts a message: "fmt: strerror(errnum)", or only "fmt" when @errnum is 0. Bytes that a terminal
 * would obey (control characters, from names that an attacker chose) are written as '?'. Returns -1. */
int hutch_err_set(struct hutch_err *err, int errnum, const char *fmt, ...) HUTCH_PRINTF(3, 4);

/* The same where one of our own rules was broken, and for a sentence that has its reason already: "fmt" alone. @code is
 * for a caller that asks of which kind it was. Returns -1. */
int hutch_err_say(struct hutch_err *err, int code, const char *fmt, ...) HUTCH_PRINTF(3, 4);

/* What another process has sent as an error becomes one that can be told: it ends, a terminal would obey nothing of it,
 * and where it has no words it says that @who gave none. */
void hutch_err_receive(struct hutch_err *err, const char *who);

/* Puts "fmt: " before the message that is there. Keeps errnum. Returns -1. */
int hutch_err_wrap(struct hutch_err *err, const char *fmt, ...) HUTCH_PRINTF(2, 3);

#endif

/* child.h - a program of others that hutch runs and waits for: it may take long, want too much and never end.
 *
 * It has a process group of its own. However this ends no process of it is left; when hutch is killed, it is, too. */
#ifndef HUTCH_CLI_CHILD_H
#define HUTCH_CLI_CHILD_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>

#define CHILD_MAX_TAIL 4096  /* of its standard error */
#define CHILD_MAX_WORDS 320

/* What it said last. */
struct child_tail {
    char text[CHILD_MAX_TAIL];
    size_t len;
};

struct child_run {
    const char *path;
    char *const *argv, *const *env;
    int stdout_fd; /* -1: nowhere */
    int lock_fd;   /* stays open in it and in its children, so that nobody sweeps where they write */
    double until;  /* a moment of hutch_clock_ms() at which @check is to be called */
    int (*check)(void *ctx, struct hutch_err *err); /* now and then; -1 ends the child */
    void *ctx;
};

/* *@ret_status is as of waitpid(2). Errors: those of @check; it cannot be started. */
int hutch_child_run(const struct child_run *run, struct child_tail *ret_tail, int *ret_status, struct hutch_err *err);

/* Calls @unquote, which may be NULL, with the last line of what it said, to shorten it in place; of a long one the end
 * is taken, where the cause is. "" when there is none. */
void hutch_child_last_words(const char *text, size_t len, size_t (*unquote)(char *line),
                            char ret[CHILD_MAX_WORDS + 1]);

#endif

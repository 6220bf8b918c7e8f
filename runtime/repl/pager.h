/* pager.h - a program of the user's that shows a long text screen by screen: $PAGER, or less -R.
 *
 * The text is of hostile code. The pager gets what a terminal would (runtime/term/filter.h), by a pipe, and is told to
 * offer no commands and to run no preprocessor: LESSSECURE=1, and neither LESSOPEN nor LESSCLOSE. */
#ifndef HUTCH_REPL_PAGER_H
#define HUTCH_REPL_PAGER_H

#include "runtime/term/backlog.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <termios.h>

struct pager {
    struct backlog text; /* what it has not read; its fd is the pipe, -1 once all is written */
    pid_t pid;           /* 0: it has ended */
    int pidfd;
    struct termios terminal; /* as it was; it may die without putting it back */
    bool has_terminal;
};
#define PAGER_INIT { .text = { .fd = -1 }, .pidfd = -1 }

/* Whether a text has more lines than the terminal @fd, as wide as that is. False where there is to be no pager: PAGER
 * is empty, or the terminal cannot move its cursor. */
bool hutch_pager_is_wanted(int fd, const char *text, size_t len);
/* Standard input, output and error are the terminal. False: there is none, and nothing was started. */
bool hutch_pager_open(struct pager *pager, const char *text, size_t len);
/* When the pipe takes more. */
void hutch_pager_pass_on(struct pager *pager);
/* When its pidfd is readable. False: it was not there, and has shown nothing. The terminal is as it was. */
bool hutch_pager_reap(struct pager *pager);
/* Asks it to end. */
void hutch_pager_stop(struct pager *pager, bool is_impatient);
void hutch_pager_done(struct pager *pager); /* fine twice */

#endif

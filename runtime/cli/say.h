/* say.h - the one way for hutch's own words to standard output and error.
 *
 * A message may quote what came from an archive, a notebook, a policy, a task or a path, and then it is as hostile as
 * the output of a program: it goes through runtime/term/filter.h, without colours, wherever it goes to. A log
 * is read at a terminal sooner or later. */
#ifndef HUTCH_CLI_SAY_H
#define HUTCH_CLI_SAY_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* "hutch: …" on a line of its own on standard error; line ends within are shown as text. */
void hutch_say(const char *fmt, ...) HUTCH_PRINTF(1, 2);
/* Text that may have several lines. */
void hutch_say_text(FILE *to, const char *text, size_t len);
/* One object or array, and a newline, for standard output. What a terminal would obey is written as \uXXXX, which JSON
 * takes for the same. */
int hutch_say_json(const char *json, struct hutch_err *err);
char *hutch_say_plain_json(const char *json); /* the same text, the caller's to free; NULL on ENOMEM */
/* Debug messages are written, and written like that. */
void hutch_say_verbosely(bool is_verbose);

#endif

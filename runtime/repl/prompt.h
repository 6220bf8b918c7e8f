/* prompt.h - lines typed at a terminal, with editing and a history that is kept in a file. libedit does both. */
#ifndef HUTCH_REPL_PROMPT_H
#define HUTCH_REPL_PROMPT_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>

#define PROMPT_HISTORY_LINES 1000
#define PROMPT_HISTORY_LINE  4096 /* bytes; a longer one is not kept */

enum prompt_end {
    PROMPT_LINE,    /* a line */
    PROMPT_EOF,     /* Ctrl-D */
    PROMPT_STOPPED  /* the wait was called off */
};

struct prompt;

/* Waits until standard input has something; false calls the reading of the line off. May call
 * hutch_prompt_redraw(). */
typedef bool prompt_wait_fn(void *user);

/* What Tab puts behind the @len bytes of @line before the cursor, which are more than blanks; the prompt frees it.
 * NULL: nothing. *ret_was_shown: something else was written, so prompt and line are to be shown again. */
typedef char *prompt_complete_fn(void *user, const char *line, size_t len, bool *ret_was_shown);

/* Standard input and output are a terminal. @history: path of the file, or NULL; one that cannot be read is as good as
 * none. */
int hutch_prompt_open(const char *history, prompt_wait_fn *wait, prompt_complete_fn *complete, void *user,
                      bool has_colours, struct prompt **ret, struct hutch_err *err);
/* Writes the history: mode 0600, in the place of the old file at once. */
int hutch_prompt_save(struct prompt *prompt, struct hutch_err *err);
void hutch_prompt_free(struct prompt *prompt); /* NULL is fine; the terminal is as it was */

/* *ret_line, with its newline, lives until the next call. */
enum prompt_end hutch_prompt_read(struct prompt *prompt, const char *text, const char **ret_line, size_t *ret_len);
/* The line that was read is one of a text that was pasted, and there is more of it. */
bool hutch_prompt_is_pasting(const struct prompt *prompt);
void hutch_prompt_remember(struct prompt *prompt, const char *line, size_t len);

/* While a line is read: something else was written, so prompt and line are shown again. @is_resized: the window has
 * another size; @is_lost: another process has changed the terminal's settings meanwhile. */
void hutch_prompt_redraw(struct prompt *prompt, bool is_resized, bool is_lost);

#endif

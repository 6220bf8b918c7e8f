/* complete.h - what Tab makes of a line. The interpreter of the session proposes words; they are as foreign as whatever
 * else comes from it. What is put into the line is one of them or the beginning that they share: it goes on where the
 * typed word ends, and has only characters that are seen and that names and paths need. A line that acts on this
 * machine, as %download does, gets no word from there. */
#ifndef HUTCH_REPL_COMPLETE_H
#define HUTCH_REPL_COMPLETE_H

#include <stdbool.h>
#include <stddef.h>

#define COMPLETE_MAX_WORDS 200
#define COMPLETE_MAX_LEN   200  /* bytes of a word; a longer one is left out */
#define COMPLETE_MS        5000 /* then the interpreter is interrupted, as by Ctrl-C */

struct repl;

struct completion {
    size_t typed;  /* bytes of the word that is to be completed: the last of the line */
    char *words[COMPLETE_MAX_WORDS]; /* owned */
    size_t n;
    bool is_cut;   /* there are more */
};

/* Adds what the answer to hutch_session_ask() proposes for @line, whose end the cursor was at. */
void hutch_completion_read(struct completion *c, const char *line, size_t len, const char *json);
/* The same of lines of text: the first is the typed word, the others are one word each. Takes what is fit for the line
 * and no word twice. */
void hutch_completion_add(struct completion *c, const char *line, size_t len, const char *answer);
/* What all words go on with after the typed one. The caller's to free; NULL: nothing. */
char *hutch_completion_rest(const struct completion *c);
void hutch_completion_done(struct completion *c);

/* For prompt.h: @user is a struct repl. */
char *hutch_repl_complete(void *user, const char *line, size_t len, bool *ret_was_shown);

#endif

/* ask.h - a question to the user at the terminal. */
#ifndef HUTCH_CLI_ASK_H
#define HUTCH_CLI_ASK_H

#include <stdbool.h>

/* Whether standard input and standard error are a terminal. */
bool hutch_ask_can(void);
/* Prints "hutch: @question [Y/n] ", or "[y/N]", and waits five minutes for a line. An empty one is @usual; the end of
 * the input, or none at all, is a no. */
bool hutch_ask(const char *question, bool usual);

#endif

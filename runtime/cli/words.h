/* words.h - the command line of a program that is started: its words, which are made one after the other. */
#ifndef HUTCH_CLI_WORDS_H
#define HUTCH_CLI_WORDS_H

#include <stdbool.h>
#include <stddef.h>

struct words {
    char **argv; /* owned, each; ends with NULL once there is one */
    size_t n, room;
    bool is_broken; /* memory was short */
};
#define WORDS_INIT { .argv = NULL }
#define auto_words __attribute__((cleanup(hutch_words_done))) struct words

/* @parts are joined to one word; NULL ends them. On ENOMEM @words is broken, so a row of these needs one test. */
void hutch_words_add(struct words *words, const char *const *parts);
#define ADD_WORD(words, ...) hutch_words_add(words, (const char *const[]){ __VA_ARGS__, NULL })
void hutch_words_done(struct words *words);

#endif

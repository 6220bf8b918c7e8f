/* compare.h - is this what the program should have printed? */
#ifndef HUTCH_BATCH_COMPARE_H
#define HUTCH_BATCH_COMPARE_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>

enum batch_compare {
    COMPARE_EXACT,           /* byte for byte */
    COMPARE_RSTRIP_NEWLINES, /* but for newlines at the end */
    COMPARE_LINES,           /* lines without white space around them; none around the whole */
    COMPARE_WORDS,           /* the words, however they are laid out */
    COMPARE_DECIMAL,         /* as lines, and a line may instead be as many numbers of equal value: "1.0" is "1" */
    COMPARE_EXIT0,           /* what it prints does not matter */
    COMPARE_COUNT
};

/* "exact", "rstrip-newlines", … */
const char *hutch_batch_compare_name(enum batch_compare mode);
int hutch_batch_compare_parse(const char *name, enum batch_compare *ret, struct hutch_err *err);

bool hutch_batch_compare(enum batch_compare mode, const char *got, size_t got_len, const char *want, size_t want_len);

#endif

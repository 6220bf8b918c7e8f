/* ids.h - names that nobody guesses, of sessions and of what they have. */
#ifndef HUTCH_TEXT_IDS_H
#define HUTCH_TEXT_IDS_H

#include "sandbox/err.h"

#include <stdbool.h>

/* 126 bits; one format of others takes no other length. */
#define ID_LEN 21

/* ID_LEN random letters, digits, '-' and '_', and a NUL. Fails when the kernel has no random numbers. */
int hutch_id_make(char ret[ID_LEN + 1], struct hutch_err *err);

/* Whether it has the length and the characters of one. */
bool hutch_id_is(const char *text);

#endif

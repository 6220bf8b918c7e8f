/* installed.h - files that came with a program or a library of hutch, found from where that lies: no path of an
 * installation is compiled in. What somebody else has put in such a place is not taken. */
#ifndef HUTCH_INSTALLED_H
#define HUTCH_INSTALLED_H

#include "sandbox/err.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* The file of the program that runs. False: it cannot be told. */
bool hutch_installed_program(char ret[PATH_MAX]);

/* Finds the first of @below, paths relative to the directory of the file @own, which is there and can have come with
 * @own: it and the directories on the way down to it belong to root, to the caller or to the owner of @own, and not
 * everybody may write to them. The caller frees *ret, which is NULL when there is none. */
int hutch_installed_find(const char *own, const char *const *below, size_t n_below, char **ret, struct hutch_err *err);

#endif

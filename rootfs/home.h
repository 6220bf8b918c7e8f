/* home.h - where hutch keeps what lasts: images, the state of live runs, result directories. */
#ifndef HUTCH_HOME_H
#define HUTCH_HOME_H

#include "sandbox/err.h"

/* $HUTCH_HOME, else $XDG_DATA_HOME/hutch, else ~/.local/share/hutch (~ from $HOME, else from the user
 * database). Always absolute; the caller frees it. Nothing is created.
 * Errors: 0 (a variable holds a relative path); ENOENT (no home directory is known); ENOMEM. */
int hutch_home_path(char **ret_path, struct hutch_err *err);

/* Opens the directory @path, made with its parents when missing (0700 for what is made here), and returns its
 * resolved path, which the caller frees. Errors: those of mkdir(2) and open(2). */
int hutch_home_create(const char *path, int *ret_dirfd, char **ret_real, struct hutch_err *err);

#endif

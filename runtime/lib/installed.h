/* installed.h - where `make install` has put what the library needs, found from where the library itself lies: so an
 * installed tree can be moved as a whole. */
#ifndef HUTCH_LIB_INSTALLED_H
#define HUTCH_LIB_INSTALLED_H

#include "sandbox/err.h"

/* @below: relative to the prefix, such as "libexec/hutch-launcher". The prefix is that of the shared library or of the
 * program that the static one is linked into (the first directory above its own, or above that, which has @below), else
 * /usr/local or /usr. When none has it, the path in /usr/local. The caller frees *ret. */
int hutch_lib_find(const char *below, char **ret, struct hutch_err *err);

#endif

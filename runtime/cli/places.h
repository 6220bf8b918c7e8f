/* places.h - where the parts of hutch lie beside the program that runs: for hutch's own command, in a build directory
 * or where it was installed. A library cannot go by that: what lies beside the program that embeds it is no part of
 * hutch. */
#ifndef HUTCH_CLI_PLACES_H
#define HUTCH_CLI_PLACES_H

#include "sandbox/err.h"

/* The engine's helper program: "hutch-launcher" in the program's own directory, or in ../libexec. The caller frees
 * *ret, which is NULL when it is in neither. */
int hutch_places_launcher(char **ret, struct hutch_err *err);

#endif

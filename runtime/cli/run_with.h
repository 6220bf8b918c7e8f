/* run_with.h - hutch run --with PACKAGES, and scripts that say what they depend on (PEP 723): the program runs on
 * the image with these laid over it, which is found, or made before the first run. */
#ifndef HUTCH_CLI_RUN_WITH_H
#define HUTCH_CLI_RUN_WITH_H

#include "rootfs/digest.h"
#include "runtime/cli/commands.h"
#include "sandbox/err.h"

struct run_with {
    char image[sizeof("sha256:") + DIGEST_HEX]; /* the extended one */
};

/* @script: the file that may say what it depends on; NULL: there is none. Where anything is asked for, @opts->image is
 * that of *@ret then. @home: hutch's own directory. */
int hutch_run_with(struct run_opts *opts, const char *home, const char *script, struct run_with *ret,
                   struct hutch_err *err);

#endif

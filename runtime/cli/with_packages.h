/* with_packages.h - the option --with, and programs that say what they depend on: they run on the image with these
 * packages laid over it, which is found, or made before the first run. */
#ifndef HUTCH_CLI_WITH_PACKAGES_H
#define HUTCH_CLI_WITH_PACKAGES_H

#include "rootfs/digest.h"
#include "runtime/cli/commands.h"
#include "sandbox/err.h"

struct with_packages {
    char image[sizeof("sha256:") + DIGEST_HEX]; /* the extended one */
};

/* @script: the file that may say what it depends on, and @project the directory that it is shown in; NULL: there is
 * none. Where anything is asked for, @opts->image is that of *@ret then. @home: hutch's own directory. */
int hutch_with_packages(struct run_opts *opts, const char *home, const char *script, const char *project,
                        struct with_packages *ret, struct hutch_err *err);

#endif

/* flavour.h - the images that `hutch rootfs build` makes, and what they are called. */
#ifndef HUTCH_CLI_FLAVOUR_H
#define HUTCH_CLI_FLAVOUR_H

#include "sandbox/err.h"

#include <stdbool.h>

/* An image of the usual release has the name of its flavour, one of another release FLAVOUR-RELEASE. */
struct flavour {
    char *name;    /* owned: a flavour of packages.txt */
    char *release; /* owned: a release of Debian of packages.txt */
};
#define FLAVOUR_INIT { .name = NULL }
#define auto_flavour __attribute__((cleanup(hutch_flavour_done))) struct flavour

/* The one that is built as @image. Errors: ENOENT (none is), ENOMEM. */
int hutch_flavour_of_image(const char *image, struct flavour *ret, struct hutch_err *err);

/* What an image of @name is called: *@ret is the caller's. @release is the usual one where it is NULL. The flavour
 * itself is judged by the builder. Errors: no such release; ENOMEM. */
int hutch_flavour_choose(const char *name, const char *release, struct flavour *ret, char **ret_image,
                         struct hutch_err *err);
void hutch_flavour_done(struct flavour *flavour);

#endif

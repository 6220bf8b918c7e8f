/* pull_source.h - what `hutch rootfs pull` is asked for: a transport of skopeo's, and where the image is by it. */
#ifndef HUTCH_CLI_PULL_SOURCE_H
#define HUTCH_CLI_PULL_SOURCE_H

#include "sandbox/err.h"

#include <stdbool.h>

#define PULL_SOURCE_MAX 1024

struct pull_source {
    char text[PULL_SOURCE_MAX + 1]; /* as skopeo takes it */
    char name[PULL_SOURCE_MAX + 16]; /* what the image is called unless the user says; "" when nothing tells */
    bool is_registry;
};

/* Whether skopeo finds such an image, and whether the reference is well-formed, is left to skopeo.
 *
 * The name is the last component of the reference with its tag, or ":latest" without one, so that no name without a
 * tag is taken from another image. A reference by digest alone keeps the digest in its name; of one with both, the
 * digest is what is asked for, as docker does it, and the tag names it. A file or directory is named by its own name,
 * without ".tar" and the like, and by the tag asked for in it.
 * Errors (errnum 0): not one of the transports, not a reference at all. */
int hutch_pull_source_parse(const char *text, struct pull_source *ret, struct hutch_err *err);

#endif

/* bundle_dir.h - the directory of an OCI bundle: config.json, the files that the container finds, and a root tree. */
#ifndef HUTCH_CLI_BUNDLE_DIR_H
#define HUTCH_CLI_BUNDLE_DIR_H

#include "sandbox/err.h"

#include <stdbool.h>

struct sandbox_spec;

#define BUNDLE_ROOT_DIR "rootfs" /* the copy of the image, as root.path of config.json has it */

/* Makes @path, or fills it when it is an empty directory. config.json is written last and whole. A failure leaves
 * nothing of the bundle; a pending SIGINT, SIGTERM or SIGHUP is one.
 *
 * A runtime makes mount points that the root tree lacks, in the tree. The store's is not its to change: one that lacks
 * a mount point is an error without @copies, and so is a link in its place, which could lead the mount elsewhere. */
int hutch_bundle_dir_make(const char *path, const struct sandbox_spec *spec, const char *json, bool copies,
                          struct hutch_err *err);

#endif

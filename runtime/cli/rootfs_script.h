/* rootfs_script.h - the scripts that make images and layers, which come with hutch. */
#ifndef HUTCH_CLI_ROOTFS_SCRIPT_H
#define HUTCH_CLI_ROOTFS_SCRIPT_H

#include "sandbox/err.h"

/* The real path of the file @name: in $HUTCH_ROOTFS_DIR, else beside the installed program, else beside the built one.
 * @mode: what has to be allowed, as of access(2). The caller frees *@ret. Errors: a sentence that says where it was
 * looked for. */
int hutch_rootfs_script_find(const char *name, int mode, char **ret, struct hutch_err *err);

#endif

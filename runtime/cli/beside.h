/* beside.h - commands that are programs of their own beside hutch: `hutch rootfs` is hutch-rootfs, `hutch serve` is
 * hutch-serve. runtime/cli/rootfs_main.c and runtime/cli/serve_main.c say why. */
#ifndef HUTCH_CLI_BESIDE_H
#define HUTCH_CLI_BESIDE_H

#include "sandbox/err.h"

#include <limits.h>

/* Its path. */
int hutch_beside_find(const char *name, char ret_path[PATH_MAX], struct hutch_err *err);

/* hutch-rootfs with @argv, and waits for it. Its standard output is thrown away: that of this program is another's.
 * What went wrong it has said itself; a signal that has ended it ends this process, too. */
int hutch_beside_run_rootfs(const char *const *argv, struct hutch_err *err);

/* Each executes its program in this process. Returns only when that fails: -1. */
int hutch_cmd_rootfs_beside(int argc, char **argv, struct hutch_err *err);
int hutch_cmd_serve_beside(int argc, char **argv, struct hutch_err *err);

#endif

/* rootfs_exec.h - `hutch rootfs` is the program hutch-rootfs beside hutch; runtime/cli/rootfs_main.c says why. */
#ifndef HUTCH_CLI_ROOTFS_EXEC_H
#define HUTCH_CLI_ROOTFS_EXEC_H

#include "sandbox/err.h"

/* Executes it in this process. Returns only when that fails: -1. */
int hutch_cmd_rootfs_exec(int argc, char **argv, struct hutch_err *err);

#endif

/* disk.h - goes through data directories for the engine, whose loop must not wait for that, and with rights over files
 * that the engine may lack: removes, counts, lists, copies and exchanges them. Orders in runtime/launcher/wire.h. */
#ifndef HUTCH_LAUNCHER_DISK_H
#define HUTCH_LAUNCHER_DISK_H

#include "sandbox/err.h"

#include <sys/types.h>

/* Clones it: its pid, or -1. It is process 1 of a pid namespace, so nothing that it has started outlives it. The caller
 * owns *ret_sock, with whose other ends it ends, and *ret_pidfd. It ends with its parent, or by SIGTERM, as soon as no
 * data directory is between two states: what it has not removed by then, the engine's own end or the next start
 * does. */
pid_t hutch_disk_start(int *ret_sock, int *ret_pidfd, struct hutch_err *err);

#endif

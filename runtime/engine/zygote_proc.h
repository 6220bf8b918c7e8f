/* zygote_proc.h - what a zygote that has no procfs is given of the engine's: a few files about itself. It decides
 * by them whether it may fork, and moves its memory by them (rootfs/helper/own_proc.h). No directory is among them, so
 * nothing else of that procfs can be reached. */
#ifndef HUTCH_ENGINE_ZYGOTE_PROC_H
#define HUTCH_ENGINE_ZYGOTE_PROC_H

#include "runtime/engine/link.h"
#include "sandbox/err.h"

#include <sys/types.h>

/* Sends them over @link to the process @pid, which is at its other end. */
int hutch_zygote_proc_send(struct link *link, pid_t pid, struct hutch_err *err);

#endif

/* zygote.h - an interpreter in a tree of its own that later forks workers into sandboxes.
 *
 * It has mount, network, IPC and UTS namespaces of its own and no capabilities, and stays in the launcher's user and
 * pid namespaces, behind the filter of its spec with no more allowed than forking into a sandbox takes: being the same
 * user as the owner of the sandboxes' user namespaces is what lets it join them, and being in a pid namespace above
 * theirs. Its image's code runs in it, never a request's. */
#ifndef HUTCH_ZYGOTE_H
#define HUTCH_ZYGOTE_H

#include "sandbox/err.h"
#include "sandbox/spec.h"

/* Clones it and executes spec->argv with @order_fd as descriptor 3 and empty streams (what it prints on stderr goes to
 * @stderr_fd). Returns when that has happened. The caller owns *ret_pidfd. Errors: as those of a sandbox. */
int hutch_zygote_start(const struct sandbox_spec *spec, int order_fd, int stderr_fd, pid_t *ret_pid, int *ret_pidfd,
                       struct hutch_err *err);

#endif

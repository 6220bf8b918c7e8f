/* volume.h - a file system in memory for one data directory: the kernel bounds what lies in it, and its owner can be
 * mapped for each sandbox that has it mounted, also by an ordinary user (Linux 6.3).
 *
 * A volume is held by a detached mount of it, its base. The kernel copies a mount only where it is attached (before
 * Linux 6.15), so a copy for a sandbox is made in a mount namespace in which the base is attached for that moment. */
#ifndef HUTCH_VOLUME_H
#define HUTCH_VOLUME_H

#include "sandbox/err.h"
#include "sandbox/userns.h"

#include <stdint.h>

struct volume_mounts {
    int sandbox_fd; /* owned; detached, for one sandbox: attached once */
    int base_fd;    /* owned; detached, for hutch_volume_open(); the memory is freed with the last descriptor */
};
#define VOLUME_MOUNTS_INIT { -1, -1 }

/* A new one: @bytes of contents, not 0; @files names, 0: as many as it has pages. It belongs to the caller. @plan: host
 * ids of the sandbox. Errors: EOPNOTSUPP where its owner cannot be mapped to them, before Linux 6.3. The calling
 * process has a mount namespace of its own, CAP_SYS_ADMIN over it, and one thread. */
int hutch_volume_make(uint64_t bytes, uint64_t files, const struct id_plan *plan, struct volume_mounts *ret,
                      struct hutch_err *err);
/* The same volume for another sandbox. @base_fd may be of no use after that, but to files that are open: where it had
 * to be attached. A caller who is killed in that moment takes the volume with him; from Linux 6.15 on that is only so
 * in another mount namespace than the base's own. */
int hutch_volume_open(int base_fd, const struct id_plan *plan, struct volume_mounts *ret, struct hutch_err *err);

#endif

/* cold_data.h - the fresh data directory of a cold run where that is in memory, and the host ids of its sandbox then.
 *
 * What an engine has the opener for, the calling process does itself: it takes namespaces of its own to make the mount
 * in. */
#ifndef HUTCH_RUN_COLD_DATA_H
#define HUTCH_RUN_COLD_DATA_H

#include "runtime/run/state.h"
#include "sandbox/err.h"
#include "sandbox/spec.h"
#include "sandbox/userns.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct cold_data {
    int dirfd;           /* owned; for reading */
    int mount_fd;        /* owned; for the sandbox, detached */
    int id_fd;           /* owned; the ids are borrowed while it is open: sandbox/ids.h; -1: they are shared … */
    uid_t uid;
    gid_t gid;
    char why_shared[96]; /* … for this reason, "" where sandbox.h is to say it */
    bool is_apart;       /* the process is in namespaces of its own … */
    struct id_plan ids;  /* … and these are the sandbox's */
};
#define COLD_DATA_INIT { .dirfd = -1, .mount_fd = -1, .id_fd = -1 }

/* 1 when it was made; 0: it goes on the disk, and why_shared may say why the ids are shared then. From here on the
 * process, which has one thread, may be in a user and a mount namespace of its own: its files are as before. Fails
 * where the policy wants it in memory. */
int hutch_cold_data_make(const struct sandbox_spec *spec, unsigned controllers, struct cold_data *ret,
                         struct hutch_err *err);
/* Another file system in memory for the same sandbox, after hutch_cold_data_make() or without it: @bytes of contents,
 * @files names. Both descriptors are the caller's, as dirfd and mount_fd are. What is said there of the process holds
 * here. */
int hutch_cold_data_make_another(struct cold_data *data, uint64_t bytes, uint64_t files, int *ret_dirfd,
                                 int *ret_mount_fd, struct hutch_err *err);
/* Copies it to the disk, where the user finds it: *ret_path is the caller's to free. */
int hutch_cold_data_keep(const struct cold_data *data, struct run_state *state, char **ret_path, struct hutch_err *err);
void hutch_cold_data_done(struct cold_data *data);

#endif

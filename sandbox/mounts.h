/* mounts.h - the mount tree of a sandbox: what exists for the code inside is what is mounted here.
 *
 * Built with the mount API of file descriptors (fsopen, open_tree, move_mount, mount_setattr: Linux 5.2-5.12), so
 * that nothing is looked up by a path that hostile code could have changed: targets are resolved inside the new
 * root with openat2(RESOLVE_IN_ROOT), sources are held as detached mounts. */
#ifndef HUTCH_MOUNTS_H
#define HUTCH_MOUNTS_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct sandbox_spec;
struct id_plan;

#define MOUNTS_DEFAULT_TMPFS_BYTES (64ull << 20) /* where the spec says none */
#define MOUNTS_MAX_PTYS            "64"         /* in /dev/pts */

/* Detached mounts of the host paths that the spec names. */
struct mount_sources {
    int  root_fd;  /* owned; -1 for ROOT_HOST */
    int *bind_fds; /* owned, one per mount of the spec: what is bound, or the tmpfs that was made; else -1 */
    size_t n;
    bool are_open;
    bool lacks_map; /* the file system of at least one cannot map its owner */
    bool shares_inodes;  /* hutch_mounts_build() has laid the root without overlays: its files are those of others */
    int  overlay_errnum; /* why, when they were wanted; else 0 */
    int  proc_errnum;    /* why the kernel gave no procfs, so that /proc is bare_proc.h's; else 0 */
    int  outer_proc_fd;  /* owned; the one around the sandbox then, else -1 */
};
#define MOUNT_SOURCES_INIT { .root_fd = -1, .bind_fds = NULL, .n = 0, .outer_proc_fd = -1 }

/* Parent side: the memory for it, so that a child needs none. */
int hutch_mounts_sources_init(const struct sandbox_spec *spec, struct mount_sources *ret, struct hutch_err *err);

/* Opens the sources. For an ordinary user hutch_mounts_build() does it, in the child's own mount namespace, where it
 * may. For root, whose child is another user, the parent does it before, and id-maps those marked MOUNT_IDMAP. */
int hutch_mounts_open_sources(const struct sandbox_spec *spec, const struct id_plan *plan,
                              struct mount_sources *sources, struct hutch_err *err);

/* One such source, as a detached mount that the caller owns: the opener's part of what hutch_mounts_open_sources()
 * does. *@ret_lacks_map becomes true where its file system cannot map the owner, as the permissions on disk decide
 * then; it is never set to false here. */
int hutch_mounts_open(const char *path, unsigned flags, const struct id_plan *plan, int *ret_fd, bool *ret_lacks_map,
                      struct hutch_err *err);

/* Has a detached mount show the files of its root's owner as those of the plan's host ids: what is written through it
 * belongs to that owner. *@ret_lacks_map as above. */
int hutch_mounts_map_owner(int fd, const char *path, const struct id_plan *plan, bool *ret_lacks_map,
                           struct hutch_err *err);

/* A new file system in memory, as a detached mount that the caller owns. The kernel lets it have @bytes of contents, 0:
 * 64 MiB, and @inodes files, directories and names, its own directory included, 0: as many as pages: tmpfs(5). */
int hutch_mounts_make_memory(uint64_t bytes, uint64_t inodes, mode_t mode, int *ret_fd, struct hutch_err *err);

/* Has the calling process, whose mount namespace is its own, see and make no changes of the host's mounts any more. */
int hutch_mounts_cut_off(struct hutch_err *err);

/* Gives the calling process, which has one thread, a mount namespace of its own that is cut off from the host's. An
 * ordinary user's process also becomes the owner of a user namespace: @plan and @why_no_range as of
 * hutch_userns_unshare(). */
int hutch_mounts_enter_namespaces(struct id_plan *plan, struct hutch_err *why_no_range, struct hutch_err *err);

void hutch_mounts_sources_done(struct mount_sources *sources);

/* Whether a file of the spec at @path would be in a tmpfs that the sandbox makes. */
bool hutch_mounts_has_place(const struct sandbox_spec *spec, const char *path);

/* Child side, in its own mount namespace with the host's tree still in sight: builds everything below a new root and
 * makes it the process's root; the host's tree is gone afterwards. */
int hutch_mounts_build(const struct sandbox_spec *spec, const struct id_plan *plan, struct mount_sources *sources,
                       struct hutch_err *err);

/* In the finished sandbox, with the capabilities that built it: puts a detached mount on top of what is at the spec's
 * MOUNT_DATA. */
int hutch_mounts_attach_data(const struct sandbox_spec *spec, int mount_fd, struct hutch_err *err);

#endif

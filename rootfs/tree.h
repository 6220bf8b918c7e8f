/* tree.h - a root tree while layers are unpacked into it: every name comes from an archive that may want out.
 *
 * Three rules keep it inside:
 *  - A name is a relative path without ".." and without control characters, or it is an error.
 *  - Directories on the way that are symbolic links are followed as chroot(2) would (an absolute link starts at the
 *    tree's root): layers of real images write to "bin/x" and "/var/run/x" where a lower layer has links. A link that
 *    climbs above the root is an error. What comes out is a path without links, and the kernel is asked to
 *    open that with RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS.
 *  - The last component is never followed: what is there is removed, and made anew with O_EXCL.
 *
 * Everything belongs to the caller afterwards, since a sandbox has one user (uid and gid 1000). Modes are what that
 * user would be allowed: of a file that it may not read, no byte is kept. So a tree is the same for every user who
 * unpacks it. Needs Linux 5.6 (openat2). */
#ifndef HUTCH_TREE_H
#define HUTCH_TREE_H

#include "sandbox/err.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define TREE_USER 1000      /* uid and gid of the sandbox's user in the archive */
#define TREE_MAX_DEPTH 128  /* directories above an entry */
#define TREE_MAX_LAYER_BYTES (256ull << 20) /* of the paths of one layer that is not the first */

/* What an archive says about an entry. */
struct tree_meta {
    mode_t mode; /* permission bits; the others are not looked at */
    uid_t uid;
    gid_t gid;
    int64_t mtime; /* seconds */
};

struct tree_time; /* a directory's time, set when nothing more comes into it */

struct tree {
    int dirfd;               /* owned; the root of the tree */
    void *layer_paths;       /* owned; tsearch(3) tree of what the current layer has made, where whiteouts matter */
    unsigned n_layers;       /* started */
    bool is_first_layer;
    struct tree_time *times; /* owned */
    size_t n_times, cap_times;
    int parent_fd;           /* owned; the directory that the last entry was in, or -1 */
    uint64_t n_devices;      /* nodes that were passed over */
    uint64_t *entries_left;  /* set by the caller, or NULL: directories that only a path names count there, too */
    uint64_t layer_bytes;    /* of layer_paths */
    char parent[PATH_MAX];   /* its name in the archive, */
    char parent_real[PATH_MAX]; /* and where that led */
};

/* Starts with the empty directory @dirfd, which becomes the tree's when it succeeds. */
int hutch_tree_open(int dirfd, struct tree *ret, struct hutch_err *err);
void hutch_tree_done(struct tree *tree);

/* What follows hides, whites out and replaces what came before. */
void hutch_tree_start_layer(struct tree *tree);

/* @path and @target are as in the archive, @path is named in messages by the caller.
 * Errors: 0 (the name, or where it leads, is not acceptable); ENOSPC, EDQUOT; ENAMETOOLONG; … */
int hutch_tree_add_dir(struct tree *tree, const char *path, const struct tree_meta *meta, struct hutch_err *err);
/* *@ret_fd is open for writing and the caller's, or -1 when the content is to be dropped. */
int hutch_tree_add_file(struct tree *tree, const char *path, const struct tree_meta *meta, int *ret_fd,
                        struct hutch_err *err);
/* After the content: mode and time. Closes nothing. */
int hutch_tree_end_file(int fd, const struct tree_meta *meta, struct hutch_err *err);
int hutch_tree_add_symlink(struct tree *tree, const char *path, const char *target, const struct tree_meta *meta,
                           struct hutch_err *err);
int hutch_tree_add_hardlink(struct tree *tree, const char *path, const char *target, struct hutch_err *err);

/* A device node is passed over and counted below /dev, which each sandbox has its own of, and refused elsewhere. So is
 * a hard link to one. */
int hutch_tree_pass_device(struct tree *tree, const char *path, struct hutch_err *err);

/* True when the last component says that something of lower layers is hidden: ".wh.NAME", or ".wh..wh..opq" for all of
 * the directory. hutch_tree_whiteout() then removes it (and ignores the other ".wh..wh." names, as docker does). */
bool hutch_tree_is_whiteout(const char *path);
int hutch_tree_whiteout(struct tree *tree, const char *path, struct hutch_err *err);

/* After the last layer: makes the mount points of a sandbox (real directories, whatever the image had there) and the
 * user's entries in /etc/passwd and /etc/group, empties directories that the user may not enter, and sets the final
 * modes and times of directories. */
int hutch_tree_finish(struct tree *tree, struct hutch_err *err);
/* Without mount points and user: the tree is to lie over another that has them. */
int hutch_tree_finish_part(struct tree *tree, struct hutch_err *err);

#endif

/* copier.h - copies files with all that snapshot.h says is kept, out of trees that hostile code may be changing. */
#ifndef HUTCH_DATA_COPIER_H
#define HUTCH_DATA_COPIER_H

#include "sandbox/err.h"
#include "runtime/data/snapshot.h"

#include <stdbool.h>
#include <sys/stat.h>

/* One copying, and what it came to so far. */
struct copier {
    struct snapshot_bounds bounds;
    struct snapshot_report report;
    int target;        /* not owned; top of what is written, where the directory of links goes */
    int links_fd;      /* owned; -1: not needed yet. Files with several names, by their inode: link(2) needs no table */
    char links_name[32];
    char *buf;         /* owned */
    /* Set by the caller after the init, else NULL: whether @path, relative to the top, is not to be copied. What is
     * below such a directory is not looked at. */
    bool (*is_left_out)(const void *user, const char *path, bool is_dir);
    const void *user;
    bool (*is_interrupted)(void); /* likewise: asked before each entry */
    bool owns_all;     /* the copies belong to the caller, whoever has the originals */
};
#define COPIER_INIT { .target = -1, .links_fd = -1 }

/* @bounds NULL: none. Errors: ENOMEM. */
int hutch_copier_init(struct copier *c, int target, const struct snapshot_bounds *bounds, struct hutch_err *err);
void hutch_copier_done(struct copier *c);

/* Makes the new directory @name of @store_dirfd a copy of @from_dirfd, and removes it when that fails. */
int hutch_copier_copy_tree(int from_dirfd, int store_dirfd, const char *name, const struct snapshot_bounds *bounds,
                           struct snapshot_report *ret, struct hutch_err *err);

/* Copies @name, whatever it is, as the new entry @to_name. What is gone meanwhile is no error. */
int hutch_copier_copy_entry(struct copier *c, int dirfd, const char *name, int to_dirfd, const char *to_name,
                            struct hutch_err *err);

/* Copies what is in @from, which is open for reading, into the target, and the attributes of @from as
 * hutch_copier_copy_top() does. */
int hutch_copier_copy_contents(struct copier *c, int from, struct hutch_err *err);

/* @to is to have the attributes of @from, and mode and times of @st: for the data directory itself, which may be
 * another user's; then it stays as it is. */
void hutch_copier_copy_top(struct copier *c, int from, const struct stat *st, int to);

/* Fails with what happened to @path, which is hostile text. -1. */
int hutch_copier_fail(const char *path, int errnum, const char *what, struct hutch_err *err);

#endif

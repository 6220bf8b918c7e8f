/* walk.h - go through a directory tree that hostile code wrote: iteratively, without following links or
 * crossing mounts, with a bounded number of descriptors however deep the tree is.
 *
 * The last WALK_MAX_OPEN levels are held open. A level above them is closed, and reached again through
 * ".." of its child; device, inode and mount tell that it is the same directory, so a tree that is moved about
 * meanwhile ends the walk (ESTALE) and never leads it outside. Memory grows with the depth only (the
 * path, and 40 bytes a level). */
#ifndef HUTCH_WALK_H
#define HUTCH_WALK_H

#include "sandbox/err.h"

#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define WALK_MAX_OPEN 32

#define WALK_UNLOCK_READ  (1u << 0) /* add u+rx to directories of the caller that lack it */
#define WALK_UNLOCK_WRITE (1u << 1) /* add u+rwx */
#define WALK_REREAD       (1u << 2) /* start a reopened level from its beginning: for callers that remove what they
                                     * see */

enum walk_event {
    WALK_END,   /* the whole tree was seen */
    WALK_ENTRY, /* .name in .dirfd */
    WALK_LEAVE, /* the directory .name in .dirfd, which was entered, has no more entries */
};

struct walk_level;

struct walk {
    unsigned flags;
    struct walk_level *levels; /* owned; [0] is the top of the tree */
    size_t n_levels, cap_levels;
    DIR *open[WALK_MAX_OPEN];  /* owned; level n is in slot n % WALK_MAX_OPEN */
    char *path;                /* owned; relative to the top, names joined by '/', then .name */
    size_t path_cap;

    /* What hutch_walk_next() found. Valid until the next call. */
    int dirfd;             /* the directory that holds .name; stays the walk's */
    const char *name;
    size_t path_len;       /* of .path, .name included, without the terminating NUL */
    size_t depth;          /* 0 for entries of the top directory */
    unsigned char d_type;  /* DT_*, a hint only */
};
#define WALK_INIT { .dirfd = -1 }

/* Starts at the directory @name below @dirfd ("." for @dirfd itself). @dirfd stays the caller's.
 * Errors: those of open(2). */
int hutch_walk_open(struct walk *w, int dirfd, const char *name, unsigned flags, struct hutch_err *err);

/* Errors: ESTALE when a level more than WALK_MAX_OPEN up was moved or replaced; EIO and the like. */
int hutch_walk_next(struct walk *w, enum walk_event *ret_event, struct hutch_err *err);

/* Goes into the directory found last (by WALK_ENTRY, or again by WALK_LEAVE). *@ret_skipped is 0 when the
 * next event comes from inside, else the reason why it does not: ENOENT (gone), ENOTDIR (not a directory
 * or a link), EACCES, EXDEV (something is mounted there). -1 only for what ends the walk: ENOMEM, EMFILE, … */
int hutch_walk_enter(struct walk *w, int *ret_skipped, struct hutch_err *err);

void hutch_walk_done(struct walk *w);

#endif

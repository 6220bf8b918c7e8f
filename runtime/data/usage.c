/* How much lies in a data directory, counted while a run lives. */
#include "runtime/data/changes.h"

#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "sandbox/walk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#define MAX_LINKS (1u << 20) /* files that are remembered */
#define MAX_TRIES 3
#define MAX_PASSES 4      /* over a tree that changes under the walk */
#define MAX_PASSES_MS 100 /* after that no further pass begins */

/* Which files were counted: one may have several names, or be moved ahead of the walk. Open addressing, inode 0 is an
 * empty place. */
struct link_set {
    struct { uint64_t ino; dev_t dev; } *places; /* owned */
    size_t n, cap; /* cap is a power of two */
};

static size_t find_place(const struct link_set *set, uint64_t ino, dev_t dev)
{
    size_t i = (size_t)((ino ^ (uint64_t)dev << 32) * 0x9e3779b97f4a7c15u >> 20) & (set->cap - 1);

    while (set->places[i].ino != 0 && (set->places[i].ino != ino || set->places[i].dev != dev))
        i = (i + 1) & (set->cap - 1);
    return i;
}

/* 1 when this file is new, or cannot be remembered: then it counts again, which errs on the safe side. */
static int is_first_link(struct link_set *set, const struct stat *st)
{
    size_t i;

    if (set->n * 2 >= set->cap && set->n < MAX_LINKS) {
        struct link_set bigger = { .n = set->n, .cap = set->cap ? 2 * set->cap : 256 };

        bigger.places = calloc(bigger.cap, sizeof(*bigger.places));
        if (bigger.places != NULL) {
            for (i = 0; i < set->cap; i++)
                if (set->places[i].ino != 0)
                    bigger.places[find_place(&bigger, set->places[i].ino, set->places[i].dev)] = set->places[i];
            free(set->places);
            *set = bigger;
        }
    }
    if (set->n * 2 >= set->cap)
        return 1;
    i = find_place(set, st->st_ino, st->st_dev);
    if (set->places[i].ino != 0)
        return 0;
    set->places[i].ino = st->st_ino;
    set->places[i].dev = st->st_dev;
    set->n++;
    return 1;
}

static void link_set_done(struct link_set *set)
{
    free(set->places);
}

/* Whether names in a directory were made, moved or removed since @begun. What is moved past a walk is moved out of a
 * directory that the walk has yet to finish. */
static bool is_newer(const struct stat *st, const struct timespec *begun)
{
    return st->st_ctim.tv_sec > begun->tv_sec ||
           (st->st_ctim.tv_sec == begun->tv_sec && st->st_ctim.tv_nsec >= begun->tv_nsec);
}

/* One attempt at counting. *@ret_is_disturbed: the tree changed meanwhile, so that something may have been missed. */
static int count_usage(int dirfd, const struct collect_bounds *bounds, uint64_t *ret_bytes, uint64_t *ret_entries,
                       bool *ret_is_disturbed, struct hutch_err *err)
{
    __attribute__((cleanup(link_set_done))) struct link_set links = { .n = 0 };
    __attribute__((cleanup(hutch_walk_done))) struct walk w = WALK_INIT;
    uint64_t bytes = 0, entries = 0;
    struct timespec begun;
    bool is_disturbed = false;
    struct stat top;

    clock_gettime(CLOCK_REALTIME_COARSE, &begun); /* the clock of the file systems' times */
    if (hutch_walk_open(&w, dirfd, ".", bounds->keeps_closed ? 0 : WALK_UNLOCK_READ, err) < 0)
        return -1;
    while (entries < bounds->max_walked && (bounds->usage_bytes == 0 || bytes <= bounds->usage_bytes) &&
           (bounds->usage_entries == 0 || entries <= bounds->usage_entries)) {
        enum walk_event event;
        struct stat st;
        int skipped = 0;

        if (hutch_walk_next(&w, &event, err) < 0)
            return -1;
        if (event == WALK_END)
            break;
        if (event == WALK_LEAVE) { /* the directory is an entry of its parent again */
            is_disturbed |= fstatat(w.dirfd, w.name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0 ||
                            is_newer(&st, &begun);
            continue;
        }
        entries++;
        if (fstatat(w.dirfd, w.name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0) {
            is_disturbed = true;
            continue;
        }
        if (S_ISDIR(st.st_mode) || is_first_link(&links, &st))
            bytes += (uint64_t)st.st_blocks * 512;
        if (S_ISDIR(st.st_mode) && hutch_walk_enter(&w, &skipped, err) < 0)
            return -1;
        is_disturbed |= S_ISDIR(st.st_mode) && (skipped == ENOENT || skipped == ENOTDIR);
    }
    is_disturbed |= fstatat(dirfd, "", &top, AT_EMPTY_PATH | AT_NO_AUTOMOUNT) < 0 || is_newer(&top, &begun);
    *ret_bytes = bytes;
    *ret_entries = entries;
    *ret_is_disturbed = is_disturbed;
    return 0;
}

static bool is_past(const struct collect_bounds *bounds, uint64_t bytes, uint64_t entries)
{
    return (bounds->usage_bytes && bytes > bounds->usage_bytes) ||
           (bounds->usage_entries && entries > bounds->usage_entries);
}

/* Passes over a tree that is changed meanwhile, and the most that one of them has found: a file counts once in each. */
static int count_most(int dirfd, const struct collect_bounds *bounds, uint64_t *ret_bytes, uint64_t *ret_entries,
                      struct hutch_err *err)
{
    double begun = hutch_clock_ms();
    uint64_t most_bytes = 0, most_entries = 0;
    bool is_disturbed = true;

    for (int i = 0; is_disturbed && i < MAX_PASSES && (i == 0 || hutch_clock_ms() - begun < MAX_PASSES_MS); i++) {
        uint64_t bytes, entries;

        if (count_usage(dirfd, bounds, &bytes, &entries, &is_disturbed, err) < 0)
            return -1;
        if (bytes > most_bytes)
            most_bytes = bytes;
        if (entries > most_entries)
            most_entries = entries;
        if (bounds->is_at_rest || is_past(bounds, most_bytes, most_entries))
            break;
    }
    *ret_bytes = most_bytes;
    *ret_entries = most_entries;
    return 0;
}

int hutch_collect_usage(int dirfd, const struct collect_bounds *bounds, uint64_t *ret_bytes, uint64_t *ret_entries,
                        struct hutch_err *err)
{
    struct hutch_err count_err = { 0 };

    for (int i = 0; i < MAX_TRIES; i++) {
        if (count_most(dirfd, bounds, ret_bytes, ret_entries, &count_err) == 0)
            return 0;
        /* these come from a tree that moves: a directory that is gone or locked between two calls */
        if (count_err.errnum != ESTALE && count_err.errnum != EACCES && count_err.errnum != ENOENT &&
            count_err.errnum != ENOTDIR) {
            *err = count_err;
            return hutch_err_wrap(err, "count what lies in the data directory");
        }
    }
    *ret_bytes = 0;
    *ret_entries = bounds->usage_entries ? bounds->usage_entries + 1 : UINT64_MAX;
    return 0;
}

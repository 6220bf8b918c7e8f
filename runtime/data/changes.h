/* changes.h - what a run did to its /mnt/data: files added, modified, deleted; and how much lies there.
 *
 * The tree belongs to hostile code. Nothing but directories is opened, and regular files of a run that is over, to
 * guess their type; never through a link, never a FIFO or device. Memory is bounded by
 * collect_bounds, time by collect_bounds.max_walked. See docs/results.md. */
#ifndef HUTCH_DATA_CHANGES_H
#define HUTCH_DATA_CHANGES_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define COLLECT_MAX_PATH 4095 /* bytes; a longer path below /mnt/data is counted but not listed */

struct collect_bounds {
    uint64_t max_walked;    /* entries looked at in one scan */
    size_t   max_listed;    /* entries remembered by a snapshot, and reported in each of the three lists */
    size_t   max_text;      /* bytes of their paths, in a snapshot and in the three lists together: names can be long */
    uint64_t usage_bytes;   /* hutch_collect_usage() stops once past this; 0: no bound */
    uint64_t usage_entries; /* likewise */
    bool is_at_rest;        /* nothing changes it meanwhile: hutch_collect_usage() takes one pass */
    bool keeps_closed;      /* it opens no directory up to count what is in it */
};
#define COLLECT_BOUNDS_DEFAULT { .max_walked = 4000000, .max_listed = 200000, .max_text = 8 << 20 }

enum file_type {
    FILE_REGULAR,
    FILE_DIRECTORY, /* listed only when it could not be read */
    FILE_SYMLINK,
    FILE_FIFO,
    FILE_SOCKET,
    FILE_CHAR_DEVICE,
    FILE_BLOCK_DEVICE,
    FILE_TYPE_COUNT
};
const char *hutch_file_type_name(enum file_type type); /* "file", "directory", "symlink", … */

/* One path, with what tells whether it is still the same file. */
struct file_seen {
    const char *path; /* in the list's own memory; any bytes but NUL, no '/' at either end */
    uint64_t size;
    uint64_t ino;
    int64_t  mtime_ns, ctime_ns;
    mode_t   mode;
};

struct collect_names; /* holds the text of paths */

struct file_list {
    struct file_seen *files; /* owned; sorted by the bytes of path */
    size_t n_files;
    bool truncated;          /* there is more than the bounds let us remember */
    int64_t taken_ns;        /* CLOCK_REALTIME when the scan began */
    int64_t newest_ns;       /* the latest change of a file in it; INT64_MIN without one */
    /* of the directory itself, when nothing at all was below it; else 0 */
    struct { uint64_t ino; int64_t ctime_ns; } top;
    struct collect_names *names;
};
#define FILE_LIST_INIT { .newest_ns = INT64_MIN }

struct file_change {
    const char *path; /* in the owner's memory; any bytes but NUL, often but not always UTF-8 */
    uint64_t size;    /* bytes; of a symlink its text */
    int64_t mtime_ns; /* CLOCK_REALTIME; any value: programs set it */
    const char *mime; /* static, or in the owner's memory; NULL unless a regular file that is there */
    enum file_type type;
};

struct file_change_list {
    struct file_change *items; /* owned; sorted by the bytes of path */
    size_t n, cap;
};

struct file_changes {
    struct file_change_list added, modified, deleted;
    bool truncated;           /* the lists are not complete */
    uint64_t stripped;        /* files of the run that lost a setuid or setgid bit */
    uint64_t strip_failed;    /* … that kept it, because the file is another user's */
    struct collect_names *names;
};
#define FILE_CHANGES_INIT { .truncated = false }

/* Remembers what lies below @dirfd (O_PATH is fine) before a run. Changes nothing there. Takes up to one timer tick
 * (some ms) longer when a file was changed just now, so that the next change can be told from it. @ret is untouched on
 * failure, else released by hutch_file_list_done(). Errors: those of reading the top directory; ENOMEM. */
int hutch_collect_snapshot(int dirfd, const struct collect_bounds *bounds, struct file_list *ret,
                           struct hutch_err *err);

/* Compares with @before after the run, when no process of it is left. Takes setuid and setgid bits off regular
 * files that the run added or modified, and adds u+rx to directories of the caller that lack it. What cannot be
 * read is not an error but sets .truncated. @ret is untouched on failure, else released by
 * hutch_file_changes_done(). */
int hutch_collect_changes(int dirfd, const struct file_list *before, const struct collect_bounds *bounds,
                          struct file_changes *ret, struct hutch_err *err);

/* What changed since *@seen was taken, which becomes what is there now: one walk after each cell of a session. Its
 * processes live on, so no directory is opened up. An empty directory that stays so costs no walk. *@seen is
 * FILE_LIST_INIT or taken by this or hutch_collect_snapshot(), and untouched on failure. Does not wait as that one
 * does: see the next function. */
int hutch_collect_step(int dirfd, struct file_list *seen, const struct collect_bounds *bounds, struct file_changes *ret,
                       struct hutch_err *err);

/* Whether @seen, taken by one of them, was of an empty directory that nothing has been done to since. */
bool hutch_collect_stays_empty(int dirfd, const struct file_list *seen);

/* How many ms are left until the next change can be told from the last one that @seen has; 0 nearly always. Begin a
 * cell then. */
double hutch_collect_unsettled_ms(const struct file_list *seen);

/* What lies there now, as if all of it had been added; changes nothing. @ret is untouched on failure, else released by
 * hutch_file_changes_done(). */
int hutch_collect_list(int dirfd, const struct collect_bounds *bounds, struct file_changes *ret, struct hutch_err *err);

/* Counts the disk space (allocated blocks, a file with several names once) and the directory entries below
 * @dirfd while the run lives. Stops early once past usage_bytes or usage_entries: then the numbers say no more than
 * that. What changes under the walk is walked over again, up to four times, and the largest count is taken: a part
 * that is moved past one walk is not moved past all. A tree that cannot be counted, because it is moved about all the
 * time, is reported as past the entries. */
int hutch_collect_usage(int dirfd, const struct collect_bounds *bounds, uint64_t *ret_bytes, uint64_t *ret_entries,
                        struct hutch_err *err);

void hutch_file_list_done(struct file_list *list);
void hutch_file_changes_done(struct file_changes *changes);

#endif

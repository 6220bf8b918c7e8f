/* files.h - what a caller may do with the files below a session's /mnt/data: list, read, write, delete.
 *
 * The tree and every name in it belong to hostile code that may be running, and a name may come from a stranger. All of
 * it goes by a descriptor of the directory: a name is relative, is at most PATH_MAX - 1 bytes of anything but NUL, and
 * leads through directories only, never through a link, never upwards, never to another mount, never to something that
 * is not a regular file. Nothing here waits for a process inside. Messages quote names with what is not printable ASCII
 * as \xNN. */
#ifndef HUTCH_DATA_FILES_H
#define HUTCH_DATA_FILES_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct cJSON;
struct collect_bounds;
struct file_changes;

/* Whether @name is one as above. Errors: EINVAL, ENAMETOOLONG. */
int hutch_files_check_name(const char *name, struct hutch_err *err);

/* [{"path", "size", "mime", "type", "mtime"}] as docs/results.md describes a list of files: sorted by the bytes of the
 * path, directories only where they cannot be read, "path_base64" beside a path that is not UTF-8; mime is null for
 * what is not a regular file, mtime is in seconds since 1970. NUL-terminated, the caller's to free. Errors: E2BIG (more
 * than @bounds); ENOMEM. */
int hutch_files_list(int dirfd, const struct collect_bounds *bounds, char **ret_json, struct hutch_err *err);

/* "added", "modified", "deleted" and "truncated" of docs/results.md, added to @object. False on ENOMEM. */
bool hutch_files_add_changes(struct cJSON *object, const struct file_changes *changes);

/* O_RDONLY: the regular file @name; its owner may change or shorten it at any moment, so read it and do not map it.
 * O_WRONLY: a new empty file under that name; directories on the way are made. A regular file that has the name makes
 * room: whoever has it open keeps the old one. The new file belongs to the owner of the data directory, who is the
 * sandbox's user as seen from inside; 0644. The descriptor is the caller's. Errors: EINVAL (a name as above; other
 * flags), ENOENT, EISDIR, ELOOP (a link), EXDEV (another mount), EAGAIN (keeps changing; a process holds a lease on
 * it), and a sentence with errnum 0 for a FIFO, socket or device. */
int hutch_files_open(int dirfd, const char *name, int flags, int *ret_fd, struct hutch_err *err);

/* The file or link, or the directory with all that is in it; takes as long as that has entries. Errors: ENOENT, EBUSY,
 * those of hutch_rmtree(). */
int hutch_files_delete(int dirfd, const char *name, struct hutch_err *err);

/* openat(2) that stays below @dirfd and on its mount, and follows no link; O_CLOEXEC. -1 with errno set: ELOOP, EXDEV,
 * … */
int hutch_files_open_beneath(int dirfd, const char *name, uint64_t flags, mode_t mode);

/* @name for a message, at most FILES_QUOTED - 1 bytes and a NUL: printable ASCII as it is, the rest as \xNN, cut in the
 * middle by "...". */
#define FILES_QUOTED 128
const char *hutch_files_quote(const char *name, char buf[FILES_QUOTED]);

#endif

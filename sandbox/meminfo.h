/* meminfo.h - /proc/meminfo of a sandbox that has a memory limit: a file of its own, in the kernel's format, in which
 * its init writes what is left of the limit. The kernel's own shows the host's memory, limit or not. */
#ifndef HUTCH_MEMINFO_H
#define HUTCH_MEMINFO_H

#include "sandbox/err.h"

#include <stddef.h>
#include <stdint.h>

struct sandbox_spec;

/* What the lines are made of, in KiB. */
struct meminfo_values {
    uint64_t total;
    uint64_t free;
    uint64_t available; /* what could be had: free, and what the kernel would give back */
    uint64_t used;      /* of programs, and of the kernel for them */
    uint64_t cached;    /* pages of files, with shmem */
    uint64_t shmem;
    uint64_t slab;      /* of the kernel, which it would give back */
    uint64_t widest;    /* numbers have room for this one, where it is more than the total */
};

#define MEMINFO_MAX 2048 /* bytes of the file at most: less than a page */

struct meminfo {
    uint64_t limit; /* bytes; 0: the host's file stays */
    int current_fd; /* owned; memory.current of the sandbox's group, or -1: init counts */
    int stat_fd;    /* owned; memory.stat of it, or -1 */
    int file_fd;    /* owned; the file, for writing; -1 where it is not shown */
    uint64_t total; /* bytes: the limit, or the host's memory where that is less */
    uint64_t widest; /* KiB: what that was in the beginning */
    struct meminfo_values shown;
};
#define MEMINFO_INIT { .limit = 0, .current_fd = -1, .stat_fd = -1, .file_fd = -1 }

/* Writes the lines to @buf, which has room for MEMINFO_MAX bytes, and returns how many bytes they are. No value is
 * larger than @values->total, so this number depends on the total alone, or on the widest where that is more. */
size_t hutch_meminfo_format(const struct meminfo_values *values, char *buf);

/* What is shown of @total bytes when processes have @counted bytes, and no group counts. */
void hutch_meminfo_from_count(uint64_t total, uint64_t counted, struct meminfo_values *ret);
/* The same from memory.current and the text of memory.stat. */
void hutch_meminfo_from_group(uint64_t total, uint64_t current, const char *stat, struct meminfo_values *ret);

/* In the finished tree of the sandbox of @spec, with the capabilities that built it: puts a file that says that all of
 * the limit is left over /proc/meminfo, read-only, and opens it for writing. Nothing is done, and 0 returned, without a
 * limit or where something else than the kernel's file is there already. No allocation. */
int hutch_meminfo_show(const struct sandbox_spec *spec, struct meminfo *m, struct hutch_err *err);

/* The limit is @bytes from here on, where that is less: nothing of it is used yet. */
void hutch_meminfo_lower(struct meminfo *m, uint64_t bytes);

/* Brings the file up to date. @counted: bytes of the last sample; not used where a group counts. */
void hutch_meminfo_update(struct meminfo *m, uint64_t counted);

void hutch_meminfo_done(struct meminfo *m); /* closes only; fine on MEMINFO_INIT, or twice */

#endif

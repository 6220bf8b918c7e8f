/* memory.h - what a process finds out about its own memory: its mappings, and which pages hold something of its own. */
#ifndef HUTCH_HELPER_MEMORY_H
#define HUTCH_HELPER_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEMORY_BATCH (1ul << 16) /* pages looked at together */

struct memory {
    uintptr_t page; /* size */
    char *maps;     /* text of /proc/self/maps or smaps: whole lines, NUL-terminated */
    uint64_t *entries;
    int maps_fd, pagemap_fd;
};

/* @file: of the process's own in procfs, as "maps". False: it cannot be had. hutch_memory_close() in either case. */
bool hutch_memory_open(struct memory *memory, const char *file);
void hutch_memory_close(struct memory *memory);

/* Of a line of such a text: the mapping's addresses. Returns what follows, as in "rw-p 00000000 ...". */
const char *hutch_memory_read_line(const char *line, uintptr_t *ret_start, uintptr_t *ret_end);

/* Reads for the pages from @start, at most MEMORY_BATCH, what the kernel says of them. False when it does not. */
bool hutch_memory_read_pages(struct memory *memory, uintptr_t start, size_t pages);
/* Of the page @i of those: it belongs to this process alone, and not to a file. */
bool hutch_memory_is_anonymous(const struct memory *memory, size_t i);

/* False where that is not known, either. */
bool hutch_memory_has_one_thread(void);

#endif

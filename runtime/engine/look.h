/* look.h - a look through a data directory that may hold any number of files: the disk worker takes it, as the loop
 * does not wait. */
#ifndef HUTCH_ENGINE_LOOK_H
#define HUTCH_ENGINE_LOOK_H

#include "runtime/engine/helper.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

/* Up to so many entries are gone through in the loop: one or two milliseconds. */
#define LOOK_MAX_ENTRIES 500

LIST_HEAD(look_list, look);

/* All that are under way in one engine. */
struct looks {
    struct helper *helper;
    struct look_list list;
};

struct look {
    LIST_ENTRY(look) link;
    uint32_t id; /* of the order; 0: it is not under way */
    /* The answer, with the memory files of DISK_LIST, DISK_STEP or DISK_NOTE, which stay the caller's. NULL: there is
     * none, as the disk worker is gone. */
    void (*on_done)(void *owner, const struct disk_reply *reply, const int *fds, size_t n_fds);
    void *owner;
};

void hutch_looks_init(struct looks *looks, struct helper *helper);
/* As helper_events.on_files; it may be an answer that concerns none of them. */
void hutch_looks_on_files(struct looks *looks, const struct disk_reply *reply, const int *fds, size_t n_fds);

/* Whether there is more below @data_dirfd than is gone through in the loop. */
bool hutch_look_is_needed(int data_dirfd);
/* @what: DISK_COUNT, DISK_LIST, DISK_STEP or DISK_NOTE. @list_fd: of what lay there before, -1 for nothing. False when
 * there is no disk worker; else on_done follows, unless hutch_look_cancel() comes before. */
bool hutch_look_begin(struct look *look, struct looks *looks, enum disk_order what, const struct collect_bounds *bounds,
                      int data_dirfd, int list_fd);
/* Has what lies there copied to the new directory @name of the data root; likewise. */
bool hutch_look_begin_copy(struct look *look, struct looks *looks, const char *name, int data_dirfd);
void hutch_look_cancel(struct look *look); /* it need not be under way */

#endif

/* ids.h - host ids that sandboxes borrow: each is one sandbox's at a time, of all that a user runs on this host.
 *
 * The kernel keeps counters for each user of the host: descriptors on their way through sockets, watches of epoll,
 * pages of pipes. With an id of its own a sandbox uses up its own. Borrowing is a lock on the byte of a file that has
 * the number of the uid, and ends with the borrower, however that ends: fcntl(2), "Open file description locks". What
 * a borrower that is killed leaves behind may live some milliseconds longer. Root's file is LENDER_PATH, an ordinary
 * user's lies in /run/user/UID/hutch or, where there is no such directory, in /tmp/.hutch-UID. */
#ifndef HUTCH_IDS_H
#define HUTCH_IDS_H

#include "sandbox/err.h"
#include "sandbox/spec.h"
#include "sandbox/userns.h"

#include <stdint.h>

#define LENDER_DIR  "/run/hutch"
#define LENDER_FILE "ids"
#define LENDER_PATH LENDER_DIR "/" LENDER_FILE

/* Why a sandbox has no id of its own where it is to write to such a file system. */
#define IDS_UNMAPPED "a file system cannot map the owner of a directory"
#define IDS_NO_ENTRY "the root tree is closed to other users"
#define IDS_ON_DISK  "its files are on the host's disk, where only root can map owners"

struct id_lender {
    int fd;                           /* owned; -1: not open */
    struct id_range range;
    unsigned last;                    /* the offset that was lent last: the next is tried first */
    uint64_t lent[ID_RANGE_MAX / 64]; /* by this lender: its own locks do not keep it out */
};

/* Opens the file of locks for @range. Errors: E2BIG for a range that is too long, those of mkdir(2) and open(2), and 0
 * where others can reach the file; @ret is closed then. */
int hutch_ids_open(struct id_lender *ret, const struct id_range *range, struct hutch_err *err);
/* Gives back all that it has lent, also where a forked copy of this process has the file open. */
void hutch_ids_close(struct id_lender *lender);

/* An offset into the range, never 0, which is that of the engines' own processes and of sandboxes that share. 0: EAGAIN
 * when none was found free, where a later call tries the next ones; and other errors. */
unsigned hutch_ids_lend(struct id_lender *lender, struct hutch_err *err);
/* The last process that has @uid is gone. One that this lender has not lent, as it is of another range, is no error. */
void hutch_ids_return(struct id_lender *lender, uid_t uid);

/* For one sandbox without a lender: puts ids of the plan's range in place of its host ids. They are the borrower's
 * while *@ret_fd is open, which the caller owns. */
int hutch_ids_borrow(struct id_plan *plan, int *ret_fd, struct hutch_err *err);

/* Whether a user who is neither the owner nor in the group may enter the root tree of @spec. */
bool hutch_ids_may_enter(const struct sandbox_spec *spec);

/* Why a caller whose plan has no range cannot borrow. */
void hutch_ids_explain(bool is_mapped_away, struct hutch_err *ret);

#endif

#include "sandbox/ids.h"

#include "sandbox/fd.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_TRIES 256 /* offsets that others have, before none counts as free */

/* Others could hold locks on a file that they can open, or swap one that lies in a directory of theirs. */
static int require_own(int fd, const char *path, struct hutch_err *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return hutch_err_set(err, errno, "look at '%s'", path);
    if (st.st_uid != geteuid() || (st.st_mode & 077))
        return hutch_err_set(err, 0, "'%s' belongs to uid %u with mode %03o; it has to be the caller's alone", path,
                             st.st_uid, st.st_mode & 0777);
    return 0;
}

/* Where all programs of a user find it, whatever their environment says: a directory that systemd or another login
 * manager has made for that user, or one that the first of them makes. */
static void name_place(char *dir, size_t size)
{
    if (geteuid() == 0) {
        snprintf(dir, size, LENDER_DIR);
        return;
    }
    snprintf(dir, size, "/run/user/%u", geteuid());
    if (access(dir, W_OK | X_OK) == 0)
        snprintf(dir, size, "/run/user/%u/hutch", geteuid());
    else
        snprintf(dir, size, "/tmp/.hutch-%u", geteuid());
}

static int open_locks(int *ret_fd, struct hutch_err *err)
{
    auto_fd dir = -1, fd = -1;
    char place[64], path[80];

    name_place(place, sizeof(place));
    snprintf(path, sizeof(path), "%s/" LENDER_FILE, place);
    if (mkdir(place, 0700) < 0 && errno != EEXIST)
        return hutch_err_set(err, errno, "make the directory '%s'", place);
    dir = open(place, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return hutch_err_set(err, errno, "open the directory '%s'", place);
    if (require_own(dir, place, err) < 0)
        return -1;
    fd = openat(dir, LENDER_FILE, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return hutch_err_set(err, errno, "open '%s'", path);
    if (require_own(fd, path, err) < 0)
        return -1;
    *ret_fd = hutch_fd_take(&fd);
    return 0;
}

int hutch_ids_open(struct id_lender *ret, const struct id_range *range, struct hutch_err *err)
{
    memset(ret, 0, sizeof(*ret));
    ret->fd = -1;
    ret->range = *range;
    if (range->count > ID_RANGE_MAX)
        return hutch_err_set(err, E2BIG, "a range of %u ids", range->count);
    /* Lenders that begin at different places seldom meet. */
    if (getrandom(&ret->last, sizeof(ret->last), 0) != sizeof(ret->last))
        return hutch_err_set(err, errno, "draw a number");
    return open_locks(&ret->fd, err);
}

static int set_lock(int fd, short type, off_t start, off_t len)
{
    struct flock lock = { .l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len };

    return fcntl(fd, F_OFD_SETLK, &lock);
}

void hutch_ids_close(struct id_lender *lender)
{
    if (lender->fd >= 0)
        set_lock(lender->fd, F_UNLCK, 0, 0);
    hutch_fd_closep(&lender->fd);
}

static bool has_lent(const struct id_lender *lender, unsigned offset)
{
    return lender->lent[offset / 64] >> (offset % 64) & 1;
}

static int lock_id(const struct id_lender *lender, short type, unsigned offset)
{
    return set_lock(lender->fd, type, (off_t)lender->range.uid + offset, 1);
}

/* Another program may have removed the file, as those that clean up do. Others look for locks in the next one, so those
 * of this lender are to be there. */
static int follow_file(struct id_lender *lender, struct hutch_err *err)
{
    struct stat st;
    int fd;

    if (fstat(lender->fd, &st) == 0 && st.st_nlink > 0)
        return 0;
    if (open_locks(&fd, err) < 0)
        return -1;
    close(lender->fd);
    lender->fd = fd;
    for (unsigned offset = 1; offset < lender->range.count; offset++)
        if (has_lent(lender, offset))
            lock_id(lender, F_WRLCK, offset);
    return 0;
}

unsigned hutch_ids_lend(struct id_lender *lender, struct hutch_err *err)
{
    unsigned offset = lender->last, refused = 0;

    if (lender->fd < 0) {
        hutch_err_set(err, EBADF, "borrow an id");
        return 0;
    }
    if (follow_file(lender, err) < 0)
        return 0;
    for (unsigned i = 1; i < lender->range.count && refused < MAX_TRIES; i++) {
        offset = offset % (lender->range.count - 1) + 1; /* 1 to count - 1, in turn */
        if (has_lent(lender, offset))
            continue;
        lender->last = offset; /* others' are not tried again and again */
        if (lock_id(lender, F_WRLCK, offset) == 0) {
            lender->lent[offset / 64] |= 1ull << offset % 64;
            return offset;
        }
        if (errno != EAGAIN && errno != EACCES) {
            hutch_err_set(err, errno, "lock an id in the file '%s'", LENDER_FILE);
            return 0;
        }
        refused++;
    }
    if (refused == MAX_TRIES)
        hutch_err_set(err, 0, "%d ids of the range in a row are in use", MAX_TRIES);
    else
        hutch_err_set(err, 0, "all ids of the range are in use");
    err->errnum = EAGAIN; /* for those who wait; its text would tell a reader nothing */
    return 0;
}

void hutch_ids_return(struct id_lender *lender, uid_t uid)
{
    unsigned offset = uid - lender->range.uid;

    if (lender->fd < 0 || offset >= lender->range.count || !has_lent(lender, offset))
        return;
    lender->lent[offset / 64] &= ~(1ull << offset % 64);
    lock_id(lender, F_UNLCK, offset);
}

int hutch_ids_borrow(struct id_plan *plan, int *ret_fd, struct hutch_err *err)
{
    auto_free struct id_lender *lender = malloc(sizeof(*lender));
    unsigned offset;

    if (!lender)
        return hutch_err_set(err, ENOMEM, "borrow an id");
    if (hutch_ids_open(lender, &plan->range, err) < 0)
        return -1;
    offset = hutch_ids_lend(lender, err);
    if (offset == 0) {
        hutch_ids_close(lender);
        return -1;
    }
    plan->host_uid = plan->range.uid + offset;
    plan->host_gid = plan->range.gid + offset;
    *ret_fd = lender->fd;
    return 0;
}

bool hutch_ids_may_enter(const struct sandbox_spec *spec)
{
    struct stat st;

    return spec->root_kind != ROOT_DIR || !spec->rootfs_path || stat(spec->rootfs_path, &st) < 0 ||
           (st.st_mode & S_IXOTH);
}

void hutch_ids_explain(bool is_mapped_away, struct hutch_err *ret)
{
    if (is_mapped_away)
        hutch_err_set(ret, 0, "the user 'hutch' has no range of subordinate ids");
    else if (geteuid() == 0)
        hutch_err_set(ret, 0, "no subordinate ids are mapped here, as in a container");
    else
        hutch_err_set(ret, 0, IDS_ON_DISK);
}

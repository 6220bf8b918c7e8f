#include "sandbox/rmtree.h"

#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "sandbox/walk.h"

#include <fcntl.h>
#include <math.h>
#include <string.h>

/* How often a directory that was just emptied may turn out not to be. Some file systems skip entries when others are
 * removed while the directory is read, so one or two are innocent. */
#define MAX_REFILLS 1000

/* Removes what is not a directory. 1 when it is one. */
static int remove_file(int dirfd, const char *name, struct hutch_err *err)
{
    if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno == EISDIR)
        return 1;
    return hutch_err_set(err, errno, "remove '%s'", name);
}

/* Removes an empty directory. 1 when it is not empty, or became something else since it was looked at. */
static int remove_dir(int dirfd, const char *name, struct hutch_err *err)
{
    if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    if (errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR)
        return 1;
    return hutch_err_set(err, errno, "remove directory '%s'", name);
}

static int enter(struct walk *w, struct hutch_err *err)
{
    int skipped;

    if (hutch_walk_enter(w, &skipped, err) < 0)
        return -1;
    switch (skipped) {
    case 0:
    case ENOENT:
        return 0;
    case ENOTDIR: /* became something else since it was looked at */
        if (remove_file(w->dirfd, w->name, err) == 0)
            return 0;
        return hutch_err_set(err, EAGAIN, "remove '%s', which keeps changing", w->name);
    case EXDEV:
        return hutch_err_set(err, EBUSY, "remove '%s', on which something is mounted", w->name);
    default:
        return hutch_err_set(err, skipped, "open directory '%s' to empty it", w->name);
    }
}

static int empty_tree(int parent_dirfd, const char *name, double until, unsigned *refills, struct hutch_err *err)
{
    __attribute__((cleanup(hutch_walk_done))) struct walk w = WALK_INIT;
    enum walk_event event;
    int rc = 0;

    if (hutch_walk_open(&w, parent_dirfd, name, WALK_UNLOCK_WRITE | WALK_REREAD, err) < 0)
        return -1;
    for (;;) {
        if (hutch_walk_next(&w, &event, err) < 0)
            return -1;
        if (hutch_clock_ms() > until)
            return hutch_err_set(err, ETIMEDOUT, "remove all of it");
        switch (event) {
        case WALK_END:
            return 0;
        case WALK_ENTRY:
            rc = w.d_type == DT_DIR ? 1 : remove_file(w.dirfd, w.name, err);
            break;
        case WALK_LEAVE:
            rc = remove_dir(w.dirfd, w.name, err);
            if (rc > 0 && ++*refills > MAX_REFILLS)
                return hutch_err_set(err, ENOTEMPTY, "empty '%s'", w.name);
            break;
        }
        if (rc < 0 || (rc > 0 && enter(&w, err) < 0))
            return -1;
    }
}

static int remove_one(int dirfd, const char *name, struct hutch_err *err)
{
    int rc = remove_file(dirfd, name, err);

    return rc > 0 ? remove_dir(dirfd, name, err) : rc;
}

/* A process that goes on changing the tree: what is there now is looked at anew. ENOENT: another removal was faster
 * with a part of it, or with all. */
static bool is_change(int errnum)
{
    return errnum == ENOENT || errnum == ENOTDIR || errnum == ELOOP || errnum == EAGAIN;
}

int hutch_rmtree_until(int dirfd, const char *name, double until, struct hutch_err *err)
{
    unsigned refills = 0;
    int rc;

    if (name[0] == '\0' || strchr(name, '/') != NULL || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return hutch_err_set(err, EINVAL, "remove tree '%s': the name must be a single component", name);

    rc = remove_one(dirfd, name, err);
    while (rc > 0) {
        struct hutch_err walk_err = { 0 };

        if (empty_tree(dirfd, name, until, &refills, &walk_err) < 0 && !is_change(walk_err.errnum)) {
            *err = walk_err;
            return hutch_err_wrap(err, "remove tree '%s'", name);
        }
        rc = remove_one(dirfd, name, err);
        if (rc > 0 && ++refills > MAX_REFILLS)
            return hutch_err_set(err, ENOTEMPTY, "remove tree '%s'", name);
    }
    return rc;
}

int hutch_rmtree(int dirfd, const char *name, struct hutch_err *err)
{
    return hutch_rmtree_until(dirfd, name, INFINITY, err);
}

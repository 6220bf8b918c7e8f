/* dir_watch.h - directories of sessions' sandboxes whose changes are told.
 *
 * A program inside cannot watch files, as the filter says why. The engine does it: the sandbox opens the directory, by
 * an order about a path (path.h), and what came is watched by the engine's one instance of inotify(7). So a sandbox has
 * no instance of its own, the engine's watches are bounded, and what the sandbox's user may not read is not watched.
 * Only changes are told, and not what is read: a list of the directory tells as much.
 *
 * The kernel's queue is shared by all sessions: when it is full, all are told that changes were lost. So that one of
 * them cannot keep it full, a directory that changes too fast is not watched for a while. */
#ifndef HUTCH_SESSION_DIR_WATCH_H
#define HUTCH_SESSION_DIR_WATCH_H

#include "runtime/engine/loop.h"
#include "runtime/hutch.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#define DIR_WATCHES_OF_SESSION 16
#define DIR_WATCHES_OF_ENGINE  1024
#define DIR_WATCH_CHANGES      5000 /* told within one second; then the directory rests until that is over */

struct session;
struct sessions;

enum dir_watch_state {
    DIR_WATCH_OPENING, /* by the sandbox */
    DIR_WATCH_ON,
    DIR_WATCH_RESTING, /* it has changed too fast */
    DIR_WATCH_OVER     /* on_end is owed */
};

struct dir_watch {
    TAILQ_ENTRY(dir_watch) link; /* among all of the engine */
    struct session *session;
    uint64_t id;
    struct hutch_watch_options options; /* without the texts */
    char *path;                  /* owned */
    enum dir_watch_state state;
    int wd;                      /* of inotify; -1: none. Two may have the same, of one directory */
    bool is_ordered;             /* the sandbox has not answered yet */
    bool has_begun;              /* on_begin was called */
    bool has_lost;               /* HUTCH_CHANGES_LOST is owed */
    unsigned n_changes;          /* since … */
    double t_window;
    struct deadline clock;       /* of its rest */
    int code;                    /* DIR_WATCH_OVER */
    char why[512];
    struct doomed doomed;
};
TAILQ_HEAD(dir_watch_list, dir_watch);

/* Of an engine. */
struct dir_watches {
    struct dir_watch_list list;
    unsigned n;
    uint64_t last_id;
    int fd;              /* owned; of inotify; -1: nothing is watched */
    struct watch ready;
};

void hutch_dir_watches_init(struct dir_watches *all);
/* There is no session any more. */
void hutch_dir_watches_done(struct dir_watches *all);
/* Errors: EINVAL, EAGAIN (the session, or the engine, has as many as may be), ENOMEM. */
int hutch_dir_watch_add(struct session *session, const char *path, const struct hutch_watch_options *options,
                        uint64_t *ret_id, struct hutch_err *err);
/* Its end follows. False: there is no such one, or it is over. */
bool hutch_dir_watch_end(struct session *session, uint64_t id);
/* The session's sandbox is over, and with it all that is watched there. */
void hutch_dir_watches_lose(struct session *session, const char *why);
/* Calls back, and frees those of the session that are over. */
void hutch_dir_watches_work(struct session *session);
/* The session is freed: nothing is told. Its orders about paths are gone. */
void hutch_dir_watches_drop(struct session *session);

#endif

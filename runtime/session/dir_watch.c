#include "runtime/session/dir_watch.h"

#include "runtime/session/session_priv.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "sandbox/path_wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>

#define WINDOW_MS 1000
#define READ_BYTES (16u << 10)
#define CHANGES (IN_CREATE | IN_MOVED_TO | IN_MODIFY | IN_ATTRIB | IN_DELETE | IN_MOVED_FROM | IN_DELETE_SELF)

static struct loop *loop_of(const struct session *s)
{
    return &s->sessions->core->loop;
}

static struct dir_watches *all_of(const struct session *s)
{
    return &s->sessions->dir_watches;
}

/* --- the kernel's part -------------------------------------------------------------------------------------------- */

static bool is_shared(const struct dir_watches *all, const struct dir_watch *w)
{
    const struct dir_watch *other;

    TAILQ_FOREACH(other, &all->list, link)
        if (other != w && other->wd == w->wd)
            return true;
    return false;
}

static void stop_watching(struct dir_watch *w)
{
    struct dir_watches *all = all_of(w->session);

    if (w->wd >= 0 && !is_shared(all, w))
        inotify_rm_watch(all->fd, w->wd);
    w->wd = -1;
}

static void on_changes(struct watch *ready, uint32_t events);

static int open_inotify(struct dir_watches *all, struct loop *loop, struct hutch_err *err)
{
    if (all->fd >= 0)
        return 0;
    all->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (all->fd < 0)
        return hutch_err_set(err, errno, "watch directories (fs.inotify.max_user_instances is the user's limit)");
    if (hutch_watch_add(&all->ready, loop, all->fd, EPOLLIN, on_changes, all, err) == 0)
        return 0;
    hutch_fd_closep(&all->fd);
    return -1;
}

static void close_inotify(struct dir_watches *all)
{
    hutch_watch_remove(&all->ready);
    hutch_fd_closep(&all->fd);
}

/* @fd: the directory, as the sandbox has opened it. */
static int begin_watching(struct dir_watch *w, int fd, struct hutch_err *err)
{
    struct dir_watches *all = all_of(w->session);
    char path[32];

    if (open_inotify(all, loop_of(w->session), err) < 0)
        return -1;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    w->wd = inotify_add_watch(all->fd, path, CHANGES | IN_ONLYDIR);
    if (w->wd >= 0)
        return 0;
    return hutch_err_set(err, errno, errno == ENOSPC ? "watch it (fs.inotify.max_user_watches is the user's limit)"
                                                     : "watch it");
}

/* --- what is told ------------------------------------------------------------------------------------------------- */

static void finish(struct dir_watch *w, int code, const char *why)
{
    if (w->state == DIR_WATCH_OVER)
        return;
    stop_watching(w);
    w->state = DIR_WATCH_OVER;
    w->code = code;
    snprintf(w->why, sizeof(w->why), "%s", why);
    hutch_loop_set_deadline(loop_of(w->session), &w->clock, LOOP_NEVER);
    hutch_session_ask_for_work(w->session);
}

static void tell(struct dir_watch *w, enum hutch_change_kind kind, const char *name, bool is_directory)
{
    const struct hutch_change change = { .size = sizeof(change), .kind = kind, .name = name,
                                         .is_directory = is_directory };

    if (w->options.on_change)
        w->options.on_change(w->options.user, w->session->id, w->id, &change);
}

static void lose_changes(struct dir_watch *w)
{
    w->has_lost = true;
    hutch_session_ask_for_work(w->session);
}

static void rest(struct dir_watch *w, double until)
{
    stop_watching(w);
    w->state = DIR_WATCH_RESTING;
    hutch_loop_set_deadline(loop_of(w->session), &w->clock, until);
}

/* False: it is one too many. */
static bool count_change(struct dir_watch *w)
{
    const double now = hutch_clock_ms();

    if (now - w->t_window >= WINDOW_MS) {
        w->t_window = now;
        w->n_changes = 0;
    }
    if (++w->n_changes <= DIR_WATCH_CHANGES)
        return true;
    rest(w, w->t_window + WINDOW_MS);
    return false;
}

static enum hutch_change_kind kind_of(uint32_t mask)
{
    return mask & (IN_CREATE | IN_MOVED_TO) ? HUTCH_CREATED : mask & IN_MODIFY ? HUTCH_WRITTEN :
           mask & IN_DELETE ? HUTCH_REMOVED : mask & IN_MOVED_FROM ? HUTCH_RENAMED : HUTCH_ATTRIBUTES;
}

static void take_change(struct dir_watch *w, const struct inotify_event *event)
{
    if (event->mask & IN_Q_OVERFLOW)
        lose_changes(w);
    else if (event->mask & (IN_IGNORED | IN_DELETE_SELF | IN_UNMOUNT))
        finish(w, ENOENT, "the directory is gone");
    else if (event->len > 0 && event->name[0] && count_change(w)) /* those of itself have no name */
        tell(w, kind_of(event->mask), event->name, event->mask & IN_ISDIR);
}

/* A callback may end others, which stay in the list until their session's work; and add some, at its end. */
static void spread_change(struct dir_watches *all, const struct inotify_event *event)
{
    struct dir_watch *w;

    TAILQ_FOREACH(w, &all->list, link)
        if (w->state == DIR_WATCH_ON && (w->wd == event->wd || (event->mask & IN_Q_OVERFLOW)))
            take_change(w, event);
}

static void on_changes(struct watch *ready, uint32_t events)
{
    struct dir_watches *all = ready->owner;
    char buf[READ_BYTES] __attribute__((aligned(__alignof__(struct inotify_event))));
    ssize_t n = read(all->fd, buf, sizeof(buf));

    (void)events;
    for (ssize_t at = 0; at < n;) { /* the kernel's word: whole events */
        const struct inotify_event *event = (const struct inotify_event *)(buf + at);

        spread_change(all, event);
        at += (ssize_t)(sizeof(*event) + event->len);
    }
}

/* --- its life ----------------------------------------------------------------------------------------------------- */

static void on_open(void *user, uint64_t session, const struct hutch_path_reply *reply)
{
    struct dir_watch *w = user;
    struct hutch_err err;

    (void)session;
    w->is_ordered = false;
    if (w->state == DIR_WATCH_OVER)
        return;
    if (!reply->ok) {
        finish(w, reply->code, reply->message);
    } else if (begin_watching(w, reply->fd, &err) < 0) {
        finish(w, err.errnum, err.msg);
    } else {
        w->state = DIR_WATCH_ON;
        w->has_lost = w->has_begun;
        hutch_session_ask_for_work(w->session);
    }
}

static int order_open(struct dir_watch *w, struct hutch_err *err)
{
    const struct path_order order = { .kind = PATH_WATCH };
    struct hutch_path_options options;

    hutch_path_options_init(&options);
    options.on_reply = on_open;
    options.user = w;
    if (hutch_paths_add(w->session, &order, w->path, NULL, &options, err) < 0)
        return -1;
    w->is_ordered = true;
    w->state = DIR_WATCH_OPENING;
    return 0;
}

/* By its path: another directory may have it by now. */
static void on_rested(void *owner, double now)
{
    struct dir_watch *w = owner;
    struct hutch_err err;

    (void)now;
    if (order_open(w, &err) < 0)
        finish(w, err.errnum, err.msg);
}

static void free_watch(void *object)
{
    struct dir_watch *w = object;

    free(w->path);
    free(w);
}

static void remove_watch(struct dir_watch *w)
{
    struct dir_watches *all = all_of(w->session);

    stop_watching(w);
    hutch_loop_set_deadline(loop_of(w->session), &w->clock, LOOP_NEVER);
    TAILQ_REMOVE(&all->list, w, link);
    if (--all->n == 0)
        close_inotify(all);
    hutch_loop_free_later(loop_of(w->session), &w->doomed, w, free_watch);
}

int hutch_dir_watch_add(struct session *s, const char *path, const struct hutch_watch_options *options,
                        uint64_t *ret_id, struct hutch_err *err)
{
    struct dir_watches *all = all_of(s);
    struct dir_watch *w;
    unsigned n = 0;

    TAILQ_FOREACH(w, &all->list, link)
        n += w->session == s;
    if (n >= DIR_WATCHES_OF_SESSION)
        return hutch_err_say(err, EAGAIN, "the session watches %u directories, which is the most that it may", n);
    if (all->n >= DIR_WATCHES_OF_ENGINE)
        return hutch_err_say(err, EAGAIN, "%u directories are watched, which is the most that may be", all->n);
    w = calloc(1, sizeof(*w));
    if (w)
        w->path = strdup(path ? path : "");
    if (!w || !w->path) {
        free(w);
        return hutch_err_set(err, ENOMEM, "watch a directory");
    }
    w->session = s;
    w->id = ++all->last_id;
    w->options = *options;
    w->wd = -1;
    w->clock = (struct deadline)DEADLINE_INIT(on_rested, w);
    if (order_open(w, err) < 0) {
        free_watch(w);
        return -1;
    }
    TAILQ_INSERT_TAIL(&all->list, w, link);
    all->n++;
    *ret_id = w->id;
    return 0;
}

bool hutch_dir_watch_end(struct session *s, uint64_t id)
{
    struct dir_watch *w;

    TAILQ_FOREACH(w, &all_of(s)->list, link)
        if (w->session == s && w->id == id && w->state != DIR_WATCH_OVER) {
            finish(w, ECANCELED, "it is not watched any more");
            return true;
        }
    return false;
}

void hutch_dir_watches_lose(struct session *s, const char *why)
{
    struct dir_watch *w;

    TAILQ_FOREACH(w, &all_of(s)->list, link)
        if (w->session == s && !w->is_ordered) /* or the order is told */
            finish(w, ECANCELED, why);
}

/* What is owed to it, in its order. */
static void work(struct dir_watch *w)
{
    if (w->state == DIR_WATCH_ON && !w->has_begun) {
        w->has_begun = true;
        if (w->options.on_begin)
            w->options.on_begin(w->options.user, w->session->id, w->id);
    }
    if (w->state == DIR_WATCH_ON && w->has_lost) {
        w->has_lost = false;
        tell(w, HUTCH_CHANGES_LOST, "", false);
    }
}

void hutch_dir_watches_work(struct session *s)
{
    struct dir_watches *all = all_of(s);
    struct dir_watch *w, *next;

    for (w = TAILQ_FIRST(&all->list); w; w = next) {
        const bool is_over = w->session == s && w->state == DIR_WATCH_OVER && !w->is_ordered;

        if (w->session == s)
            work(w);
        if (is_over && w->options.on_end)
            w->options.on_end(w->options.user, s->id, w->id, w->code, w->why);
        next = TAILQ_NEXT(w, link); /* now: a callback may have added one */
        if (is_over)
            remove_watch(w);
    }
}

void hutch_dir_watches_drop(struct session *s)
{
    struct dir_watch *w, *next;

    for (w = TAILQ_FIRST(&all_of(s)->list); w; w = next) {
        next = TAILQ_NEXT(w, link);
        if (w->session == s)
            remove_watch(w);
    }
}

void hutch_dir_watches_init(struct dir_watches *all)
{
    *all = (struct dir_watches){ .fd = -1, .ready = WATCH_INIT };
    TAILQ_INIT(&all->list);
}

void hutch_dir_watches_done(struct dir_watches *all)
{
    close_inotify(all);
}

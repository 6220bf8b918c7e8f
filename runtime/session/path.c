#include "runtime/session/path.h"

#include "runtime/data/files.h"
#include "runtime/session/session_priv.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "sandbox/fdpass.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#define DEFAULT_MS 30000
#define DEFAULT_ENTRIES 10000
#define FAREWELL_MS 500     /* from the end of a socket to the word of its sandbox's end */
#define PACKETS_AT_ONCE 16  /* before others have their turn */
#define ZFS_MAGIC 0x2fc12fc1

#define NO_SPAWNER "what works with the session's files has been killed: a restart of the session makes it anew"

static struct loop *loop_of(const struct path_task *t)
{
    return &t->session->sessions->core->loop;
}

static const char *path_of(const struct path_task *t)
{
    return (const char *)(t->order + 1);
}

/* --- its end ------------------------------------------------------------------------------------------------------ */

static void close_control(struct path_task *t)
{
    hutch_watch_remove(&t->control);
    hutch_fd_closep(&t->control_fd);
}

static bool changes_files(const struct path_order *order)
{
    return order->kind != PATH_STAT && order->kind != PATH_LIST && order->kind != PATH_WATCH &&
           (order->kind != PATH_OPEN || (order->flags & PATH_WRITE));
}

static void finish(struct path_task *t, int code, const char *why)
{
    struct session *s = t->session;

    if (t->state == PATH_OVER)
        return;
    close_control(t);
    s->paths.n_at_work -= t->state == PATH_AT_WORK;
    if (t->state == PATH_AT_WORK && changes_files(t->order))
        s->data.has_foreign = true; /* what it did to files was no cell's doing */
    t->state = PATH_OVER;
    t->code = code;
    snprintf(t->why, sizeof(t->why), "%s", why);
    t->t_over = hutch_clock_ms();
    hutch_loop_set_deadline(loop_of(t), &t->clock, LOOP_NEVER);
    hutch_session_ask_for_work(s);
}

static void finish_with(struct path_task *t, const struct hutch_err *err)
{
    finish(t, err->errnum ? err->errnum : EPROTO, err->msg);
}

static void fail(struct path_task *t, int errnum, const char *why)
{
    char quoted[FILES_QUOTED];
    struct hutch_err err;

    hutch_err_set(&err, 0, "'%s': %s", hutch_files_quote(path_of(t), quoted), why);
    finish(t, errnum, err.msg);
}

static const char *name_step(enum path_step step)
{
    switch (step) {
    case PATH_STEP_ORDER: return "understand the order";
    case PATH_STEP_FORK: return "make a process in the sandbox (are there too many?) for";
    case PATH_STEP_LOOK: return "look at";
    case PATH_STEP_READ: return "read the directory";
    case PATH_STEP_PARENTS: return "make the directories on the way to";
    case PATH_STEP_MAKE: return "make the directory";
    case PATH_STEP_RENAME: return "rename";
    case PATH_STEP_REMOVE: return "remove";
    case PATH_STEP_OPEN: return "open";
    case PATH_STEPS: break;
    }
    return "work with";
}

static void tell_failure(struct path_task *t)
{
    const struct path_answer *a = &t->answer;
    char quoted[FILES_QUOTED];
    struct hutch_err err;

    if (a->step == PATH_STEP_OPEN && a->errnum == EINVAL && t->order->kind == PATH_OPEN)
        hutch_err_set(&err, 0, "open '%s': it is no regular file", hutch_files_quote(path_of(t), quoted));
    else if (a->step == PATH_STEP_REMOVE && a->errnum == EBUSY)
        hutch_err_set(&err, 0, "remove '%s': something is mounted there", hutch_files_quote(path_of(t), quoted));
    else
        hutch_err_set(&err, a->errnum, "%s '%s'", name_step(a->step), hutch_files_quote(path_of(t), quoted));
    finish(t, a->errnum, err.msg);
}

/* --- a descriptor from inside ------------------------------------------------------------------------------------- */

/* A file system that keeps files of sandboxes, or one like that of /mnt/data: a file of any other could make a reader
 * wait, as those of /proc can, or mean something. */
static bool keeps_files(const struct session *s, int fd)
{
    struct statfs fs, data;

    if (fstatfs(fd, &fs) < 0)
        return false;
    switch ((unsigned long)fs.f_type) {
    case TMPFS_MAGIC:
    case OVERLAYFS_SUPER_MAGIC:
    case EXT4_SUPER_MAGIC:
    case XFS_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case F2FS_SUPER_MAGIC:
    case ZFS_MAGIC:
        return true;
    }
    return s->data.dirfd >= 0 && fstatfs(s->data.dirfd, &data) == 0 && data.f_type == fs.f_type;
}

static int check_directory(const struct path_task *t, int fd, struct hutch_err *err)
{
    const int has = fcntl(fd, F_GETFL);
    char quoted[FILES_QUOTED];
    struct stat st;

    if (has < 0 || fstat(fd, &st) < 0 || !S_ISDIR(st.st_mode) || (has & O_PATH))
        return hutch_err_set(err, 0, "what was opened for '%s' is not a directory",
                             hutch_files_quote(path_of(t), quoted));
    if (!keeps_files(t->session, fd))
        return hutch_err_set(err, 0, "open '%s': it is no directory on a disk or in memory",
                             hutch_files_quote(path_of(t), quoted));
    return 0;
}

/* Anything can come from inside. A file without a name is refused, too: a memory file is one, which is in no place
 * whose size is bounded. */
static int check_file(const struct path_task *t, int fd, struct hutch_err *err)
{
    const uint32_t flags = t->order->flags;
    const int access = flags & PATH_WRITE ? O_WRONLY : O_RDONLY, has = fcntl(fd, F_GETFL);
    char quoted[FILES_QUOTED];
    struct stat st;

    if (t->order->kind == PATH_WATCH)
        return check_directory(t, fd, err);
    if (has < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (has & O_PATH) || (has & O_ACCMODE) != access ||
        fcntl(fd, F_SETFL, O_NONBLOCK | (flags & PATH_APPEND ? O_APPEND : 0)) < 0)
        return hutch_err_set(err, 0, "what was opened for '%s' is not the file that was asked for",
                             hutch_files_quote(path_of(t), quoted));
    if (st.st_nlink == 0)
        return hutch_err_set(err, 0, "open '%s': it was removed meanwhile", hutch_files_quote(path_of(t), quoted));
    if (!keeps_files(t->session, fd))
        return hutch_err_set(err, 0, "open '%s': it is no file on a disk or in memory",
                             hutch_files_quote(path_of(t), quoted));
    return 0;
}

/* --- its answer --------------------------------------------------------------------------------------------------- */

static void take_done(struct path_task *t, int *fd)
{
    const bool is_open = t->order->kind == PATH_OPEN || t->order->kind == PATH_WATCH;
    struct hutch_err err;

    /* stat and the like say what it is, with one entry */
    if (t->answer.n != 1 && !t->answer.is_list && t->order->kind != PATH_RENAME && t->order->kind != PATH_REMOVE) {
        fail(t, EPROTO, "what was answered from inside says nothing of it");
    } else if (is_open && *fd < 0) {
        fail(t, EPROTO, "no descriptor came for it");
    } else if (is_open && check_file(t, *fd, &err) < 0) {
        finish(t, EINVAL, err.msg);
    } else {
        if (is_open)
            t->file_fd = hutch_fd_take(fd);
        finish(t, 0, "");
    }
}

/* False: nothing more is there. */
static bool take_packet(struct path_task *t)
{
    char *packet = loop_of(t)->scratch;
    struct hutch_err err;
    auto_fd fd = -1;
    size_t n_fds;
    ssize_t n = hutch_fdpass_receive(t->control_fd, packet, PATH_PACKET_MAX, &fd, 1, &n_fds, MSG_DONTWAIT);

    if (n < 0 && errno == EAGAIN)
        return false;
    if (n < 0 && errno == EMSGSIZE) {
        fail(t, EMFILE, "its answer could not be taken (has this process too many descriptors?)");
        return false;
    }
    if (n <= 0) { /* its end, or that of all of its sandbox, which is told by another */
        close_control(t);
        t->has_left = true;
        hutch_loop_set_deadline(loop_of(t), &t->clock, hutch_clock_ms() + FAREWELL_MS);
        return false;
    }
    if (hutch_path_answer_take(&t->answer, packet, (size_t)n, &err) < 0)
        finish_with(t, &err);
    else if (t->answer.is_over && t->answer.errnum)
        tell_failure(t);
    else if (t->answer.is_over)
        take_done(t, &fd);
    return t->state == PATH_AT_WORK;
}

static void on_control(struct watch *w, uint32_t events)
{
    struct path_task *t = w->owner;

    (void)events;
    for (int i = 0; i < PACKETS_AT_ONCE && take_packet(t); i++)
        ;
}

static void on_due(void *owner, double now)
{
    struct path_task *t = owner;
    struct loop *loop = loop_of(t);

    if (hutch_session_clocks_stand(t->session))
        t->put_off_at = now;
    else if (t->has_left && !hutch_processes_have_sandbox(t->session)) /* whose end is on the way, and tells */
        hutch_loop_set_deadline(loop, &t->clock, now + FAREWELL_MS);
    else if (t->has_left)
        fail(t, ECANCELED, "what worked with it was killed");
    else if (hutch_loop_stood_still(loop) > 0) /* what it waits for may have been as still */
        hutch_loop_set_deadline(loop, &t->clock, now + t->session->sessions->core->answer_ms);
    else
        fail(t, ETIMEDOUT, "it took too long");
}

/* --- its begin ---------------------------------------------------------------------------------------------------- */

static int send_order(struct path_task *t, struct hutch_err *err)
{
    auto_fd theirs = -1;
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return hutch_err_set(err, errno, "make a socket for an order about a path");
    t->control_fd = pair[0];
    theirs = pair[1];
    if (hutch_watch_add(&t->control, loop_of(t), t->control_fd, EPOLLIN, on_control, t, err) < 0)
        return -1;
    return hutch_link_send(&t->session->processes.spawner, t->order, t->order_len, NULL, 0, &theirs, 1, err);
}

static void begin(struct path_task *t)
{
    struct hutch_err err;

    t->state = PATH_AT_WORK;
    t->session->paths.n_at_work++;
    t->has_left = false;
    t->put_off_at = 0;
    t->t_begun = hutch_clock_ms();
    hutch_path_answer_init(&t->answer, t->order);
    hutch_loop_set_deadline(loop_of(t), &t->clock, t->t_begun + (double)t->timeout_ms);
    if (t->session->processes.spawner.fd < 0)
        fail(t, ECANCELED, NO_SPAWNER);
    else if (send_order(t, &err) < 0)
        finish_with(t, &err);
}

void hutch_paths_begin(struct session *s)
{
    struct path_task *t;

    if (!hutch_processes_have_sandbox(s) || s->pause.is_on)
        return;
    TAILQ_FOREACH(t, &s->paths.list, link) {
        if (s->paths.n_at_work >= PATHS_AT_WORK)
            return;
        if (t->state == PATH_WAITING)
            begin(t);
    }
}

void hutch_paths_reset(struct session *s)
{
    struct path_task *t;

    TAILQ_FOREACH(t, &s->paths.list, link) {
        if (t->state != PATH_AT_WORK)
            continue;
        close_control(t);
        hutch_path_answer_done(&t->answer);
        hutch_loop_set_deadline(loop_of(t), &t->clock, LOOP_NEVER);
        t->state = PATH_WAITING;
        s->paths.n_at_work--;
    }
}

void hutch_paths_lose(struct session *s, const char *why)
{
    struct path_task *t;

    TAILQ_FOREACH(t, &s->paths.list, link)
        if (t->state == PATH_AT_WORK)
            fail(t, ECANCELED, why);
}

void hutch_paths_refuse(struct session *s, const char *why)
{
    struct path_task *t;

    TAILQ_FOREACH(t, &s->paths.list, link)
        if (t->state == PATH_WAITING)
            fail(t, ECANCELED, why);
}

bool hutch_paths_wait(const struct session *s)
{
    const struct path_task *t;

    TAILQ_FOREACH(t, &s->paths.list, link)
        if (t->state == PATH_WAITING)
            return true;
    return false;
}

void hutch_paths_shift_clocks(struct session *s, double by_ms)
{
    struct path_task *t;

    TAILQ_FOREACH(t, &s->paths.list, link) {
        const double at = t->put_off_at > 0 ? t->put_off_at : t->clock.at;

        t->put_off_at = 0;
        if (t->state != PATH_AT_WORK)
            continue;
        t->t_begun += by_ms;
        if (at != LOOP_NEVER)
            hutch_loop_set_deadline(loop_of(t), &t->clock, at + by_ms);
    }
}

/* --- its life ----------------------------------------------------------------------------------------------------- */

void hutch_paths_init(struct paths *paths)
{
    TAILQ_INIT(&paths->list);
}

static void free_task(void *object)
{
    struct path_task *t = object;

    hutch_path_answer_done(&t->answer);
    free(t->order);
    free(t);
}

static void remove_task(struct paths *paths, struct path_task *t)
{
    TAILQ_REMOVE(&paths->list, t, link);
    paths->n--;
    close_control(t);
    hutch_fd_closep(&t->file_fd);
    hutch_loop_set_deadline(loop_of(t), &t->clock, LOOP_NEVER);
    hutch_loop_free_later(loop_of(t), &t->doomed, t, free_task);
}

void hutch_paths_done(struct paths *paths)
{
    while (!TAILQ_EMPTY(&paths->list))
        remove_task(paths, TAILQ_FIRST(&paths->list));
}

static void tell(struct path_task *t)
{
    struct hutch_path_reply reply = {
        .size = sizeof(reply),
        .ok = t->code == 0,
        .code = t->code,
        .message = t->why,
        .fd = t->file_fd,
        .ms = t->t_begun > 0 ? t->t_over - t->t_begun : 0,
    };

    if (reply.ok) {
        if (!t->answer.is_list && t->answer.n == 1)
            t->answer.entries[0].path = path_of(t);
        reply.entries = t->answer.entries;
        reply.n_entries = t->answer.n;
        reply.truncated = t->answer.truncated;
        reply.existed = t->answer.existed;
    }
    if (t->on_reply)
        t->on_reply(t->user, t->session->id, &reply);
}

void hutch_paths_work(struct session *s)
{
    struct path_task *t, *next, *last = TAILQ_LAST(&s->paths.list, path_list);
    bool is_last = last == NULL;

    for (t = TAILQ_FIRST(&s->paths.list); t && !is_last; t = next) { /* a callback may add to them */
        const bool is_over = t->state == PATH_OVER;

        is_last = t == last;
        if (is_over) {
            s->t_used = hutch_clock_ms();
            tell(t);
        }
        next = TAILQ_NEXT(t, link);
        if (is_over) {
            remove_task(&s->paths, t);
            hutch_loop_advance_deadline(&s->sessions->core->loop, &s->clock, 0); /* it may be idle from here on */
        }
    }
    hutch_paths_begin(s);
}

static struct path_task *make_task(struct session *s, const struct path_order *order, const char *path,
                                   const char *new_path)
{
    const size_t len = strlen(path) + 1, new_len = new_path ? strlen(new_path) + 1 : 0;
    struct path_task *t = calloc(1, sizeof(*t));

    if (!t)
        return NULL;
    t->order_len = sizeof(*order) + len + new_len;
    t->order = malloc(t->order_len);
    if (!t->order) {
        free(t);
        return NULL;
    }
    *t->order = *order;
    t->order->what = SPAWNER_PATH;
    memcpy(t->order + 1, path, len);
    if (new_path)
        memcpy((char *)(t->order + 1) + len, new_path, new_len);
    t->session = s;
    t->control_fd = t->file_fd = -1;
    t->control = (struct watch)WATCH_INIT;
    t->clock = (struct deadline)DEADLINE_INIT(on_due, t);
    return t;
}

static int check_path(const char *path, struct hutch_err *err)
{
    if (!path || !path[0])
        return hutch_err_say(err, EINVAL, "a path is empty");
    if (strlen(path) >= PATH_TEXT_MAX)
        return hutch_err_say(err, EINVAL, "a path has %zu bytes: at most %d can be", strlen(path), PATH_TEXT_MAX - 1);
    return 0;
}

/* Puts into @order what @options say, which is checked. */
static int read_options(const struct hutch_path_options *options, struct path_order *order, struct hutch_err *err)
{
    if (options->depth > PATH_DEPTH_MAX)
        return hutch_err_say(err, EINVAL, "a depth of %u: at most %d can be", options->depth, PATH_DEPTH_MAX);
    if (options->max_entries > PATH_ENTRIES_MAX)
        return hutch_err_say(err, EINVAL, "max_entries of %u: at most %u can be", options->max_entries,
                             PATH_ENTRIES_MAX);
    if (options->mode & ~0777u)
        return hutch_err_say(err, EINVAL, "a mode of %o: nine bits can be", options->mode);
    order->flags |= (options->follow ? PATH_FOLLOW : 0) | (options->parents ? PATH_PARENTS : 0) |
                    (options->tree ? PATH_TREE : 0);
    order->mode = options->mode ? options->mode : order->kind == PATH_MAKE ? 0755 : 0644;
    order->depth = options->depth ? options->depth : 1;
    order->max_entries = options->max_entries ? options->max_entries : DEFAULT_ENTRIES;
    return 0;
}

int hutch_paths_add(struct session *s, const struct path_order *given, const char *path, const char *new_path,
                    const struct hutch_path_options *options, struct hutch_err *err)
{
    struct path_order order = *given;
    struct path_task *t;

    if (check_path(path, err) < 0 || (order.kind == PATH_RENAME && check_path(new_path, err) < 0) ||
        read_options(options, &order, err) < 0)
        return -1;
    if (s->paths.n >= PATHS_MAX)
        return hutch_err_say(err, EAGAIN, "%u orders about paths wait already, which is the most that may", s->paths.n);
    t = make_task(s, &order, path, new_path);
    if (!t)
        return hutch_err_set(err, ENOMEM, "take an order about a path");
    t->on_reply = options->on_reply;
    t->user = options->user;
    t->timeout_ms = options->timeout_ms ? options->timeout_ms : DEFAULT_MS;
    TAILQ_INSERT_TAIL(&s->paths.list, t, link);
    s->paths.n++;
    hutch_paths_begin(s);
    hutch_session_ask_for_work(s);
    return 0;
}

#include "runtime/engine/engine_priv.h"

#include "sandbox/fd.h"
#include "sandbox/log.h"
#include "sandbox/rmtree.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define OUTPUT_TURNS 16 /* buffers from one stream, before others have their turn */

enum { THEIR_STDIN, THEIR_STDOUT, THEIR_STDERR, THEIR_JOB };

static bool is_building(const struct box *box)
{
    return box->state < BOX_PREPARED;
}

void hutch_box_set_state(struct box *box, enum box_state state)
{
    struct hutch_engine *engine = box->engine;
    bool was_building = is_building(box);

    box->state = state;
    box->since = hutch_supervisor_now();
    if (was_building && !is_building(box)) {
        engine->n_building--;
        if (box->pool)
            box->pool->n_building--;
    }
    if (state != BOX_PREPARED && state != BOX_RUNNING && state < BOX_DEAD)
        hutch_engine_wake(engine, box->since + box->engine->setup_ms);
}

struct box *hutch_box_find(struct hutch_engine *engine, uint32_t id)
{
    struct box *box;

    TAILQ_FOREACH(box, &engine->boxes, link)
        if (box->id == id)
            return box;
    return NULL;
}

/* --- watching ----------------------------------------------------------------------------------------------------- */

/* What the program has closed is closed here when its result is out: it is watched by edges, so that it does not wake us again. Only the
 * end of its input is for the program to see now. */
static bool on_close(void *user, int fd)
{
    struct box *box = user;

    if (fd == box->supervisor->in.pipe_fd) {
        hutch_watch_remove(&box->in);
        return false;
    }
    if (box->n_shut == ARRAY_SIZE(box->shut))
        return false;
    box->shut[box->n_shut++] = fd;
    return true;
}

static void on_output(struct watch *w, uint32_t events)
{
    struct box *box = w->owner;
    struct out_stream *stream;
    int turns = OUTPUT_TURNS;

    (void)events;
    if (box->state == BOX_DYING)
        return;
    if (box->state != BOX_RUNNING) {
        hutch_box_fail(box, NULL); /* nobody has told it to do anything */
        return;
    }
    stream = w == &box->out ? &box->supervisor->out : &box->supervisor->err_out;
    if (stream->pipe_fd < 0)
        return;
    do
        hutch_run_turn(box, w == &box->out ? SUPERVISOR_OUT : SUPERVISOR_ERR, POLLIN);
    while (box->state == BOX_RUNNING && stream->has_more && stream->pipe_fd >= 0 && --turns > 0);
    if (box->state == BOX_RUNNING && turns == 0)
        hutch_watch_change(w, EPOLLIN | EPOLLET); /* tell again: others have their turn first */
}

static void be_prepared(struct box *box)
{
    struct hutch_engine *engine = box->engine;
    struct supervisor *s = box->supervisor;
    struct hutch_err err;

    if (hutch_watch_add(&box->out, engine, s->out.pipe_fd, EPOLLIN | EPOLLET, on_output, box, &err) < 0 ||
        hutch_watch_add(&box->err_out, engine, s->err_out.pipe_fd, EPOLLIN | EPOLLET, on_output, box, &err) < 0) {
        hutch_box_fail(box, &err);
        return;
    }
    hutch_watch_change(&box->job, EPOLLIN | EPOLLET);
    hutch_box_set_state(box, BOX_PREPARED);
    box->t_prepared = box->since;
    engine->has_worked = true;
    engine->helper.failures = 0;
    if (box->run)
        hutch_box_give(box, box->run);
    else
        hutch_pool_on_prepared(box->pool, box);
}

/* What a worker that could not get ready has written on its stderr: the last line. */
static bool read_last_words(struct box *box, struct hutch_err *ret)
{
    char text[1024];
    ssize_t n = box->supervisor ? read(box->supervisor->err_out.pipe_fd, text, sizeof(text) - 1) : -1;
    char *line;

    while (n > 0 && text[n - 1] == '\n')
        n--;
    if (n <= 0)
        return false;
    text[n] = '\0';
    line = strrchr(text, '\n');
    hutch_err_set(ret, 0, "the worker ended before it was ready: %s", line ? line + 1 : text);
    return true;
}

static void on_hello(struct box *box)
{
    struct worker_hello hello;
    ssize_t n = TEMP_FAILURE_RETRY(recv(box->job.fd, &hello, sizeof(hello), MSG_DONTWAIT));

    if (n < 0 && errno == EAGAIN)
        return;
    if (n == (ssize_t)sizeof(hello) && hello.what == WORKER_FAILED) {
        hello.err.msg[sizeof(hello.err.msg) - 1] = '\0';
        hutch_box_fail(box, &hello.err);
    } else if (n != (ssize_t)sizeof(hello) || hello.what != WORKER_READY) {
        struct hutch_err err;

        hutch_box_fail(box, read_last_words(box, &err) ? &err : NULL);
    } else {
        box->has_hello = true;
        box->pin_pid = hello.pin_pid;
        if (box->is_adopted)
            be_prepared(box);
    }
}

static void on_job(struct watch *w, uint32_t events)
{
    struct box *box = w->owner;

    if (box->state == BOX_FORKING && !box->has_hello)
        on_hello(box);
    else if (box->state == BOX_DYING || (box->state == BOX_RUNNING && box->supervisor->report_fd < 0))
        return;
    else if (box->state == BOX_RUNNING)
        hutch_run_turn(box, SUPERVISOR_REPORT, (short)((events & EPOLLOUT ? POLLOUT : 0) | (events & ~EPOLLOUT ? POLLIN : 0)));
    else
        hutch_box_fail(box, NULL);
}

static void be_attached(struct box *box)
{
    struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;
    struct hutch_err err;

    if (hutch_collect_snapshot(box->data_dirfd, &bounds, &box->run->before, &err) < 0) {
        hutch_run_refuse(box->run, &err);
        hutch_box_discard(box);
        return;
    }
    hutch_run_begin(box);
}

/* What init says before the run. */
static void hear_init(struct box *box)
{
    struct init_msg msg;
    struct hutch_err err;
    int fd = -1, rc = hutch_sandbox_receive_fd(&box->sb, &msg, &fd, &err);

    if (rc < 0 && err.errnum == EAGAIN)
        return;
    if (rc <= 0) {
        hutch_box_fail(box, NULL);
        return;
    }
    if (msg.kind == INIT_READY && box->state == BOX_STANDING) {
        box->landlock_fd = hutch_fd_take(&fd);
        hutch_box_set_state(box, BOX_READY);
        hutch_box_on_zygote(box);
    } else if (msg.kind == INIT_ATTACHED && box->state == BOX_ATTACHING) {
        be_attached(box);
    } else if (msg.kind == INIT_SETUP_FAILED) {
        msg.err.msg[sizeof(msg.err.msg) - 1] = '\0';
        hutch_box_fail(box, &msg.err);
    } else if (msg.kind != INIT_SAMPLE) {
        hutch_box_fail(box, NULL); /* INIT_ENDED: somebody has killed the worker */
    }
    hutch_fd_closep(&fd);
}

static void on_control(struct watch *w, uint32_t events)
{
    struct box *box = w->owner;

    (void)events;
    if (box->state == BOX_RUNNING)
        hutch_run_turn(box, SUPERVISOR_CONTROL, POLLIN);
    else if (box->state == BOX_DYING)
        hutch_watch_remove(w); /* it has nothing to add */
    else
        hear_init(box);
}

/* --- building ----------------------------------------------------------------------------------------------------- */

static int make_pipe(int *ret_mine, int *ret_theirs, bool i_read, struct hutch_err *err)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0)
        return hutch_err_set(err, errno, "make a pipe");
    *ret_mine = fds[i_read ? 0 : 1];
    *ret_theirs = fds[i_read ? 1 : 0];
    if (fcntl(*ret_mine, F_SETFL, O_NONBLOCK) < 0)
        return hutch_err_set(err, errno, "make a pipe non-blocking");
    return 0;
}

static int make_streams(struct box *box, struct hutch_err *err)
{
    struct supervisor *s = hutch_engine_take_supervisor(box->engine, err);
    int pair[2];

    if (!s)
        return -1;
    box->supervisor = s;
    s->on_close = s->out.on_close = s->err_out.on_close = s->in.on_close = on_close;
    s->user = s->out.user = s->err_out.user = s->in.user = box;
    if (make_pipe(&s->in.pipe_fd, &box->theirs[THEIR_STDIN], false, err) < 0 ||
        make_pipe(&s->out.pipe_fd, &box->theirs[THEIR_STDOUT], true, err) < 0 ||
        make_pipe(&s->err_out.pipe_fd, &box->theirs[THEIR_STDERR], true, err) < 0)
        return -1;
    if (box->is_exec) /* as the hook expects it */
        return make_pipe(&s->report_fd, &box->theirs[THEIR_JOB], true, err);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return hutch_err_set(err, errno, "make the worker's socket");
    s->report_fd = pair[0];
    box->theirs[THEIR_JOB] = pair[1];
    if (fcntl(pair[0], F_SETFL, O_NONBLOCK) < 0)
        return hutch_err_set(err, errno, "make a socket non-blocking");
    return 0;
}

static void close_theirs(struct box *box)
{
    for (size_t i = 0; i < ARRAY_SIZE(box->theirs); i++)
        hutch_fd_closep(&box->theirs[i]);
}

static int make_data(struct box *box, struct hutch_err *err)
{
    struct hutch_engine *engine = box->engine;

    snprintf(box->data_name, sizeof(box->data_name), "%08x", box->id);
    /* Whatever the caller's umask is. */
    if (mkdirat(engine->data_root_fd, box->data_name, 0755) < 0 || fchmodat(engine->data_root_fd, box->data_name, 0755, 0) < 0)
        return hutch_err_set(err, errno, "make the directory '%s/%s'", engine->data_root, box->data_name);
    box->data_dirfd = openat(engine->data_root_fd, box->data_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (box->data_dirfd < 0)
        return hutch_err_set(err, errno, "open the directory '%s/%s'", engine->data_root, box->data_name);
    return 0;
}

static int open_run_data(struct box *box, struct hutch_err *err)
{
    struct open_how how = { .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS };

    hutch_fd_closep(&box->data_dirfd);
    /* What is mounted is opened the same way, so that both are the same directory. */
    box->data_dirfd = (int)syscall(SYS_openat2, AT_FDCWD, box->run->data_dir, &how, sizeof(how));
    if (box->data_dirfd < 0)
        return hutch_err_set(err, errno, "open the data directory '%s'", box->run->data_dir);
    return 0;
}

struct box *hutch_box_create(struct hutch_engine *engine, struct pool *pool, struct blueprint *blueprint, unsigned zygote,
                             struct engine_run *run, struct hutch_err *err)
{
    struct box *box = calloc(1, sizeof(*box));
    struct watch none = WATCH_INIT;
    int rc;

    if (!box) {
        hutch_err_set(err, ENOMEM, "make a sandbox");
        return NULL;
    }
    box->engine = engine;
    box->id = hutch_engine_make_id(engine);
    box->pool = pool;
    box->blueprint = blueprint;
    blueprint->refs++;
    box->zygote = zygote;
    box->run = run;
    box->is_exec = run && run->is_exec;
    box->sb = (struct sandbox)SANDBOX_INIT;
    box->landlock_fd = box->data_dirfd = -1;
    for (size_t i = 0; i < ARRAY_SIZE(box->theirs); i++)
        box->theirs[i] = -1;
    box->control = box->out = box->err_out = box->in = box->source = box->job = box->death = none;
    snprintf(box->name, sizeof(box->name), "hutch-%.8s%08x", engine->state.id, box->id);
    TAILQ_INSERT_TAIL(&engine->boxes, box, link);
    engine->n_building++;
    if (pool)
        pool->n_building++;
    if (run)
        run->box = box;
    box->since = hutch_supervisor_now();
    rc = box->is_exec && run->data_dir ? open_run_data(box, err) : make_data(box, err);
    if (rc == 0 && box->is_exec && run->data_dir) {
        struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;

        rc = hutch_collect_snapshot(box->data_dirfd, &bounds, &run->before, err);
    }
    if (rc < 0 || (box->is_exec && make_streams(box, err) < 0)) {
        box->run = NULL;
        if (run)
            run->box = NULL;
        hutch_box_discard(box);
        return NULL;
    }
    hutch_blueprint_want(blueprint);
    hutch_box_on_launcher(box);
    return box;
}

void hutch_box_on_launcher(struct box *box)
{
    struct hutch_engine *engine = box->engine;
    struct launcher_request request = { .id = box->id, .spec_id = box->blueprint->id };
    struct hutch_err err;

    memcpy(request.name, box->name, sizeof(request.name));
    memcpy(request.data_name, box->data_name, sizeof(request.data_name));
    if (!engine->helper.has_launcher)
        return;
    if (box->state == BOX_DESTROYING) { /* the order was lost */
        request.what = LAUNCHER_DESTROY;
        hutch_helper_order(engine, &request, NULL, 0, &err);
        return;
    }
    if (box->state != BOX_NEW || !box->blueprint->is_sent)
        return;
    request.what = box->is_exec ? LAUNCHER_EXEC : LAUNCHER_BUILD;
    hutch_box_set_state(box, BOX_BUILDING);
    if (hutch_helper_order(engine, &request, box->theirs, box->is_exec ? ARRAY_SIZE(box->theirs) : 0, &err) < 0) {
        hutch_box_fail(box, &err);
        return;
    }
    if (box->is_exec)
        close_theirs(box);
}

void hutch_box_on_lost_launcher(struct box *box)
{
    if (box->state == BOX_BUILDING)
        hutch_box_fail(box, NULL);
    else if (box->state == BOX_DYING && box->is_reaping) {
        box->is_reaping = false;
        hutch_run_await_death(box);
    }
}

void hutch_box_on_built(struct box *box, const struct launcher_reply *reply, const char *text, int *fds, size_t n_fds)
{
    struct hutch_err err;

    if (box->state != BOX_BUILDING)
        return;
    if (n_fds < (reply->has_cgroup ? 3u : 2u) || fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0) {
        hutch_box_fail(box, NULL);
        return;
    }
    box->sb.control_fd = hutch_fd_take(&fds[0]);
    box->sb.pidfd = hutch_fd_take(&fds[1]);
    if (reply->has_cgroup)
        box->sb.cgroup.dirfd = hutch_fd_take(&fds[2]);
    box->sb.cgroup.controllers = reply->controllers;
    box->sb.wants_samples = reply->wants_samples;
    box->sb.enforcement = reply->enforcement;
    box->sb.plan = reply->plan;
    box->seccomp_len = reply->text_len;
    box->seccomp = malloc(box->seccomp_len + 1);
    if (!box->seccomp) {
        hutch_err_set(&err, ENOMEM, "make a sandbox");
        hutch_box_fail(box, &err);
        return;
    }
    memcpy(box->seccomp, text, box->seccomp_len);
    hutch_box_set_state(box, BOX_STANDING);
    if (hutch_watch_add(&box->control, box->engine, box->sb.control_fd, EPOLLIN, on_control, box, &err) < 0) {
        hutch_box_fail(box, &err);
    } else if (box->is_exec) {
        if (hutch_watch_add(&box->out, box->engine, box->supervisor->out.pipe_fd, EPOLLIN | EPOLLET, on_output, box, &err) < 0 ||
            hutch_watch_add(&box->err_out, box->engine, box->supervisor->err_out.pipe_fd, EPOLLIN | EPOLLET, on_output, box, &err) < 0 ||
            hutch_watch_add(&box->job, box->engine, box->supervisor->report_fd, EPOLLIN | EPOLLET, on_job, box, &err) < 0)
            hutch_box_fail(box, &err);
        else
            hutch_run_begin(box);
    }
}

static int order_worker(struct box *box, struct node *node, struct hutch_err *err)
{
    const struct worker_plan *plan = &box->sb.plan;
    struct zygote_request request = { .what = ZYGOTE_WORKER, .id = box->id, .text_len = (uint32_t)box->seccomp_len, .plan = *plan };
    int fds[7] = { box->sb.pidfd };
    size_t n = 1;

    /* Nothing may be left out between those who know what belongs to a sandbox and the worker, who takes it on. */
    if ((plan->has_landlock && box->landlock_fd < 0) || (plan->has_cgroup && box->sb.cgroup.dirfd < 0) ||
        (plan->has_seccomp && box->seccomp_len == 0))
        return hutch_err_set(err, EPROTO, "a sandbox came without what its worker needs");
    if (make_streams(box, err) < 0)
        return -1;
    fds[n++] = box->theirs[THEIR_JOB];
    fds[n++] = box->theirs[THEIR_STDIN];
    fds[n++] = box->theirs[THEIR_STDOUT];
    fds[n++] = box->theirs[THEIR_STDERR];
    if (plan->has_landlock)
        fds[n++] = box->landlock_fd;
    if (plan->has_cgroup)
        fds[n++] = box->sb.cgroup.dirfd;
    if (hutch_watch_add(&box->job, box->engine, box->supervisor->report_fd, EPOLLIN, on_job, box, err) < 0)
        return -1;
    return hutch_link_send(&node->link, &request, sizeof(request), box->seccomp, box->seccomp_len, fds, n, err);
}

void hutch_box_on_zygote(struct box *box)
{
    struct node *node = box->state == BOX_READY ? hutch_zygotes_find(box->engine, box->zygote) : NULL;
    struct hutch_err err;

    if (!node)
        return;
    box->node = node;
    node->n_forking++;
    hutch_box_set_state(box, BOX_FORKING);
    if (order_worker(box, node, &err) < 0) {
        hutch_box_fail(box, &err);
        return;
    }
    close_theirs(box);
    hutch_fd_closep(&box->landlock_fd);
    free(box->seccomp);
    box->seccomp = NULL;
}

void hutch_box_on_forked(struct box *box, pid_t pid)
{
    if (box->node)
        hutch_zygotes_release(box->node);
    box->node = NULL;
    if (box->state != BOX_FORKING)
        return;
    if (hutch_sandbox_order(&box->sb, INIT_ADOPT, pid, -1) < 0) {
        hutch_box_fail(box, NULL);
        return;
    }
    box->is_adopted = true;
    if (box->has_hello)
        be_prepared(box);
}

/* --- use ---------------------------------------------------------------------------------------------------------- */

void hutch_box_give(struct box *box, struct engine_run *run)
{
    struct hutch_err err;

    box->run = run;
    run->box = box;
    if (!run->data_dir) {
        hutch_run_begin(box);
        return;
    }
    hutch_box_set_state(box, BOX_OPENING);
    if (hutch_helper_open(box->engine, box->id, run->data_dir, MOUNT_IDMAP, &err) < 0)
        hutch_box_fail(box, &err);
}

void hutch_box_on_opened(struct box *box, int fd)
{
    struct hutch_err err;

    if (open_run_data(box, &err) < 0) {
        hutch_run_refuse(box->run, &err);
        hutch_box_discard(box);
        return;
    }
    hutch_box_set_state(box, BOX_ATTACHING);
    if (hutch_sandbox_order(&box->sb, INIT_ATTACH, 0, fd) < 0)
        hutch_box_fail(box, NULL);
}

/* --- end ---------------------------------------------------------------------------------------------------------- */

void hutch_box_remove_directory(struct hutch_engine *engine, const char *name)
{
    struct hutch_err err;

    if (unlinkat(engine->data_root_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return;
    /* Hostile code may have left any number of files, and others wait: another process has the time. */
    if (!hutch_helper_sweep(engine, name) && hutch_rmtree(engine->data_root_fd, name, &err) < 0)
        hutch_log_debug("engine: %s", err.msg);
}

static void remove_data(struct box *box)
{
    hutch_fd_closep(&box->data_dirfd);
    if (box->data_name[0])
        hutch_box_remove_directory(box->engine, box->data_name);
}

static void bury(struct box *box)
{
    remove_data(box);
    TAILQ_REMOVE(&box->engine->boxes, box, link);
    TAILQ_INSERT_TAIL(&box->engine->dead_boxes, box, link); /* freed when no handler can be at work with it */
    hutch_box_set_state(box, BOX_DEAD);
}

static void close_all(struct box *box)
{
    struct watch *watches[] = { &box->control, &box->out, &box->err_out, &box->in, &box->source, &box->job, &box->death };

    for (size_t i = 0; i < ARRAY_SIZE(watches); i++)
        hutch_watch_remove(watches[i]);
    while (box->n_shut > 0)
        close(box->shut[--box->n_shut]);
    if (box->supervisor) {
        box->supervisor->on_close = box->supervisor->out.on_close = box->supervisor->err_out.on_close =
            box->supervisor->in.on_close = NULL;
        hutch_engine_give_supervisor(box->engine, box->supervisor); /* which closes what is open */
    }
    box->supervisor = NULL;
    close_theirs(box);
    hutch_fd_closep(&box->landlock_fd);
    hutch_fd_closep(&box->sb.control_fd); /* init ends, and the kernel ends everything else */
    hutch_fd_closep(&box->sb.pidfd);
    hutch_cgroup_done(&box->sb.cgroup);
    free(box->seccomp);
    box->seccomp = NULL;
}

void hutch_box_discard(struct box *box)
{
    struct hutch_engine *engine = box->engine;
    struct launcher_request request = { .what = LAUNCHER_DESTROY, .id = box->id, .spec_id = box->blueprint->id };
    bool is_known = box->state != BOX_NEW;
    struct hutch_err err;

    if (box->state >= BOX_DESTROYING)
        return;
    if (box->is_idle) {
        TAILQ_REMOVE(&box->pool->idle, box, idle);
        box->is_idle = false;
        box->pool->n_idle--;
        engine->n_prepared--;
    }
    if (box->node)
        hutch_zygotes_release(box->node);
    box->node = NULL;
    if (box->run)
        box->run->box = NULL;
    box->run = NULL;
    hutch_sandbox_kill(&box->sb);
    close_all(box);
    hutch_box_set_state(box, BOX_DESTROYING);
    memcpy(request.name, box->name, sizeof(request.name));
    if (!is_known || box->is_reaped || engine->helper.pid == 0)
        bury(box);
    else if (engine->helper.has_launcher && hutch_helper_order(engine, &request, NULL, 0, &err) < 0)
        hutch_log_debug("engine: %s", err.msg); /* asked again by the clock */
}

void hutch_box_fail(struct box *box, const struct hutch_err *why)
{
    struct engine_run *run = box->run;
    struct pool *pool = box->pool;
    bool was_building = is_building(box);

    if (box->state >= BOX_DESTROYING)
        return;
    hutch_log_debug("engine: sandbox %s broke in state %d: %s", box->name, (int)box->state, why ? why->msg : "nobody knows why");
    if (!was_building)
        box->engine->lost_sandboxes++;
    hutch_box_discard(box);
    if (run) {
        /* Those that were there before may have been killed together, and there is an end to them. */
        if (box->t_prepared == 0 || box->t_prepared > run->t_active)
            run->strikes++;
        hutch_run_restart(run, why);
    }
    if (pool && was_building)
        hutch_pool_on_failed(pool, why);
    else if (pool)
        hutch_pool_refill(pool);
}

/* Has it taken apart while somebody waits for what it used. */
bool hutch_box_reap(struct box *box)
{
    struct launcher_request request = { .what = LAUNCHER_DESTROY, .id = box->id, .spec_id = box->blueprint->id };
    struct hutch_err err;

    memcpy(request.name, box->name, sizeof(request.name));
    if (!box->engine->helper.has_launcher || hutch_helper_order(box->engine, &request, NULL, 0, &err) < 0)
        return false;
    box->is_reaping = true;
    return true;
}

void hutch_box_on_destroyed(struct box *box, const struct rusage *usage)
{
    bool was_asked = box->is_reaping;

    box->is_reaping = false;
    if (box->state == BOX_DESTROYING) {
        bury(box);
    } else if (box->state == BOX_DYING && was_asked) {
        box->is_reaped = true;
        if (usage)
            box->supervisor->usage = *usage;
        hutch_run_on_death(box);
    }
}

double hutch_box_clocks(struct box *box, double now)
{
    double due = box->since + box->engine->setup_ms;
    struct hutch_err err;

    switch (box->state) {
    case BOX_NEW:
    case BOX_READY:
    case BOX_PREPARED:
    case BOX_DEAD:
        return ENGINE_NEVER; /* what it waits for has a clock of its own */
    case BOX_RUNNING:
        due = now + hutch_supervisor_clocks(box->supervisor);
        if (box->supervisor->rest_ms > 0 && box->supervisor->kill_at == 0) /* the same moment as that of others, to the microsecond */
            due = box->supervisor->next_data;
        if (box->run->rich) {
            double text_due = hutch_agent_clocks(box->run->agent, now);

            due = text_due < due ? text_due : due;
        }
        return due;
    case BOX_BUILDING:
    case BOX_STANDING:
    case BOX_FORKING:
    case BOX_OPENING:
    case BOX_ATTACHING:
        if (now < due)
            return due;
        hutch_err_set(&err, ETIMEDOUT, "wait for the sandbox to get ready");
        hutch_box_fail(box, &err);
        return ENGINE_NEVER;
    case BOX_DYING:
        if (now < due)
            return due;
        hutch_run_on_death(box); /* it has no way to live, and somebody waits */
        return ENGINE_NEVER;
    case BOX_DESTROYING:
        if (now < due)
            return due;
        bury(box);
        return ENGINE_NEVER;
    }
    return ENGINE_NEVER;
}

void hutch_box_free(struct box *box)
{
    close_all(box);
    hutch_fd_closep(&box->data_dirfd);
    hutch_blueprint_unref(box->blueprint);
    free(box);
}

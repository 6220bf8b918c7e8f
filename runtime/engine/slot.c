#include "runtime/engine/slot_priv.h"

#include "runtime/engine/slot_data.h"
#include "runtime/engine/slot_ids.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "sandbox/fdpass.h"
#include "sandbox/log.h"
#include "sandbox/zygote_wire.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define ID_PAUSE_MS  20 /* between two looks for a host id, where all are in use */
#define OUTPUT_TURNS 16 /* buffers from one stream, before others have their turn */

enum { THEIR_STDIN, THEIR_STDOUT, THEIR_STDERR, THEIR_JOB };

static bool is_building(const struct slot *slot)
{
    return slot->state < SLOT_PREPARED;
}

void hutch_slot_set_state(struct slot *slot, enum slot_state state)
{
    struct slots *slots = slot->slots;
    bool was_building = is_building(slot);

    slot->state = state;
    slot->since = hutch_clock_ms();
    if (was_building && !is_building(slot)) {
        slots->n_building--;
        slots->on_room(slots->owner);
    }
    if (state != SLOT_PREPARED && state != SLOT_RUNNING && state < SLOT_DEAD)
        hutch_loop_advance_deadline(&slots->core->loop, &slot->clock, slot->since + slots->core->answer_ms);
}

/* --- watching ----------------------------------------------------------------------------------------------------- */

/* What the program has closed is closed here when its result is out: it is watched by edges, so that it does not wake
 * us again. */
static bool on_close(void *user, int fd)
{
    struct slot *slot = user;

    if (slot->n_shut == ARRAY_SIZE(slot->shut))
        return false;
    slot->shut[slot->n_shut++] = fd;
    return true;
}

static void on_output(struct watch *w, uint32_t events)
{
    struct slot *slot = w->owner;
    struct out_stream *stream;
    int turns = OUTPUT_TURNS;

    (void)events;
    if (slot->state == SLOT_DYING)
        return;
    if (slot->state != SLOT_RUNNING) {
        hutch_slot_fail(slot, NULL); /* nobody has told it to do anything */
        return;
    }
    stream = w == &slot->out ? &slot->supervisor->out : &slot->supervisor->err_out;
    if (stream->pipe_fd < 0)
        return;
    do
        slot->events->on_ready(slot->owner, slot, w == &slot->out ? SUPERVISOR_OUT : SUPERVISOR_ERR, POLLIN);
    while (slot->state == SLOT_RUNNING && stream->has_more && stream->pipe_fd >= 0 && --turns > 0);
    if (slot->state == SLOT_RUNNING && turns == 0)
        hutch_watch_change(w, EPOLLIN | EPOLLET); /* tell again: others have their turn first */
}

static void on_due(void *owner, double now);
static void be_prepared(struct slot *slot)
{
    struct loop *loop = &slot->slots->core->loop;
    struct supervisor *s = slot->supervisor;
    struct hutch_err err;

    if (hutch_watch_add(&slot->out, loop, s->out.pipe_fd, EPOLLIN | EPOLLET, on_output, slot, &err) < 0 ||
        hutch_watch_add(&slot->err_out, loop, s->err_out.pipe_fd, EPOLLIN | EPOLLET, on_output, slot, &err) < 0) {
        hutch_slot_fail(slot, &err);
        return;
    }
    hutch_watch_change(&slot->job, EPOLLIN | EPOLLET);
    hutch_slot_set_state(slot, SLOT_PREPARED);
    slot->t_prepared = slot->since;
    slot->slots->core->has_worked = true;
    slot->slots->helper->failures = 0;
    slot->events->on_prepared(slot->owner, slot);
}

/* What a worker that could not get ready has written on its stderr: the last line. */
static bool read_last_words(struct slot *slot, struct hutch_err *ret)
{
    char text[1024];
    ssize_t n = slot->supervisor ? read(slot->supervisor->err_out.pipe_fd, text, sizeof(text) - 1) : -1;
    const char *line = hutch_core_last_line(text, n);

    if (line)
        hutch_err_set(ret, 0, "the worker ended before it was ready: %s", line);
    return line != NULL;
}

static void on_hello(struct slot *slot)
{
    struct worker_hello hello;
    ssize_t n = TEMP_FAILURE_RETRY(recv(slot->job.fd, &hello, sizeof(hello), MSG_DONTWAIT));

    if (n < 0 && errno == EAGAIN)
        return;
    if (n == (ssize_t)sizeof(hello) && hello.what == WORKER_FAILED) {
        hutch_err_receive(&hello.err, "the worker");
        hutch_slot_fail(slot, &hello.err);
    } else if (n != (ssize_t)sizeof(hello) || hello.what != WORKER_READY) {
        struct hutch_err err;

        hutch_slot_fail(slot, read_last_words(slot, &err) ? &err : NULL);
    } else {
        slot->has_hello = true;
        slot->holder_pid = hello.holder_pid;
        if (slot->is_adopted)
            be_prepared(slot);
    }
}

static void on_job(struct watch *w, uint32_t events)
{
    struct slot *slot = w->owner;

    if (slot->state == SLOT_FORKING && !slot->has_hello)
        on_hello(slot);
    else if (slot->state == SLOT_DYING || (slot->state == SLOT_RUNNING && slot->supervisor->report_fd < 0))
        return;
    else if (slot->state == SLOT_RUNNING)
        slot->events->on_ready(slot->owner, slot, SUPERVISOR_REPORT,
                               (short)((events & EPOLLOUT ? POLLOUT : 0) | (events & ~EPOLLOUT ? POLLIN : 0)));
    else
        hutch_slot_fail(slot, NULL);
}

/* What init says before the run. */
static void hear_init(struct slot *slot)
{
    struct init_msg msg;
    struct hutch_err err;
    int fd = -1, rc = hutch_sandbox_receive_fd(&slot->sb, &msg, &fd, &err);

    if (rc < 0 && err.errnum == EAGAIN)
        return;
    if (rc <= 0) {
        hutch_slot_fail(slot, NULL);
        return;
    }
    if (msg.kind == INIT_READY && slot->state == SLOT_STANDING) {
        slot->landlock_fd = hutch_fd_take(&fd);
        hutch_slot_set_state(slot, SLOT_READY);
        hutch_slot_ask_zygote(slot);
    } else if (msg.kind == INIT_ADOPTED && slot->state == SLOT_FORKING) {
        slot->is_adopted = true;
        if (slot->has_hello)
            be_prepared(slot);
    } else if (msg.kind == INIT_ATTACHED && slot->state == SLOT_ATTACHING) {
        slot->events->on_entered(slot->owner, slot);
    } else if (msg.kind == INIT_LIMITED && slot->state == SLOT_LIMITING) {
        slot->events->on_limited(slot->owner, slot);
    } else if (msg.kind == INIT_SETUP_FAILED) {
        hutch_err_receive(&msg.err, "process 1");
        hutch_slot_fail(slot, &msg.err);
    } else if (msg.kind != INIT_SAMPLE) {
        hutch_slot_fail(slot, NULL); /* INIT_ENDED: somebody has killed the worker */
    }
    hutch_fd_closep(&fd);
}

static void on_control(struct watch *w, uint32_t events)
{
    struct slot *slot = w->owner;

    (void)events;
    if (slot->state == SLOT_RUNNING)
        slot->events->on_ready(slot->owner, slot, SUPERVISOR_CONTROL, POLLIN);
    else if (slot->state == SLOT_DYING)
        hutch_watch_remove(w); /* it has nothing to add */
    else
        hear_init(slot);
}

/* --- building ----------------------------------------------------------------------------------------------------- */

static struct supervisor *take_supervisor(struct slots *slots, struct hutch_err *err)
{
    return slots->n_spare_supervisors ? slots->spare_supervisors[--slots->n_spare_supervisors]
                                      : hutch_supervisor_create(err);
}

static void give_supervisor(struct slots *slots, struct supervisor *s)
{
    if (slots->n_spare_supervisors == ARRAY_SIZE(slots->spare_supervisors)) {
        hutch_supervisor_free(s);
        return;
    }
    hutch_supervisor_reset(s);
    slots->spare_supervisors[slots->n_spare_supervisors++] = s;
}

static void on_counted(void *owner, const struct disk_reply *reply, const int *fds, size_t n_fds)
{
    struct slot *slot = owner;
    struct supervisor *s = slot->supervisor;

    (void)fds;
    (void)n_fds;
    if (!reply)
        hutch_supervisor_lose_count(s);
    else
        hutch_supervisor_take_count(s, reply->bytes, reply->entries, reply->took_ms,
                                    reply->has_failed ? &reply->err : NULL);
    hutch_loop_advance_deadline(&slot->slots->core->loop, &slot->clock, s->next_data);
}

static bool order_count(void *user, const struct collect_bounds *bounds)
{
    struct slot *slot = user;

    slot->count.on_done = on_counted;
    slot->count.owner = slot;
    return hutch_look_begin(&slot->count, &slot->slots->looks, DISK_COUNT, bounds, slot->data_dirfd, -1);
}

static int make_streams(struct slot *slot, struct hutch_err *err)
{
    struct supervisor *s = take_supervisor(slot->slots, err);
    int pair[2];

    if (!s)
        return -1;
    slot->supervisor = s;
    s->on_close = s->out.on_close = s->err_out.on_close = on_close;
    s->user = s->out.user = s->err_out.user = slot;
    s->order_count = order_count;
    s->max_counted = LOOK_MAX_ENTRIES;
    if (hutch_stream_make_pipe(&s->in.pipe_fd, &slot->theirs[THEIR_STDIN], false, err) < 0 ||
        hutch_stream_make_pipe(&s->out.pipe_fd, &slot->theirs[THEIR_STDOUT], true, err) < 0 ||
        hutch_stream_make_pipe(&s->err_out.pipe_fd, &slot->theirs[THEIR_STDERR], true, err) < 0)
        return -1;
    if (slot->is_exec) /* as the hook expects it */
        return hutch_stream_make_pipe(&s->report_fd, &slot->theirs[THEIR_JOB], true, err);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return hutch_err_set(err, errno, "make the worker's socket");
    hutch_fdpass_forbid(pair[0]); /* the program has the other end; before Linux 6.16 it still can */
    s->report_fd = pair[0];
    slot->theirs[THEIR_JOB] = pair[1];
    if (fcntl(pair[0], F_SETFL, O_NONBLOCK) < 0)
        return hutch_err_set(err, errno, "make a socket non-blocking");
    return 0;
}

static void close_theirs(struct slot *slot)
{
    for (size_t i = 0; i < ARRAY_SIZE(slot->theirs); i++)
        hutch_fd_closep(&slot->theirs[i]);
}

struct slot *hutch_slot_create(struct slots *slots, struct template *template, unsigned zygote_index, bool is_exec,
                               bool shares_ids, const char *data_path, const struct slot_events *events, void *owner,
                               struct hutch_err *err)
{
    struct slot *slot = calloc(1, sizeof(*slot));
    struct watch none = WATCH_INIT;

    if (!slot) {
        hutch_err_set(err, ENOMEM, "make a sandbox");
        return NULL;
    }
    slot->slots = slots;
    slot->id = hutch_core_make_id(slots->core);
    slot->events = events;
    slot->owner = owner;
    slot->template = template;
    template->refs++;
    slot->zygote_index = zygote_index;
    slot->is_exec = is_exec;
    slot->shares_ids = shares_ids;
    slot->data_path = data_path;
    slot->clock = (struct deadline)DEADLINE_INIT(on_due, slot);
    slot->sb = (struct sandbox)SANDBOX_INIT;
    slot->landlock_fd = slot->data_dirfd = slot->volume_fd = -1;
    for (size_t i = 0; i < ARRAY_SIZE(slot->theirs); i++)
        slot->theirs[i] = -1;
    slot->control = slot->out = slot->err_out = slot->job = slot->death = none;
    snprintf(slot->name, sizeof(slot->name), "hutch-%.8s%08x", slots->core->state.id, slot->id);
    TAILQ_INSERT_TAIL(&slots->list, slot, link);
    slots->n_building++;
    slot->since = hutch_clock_ms();
    if (hutch_slot_make_data(slot, err) == 0 && (!is_exec || make_streams(slot, err) == 0))
        return slot;
    hutch_slot_discard(slot);
    return NULL;
}

static int order_source(struct slot *slot, struct hutch_err *err)
{
    hutch_slot_set_state(slot, SLOT_SOURCING);
    return hutch_slot_order_data(slot, err);
}

/* @source: the data directory, -1 where the launcher finds it by its path. */
static int order_building(struct slot *slot, int source, struct hutch_err *err)
{
    struct launcher_request request = { .what = slot->is_exec ? LAUNCHER_EXEC : LAUNCHER_BUILD,
                                        .id = slot->id,
                                        .spec_id = slot->template->id,
                                        .has_data = source >= 0,
                                        .uid = slot->uid,
                                        .gid = slot->gid };
    int fds[ARRAY_SIZE(slot->theirs) + 1];
    size_t n = 0;

    if (slot->is_exec && slot->events->on_furnish && slot->events->on_furnish(slot->owner, slot, err) < 0)
        return -1;
    memcpy(request.name, slot->name, sizeof(request.name));
    if (source < 0)
        memcpy(request.data_name, slot->data_name, sizeof(request.data_name));
    memcpy(request.why_shared, slot->why_shared, sizeof(request.why_shared));
    while (slot->is_exec && n < ARRAY_SIZE(slot->theirs)) {
        fds[n] = slot->theirs[n];
        n++;
    }
    if (source >= 0)
        fds[n++] = source;
    hutch_slot_set_state(slot, SLOT_BUILDING);
    if (hutch_helper_order(slot->slots->helper, &request, fds, n, err) < 0)
        return -1;
    if (slot->is_exec)
        close_theirs(slot);
    return 0;
}

void hutch_slot_take_source(struct slot *slot, int fd, int *base_fd, const struct hutch_err *why)
{
    struct hutch_err err;
    int rc = hutch_slot_take_data(slot, fd, base_fd, why, &err);

    if (rc == 0)
        return;
    if (rc > 0)
        rc = order_building(slot, fd, &err);
    else if (slot->data_path) {
        hutch_slot_refuse(slot, &err);
        return;
    }
    if (rc < 0)
        hutch_slot_fail(slot, &err);
}

void hutch_slot_build(struct slot *slot)
{
    hutch_template_want(slot->template);
    if (slot->state == SLOT_NEW)
        hutch_slot_ask_launcher(slot);
}

/* Where it is new; or was to be destroyed, as that order was lost. */
void hutch_slot_ask_launcher(struct slot *slot)
{
    struct helper *h = slot->slots->helper;
    struct launcher_request request = { .id = slot->id, .spec_id = slot->template->id };
    struct hutch_err err;

    memcpy(request.name, slot->name, sizeof(request.name));
    if (!h->has_launcher)
        return;
    if (slot->state == SLOT_DESTROYING) {
        request.what = LAUNCHER_DESTROY;
        hutch_helper_order(h, &request, NULL, 0, &err);
        return;
    }
    if (slot->state != SLOT_NEW || !slot->template->is_sent)
        return;
    if (!hutch_slot_choose_ids(slot))
        hutch_loop_advance_deadline(&slot->slots->core->loop, &slot->clock, hutch_clock_ms() + ID_PAUSE_MS);
    else if ((hutch_slot_data_is_mounted_first(slot) ? order_source(slot, &err) : order_building(slot, -1, &err)) < 0)
        hutch_slot_fail(slot, &err);
}

void hutch_slot_take_built(struct slot *slot, const struct launcher_reply *reply, const char *text, int *fds,
                           size_t n_fds)
{
    struct hutch_err err;

    if (slot->state != SLOT_BUILDING)
        return;
    if (n_fds < (reply->has_cgroup ? 3u : 2u) || fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0) {
        hutch_slot_fail(slot, NULL);
        return;
    }
    slot->sb.control_fd = hutch_fd_take(&fds[0]);
    slot->sb.pidfd = hutch_fd_take(&fds[1]);
    if (reply->has_cgroup)
        slot->sb.cgroup.dirfd = hutch_fd_take(&fds[2]);
    slot->sb.cgroup.controllers = reply->controllers;
    slot->sb.wants_samples = reply->wants_samples;
    slot->sb.enforcement = reply->enforcement;
    slot->sb.plan = reply->plan;
    slot->seccomp_len = reply->text_len;
    slot->seccomp = malloc(slot->seccomp_len + 1);
    if (!slot->seccomp) {
        hutch_err_set(&err, ENOMEM, "make a sandbox");
        hutch_slot_fail(slot, &err);
        return;
    }
    memcpy(slot->seccomp, text, slot->seccomp_len);
    hutch_slot_set_state(slot, SLOT_STANDING);
    if (hutch_watch_add(&slot->control, &slot->slots->core->loop, slot->sb.control_fd, EPOLLIN, on_control, slot,
                        &err) < 0) {
        hutch_slot_fail(slot, &err);
    } else if (slot->is_exec) {
        if (hutch_watch_add(&slot->out, &slot->slots->core->loop, slot->supervisor->out.pipe_fd, EPOLLIN | EPOLLET,
                            on_output, slot, &err) < 0 ||
            hutch_watch_add(&slot->err_out, &slot->slots->core->loop, slot->supervisor->err_out.pipe_fd,
                            EPOLLIN | EPOLLET, on_output, slot, &err) < 0 ||
            hutch_watch_add(&slot->job, &slot->slots->core->loop, slot->supervisor->report_fd, EPOLLIN | EPOLLET,
                            on_job, slot, &err) < 0)
            hutch_slot_fail(slot, &err);
        else
            slot->events->on_entered(slot->owner, slot);
    }
}

static int order_worker(struct slot *slot, struct zygote *zygote, struct hutch_err *err)
{
    const struct worker_plan *plan = &slot->sb.plan;
    struct zygote_request request = {
        .what = ZYGOTE_WORKER, .id = slot->id, .text_len = (uint32_t)slot->seccomp_len, .plan = *plan
    };
    int fds[7] = { slot->sb.pidfd };
    size_t n = 1;

    /* Nothing may be left out between those who know what belongs to a sandbox and the worker, who takes it on. */
    if ((plan->has_landlock && slot->landlock_fd < 0) || (plan->has_cgroup && slot->sb.cgroup.dirfd < 0) ||
        (plan->has_seccomp && slot->seccomp_len == 0))
        return hutch_err_set(err, EPROTO, "a sandbox came without what its worker needs");
    if (make_streams(slot, err) < 0)
        return -1;
    fds[n++] = slot->theirs[THEIR_JOB];
    fds[n++] = slot->theirs[THEIR_STDIN];
    fds[n++] = slot->theirs[THEIR_STDOUT];
    fds[n++] = slot->theirs[THEIR_STDERR];
    if (plan->has_landlock)
        fds[n++] = slot->landlock_fd;
    if (plan->has_cgroup)
        fds[n++] = slot->sb.cgroup.dirfd;
    if (hutch_watch_add(&slot->job, &slot->slots->core->loop, slot->supervisor->report_fd, EPOLLIN, on_job, slot, err) <
        0)
        return -1;
    if (hutch_link_send(&zygote->link, &request, sizeof(request), slot->seccomp, slot->seccomp_len, fds, n, err) < 0)
        return -1;
    hutch_patience_begin(&zygote->patience);
    return 0;
}

/* Where it waits for one that is ready. */
void hutch_slot_ask_zygote(struct slot *slot)
{
    struct zygote *zygote = slot->state == SLOT_READY ? hutch_zygotes_find(slot->slots->zygotes, slot->zygote_index)
                                                      : NULL;
    struct hutch_err err;

    if (!zygote)
        return;
    slot->zygote = zygote;
    zygote->n_forking++;
    hutch_slot_set_state(slot, SLOT_FORKING);
    if (order_worker(slot, zygote, &err) < 0) {
        hutch_slot_fail(slot, &err);
        return;
    }
    close_theirs(slot);
    hutch_fd_closep(&slot->landlock_fd);
    free(slot->seccomp);
    slot->seccomp = NULL;
}

void hutch_slot_take_forked(struct slot *slot, pid_t pid)
{
    if (slot->zygote)
        hutch_zygotes_release(slot->zygote);
    slot->zygote = NULL;
    if (slot->state != SLOT_FORKING)
        return;
    if (hutch_sandbox_order(&slot->sb, INIT_ADOPT, pid) < 0) {
        hutch_slot_fail(slot, NULL);
        return;
    }
    slot->since = hutch_clock_ms(); /* from here on it waits for process 1 and the worker */
    hutch_loop_advance_deadline(&slot->slots->core->loop, &slot->clock, slot->since + slot->slots->core->answer_ms);
}

/* --- use ---------------------------------------------------------------------------------------------------------- */

void hutch_slot_take(struct slot *slot, const char *data_path, struct slot_volume *volume,
                     const struct slot_events *events, void *owner)
{
    struct helper *h = slot->slots->helper;
    struct hutch_err err;
    int rc;

    slot->events = events;
    slot->owner = owner;
    slot->data_path = data_path;
    slot->given = volume;
    if (!data_path && hutch_core_is_removed(slot->slots->core, slot->data_dirfd)) { /* while it was in the pool */
        hutch_slot_fail(slot, NULL);
        return;
    }
    if (!data_path) {
        events->on_entered(owner, slot);
        return;
    }
    hutch_slot_set_state(slot, SLOT_OPENING);
    if (volume)
        rc = hutch_helper_open_volume(h, slot->id, volume->base_fd, 0, 0, slot->uid, slot->gid, &err);
    else
        rc = hutch_helper_open(h, slot->id, data_path, MOUNT_IDMAP, slot->uid, slot->gid, &err);
    if (rc < 0)
        hutch_slot_fail(slot, &err);
}

void hutch_slot_refuse(struct slot *slot, const struct hutch_err *why)
{
    hutch_slot_discard(slot);
    slot->events->on_refused(slot->owner, slot, why);
}

/* The volume that it was given is what it has from here on. */
static int adopt_volume(struct slot *slot, int *base_fd, struct hutch_err *err)
{
    auto_fd dirfd = fcntl(slot->given->dirfd, F_DUPFD_CLOEXEC, 3);

    if (*base_fd < 0 || dirfd < 0) {
        slot->given->is_lost = true; /* the one that the order took along is of no use any more */
        return hutch_err_set(err, EMFILE, "hold a data directory in memory");
    }
    hutch_fd_closep(&slot->given->base_fd);
    slot->given->base_fd = hutch_fd_take(base_fd);
    hutch_fd_closep(&slot->data_dirfd);
    hutch_fd_closep(&slot->volume_fd);
    slot->data_dirfd = hutch_fd_take(&dirfd);
    return 0;
}

void hutch_slot_take_opened(struct slot *slot, int fd, int *base_fd)
{
    struct launcher_request request = { .what = LAUNCHER_ATTACH, .id = slot->id, .spec_id = slot->template->id };
    struct hutch_err err;
    int rc = slot->given ? adopt_volume(slot, base_fd, &err) : hutch_slot_open_data(slot, &err);

    if (rc == 0 && !hutch_fd_is_same_file(fd, slot->data_dirfd)) /* the opener found it by its path, too */
        rc = hutch_err_set(&err, 0, "'%s' was replaced while the sandbox was made", slot->data_path);
    if (rc < 0) {
        hutch_slot_refuse(slot, &err);
        return;
    }
    memcpy(request.name, slot->name, sizeof(request.name));
    hutch_slot_set_state(slot, SLOT_ATTACHING);
    if (hutch_helper_order(slot->slots->helper, &request, &fd, 1, &err) < 0)
        hutch_slot_fail(slot, &err);
}

void hutch_slot_take_attached(struct slot *slot)
{
    if (slot->state != SLOT_ATTACHING)
        return;
    slot->is_attached = true;
    slot->since = hutch_clock_ms();
    if (hutch_sandbox_order(&slot->sb, INIT_ATTACH, 0) < 0)
        hutch_slot_fail(slot, NULL);
}

int hutch_slot_lower(struct slot *slot, const uint64_t limits[LIMIT_COUNT], struct hutch_err *err)
{
    int rc = hutch_sandbox_lower(&slot->sb, slot->template->spec.limits, limits, err);

    if (rc > 0)
        hutch_slot_set_state(slot, SLOT_LIMITING);
    return rc;
}

/* --- end ---------------------------------------------------------------------------------------------------------- */

static void close_all(struct slot *slot);

void hutch_slot_free(void *object)
{
    struct slot *slot = object;

    close_all(slot);
    hutch_loop_set_deadline(&slot->slots->core->loop, &slot->clock, LOOP_NEVER);
    hutch_fd_closep(&slot->data_dirfd);
    hutch_fd_closep(&slot->volume_fd);
    hutch_template_unref(slot->template);
    free(slot);
}

static void bury(struct slot *slot)
{
    hutch_slot_remove_data(slot);
    hutch_slot_return_ids(slot);
    TAILQ_REMOVE(&slot->slots->list, slot, link);
    hutch_slot_set_state(slot, SLOT_DEAD);
    hutch_loop_free_later(&slot->slots->core->loop, &slot->doomed, slot, hutch_slot_free);
}

static void close_all(struct slot *slot)
{
    struct watch *watches[] = { &slot->control, &slot->out, &slot->err_out, &slot->job, &slot->death };

    for (size_t i = 0; i < ARRAY_SIZE(watches); i++)
        hutch_watch_remove(watches[i]);
    hutch_look_cancel(&slot->count);
    while (slot->n_shut > 0)
        close(slot->shut[--slot->n_shut]);
    if (slot->supervisor) {
        slot->supervisor->on_close = slot->supervisor->out.on_close = slot->supervisor->err_out.on_close = NULL;
        give_supervisor(slot->slots, slot->supervisor); /* which closes what is open */
    }
    slot->supervisor = NULL;
    close_theirs(slot);
    hutch_fd_closep(&slot->landlock_fd);
    hutch_fd_closep(&slot->sb.control_fd); /* init ends, and the kernel ends everything else */
    hutch_fd_closep(&slot->sb.pidfd);
    hutch_cgroup_done(&slot->sb.cgroup);
    free(slot->seccomp);
    slot->seccomp = NULL;
}

void hutch_slot_discard(struct slot *slot)
{
    struct helper *h = slot->slots->helper;
    struct launcher_request request = { .what = LAUNCHER_DESTROY, .id = slot->id, .spec_id = slot->template->id };
    bool is_known = slot->state > SLOT_SOURCING;
    struct hutch_err err;

    if (slot->state >= SLOT_DESTROYING)
        return;
    if (slot->zygote)
        hutch_zygotes_release(slot->zygote);
    slot->zygote = NULL;
    hutch_sandbox_kill(&slot->sb);
    close_all(slot);
    hutch_slot_set_state(slot, SLOT_DESTROYING);
    memcpy(request.name, slot->name, sizeof(request.name));
    if (!is_known || slot->is_reaped || h->pid == 0)
        bury(slot);
    else if (hutch_helper_order(h, &request, NULL, 0, &err) < 0)
        hutch_log_debug("engine: %s", err.msg); /* asked again by the clock */
}

void hutch_slot_fail(struct slot *slot, const struct hutch_err *why)
{
    if (slot->state >= SLOT_DESTROYING)
        return;
    hutch_log_debug("engine: sandbox %s broke in state %d: %s", slot->name, (int)slot->state,
                    why ? why->msg : "the reason is not known");
    if (!is_building(slot))
        slot->slots->lost++;
    hutch_slot_discard(slot);
    slot->events->on_failed(slot->owner, slot, why);
}

/* --- the end of a run --------------------------------------------------------------------------------------------- */

static void tell_dead(struct slot *slot)
{
    slot->events->on_dead(slot->owner, slot);
}

static void on_death(struct watch *w, uint32_t events)
{
    (void)events;
    hutch_watch_remove(w); /* the owner may have more to wait for, and this one would tell again and again */
    tell_dead(w->owner);
}

void hutch_slot_await_death(struct slot *slot)
{
    struct hutch_err err;

    if (hutch_watch_add(&slot->death, &slot->slots->core->loop, slot->sb.pidfd, EPOLLIN, on_death, slot, &err) < 0)
        tell_dead(slot);
}

/* Has it taken apart while its owner waits for what it used. */
static bool order_reaping(struct slot *slot)
{
    struct launcher_request request = { .what = LAUNCHER_DESTROY, .id = slot->id, .spec_id = slot->template->id };
    struct hutch_err err;

    memcpy(request.name, slot->name, sizeof(request.name));
    if (hutch_helper_order(slot->slots->helper, &request, NULL, 0, &err) < 0)
        return false;
    slot->is_reaping = true;
    return true;
}

void hutch_slot_stop(struct slot *slot, enum end_reason reason)
{
    hutch_supervisor_end(slot->supervisor, reason);
    hutch_loop_advance_deadline(&slot->slots->core->loop, &slot->clock, 0);
}

void hutch_slot_end(struct slot *slot)
{
    bool has_ended = slot->supervisor->has_ended;

    hutch_sandbox_kill(&slot->sb);
    hutch_look_cancel(&slot->count); /* the last one, when they are dead, is the owner's */
    /* reaping it takes the cgroup away, and with it the word on who killed */
    if (slot->sb.cgroup.controllers && !has_ended) {
        hutch_cgroup_read_usage(&slot->sb.cgroup, &slot->usage);
        slot->has_usage = true;
    }
    hutch_slot_set_state(slot, SLOT_DYING);
    if (has_ended || !order_reaping(slot))
        hutch_slot_await_death(slot);
}

/* @usage NULL: not known. */
void hutch_slot_take_destroyed(struct slot *slot, const struct rusage *usage)
{
    bool was_asked = slot->is_reaping;

    slot->is_reaping = false;
    if (slot->state == SLOT_DESTROYING) {
        bury(slot);
    } else if (slot->state == SLOT_DYING && was_asked) {
        slot->is_reaped = true;
        if (usage)
            slot->supervisor->usage = *usage;
        tell_dead(slot);
    }
}

static bool waits_inside(const struct slot *slot)
{
    return slot->state == SLOT_STANDING || (slot->state == SLOT_ATTACHING && slot->is_attached) ||
           slot->state == SLOT_LIMITING || (slot->state == SLOT_FORKING && !slot->zygote);
}

void hutch_slot_name_awaited(const struct slot *slot, char *text, size_t size)
{
    const char *name = slot->slots->zygotes->configs->list[slot->zygote_index].name;

    if (slot->state == SLOT_READY || (slot->state == SLOT_FORKING && slot->zygote))
        snprintf(text, size, "the zygote '%.40s'", name);
    else if (waits_inside(slot))
        snprintf(text, size, "%s of a sandbox", slot->is_adopted && !slot->has_hello ? "the worker" : "process 1");
    else if (slot->state == SLOT_NEW && slot->waits_for_id)
        snprintf(text, size, "a host uid of its own");
    else
        snprintf(text, size, "the %s",
                 slot->state == SLOT_OPENING || slot->state == SLOT_SOURCING ? "opener"
                 : slot->state == SLOT_PREPARED ? "disk worker" /* which lists what lies in its directory */
                                                : "launcher");
}

/* Somebody has stopped it, or it hangs in the kernel; the next one need not. */
static void give_up(struct slot *slot)
{
    char who[64];

    hutch_slot_name_awaited(slot, who, sizeof(who));
    if (waits_inside(slot))
        hutch_core_note_hung(slot->slots->core, who);
    hutch_slot_fail(slot, NULL);
}

/* What is due, and when something is due next. */
static double check_clocks(struct slot *slot, double now)
{
    struct core *core = slot->slots->core;
    double due;

    if (slot->state != SLOT_RUNNING)
        slot->since += hutch_loop_stood_still(&core->loop); /* what it waits for may have been as still */
    due = slot->since + (waits_inside(slot) ? core->answer_ms : core->setup_ms);
    switch (slot->state) {
    case SLOT_NEW:
        if (!slot->waits_for_id)
            return LOOP_NEVER;
        hutch_slot_ask_launcher(slot);
        return now + ID_PAUSE_MS; /* or earlier, by hutch_slot_set_state() */
    case SLOT_READY:
    case SLOT_PREPARED:
    case SLOT_DEAD:
        return LOOP_NEVER; /* what it waits for has a clock of its own */
    case SLOT_RUNNING:
        due = now + hutch_supervisor_clocks(slot->supervisor);
        if (slot->supervisor->is_hung) {
            hutch_core_note_hung(core, "process 1 of a sandbox");
            slot->events->on_ready(slot->owner, slot, SUPERVISOR_CONTROL, 0); /* which is over */
            return LOOP_NEVER;
        }
        /* the same moment as that of others, to the microsecond */
        if (slot->supervisor->idle_ms > 0 && slot->supervisor->kill_at == 0 && !slot->supervisor->is_counting)
            due = slot->supervisor->next_data;
        return due;
    case SLOT_SOURCING:
    case SLOT_BUILDING:
    case SLOT_STANDING:
    case SLOT_FORKING:
    case SLOT_OPENING:
    case SLOT_ATTACHING:
    case SLOT_LIMITING:
        if (now < due)
            return due;
        give_up(slot);
        return LOOP_NEVER;
    case SLOT_DYING:
        if (now < due)
            return due;
        tell_dead(slot); /* it has no way to live, and its owner waits */
        return LOOP_NEVER;
    case SLOT_DESTROYING:
        if (now < due)
            return due;
        slot->may_live = true;
        bury(slot);
        return LOOP_NEVER;
    }
    return LOOP_NEVER;
}

static void on_due(void *owner, double now)
{
    struct slot *slot = owner;
    double due = check_clocks(slot, now);

    if (slot->state != SLOT_DEAD)
        hutch_loop_advance_deadline(&slot->slots->core->loop, &slot->clock, due);
}

#include "runtime/engine/engine_priv.h"

#include "runtime/cell/frame.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "sandbox/fdpass.h"
#include "sandbox/log.h"
#include "runtime/text/nbjson.h"
#include "sandbox/rmtree.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define STEP_MS 30000     /* for what the interpreter has to do, and init */
#define STATES_LOOK_MS 500
#define STATES_SHARE 20   /* a look may take one part in so many of the time */
#define STATES_SLACK (1u << 20)
#define MAX_LOST_TEXT 16384
#define MAX_FRAMES 16     /* of a checkpoint process at once */
#define MAX_CHECKPOINT_TEXT (64u << 10)

static const char spawn_order[] = "\x0e\0\0\0{\"do\":\"spawn\"}";

static void advance(struct session *s);

/* --- checkpoint processes --------------------------------------------------------------------------------------------------- */

static struct checkpoint *find(struct session *s, uint64_t id, bool is_branch)
{
    struct checkpoint *p;

    TAILQ_FOREACH(p, &s->checkpoints, link)
        if (p->id == id && p->is_branch == is_branch)
            return p;
    return NULL;
}

/* Behind whatever the disk worker is to do with it before. */
static void remove_files(struct session *s, const char *name)
{
    struct hutch_err err;

    if (!hutch_helper_disk_remove(s->engine, name) && hutch_rmtree(s->engine->data_root_fd, name, &err) < 0 && err.errnum != ENOENT)
        hutch_log_debug("engine: %s", err.msg);
}

/* Its process ends when it sees the end of its socket. */
static void release(struct checkpoint *p)
{
    hutch_watch_remove(&p->watch);
    hutch_fd_closep(&p->fd);
    hutch_cell_frames_done(&p->frames);
    hutch_loop_free_later(&p->session->engine->loop, &p->doomed, p, free);
}

static void forget(struct session *s, struct checkpoint *p)
{
    TAILQ_REMOVE(&s->checkpoints, p, link);
    s->n_checkpoints--;
    s->held_bytes -= p->bytes;
    release(p);
}

static void note_frame(struct checkpoint *p, const char *text, size_t len)
{
    struct session *s = p->session;
    struct cJSON *frame;
    struct hutch_err err;
    const char *is;

    if (hutch_cell_frame_parse(text, len, &frame, &err) < 0) {
        p->is_dead = true;
        return;
    }
    is = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(frame, "is"));
    if (is && strcmp(is, "here") == 0 && p->pid == 0) {
        int64_t pid;

        if (hutch_nbjson_get_integer(cJSON_GetObjectItemCaseSensitive(frame, "pid"), &pid) && pid > 1 && pid < INT32_MAX)
            p->pid = (pid_t)pid;
    } else if (is && strcmp(is, "failed") == 0 && p == s->chosen) {
        s->has_failed = true;
    }
    cJSON_Delete(frame);
}

static void on_checkpoint_ready(struct watch *w, uint32_t events)
{
    struct checkpoint *p = w->owner;
    struct session *s = p->session;
    struct hutch_err err;
    const char *text;
    size_t len;
    int rc, n = 0;

    (void)events;
    do {
        rc = hutch_cell_frames_next(&p->frames, &text, &len, &err);
        if (rc == CELL_FRAME_READY)
            note_frame(p, text, len);
        else if (rc != CELL_FRAME_NONE)
            p->is_dead = true;
        if (p->is_dead)
            hutch_watch_remove(&p->watch);
        advance(s); /* which may release it */
    } while (p->fd >= 0 && !p->is_dead && hutch_cell_frames_has_one(&p->frames) && ++n < MAX_FRAMES);
    if (p->fd >= 0 && (n == MAX_FRAMES || p->frames.len > MAX_CHECKPOINT_TEXT)) { /* it has two things to say in its life */
        p->is_dead = true;
        hutch_watch_remove(&p->watch);
    }
}

static int make_pair(int *ret_mine, int *ret_theirs, struct hutch_err *err)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return hutch_err_set(err, errno, "make a socket for a copy of the interpreter");
    if (fcntl(pair[0], F_SETFL, O_NONBLOCK) < 0) {
        hutch_err_set(err, errno, "make a socket non-blocking");
        close(pair[0]);
        close(pair[1]);
        return -1;
    }
    *ret_mine = pair[0];
    *ret_theirs = pair[1];
    return 0;
}

/* --- the steps ---------------------------------------------------------------------------------------------------------- */

static int order_park(struct session *s, uint64_t id, bool is_branch, struct hutch_err *err)
{
    struct checkpoint *p = calloc(1, sizeof(*p));
    struct cJSON *order;
    auto_fd theirs = -1;
    int rc;

    if (!p)
        return hutch_err_set(err, ENOMEM, "copy an interpreter");
    p->fd = -1;
    p->watch.fd = -1;
    p->session = s;
    p->id = id;
    p->is_branch = is_branch;
    snprintf(p->name, sizeof(p->name), "c%x-%x", (unsigned)s->id, (unsigned)id);
    s->made = p;
    if (make_pair(&p->fd, &theirs, err) < 0)
        return -1;
    p->frames = (struct cell_frames)CELL_FRAMES_INIT;
    p->frames.fd = p->fd;
    if (hutch_watch_add(&p->watch, &s->engine->loop, p->fd, EPOLLIN, on_checkpoint_ready, p, err) < 0)
        return -1;
    order = cJSON_CreateObject();
    rc = order && cJSON_AddStringToObject(order, "do", "park") ? hutch_interpreter_send(s->run->interpreter, order, theirs, err)
                                                               : hutch_err_set(err, ENOMEM, "copy an interpreter");
    cJSON_Delete(order);
    s->step = STEP_PARK;
    return rc;
}

static void on_next_event(void *user, const struct cell_event *event)
{
    struct session *s = user;
    int64_t pid;

    if (event->kind == CELL_OTHER && strcmp(event->is, "here") == 0 && s->next_pid == 0 &&
        hutch_nbjson_get_integer(cJSON_GetObjectItemCaseSensitive(event->frame, "pid"), &pid) && pid > 1 && pid < INT32_MAX)
        s->next_pid = (pid_t)pid;
}

static void on_next_turn(void *user)
{
    advance(user);
}

static int order_spawn(struct session *s, struct hutch_err *err)
{
    auto_fd theirs = -1;
    int mine;

    if (s->chosen->is_dead)
        return hutch_err_set(err, 0, "its process has been killed");
    if (make_pair(&mine, &theirs, err) < 0)
        return -1;
    s->next = hutch_interpreter_create(s->run->slot, mine, s->token, on_next_event, on_next_turn, s, err);
    if (!s->next)
        return -1;
    s->next_pid = 0;
    s->step = STEP_SPAWN;
    if (hutch_fdpass_send(s->chosen->fd, spawn_order, sizeof(spawn_order) - 1, &theirs, 1, MSG_DONTWAIT) != sizeof(spawn_order) - 1)
        return hutch_err_set(err, errno, "wake a parked interpreter");
    return 0;
}

static int room_for_files(const struct session *s, struct snapshot_bounds *ret, struct hutch_err *err)
{
    *ret = (struct snapshot_bounds){ .max_entries = s->run->limits[LIMIT_DATA_FILES] };
    if (!s->checkpoint_bytes)
        return 0;
    if (s->held_bytes >= s->checkpoint_bytes)
        return hutch_err_set(err, 0, "the files of checkpoints and branches take %" PRIu64 " bytes already, which is the most that they may",
                             s->held_bytes);
    ret->max_bytes = s->checkpoint_bytes - s->held_bytes;
    return 0;
}

/* Has the files copied or changed over, by the disk worker; where there is none, here and now. */
static void send_files_order(struct session *s)
{
    struct disk_request *r = &s->files_order;
    struct disk_reply reply = { .id = r->id };
    int store = s->engine->data_root_fd, rc = -1;

    if (hutch_helper_disk_order(s->engine, r, s->data_dirfd))
        return;
    switch (r->what) {
    case DISK_TAKE:
        rc = hutch_snapshot_take(s->data_dirfd, store, r->name, &r->bounds, &reply.report, &reply.err);
        break;
    case DISK_RESTORE:
        rc = hutch_snapshot_restore(s->data_dirfd, store, r->name, &r->bounds, &reply.report, &reply.err);
        break;
    case DISK_SWITCH:
        rc = hutch_snapshot_switch(s->data_dirfd, store, r->name, r->keep, &reply.report, &reply.err);
        break;
    }
    reply.has_failed = rc < 0;
    s->files_reply = reply;
    s->has_files_reply = true;
}

static int order_files(struct session *s, enum disk_order what, const struct checkpoint *state, const struct checkpoint *keep,
                       struct hutch_err *err)
{
    struct disk_request *r = &s->files_order;

    *r = (struct disk_request){ .what = what, .id = hutch_engine_make_id(s->engine) };
    if (what == DISK_TAKE && room_for_files(s, &r->bounds, err) < 0)
        return -1;
    memcpy(r->name, state->name, sizeof(state->name));
    if (keep)
        memcpy(r->keep, keep->name, sizeof(keep->name));
    s->step = STEP_FILES;
    s->stop_at = 0; /* others' orders may come before it, and it is bounded itself */
    s->has_files_reply = false;
    send_files_order(s);
    return 0;
}

static int order_follow(struct session *s, struct hutch_err *err)
{
    struct sandbox *sb = &s->run->slot->sb;
    struct checkpoint *p;
    int rc = 0;

    TAILQ_FOREACH(p, &s->checkpoints, link)
        if (!p->is_dead && p->pid > 0 && !(p == s->chosen && p->is_branch)) /* a branch goes on in its copy */
            rc |= hutch_sandbox_order(sb, INIT_SPARE, p->pid, -1);
    if (s->made)
        rc |= hutch_sandbox_order(sb, INIT_SPARE, s->made->pid, -1);
    s->run->slot->supervisor->has_followed = false;
    rc |= hutch_sandbox_order(sb, INIT_FOLLOW, s->next_pid, -1);
    s->step = STEP_FOLLOW;
    s->stop_at = hutch_clock_ms() + STEP_MS;
    hutch_loop_advance_deadline(&s->engine->loop, &s->clock, s->stop_at);
    return rc < 0 ? hutch_err_set(err, errno, "tell init of another worker") : 0;
}

/* --- what lies in the store --------------------------------------------------------------------------------------------- */

/* Disk space of a state's files. */
static uint64_t measure(const struct session *s, const struct checkpoint *p)
{
    struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;
    auto_fd fd = openat(s->engine->data_root_fd, p->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    uint64_t bytes = 0, entries;
    struct hutch_err err;

    if (fd < 0 || hutch_collect_usage(fd, &bounds, &bytes, &entries, &err) < 0)
        return 0;
    return bytes;
}

static bool has_stirred(struct session *s)
{
    const struct slot *slot = s->run->slot;
    uint64_t before = s->states_mark;

    s->states_mark = slot->sb.wants_samples ? slot->supervisor->n_samples : hutch_cgroup_read_cpu(&slot->sb.cgroup);
    return !s->is_resting || s->states_mark != before;
}

/* The one whose turn it is among those that may be in somebody's reach; NULL: there is none. */
static struct checkpoint *next_in_reach(struct session *s)
{
    struct checkpoint *p, *next = NULL;

    TAILQ_FOREACH(p, &s->checkpoints, link)
        if (p->is_in_reach && (!next || p->looked_at < next->looked_at))
            next = p;
    return next;
}

double hutch_checkpoint_clocks(struct session *s, double now)
{
    struct checkpoint *p;
    double took;

    if (s->n_checkpoints == 0 || !s->run->interpreter || s->run->slot->state != SLOT_RUNNING || !(p = next_in_reach(s)))
        return LOOP_NEVER;
    if (now < s->states_at)
        return s->states_at;
    if (has_stirred(s) && measure(s, p) > p->disk_bytes + STATES_SLACK)
        hutch_supervisor_end(s->run->slot->supervisor, END_DATA);
    p->looked_at = now;
    took = (hutch_clock_ms() - now) * STATES_SHARE;
    s->states_at = now + (took > STATES_LOOK_MS ? took : STATES_LOOK_MS);
    return s->states_at;
}

/* --- the end of an order ------------------------------------------------------------------------------------------------ */

static void clear(struct session *s)
{
    s->step = STEP_NONE;
    s->made = s->chosen = NULL;
    s->next = NULL;
    s->next_pid = 0;
    s->has_parked = s->has_failed = s->has_files_reply = false;
    s->stop_at = 0;
    free(s->lost);
    s->lost = NULL;
}

static void answer(struct session *s, const struct hutch_err *why, uint64_t id, uint64_t bytes)
{
    struct hutch_reply reply = {
        .size = sizeof(reply),
        .ok = !why,
        .message = why ? why->msg : "",
        .id = why ? 0 : id,
        .lost = s->lost && !why ? s->lost : "[]",
        .ms = hutch_clock_ms() - s->t_step,
        .bytes = bytes,
    };

    hutch_session_answer(s, &reply);
}

static void fail(struct session *s, const struct hutch_err *why)
{
    struct hutch_err err = *why;
    static const char *const doing[] = {
        [ORDER_CHECKPOINT] = "make a checkpoint", [ORDER_FORK] = "make a branch", [ORDER_ROLLBACK] = "go back to a checkpoint",
        [ORDER_SWITCH] = "change to a branch", [ORDER_DROP] = "drop a checkpoint or branch",
    };

    hutch_err_wrap(&err, "%s", doing[TAILQ_FIRST(&s->orders)->kind]);
    if (s->step == STEP_FOLLOW) /* half of it is done, and cannot be undone: an end is better than an interpreter whose files are another's */
        hutch_supervisor_end(s->run->slot->supervisor, END_CANCELLED);
    hutch_interpreter_free(s->next); /* which ends with its socket */
    if (s->made) {
        if (s->step == STEP_FILES || s->step == STEP_FOLLOW) /* when that order is done */
            remove_files(s, s->made->name);
        release(s->made);
    }
    answer(s, &err, 0, 0);
}

/* What was made is there to stay. */
static void keep_made(struct session *s, uint64_t bytes)
{
    s->made->bytes = bytes;
    s->held_bytes += bytes;
    TAILQ_INSERT_TAIL(&s->checkpoints, s->made, link);
    s->n_checkpoints++;
    s->made = NULL;
}

static void finish_copy(struct session *s)
{
    uint64_t bytes = s->files_reply.report.bytes_cloned + s->files_reply.report.bytes_copied, id = s->made->id;

    keep_made(s, bytes);
    answer(s, NULL, id, bytes);
}

/* The other interpreter is the worker, and all that belonged to the one before is dead. */
static void finish_change(struct session *s)
{
    struct order *order = TAILQ_FIRST(&s->orders);
    uint64_t id = order->target, bytes = s->files_reply.report.bytes_cloned + s->files_reply.report.bytes_copied;

    hutch_session_take_interpreter(s, s->next);
    s->next = NULL;
    if (order->kind == ORDER_SWITCH) {
        s->made->is_in_reach = true;
        s->made->disk_bytes = s->kept_bytes;
        keep_made(s, s->kept_bytes);
        forget(s, s->chosen); /* its files are no state any more */
        s->branch = id;
    }
    s->has_foreign_files = true;
    answer(s, NULL, id, bytes);
}

/* --- from step to step -------------------------------------------------------------------------------------------------- */

static int after_park(struct session *s, struct hutch_err *err)
{
    return TAILQ_FIRST(&s->orders)->kind == ORDER_SWITCH ? order_spawn(s, err) : order_files(s, DISK_TAKE, s->made, NULL, err);
}

static int after_spawn(struct session *s, struct hutch_err *err)
{
    struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;
    uint64_t entries;

    if (TAILQ_FIRST(&s->orders)->kind == ORDER_ROLLBACK)
        return order_files(s, DISK_RESTORE, s->chosen, NULL, err);
    if (hutch_collect_usage(s->data_dirfd, &bounds, &s->kept_bytes, &entries, err) < 0)
        return -1;
    return order_files(s, DISK_SWITCH, s->chosen, s->made, err);
}

static int after_files(struct session *s, struct hutch_err *err)
{
    if (s->files_reply.has_failed) {
        *err = s->files_reply.err;
        err->msg[sizeof(err->msg) - 1] = '\0';
        return -1;
    }
    if (s->next)
        return order_follow(s, err);
    finish_copy(s);
    return 0;
}

static int after_follow(struct session *s, struct hutch_err *err)
{
    s->run->slot->supervisor->has_followed = false;
    if (s->run->slot->supervisor->followed != s->next_pid)
        return hutch_err_set(err, 0, "the copy of the interpreter is not process 1's child");
    finish_change(s);
    return 0;
}

/* Goes on as far as what has come allows. */
static void advance(struct session *s)
{
    struct hutch_err err;
    int rc = 0;

    if (s->is_advancing || s->step == STEP_NONE || !s->run->interpreter || s->run->interpreter->is_over)
        return;
    s->is_advancing = true;
    if (s->step == STEP_PARK && s->has_failed)
        rc = hutch_err_set(&err, 0, "%s", s->lost ? s->lost : "the interpreter cannot be copied");
    else if (s->step == STEP_PARK && s->made->is_dead)
        rc = hutch_err_set(&err, 0, "the copy of the interpreter ended");
    else if (s->step == STEP_PARK && s->has_parked && s->made->pid > 0)
        rc = after_park(s, &err);
    if (rc == 0 && s->step == STEP_SPAWN && (s->has_failed || s->chosen->is_dead || s->next->has_left || s->next->is_refused))
        rc = hutch_err_set(&err, 0, "the copy of the interpreter ended");
    else if (rc == 0 && s->step == STEP_SPAWN && s->next_pid > 0)
        rc = after_spawn(s, &err);
    if (rc == 0 && s->step == STEP_FILES && s->has_files_reply)
        rc = after_files(s, &err);
    if (rc == 0 && s->step == STEP_FOLLOW && s->run->slot->supervisor->has_followed)
        rc = after_follow(s, &err);
    s->is_advancing = false;
    if (rc < 0)
        fail(s, &err);
}

/* The sentences of "lost" as text, or why it failed. */
static char *text_of_lost(const struct cJSON *lost)
{
    size_t len = 0;
    char *text;

    if (!cJSON_IsArray(lost))
        return NULL;
    for (const struct cJSON *item = lost->child; item; item = item->next)
        if (!cJSON_IsString(item))
            return NULL;
    text = hutch_nbjson_print(lost, NBJSON_COMPACT, &len);
    if (text && len > MAX_LOST_TEXT) {
        free(text);
        text = strdup("[\"more than can be told\"]");
    }
    return text;
}

void hutch_checkpoint_hear(struct session *s, const struct cell_event *event)
{
    if (s->step != STEP_PARK || s->has_parked || s->has_failed)
        return;
    if (strcmp(event->is, "parked") == 0) {
        s->has_parked = true;
        s->lost = text_of_lost(cJSON_GetObjectItemCaseSensitive(event->frame, "lost"));
    } else if (strcmp(event->is, "failed") == 0) {
        const struct cJSON *why = cJSON_GetObjectItemCaseSensitive(event->frame, "why");

        s->has_failed = true;
        s->lost = cJSON_IsString(why) ? hutch_nbjson_c_text(why) : NULL;
    }
}

void hutch_checkpoint_turn(struct session *s)
{
    advance(s);
}

void hutch_checkpoint_on_files(struct hutch_engine *engine, const struct disk_reply *reply)
{
    struct session *s, *next;

    for (s = TAILQ_FIRST(&engine->sessions); s; s = next) {
        next = TAILQ_NEXT(s, link);
        if (s->step != STEP_FILES || s->has_files_reply || (reply && s->files_order.id != reply->id))
            continue;
        if (reply) {
            s->files_reply = *reply;
            s->has_files_reply = true;
        } else { /* the disk worker is gone: such an order goes on where it was */
            send_files_order(s);
        }
        advance(s);
    }
}

void hutch_checkpoint_give_up(struct session *s)
{
    struct hutch_err err;

    hutch_err_set(&err, ETIMEDOUT, "wait for %s", s->step == STEP_FOLLOW ? "process 1" : "the interpreter");
    fail(s, &err);
}

/* --- orders ------------------------------------------------------------------------------------------------------------- */

static int drop(struct session *s, uint64_t id, struct hutch_err *err)
{
    struct checkpoint *p = find(s, id, false);

    if (!p)
        p = find(s, id, true);
    if (!p && id == s->branch)
        return hutch_err_set(err, 0, "it is the branch that the session is in");
    if (!p)
        return hutch_err_set(err, 0, "there is no checkpoint or branch %" PRIu64, id);
    remove_files(s, p->name);
    forget(s, p);
    return 0;
}

static int make_copy(struct session *s, bool is_branch, struct hutch_err *err)
{
    struct snapshot_bounds bounds;

    if (s->n_checkpoints >= s->max_checkpoints)
        return hutch_err_set(err, 0, "there are %u checkpoints and branches, which is the most that may be", s->n_checkpoints);
    if (room_for_files(s, &bounds, err) < 0)
        return -1;
    return order_park(s, ++s->next_copy, is_branch, err);
}

static int begin(struct session *s, const struct order *order, struct hutch_err *err)
{
    bool is_switch = order->kind == ORDER_SWITCH;

    switch (order->kind) {
    case ORDER_CHECKPOINT:
    case ORDER_FORK:
        return make_copy(s, order->kind == ORDER_FORK, err);
    case ORDER_ROLLBACK:
    case ORDER_SWITCH:
        if (is_switch && order->target == s->branch)
            return 0;
        s->chosen = find(s, order->target, is_switch);
        if (!s->chosen)
            return hutch_err_set(err, 0, "there is no %s %" PRIu64, is_switch ? "branch" : "checkpoint", order->target);
        return is_switch ? order_park(s, s->branch, true, err) : order_spawn(s, err);
    case ORDER_DROP:
        return drop(s, order->target, err);
    case ORDER_CELL:
        break;
    }
    return 0;
}

void hutch_checkpoint_begin(struct session *s, const struct order *order)
{
    struct hutch_err err;

    clear(s);
    s->t_step = hutch_clock_ms();
    s->stop_at = s->t_step + STEP_MS;
    hutch_loop_advance_deadline(&s->engine->loop, &s->clock, s->stop_at);
    if (begin(s, order, &err) < 0)
        fail(s, &err);
    else if (s->step == STEP_NONE)
        answer(s, NULL, order->target, 0);
    else
        advance(s);
}

void hutch_checkpoint_clear(struct session *s)
{
    clear(s);
}

void hutch_checkpoint_drop_all(struct session *s, bool removes_files)
{
    struct checkpoint *p;

    hutch_interpreter_free(s->next);
    if (s->made) {
        if (removes_files)
            remove_files(s, s->made->name);
        release(s->made);
    }
    clear(s);
    while ((p = TAILQ_FIRST(&s->checkpoints))) {
        if (removes_files)
            remove_files(s, p->name);
        forget(s, p);
    }
    s->branch = 0;
}

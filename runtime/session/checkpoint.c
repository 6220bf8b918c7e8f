#include "runtime/session/checkpoint.h"

#include "runtime/cell/frame.h"
#include "runtime/data/snapshot.h"
#include "runtime/data/changes.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "sandbox/fdpass.h"
#include "sandbox/log.h"
#include "runtime/text/json_write.h"
#include "runtime/text/nbjson.h"
#include "runtime/session/session.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define STEP_MS 30000     /* for what the interpreter has to do, and init */
#define STATES_CHECK_MS 500
#define STATES_SHARE 20   /* a look may take one part in so many of the time */
#define STATES_SLACK (1u << 20)
#define MAX_LOST_TEXT 16384
#define MAX_FRAMES 16     /* of a checkpoint process at once */
#define MAX_CHECKPOINT_TEXT (64u << 10)

static const char spawn_order[] = "\x0e\0\0\0{\"do\":\"spawn\"}";

/* A copy of the interpreter that does nothing but make copies of itself, and the files that belong to it. */
struct checkpoint {
    TAILQ_ENTRY(checkpoint) link;
    struct session *session;
    uint64_t id;
    bool is_branch, is_dead;
    bool is_fresh;       /* the interpreter that it copies began anew, and no cell had told that yet */
    pid_t pid;           /* as it says, in the sandbox; 0: not yet */
    int fd;              /* owned; its socket */
    struct watch watch;
    struct cell_frames frames;
    char name[32];       /* of the state of the files, below the data root */
    uint64_t bytes;      /* of them */
    struct contexts contexts; /* of the interpreter that it copies */
    bool is_in_reach;    /* the files are those that lay in /mnt/data: a process inside may hold some of them open */
    uint64_t disk_bytes; /* then: what they took when they were moved, which stays so; UINT64_MAX: not known yet */
    double checked_at;   /* when that was last checked */
    struct doomed doomed;
};

static void advance(struct session *s);

/* --- checkpoint processes ----------------------------------------------------------------------------------------- */

static struct checkpoint *find(struct session *s, uint64_t id, bool is_branch)
{
    struct checkpoint *p;

    TAILQ_FOREACH(p, &s->checkpoints.list, link)
        if (p->id == id && p->is_branch == is_branch)
            return p;
    return NULL;
}

/* Behind whatever the disk worker is to do with it before. */
static void remove_files(struct session *s, const char *name)
{
    hutch_helper_remove_directory(s->sessions->helper, name);
}

/* Its process ends when it sees the end of its socket. */
static void release(struct checkpoint *p)
{
    hutch_watch_remove(&p->watch);
    hutch_fd_closep(&p->fd);
    hutch_cell_frames_done(&p->frames);
    hutch_contexts_done(&p->contexts);
    hutch_loop_free_later(&p->session->sessions->core->loop, &p->doomed, p, free);
}

static void forget(struct session *s, struct checkpoint *p)
{
    if (p->is_branch && p->id == s->checkpoints.looked_at && s->checkpoints.look.id != 0) {
        hutch_look_cancel(&s->checkpoints.look); /* the next state of that number is another one */
        hutch_loop_advance_deadline(&s->sessions->core->loop, &s->clock, hutch_clock_ms() + STATES_CHECK_MS);
    }
    TAILQ_REMOVE(&s->checkpoints.list, p, link);
    s->checkpoints.n--;
    s->checkpoints.held_bytes -= p->bytes;
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

        if (hutch_nbjson_get_integer(cJSON_GetObjectItemCaseSensitive(frame, "pid"), &pid) && pid > 1 &&
            pid < INT32_MAX)
            p->pid = (pid_t)pid;
    } else if (is && strcmp(is, "failed") == 0 && p == s->checkpoints.chosen) {
        s->checkpoints.has_failed = true;
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
    /* it has two things to say in its life */
    if (p->fd >= 0 && (n == MAX_FRAMES || p->frames.len > MAX_CHECKPOINT_TEXT)) {
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
    hutch_fdpass_forbid(pair[0]); /* the program has the other end, as in slot.c */
    *ret_mine = pair[0];
    *ret_theirs = pair[1];
    return 0;
}

/* --- the steps ---------------------------------------------------------------------------------------------------- */

/* Tells the session's interpreter to @what. */
static int tell(struct session *s, const char *what, int fd, struct hutch_err *err)
{
    struct cJSON *order = cJSON_CreateObject();
    int rc = order && cJSON_AddStringToObject(order, "do", what)
                 ? hutch_interpreter_send(s->interpreter, order, fd, err)
                 : hutch_err_set(err, ENOMEM, "tell an interpreter what to do");

    cJSON_Delete(order);
    return rc;
}

static int order_park(struct session *s, uint64_t id, bool is_branch, struct hutch_err *err)
{
    struct checkpoint *p = calloc(1, sizeof(*p));
    auto_fd theirs = -1;

    if (!p)
        return hutch_err_set(err, ENOMEM, "copy an interpreter");
    p->fd = -1;
    p->watch.fd = -1;
    p->session = s;
    p->id = id;
    p->is_branch = is_branch;
    p->is_fresh = s->is_fresh;
    snprintf(p->name, sizeof(p->name), "c%x-%x", (unsigned)s->id, (unsigned)id);
    s->checkpoints.made = p;
    if (hutch_contexts_copy(&s->contexts, &p->contexts, err) < 0)
        return -1;
    if (make_pair(&p->fd, &theirs, err) < 0)
        return -1;
    p->frames = (struct cell_frames)CELL_FRAMES_INIT;
    p->frames.fd = p->fd;
    if (hutch_watch_add(&p->watch, &s->sessions->core->loop, p->fd, EPOLLIN, on_checkpoint_ready, p, err) < 0)
        return -1;
    s->checkpoints.step = STEP_PARK;
    return tell(s, "park", theirs, err);
}

static void on_next_event(void *user, const struct cell_event *event)
{
    struct session *s = user;
    int64_t pid;

    if (event->kind == CELL_OTHER && strcmp(event->is, "here") == 0 && s->checkpoints.next_pid == 0 &&
        hutch_nbjson_get_integer(cJSON_GetObjectItemCaseSensitive(event->frame, "pid"), &pid) && pid > 1 &&
        pid < INT32_MAX)
        s->checkpoints.next_pid = (pid_t)pid;
}

static void on_next_turn(void *user)
{
    advance(user);
}

static int order_spawn(struct session *s, struct hutch_err *err)
{
    auto_fd theirs = -1;
    int mine;

    if (s->checkpoints.chosen->is_dead)
        return hutch_err_set(err, 0, "its process has been killed");
    if (make_pair(&mine, &theirs, err) < 0)
        return -1;
    s->checkpoints.next = hutch_interpreter_create(s->run->slot, mine, s->token, on_next_event, on_next_turn, s, err);
    if (!s->checkpoints.next)
        return -1;
    s->checkpoints.next_pid = 0;
    s->checkpoints.step = STEP_SPAWN;
    if (hutch_fdpass_send(s->checkpoints.chosen->fd, spawn_order, sizeof(spawn_order) - 1, &theirs, 1, MSG_DONTWAIT) !=
        sizeof(spawn_order) - 1)
        return hutch_err_set(err, errno, "wake a parked interpreter");
    return 0;
}

static int room_for_files(const struct session *s, struct snapshot_bounds *ret, struct hutch_err *err)
{
    *ret = (struct snapshot_bounds){ .max_entries = s->run->limits[LIMIT_DATA_FILES] };
    if (!s->checkpoints.max_bytes)
        return 0;
    if (s->checkpoints.held_bytes >= s->checkpoints.max_bytes)
        return hutch_err_set(err, 0, "the files of checkpoints and branches take %" PRIu64 " bytes already, which is "
                                                                                           "the most that they may",
                             s->checkpoints.held_bytes);
    ret->max_bytes = s->checkpoints.max_bytes - s->checkpoints.held_bytes;
    return 0;
}

bool hutch_checkpoints_survive(const struct session *s)
{
    const struct checkpoint *p;

    if (s->checkpoints.step >= STEP_FILES)
        return false;
    TAILQ_FOREACH(p, &s->checkpoints.list, link)
        if (!p->is_dead)
            return true;
    return false;
}

/* Has the files copied or changed over, by the disk worker; where there is none, here and now. */
static void send_files_order(struct session *s)
{
    struct disk_request *r = &s->checkpoints.files_order;
    struct disk_reply reply = { .id = r->id };
    int store = s->sessions->core->data_root_fd, rc = -1;

    if (hutch_helper_order_files(s->sessions->helper, r, s->data.dirfd, -1))
        return;
    switch (r->what) {
    case DISK_TAKE:
        rc = hutch_snapshot_take(s->data.dirfd, store, r->name, &r->bounds, &reply.report, &reply.err);
        break;
    case DISK_RESTORE:
        rc = hutch_snapshot_restore(s->data.dirfd, store, r->name, r->flags, &r->bounds, &reply.report, &reply.err);
        break;
    case DISK_SWITCH:
        rc = hutch_snapshot_switch(s->data.dirfd, store, r->name, r->keep, r->flags, &reply.report, &reply.err);
        break;
    }
    reply.has_failed = rc < 0;
    s->checkpoints.files_reply = reply;
    s->checkpoints.has_files_reply = true;
}

static int order_files(struct session *s, enum disk_order what, const struct checkpoint *state,
                       const struct checkpoint *keep, struct hutch_err *err)
{
    struct disk_request *r = &s->checkpoints.files_order;

    *r = (struct disk_request){ .what = what,
                                .id = hutch_core_make_id(s->sessions->core),
                                .flags = hutch_session_data_is_in_memory(&s->data) ? SNAPSHOT_EMPTIES : 0 };
    if (what == DISK_TAKE && room_for_files(s, &r->bounds, err) < 0)
        return -1;
    memcpy(r->name, state->name, sizeof(state->name));
    if (keep)
        memcpy(r->keep, keep->name, sizeof(keep->name));
    s->checkpoints.step = STEP_FILES;
    s->checkpoints.stop_at = 0; /* others' orders may come before it, and it is bounded itself */
    s->checkpoints.has_files_reply = false;
    send_files_order(s);
    return 0;
}

static int order_follow(struct session *s, struct hutch_err *err)
{
    struct sandbox *sb = &s->run->slot->sb;
    struct checkpoint *p;
    int rc = 0;

    TAILQ_FOREACH(p, &s->checkpoints.list, link)
        /* a branch goes on in its copy */
        if (!p->is_dead && p->pid > 0 && !(p == s->checkpoints.chosen && p->is_branch))
            rc |= hutch_sandbox_order(sb, INIT_SPARE, p->pid);
    if (s->checkpoints.made)
        rc |= hutch_sandbox_order(sb, INIT_SPARE, s->checkpoints.made->pid);
    s->run->slot->supervisor->has_followed = false;
    hutch_processes_note_lost(s);
    hutch_processes_blame(s, "the session went back to another copy of its interpreter, which ended all its processes");
    rc |= hutch_sandbox_order(sb, INIT_FOLLOW, s->checkpoints.next_pid);
    s->checkpoints.step = STEP_FOLLOW;
    s->checkpoints.stop_at = hutch_clock_ms() + STEP_MS;
    hutch_loop_advance_deadline(&s->sessions->core->loop, &s->clock, s->checkpoints.stop_at);
    return rc < 0 ? hutch_err_set(err, errno, "tell init of another worker") : 0;
}

/* --- what lies in the store --------------------------------------------------------------------------------------- */

static bool has_changed(struct session *s)
{
    const struct slot *slot = s->run->slot;
    uint64_t before = s->checkpoints.states_mark;

    s->checkpoints.states_mark = slot->sb.wants_samples ? slot->supervisor->n_samples
                                                        : hutch_cgroup_read_cpu(&slot->sb.cgroup);
    return !s->is_idle || s->checkpoints.states_mark != before;
}

/* The one whose turn it is among those that may be in somebody's reach; NULL: there is none. */
static struct checkpoint *next_in_reach(struct session *s)
{
    struct checkpoint *p, *next = NULL;

    TAILQ_FOREACH(p, &s->checkpoints.list, link)
        if (p->is_in_reach && (!next || p->checked_at < next->checked_at))
            next = p;
    return next;
}

static void on_measured(void *owner, const struct disk_reply *reply, const int *fds, size_t n_fds)
{
    struct session *s = owner;
    struct checkpoint *p = find(s, s->checkpoints.looked_at, true);
    double took = reply ? reply->took_ms * STATES_SHARE : 0;

    (void)fds;
    (void)n_fds;
    if (!p || !reply || reply->has_failed)
        s->checkpoints.states_mark = UINT64_MAX; /* whether something has run since is not to count */
    else if (p->disk_bytes == UINT64_MAX)
        p->disk_bytes = reply->bytes;
    else if (reply->bytes > p->disk_bytes + STATES_SLACK && s->run->slot->state == SLOT_RUNNING)
        hutch_slot_stop(s->run->slot, END_DATA);
    s->checkpoints.states_at = hutch_clock_ms() + (took > STATES_CHECK_MS ? took : STATES_CHECK_MS);
    hutch_loop_advance_deadline(&s->sessions->core->loop, &s->clock, s->checkpoints.states_at);
}

/* Has the disk worker measure a state's files. */
static void measure(struct session *s, struct checkpoint *p)
{
    const struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;
    struct checkpoints *c = &s->checkpoints;
    auto_fd fd = openat(s->sessions->core->data_root_fd, p->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

    c->look.on_done = on_measured;
    c->look.owner = s;
    c->looked_at = p->id;
    if (fd >= 0)
        hutch_look_begin(&c->look, &s->run->runs->slots->looks, DISK_COUNT, &bounds, fd, -1);
}

/* Ends the session's interpreter when something writes to kept files. When that is checked next. */
static double check_states(struct session *s, double now)
{
    struct checkpoints *c = &s->checkpoints;
    struct checkpoint *p;

    if (c->n == 0 || c->look.id != 0 || !s->interpreter || s->run->slot->state != SLOT_RUNNING ||
        !(p = next_in_reach(s)))
        return LOOP_NEVER;
    if (now < c->states_at)
        return c->states_at;
    p->checked_at = now;
    c->states_at = now + STATES_CHECK_MS;
    if (has_changed(s))
        measure(s, p);
    return c->look.id != 0 ? LOOP_NEVER : c->states_at;
}

/* --- lists ------------------------------------------------------------------------------------------------------- */

void hutch_checkpoints_count(const struct session *s, unsigned *ret_checkpoints, unsigned *ret_branches)
{
    const struct checkpoint *p;

    *ret_checkpoints = *ret_branches = 0;
    TAILQ_FOREACH(p, &s->checkpoints.list, link)
        ++*(p->is_branch ? ret_branches : ret_checkpoints);
}

bool hutch_checkpoints_add_lists(const struct session *s, struct cJSON *object)
{
    struct cJSON *checkpoints = hutch_json_add_new(object, "checkpoints", cJSON_CreateArray());
    struct cJSON *branches = hutch_json_add_new(object, "branches", cJSON_CreateArray());
    const struct checkpoint *p;

    TAILQ_FOREACH(p, &s->checkpoints.list, link) {
        struct cJSON *entry = cJSON_CreateObject(), *list = p->is_branch ? branches : checkpoints;

        if (!list || !entry) {
            cJSON_Delete(entry);
            return false;
        }
        cJSON_AddItemToArray(list, entry);
        if (!hutch_json_add_u64(entry, "id", p->id) || !hutch_json_add_u64(entry, "bytes", p->bytes))
            return false;
    }
    return checkpoints && branches;
}

/* --- the end of an order ------------------------------------------------------------------------------------------ */

static void clear(struct session *s)
{
    s->checkpoints.step = STEP_NONE;
    s->checkpoints.made = s->checkpoints.chosen = NULL;
    s->checkpoints.next = NULL;
    s->checkpoints.next_pid = 0;
    s->checkpoints.has_parked = s->checkpoints.has_failed = false;
    s->checkpoints.has_files_reply = s->checkpoints.has_renewed = false;
    s->checkpoints.stop_at = 0;
    free(s->checkpoints.lost);
    s->checkpoints.lost = NULL;
    s->checkpoints.is_loss_unknown = false;
    free(s->processes.lost);
    s->processes.lost = NULL;
}

/* What the reply says of it. */
static const char *describe_loss(const struct checkpoints *c)
{
    return c->lost ? c->lost : c->is_loss_unknown ? "[\"what could not be told, for lack of memory\"]" : "[]";
}

static void answer(struct session *s, const struct hutch_err *why, uint64_t id, uint64_t bytes)
{
    auto_free char *lost = why ? NULL : hutch_processes_add_lost(s, describe_loss(&s->checkpoints));
    struct hutch_reply reply = {
        .size = sizeof(reply),
        .ok = !why,
        .message = why ? why->msg : "",
        .id = why ? 0 : id,
        .lost = why ? "[]" : lost ? lost : describe_loss(&s->checkpoints),
        .ms = hutch_clock_ms() - s->checkpoints.t_step,
        .bytes = bytes,
    };

    hutch_session_answer_order(s, &reply);
}

static void fail(struct session *s, const struct hutch_err *why)
{
    struct hutch_err err = *why;
    static const char *const doing[] = {
        [ORDER_CHECKPOINT] = "make a checkpoint", [ORDER_FORK] = "make a branch", [ORDER_ROLLBACK] = "go back to a "
                                                                                                     "checkpoint",
        [ORDER_SWITCH] = "change to a branch", [ORDER_DROP] = "drop a checkpoint or branch",
    };

    hutch_err_wrap(&err, "%s", doing[TAILQ_FIRST(&s->orders)->kind]);
    /* half of it is done, and cannot be undone: an end is better than an interpreter whose files are another's */
    if (s->checkpoints.step == STEP_FOLLOW || s->checkpoints.step == STEP_RENEW)
        hutch_slot_stop(s->run->slot, END_CANCELLED);
    hutch_interpreter_free(s->checkpoints.next); /* which ends with its socket */
    s->checkpoints.next = NULL;
    if (s->checkpoints.made) {
        if (s->checkpoints.step >= STEP_FILES) /* when that order is done */
            remove_files(s, s->checkpoints.made->name);
        release(s->checkpoints.made);
        s->checkpoints.made = NULL;
    }
    answer(s, &err, 0, 0);
}

/* What was made is there to stay. */
static void keep_made(struct session *s, uint64_t bytes)
{
    /* Init goes on without its worker as long as one of them lives; where the order is lost, it does not. */
    if (hutch_sandbox_order(&s->run->slot->sb, INIT_KEEP, s->checkpoints.made->pid) < 0)
        hutch_log_debug("session: process %d is not kept: %s", s->checkpoints.made->pid, strerrordesc_np(errno));
    s->checkpoints.made->bytes = bytes;
    s->checkpoints.held_bytes += bytes;
    TAILQ_INSERT_TAIL(&s->checkpoints.list, s->checkpoints.made, link);
    s->checkpoints.n++;
    s->checkpoints.made = NULL;
}

static void finish_copy(struct session *s)
{
    uint64_t bytes = s->checkpoints.files_reply.report.bytes_cloned + s->checkpoints.files_reply.report.bytes_copied,
             id = s->checkpoints.made->id;

    keep_made(s, bytes);
    answer(s, NULL, id, bytes);
}

/* The other interpreter is the worker, and has renewed what it can. */
static void finish_change(struct session *s)
{
    struct order *order = TAILQ_FIRST(&s->orders);
    uint64_t id = order->target, kept = s->checkpoints.files_reply.report.bytes_kept,
             bytes = s->checkpoints.files_reply.report.bytes_cloned + s->checkpoints.files_reply.report.bytes_copied;

    if (order->kind == ORDER_SWITCH && !s->checkpoints.made) { /* the branch before has died */
        remove_files(s, s->checkpoints.chosen->name);
        forget(s, s->checkpoints.chosen);
        s->checkpoints.branch = id;
    } else if (order->kind == ORDER_SWITCH) {
        s->checkpoints.made->is_in_reach = true;
        s->checkpoints.made->disk_bytes = kept;
        keep_made(s, kept == UINT64_MAX ? 0 : kept);
        forget(s, s->checkpoints.chosen); /* its files are no state any more */
        s->checkpoints.branch = id;
    }
    s->data.has_foreign = true;
    answer(s, NULL, id, bytes);
}

/* --- from step to step -------------------------------------------------------------------------------------------- */

static int after_park(struct session *s, struct hutch_err *err)
{
    return TAILQ_FIRST(&s->orders)->kind == ORDER_SWITCH ? order_spawn(s, err)
                                                         : order_files(s, DISK_TAKE, s->checkpoints.made, NULL, err);
}

static int after_spawn(struct session *s, struct hutch_err *err)
{
    if (!s->checkpoints.made) /* a rollback; or the files are of a branch that has died, and are not kept */
        return order_files(s, DISK_RESTORE, s->checkpoints.chosen, NULL, err);
    return order_files(s, DISK_SWITCH, s->checkpoints.chosen, s->checkpoints.made, err);
}

static int after_files(struct session *s, struct hutch_err *err)
{
    if (s->checkpoints.files_reply.has_failed) {
        *err = s->checkpoints.files_reply.err;
        return -1;
    }
    if (s->checkpoints.next)
        return order_follow(s, err);
    finish_copy(s);
    return 0;
}

static int after_follow(struct session *s, struct hutch_err *err)
{
    s->run->slot->supervisor->has_followed = false;
    if (s->run->slot->supervisor->followed != s->checkpoints.next_pid)
        return hutch_err_set(err, 0, "the copy of the interpreter is not process 1's child");
    /* all that belonged to the one before is dead */
    hutch_session_take_interpreter(s, s->checkpoints.next, s->checkpoints.chosen->is_fresh);
    hutch_contexts_done(&s->contexts);
    if (hutch_contexts_copy(&s->checkpoints.chosen->contexts, &s->contexts, err) < 0)
        hutch_log_debug("session: %s", err->msg); /* they are there all the same, and noted again by their next cells */
    s->checkpoints.next = NULL;
    free(s->checkpoints.lost); /* what the copy of the branch that was left has not is told when that is gone back to */
    s->checkpoints.lost = NULL;
    s->checkpoints.is_loss_unknown = false;
    s->checkpoints.step = STEP_RENEW;
    s->checkpoints.stop_at = hutch_clock_ms() + STEP_MS;
    hutch_loop_advance_deadline(&s->sessions->core->loop, &s->clock, s->checkpoints.stop_at);
    return tell(s, "renew", -1, err);
}

/* Goes on as far as what has come allows. */
static void advance(struct session *s)
{
    struct hutch_err err;
    int rc = 0;

    if (s->checkpoints.is_advancing || s->checkpoints.step == STEP_NONE || !s->interpreter || !s->run->slot ||
        hutch_supervisor_is_over(s->run->slot->supervisor))
        return;
    s->checkpoints.is_advancing = true;
    if (s->checkpoints.step == STEP_PARK && s->checkpoints.has_failed)
        rc = hutch_err_set(&err, 0, "%s", s->checkpoints.lost ? s->checkpoints.lost : "the interpreter cannot be "
                                                                                      "copied");
    else if (s->checkpoints.step == STEP_PARK && s->checkpoints.made->is_dead)
        rc = hutch_err_set(&err, 0, "the copy of the interpreter ended");
    else if (s->checkpoints.step == STEP_PARK && s->checkpoints.has_parked && s->checkpoints.made->pid > 0)
        rc = after_park(s, &err);
    if (rc == 0 && s->checkpoints.step == STEP_SPAWN &&
        (s->checkpoints.has_failed || s->checkpoints.chosen->is_dead || s->checkpoints.next->has_left ||
         s->checkpoints.next->is_refused))
        rc = hutch_err_set(&err, 0, "the copy of the interpreter ended");
    else if (rc == 0 && s->checkpoints.step == STEP_SPAWN && s->checkpoints.next_pid > 0)
        rc = after_spawn(s, &err);
    if (rc == 0 && s->checkpoints.step == STEP_FILES && s->checkpoints.has_files_reply)
        rc = after_files(s, &err);
    if (rc == 0 && s->checkpoints.step == STEP_FOLLOW && s->run->slot->supervisor->has_followed)
        rc = after_follow(s, &err);
    if (rc == 0 && s->checkpoints.step == STEP_RENEW && s->checkpoints.has_renewed)
        finish_change(s);
    s->checkpoints.is_advancing = false;
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
    if (s->checkpoints.step == STEP_RENEW && !s->checkpoints.has_renewed && strcmp(event->is, "renewed") == 0) {
        s->checkpoints.has_renewed = true;
        s->checkpoints.lost = text_of_lost(cJSON_GetObjectItemCaseSensitive(event->frame, "lost"));
        s->checkpoints.is_loss_unknown = !s->checkpoints.lost;
    }
    if (s->checkpoints.step != STEP_PARK || s->checkpoints.has_parked || s->checkpoints.has_failed)
        return;
    if (strcmp(event->is, "parked") == 0) {
        s->checkpoints.has_parked = true;
        hutch_processes_note_lost(s);
        s->checkpoints.lost = text_of_lost(cJSON_GetObjectItemCaseSensitive(event->frame, "lost"));
        s->checkpoints.is_loss_unknown = !s->checkpoints.lost;
    } else if (strcmp(event->is, "failed") == 0) {
        const struct cJSON *why = cJSON_GetObjectItemCaseSensitive(event->frame, "why");

        s->checkpoints.has_failed = true;
        s->checkpoints.lost = cJSON_IsString(why) ? hutch_nbjson_c_text(why) : NULL;
    }
}

void hutch_checkpoint_turn(struct session *s)
{
    advance(s);
}

void hutch_checkpoint_on_files(struct session *s, const struct disk_reply *reply)
{
    struct checkpoints *c = &s->checkpoints;

    if (c->step != STEP_FILES || c->has_files_reply || (reply && c->files_order.id != reply->id))
        return;
    if (reply) {
        c->files_reply = *reply;
        c->has_files_reply = true;
    } else { /* such an order goes on where it was */
        c->files_order.flags |= SNAPSHOT_RESUMES;
        send_files_order(s);
    }
    advance(s);
}

static void give_up(struct session *s)
{
    struct hutch_err err;

    hutch_err_set(&err, ETIMEDOUT, "wait for %s", s->checkpoints.step == STEP_FOLLOW ? "process 1" : "the interpreter");
    fail(s, &err);
}

double hutch_checkpoint_check(struct session *s, double now)
{
    const struct checkpoints *c = &s->checkpoints;
    double due;

    if (c->stop_at > 0 && now >= c->stop_at)
        give_up(s);
    due = check_states(s, now);
    return c->stop_at > 0 && c->stop_at < due ? c->stop_at : due;
}

/* --- orders ------------------------------------------------------------------------------------------------------- */

static int drop(struct session *s, uint64_t id, struct hutch_err *err)
{
    struct checkpoint *p = find(s, id, false);

    if (!p)
        p = find(s, id, true);
    if (!p && id == s->checkpoints.branch)
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

    if (s->checkpoints.n >= s->checkpoints.max)
        return hutch_err_set(err, 0, "there are %u checkpoints and branches, which is the most that may be",
                             s->checkpoints.n);
    if (room_for_files(s, &bounds, err) < 0)
        return -1;
    return order_park(s, ++s->checkpoints.next_id, is_branch, err);
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
        if (is_switch && order->target == s->checkpoints.branch && s->interpreter->is_over)
            return hutch_err_set(err, 0, "the interpreter of branch %" PRIu64 " has died", order->target);
        if (is_switch && order->target == s->checkpoints.branch)
            return 0;
        s->checkpoints.chosen = find(s, order->target, is_switch);
        if (!s->checkpoints.chosen)
            return hutch_err_set(err, 0, "there is no %s %" PRIu64, is_switch ? "branch" : "checkpoint", order->target);
        return is_switch && !s->interpreter->is_over ? order_park(s, s->checkpoints.branch, true, err)
                                                     : order_spawn(s, err);
    case ORDER_DROP:
        return drop(s, order->target, err);
    case ORDER_CELL:
    case ORDER_ASK:
        break;
    }
    return 0;
}

void hutch_checkpoint_begin(struct session *s, const struct order *order)
{
    struct hutch_err err;

    clear(s);
    s->checkpoints.t_step = hutch_clock_ms();
    s->checkpoints.stop_at = s->checkpoints.t_step + STEP_MS;
    hutch_loop_advance_deadline(&s->sessions->core->loop, &s->clock, s->checkpoints.stop_at);
    if (begin(s, order, &err) < 0)
        fail(s, &err);
    else if (s->checkpoints.step == STEP_NONE)
        answer(s, NULL, order->target, 0);
    else
        advance(s);
}

void hutch_checkpoint_clear(struct session *s)
{
    hutch_interpreter_free(s->checkpoints.next);
    if (s->checkpoints.made) /* its files were not kept yet */
        release(s->checkpoints.made);
    clear(s);
}

void hutch_checkpoints_drop_all(struct session *s, bool removes_files)
{
    struct checkpoint *p;

    hutch_look_cancel(&s->checkpoints.look);
    hutch_interpreter_free(s->checkpoints.next);
    if (s->checkpoints.made) {
        if (removes_files)
            remove_files(s, s->checkpoints.made->name);
        release(s->checkpoints.made);
    }
    clear(s);
    while ((p = TAILQ_FIRST(&s->checkpoints.list))) {
        if (removes_files)
            remove_files(s, p->name);
        forget(s, p);
    }
    s->checkpoints.branch = 0;
}

void hutch_checkpoints_init(struct checkpoints *checkpoints)
{
    TAILQ_INIT(&checkpoints->list);
}

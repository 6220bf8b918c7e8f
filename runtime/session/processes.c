/* processes.c - what a session has of processes: who makes them, in which sandbox, and what becomes of them with it. */
#include "runtime/session/process.h"

#include "runtime/session/session_priv.h"
#include "runtime/text/buffer.h"
#include "runtime/text/json_write.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "sandbox/fdpass.h"
#include "sandbox/zygote_wire.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define TITLE_MAX 200 /* bytes of a command line in a sentence */

#define NO_SPAWNER "what makes the session's processes has been killed: a restart of the session makes it anew"

/* --- the spawner -------------------------------------------------------------------------------------------------- */

static void drop_spawner(struct processes *processes)
{
    hutch_link_close(&processes->spawner);
    hutch_fd_closep(&processes->theirs);
    processes->spawner_pid = 0;
}

static void on_hangup(struct link *l)
{
    struct session *s = l->owner;
    struct process *p;

    drop_spawner(&s->processes);
    TAILQ_FOREACH(p, &s->processes.list, link)
        if (p->state == PROCESS_ORDERED)
            hutch_process_fail_soon(p, NO_SPAWNER);
}

/* It says its number, once, so that a rollback leaves it alive. One that says anything else is not listened to. */
static void on_packet(struct link *l, void *data, size_t len, int *fds, size_t n_fds, pid_t sender)
{
    struct session *s = l->owner;
    struct process_said said = { 0 };

    (void)sender;
    for (size_t i = 0; i < n_fds; i++)
        hutch_fd_closep(&fds[i]);
    if (len == sizeof(said))
        memcpy(&said, data, sizeof(said));
    if (said.what != PROCESS_HERE || said.pid <= 1 || s->processes.spawner_pid != 0 || !s->run->slot) {
        on_hangup(l);
        return;
    }
    s->processes.spawner_pid = said.pid;
    if (hutch_sandbox_order(&s->run->slot->sb, INIT_EXEMPT, said.pid) < 0)
        on_hangup(l); /* the next rollback would kill it */
}

static int open_spawner(struct session *s, struct hutch_err *err)
{
    struct processes *processes = &s->processes;
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return hutch_err_set(err, errno, "make a socket for a session's processes");
    hutch_fdpass_forbid(pair[0]); /* the spawner sends none; without Landlock a program could make it do so */
    processes->theirs = pair[1];
    processes->spawner = (struct link)LINK_INIT;
    processes->spawner.on_packet = on_packet;
    processes->spawner.on_hangup = on_hangup;
    processes->spawner.owner = s;
    return hutch_link_open(&processes->spawner, &s->sessions->core->loop, pair[0], err);
}

static void begin_process(struct process *p)
{
    if (p->session->processes.spawner.fd < 0)
        hutch_process_fail_soon(p, NO_SPAWNER);
    else
        hutch_process_order(p);
}

static void begin_all(struct session *s)
{
    struct process *p;

    TAILQ_FOREACH(p, &s->processes.list, link)
        if (p->state == PROCESS_WAITING)
            begin_process(p);
}

bool hutch_processes_have_sandbox(struct session *s)
{
    const struct supervisor *supervisor = hutch_session_supervisor(s);

    return s->interpreter && supervisor && s->run->slot->state == SLOT_RUNNING && supervisor->reason == END_OWN &&
           !s->is_restarting && !s->is_closing;
}

int hutch_processes_send_job(struct session *s, struct interpreter *interpreter, const char *job, size_t len,
                             struct hutch_err *err)
{
    const size_t head = sizeof(struct worker_job);

    if (s->processes.max == 0 && !s->paths.is_allowed)
        return hutch_interpreter_send_raw(interpreter, job, len) < 0
                   ? hutch_err_set(err, ENOMEM, "describe a session to its worker")
                   : 0;
    drop_spawner(&s->processes);
    if (open_spawner(s, err) < 0)
        return -1;
    /* nothing was sent before: there is room */
    if (hutch_fdpass_send(interpreter->fd, job, head, &s->processes.theirs, 1, MSG_DONTWAIT) != (ssize_t)head)
        return hutch_err_set(err, errno, "give a session's worker its socket for processes");
    hutch_fd_closep(&s->processes.theirs);
    if (hutch_interpreter_send_raw(interpreter, job + head, len - head) < 0)
        return hutch_err_set(err, ENOMEM, "describe a session to its worker");
    if (!s->pause.is_on)
        begin_all(s);
    hutch_paths_begin(s);
    return 0;
}

/* --- what becomes of them ----------------------------------------------------------------------------------------- */

void hutch_processes_init(struct processes *processes)
{
    TAILQ_INIT(&processes->list);
    processes->spawner = (struct link)LINK_INIT;
    processes->theirs = -1;
}

static void remove_process(struct processes *processes, struct process *p)
{
    TAILQ_REMOVE(&processes->list, p, link);
    processes->n--;
    hutch_process_free(p);
}

void hutch_processes_done(struct processes *processes)
{
    while (!TAILQ_EMPTY(&processes->list))
        remove_process(processes, TAILQ_FIRST(&processes->list));
    drop_spawner(processes);
    free(processes->lost);
    processes->lost = NULL;
}

struct process *hutch_processes_find(struct session *s, uint64_t id)
{
    struct process *p;

    TAILQ_FOREACH(p, &s->processes.list, link)
        if (p->id == id)
            return p;
    return NULL;
}

void hutch_processes_add(struct session *s, struct process *p)
{
    p->id = ++s->processes.last_id;
    p->t_asked = s->t_used = hutch_clock_ms();
    TAILQ_INSERT_TAIL(&s->processes.list, p, link);
    s->processes.n++;
    s->data.has_foreign = true;
    hutch_session_set_idle(s, false);
    if (hutch_processes_have_sandbox(s) && !s->pause.is_on)
        begin_process(p);
    else
        hutch_session_ask_for_work(s);
}

static struct process *find_pid(struct session *s, pid_t pid)
{
    struct process *p;

    TAILQ_FOREACH(p, &s->processes.list, link)
        if (p->pid == pid && hutch_process_is_alive(p))
            return p;
    return NULL;
}

void hutch_processes_hear(struct session *s, const struct init_msg *msg)
{
    struct process *p = find_pid(s, msg->process.pid);

    if (p && msg->kind == INIT_WATCHED)
        hutch_process_take_watched(p, msg->process.status == 0);
    else if (p && msg->kind == INIT_PROCESS_ENDED)
        hutch_process_take_end(p, msg->process.status);
}

void hutch_processes_reset(struct session *s)
{
    struct process *p;

    drop_spawner(&s->processes);
    TAILQ_FOREACH(p, &s->processes.list, link)
        if (p->state == PROCESS_WAITING || p->state == PROCESS_ORDERED || p->state == PROCESS_WATCHING)
            hutch_process_reset(p);
        else
            hutch_process_fail(p, "its sandbox was broken from outside");
}

void hutch_processes_lose(struct session *s, const char *why)
{
    struct process *p;

    drop_spawner(&s->processes);
    TAILQ_FOREACH(p, &s->processes.list, link)
        if (p->state == PROCESS_WAITING) /* for another one */
            hutch_process_reset(p);
        else
            hutch_process_fail(p, why);
}

void hutch_processes_refuse(struct session *s, const char *why)
{
    struct process *p;

    TAILQ_FOREACH(p, &s->processes.list, link)
        if (p->state == PROCESS_WAITING)
            hutch_process_fail(p, why);
}

void hutch_processes_blame(struct session *s, const char *why)
{
    struct process *p;

    TAILQ_FOREACH(p, &s->processes.list, link)
        if (p->state != PROCESS_WAITING)
            hutch_process_blame(p, why);
}

void hutch_processes_work(struct session *s)
{
    struct process *p, *next, *last = TAILQ_LAST(&s->processes.list, process_list);
    bool is_last = last == NULL;

    for (p = TAILQ_FIRST(&s->processes.list); p && !is_last; p = next) { /* a callback may add to them */
        bool is_over = hutch_process_work(p);

        is_last = p == last;
        next = TAILQ_NEXT(p, link);
        if (!is_over)
            continue;
        TAILQ_REMOVE(&s->processes.list, p, link);
        s->processes.n--;
        s->t_used = hutch_clock_ms();
        if (p->options.on_end)
            p->options.on_end(p->options.user, s->id, p->id, &p->end);
        hutch_process_free(p);
        hutch_loop_advance_deadline(&s->sessions->core->loop, &s->clock, 0); /* it may be idle from here on */
    }
}

bool hutch_processes_are_alive(const struct session *s)
{
    return !TAILQ_EMPTY(&s->processes.list);
}

bool hutch_processes_wait(const struct session *s)
{
    const struct process *p;

    TAILQ_FOREACH(p, &s->processes.list, link)
        if (p->state == PROCESS_WAITING)
            return true;
    return false;
}

void hutch_processes_resume(struct session *s, double by_ms)
{
    struct process *p;

    TAILQ_FOREACH(p, &s->processes.list, link)
        hutch_process_shift_clock(p, by_ms);
    if (hutch_processes_have_sandbox(s))
        begin_all(s);
}

/* --- what is told of them ----------------------------------------------------------------------------------------- */

void hutch_processes_note_lost(struct session *s)
{
    struct text_buffer text = TEXT_BUFFER_INIT;
    const struct process *p;

    free(s->processes.lost);
    TAILQ_FOREACH(p, &s->processes.list, link)
        if (p->pid > 0 && hutch_process_is_alive(p)) {
            char title[TITLE_MAX], sentence[TITLE_MAX + 64];
            int len;

            hutch_process_describe(p, title, sizeof(title));
            len = snprintf(sentence, sizeof(sentence), "process %" PRIu64 ": %s", p->id, title);
            hutch_text_add_string(&text, text.len ? "," : "");
            hutch_json_quote(&text, sentence, (size_t)len);
        }
    s->processes.lost = text.len ? hutch_text_take(&text, NULL) : NULL;
}

char *hutch_processes_add_lost(struct session *s, const char *lost)
{
    struct text_buffer text = TEXT_BUFFER_INIT;
    size_t len = strlen(lost);

    if (!s->processes.lost || len < 2 || lost[len - 1] != ']')
        return NULL;
    hutch_text_add(&text, lost, len - 1);
    hutch_text_add_string(&text, len > 2 ? "," : "");
    hutch_text_add_string(&text, s->processes.lost);
    hutch_text_add_string(&text, "]");
    return hutch_text_take(&text, NULL);
}

static const char *name_state(const struct process *p)
{
    switch (p->state) {
    case PROCESS_WAITING:
        return "waiting";
    case PROCESS_ORDERED:
    case PROCESS_WATCHING:
    case PROCESS_STARTING:
        return "starting";
    case PROCESS_RUNNING:
        return "running";
    case PROCESS_ENDED:
        break;
    }
    return "ended";
}

static double run_ms(const struct process *p)
{
    return p->t_started == 0 ? 0 : (p->t_ended > 0 ? p->t_ended : hutch_clock_ms()) - p->t_started;
}

static void list_one(struct text_buffer *text, const struct process *p)
{
    const char *at = (const char *)(p->order + 1), *cwd = at;

    hutch_text_addf(text, "{\"id\":%" PRIu64 ",\"pid\":", p->id);
    if (p->pid > 0)
        hutch_text_addf(text, "%d", (int)p->pid);
    else
        hutch_text_add_string(text, "null");
    hutch_text_add_string(text, ",\"args\":[");
    at += strlen(at) + 1;
    for (uint32_t i = 0; i < p->order->n_args; i++, at += strlen(at) + 1) {
        hutch_text_add_string(text, i ? "," : "");
        hutch_json_quote(text, at, strlen(at));
    }
    hutch_text_add_string(text, "],\"cwd\":");
    if (cwd[0])
        hutch_json_quote(text, cwd, strlen(cwd));
    else
        hutch_text_add_string(text, "null");
    hutch_text_addf(text,
                    ",\"state\":\"%s\",\"terminal\":%s,\"held\":%s,\"output_bytes\":%" PRIu64 ",\"run_ms\":%.3f}",
                    name_state(p), p->options.terminal ? "true" : "false", p->is_held ? "true" : "false",
                    p->told_bytes, run_ms(p));
}

char *hutch_processes_list(const struct session *s)
{
    struct text_buffer text = TEXT_BUFFER_INIT;
    const struct process *p;

    hutch_text_add_string(&text, "[");
    TAILQ_FOREACH(p, &s->processes.list, link) {
        hutch_text_add_string(&text, text.len > 1 ? "," : "");
        list_one(&text, p);
    }
    hutch_text_add_string(&text, "]");
    return hutch_text_take(&text, NULL);
}

#include "runtime/session/process_priv.h"

#include "runtime/session/session_priv.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "sandbox/fdpass.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define KILL_AFTER_MS 2000 /* from SIGTERM to SIGKILL */
#define FAREWELL_MS   500  /* from the end of a socket to the word of its sandbox's end */
#define USUAL_ROWS    24
#define USUAL_COLS    80

static struct loop *loop_of(const struct process *p)
{
    return &p->session->sessions->core->loop;
}

static struct sandbox *sandbox_of(const struct process *p)
{
    return &p->session->run->slot->sb;
}

/* --- life --------------------------------------------------------------------------------------------------------- */

static void on_due(void *owner, double now);

static size_t list_size(const char *const *list, size_t *ret_n)
{
    size_t size = 0;

    for (*ret_n = 0; list && list[*ret_n]; (*ret_n)++)
        size += strlen(list[*ret_n]) + 1;
    return size;
}

static char *put_list(char *to, const char *const *list)
{
    for (; list && *list; list++)
        to = stpcpy(to, *list) + 1;
    return to;
}

static int check_options(const struct hutch_process_options *options, struct hutch_err *err)
{
    if (!options->args == !options->shell)
        return hutch_err_say(err, EINVAL, "a process has either args or shell");
    if (options->args && !options->args[0])
        return hutch_err_say(err, EINVAL, "args name no program");
    if (options->args && !options->args[0][0])
        return hutch_err_say(err, EINVAL, "the name of the program is empty");
    if (options->rows > UINT16_MAX || options->cols > UINT16_MAX)
        return hutch_err_say(err, EINVAL, "a terminal of %u rows and %u columns: at most %d of each can be",
                             options->rows, options->cols, UINT16_MAX);
    for (const char *const *e = options->env; e && *e; e++)
        if (**e == '=' || !strchr(*e, '='))
            return hutch_err_say(err, EINVAL, "the variable '%.80s' is not NAME=VALUE", *e);
    return 0;
}

/* What the spawner is going to be sent. */
static int write_order(struct process *p, struct hutch_err *err)
{
    const char *const shell[] = { "/bin/sh", "-c", p->options.shell, NULL };
    const char *const *args = p->options.shell ? shell : p->options.args;
    const char *cwd = p->options.cwd ? p->options.cwd : "";
    const uint64_t cpu_ms = p->session->cpu_ms;
    size_t n_args, n_env, size = list_size(args, &n_args) + list_size(p->options.env, &n_env) + strlen(cwd) + 1;
    char *to;

    if (size > PROCESS_TEXT_MAX || n_args > PROCESS_LIST_MAX || n_env > PROCESS_LIST_MAX)
        return hutch_err_say(err, E2BIG,
                             "%zu arguments and %zu variables of %zu bytes: at most %d, %d and %u bytes can be", n_args,
                             n_env, size, PROCESS_LIST_MAX, PROCESS_LIST_MAX, PROCESS_TEXT_MAX);
    p->order_len = sizeof(*p->order) + size;
    p->order = calloc(1, p->order_len);
    if (!p->order)
        return hutch_err_set(err, ENOMEM, "take a process");
    *p->order = (struct process_order){ .what = SPAWNER_PROCESS,
                                        .n_args = (uint32_t)n_args,
                                        .n_env = (uint32_t)n_env,
                                        .cpu_s = cpu_ms ? (uint32_t)(cpu_ms / 1000 + 1) : 0,
                                        .is_terminal = p->options.terminal != 0 };
    to = stpcpy((char *)(p->order + 1), cwd) + 1;
    put_list(put_list(to, args), p->options.env);
    return 0;
}

struct process *hutch_process_create(struct session *s, const struct hutch_process_options *options,
                                     struct hutch_err *err)
{
    struct process *p;

    if (check_options(options, err) < 0)
        return NULL;
    p = calloc(1, sizeof(*p));
    if (!p) {
        hutch_err_set(err, ENOMEM, "take a process");
        return NULL;
    }
    p->session = s;
    p->options = *options;
    p->control_fd = p->in_fd = -1;
    p->control = p->in = (struct watch)WATCH_INIT;
    for (int i = 0; i < 2; i++)
        p->streams[i] = (struct process_stream){ .process = p, .watch = WATCH_INIT, .fd = -1, .number = i + 1 };
    p->clock = (struct deadline)DEADLINE_INIT(on_due, p);
    p->end = (struct hutch_process_end){ .size = sizeof(p->end), .exit_code = -1, .why = p->why };
    if (options->output_bytes != HUTCH_NO_LIMIT && options->output_bytes == 0)
        p->options.output_bytes = s->output_bytes ? s->output_bytes : HUTCH_NO_LIMIT;
    if (!options->rows)
        p->options.rows = USUAL_ROWS;
    if (!options->cols)
        p->options.cols = USUAL_COLS;
    if (write_order(p, err) < 0) {
        free(p);
        return NULL;
    }
    p->options.args = p->options.env = NULL; /* the caller's */
    p->options.shell = p->options.cwd = NULL;
    return p;
}

static void close_control(struct process *p)
{
    hutch_watch_remove(&p->control);
    hutch_fd_closep(&p->control_fd);
}

static void close_all(struct process *p)
{
    close_control(p);
    hutch_process_close_streams(p);
}

static void free_process(void *object)
{
    struct process *p = object;

    free(p->order);
    free(p);
}

void hutch_process_free(struct process *p)
{
    close_all(p);
    hutch_loop_set_deadline(loop_of(p), &p->clock, LOOP_NEVER);
    hutch_loop_free_later(loop_of(p), &p->doomed, p, free_process);
}

bool hutch_process_is_alive(const struct process *p)
{
    return p->state != PROCESS_ENDED;
}

void hutch_process_describe(const struct process *p, char *to, size_t size)
{
    const char *at = (const char *)(p->order + 1);
    size_t len = 0;

    to[0] = '\0';
    at += strlen(at) + 1; /* the directory */
    for (uint32_t i = 0; i < p->order->n_args && len + 1 < size; i++, at += strlen(at) + 1)
        len += (size_t)snprintf(to + len, size - len, "%s%s", i ? " " : "", at);
}

void hutch_process_blame(struct process *p, const char *why)
{
    if (!p->why[0] && hutch_process_is_alive(p))
        snprintf(p->why, sizeof(p->why), "%s", why);
}

/* --- its end ------------------------------------------------------------------------------------------------------ */

/* What it wrote is in its pipes. What others write there from here on is not its output. */
static void finish(struct process *p)
{
    close_control(p);
    hutch_process_close_input(p);
    p->t_ended = hutch_clock_ms();
    p->end.run_ms = p->t_started > 0 ? p->t_ended - p->t_started : 0;
    p->state = PROCESS_ENDED;
    hutch_loop_set_deadline(loop_of(p), &p->clock, LOOP_NEVER);
    hutch_process_bound_output(p);
    p->session->t_used = p->t_ended;
    p->session->data.has_foreign = true; /* what it did to files was no cell's doing */
    hutch_session_ask_for_work(p->session);
}

void hutch_process_fail(struct process *p, const char *why)
{
    bool was_alive = hutch_process_is_alive(p);

    p->has_died = true; /* held output is not waited for */
    hutch_process_blame(p, why);
    if (was_alive)
        finish(p);
    else
        hutch_session_ask_for_work(p->session);
}

void hutch_process_fail_soon(struct process *p, const char *why)
{
    close_control(p);
    p->suspicion = why;
    hutch_loop_set_deadline(loop_of(p), &p->clock, hutch_clock_ms() + FAREWELL_MS);
}

/* Through init, as its number is the sandbox's. */
void hutch_process_kill(struct process *p, int sig)
{
    if (p->session->run->slot)
        hutch_sandbox_signal_process(sandbox_of(p), p->pid, sig);
}

bool hutch_process_work(struct process *p)
{
    bool is_over;

    if (p->wants_read || p->state == PROCESS_ENDED) {
        p->wants_read = false;
        if (p->has_died)
            p->is_held = false; /* its session would wait with it */
        hutch_process_read(p);
    }
    if (p->has_room && p->options.on_room) {
        p->has_room = p->wants_room = false;
        p->options.on_room(p->options.user, p->session->id, p->id);
    }
    is_over = p->state == PROCESS_ENDED && p->streams[0].fd < 0 && p->streams[1].fd < 0;
    return is_over;
}

/* --- its begin ---------------------------------------------------------------------------------------------------- */

static void begin_step(struct process *p, enum process_state state)
{
    struct core *core = p->session->sessions->core;

    p->state = state;
    p->put_off_at = 0;
    hutch_loop_set_deadline(&core->loop, &p->clock, hutch_clock_ms() + core->answer_ms);
}

/* Its program runs, or it has died on the way there, which init tells. */
static void begin_running(struct process *p)
{
    close_control(p);
    p->state = PROCESS_RUNNING;
    hutch_loop_set_deadline(loop_of(p), &p->clock,
                            p->options.wall_ms ? p->t_started + (double)p->options.wall_ms : LOOP_NEVER);
}

static const char *name_step(uint32_t step)
{
    static const char *const names[PROCESS_STEPS] = {
        [PROCESS_STEP_FORK] = "make a process in the sandbox (are there too many?)",
        [PROCESS_STEP_TERMINAL] = "make a terminal in the sandbox",
        [PROCESS_STEP_STREAMS] = "take the streams",
        [PROCESS_STEP_DIRECTORY] = "enter the directory",
        [PROCESS_STEP_LIMIT] = "limit the CPU time",
        [PROCESS_STEP_EXECUTE] = "execute the program",
    };

    return step < PROCESS_STEPS ? names[step] : "begin";
}

static void note_failure(struct process *p, const struct process_said *said)
{
    const int errnum = said->errnum > 0 && said->errnum < 4096 ? said->errnum : 0;
    const char *directory = (const char *)(p->order + 1), *program = directory + strlen(directory) + 1;
    struct hutch_err err;

    if (said->step == PROCESS_STEP_DIRECTORY || said->step == PROCESS_STEP_EXECUTE)
        hutch_err_set(&err, errnum, "%s '%.100s'", name_step(said->step),
                      said->step == PROCESS_STEP_EXECUTE ? program : directory);
    else
        hutch_err_set(&err, errnum, "%s", name_step(said->step));
    hutch_process_blame(p, err.msg);
}

static void take_failure(struct process *p, const struct process_said *said)
{
    note_failure(p, said);
    if (p->state == PROCESS_STARTING) /* its end follows, which is init's word */
        begin_running(p);
    else
        hutch_process_fail(p, p->why);
}

static bool is_taken(const struct process *p, pid_t pid)
{
    const struct process *other;

    TAILQ_FOREACH(other, &p->session->processes.list, link)
        if (other->pid == pid && hutch_process_is_alive(other))
            return true;
    return pid <= 1;
}

static void take_arrival(struct process *p, const struct process_said *said, int *fd)
{
    struct hutch_err err;

    if (is_taken(p, said->pid)) {
        hutch_process_fail(p, "it has named another process");
        return;
    }
    if (p->options.terminal && hutch_process_take_terminal(p, fd, &err) < 0) {
        hutch_process_fail(p, err.msg);
        return;
    }
    p->pid = said->pid;
    begin_step(p, PROCESS_WATCHING);
    if (hutch_sandbox_order(sandbox_of(p), INIT_WATCH, p->pid) < 0)
        hutch_process_fail(p, "process 1 of the sandbox does not listen");
}

/* The socket has closed: by execve(2), or before. */
static void take_hangup(struct process *p)
{
    if (p->state == PROCESS_STARTING)
        begin_running(p);
    else
        hutch_process_fail_soon(p, "it was killed before its program began");
}

static ssize_t receive(struct process *p, struct process_said *ret, int *ret_fd)
{
    size_t n_fds;

    return hutch_fdpass_receive(p->control_fd, ret, sizeof(*ret), ret_fd, 1, &n_fds, MSG_DONTWAIT);
}

static void on_control(struct watch *w, uint32_t events)
{
    struct process *p = w->owner;
    struct process_said said;
    auto_fd fd = -1;
    ssize_t n = receive(p, &said, &fd);

    (void)events;
    if (n < 0 && errno == EAGAIN)
        return;
    if (n == sizeof(said) && said.what == PROCESS_HERE && p->state == PROCESS_ORDERED)
        take_arrival(p, &said, &fd);
    else if (n == sizeof(said) && said.what == PROCESS_FAILED)
        take_failure(p, &said);
    else
        take_hangup(p);
}

void hutch_process_take_end(struct process *p, int status)
{
    struct process_said said;
    auto_fd fd = -1;

    if (!hutch_process_is_alive(p))
        return;
    /* What it said last came before, and perhaps was not looked at yet. */
    if (p->state == PROCESS_STARTING && receive(p, &said, &fd) == sizeof(said) && said.what == PROCESS_FAILED)
        note_failure(p, &said);
    if (WIFEXITED(status))
        p->end.exit_code = WEXITSTATUS(status);
    else if (WIFSIGNALED(status))
        p->end.signal = WTERMSIG(status);
    finish(p);
}

void hutch_process_take_watched(struct process *p, bool is_watched)
{
    if (p->state != PROCESS_WATCHING)
        return;
    if (!is_watched) {
        hutch_process_fail(p, "it was killed before its program began");
        return;
    }
    p->t_started = hutch_clock_ms();
    begin_step(p, PROCESS_STARTING);
    send(p->control_fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT); /* where it is dead, its socket and init tell */
}

static int send_order(struct process *p, struct hutch_err *err)
{
    int theirs[4] = { -1, -1, -1, -1 }, pair[2], rc;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return hutch_err_set(err, errno, "make a socket for a process");
    p->control_fd = pair[0];
    theirs[0] = pair[1];
    rc = hutch_process_make_streams(p, theirs + 1, err);
    if (rc == 0)
        rc = hutch_watch_add(&p->control, loop_of(p), p->control_fd, EPOLLIN, on_control, p, err);
    if (rc == 0)
        rc = hutch_link_send(&p->session->processes.spawner, p->order, p->order_len, NULL, 0, theirs,
                             p->options.terminal ? 1 : ARRAY_SIZE(theirs), err);
    for (size_t i = 0; i < ARRAY_SIZE(theirs); i++)
        hutch_fd_closep(&theirs[i]);
    return rc;
}

/* Its master is a description that comes from inside, and that this process reads without being made to wait. Landlock
 * alone keeps code from writing to the memory of the process that opens it, where it could change that. */
static bool may_have_terminal(const struct process *p)
{
    return sandbox_of(p)->enforcement.layer_active[LAYER_LANDLOCK];
}

void hutch_process_order(struct process *p)
{
    struct hutch_err err;

    p->suspicion = NULL;
    if (p->options.terminal && !may_have_terminal(p)) {
        hutch_process_fail(p, "a terminal takes Landlock, which this host or policy does not have");
        return;
    }
    begin_step(p, PROCESS_ORDERED);
    if (send_order(p, &err) < 0)
        hutch_process_fail(p, err.msg);
}

void hutch_process_reset(struct process *p)
{
    bool wants_room = p->wants_room;

    close_all(p);
    p->wants_room = wants_room;
    p->has_room = false;
    p->pid = 0;
    p->suspicion = NULL;
    p->state = PROCESS_WAITING;
    hutch_loop_set_deadline(loop_of(p), &p->clock, LOOP_NEVER);
}

static void on_due(void *owner, double now)
{
    struct process *p = owner;
    struct loop *loop = loop_of(p);

    if (hutch_session_clocks_stand(p->session)) {
        p->put_off_at = now;
    } else if (p->suspicion && !hutch_processes_have_sandbox(p->session)) { /* its end is on the way, and tells */
        hutch_loop_set_deadline(loop, &p->clock, now + FAREWELL_MS);
    } else if (p->suspicion) {
        hutch_process_fail(p, p->suspicion);
    } else if (p->state == PROCESS_RUNNING && !p->was_asked_to_end) {
        p->was_asked_to_end = true;
        if (!p->why[0])
            snprintf(p->why, sizeof(p->why), "it ran for longer than %" PRIu64 " ms", p->options.wall_ms);
        hutch_process_kill(p, SIGTERM);
        hutch_loop_set_deadline(loop, &p->clock, now + KILL_AFTER_MS);
    } else if (p->state == PROCESS_RUNNING) {
        hutch_process_kill(p, SIGKILL);
    } else if (hutch_loop_stood_still(loop) > 0) { /* what it waits for may have been as still */
        hutch_loop_set_deadline(loop, &p->clock, now + p->session->sessions->core->answer_ms);
    } else if (p->state == PROCESS_STARTING) {
        hutch_process_blame(p, "it did not come to its program in time");
        hutch_process_kill(p, SIGKILL);
        begin_running(p);
    } else {
        hutch_process_fail(p, p->state == PROCESS_ORDERED
                                  ? "what makes the session's processes did not answer in time"
                                  : "process 1 of the sandbox did not answer in time");
    }
}

void hutch_process_shift_clock(struct process *p, double by_ms)
{
    const double at = p->put_off_at > 0 ? p->put_off_at : p->clock.at;

    p->put_off_at = 0;
    if (!hutch_process_is_alive(p))
        return;
    if (p->t_started > 0)
        p->t_started += by_ms;
    if (at != LOOP_NEVER)
        hutch_loop_set_deadline(loop_of(p), &p->clock, at + by_ms);
}

/* --- what the caller asks for ------------------------------------------------------------------------------------- */

int hutch_process_pass_signal(struct process *p, int sig, struct hutch_err *err)
{
    if (sig <= 0 || sig >= NSIG)
        return hutch_err_say(err, EINVAL, "%d is no signal", sig);
    if (p->session->pause.is_on && (sig == SIGSTOP || sig == SIGCONT))
        return hutch_err_say(err, EAGAIN, "the session is paused: its processes stop and go on with it");
    switch (p->state) {
    case PROCESS_WAITING:
    case PROCESS_ORDERED:
    case PROCESS_WATCHING:
        hutch_process_fail(p, "a signal ended it before its program began");
        return 0;
    case PROCESS_STARTING:
    case PROCESS_RUNNING:
        if (hutch_sandbox_signal_process(sandbox_of(p), p->pid, sig) < 0)
            return hutch_err_set(err, EAGAIN, "signal the process");
        return 0;
    case PROCESS_ENDED:
        break;
    }
    return hutch_err_say(err, ENOENT, "the process has ended");
}


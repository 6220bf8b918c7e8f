#include "runtime/e2b/shell.h"

#include "runtime/e2b/alarm.h"
#include "runtime/e2b/mark.h"
#include "runtime/e2b/sandbox.h"
#include "runtime/gateway/exchange.h"
#include "runtime/gateway/sessions.h"
#include "runtime/hutch.h"
#include "runtime/text/buffer.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define LOOK_MS 1000     /* its clock stands still while the sandbox is paused, and is looked at so often */
#define AGAIN_MS 100     /* when process 1 did not listen */
#define MAX_SHOWN 100    /* of a name, in an error */

/* Interactive, because only such a shell goes on after an error like that of "set -u". Its own words
 * (prompts, jobs that are over) go nowhere: code has 8 and 9 as its output. */
#define COMMAND "command -v bash >/dev/null || { echo 'the image has no bash' >&2; exit 127; }; " \
                "exec bash --noprofile --norc --noediting +H +m -i 8>&1 9>&2 >/dev/null 2>&1"
/* The first that it reads: an interactive shell would write a file of what it has read. */
static const char prepare[] = "unset HISTFILE; set +o history\n";

struct shell_code {
    TAILQ_ENTRY(shell_code) in_queue;
    char id[ID_LEN + 1];
    char *command; /* owned; what the shell reads */
    size_t len, n_written;
    uint64_t wall_ms;
    double left_ms;
    bool is_late;
    const struct shell_events *events;
    void *user;
};
TAILQ_HEAD(shell_codes, shell_code);

struct e2b_shell {
    LIST_ENTRY(e2b_shell) in_list;
    struct e2b_sandbox *sandbox;
    struct hutch_engine *engine;
    struct alarms *alarms;
    char *pwd;                 /* owned; PWD=, which tells a shell by what name it has its directory */
    uint64_t process;          /* 0: there is none */
    size_t n_prepared;         /* of prepare that it has got */
    int count;
    struct shell_codes codes;  /* the first is at work if @is_working */
    size_t n_codes;
    bool is_working, is_held;
    bool is_ending;            /* it is killed, and no code begins before it is gone */
    bool is_dropped;
    const char *why;           /* it is killed; static, NULL: hutch did not do it */
    struct mark marks[2];
    struct alarm alarm;
};

/* ---- a code ---- */

static bool is_name(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        char c = text[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (i > 0 && c >= '0' && c <= '9')))
            return false;
    }
    return len > 0;
}

/* As one word of a shell. */
static void add_word(struct text_buffer *t, const char *text)
{
    const char *quote;

    hutch_text_add_string(t, "'");
    for (; (quote = strchr(text, '\'')); text = quote + 1) {
        hutch_text_add(t, text, (size_t)(quote - text));
        hutch_text_add_string(t, "'\\''");
    }
    hutch_text_add_string(t, text);
    hutch_text_add_string(t, "'");
}

static int add_command(struct text_buffer *t, const struct shell_code *code, const char *text, char *const *env,
                       struct hutch_err *err)
{
    for (; env && *env; env++) {
        size_t n = strcspn(*env, "="), shown = n < MAX_SHOWN ? n : MAX_SHOWN;

        if (!is_name(*env, n))
            return hutch_err_set(err, 0, "request: '%.*s' is no name of a variable in bash", (int)shown, *env);
        hutch_text_add(t, *env, n + 1);
        add_word(t, *env + n + 1);
        hutch_text_add_string(t, " ");
    }
    /* Redirections of eval end with it, also those that code makes by exec. */
    hutch_text_add_string(t, "builtin eval ");
    add_word(t, text);
    hutch_text_addf(t, " </dev/null >&8 2>&9 8>&- 9>&-\n"
                    "builtin printf '" MARK_EDGE_OCTAL "%s %%d" MARK_EDGE_OCTAL "' \"$?\" >&8; "
                    "builtin printf '" MARK_EDGE_OCTAL "%s 0" MARK_EDGE_OCTAL "' >&9\n", code->id, code->id);
    return 0;
}

struct shell_code *hutch_e2b_shell_code_create(const char *text, char *const *env, struct hutch_err *err)
{
    struct shell_code *code = calloc(1, sizeof(*code));
    struct text_buffer t = TEXT_BUFFER_INIT;

    if (!code) {
        hutch_err_set(err, ENOMEM, "read the code");
        return NULL;
    }
    if (hutch_id_make(code->id, err) < 0 || add_command(&t, code, text, env, err) < 0) {
        hutch_text_done(&t);
        free(code);
        return NULL;
    }
    code->command = hutch_text_take(&t, &code->len);
    if (!code->command) {
        hutch_err_set(err, ENOMEM, "read the code");
        free(code);
        return NULL;
    }
    return code;
}

size_t hutch_e2b_shell_code_size(const struct shell_code *code)
{
    return code->len;
}

void hutch_e2b_shell_code_free(struct shell_code *code)
{
    if (!code)
        return;
    free(code->command);
    free(code);
}

static void remove_code(struct e2b_shell *shell, struct shell_code *code)
{
    TAILQ_REMOVE(&shell->codes, code, in_queue);
    shell->n_codes--;
}

/* ---- the process ---- */

static uint64_t session_of(const struct e2b_shell *shell)
{
    return shell->sandbox->session->number;
}

static bool is_paused(const struct e2b_shell *shell)
{
    struct hutch_session_info info = { .size = sizeof(info) };
    struct hutch_error error;

    return hutch_session_get_info(shell->engine, session_of(shell), &info, NULL, &error) == 0 &&
           info.state == HUTCH_SESSION_PAUSED;
}

static void kill_process(struct e2b_shell *shell, const char *why)
{
    struct hutch_error error;

    if (!shell->process)
        return;
    shell->is_ending = true;
    shell->why = why;
    hutch_e2b_shell_hold(shell, false);
    hutch_e2b_alarm_stop(&shell->alarm);
    if (hutch_process_signal(shell->engine, session_of(shell), shell->process, SIGKILL, &error) < 0 &&
        error.code == EAGAIN)
        hutch_e2b_alarm_set(shell->alarms, &shell->alarm, AGAIN_MS);
}

static void on_due(struct alarm *alarm)
{
    struct e2b_shell *shell = (struct e2b_shell *)((char *)alarm - offsetof(struct e2b_shell, alarm));
    struct shell_code *code = TAILQ_FIRST(&shell->codes);

    if (shell->is_ending) {
        kill_process(shell, shell->why);
    } else if (is_paused(shell)) {
        hutch_e2b_alarm_set(shell->alarms, alarm, LOOK_MS);
    } else if (code->left_ms > LOOK_MS) {
        code->left_ms -= LOOK_MS;
        hutch_e2b_alarm_set(shell->alarms, alarm, code->left_ms < LOOK_MS ? code->left_ms : LOOK_MS);
    } else {
        code->is_late = true;
        kill_process(shell, "");
    }
}

/* How many bytes the shell has taken of these. */
static size_t write_some(struct e2b_shell *shell, const char *data, size_t len)
{
    size_t at = 0;
    struct hutch_error error;

    while (at < len) {
        int n = hutch_process_write(shell->engine, session_of(shell), shell->process, data + at, len - at, &error);

        if (n <= 0)
            break; /* there is room later, or its end follows */
        at += (size_t)n;
    }
    return at;
}

static void write_input(struct e2b_shell *shell)
{
    struct shell_code *code = TAILQ_FIRST(&shell->codes);
    const size_t whole = sizeof(prepare) - 1;

    if (!shell->is_working || !shell->process)
        return;
    shell->n_prepared += write_some(shell, prepare + shell->n_prepared, whole - shell->n_prepared);
    if (shell->n_prepared == whole)
        code->n_written += write_some(shell, code->command + code->n_written, code->len - code->n_written);
}

static void on_room(void *user, uint64_t session, uint64_t process)
{
    (void)session;
    (void)process;
    write_input(user);
}

static void start_next(struct e2b_shell *shell);

static void tell_text(struct e2b_shell *shell, int stream, struct text_buffer *t)
{
    const struct shell_code *code = TAILQ_FIRST(&shell->codes);

    if (t->len > 0)
        code->events->on_text(code->user, stream, t->data, t->len);
    hutch_text_done(t);
}

/* The code at work is over. */
static void end_code(struct e2b_shell *shell, int status, const char *why)
{
    struct shell_code *code = TAILQ_FIRST(&shell->codes);
    char late[128];

    for (int i = 0; i < 2; i++) {
        struct text_buffer t = TEXT_BUFFER_INIT;

        hutch_e2b_mark_flush(&shell->marks[i], &t);
        tell_text(shell, i + 1, &t);
    }
    shell->is_working = false;
    remove_code(shell, code);
    if (!shell->is_ending)
        hutch_e2b_alarm_stop(&shell->alarm);
    hutch_e2b_shell_hold(shell, false);
    if (code->is_late) {
        snprintf(late, sizeof(late), "the code ran for longer than its time limit of %" PRIu64 " ms, and was ended "
                 "with its shell", code->wall_ms);
        status = SHELL_LATE;
        why = late;
    }
    code->events->on_end(code->user, status, why);
    hutch_e2b_shell_code_free(code);
}

/* Output that comes while no code is at work is that of programs which code has left running. Of code that is ended
 * nobody wants the rest. */
static void on_output(void *user, uint64_t session, uint64_t process, int stream, const char *data, size_t len)
{
    struct e2b_shell *shell = user;
    struct text_buffer t = TEXT_BUFFER_INIT;

    (void)session;
    (void)process;
    if (!shell->is_working || shell->is_ending)
        return;
    hutch_e2b_mark_take(&shell->marks[stream == 2], data, len, &t);
    tell_text(shell, stream == 2 ? 2 : 1, &t);
    if (!shell->marks[0].is_found || !shell->marks[1].is_found || shell->is_ending) /* on_text may end it */
        return;
    end_code(shell, shell->marks[0].status, "");
    start_next(shell);
}

static void free_shell(struct e2b_shell *shell)
{
    struct shell_code *code;

    while ((code = TAILQ_FIRST(&shell->codes))) {
        remove_code(shell, code);
        hutch_e2b_shell_code_free(code);
    }
    hutch_e2b_alarm_stop(&shell->alarm);
    LIST_REMOVE(shell, in_list);
    free(shell->pwd);
    free(shell);
}

static void on_end(void *user, uint64_t session, uint64_t process, const struct hutch_process_end *end)
{
    struct e2b_shell *shell = user;
    char message[160];
    const char *why = shell->why ? shell->why : end->why;

    (void)session;
    (void)process;
    snprintf(message, sizeof(message), "the shell was killed by signal %d; the next code finds another one",
             end->signal);
    hutch_e2b_alarm_stop(&shell->alarm);
    shell->process = 0;
    if (shell->is_working)
        end_code(shell, shell->why || end->exit_code < 0 ? SHELL_ENDED : end->exit_code, why[0] ? why : message);
    shell->is_ending = false;
    shell->why = NULL;
    if (shell->is_dropped)
        free_shell(shell);
    else
        start_next(shell);
}

static int spawn(struct e2b_shell *shell, struct hutch_error *error)
{
    const char *const env[] = { shell->pwd, NULL };
    struct hutch_process_options options;

    hutch_process_options_init(&options);
    options.shell = COMMAND;
    options.cwd = shell->pwd + strlen("PWD=");
    options.env = env;
    options.has_input = 1;
    options.output_bytes = HUTCH_NO_LIMIT;
    options.on_output = on_output;
    options.on_room = on_room;
    options.on_end = on_end;
    options.user = shell;
    if (hutch_session_spawn(shell->engine, session_of(shell), &options, &shell->process, error) < 0)
        return -1;
    shell->n_prepared = 0;
    shell->count = 0;
    return 0;
}

static void begin_code(struct e2b_shell *shell)
{
    struct shell_code *code = TAILQ_FIRST(&shell->codes);

    for (int i = 0; i < 2; i++) {
        shell->marks[i] = (struct mark){ .n_held = 0 };
        memcpy(shell->marks[i].id, code->id, sizeof(code->id));
    }
    shell->is_working = true;
    code->left_ms = (double)code->wall_ms;
    if (code->wall_ms)
        hutch_e2b_alarm_set(shell->alarms, &shell->alarm, code->left_ms < LOOK_MS ? code->left_ms : LOOK_MS);
    code->events->on_begin(code->user, ++shell->count);
    write_input(shell);
}

/* Where no shell can be had, those that wait are told so. */
static void start_next(struct e2b_shell *shell)
{
    struct hutch_error error;
    struct shell_code *code;

    while (!shell->is_working && !shell->is_ending && (code = TAILQ_FIRST(&shell->codes))) {
        if (shell->process || spawn(shell, &error) == 0) {
            begin_code(shell);
            return;
        }
        remove_code(shell, code);
        code->events->on_end(code->user, SHELL_ENDED, error.message);
        hutch_e2b_shell_code_free(code);
    }
}

/* ---- for callers ---- */

struct e2b_shell *hutch_e2b_shell_create(struct exchange *x, struct e2b_sandbox *sandbox, const char *cwd)
{
    struct e2b_shell *shell = calloc(1, sizeof(*shell));

    if (!shell)
        return NULL;
    if (asprintf(&shell->pwd, "PWD=%s", cwd) < 0) {
        free(shell);
        return NULL;
    }
    shell->sandbox = sandbox;
    shell->engine = hutch_exchange_engine(x);
    shell->alarms = hutch_e2b_alarms(x);
    shell->alarm.on_due = on_due;
    TAILQ_INIT(&shell->codes);
    LIST_INSERT_HEAD(&sandbox->shells, shell, in_list);
    return shell;
}

int hutch_e2b_shell_execute(struct e2b_shell *shell, struct shell_code *code, uint64_t wall_ms,
                            const struct shell_events *events, void *user, struct hutch_error *error)
{
    if (shell->n_codes == SHELL_MAX_CODES) {
        error->code = EAGAIN;
        snprintf(error->message, sizeof(error->message), "%d codes wait in this context, and no more may",
                 SHELL_MAX_CODES);
        return -1;
    }
    if (!shell->process && spawn(shell, error) < 0)
        return -1;
    code->wall_ms = wall_ms;
    code->events = events;
    code->user = user;
    TAILQ_INSERT_TAIL(&shell->codes, code, in_queue);
    shell->n_codes++;
    start_next(shell);
    return 0;
}

bool hutch_e2b_shell_cancel(struct e2b_shell *shell, struct shell_code *code)
{
    if (!shell->is_working || code != TAILQ_FIRST(&shell->codes)) {
        remove_code(shell, code);
        hutch_e2b_shell_code_free(code);
        return false;
    }
    if (!shell->is_ending)
        kill_process(shell, "nobody waited for the code any more, and it was ended with its shell");
    return true;
}

void hutch_e2b_shell_hold(struct e2b_shell *shell, bool is_held)
{
    struct hutch_error error;

    if (is_held == shell->is_held || (is_held && shell->is_ending)) /* its end comes behind its output */
        return;
    shell->is_held = is_held;
    if (shell->process)
        hutch_process_hold(shell->engine, session_of(shell), shell->process, is_held, &error);
}

void hutch_e2b_shell_restart(struct e2b_shell *shell)
{
    kill_process(shell, "the context was restarted");
}

void hutch_e2b_shell_drop(struct e2b_shell *shell)
{
    const struct shell_code *at_work = shell->is_working ? TAILQ_FIRST(&shell->codes) : NULL;
    struct shell_code *code;

    while ((code = TAILQ_LAST(&shell->codes, shell_codes)) && code != at_work) {
        remove_code(shell, code);
        code->events->on_end(code->user, SHELL_ENDED, "the context was removed");
        hutch_e2b_shell_code_free(code);
    }
    shell->is_dropped = true;
    if (shell->process)
        kill_process(shell, "the context was removed");
    else
        free_shell(shell);
}

void hutch_e2b_shells_free(struct e2b_sandbox *sandbox)
{
    struct e2b_shell *shell;

    while ((shell = LIST_FIRST(&sandbox->shells)))
        free_shell(shell);
}

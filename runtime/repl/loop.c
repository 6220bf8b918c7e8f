#include "runtime/repl/repl.h"

#include "sandbox/fd.h"
#include "sandbox/clock.h"
#include "sandbox/inside.h"
#include "runtime/repl/complete.h"
#include "runtime/repl/prompt.h"
#include "runtime/term/image.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define INPUT_LINE_MAX  4096 /* of a terminal: termios(3) */
#define HIDDEN_CONTEXT  "hutch"
#define PAGER_MS        2000 /* that it has to end when it is asked to */
/* What IPython would show in a pager, as for "print?", a kernel leaves to its front end: here it is a display of a type
 * of ours. In a traceback IPython gives what was executed a yellow ground, on which the light letters of a dark
 * terminal cannot be read: a line below is read on any. */
#define PREPARATION                                                                                                   \
    "get_ipython().set_hook('show_in_pager', lambda shell, data, *more, **named: shell.display_pub.publish({"         \
    "'" REPL_PAGE_TYPE "': str(data.get('text/plain', '') if isinstance(data, dict) else data)}), 0)\n"               \
    "from IPython.core import ultratb\n"                                                                              \
    "from types import SimpleNamespace\n"                                                                             \
    "if hasattr(ultratb, 'stack_data'):\n"                                                                            \
    "    original = ultratb.stack_data\n"                                                                             \
    "    ultratb.stack_data = SimpleNamespace(**vars(original))\n"                                                    \
    "    ultratb.stack_data.style_with_executing_node = "                                                             \
    "lambda style, mark: original.style_with_executing_node(style, 'underline')\n"
#define DAY_MS          (24u * 3600 * 1000)

/* --- the session ------------------------------------------------------------------------------------------------ */

void hutch_repl_begin_anew(struct repl *r)
{
    hutch_repl_counts_clear(&r->counts);
    r->branch = 0;
    r->n_copies = 0;
    r->is_prepared = false;
}

static void on_end(void *user, uint64_t session, const char *why, const char *directory)
{
    struct repl *r = user;

    (void)session;
    r->has_session = false;
    r->has_files = false;
    hutch_repl_begin_anew(r);
    if (!r->is_closing)
        hutch_cell_show_say(&r->show, "the session is over: %s", why);
    if (directory && !r->is_quiet)
        hutch_cell_show_say(&r->show, "files written to " INSIDE_DATA_DIR " are in %s", directory);
}

bool hutch_repl_open_session(struct repl *r)
{
    struct hutch_session_options options;
    struct hutch_err err;

    if (r->has_session)
        return true;
    hutch_session_options_init(&options);
    options.data_dir = r->data;
    options.keep_data = 1;
    options.idle_ms = options.lifetime_ms = 30 * (uint64_t)DAY_MS; /* its user may come back after days */
    options.on_end = on_end;
    options.user = r;
    r->has_session = r->host->kind->open(r->host, &options, &err) == 0;
    if (!r->has_session)
        hutch_cell_show_say(&r->show, "%s", err.msg);
    return r->has_session;
}

/* --- input() ---------------------------------------------------------------------------------------------------- */

static void restore_echo(struct repl *r)
{
    if (r->has_hidden_echo)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &r->echo);
    r->has_hidden_echo = false;
}

static void end_input(struct repl *r)
{
    if (r->has_hidden_echo && r->wants_input)
        hutch_cell_show_raw(&r->show, "\n", 1); /* that of the answer was not seen either */
    restore_echo(r);
    r->wants_input = false;
}

static void on_input(void *user, uint64_t session, const char *prompt, int is_password)
{
    struct repl *r = user;

    (void)session;
    if (!r->is_interactive || r->is_hidden) {
        r->host->kind->reply(r->host, NULL);
        return;
    }
    if (is_password && !*prompt)
        prompt = "Password: "; /* a notebook shows a box */
    hutch_cell_show_bytes(&r->show, 1, prompt, strlen(prompt));
    r->wants_input = true;
    if (is_password && tcgetattr(STDIN_FILENO, &r->echo) == 0) {
        struct termios silent = r->echo;

        silent.c_lflag &= ~(tcflag_t)(ECHO | ECHOE | ECHOK | ECHONL);
        r->has_hidden_echo = tcsetattr(STDIN_FILENO, TCSAFLUSH, &silent) == 0;
    }
}

/* The terminal edits the line, and has it whole. */
static void read_answer(struct repl *r)
{
    char line[INPUT_LINE_MAX + 1];
    ssize_t n = read(STDIN_FILENO, line, INPUT_LINE_MAX);

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n > 0 && line[n - 1] == '\n')
        n--;
    else if (n == 0)
        n = -1;
    end_input(r);
    if (n >= 0)
        line[n] = '\0';
    r->show.streams[0].is_in_line = false; /* Return was shown, or the line that end_input() began */
    r->host->kind->reply(r->host, n < 0 ? NULL : line);
    explicit_bzero(line, sizeof(line));
}

/* --- the loop --------------------------------------------------------------------------------------------------- */

static void hear_signal(struct repl *r, int number, bool *ret_interrupt)
{
    struct hutch_err ignored;

    switch (number) {
    case SIGWINCH:
    case SIGCONT:
        if (r->prompt && !r->is_busy && !r->pager)
            hutch_prompt_redraw(r->prompt, number == SIGWINCH, number == SIGCONT);
        break;
    case SIGINT:
        *ret_interrupt = true;
        if (!r->is_busy)
            break;
        end_input(r);
        r->host->kind->interrupt(r->host);
        if (++r->n_interrupts == 2 && r->is_interactive)
            hutch_cell_show_say(
                &r->show,
                "it has been interrupted twice and goes on; Ctrl-\\ ends the interpreter, and its variables are lost");
        break;
    case SIGQUIT:
        end_input(r);
        if (r->is_busy)
            r->host->kind->restart(r->host, &ignored);
        break;
    default:
        r->fatal_signal = number;
        end_input(r);
        if (r->has_session)
            r->host->kind->close(r->host);
    }
}

/* One turn: waits for something, does it, and says whether a key was pressed, or the pager has ended. */
static bool turn_loop(struct repl *r, bool wants_key, int timeout_ms, bool *ret_interrupt)
{
    struct backlog *out = &r->show.streams[0].backlog, *err_out = &r->show.streams[1].backlog;
    bool reads_answer = r->wants_input && hutch_cell_show_is_written(&r->show),
         is_behind = hutch_cell_show_is_behind(&r->show),
         is_ready = !is_behind && r->host->kind->is_ready(r->host);
    struct pollfd p[] = {
        { .fd = r->is_broken ? -1 : r->host->kind->fd(r->host, is_behind), .events = POLLIN },
        { .fd = r->signal_fd, .events = POLLIN },
        { .fd = r->pager || hutch_backlog_is_empty(out) ? -1 : out->fd, .events = POLLOUT },
        { .fd = r->pager || hutch_backlog_is_empty(err_out) ? -1 : err_out->fd, .events = POLLOUT },
        { .fd = wants_key || reads_answer ? STDIN_FILENO : -1, .events = POLLIN },
        { .fd = r->pager ? r->pager->text.fd : -1, .events = POLLOUT },
        { .fd = r->pager ? r->pager->pidfd : -1, .events = POLLIN },
    };
    struct signalfd_siginfo info;
    struct hutch_err err;
    int n = poll(p, ARRAY_SIZE(p), is_ready ? 0 : is_behind && timeout_ms < 0 ? BACKLOG_PAUSE_MS : timeout_ms);

    if (n < 0)
        return false;
    if (p[1].revents)
        while (read(r->signal_fd, &info, sizeof(info)) == sizeof(info))
            hear_signal(r, (int)info.ssi_signo, ret_interrupt);
    if ((p[0].revents || is_ready || (is_behind && n == 0 && !r->is_broken)) &&
        r->host->kind->dispatch(r->host, is_behind, &err) < 0) {
        r->is_broken = true;
        hutch_cell_show_say(&r->show, "%s", err.msg);
    }
    if (p[2].revents)
        hutch_backlog_pass_on(out);
    if (p[3].revents)
        hutch_backlog_pass_on(err_out);
    if (p[4].revents && reads_answer && r->wants_input)
        read_answer(r);
    if (p[5].revents)
        hutch_pager_pass_on(r->pager);
    return p[4].revents != 0 || p[6].revents != 0;
}

void hutch_repl_wait(struct repl *r)
{
    bool is_interrupted = false;

    while ((r->is_busy && !r->is_broken) || !hutch_cell_show_is_written(&r->show))
        turn_loop(r, false, -1, &is_interrupted);
    end_input(r);
}

bool hutch_repl_is_interrupted(struct repl *r)
{
    bool is_interrupted = false;

    turn_loop(r, false, 0, &is_interrupted);
    return is_interrupted || r->fatal_signal;
}

bool hutch_repl_await_key(void *user)
{
    struct repl *r = user;
    bool is_interrupted = false, was_shown = false;

    while (!r->fatal_signal && !r->is_broken) { /* which may have come while Tab was at work */
        bool has_key = turn_loop(r, true, -1, &is_interrupted);

        was_shown |= !hutch_cell_show_is_written(&r->show);
        if (is_interrupted || r->fatal_signal || r->is_broken)
            return false;
        if (was_shown && hutch_cell_show_is_written(&r->show)) { /* that the session has ended, say */
            hutch_prompt_redraw(r->prompt, false, false);
            was_shown = false;
        }
        if (has_key)
            return true;
    }
    return false;
}

void hutch_repl_close_session(struct repl *r)
{
    r->is_closing = true;
    if (r->has_session && r->host->kind->close(r->host)) {
        bool is_interrupted = false;

        while (r->has_session && !r->is_broken && !is_interrupted)
            turn_loop(r, false, -1, &is_interrupted);
    }
    hutch_repl_wait(r);
}

void hutch_repl_await_pager(struct repl *r)
{
    bool is_interrupted = false;
    double deadline = 0;

    while (!turn_loop(r, false, deadline > 0 ? PAGER_MS : -1, &is_interrupted)) {
        if (r->fatal_signal && deadline == 0) {
            hutch_pager_stop(r->pager, false);
            deadline = hutch_clock_ms() + PAGER_MS;
        } else if (r->fatal_signal && hutch_clock_ms() >= deadline) {
            hutch_pager_stop(r->pager, true);
        }
    }
}

/* --- cells ------------------------------------------------------------------------------------------------------ */

static void on_output(void *user, uint64_t session, const struct hutch_output *output)
{
    struct repl *r = user;

    (void)session;
    if (!hutch_repl_take_page(r, output))
        hutch_cell_show_output(&r->show, output);
}

static void on_result(void *user, uint64_t session, const struct hutch_cell_result *result)
{
    struct repl *r = user;
    bool is_old_news = result->is_fresh && r->was_death_told && !result->interpreter_died &&
                       (result->verdict == HUTCH_OK || result->verdict == HUTCH_ERROR);

    (void)session;
    r->is_busy = false;
    end_input(r);
    r->verdict = result->verdict;
    hutch_cell_show_end(&r->show);
    if (result->message[0] && !is_old_news)
        hutch_cell_show_say(&r->show, "%s%s", result->message,
                            !result->interpreter_died         ? ""
                            : r->n_copies > 0 ? "; variables are lost, and %rollback goes back to a checkpoint"
                                              : "; variables are lost");
    if (!result->message[0] && result->truncated)
        hutch_cell_show_say(&r->show, "there was more output than the limit; the rest was dropped");
    r->has_files |= result->verdict != HUTCH_SETUP_FAILED;
    r->was_death_told = result->interpreter_died;
    if (result->interpreter_died)
        hutch_repl_counts_drop(&r->counts, r->branch);
    else
        hutch_repl_counts_set(&r->counts, r->branch, r->context, result->execution_count);
}

static bool run_cell(struct repl *r, struct hutch_cell *cell)
{
    struct hutch_err err;

    if (!hutch_repl_open_session(r))
        return false;
    cell->user = r;
    r->n_interrupts = 0;
    if (r->host->kind->execute(r->host, cell, &err) < 0) {
        hutch_cell_show_say(&r->show, "%s", err.msg);
        return false;
    }
    r->is_busy = true;
    hutch_repl_wait(r);
    return !r->is_broken;
}

/* --- a cell that is not shown: it prepares the interpreter --- */

static void on_hidden_result(void *user, uint64_t session, const struct hutch_cell_result *result)
{
    struct repl *r = user;

    (void)session;
    r->is_busy = false;
    if (result->message[0] && !r->is_closing && !(result->is_fresh && r->was_death_told))
        hutch_cell_show_say(&r->show, "%s", result->message);
    if (result->interpreter_died)
        hutch_repl_begin_anew(r);
    r->was_death_told = result->interpreter_died;
    r->has_files |= result->verdict != HUTCH_SETUP_FAILED;
}

bool hutch_repl_prepare(struct repl *r)
{
    struct hutch_cell cell;

    if (r->is_prepared)
        return true;
    hutch_cell_init(&cell);
    cell.code = PREPARATION;
    cell.context = HIDDEN_CONTEXT;
    cell.silent = cell.no_history = 1;
    cell.on_result = on_hidden_result;
    r->is_hidden = true;
    r->is_prepared = run_cell(r, &cell) && r->has_files;
    r->is_hidden = false;
    return r->is_prepared;
}

/* --- questions --------------------------------------------------------------------------------------------------- */

static void on_answer(void *user, uint64_t session, const struct hutch_reply *reply)
{
    struct repl *r = user;

    (void)session;
    r->is_asking = false;
    r->answer = reply->ok ? strdup(reply->json) : NULL;
    snprintf(r->why_none, sizeof(r->why_none), "%s", reply->message);
}

/* A question without an answer may have been the interpreter's end. */
static void tell_death(struct repl *r)
{
    if (!r->has_session || !r->host->kind->is_lost(r->host))
        return;
    if (!r->is_closing)
        hutch_cell_show_say(&r->show, "%s", r->why_none);
    hutch_repl_begin_anew(r);
    r->was_death_told = true;
}

char *hutch_repl_ask(struct repl *r, const char *line, size_t len)
{
    struct hutch_question question;
    struct hutch_err err;
    bool is_interrupted = false;
    char *answer;

    /* Another interpreter would cost the checkpoints. */
    if (r->was_death_told || !hutch_repl_prepare(r))
        return NULL;
    hutch_question_init(&question);
    question.kind = HUTCH_ASK_COMPLETION;
    question.code = line;
    question.code_len = len;
    question.cursor = -1;
    question.context = r->context;
    question.timeout_ms = COMPLETE_MS;
    if (len == 0 || r->host->kind->ask(r->host, &question, on_answer, r, &err) < 0)
        return NULL;
    r->is_asking = r->is_busy = true;
    r->n_interrupts = 0;
    while (r->is_asking && !r->is_broken)
        turn_loop(r, false, -1, &is_interrupted);
    r->is_busy = false;
    if (!r->answer && !r->is_broken)
        tell_death(r);
    answer = r->answer;
    r->answer = NULL;
    return answer;
}

bool hutch_repl_execute(struct repl *r, const char *code, size_t len)
{
    struct hutch_cell cell;
    bool was_run;

    if (r->was_death_told) /* a cell has another interpreter made, and checkpoints end */
        hutch_repl_begin_anew(r);
    if (!hutch_repl_prepare(r))
        return false;
    hutch_cell_init(&cell);
    cell.code = code;
    cell.code_len = len;
    cell.context = r->context;
    cell.allow_input = 1;
    cell.on_output = on_output;
    cell.on_input = on_input;
    cell.on_result = on_result;
    was_run = run_cell(r, &cell);
    hutch_repl_wait(r);
    if (r->page.len > 0) {
        hutch_repl_show_page(r);
        hutch_repl_wait(r);
    }
    return was_run;
}

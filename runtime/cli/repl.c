#include "runtime/cli/repl.h"

#include "runtime/cli/engine.h"
#include "runtime/cli/exits.h"
#include "sandbox/fd.h"
#include "sandbox/log.h"
#include "rootfs/home.h"
#include "runtime/lang/program.h"
#include "runtime/repl/complete.h"
#include "runtime/repl/prompt.h"
#include "runtime/lang/python_complete.h"
#include "runtime/repl/repl.h"
#include "runtime/cli/repl_server.h"
#include "runtime/cli/run_options.h"
#include "runtime/cli/say.h"
#include "runtime/cli/with_packages.h"
#include "runtime/text/buffer.h"
#include "sandbox/spec.h"
#include "sandbox/rlimits.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <unistd.h>


#define CELL_MAX     (8u << 20) /* hutch.h */
#define HISTORY_NAME "repl_history"

static void print_help(void)
{
    printf("usage: hutch repl [options]\n\n"
           "A prompt for Python in a sandbox of its own: variables and files stay from cell to cell. Without a\n"
           "terminal, standard input is one cell; exit status 0, 1 after an exception, 124 on a timeout, 125 when\n"
           "hutch failed.\n\n");
    hutch_option_print(&hutch_commands[COMMAND_REPL]);
    printf("\n%%help, typed at the prompt, lists what can be done there.\n");
}

/* --- images ----------------------------------------------------------------------------------------------------- */

static int save_image(void *user, const char *name, const void *data, size_t len, struct hutch_err *err)
{
    struct repl *r = user;
    struct host_file there = HOST_FILE_INIT;
    auto_fd fd = -1;
    uint64_t bytes;
    int rc = r->host->kind->open_file(r->host, name, &there, err);

    hutch_fd_closep(&there.fd);
    if (rc == 0 || err->errnum == EEXIST)
        return hutch_err_set(err, EEXIST, "'%s'", name);
    if (err->errnum != ENOENT)
        return -1;
    fd = memfd_create("image", MFD_CLOEXEC);
    if (fd < 0 || hutch_fd_write_all(fd, data, len) < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return hutch_err_set(err, 0, "keep '%s': %s", name, strerror(errno));
    rc = r->host->kind->put_file(r->host, name, fd, len, NULL, NULL, &bytes, err);
    if (rc < 0)
        err->errnum = 0; /* another name would not help */
    return rc;
}

/* --- the prompt ------------------------------------------------------------------------------------------------- */

static bool append_line(struct text_buffer *cell, const char *line, size_t len)
{
    if (cell->len + len > CELL_MAX)
        return false;
    hutch_text_add(cell, line, len);
    return !cell->is_broken;
}

static void make_prompt(const struct repl *r, bool is_first, char *to, size_t room)
{
    bool is_main = strcmp(r->context, "main") == 0;
    int n = snprintf(to, room, "%s%s%sIn [%d]: ", is_main ? "" : "[", is_main ? "" : r->context, is_main ? "" : "] ",
                     hutch_repl_counts_get(&r->counts, r->branch, r->context) + 1);

    if (!is_first)
        snprintf(to, room, "%*s", n, "...: ");
}

/* A whole cell, or what there is of it. */
static enum prompt_end read_cell(struct repl *r, struct text_buffer *cell)
{
    char text[128];
    const char *line;
    size_t len;

    cell->len = 0;
    do {
        enum prompt_end end;

        r->is_in_magic = cell->len > 0 && hutch_repl_is_magic(cell->data, cell->len);
        make_prompt(r, cell->len == 0, text, sizeof(text));
        end = hutch_prompt_read(r->prompt, text, &line, &len);
        if (end != PROMPT_LINE)
            return end;
        if (!append_line(cell, line, len)) {
            hutch_cell_show_say(&r->show, "a cell has %u bytes at most", CELL_MAX);
            hutch_text_done(cell);
            return PROMPT_LINE;
        }
        hutch_prompt_remember(r->prompt, line, len);
    } while (hutch_prompt_is_pasting(r->prompt) ||
             !hutch_py_is_complete(cell->data, cell->len)); /* a pasted text is not cut */
    return PROMPT_LINE;
}

static bool is_blank(const struct text_buffer *cell)
{
    return strspn(cell->data, " \t\n") == cell->len;
}

/* "exit", "quit();" and the like. In a kernel they would end an interpreter, and here the session should be over. */
static bool is_farewell(const struct text_buffer *cell)
{
    const char *rest = cell->data + 4;

    if (strncmp(cell->data, "exit", 4) != 0 && strncmp(cell->data, "quit", 4) != 0)
        return false;
    if (*rest == '(')
        rest += 1 + strspn(rest + 1, "0123456789");
    if (*rest == ')')
        rest++;
    return rest[strspn(rest, " \t\n;")] == '\0';
}

static void read_and_execute(struct repl *r)
{
    struct text_buffer cell = TEXT_BUFFER_INIT;

    while (!r->fatal_signal && !r->is_broken) {
        enum prompt_end end;

        hutch_repl_wait(r);
        end = read_cell(r, &cell);
        if (end != PROMPT_LINE) {
            hutch_cell_show_raw(&r->show, "\n", 1);
            if (end == PROMPT_EOF)
                break;
        } else if (cell.len == 0 || is_blank(&cell)) {
            continue;
        } else if (is_farewell(&cell)) {
            break;
        } else {
            if (!hutch_repl_magic(r, cell.data, cell.len))
                hutch_repl_execute(r, cell.data, cell.len);
            hutch_cell_show_raw(&r->show, "\n", 1);
        }
    }
    hutch_text_done(&cell);
}

static int exit_status(const struct repl *r, bool was_run)
{
    if (r->fatal_signal)
        return EXIT_SIGNAL_BASE + r->fatal_signal;
    if (r->is_broken || !was_run)
        return EXIT_HUTCH;
    if (r->is_interactive)
        return 0;
    return r->verdict == HUTCH_OK             ? 0
           : r->verdict == HUTCH_TIMEOUT      ? EXIT_TIMEOUT
           : r->verdict == HUTCH_CPU_TIME     ? EXIT_TIMEOUT
           : r->verdict == HUTCH_SETUP_FAILED ? EXIT_HUTCH
                                              : 1;
}

/* --- beginning and end ------------------------------------------------------------------------------------------ */

static int open_prompt(struct repl *r, const char *home, struct hutch_err *err)
{
    auto_free char *history = NULL;

    if (asprintf(&history, "%s/" HISTORY_NAME, home) < 0) {
        history = NULL;
        return hutch_err_set(err, ENOMEM, "make a prompt");
    }
    if (hutch_prompt_open(history, hutch_repl_await_key, hutch_repl_complete, r,
                          r->show.streams[0].filter.has_colours, &r->prompt, err) < 0)
        return -1;
    if (!r->is_quiet)
        hutch_cell_show_say(&r->show, "Python in a sandbox; %%help lists what else there is, Ctrl-D ends");
    return 0;
}

/* Besides those that end us: what becomes of the terminal. */
static int watch_signals(const struct repl *r, int *ret_fd, struct hutch_err *err)
{
    static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGCONT };
    sigset_t set;

    if (hutch_run_watch_signals(ret_fd, err) < 0 || !r->is_interactive)
        return *ret_fd < 0 ? -1 : 0;
    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
        sigaddset(&set, numbers[i]);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0 || signalfd(*ret_fd, &set, 0) < 0)
        return hutch_err_set(err, errno, "watch for signals");
    return 0;
}

/* How large a file that is taken in can be. */
static uint64_t max_file(const struct hutch_engine *engine)
{
    struct hutch_limits limits = { .size = sizeof(limits) };
    uint64_t data, file;

    hutch_engine_get_limits(engine, &limits);
    data = limits.data_bytes ? limits.data_bytes : UINT64_MAX;
    file = limits.file_bytes ? limits.file_bytes : UINT64_MAX;
    return data < file ? data : file;
}

/* An engine of its own. */
static struct host *open_engine(const struct cli_engine_options *options, struct hutch_err *err)
{
    struct hutch_engine *engine;
    struct host *host;

    if (hutch_cli_engine_open(options, &engine, err) < 0)
        return NULL;
    host = hutch_host_of_engine(engine, max_file(engine), err);
    if (!host)
        hutch_engine_free(engine);
    return host;
}

/* The server's, where it has one like this command's own; then the prompt is there at once. */
static struct host *open_host(const struct run_opts *opts, const struct repl *r,
                              const struct cli_engine_options *engine, struct repl_server *server,
                              struct hutch_err *err)
{
    struct host *host = NULL;

    if (!opts->no_server) {
        host = hutch_repl_server_host(opts, engine->options.home, r->data, engine->limits.wall_ms, server, err);
        if (host)
            hutch_log_debug("the session is one of the server on the default socket");
        else
            hutch_log_debug("without a server: %s", err->msg);
    }
    return host ? host : open_engine(engine, err);
}

static int run(struct repl *r, const struct run_opts *opts, const struct cli_engine_options *engine,
               struct repl_server *server, struct hutch_err *err)
{
    auto_free char *code = NULL;
    auto_fd signal_fd = -1;
    bool was_run = true;
    size_t len = 0;

    if (!r->is_interactive && hutch_fd_slurp(STDIN_FILENO, CELL_MAX, "standard input", &code, &len, err) < 0)
        return -1;
    if (watch_signals(r, &signal_fd, err) < 0 || !(r->host = open_host(opts, r, engine, server, err)))
        return -1;
    r->signal_fd = signal_fd;
    if (!hutch_repl_open_session(r)) {
        was_run = false;
    } else if (r->is_interactive && open_prompt(r, engine->options.home, err) < 0) {
        hutch_cell_show_say(&r->show, "%s", err->msg);
        was_run = false;
    } else if (r->is_interactive) {
        read_and_execute(r);
        if (hutch_prompt_save(r->prompt, err) < 0)
            hutch_cell_show_say(&r->show, "%s", err->msg);
        hutch_prompt_free(r->prompt);
        r->prompt = NULL;
    } else if (len > 0) {
        const char *cell = hutch_program_skip_mark(code, &len);

        was_run = hutch_repl_execute(r, cell, len);
    }
    hutch_repl_close_session(r);
    return exit_status(r, was_run);
}

int hutch_cmd_repl(int argc, char **argv, struct hutch_err *err)
{
    struct repl r = { .context = "main", .signal_fd = -1 };
    struct run_opts opts;
    struct cli_engine_options engine = { .launcher = NULL };
    struct repl_server server = REPL_SERVER_INIT;
    struct with_packages with;
    auto_free char *home = NULL, *data = NULL;
    int first, status = -1;

    if (hutch_run_options_parse(COMMAND_REPL, argc, argv, &opts, &first, err) < 0)
        goto out;
    if (opts.help) {
        print_help();
        return 0;
    }
    hutch_say_verbosely(opts.verbose);
    if (first < argc) {
        hutch_err_set(err, 0, "hutch repl takes no arguments, but '%s' (to run a file: hutch run)", argv[first]);
        goto out;
    }
    if (hutch_run_options_data(&opts, &data, err) < 0 || hutch_home_path(&home, err) < 0)
        goto out;
    if (hutch_with_packages(&opts, home, NULL, NULL, &with, err) < 0 ||
        hutch_cli_engine_options(&opts, home, &engine, err) < 0)
        goto out;
    if (!engine.limits.wall_ms)
        engine.limits.wall_ms = HUTCH_NO_LIMIT; /* Ctrl-C is there */
    r.data = data;
    r.is_quiet = opts.quiet;
    r.is_interactive = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    hutch_cell_show_init(&r.show, STDOUT_FILENO, STDERR_FILENO);
    r.show.has_numbers = r.is_interactive;
    r.show.save_image = save_image;
    r.show.user = &r;
    if (opts.images && hutch_term_images_parse(opts.images, &r.show.images, err) < 0) {
        hutch_err_wrap(err, "option '--images'");
        goto out;
    }
    if (opts.context) {
        if (!hutch_repl_is_context(opts.context)) {
            hutch_err_set(err, 0,
                          "option '--context': '%s' is no name for a context: 1 to %d letters, digits, '_' and '-'",
                          opts.context, REPL_CONTEXT_SIZE - 1);
            goto out;
        }
        strcpy(r.context, opts.context);
    }
    hutch_rlimits_raise_open_files();
    status = run(&r, &opts, &engine, &server, err);
out:
    hutch_host_free(r.host);
    hutch_repl_server_done(&server);
    hutch_cell_show_done(&r.show);
    hutch_repl_counts_clear(&r.counts);
    hutch_cli_engine_done(&engine);
    return status;
}

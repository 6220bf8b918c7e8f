#include "runtime/cli/mcp.h"

#include "rootfs/home.h"
#include "runtime/cli/engine.h"
#include "runtime/cli/exits.h"
#include "runtime/cli/run_options.h"
#include "runtime/cli/say.h"
#include "runtime/cli/version.h"
#include "runtime/cli/with_packages.h"
#include "runtime/mcp/stdio.h"
#include "sandbox/fd.h"
#include "sandbox/rlimits.h"

#include <fcntl.h>
#include <stdio.h>

/* A conversation may rest for a night; its sessions end with this process in any case. */
#define IDLE_MS (24ull * 3600 * 1000)
#define LIFETIME_MS (7 * IDLE_MS)

static void print_help(void)
{
    printf("usage: hutch mcp [options]\n\n"
           "Serves the Model Context Protocol on standard input and output: a client such as an editor or an agent\n"
           "starts it, and its model gets the tools run_python, run_command, list_files, read_file and write_file, in\n"
           "a sandbox whose variables and files stay from call to call. Exit status: 0 when the client has ended it,\n"
           "125 when hutch failed, 128 and the number of a signal.\n\n");
    hutch_option_print(&hutch_commands[COMMAND_MCP]);
}

static int open_engine(void *user, struct hutch_engine **ret, struct hutch_err *err)
{
    return hutch_cli_engine_open(user, ret, err);
}

static void log_error(void *user, const char *text)
{
    (void)user;
    hutch_say("%s", text);
}

/* Nothing but the protocol may get to the client: what anything else writes to standard output goes to standard
 * error. */
static int take_output(int *ret_fd, struct hutch_err *err)
{
    auto_fd fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);

    if (fd < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        return hutch_err_set(err, errno, "take standard output for the protocol");
    *ret_fd = hutch_fd_take(&fd);
    return 0;
}

static int serve(struct cli_engine_options *engine, const struct mcp_settings *settings, struct hutch_err *err)
{
    auto_fd out_fd = -1, signal_fd = -1;
    struct mcp_stdio_options options = { .settings = settings, .version = HUTCH_VERSION, .in_fd = STDIN_FILENO,
                                         .open_engine = open_engine, .log = log_error, .user = engine };
    int rc;

    if (take_output(&out_fd, err) < 0 || hutch_run_watch_signals(&signal_fd, err) < 0)
        return -1;
    options.out_fd = out_fd;
    options.signal_fd = signal_fd;
    rc = hutch_mcp_stdio_run(&options, err);
    return rc > 0 ? EXIT_SIGNAL_BASE + rc : rc;
}

int hutch_cmd_mcp(int argc, char **argv, struct hutch_err *err)
{
    struct run_opts opts;
    struct cli_engine_options engine = { .launcher = NULL };
    struct with_packages with;
    struct mcp_settings settings = { .idle_ms = IDLE_MS, .lifetime_ms = LIFETIME_MS };
    auto_free char *home = NULL, *data = NULL;
    int first, status = -1;

    if (hutch_run_options_parse(COMMAND_MCP, argc, argv, &opts, &first, err) < 0)
        return -1;
    if (opts.help) {
        print_help();
        return 0;
    }
    hutch_say_verbosely(opts.verbose);
    if (first < argc)
        return hutch_err_set(err, 0, "hutch mcp takes no arguments, but '%s'", argv[first]);
    if (hutch_run_options_data(&opts, &data, err) < 0 ||
        hutch_run_options_budget(&opts, "--budget", &settings.budget, err) < 0 || hutch_home_path(&home, err) < 0)
        return -1;
    if (settings.budget > MCP_MAX_TOKENS)
        return hutch_err_set(err, 0, "option '--budget': %d tokens at most, not '%s'", MCP_MAX_TOKENS, opts.llm_budget);
    if (hutch_with_packages(&opts, home, NULL, NULL, &with, err) == 0 &&
        hutch_cli_engine_options(&opts, home, &engine, err) == 0) {
        settings.data_dir = data;
        if (isatty(STDIN_FILENO) && !opts.quiet)
            hutch_say("a client of the Model Context Protocol is meant to write here; Ctrl-D ends");
        hutch_rlimits_raise_open_files();
        status = serve(&engine, &settings, err);
    }
    hutch_cli_engine_done(&engine);
    return status;
}

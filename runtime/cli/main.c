/* main.c - the command line: which command, and nothing else. */
#include "runtime/cli/batch.h"
#include "runtime/cli/beside.h"
#include "runtime/cli/bundle.h"
#include "runtime/cli/commands.h"
#include "runtime/cli/completion.h"
#include "runtime/cli/doctor.h"
#include "runtime/cli/exits.h"
#include "runtime/cli/mcp.h"
#include "runtime/cli/repl.h"
#include "runtime/cli/run.h"
#include "runtime/cli/say.h"
#include "runtime/cli/tools.h"
#include "runtime/cli/version.h"
#include "sandbox/fd.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv, struct hutch_err *err); /* the exit status; -1 or, for another one than
                                                               * EXIT_HUTCH, minus that: an error, to be printed */
} commands[] = {
    { "run", hutch_cmd_run },
    { "repl", hutch_cmd_repl },
    { "batch", hutch_cmd_batch },
    { "serve", hutch_cmd_serve_beside },
    { "mcp", hutch_cmd_mcp },
    { "tools", hutch_cmd_tools },
    { "rootfs", hutch_cmd_rootfs_beside },
    { "bundle", hutch_cmd_bundle },
    { "doctor", hutch_cmd_doctor },
    { "completion", hutch_cmd_completion },
};

static void print_usage(FILE *to)
{
    fprintf(to, "usage: hutch COMMAND [...]\n\n");
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
        fprintf(to, "  %-10s %s\n", commands[i].name, hutch_command_summary(commands[i].name));
    fprintf(to,
            "\n'hutch COMMAND --help' lists the options of a command; 'hutch --version' tells which hutch this is.\n");
}

/* A descriptor among 0-2 that the caller closed would be given to the next file that is opened. */
static int fill_standard_fds(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
            return -1;
    return 0;
}

static int run_command(size_t row, int argc, char **argv)
{
    struct hutch_err err = { 0 };
    int status = commands[row].run(argc, argv, &err);

    if (status >= 0)
        return status;
    hutch_say("%s", err.msg);
    return status == -1 ? EXIT_HUTCH : -status;
}

int main(int argc, char **argv)
{
    signal(SIGCHLD, SIG_DFL); /* a caller may have left it ignored, and then no child could be waited for */
    signal(SIGXFSZ, SIG_IGN); /* a caller's limit on file sizes is an error of write(2), not our end */
    if (fill_standard_fds() < 0)
        return EXIT_HUTCH;
    if (argc >= 2 && strcmp(argv[1], "--version") == 0) {
        printf("hutch %s\n", HUTCH_VERSION);
        return 0;
    }
    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0)) {
        print_usage(stdout);
        return 0;
    }
    for (size_t i = 0; argc >= 2 && i < ARRAY_SIZE(commands); i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return run_command(i, argc - 1, argv + 1);
    if (argc >= 2)
        hutch_say("there is no command '%s'", argv[1]);
    print_usage(stderr);
    return EXIT_HUTCH;
}

/* main.c - the command line: which command, and nothing else. */
#include "runtime/cli/batch.h"
#include "runtime/cli/doctor.h"
#include "runtime/cli/repl.h"
#include "runtime/cli/run.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define HUTCH_VERSION "0.1.0"

/* `hutch rootfs` is the program hutch-rootfs beside this one; cli/rootfs_main.c says why. */
static int exec_rootfs(int argc, char **argv)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path));
    char *slash = n > 0 && n < (ssize_t)sizeof(path) ? memrchr(path, '/', (size_t)n) : NULL;

    (void)argc;
    if (!slash) {
        fprintf(stderr, "hutch: find hutch-rootfs beside this program: read '/proc/self/exe': %s\n", strerror(errno));
        return 125;
    }
    if ((size_t)(slash - path) + sizeof("/hutch-rootfs") <= sizeof(path)) {
        strcpy(slash, "/hutch-rootfs");
        execv(path, argv);
    }
    fprintf(stderr, "hutch: execute '%s': %s\n", path, strerror(errno));
    return 125;
}

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    { "run", hutch_cmd_run, "run a program or a notebook in a sandbox" },
    { "repl", hutch_cmd_repl, "a prompt for Python in a sandbox" },
    { "batch", hutch_cmd_batch, "judge many programs, each in a sandbox of its own" },
    { "rootfs", exec_rootfs, "build, unpack, list, verify and remove images" },
    { "doctor", hutch_cmd_doctor, "say what this host offers, what is missing, and how to mend it" },
};

static void print_usage(FILE *to)
{
    fprintf(to, "usage: hutch COMMAND [...]\n\n");
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
        fprintf(to, "  %-8s %s\n", commands[i].name, commands[i].help);
    fprintf(to, "\n'hutch COMMAND --help' lists the options of a command; 'hutch --version' tells which hutch this is.\n");
}

/* A descriptor among 0-2 that the caller closed would be given to the next file that is opened. */
static int fill_standard_fds(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
            return -1;
    return 0;
}

int main(int argc, char **argv)
{
    signal(SIGCHLD, SIG_DFL); /* a caller may have left it ignored, and then nobody could wait for a child */
    signal(SIGXFSZ, SIG_IGN); /* a caller's limit on file sizes is an error of write(2), not our end */
    if (fill_standard_fds() < 0)
        return 125;
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
            return commands[i].run(argc - 1, argv + 1);
    if (argc >= 2)
        fprintf(stderr, "hutch: there is no command '%s'\n", argv[1]);
    print_usage(stderr);
    return 125;
}

#include "runtime/cli/beside.h"

#include "sandbox/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int hutch_beside_find(const char *name, char ret_path[PATH_MAX], struct hutch_err *err)
{
    const size_t room = PATH_MAX - strlen(name) - 1;
    ssize_t n = readlink("/proc/self/exe", ret_path, room);
    char *slash = n > 0 ? memrchr(ret_path, '/', (size_t)n) : NULL;

    if (!slash)
        return hutch_err_set(err, errno, "find %s beside this program: read '/proc/self/exe'", name);
    strcpy(slash + 1, name);
    return 0;
}

static int execute(const char *name, char **argv, struct hutch_err *err)
{
    char path[PATH_MAX];

    if (hutch_beside_find(name, path, err) < 0)
        return -1;
    execv(path, argv);
    return hutch_err_set(err, errno, "execute '%s'", path);
}

int hutch_cmd_rootfs_beside(int argc, char **argv, struct hutch_err *err)
{
    (void)argc;
    return execute("hutch-rootfs", argv, err);
}

int hutch_cmd_serve_beside(int argc, char **argv, struct hutch_err *err)
{
    (void)argc;
    return execute("hutch-serve", argv, err);
}

static int start_rootfs(const char *const *argv, pid_t *ret, struct hutch_err *err)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t defaults;
    char path[PATH_MAX];
    int rc;

    if (hutch_beside_find("hutch-rootfs", path, err) < 0)
        return -1;
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGINT);
    sigaddset(&defaults, SIGQUIT);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    rc = posix_spawn(ret, path, &actions, &attributes, (char *const *)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return rc != 0 ? hutch_err_set(err, rc, "run '%s'", path) : 0;
}

/* A key at the terminal interrupts the other program, which cleans up first. */
int hutch_beside_run_rootfs(const char *const *argv, struct hutch_err *err)
{
    struct sigaction ignore = { .sa_handler = SIG_IGN }, interrupt, quit;
    int status = 0, rc;
    pid_t pid;

    sigaction(SIGINT, &ignore, &interrupt);
    sigaction(SIGQUIT, &ignore, &quit);
    rc = start_rootfs(argv, &pid, err);
    if (rc == 0 && TEMP_FAILURE_RETRY(waitpid(pid, &status, 0)) < 0)
        rc = hutch_err_set(err, errno, "wait for '%s'", argv[0]);
    sigaction(SIGINT, &interrupt, NULL);
    sigaction(SIGQUIT, &quit, NULL);
    if (rc < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
        return rc;
    if (WIFSIGNALED(status))
        raise(WTERMSIG(status));
    return hutch_err_set(err, 0, "it failed, as is said above");
}

/* spawner.c - forks the processes of a session on the engine's orders. It runs after the worker's confinement and gives
 * nothing up itself: what it forks has the same filter, ruleset and limits, as no call takes them off. What is done
 * with paths is in paths.c.
 *
 * No Python code and no memory of libc's is needed here: the interpreter that this is a copy of may have threads'
 * locks taken. */
#include "rootfs/helper/spawner.h"

#include "rootfs/helper/paths.h"
#include "sandbox/execute.h"
#include "sandbox/fd.h"
#include "sandbox/fdpass.h"
#include "sandbox/process_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define ORDER_FDS 4
#define SOCKET_FD 4 /* of orders; 3 is the worker's, in a worker that is the spawner itself */

static char packet[sizeof(struct process_order) + PROCESS_TEXT_MAX] __attribute__((aligned(16)));
static const struct process_order *const order = (const struct process_order *)packet;

/* What the child executes. */
static char *args[PROCESS_LIST_MAX + 1], *variables[2 * PROCESS_LIST_MAX + 1];

static void send_said(int sock, enum process_says what, enum process_step step, int errnum, const int *fd)
{
    struct process_said said = { .what = what, .pid = getpid(), .step = step, .errnum = errnum };

    hutch_fdpass_send(sock, &said, sizeof(said), fd, fd != NULL, 0);
}

/* A child of process 1, as the caller is one: a program that waits for its children finds only its own, and process 1
 * sees this one's end. By the system call: libc's handlers and locks are the interpreter's. */
static pid_t clone_sibling(void)
{
    return (pid_t)syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
}

/* A session and process group of its own, and signals as a program expects them. */
static void start_session(void)
{
    static const unsigned long dfl[8]; /* the kernel's struct sigaction, all zeros: SIG_DFL */
    sigset_t none;

    setsid();
    for (int sig = 1; sig < NSIG; sig++)
        syscall(SYS_rt_sigaction, sig, dfl, NULL, (NSIG - 1) / 8);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    umask(022);
}

/* --- a process ---------------------------------------------------------------------------------------------------- */

static _Noreturn void give_up(int control, enum process_step step, int errnum)
{
    send_said(control, PROCESS_FAILED, step, errnum, NULL);
    _exit(step == PROCESS_STEP_EXECUTE && errnum != ENOENT ? 126 : 127);
}

static size_t name_len(const char *variable)
{
    return strcspn(variable, "=");
}

/* In place of one of the same name. */
static bool set_variable(char *variable, size_t *n)
{
    size_t len = name_len(variable), i = 0;

    while (i < *n && (name_len(variables[i]) != len || memcmp(variables[i], variable, len) != 0))
        i++;
    if (i == ARRAY_SIZE(variables) - 1)
        return false;
    variables[i] = variable;
    *n += i == *n;
    return true;
}

/* What follows the string at @text; NULL: it does not end before @end. */
static char *skip_string(char *text, const char *end)
{
    char *nul = text < end ? memchr(text, '\0', (size_t)(end - text)) : NULL;

    return nul ? nul + 1 : NULL;
}

/* False: it is not as the engine makes it. */
static bool read_order(size_t len, char *env, size_t env_len, char **ret_cwd)
{
    char *at = packet + sizeof(*order), *end = packet + len;
    size_t n = 0;

    if (len < sizeof(*order) || order->n_args == 0 || order->n_args > PROCESS_LIST_MAX ||
        order->n_env > PROCESS_LIST_MAX)
        return false;
    *ret_cwd = at;
    at = skip_string(at, end);
    for (uint32_t i = 0; at && i < order->n_args; i++) {
        args[i] = at;
        at = skip_string(at, end);
    }
    args[order->n_args] = NULL;
    for (char *e = env, *next; (next = skip_string(e, env + env_len)); e = next)
        if (!set_variable(e, &n))
            return false;
    for (uint32_t i = 0; at && i < order->n_env; i++) {
        char *next = skip_string(at, end);

        if (next && !set_variable(at, &n))
            return false;
        at = next;
    }
    variables[n] = NULL;
    return at == end;
}

/* A pseudo-terminal of the sandbox's own becomes the terminal of this session. Returns its master; the other side is in
 * @ret. */
static int make_terminal(int control, int *ret)
{
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC), unlock = 0;
    unsigned number;
    char path[32];

    if (master < 0 || ioctl(master, TIOCGPTN, &number) < 0 || ioctl(master, TIOCSPTLCK, &unlock) < 0)
        give_up(control, PROCESS_STEP_TERMINAL, errno);
    snprintf(path, sizeof(path), "/dev/pts/%u", number);
    *ret = open(path, O_RDWR | O_CLOEXEC); /* which a session without a terminal takes as its own: tty(4) */
    if (*ret < 0)
        give_up(control, PROCESS_STEP_TERMINAL, errno);
    return master;
}

static void take_streams(int control, const int *from)
{
    for (int i = 0; i < 3; i++) /* the sources are above 2: that is taken */
        if (dup2(from[i], i) < 0)
            give_up(control, PROCESS_STEP_STREAMS, errno);
}

static void limit_cpu(int control)
{
    struct rlimit now, limit = { .rlim_cur = order->cpu_s, .rlim_max = (rlim_t)order->cpu_s + 1 };

    if (order->cpu_s == 0)
        return;
    if (getrlimit(RLIMIT_CPU, &now) == 0 && now.rlim_max < limit.rlim_max)
        return;
    if (setrlimit(RLIMIT_CPU, &limit) < 0)
        give_up(control, PROCESS_STEP_LIMIT, errno);
}

/* @fds: the control socket and the streams. All descriptors above 2 close with execve(2). */
static _Noreturn void run_process(size_t len, const int *fds, size_t n_fds, char *env, size_t env_len)
{
    int control = fds[0], terminal, streams[3], e;
    const char *path = NULL;
    char go, *cwd;

    start_session();
    if (!read_order(len, env, env_len, &cwd) || n_fds != (order->is_terminal ? 1u : ORDER_FDS))
        give_up(control, PROCESS_STEP_STREAMS, EPROTO);
    if (order->is_terminal) {
        int master = make_terminal(control, &terminal);

        streams[0] = streams[1] = streams[2] = terminal;
        send_said(control, PROCESS_HERE, 0, 0, &master);
        close(master);
    } else {
        memcpy(streams, fds + 1, sizeof(streams));
        send_said(control, PROCESS_HERE, 0, 0, NULL);
    }
    if (TEMP_FAILURE_RETRY(recv(control, &go, 1, 0)) != 1)
        _exit(1); /* the engine has given it up */
    take_streams(control, streams);
    if (cwd[0] && chdir(cwd) < 0)
        give_up(control, PROCESS_STEP_DIRECTORY, errno);
    limit_cpu(control);
    for (size_t i = 0; variables[i]; i++)
        if (strncmp(variables[i], "PATH=", 5) == 0)
            path = variables[i] + 5;
    e = hutch_execute(path, args, variables);
    give_up(control, PROCESS_STEP_EXECUTE, e);
}

/* --- an order about a path ---------------------------------------------------------------------------------------- */

static _Noreturn void serve_path(size_t len, const int *fds, size_t n_fds)
{
    close(SOCKET_FD);
    start_session();
    prctl(PR_SET_NAME, "hutch-paths", 0, 0, 0);
    if (n_fds != 1)
        _exit(1);
    hutch_paths_serve(fds[0], packet, len);
}

/* --- the spawner -------------------------------------------------------------------------------------------------- */

/* Nothing of the worker's stays open: when it closes a stream, the other end has to see that. */
static void leave_streams(int sock)
{
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (null_fd < 0)
        _exit(1);
    for (int i = 0; i < 3; i++)
        if (dup2(null_fd, i) < 0)
            _exit(1);
    if (null_fd > 2)
        close(null_fd);
    if (sock != SOCKET_FD && (dup3(sock, SOCKET_FD, O_CLOEXEC) < 0 || close(sock) < 0))
        _exit(1);
    prctl(PR_SET_NAME, "hutch-spawner", 0, 0, 0);
}

_Noreturn void hutch_spawner_serve(int sock, const char *env, size_t env_len)
{
    leave_streams(sock);
    start_session();
    send_said(SOCKET_FD, PROCESS_HERE, 0, 0, NULL);
    for (;;) {
        int fds[ORDER_FDS];
        size_t n_fds;
        ssize_t n = hutch_fdpass_receive(SOCKET_FD, packet, sizeof(packet), fds, ORDER_FDS, &n_fds, 0);

        if (n < 0 && errno == EMSGSIZE) /* none of the engine's, or there was no room for its descriptors */
            continue;
        if (n <= 0)
            _exit(0);
        if (n_fds > 0) {
            const bool is_path = (size_t)n >= sizeof(order->what) && order->what == SPAWNER_PATH;
            pid_t pid = clone_sibling();

            if (pid == 0 && is_path)
                serve_path((size_t)n, fds, n_fds);
            if (pid == 0)
                run_process((size_t)n, fds, n_fds, (char *)env, env_len);
            if (pid < 0 && is_path)
                hutch_paths_refuse(fds[0], errno);
            else if (pid < 0)
                send_said(fds[0], PROCESS_FAILED, PROCESS_STEP_FORK, errno, NULL);
        }
        for (size_t i = 0; i < n_fds; i++)
            close(fds[i]);
    }
}

void hutch_spawner_fork(int sock, const char *env, size_t env_len)
{
    if (clone_sibling() != 0)
        return;
    close(3); /* the worker's */
    hutch_spawner_serve(sock, env, env_len);
}

#include "runtime/repl/pager.h"

#include "sandbox/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define NOT_FOUND 127 /* sh(1) */
#define TAB 8

/* --- whether ---------------------------------------------------------------------------------------------------- */

/* Letters are taken to be one column wide. */
static size_t count_rows(const char *text, size_t len, size_t columns)
{
    size_t rows = 0, width = 0;

    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];

        if (c == '\n') {
            rows += 1 + (width > 0 ? (width - 1) / columns : 0);
            width = 0;
        } else if (c == '\r') {
            width = 0;
        } else if (c == '\t') {
            width += TAB - width % TAB;
        } else if (c == 0x1b) {
            while (i + 1 < len && text[i] != 'm')
                i++;
        } else if ((c & 0xc0) != 0x80) {
            width++;
        }
    }
    return rows + (width > 0 ? 1 + (width - 1) / columns : 0);
}

bool hutch_pager_is_wanted(int fd, const char *text, size_t len)
{
    const char *pager = getenv("PAGER"), *term = getenv("TERM");
    struct winsize size = { .ws_row = 0 };

    if ((pager && !*pager) || !term || !*term || strcmp(term, "dumb") == 0)
        return false;
    if (ioctl(fd, TIOCGWINSZ, &size) < 0 || size.ws_row == 0 || size.ws_col == 0)
        return false;
    return count_rows(text, len, size.ws_col) >= size.ws_row; /* the next prompt has a line, too */
}

/* --- its start -------------------------------------------------------------------------------------------------- */

extern char **environ;

static bool is_variable(const char *entry, const char *name)
{
    size_t len = strlen(name);

    return strncmp(entry, name, len) == 0 && entry[len] == '=';
}

/* The user's, but for what would have less obey a text or do more than show it. NULL: ENOMEM. */
static char **make_environment(void)
{
    static const char *const dropped[] = { "LESSOPEN", "LESSCLOSE", "LESSSECURE", "LESSSECURE_ALLOW" };
    size_t count = 0, n = 0;
    char **env;

    while (environ[count])
        count++;
    env = calloc(count + 3, sizeof(*env));
    if (!env)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        bool is_dropped = false;

        for (size_t k = 0; k < ARRAY_SIZE(dropped); k++)
            is_dropped |= is_variable(environ[i], dropped[k]);
        if (!is_dropped)
            env[n++] = environ[i];
    }
    env[n++] = (char *)"LESSSECURE=1";
    if (!getenv("LESS"))
        env[n++] = (char *)"LESS=R"; /* IPython's help has colours */
    return env;
}

/* Words alone are executed without a shell in between, which would not pass on that the pager is to end. NULL:
 * ENOMEM. */
static char *make_command(const char *pager)
{
    char *command;

    if (strpbrk(pager, "|&;<>()$`\\\"'*?[#~=%!{}\n"))
        return strdup(pager);
    return asprintf(&command, "exec %s", pager) < 0 ? NULL : command;
}

/* -1: errno. In the process group of the prompt: the terminal sends its signals to both, and a stop stops both. */
static int spawn(int in, pid_t *ret)
{
    const char *pager = getenv("PAGER");
    auto_free char *command = make_command(pager ? pager : "");
    char *own[] = { (char *)"less", (char *)"-R", NULL };
    char *users[] = { (char *)"sh", (char *)"-c", command, NULL };
    auto_free char **env = make_environment();
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none, all;
    int e;

    if (!env || !command) {
        errno = ENOMEM;
        return -1;
    }
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    e = posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    if (!e)
        e = posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
    if (!e)
        e = pager ? posix_spawn(ret, "/bin/sh", &actions, &attr, users, env)
                  : posix_spawnp(ret, own[0], &actions, &attr, own, env);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    errno = e;
    return e ? -1 : 0;
}

bool hutch_pager_open(struct pager *pager, const char *text, size_t len)
{
    struct pager p = PAGER_INIT;
    auto_fd in = -1;
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return false;
    in = ends[0];
    p.text.fd = ends[1];
    p.has_terminal = tcgetattr(STDIN_FILENO, &p.terminal) == 0;
    if (!hutch_backlog_add(&p.text, text, len) || spawn(in, &p.pid) < 0) {
        hutch_pager_done(&p);
        return false;
    }
    p.pidfd = (int)syscall(SYS_pidfd_open, p.pid, 0);
    if (p.pidfd < 0) { /* nothing would tell when it ends */
        kill(p.pid, SIGKILL);
        waitpid(p.pid, NULL, 0);
        p.pid = 0;
        hutch_pager_done(&p);
        return false;
    }
    *pager = p;
    return true;
}

/* --- its end ---------------------------------------------------------------------------------------------------- */

void hutch_pager_pass_on(struct pager *p)
{
    hutch_backlog_pass_on(&p->text);
    if (hutch_backlog_is_empty(&p->text)) /* or it reads no more */
        hutch_fd_closep(&p->text.fd);
}

bool hutch_pager_reap(struct pager *p)
{
    int status = 0;

    TEMP_FAILURE_RETRY(waitpid(p->pid, &status, 0));
    p->pid = 0;
    if (p->has_terminal)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &p->terminal);
    hutch_pager_done(p);
    return !WIFEXITED(status) || WEXITSTATUS(status) != NOT_FOUND;
}

void hutch_pager_stop(struct pager *p, bool is_impatient)
{
    if (p->pid > 0)
        kill(p->pid, is_impatient ? SIGKILL : SIGTERM);
}

void hutch_pager_done(struct pager *p)
{
    hutch_fd_closep(&p->text.fd);
    hutch_fd_closep(&p->pidfd);
    hutch_backlog_done(&p->text);
}

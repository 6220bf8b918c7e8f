#include "runtime/cli/child.h"

#include "sandbox/clock.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_MS 250   /* between two looks at what it does */
#define GRACE_MS 2000 /* to end after SIGTERM */

/* --- what it says ----------------------------------------------------------------------------------------------- */

void hutch_child_last_words(const char *text, size_t len, size_t (*unquote)(char *line),
                            char ret[CHILD_MAX_WORDS + 1])
{
    static const char cut[] = "...";
    char line[CHILD_MAX_TAIL + 1];
    const char *begin;
    size_t n, from = 0;

    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r' || text[len - 1] == ' '))
        len--;
    begin = len > 0 ? memrchr(text, '\n', len) : NULL;
    begin = begin ? begin + 1 : text;
    n = len - (size_t)(begin - text);
    if (n > CHILD_MAX_TAIL) {
        begin += n - CHILD_MAX_TAIL;
        n = CHILD_MAX_TAIL;
    }
    for (size_t i = 0; i < n; i++)
        line[i] = (unsigned char)begin[i] >= ' ' ? begin[i] : ' '; /* it goes to a terminal */
    line[n] = '\0';
    if (unquote)
        n = unquote(line);
    if (n > CHILD_MAX_WORDS) {
        from = n - (CHILD_MAX_WORDS - strlen(cut));
        while (from < n && ((unsigned char)line[from] & 0xc0) == 0x80) /* within a character */
            from++;
    }
    snprintf(ret, CHILD_MAX_WORDS + 1, "%s%s", from ? cut : "", line + from);
}

/* --- its start -------------------------------------------------------------------------------------------------- */

struct child {
    pid_t pid;
    int pidfd;    /* owned; -1 where the kernel has none */
    int words_fd; /* owned; its standard error */
};
#define CHILD_INIT { .pid = 0, .pidfd = -1, .words_fd = -1 }

/* In a process group of its own, so that what it starts can be ended with it. */
static _Noreturn void become_child(const struct child_run *run, pid_t parent, const int fds[3])
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it was gone before that */
        _exit(1);
    setpgid(0, 0);
    signal(SIGTTOU, SIG_IGN); /* it may write to the terminal, whose foreground it is not */
    for (int i = 0; i < 3; i++)
        dup2(fds[i], i);
    fcntl(run->lock_fd, F_SETFD, 0);
    execve(run->path, run->argv, run->env);
    dprintf(STDERR_FILENO, "execute '%s': %s\n", run->path, strerror(errno));
    _exit(1);
}

static int start(const struct child_run *run, struct child *ret, struct hutch_err *err)
{
    auto_fd null = open("/dev/null", O_RDWR | O_CLOEXEC);
    const pid_t parent = getpid();
    int ends[2];

    if (null < 0 || pipe2(ends, O_CLOEXEC) < 0)
        return hutch_err_set(err, errno, "start '%s'", run->path);
    fflush(NULL);
    ret->words_fd = ends[0];
    ret->pid = fork();
    if (ret->pid == 0)
        become_child(run, parent, (const int[3]){ null, run->stdout_fd >= 0 ? run->stdout_fd : null, ends[1] });
    close(ends[1]);
    if (ret->pid < 0)
        return hutch_err_set(err, errno, "start '%s'", run->path);
    setpgid(ret->pid, ret->pid); /* whichever of the two is first */
    ret->pidfd = (int)syscall(SYS_pidfd_open, ret->pid, 0);
    return 0;
}

/* --- its run ---------------------------------------------------------------------------------------------------- */

/* False at the end. */
static bool read_words(int fd, struct child_tail *tail)
{
    ssize_t n;

    if (tail->len == sizeof(tail->text)) {
        tail->len /= 2;
        memmove(tail->text, tail->text + tail->len, tail->len);
    }
    n = read(fd, tail->text + tail->len, sizeof(tail->text) - tail->len);
    if (n > 0)
        tail->len += (size_t)n;
    return n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN));
}

/* Waits for its end or for words, at most @ms. True when it has ended, which is not fetched yet. */
static bool wait_for_child(struct child *child, struct child_tail *tail, double ms)
{
    struct pollfd fds[] = { { .fd = child->words_fd, .events = POLLIN }, { .fd = child->pidfd, .events = POLLIN } };
    siginfo_t info = { .si_pid = 0 };

    if (poll(fds, ARRAY_SIZE(fds), ms > 0 ? (int)ms + 1 : 0) > 0 && fds[0].revents &&
        !read_words(child->words_fd, tail))
        hutch_fd_closep(&child->words_fd);
    return waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == child->pid;
}

/* Until it has ended; -1 when it has to be ended. */
static int supervise(const struct child_run *run, struct child *child, struct child_tail *tail, struct hutch_err *err)
{
    double look = 0, now = hutch_clock_ms(), next;

    do {
        if ((now >= look || now >= run->until) && run->check(run->ctx, err) < 0)
            return -1;
        if (now >= look)
            look = now + LOOK_MS;
        next = look < run->until ? look : run->until;
        if (wait_for_child(child, tail, next - now))
            return 0;
        now = hutch_clock_ms();
    } while (true);
}

/* Leaves no process of it behind. Its status, as waitpid(2) has it. */
static int end(struct child *child, struct child_tail *tail, bool is_over)
{
    const double until = hutch_clock_ms() + GRACE_MS;
    int status = 0;

    if (!is_over) {
        kill(-child->pid, SIGTERM);
        while (!is_over && hutch_clock_ms() < until)
            is_over = wait_for_child(child, tail, LOOK_MS);
    }
    kill(-child->pid, SIGKILL); /* before its number is free for others */
    TEMP_FAILURE_RETRY(waitpid(child->pid, &status, 0));
    /* What is in the pipe still; a process that got away from the group could keep it open. */
    if (child->words_fd >= 0 && fcntl(child->words_fd, F_SETFL, O_NONBLOCK) == 0)
        while (poll(&(struct pollfd){ .fd = child->words_fd, .events = POLLIN }, 1, 0) > 0 &&
               read_words(child->words_fd, tail) && hutch_clock_ms() < until + GRACE_MS)
            ;
    hutch_fd_closep(&child->words_fd);
    hutch_fd_closep(&child->pidfd);
    return status;
}

int hutch_child_run(const struct child_run *run, struct child_tail *ret_tail, int *ret_status, struct hutch_err *err)
{
    struct child child = CHILD_INIT;
    int rc;

    ret_tail->len = 0;
    if (start(run, &child, err) < 0) {
        hutch_fd_closep(&child.words_fd);
        return -1;
    }
    rc = supervise(run, &child, ret_tail, err);
    *ret_status = end(&child, ret_tail, rc == 0);
    return rc;
}

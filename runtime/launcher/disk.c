#include "runtime/launcher/disk.h"

#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "sandbox/fdpass.h"
#include "sandbox/log.h"
#include "sandbox/rmtree.h"
#include "runtime/data/changes_wire.h"
#include "runtime/launcher/wire.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/queue.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

/* Each order has a process of its own, so that a session with a hundred thousand files keeps nobody else waiting.
 * Orders about the same names, or the same data directory, follow one another. */
#define MAX_RUNNING 16   /* and as many looks beside the others, which would wait for removals else */
#define MAX_JOBS    1024 /* beyond that, orders stay in the socket */
#define MAX_DEATHS  3    /* of the process of one order */
#define HOLD_MS     50   /* by then the engine has closed what it had */
#define SIGN_MS     500  /* while orders stay in the socket, and questions with them: between two signs of life */

struct job {
    TAILQ_ENTRY(job) link;
    struct disk_request request;
    int fds[3]; /* owned; store, data directory, list; -1 where the order has none */
    dev_t dev;  /* of the data directory, or of what is to be removed, which may be one; 0 and 0: nothing is there */
    ino_t ino;
    pid_t pid;  /* 0: waits */
    unsigned deaths;
};
TAILQ_HEAD(job_list, job);

struct disk_worker {
    int sock, signals;
    struct job_list jobs; /* in the order in which they came */
    unsigned n_jobs, n_running[2]; /* [1]: looks, see is_look() */
    bool is_over; /* no more orders come */
};

/* With what an order about a state that was broken off has left under that name: its copies, but not what lay in a data
 * directory, which may be all that there is of it. */
static void remove_directory(int dirfd, const char *name)
{
    static const char *const ends[] = { "", ".in", ".gone" };
    struct hutch_err err;
    char full[64];

    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        snprintf(full, sizeof(full), "%s%s", name, ends[i]);
        if (hutch_rmtree(dirfd, full, &err) < 0)
            hutch_log_debug("disk worker: %s", err.msg); /* the next start of an engine tries again */
    }
}

/* Where descriptors cannot go, as when too many of the user's are on their way, the answer is that the order has
 * failed: the engine waits for one. */
static void answer(int sock, struct disk_reply *reply, const int *fds, size_t n_fds)
{
    if (hutch_fdpass_send(sock, reply, sizeof(*reply), fds, n_fds, 0) >= 0)
        return;
    hutch_log_debug("disk worker: answer order %u: %s", reply->id, strerrordesc_np(errno));
    if (n_fds == 0)
        return;
    reply->has_failed = hutch_err_set(&reply->err, errno, "hand on a list of files") < 0;
    answer(sock, reply, NULL, 0);
}

/* What lies there, and what has changed since the list was made. DISK_STEP has a list of its own for the next time. */
static int list_changes(const struct job *job, struct disk_reply *reply, int ret_fds[2])
{
    const struct collect_bounds *bounds = &job->request.look;
    const bool is_step = job->request.what == DISK_STEP;
    struct file_list seen = FILE_LIST_INIT;
    struct file_changes changes = FILE_CHANGES_INIT;
    int rc = job->fds[2] < 0 ? 0 : hutch_file_list_load(job->fds[2], &seen, &reply->err);

    if (rc == 0)
        rc = hutch_collect_usage(job->fds[1], bounds, &reply->bytes, &reply->entries, &reply->err);
    if (rc == 0)
        rc = is_step ? hutch_collect_step(job->fds[1], &seen, bounds, &changes, &reply->err)
                     : hutch_collect_changes(job->fds[1], &seen, bounds, &changes, &reply->err);
    if (rc == 0)
        rc = hutch_file_changes_store(&changes, &ret_fds[0], &reply->err);
    if (rc == 0 && is_step)
        rc = hutch_file_list_store(&seen, &ret_fds[1], &reply->err);
    reply->newest_ns = seen.newest_ns;
    hutch_file_list_done(&seen);
    hutch_file_changes_done(&changes);
    return rc;
}

static int note(const struct job *job, struct disk_reply *reply, int *ret_fd)
{
    struct file_list list = FILE_LIST_INIT;
    int rc = hutch_collect_snapshot(job->fds[1], &job->request.look, &list, &reply->err);

    if (rc == 0)
        rc = hutch_file_list_store(&list, ret_fd, &reply->err);
    hutch_file_list_done(&list);
    return rc;
}

static void carry_out(int sock, const struct job *job)
{
    const struct disk_request *request = &job->request;
    struct disk_reply reply = { .id = request->id };
    int store = job->fds[0], data = job->fds[1], rc;
    const unsigned flags = request->flags | (job->deaths > 0 ? SNAPSHOT_RESUMES : 0);
    double begun = hutch_clock_ms();
    int lists[2] = { -1, -1 };

    switch (request->what) {
    case DISK_REMOVE:
        remove_directory(store, request->name);
        return;
    case DISK_TAKE:
        rc = hutch_snapshot_take(data, store, request->name, &request->bounds, &reply.report, &reply.err);
        break;
    case DISK_RESTORE:
        rc = hutch_snapshot_restore(data, store, request->name, flags, &request->bounds, &reply.report, &reply.err);
        break;
    case DISK_SWITCH:
        rc = hutch_snapshot_switch(data, store, request->name, request->keep, flags, &reply.report, &reply.err);
        break;
    case DISK_COUNT:
        rc = hutch_collect_usage(data, &request->look, &reply.bytes, &reply.entries, &reply.err);
        break;
    case DISK_LIST:
    case DISK_STEP:
        rc = list_changes(job, &reply, lists);
        break;
    case DISK_NOTE:
        rc = note(job, &reply, &lists[0]);
        break;
    default:
        rc = hutch_err_set(&reply.err, EPROTO, "an order that the disk worker does not know");
    }
    reply.has_failed = rc < 0;
    reply.took_ms = hutch_clock_ms() - begun;
    answer(sock, &reply, lists, rc < 0 ? 0 : (size_t)(lists[0] >= 0) + (lists[1] >= 0));
    hutch_fd_closep(&lists[0]);
    hutch_fd_closep(&lists[1]);
}

/* ---- jobs ---- */

static void close_all(int fds[3])
{
    for (size_t i = 0; i < 3; i++)
        hutch_fd_closep(&fds[i]);
}

static bool is_word(const char *text, size_t size)
{
    return memchr(text, '\0', size) && !strchr(text, '/') && text[0] != '.';
}

/* The engine is told that this process is at work. */
static void show_life(const struct disk_worker *w)
{
    struct disk_reply reply = { .id = 0 };

    answer(w->sock, &reply, NULL, 0);
}

static bool is_look(const struct disk_request *request)
{
    return request->what == DISK_COUNT || request->what == DISK_LIST || request->what == DISK_STEP ||
           request->what == DISK_NOTE;
}

/* Whether an order has the name and the descriptors that belong to it. */
static bool is_complete(const struct disk_request *request, size_t n_fds)
{
    if (!is_word(request->name, sizeof(request->name)) || !is_word(request->keep, sizeof(request->keep)) ||
        (!is_look(request) && !request->name[0]))
        return false;
    if (n_fds == 3)
        return request->what == DISK_LIST || request->what == DISK_STEP;
    return n_fds == (request->what == DISK_REMOVE ? 1u : 2u);
}

static void refuse(const struct disk_worker *w, uint32_t id)
{
    struct disk_reply reply = { .id = id, .has_failed = 1 };

    hutch_err_set(&reply.err, 0, "the disk worker cannot take an order up, for lack of memory or descriptors");
    answer(w->sock, &reply, NULL, 0);
}

/* The engine closes its descriptors of a volume after it has sent this one. A process of its own has the last, so that
 * neither the engine nor this one frees a gigabyte of pages, which takes 0.2 s. */
static void hold_for_a_moment(int fds[3])
{
    if (fork() == 0) {
        nanosleep(&(struct timespec){ .tv_nsec = HOLD_MS * 1000000l }, NULL);
        _exit(0);
    }
    close_all(fds);
}

static void take_order(struct disk_worker *w)
{
    struct disk_request request = { .id = 0 };
    int fds[3] = { -1, -1, -1 };
    size_t n_fds = 0;
    ssize_t n = hutch_fdpass_receive(w->sock, &request, sizeof(request), fds, ARRAY_SIZE(fds), &n_fds, MSG_DONTWAIT);
    const bool was_read = n == (ssize_t)sizeof(request) || (n < 0 && errno == EMSGSIZE); /* without its descriptors */
    struct job *job = NULL;
    struct stat st = { 0 };

    /* Only 0 is the end: unix_dgram_recvmsg() tells ECONNRESET once, ahead of what is still queued, when the engine
     * closed its end with answers unread, and these orders are to be carried out too. */
    if (n == 0)
        w->is_over = true;
    if (n == (ssize_t)sizeof(request) && request.what == DISK_PING)
        show_life(w);
    if (n == (ssize_t)sizeof(request) && request.what == DISK_DROP)
        hold_for_a_moment(fds);
    if (n == (ssize_t)sizeof(request) && is_complete(&request, n_fds) &&
        ((n_fds == 1 ? fstatat(fds[0], request.name, &st, AT_SYMLINK_NOFOLLOW) : fstat(fds[1], &st)) == 0 ||
         n_fds == 1))
        job = malloc(sizeof(*job));
    if (!job) {
        close_all(fds);
        if (was_read && request.what != DISK_PING && request.what != DISK_DROP &&
            request.what != DISK_REMOVE)
            refuse(w, request.id);
        return;
    }
    *job = (struct job){ .request = request, .fds = { fds[0], fds[1], fds[2] }, .dev = st.st_dev, .ino = st.st_ino };
    TAILQ_INSERT_TAIL(&w->jobs, job, link);
    w->n_jobs++;
}

static bool is_same_name(const char *a, const char *b)
{
    return a[0] && strcmp(a, b) == 0;
}

static bool is_after(const struct job *job, const struct job *earlier)
{
    const struct disk_request *a = &job->request, *b = &earlier->request;

    if (a->what == DISK_COUNT || b->what == DISK_COUNT) /* of what changes anyway; a limit waits for it */
        return false;
    return is_same_name(a->name, b->name) || is_same_name(a->name, b->keep) || is_same_name(a->keep, b->name) ||
           is_same_name(a->keep, b->keep) || (job->ino != 0 && job->ino == earlier->ino && job->dev == earlier->dev);
}

static bool has_to_wait(const struct disk_worker *w, const struct job *job)
{
    const struct job *earlier;

    for (earlier = TAILQ_FIRST(&w->jobs); earlier != job; earlier = TAILQ_NEXT(earlier, link))
        if (is_after(job, earlier))
            return true;
    return false;
}

static void drop_job(struct disk_worker *w, struct job *job)
{
    TAILQ_REMOVE(&w->jobs, job, link);
    w->n_jobs--;
    close_all(job->fds);
    free(job);
}

/* Dies of SIGTERM, and with its parent: as soon as no data directory is between two states, see
 * hutch_snapshot_restore(). */
static _Noreturn void be_child(const struct disk_worker *w, const struct job *job, pid_t parent)
{
    sigset_t none;

    sigemptyset(&none);
    if (prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0) < 0 || sigprocmask(SIG_SETMASK, &none, NULL) < 0 ||
        getppid() != parent)
        _exit(1);
    carry_out(w->sock, job);
    _exit(0);
}

static void start_jobs(struct disk_worker *w)
{
    pid_t self = getpid();
    struct job *job, *next;

    for (job = TAILQ_FIRST(&w->jobs); job; job = next) {
        next = TAILQ_NEXT(job, link);
        if (job->pid || w->n_running[is_look(&job->request)] >= MAX_RUNNING || has_to_wait(w, job))
            continue;
        job->pid = fork();
        if (job->pid == 0)
            be_child(w, job, self);
        if (job->pid > 0) {
            w->n_running[is_look(&job->request)]++;
            continue;
        }
        carry_out(w->sock, job); /* as many processes as there may be */
        drop_job(w, job);
        next = TAILQ_FIRST(&w->jobs);
    }
}

static void reap(struct disk_worker *w)
{
    struct job *job;
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
        if (WIFSTOPPED(status)) { /* by a signal from outside: its order would never be done */
            kill(pid, SIGCONT);
            continue;
        }
        TAILQ_FOREACH(job, &w->jobs, link)
            if (job->pid == pid)
                break;
        if (!job)
            continue;
        w->n_running[is_look(&job->request)]--;
        job->pid = 0;
        if (status != 0 && ++job->deaths < MAX_DEATHS)
            continue; /* somebody killed it: the same order goes on where it was */
        if (status != 0 && job->request.what != DISK_REMOVE) {
            struct disk_reply reply = { .id = job->request.id, .has_failed = 1 };

            hutch_err_set(&reply.err, 0, "the process that did it was killed, again and again");
            answer(w->sock, &reply, NULL, 0);
        }
        drop_job(w, job);
    }
}

static _Noreturn void stop(struct disk_worker *w)
{
    struct job *job;

    TAILQ_FOREACH(job, &w->jobs, link)
        if (job->pid > 0)
            kill(job->pid, SIGTERM);
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
        ;
    _exit(0);
}

static _Noreturn void work(int sock)
{
    struct disk_worker w = { .sock = sock, .jobs = TAILQ_HEAD_INITIALIZER(w.jobs) };
    sigset_t handled;

    prctl(PR_SET_NAME, "hutch-disk", 0, 0, 0);
    signal(SIGTERM, SIG_DFL);
    signal(SIGCHLD, SIG_DFL);
    signal(SIGXFSZ, SIG_IGN); /* a caller's limit on file sizes is an error of write(2) */
    sigemptyset(&handled);
    sigaddset(&handled, SIGTERM); /* blocked: process 1 of a namespace would not get it otherwise */
    sigaddset(&handled, SIGCHLD);
    sigprocmask(SIG_SETMASK, &handled, NULL);
    w.signals = signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK);
    if (w.signals < 0 || prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0) < 0)
        _exit(1);
    while (!w.is_over || w.n_jobs > 0) {
        struct pollfd p[] = { { .fd = w.signals, .events = POLLIN },
                              { .fd = w.is_over || w.n_jobs == MAX_JOBS ? -1 : w.sock, .events = POLLIN } };
        struct signalfd_siginfo info;
        int n = poll(p, ARRAY_SIZE(p), w.n_jobs == MAX_JOBS ? SIGN_MS : -1);

        if (n < 0 && errno != EINTR)
            _exit(1);
        if (n == 0)
            show_life(&w);
        while (read(w.signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
            if (info.ssi_signo == SIGTERM)
                stop(&w);
        reap(&w);
        if (p[1].revents)
            take_order(&w);
        start_jobs(&w);
    }
    _exit(0);
}

pid_t hutch_disk_start(int *ret_sock, int *ret_pidfd, struct hutch_err *err)
{
    int pair[2], pidfd = -1;
    struct clone_args args = {
        .flags = CLONE_NEWPID | CLONE_PIDFD, .pidfd = (__u64)(uintptr_t)&pidfd, .exit_signal = SIGCHLD
    };
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return hutch_err_set(err, errno, "make the disk worker's socket");
    pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
    if (pid == 0) {
        int sock = dup3(pair[1], WARM_SOCKET_FD, O_CLOEXEC);

        if (sock < 0 || syscall(SYS_close_range, WARM_SOCKET_FD + 1, ~0u, 0) < 0)
            _exit(1);
        work(sock);
    }
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return hutch_err_set(err, errno, "start the disk worker");
    }
    *ret_sock = pair[0];
    *ret_pidfd = pidfd;
    return pid;
}

/* test_engine.c - the engine against helper processes that are played by this program itself: every state of a sandbox,
 * and whatever can come over a socket. No sandbox is made, so it runs anywhere; real ones are for the other lanes.
 *
 * Started as "hutch-launcher" this program is opener, launcher, zygotes, inits and workers in one process. HUTCH_FAKE
 * says how it plays: "" well; "12" as roughly as a generator with that seed will have it; "fork:5" the zygote dies at
 * the fifth fork; "deaf:3" the first three workers die before they read their job; "refuse" and "speechless" no zygote
 * but the root gets ready, and says why, or does not; "mute:1:3" no role of that number answers from its third order
 * on, until it was replaced; "lives": the process of a sandbox is one that can be killed. The code of a run or cell
 * tells its worker what to do. */
#include "tests/unit/failpoint.h" /* the first: see there */

#include "runtime/lib/engine_priv.h"

#include "runtime/batch/output.h"
#include "runtime/batch/plan.h"
#include "runtime/batch/schedule.h"
#include "sandbox/fd.h"
#include "sandbox/fdpass.h"
#include "sandbox/rmtree.h"
#include "sandbox/spec.h"
#include "runtime/launcher/spec_wire.h"
#include "runtime/launcher/wire.h"
#include "runtime/session/data.h"
#include "sandbox/clock.h"
#include "sandbox/path_wire.h"
#include "sandbox/process_wire.h"
#include "sandbox/zygote_wire.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

/* --- the helpers -------------------------------------------------------------------------------------------------- */

enum role { OPENER, LAUNCHER, ZYGOTE, CONTROL, JOB, CELLS, PARKED, LIFE, SPAWNER, PROCESS };
struct player {
    int fd;          /* -1: free */
    enum role role;
    uint32_t id;     /* from CONTROL on: of the sandbox */
    int out_fd, err_fd, in_fd; /* JOB, CELLS, PARKED, PROCESS */
    char data[64];   /* CONTROL: directory of its own … */
    int data_fd;     /* … or the one that it was given */
    pid_t pid;       /* CELLS, PARKED, PROCESS: as it says; LIFE: really */
    unsigned n_said; /* CELLS: frames */
};

#define MAX_PLAYERS 512
static struct player players[MAX_PLAYERS];
static char data_root[PATH_MAX];
static bool is_rough;
static unsigned n_forked, dies_at_fork, n_deaf;
static bool refuses, is_speechless, has_lives;
static pid_t last_pid = 2;
static int mute_role = -1;
static unsigned mute_orders; /* that it still takes up */

static struct player *add_player(int fd, enum role role, uint32_t id)
{
    for (size_t i = 0; i < MAX_PLAYERS; i++)
        if (players[i].fd < 0) {
            players[i] = (struct player){ .fd = fd, .role = role, .id = id, .out_fd = -1, .err_fd = -1, .in_fd = -1,
                                          .data_fd = -1 };
            return &players[i];
        }
    _exit(70);
}

static void drop_player(struct player *p)
{
    hutch_fd_closep(&p->fd);
    hutch_fd_closep(&p->out_fd);
    hutch_fd_closep(&p->err_fd);
    hutch_fd_closep(&p->in_fd);
    hutch_fd_closep(&p->data_fd);
}

static struct player *find_player(enum role role, uint32_t id)
{
    for (size_t i = 0; i < MAX_PLAYERS; i++)
        if (players[i].fd >= 0 && players[i].role == role && players[i].id == id)
            return &players[i];
    return NULL;
}

static bool perhaps(int one_in)
{
    return is_rough && rand() % one_in == 0;
}

/* What is said may be garbled, cut, said twice, or followed by a thing that nobody asked for. */
static void say(int fd, const void *msg, size_t len, const int *fds, size_t n_fds)
{
    unsigned char copy[8192];
    int junk[2] = { -1, -1 };

    if (len > sizeof(copy))
        _exit(71);
    memcpy(copy, msg, len);
    if (perhaps(30))
        for (int i = rand() % 8; i >= 0; i--)
            copy[(size_t)rand() % (rand() % 2 ? 16 : len)] = (unsigned char)rand();
    if (perhaps(40))
        len = (size_t)rand() % len + 1;
    if (perhaps(40)) {
        junk[0] = open("/dev/null", O_RDWR | O_CLOEXEC);
        junk[1] = junk[0];
        fds = junk;
        n_fds = (size_t)rand() % 3;
    }
    do
        hutch_fdpass_send(fd, copy, len, fds, n_fds, MSG_DONTWAIT);
    while (perhaps(40));
    hutch_fd_closep(&junk[0]);
}

static void tell_engine(const struct player *to, uint32_t what, uint32_t id, const int *fds, size_t n_fds)
{
    struct launcher_reply reply = { .what = what, .id = id, .controllers = 0 };

    say(to->fd, &reply, sizeof(reply), fds, n_fds);
}

static void tell(int fd, struct init_msg msg)
{
    say(fd, &msg, sizeof(msg), NULL, 0);
}

static void play_zygote(int fd, uint32_t id)
{
    struct zygote_reply ready = { .what = ZYGOTE_READY, .modules = "no_such_module\n" };
    static bool is_root = true;

    if (is_speechless && !is_root) {
        close(fd);
        return;
    }
    if (refuses && !is_root)
        strcpy(ready.modules, "error: a thread is left\n");
    is_root = false;
    say(add_player(fd, ZYGOTE, id)->fd, &ready, sizeof(ready), NULL, 0);
}

static void read_spec(int memfd)
{
    struct sandbox_spec spec;
    struct hutch_err err;

    if (hutch_spec_decode(memfd, &spec, &err) < 0)
        return;
    for (size_t i = 0; i < spec.n_mounts; i++)
        if (spec.mounts[i].flags & MOUNT_DATA)
            snprintf(data_root, sizeof(data_root), "%s", spec.mounts[i].source);
    hutch_spec_done(&spec);
}

/* Something that can be killed, and is all of the sandbox. Its pidfd. */
static int make_life(uint32_t id)
{
    pid_t parent = getpid(), pid = fork();
    int pidfd;

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close_range(0, ~0u, 0);
        while (getppid() == parent) /* which may have ended before the line above */
            pause();
        _exit(0);
    }
    pidfd = pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0)
        _exit(81);
    add_player(pidfd, LIFE, id)->pid = pid;
    return fcntl(pidfd, F_DUPFD_CLOEXEC, 3);
}

static void drop_sandbox(uint32_t id)
{
    for (size_t i = 0; i < MAX_PLAYERS; i++)
        if (players[i].fd >= 0 && players[i].id == id && players[i].role >= CONTROL && players[i].role != LIFE)
            drop_player(&players[i]);
}

static void play_life(struct player *p)
{
    waitpid(p->pid, NULL, 0);
    drop_sandbox(p->id);
    drop_player(p);
}

static void play_launcher(struct player *p)
{
    const struct init_msg started = { .kind = INIT_STARTED }, ended = { .kind = INIT_ENDED };
    struct launcher_request r;
    int fds[WARM_MAX_FDS], pair[2], death;
    struct player *init;
    size_t n_fds;

    if (hutch_fdpass_receive(p->fd, &r, sizeof(r), fds, WARM_MAX_FDS, &n_fds, MSG_DONTWAIT) != (ssize_t)sizeof(r)) {
        drop_player(p);
        return;
    }
    switch ((enum launcher_order)r.what) {
    case LAUNCHER_SPEC:
        read_spec(fds[0]);
        break;
    case LAUNCHER_ZYGOTE:
        tell_engine(p, LAUNCHER_STARTED, r.id, NULL, 0);
        play_zygote(hutch_fd_take(&fds[0]), r.id);
        break;
    case LAUNCHER_BUILD:
    case LAUNCHER_EXEC:
        if (perhaps(25)) {
            tell_engine(p, LAUNCHER_FAILED, r.id, NULL, 0);
            break;
        }
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
            _exit(72);
        /* readable, as the pidfd of a process that has ended; no signal goes there */
        death = has_lives ? make_life(r.id) : eventfd(1, EFD_CLOEXEC);
        init = add_player(pair[0], CONTROL, r.id);
        snprintf(init->data, sizeof(init->data), "%.31s", r.data_name);
        tell_engine(p, LAUNCHER_BUILT, r.id, (int[]){ pair[1], death }, 2);
        close(pair[1]);
        close(death);
        if (r.what == LAUNCHER_BUILD) {
            tell(init->fd, (struct init_msg){ .kind = INIT_READY });
        } else {
            if (write(fds[1], "executed\n", 9) != 9)
                _exit(73);
            hutch_fdpass_send(init->fd, &started, sizeof(started), NULL, 0, MSG_DONTWAIT);
            hutch_fdpass_send(init->fd, &ended, sizeof(ended), NULL, 0, MSG_DONTWAIT);
        }
        break;
    case LAUNCHER_DESTROY:
        drop_sandbox(r.id);
        init = find_player(LIFE, r.id);
        if (init)
            kill(init->pid, SIGKILL);
        tell_engine(p, LAUNCHER_DESTROYED, r.id, NULL, 0);
        break;
    case LAUNCHER_ATTACH:
        init = find_player(CONTROL, r.id);
        if (init)
            init->data_fd = hutch_fd_take(&fds[0]);
        tell_engine(p, LAUNCHER_ATTACHED, r.id, NULL, 0);
        break;
    case LAUNCHER_FORGET:
        break;
    case LAUNCHER_PING:
        tell_engine(p, LAUNCHER_PONG, 0, NULL, 0);
        break;
    }
    for (size_t i = 0; i < n_fds; i++)
        hutch_fd_closep(&fds[i]);
}

static void play_fork(struct player *p)
{
    static char buf[sizeof(struct zygote_request) + 65536];
    struct zygote_request r;
    struct zygote_reply reply = { .what = ZYGOTE_FORKED, .pid = 2 };
    struct worker_hello hello = { .what = WORKER_READY };
    int fds[8];
    size_t n_fds;
    ssize_t n = hutch_fdpass_receive(p->fd, buf, sizeof(buf), fds, 8, &n_fds, MSG_DONTWAIT);
    struct player *job;

    if (n < (ssize_t)sizeof(r) || perhaps(60)) { /* it dies with its hands full */
        drop_player(p);
        for (size_t i = 0; n > 0 && i < n_fds; i++)
            close(fds[i]);
        return;
    }
    memcpy(&r, buf, sizeof(r));
    reply.id = r.id;
    if (r.what == ZYGOTE_PING) {
        reply.what = ZYGOTE_PONG;
        say(p->fd, &reply, sizeof(reply), NULL, 0);
        return;
    }
    if (r.what == ZYGOTE_ZYGOTE) {
        say(p->fd, &reply, sizeof(reply), NULL, 0);
        play_zygote(fds[0], r.id);
        return;
    }
    if (++n_forked == dies_at_fork) {
        drop_player(p);
    } else {
        if (perhaps(30))
            reply.what = ZYGOTE_FAILED;
        say(p->fd, &reply, sizeof(reply), NULL, 0);
    }
    if (n_fds != 5)
        _exit(74);
    job = add_player(fds[1], JOB, r.id);
    job->in_fd = fds[2];
    job->out_fd = fds[3];
    job->err_fd = fds[4];
    close(fds[0]);
    say(job->fd, &hello, sizeof(hello), NULL, 0);
}

static void follow(struct player *init, pid_t pid)
{
    for (size_t i = 0; i < MAX_PLAYERS; i++)
        if (players[i].fd >= 0 && players[i].role == CELLS && players[i].id == init->id && players[i].pid != pid)
            drop_player(&players[i]);
    tell(init->fd, (struct init_msg){ .kind = INIT_FOLLOWED, .followed = pid });
}

static void play_init(struct player *p)
{
    struct init_order order;
    ssize_t n = recv(p->fd, &order, sizeof(order), MSG_DONTWAIT);

    if (n != (ssize_t)sizeof(order) || perhaps(60)) {
        drop_player(p);
        return;
    }
    if (order.what == INIT_ADOPT)
        tell(p->fd, (struct init_msg){ .kind = INIT_ADOPTED });
    else if (order.what == INIT_ATTACH)
        tell(p->fd, (struct init_msg){ .kind = INIT_ATTACHED });
    else if (order.what == INIT_LIMIT_MEMORY)
        tell(p->fd, (struct init_msg){ .kind = INIT_LIMITED });
    else if (order.what == INIT_SIGNAL)
        tell(p->fd, (struct init_msg){ .kind = INIT_ENDED, .ended.status = order.value });
    else if (order.what == INIT_FOLLOW)
        follow(p, order.value);
    else if (order.what == INIT_WATCH)
        tell(p->fd, (struct init_msg){ .kind = INIT_WATCHED, .process.pid = order.value });
}

static void make_file(const struct player *init)
{
    char path[PATH_MAX + 80];
    int fd;

    snprintf(path, sizeof(path), "%s/%s/made", data_root, init->data);
    fd = init->data_fd < 0 ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644)
                           : openat(init->data_fd, "made", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd >= 0)
        close(fd);
}

static void say_frame(const struct player *p, const char *text)
{
    char frame[512];
    uint32_t len = (uint32_t)strlen(text);

    for (size_t i = 0; i < 4; i++)
        frame[i] = (char)(len >> 8 * i);
    memcpy(frame + 4, text, len);
    if (send(p->fd, frame, len + 4, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return; /* which its end tells */
}

/* The numbers of what it says are not in its streams: then those are read to their end. */
static void say_numbered(struct player *p, const char *members)
{
    char text[256];

    snprintf(text, sizeof(text), "{\"n\":%u,%s}", ++p->n_said, members);
    say_frame(p, text);
}

static void say_pid(struct player *p)
{
    char text[64];

    p->pid = ++last_pid;
    snprintf(text, sizeof(text), "{\"is\":\"here\",\"pid\":%d}", (int)p->pid);
    say_frame(p, text);
}

/* Another one that writes to where @p does. */
static struct player *add_copy(const struct player *p, enum role role, int fd)
{
    struct player *copy = add_player(fd, role, p->id);

    copy->out_fd = dup(p->out_fd);
    copy->err_fd = dup(p->err_fd);
    return copy;
}

static void play_cell(struct player *p, const char *order)
{
    const char *at = strstr(order, "\"id\":");
    const int id = at ? atoi(at + 5) : 0;
    struct player *init = find_player(CONTROL, p->id);
    char members[96];

    snprintf(members, sizeof(members), "\"is\":\"begin\",\"id\":%d,\"count\":1", id);
    say_numbered(p, members);
    if (strstr(order, "out") && write(p->out_fd, "said\n", 5) != 5)
        _exit(82);
    if (strstr(order, "file") && init)
        make_file(init);
    snprintf(members, sizeof(members), "\"is\":\"done\",\"status\":\"ok\",\"id\":%d,\"count\":1", id);
    say_numbered(p, members);
}

static void play_cells(struct player *p)
{
    static char orders[1 << 16];
    int fd = -1;
    size_t n_fds = 0, len;
    ssize_t n = hutch_fdpass_receive(p->fd, orders, sizeof(orders) - 1, &fd, 1, &n_fds, MSG_DONTWAIT);

    if (n <= 0) {
        drop_player(p);
        return;
    }
    for (ssize_t at = 0; at + 4 < n; at += 4 + (ssize_t)len) {
        const unsigned char *head = (unsigned char *)orders + at;
        char *order = orders + at + 4;
        char after;

        len = (size_t)head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16;
        if (at + 4 + (ssize_t)len > n)
            _exit(83);
        after = order[len];
        order[len] = '\0';
        if (strstr(order, "\"do\":\"execute\"")) {
            play_cell(p, order);
        } else if (strstr(order, "\"do\":\"park\"") && fd >= 0) {
            say_pid(add_copy(p, PARKED, hutch_fd_take(&fd)));
            say_frame(p, "{\"is\":\"parked\",\"lost\":[\"a thread\"]}");
        } else if (strstr(order, "\"do\":\"renew\"")) {
            say_frame(p, "{\"is\":\"renewed\",\"lost\":[\"a thread\"]}");
        }
        order[len] = after;
    }
    hutch_fd_closep(&fd);
}

static void play_parked(struct player *p)
{
    char order[64];
    int fd = -1;
    size_t n_fds = 0;

    if (hutch_fdpass_receive(p->fd, order, sizeof(order), &fd, 1, &n_fds, MSG_DONTWAIT) <= 0 || fd < 0)
        drop_player(p);
    else
        say_pid(add_copy(p, CELLS, fd));
}

static void say_here(struct player *p)
{
    const struct process_said here = { .what = PROCESS_HERE, .pid = p->pid = ++last_pid };

    say(p->fd, &here, sizeof(here), NULL, 0);
}

/* A record of @path behind the @len bytes of @packet. How long it is now. */
static size_t add_record(char *packet, size_t len, const char *path)
{
    const struct path_record record = { .mode = S_IFREG | 0644, .path_len = (uint16_t)(strlen(path) + 1),
                                        .target_len = 1 };

    memcpy(packet + len, &record, sizeof(record));
    strcpy(packet + len + sizeof(record), path);
    len += sizeof(record) + record.path_len;
    packet[len] = '\0';
    return len + 1;
}

static int open_for_answer(const char *path)
{
    if (strcmp(path, "memory") == 0)
        return memfd_create("memory", MFD_CLOEXEC);
    if (strcmp(path, "device") == 0)
        return open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (strcmp(path, "proc") == 0)
        return open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (strcmp(path, "directory") == 0)
        return open("/", O_RDONLY | O_CLOEXEC);
    if (strcmp(path, "handle") == 0)
        return open("/proc/self/exe", O_PATH | O_CLOEXEC);
    return strcmp(path, "nothing") == 0 ? -1 : open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
}

/* As the path says. */
static void play_path(int control, const char *order)
{
    const struct path_order *head = (const struct path_order *)order;
    const char *path = order + sizeof(*head);
    char packet[1024];
    struct path_said said = { .what = PATH_DONE };
    size_t len = sizeof(said);
    auto_fd fd = -1;

    if (strcmp(path, "leave") == 0)
        return;
    if (strcmp(path, "deny") == 0)
        said = (struct path_said){ .what = PATH_FAILED, .step = PATH_STEP_LOOK, .errnum = EACCES };
    if (head->kind == PATH_LIST)
        len = add_record(packet, len, strcmp(path, "up") == 0 ? "../up" : "entry");
    else if (said.what == PATH_DONE && strcmp(path, "silent") != 0)
        len = add_record(packet, len, strcmp(path, "name") == 0 ? "name" : "");
    said.n = len > sizeof(said);
    for (int i = strcmp(path, "flood") == 0 ? 20 : head->kind == PATH_LIST; i > 0; i--) {
        said.what = PATH_ENTRIES;
        memcpy(packet, &said, sizeof(said));
        say(control, packet, len, NULL, 0);
    }
    if (said.what == PATH_ENTRIES) {
        said = (struct path_said){ .what = PATH_DONE };
        len = sizeof(said);
    }
    memcpy(packet, &said, sizeof(said));
    fd = head->kind == PATH_OPEN ? open_for_answer(path) : -1;
    say(control, packet, len, &fd, fd >= 0);
}

static void play_spawner(struct player *p)
{
    static char order[sizeof(struct process_order) + PROCESS_TEXT_MAX] __attribute__((aligned(16)));
    struct player *process;
    int fds[4];
    size_t n_fds = 0;
    ssize_t n = hutch_fdpass_receive(p->fd, order, sizeof(order), fds, ARRAY_SIZE(fds), &n_fds, MSG_DONTWAIT);

    if (n <= 0) {
        drop_player(p);
        return;
    }
    if ((size_t)n >= sizeof(struct path_order) && n_fds == 1 && *(uint32_t *)order == SPAWNER_PATH) {
        if (strcmp(order + sizeof(struct path_order), "hang") != 0)
            play_path(fds[0], order);
        else
            add_player(hutch_fd_take(&fds[0]), PROCESS, p->id);
        hutch_fd_closep(&fds[0]);
        return;
    }
    if (n_fds != ARRAY_SIZE(fds)) { /* with a terminal, which is not made here */
        if (n_fds > 0)
            say_here(add_player(hutch_fd_take(&fds[0]), PROCESS, p->id));
        for (size_t i = 1; i < n_fds; i++)
            close(fds[i]);
        return;
    }
    process = add_player(fds[0], PROCESS, p->id);
    process->in_fd = fds[1];
    process->out_fd = fds[2];
    process->err_fd = fds[3];
    say_here(process);
}

/* Says something, and ends. */
static void play_process(struct player *p)
{
    struct player *init = find_player(CONTROL, p->id);
    char go;

    if (recv(p->fd, &go, 1, MSG_DONTWAIT) == 1 && p->out_fd >= 0 && write(p->out_fd, "said\n", 5) != 5 && !is_rough)
        _exit(84);
    if (init)
        tell(init->fd, (struct init_msg){ .kind = INIT_PROCESS_ENDED, .process.pid = p->pid });
    drop_player(p);
}

/* "out", "err", "echo", "file", "fail", "wait" and "vanish", one after the other; then it ends with 0. */
static void play_worker(struct player *p)
{
    static char job[1 << 20];
    struct player *init = find_player(CONTROL, p->id);
    ssize_t n;
    struct init_msg ended = { .kind = INIT_ENDED };
    const char *code;
    char input[64];
    int spawner_fd = -1;
    size_t n_fds;

    if (n_deaf > 0 && init) {
        n_deaf--;
        drop_player(p);
        ended.ended.status = SIGKILL;
        tell(init->fd, ended);
        return;
    }
    n = hutch_fdpass_receive(p->fd, job, sizeof(job) - 1, &spawner_fd, 1, &n_fds, MSG_DONTWAIT);
    if (n <= 0 || !init) {
        hutch_fd_closep(&spawner_fd);
        drop_player(p);
        return;
    }
    if (spawner_fd >= 0) { /* comes with the first bytes, and the rest after it */
        say_here(add_player(spawner_fd, SPAWNER, p->id));
        return;
    }
    if (memmem(job, (size_t)n < 32 ? (size_t)n : 32, "cells", 5)) {
        p->role = CELLS;
        p->pid = 2;
        say_numbered(p, "\"is\":\"ready\",\"language_info\":{}");
        return;
    }
    for (ssize_t i = 0; i < n; i++)
        job[i] += job[i] == '\0';
    job[n] = '\0';
    code = strstr(job, "#!");
    if (code && strstr(code, "out") && write(p->out_fd, "said\n", 5) != 5)
        _exit(75);
    if (code && strstr(code, "err") && write(p->err_fd, "complained\n", 11) != 11)
        _exit(76);
    if (code && strstr(code, "echo")) {
        ssize_t len = read(p->in_fd, input, sizeof(input));

        if (len > 0 && write(p->out_fd, input, (size_t)len) != len)
            _exit(77);
    }
    if (code && strstr(code, "file"))
        make_file(init);
    if (code && strstr(code, "fail"))
        ended.ended.status = 3 << 8;
    if (perhaps(4)) {
        for (size_t i = 0; i < sizeof(input); i++)
            input[i] = (char)rand();
        if (write(rand() % 2 ? p->fd : p->out_fd, input, sizeof(input)) < 0)
            drop_player(p);
    }
    if (code && strstr(code, "vanish")) {
        drop_player(init);
    } else if (!code || !strstr(code, "wait")) {
        tell(init->fd, ended);
        drop_player(p);
    }
}

static void play_opener(struct player *p)
{
    struct opener_request r;
    struct opener_reply reply = { .what = OPENER_OPENED };
    size_t n_fds;
    auto_fd fd = -1;

    if (hutch_fdpass_receive(p->fd, &r, sizeof(r), NULL, 0, &n_fds, MSG_DONTWAIT) != (ssize_t)sizeof(r))
        _exit(0); /* the engine is gone, or asks for nonsense */
    if (r.what == OPENER_PING) {
        reply.what = OPENER_PONG;
        say(p->fd, &reply, sizeof(reply), NULL, 0);
        return;
    }
    reply.id = r.id;
    fd = open(r.path, O_PATH | O_CLOEXEC);
    if (fd < 0) {
        reply.what = OPENER_FAILED;
        hutch_err_set(&reply.err, errno, "open '%s'", r.path);
    }
    say(p->fd, &reply, sizeof(reply), &fd, fd >= 0);
}

static void send_launcher(struct player *opener)
{
    struct opener_reply reply = { .what = OPENER_LAUNCHER };
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        _exit(78);
    add_player(pair[0], LAUNCHER, 0);
    /* in the place of pidfds: nothing of ours is killed alone */
    say(opener->fd, &reply, sizeof(reply), (int[]){ pair[1], pair[1], pair[1] }, 3);
    close(pair[1]);
}

/* An earlier one of the same turn may have closed it, and the number be another's now. */
static bool is_really_ready(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };

    return poll(&p, 1, 0) == 1;
}

static void play_part(struct player *p)
{
    static void (*const parts[])(struct player *) = { play_opener, play_launcher, play_fork,   play_init,
                                                      play_worker, play_cells,    play_parked, play_life,
                                                      play_spawner, play_process };
    struct pollfd hangup = { .fd = p->fd };

    if ((int)p->role != mute_role || mute_orders > 0) {
        mute_orders -= (int)p->role == mute_role;
        parts[p->role](p);
    } else if (poll(&hangup, 1, 0) != 0) { /* it was given up */
        mute_role = -1;
        if (p->role == LAUNCHER)
            send_launcher(&players[0]);
        drop_player(p);
    }
}

/* As the opener does. */
static void raise_open_files(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        _exit(80);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static int play(void)
{
    struct opener_reply hello = { .what = OPENER_HELLO };
    const char *how = getenv("HUTCH_FAKE");
    struct player *opener;

    signal(SIGPIPE, SIG_IGN);
    raise_open_files();
    for (size_t i = 0; i < MAX_PLAYERS; i++)
        players[i].fd = -1;
    if (how && strncmp(how, "fork:", 5) == 0)
        dies_at_fork = (unsigned)atoi(how + 5);
    if (how && strncmp(how, "deaf:", 5) == 0)
        n_deaf = (unsigned)atoi(how + 5);
    if (how && sscanf(how, "mute:%d:%u", &mute_role, &mute_orders) != 2)
        mute_role = -1;
    refuses = how && strcmp(how, "refuse") == 0;
    is_speechless = how && strcmp(how, "speechless") == 0;
    has_lives = how && strstr(how, "lives");
    opener = add_player(WARM_SOCKET_FD, OPENER, 0);
    hutch_fdpass_send(opener->fd, &hello, sizeof(hello), NULL, 0, 0);
    send_launcher(opener);
    if (how && how[0] >= '0' && how[0] <= '9') {
        is_rough = true;
        srand((unsigned)atoi(how) + (unsigned)getpid());
    }
    for (;;) {
        struct pollfd p[MAX_PLAYERS];

        if (perhaps(400))
            _exit(0);
        if (perhaps(200))
            send_launcher(opener);
        for (size_t i = 0; i < MAX_PLAYERS; i++)
            p[i] = (struct pollfd){ .fd = players[i].fd, .events = POLLIN };
        if (poll(p, MAX_PLAYERS, -1) < 0)
            _exit(79);
        for (size_t i = 0; i < MAX_PLAYERS; i++)
            if (p[i].revents && players[i].fd == p[i].fd && is_really_ready(p[i].fd))
                play_part(&players[i]);
    }
}

/* --- the tests ---------------------------------------------------------------------------------------------------- */

struct lair {
    char dir[48], home[64], policy[64], exe[PATH_MAX];
    struct hutch_engine_options options;
    struct hutch_engine *engine;
    int n_fds;
};

#define MAX_RUNS 4096
static struct {
    unsigned results, begun;
    enum hutch_verdict verdict;
    int exit_code, restarts, was_prepared;
    char out[64], err[64], message[128], zygote[16], directory[128], streamed[64];
} runs[MAX_RUNS];
static unsigned n_results;

static void on_result(void *user, uint64_t id, const struct hutch_result *r)
{
    const bool was_armed = failpoint.is_armed;
    char *json;

    (void)user;
    failpoint.is_armed = false; /* what the caller does is not tried */
    assert_in_range(id, 1, MAX_RUNS - 1);
    runs[id].results++;
    runs[id].verdict = r->verdict;
    runs[id].exit_code = r->exit_code;
    runs[id].restarts = r->restarts;
    runs[id].was_prepared = r->was_prepared;
    snprintf(runs[id].out, sizeof(runs[id].out), "%s", r->out);
    snprintf(runs[id].err, sizeof(runs[id].err), "%s", r->err);
    snprintf(runs[id].message, sizeof(runs[id].message), "%s", r->message);
    snprintf(runs[id].zygote, sizeof(runs[id].zygote), "%s", r->zygote ? r->zygote : "");
    snprintf(runs[id].directory, sizeof(runs[id].directory), "%s", r->directory ? r->directory : "");
    json = hutch_result_to_json(r);
    assert_non_null(json);
    free(json);
    n_results++;
    failpoint.is_armed = was_armed;
}

static void on_output(void *user, uint64_t id, int stream, const char *data, size_t len)
{
    (void)user;
    snprintf(runs[id].streamed + strlen(runs[id].streamed), sizeof(runs[id].streamed) - strlen(runs[id].streamed),
             "%d:%.*s", stream, (int)len, data);
}

static int count_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;

    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0 && fclose(file) == 0);
}

static int set_up(void **state)
{
    static const char *const modules[] = { "numpy", "no_such_module", NULL };
    static const struct hutch_zygote zygotes[] = {
        { .name = "bare", .min = 2, .max = 4 },
        { .name = "data", .parent = "bare", .modules = modules, .min = 1, .max = 4 },
    };
    struct lair *p = calloc(1, sizeof(*p));

    strcpy(p->dir, "/tmp/hutch-test-engine.XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    snprintf(p->home, sizeof(p->home), "%s/home", p->dir);
    assert_true(readlink("/proc/self/exe", p->exe, sizeof(p->exe) - 1) > 0);
    /* No control group: where the one above cannot be opened, as a failpoint has it, an engine makes one in its own and
     * steps into that, and it would be left behind. */
    snprintf(p->policy, sizeof(p->policy), "%s/policy.json", p->dir);
    write_file(p->policy, "{\"schema\": 1, \"extends\": \"default\", \"layers\": {\"cgroup\": \"off\"}}");
    hutch_engine_options_init(&p->options);
    p->options.layouts = 1;
    p->options.home = p->home;
    p->options.policy = p->policy;
    p->options.image = "/";
    p->options.launcher = p->exe;
    p->options.policy_dir = "policies";
    p->options.zygotes = zygotes;
    p->options.n_zygotes = ARRAY_SIZE(zygotes);
    p->options.max_running = 4;
    memset(runs, 0, sizeof(runs));
    n_results = 0;
    p->n_fds = count_fds();
    *state = p;
    return 0;
}

static void open_engine(struct lair *p, const char *how)
{
    struct hutch_error error;

    setenv("HUTCH_FAKE", how, 1);
    if (hutch_engine_open(&p->options, &p->engine, &error) < 0)
        fail_msg("%s", error.message);
}

/* Nothing is left: no descriptor, no process, no directory. */
static void close_engine(struct lair *p)
{
    char path[96];
    struct dirent *entry;
    DIR *dir;

    hutch_engine_free(p->engine);
    p->engine = NULL;
    assert_int_equal(count_fds(), p->n_fds);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    snprintf(path, sizeof(path), "%s/runs", p->home);
    dir = opendir(path);
    assert_non_null(dir);
    while ((entry = readdir(dir)))
        if (entry->d_name[0] != '.' && strchr(entry->d_name, '.'))
            /* N.data, which nobody has touched */
            assert_int_equal(unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR), 0);
    closedir(dir);
}

static void close_engine_without_runs(struct lair *p)
{
    char path[96];

    snprintf(path, sizeof(path), "%s/runs", p->home);
    assert_int_equal(mkdir(path, 0700), 0);
    close_engine(p);
}

static int tear_down(void **state)
{
    struct lair *p = *state;
    struct hutch_err err = { .msg = "" };
    auto_fd fd = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    hutch_engine_free(p->engine);
    assert_int_equal(hutch_rmtree(fd, p->dir + strlen("/tmp/"), &err), 0);
    free(p);
    return 0;
}

/* Whether anything came before it. */
static bool turn_within(struct lair *p, int ms)
{
    struct pollfd fd = { .fd = hutch_engine_fd(p->engine), .events = POLLIN };
    const bool has_come = poll(&fd, 1, ms) == 1;

    hutch_engine_dispatch(p->engine, NULL);
    return has_come;
}

static void turn(struct lair *p)
{
    if (!turn_within(p, 60000))
        fail_msg("the engine waits for nothing");
}

static void await(struct lair *p, unsigned n)
{
    while (n_results < n)
        turn(p);
}

static struct hutch_engine_stats stats_of(struct lair *p)
{
    struct hutch_engine_stats stats = { .size = sizeof(stats) };

    hutch_engine_get_stats(p->engine, &stats);
    return stats;
}

static void await_full_pool(struct lair *p)
{
    while (stats_of(p).prepared < 3 || stats_of(p).building > 0)
        turn(p);
}

static struct hutch_request request_for(const char *code)
{
    struct hutch_request request;

    hutch_request_init(&request);
    request.code = code;
    request.on_result = on_result;
    return request;
}

static uint64_t submit(struct lair *p, const struct hutch_request *request)
{
    struct hutch_error error;
    uint64_t id = 0;

    if (hutch_engine_submit(p->engine, request, &id, &error) < 0)
        fail_msg("%s", error.message);
    return id;
}

static void test_runs(void **state)
{
    struct lair *p = *state;
    struct hutch_request request;
    char want[128];
    uint64_t id;

    open_engine(p, "");
    request = request_for("#! out err");
    id = submit(p, &request); /* before anything is ready */
    await(p, 1);
    assert_int_equal(runs[id].verdict, HUTCH_OK);
    assert_string_equal(runs[id].out, "said\n");
    assert_string_equal(runs[id].err, "complained\n");
    assert_string_equal(runs[id].zygote, "bare");
    assert_false(runs[id].was_prepared);
    await_full_pool(p);

    request = request_for("#! echo fail");
    request.input = "given\n";
    request.input_len = 6;
    id = submit(p, &request);
    assert_int_equal(runs[id].results, 0); /* never before submit returns */
    await(p, 2);
    assert_int_equal(runs[id].verdict, HUTCH_ERROR);
    assert_int_equal(runs[id].exit_code, 3);
    assert_string_equal(runs[id].out, "given\n");
    assert_true(runs[id].was_prepared);

    request = request_for("import numpy\n#! out");
    request.on_output = on_output;
    id = submit(p, &request);
    await(p, 3);
    assert_string_equal(runs[id].zygote, "data");
    assert_string_equal(runs[id].streamed, "1:said\n");
    assert_string_equal(runs[id].out, "");

    request = request_for("import no_such_module\n#!");
    id = submit(p, &request);
    await(p, 4);
    assert_string_equal(runs[id].zygote, "bare"); /* the other one has not got it either */

    request = request_for("#! file");
    id = submit(p, &request);
    request.keep_data = 1;
    assert_int_equal(submit(p, &request), id + 1);
    await(p, 6);
    assert_string_equal(runs[id].directory, "");
    snprintf(want, sizeof(want), "%s/outputs/", p->home);
    assert_memory_equal(runs[id + 1].directory, want, strlen(want));

    request = request_for("#! out");
    request.data_dir = p->dir;
    assert_int_equal(hutch_engine_submit(p->engine, &request, NULL, NULL), -1); /* hutch's own lies in it */
    request.data_dir = "/usr/include";
    id = submit(p, &request);
    await(p, 7);
    assert_int_equal(runs[id].verdict, HUTCH_OK);
    assert_string_equal(runs[id].directory, "/usr/include");

    request = request_for("echo");
    request.language = "sh";
    id = submit(p, &request);
    await(p, 8);
    assert_string_equal(runs[id].out, "executed\n");
    assert_string_equal(runs[id].zygote, "");

    request = request_for("#! out");
    request.memory_bytes = 64 << 20;
    request.pids = 10;
    request.cpus = 500;
    await_full_pool(p);
    id = submit(p, &request);
    await(p, 9);
    assert_string_equal(runs[id].out, "said\n");
    assert_true(runs[id].was_prepared); /* its limits were made tighter */
    request.policy = p->policy; /* that of the engine */
    await_full_pool(p);
    id = submit(p, &request);
    await(p, 10);
    assert_true(runs[id].was_prepared);
    request.policy = "default";
    id = submit(p, &request);
    await(p, 11);
    assert_string_equal(runs[id].out, "said\n");
    assert_false(runs[id].was_prepared);

    request = request_for("#! out");
    request.env = (const char *const[]){ "PYTHONHASHSEED=0", NULL };
    id = submit(p, &request);
    await(p, 12);
    assert_string_equal(runs[id].out, "executed\n"); /* too late for an interpreter that runs */
    for (uint64_t i = 1; i <= 12; i++)
        assert_int_equal(runs[i].results, 1);
    close_engine(p);
}

static void test_ends(void **state)
{
    struct lair *p = *state;
    struct hutch_request request = request_for("#! out vanish");
    uint64_t id;

    open_engine(p, "");
    id = submit(p, &request);
    await(p, 1);
    assert_int_equal(runs[id].verdict, HUTCH_KILLED); /* its code had begun: not again */
    assert_string_equal(runs[id].message, "the sandbox was killed from outside");
    assert_string_equal(runs[id].out, "said\n");
    assert_int_equal(runs[id].restarts, 0);

    request = request_for("#! out wait");
    request.wall_ms = 100;
    id = submit(p, &request);
    await(p, 2);
    assert_int_equal(runs[id].verdict, HUTCH_TIMEOUT);

    request.wall_ms = 0;
    request.on_output = on_output;
    id = submit(p, &request);
    while (!runs[id].streamed[0])
        turn(p);
    assert_int_equal(hutch_engine_cancel(p->engine, id), 1);
    /* The end of its sandbox is all that ends it, which a player does not notice by himself. */
    hutch_engine_free(p->engine);
    p->engine = NULL;
    assert_int_equal(runs[id].results, 0);
}

/* A zygote that dies while it forks: its runs begin again with the spare. */
static void test_a_zygote_dies(void **state)
{
    struct lair *p = *state;
    struct hutch_request request = request_for("#! out");
    uint64_t id;

    open_engine(p, "fork:5");
    for (int i = 0; i < 20; i++) {
        id = submit(p, &request);
        await(p, (unsigned)i + 1);
        assert_int_equal(runs[id].results, 1);
        assert_int_equal(runs[id].verdict, HUTCH_OK);
    }
    await_full_pool(p);
    assert_int_equal(stats_of(p).lost_zygotes, 1);
    assert_int_equal(stats_of(p).zygotes[0].recycled + stats_of(p).zygotes[1].recycled, 1);
    close_engine(p);
}

/* Its worker is killed before it has read the job: nothing of the program has run, so it begins again. */
static void test_a_job_that_nobody_reads(void **state)
{
    struct lair *p = *state;
    struct hutch_request request = request_for("#! out");
    uint64_t id;

    open_engine(p, "deaf:2");
    await_full_pool(p);
    id = submit(p, &request);
    await(p, 1);
    assert_int_equal(runs[id].verdict, HUTCH_OK);
    assert_string_equal(runs[id].out, "said\n");
    assert_int_equal(runs[id].restarts, 2);
    assert_int_equal(stats_of(p).restarted, 2);
    assert_int_equal(stats_of(p).lost_sandboxes, 2);
    close_engine(p);

    n_results = 0;
    open_engine(p, "deaf:100");
    id = submit(p, &request);
    await(p, 1);
    assert_int_equal(runs[id].verdict, HUTCH_SETUP_FAILED); /* but not for ever */
    assert_string_equal(runs[id].message, "its sandbox was broken from outside, 4 times");
    close_engine(p);
}

/* A zygote that this image cannot have is given up, and its runs go to its parent; one that dies without a word is
 * tried again. */
static void test_a_zygote_that_cannot_be(void **state)
{
    struct lair *p = *state;
    struct hutch_request request = request_for("import numpy\n#! out");
    uint64_t id;

    open_engine(p, "refuse");
    id = submit(p, &request);
    await(p, 1);
    assert_int_equal(runs[id].verdict, HUTCH_OK);
    while (stats_of(p).building > 0 || stats_of(p).prepared < 2)
        turn(p);
    id = submit(p, &request);
    await(p, 2);
    assert_string_equal(runs[id].zygote, "bare");
    assert_false(stats_of(p).zygotes[1].is_ready);
    assert_int_equal(stats_of(p).zygotes[1].prepared, 0);
    close_engine(p);

    n_results = 0;
    open_engine(p, "speechless");
    id = submit(p, &request);
    await(p, 1);
    assert_int_equal(runs[id].verdict, HUTCH_OK); /* by the parent */
    assert_string_equal(runs[id].zygote, "data");
    close_engine(p);
}

static void test_recycling(void **state)
{
    struct lair *p = *state;
    struct hutch_request request = request_for("#! out");

    p->options.recycle_forks = 10;
    open_engine(p, "");
    for (unsigned i = 1; i <= 60; i++) {
        uint64_t id = submit(p, &request);

        await(p, i);
        assert_int_equal(runs[id].verdict, HUTCH_OK);
    }
    await_full_pool(p);
    assert_true(stats_of(p).zygotes[0].recycled >= 2);
    assert_true(stats_of(p).zygotes[0].is_ready);
    assert_int_equal(stats_of(p).lost_zygotes, 0); /* nobody died: they were let go */
    close_engine(p);
}

static void submit_another(void *user, uint64_t id, const struct hutch_result *r)
{
    struct lair *p = user;
    struct hutch_request request = request_for("#! out");

    on_result(NULL, id, r);
    request.on_result = submit_another;
    request.user = p;
    if (id <= 90)
        submit(p, &request);
}

static void test_callbacks_may_submit(void **state)
{
    struct lair *p = *state;
    struct hutch_request request = request_for("#! out");

    request.on_result = submit_another;
    request.user = p;
    open_engine(p, "");
    for (int i = 0; i < 10; i++)
        submit(p, &request);
    await(p, 100);
    for (uint64_t id = 1; id <= 100; id++) {
        assert_int_equal(runs[id].results, 1);
        assert_int_equal(runs[id].verdict, HUTCH_OK);
    }
    assert_int_equal(stats_of(p).finished, 100);
    close_engine(p);
}

/* Whichever helper process stops to answer is replaced, and the runs that have not begun find out nothing. */
static void test_a_helper_that_hangs(void **state)
{
    struct lair *p = *state;

    p->options.answer_ms = 500;
    for (int role = OPENER; role <= ZYGOTE; role++)
        for (unsigned orders = role == OPENER ? 0 : 3; orders < 7; orders += 3) {
            struct hutch_request request = request_for("#! out");
            char how[16];

            memset(runs, 0, sizeof(runs));
            n_results = 0;
            request.data_dir = role == OPENER ? "/usr/include" : NULL;
            snprintf(how, sizeof(how), "mute:%d:%u", role, orders);
            open_engine(p, how);
            setenv("HUTCH_FAKE", "", 1); /* for the opener's successor */
            for (int i = 0; i < 12; i++)
                submit(p, &request);
            await(p, 12);
            for (uint64_t id = 1; id <= 12; id++)
                if (runs[id].results != 1 || runs[id].verdict != HUTCH_OK)
                    fail_msg("%s: run %u: %u results, %s", how, (unsigned)id, runs[id].results, runs[id].message);
            assert_true(stats_of(p).hung > 0);
            assert_true(role == ZYGOTE ? stats_of(p).lost_zygotes > 0 : stats_of(p).lost_launchers > 0);
            close_engine(p);
        }
}

/* Whom a run waits for in vain is named. */
static void test_a_run_that_cannot_start(void **state)
{
    struct lair *p = *state;
    struct hutch_request request = request_for("#! out");

    p->options.answer_ms = 30000;
    p->options.setup_ms = 200;
    open_engine(p, "mute:1:3");
    submit(p, &request);
    await(p, 1);
    assert_int_equal(runs[1].verdict, HUTCH_SETUP_FAILED);
    assert_string_equal(runs[1].message, "no sandbox was ready within 0.2 s: it waits for the launcher");
    close_engine(p);
}

/* An engine ends with whatever is on its way, without a call. */
static void test_free_at_any_time(void **state)
{
    struct lair *p = *state;

    for (int turns = 0; turns < 40; turns++) {
        struct hutch_request request = request_for(turns % 2 ? "#! out wait" : "import numpy\n#! file");

        n_results = 0;
        open_engine(p, "");
        for (int i = 0; i < 6; i++)
            submit(p, &request);
        for (int i = 0; i < turns; i++) /* some of them for nothing */
            turn_within(p, 2);
        close_engine(p);
    }
}

/* Whatever the helpers say: every run gets exactly one result, with words where it could not start, and nothing is left
 * behind. */
static void test_anything_from_the_helpers(void **state)
{
    struct lair *p = *state;
    unsigned n_ok = 0, n_all = 0;

    for (int seed = 1; seed <= 16; seed++) {
        struct hutch_request request = request_for(seed % 3 ? "#! out" : "import numpy\n#! out err file");
        char how[16];
        unsigned n = 0;

        memset(runs, 0, sizeof(runs));
        n_results = 0;
        snprintf(how, sizeof(how), "%d", seed);
        open_engine(p, how);
        /* much of what it waits for never comes */
        p->engine->core.setup_ms = p->engine->core.import_ms = p->engine->core.answer_ms = 50;
        for (int i = 0; i < 30; i++) {
            request.data_dir = i % 8 == 7 ? "/usr/include" : NULL;
            request.language = i % 11 == 10 ? "sh" : NULL;
            request.memory_bytes = i % 4 == 2 ? 64 << 20 : 0;
            request.policy = i % 13 == 12 ? "default" : NULL;
            request.wall_ms = 300;
            request.user = p;
            submit(p, &request);
            n++;
        }
        await(p, n);
        for (uint64_t id = 1; id <= n; id++) {
            assert_int_equal(runs[id].results, 1);
            assert_true(runs[id].verdict != HUTCH_SETUP_FAILED || runs[id].message[0]);
            n_ok += runs[id].verdict == HUTCH_OK;
        }
        n_all += n;
        close_engine(p);
    }
    print_message("%u of %u runs ended well\n", n_ok, n_all);
    assert_true(n_ok > 0);
}

/* What the failpoints go through: open, runs of each end, one whose files are kept, free. Nothing is asserted but what
 * has to hold whatever fails. */
static void go_through(struct lair *p, const char *label)
{
    static const char *const codes[] = { "#! out err", "#! out file", "#! echo fail" };
    struct hutch_error error = { .message = "" };
    struct hutch_request request;
    uint64_t ids[ARRAY_SIZE(codes)] = { 0 };
    unsigned n = 0;

    memset(runs, 0, sizeof(runs));
    n_results = 0;
    if (hutch_engine_open(&p->options, &p->engine, &error) < 0) {
        if (!error.message[0])
            fail_msg("%s: the engine does not say why it does not open", label);
        p->engine = NULL;
        return;
    }
    p->engine->core.setup_ms = p->engine->core.import_ms = 200; /* much of what it waits for never comes */
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        request = request_for(codes[i]);
        request.keep_data = 1;
        request.memory_bytes = i == 0 ? 64 << 20 : 0;
        request.input = "given\n";
        request.input_len = 6;
        error.message[0] = '\0';
        if (hutch_engine_submit(p->engine, &request, &ids[i], &error) == 0)
            n++;
        else if (!error.message[0])
            fail_msg("%s: a request is refused without a reason", label);
        else
            ids[i] = 0;
    }
    await(p, n);
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        char made[200];

        if (ids[i] == 0)
            continue;
        if (runs[ids[i]].results != 1)
            fail_msg("%s: '%s' has %u results", label, codes[i], runs[ids[i]].results);
        if (runs[ids[i]].verdict == (i == 2 ? HUTCH_ERROR : HUTCH_OK)) {
            if (strcmp(runs[ids[i]].out, i == 2 ? "given\n" : "said\n") != 0)
                fail_msg("%s: '%s' is well and has said '%s'", label, codes[i], runs[ids[i]].out);
            snprintf(made, sizeof(made), "%s/made", runs[ids[i]].directory);
            if (i == 1 && access(made, F_OK) < 0)
                fail_msg("%s: '%s' is well, and its file is not in '%s'", label, codes[i], runs[ids[i]].directory);
        } else if (runs[ids[i]].verdict != HUTCH_SETUP_FAILED && runs[ids[i]].verdict != HUTCH_KILLED) {
            fail_msg("%s: '%s' ended with verdict %d: %s", label, codes[i], runs[ids[i]].verdict, runs[ids[i]].message);
        } else if (!runs[ids[i]].message[0]) {
            fail_msg("%s: '%s' does not say why it failed", label, codes[i]);
        }
    }
}

/* What became of the orders of a session. */
static struct {
    unsigned answers, ends;
    bool is_ok;
    char said[64], message[256], lost[64], directory[128];
} orders[4], last_word;
enum { FIRST_CELL, CHECKPOINT, SECOND_CELL, ROLLBACK };

static void on_cell(void *user, uint64_t session, const struct hutch_cell_result *r)
{
    const size_t i = (size_t)user;

    (void)session;
    orders[i].answers++;
    orders[i].is_ok = r->verdict == HUTCH_OK;
    snprintf(orders[i].said, sizeof(orders[i].said), "%s", r->truncated ? "said\\n, or more" : r->outputs);
    snprintf(orders[i].message, sizeof(orders[i].message), "%s", r->message);
}

static void on_reply(void *user, uint64_t session, const struct hutch_reply *reply)
{
    const size_t i = (size_t)user;

    (void)session;
    orders[i].answers++;
    orders[i].is_ok = reply->ok;
    snprintf(orders[i].lost, sizeof(orders[i].lost), "%s", reply->lost);
    snprintf(orders[i].message, sizeof(orders[i].message), "%s", reply->message);
}

static void on_end(void *user, uint64_t session, const char *why, const char *directory)
{
    (void)user;
    (void)session;
    last_word.ends++;
    snprintf(last_word.message, sizeof(last_word.message), "%s", why);
    snprintf(last_word.directory, sizeof(last_word.directory), "%s", directory ? directory : "");
}

static void close_session(struct lair *p, uint64_t id, const char *label)
{
    if (hutch_session_close(p->engine, id) != 1 && last_word.ends == 0)
        fail_msg("%s: there is no session, and nothing was said of its end", label);
    while (last_word.ends == 0)
        turn(p);
}

static int give_order(struct lair *p, uint64_t id, size_t i, struct hutch_error *error)
{
    struct hutch_cell cell;

    if (i == CHECKPOINT)
        return hutch_session_checkpoint(p->engine, id, on_reply, (void *)i, error);
    if (i == ROLLBACK)
        return hutch_session_rollback(p->engine, id, 1, on_reply, (void *)i, error);
    hutch_cell_init(&cell);
    cell.code = i == FIRST_CELL ? "#! out file" : "#! out";
    cell.on_result = on_cell;
    cell.user = (void *)i;
    return hutch_session_execute(p->engine, id, &cell, error);
}

static void check_orders(const char *label)
{
    char made[160];

    for (size_t i = 0; i < ARRAY_SIZE(orders); i++) {
        if (orders[i].answers > 0 && !orders[i].is_ok && !orders[i].message[0])
            fail_msg("%s: order %zu does not say why it failed", label, i);
        if (orders[i].is_ok && (i == FIRST_CELL || i == SECOND_CELL) && !strstr(orders[i].said, "said\\n"))
            fail_msg("%s: order %zu is well, and has said '%s'", label, i, orders[i].said);
        if (orders[i].is_ok && (i == CHECKPOINT || i == ROLLBACK) && strcmp(orders[i].lost, "[]") == 0)
            fail_msg("%s: order %zu is well, and has lost nothing", label, i);
    }
    if (orders[ROLLBACK].is_ok && !orders[CHECKPOINT].is_ok)
        fail_msg("%s: there is no checkpoint that was gone back to", label);
    snprintf(made, sizeof(made), "%s/made", last_word.directory);
    if (orders[FIRST_CELL].is_ok && access(made, F_OK) < 0 && !strstr(last_word.message, "files are lost"))
        fail_msg("%s: the file of the first cell is not in '%s': %s", label, last_word.directory, last_word.message);
}

/* The same for a session, in an engine that is ready: cells, a checkpoint, a way back, the end. */
static void go_through_session(struct lair *p, const char *label)
{
    struct hutch_session_options options;
    struct hutch_error error = { .message = "" };
    uint64_t id = 0;

    memset(orders, 0, sizeof(orders));
    memset(&last_word, 0, sizeof(last_word));
    hutch_session_options_init(&options);
    options.keep_data = 1;
    options.on_end = on_end;
    if (hutch_session_open(p->engine, &options, &id, &error) < 0) {
        if (!error.message[0])
            fail_msg("%s: a session is refused without a reason", label);
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(orders); i++) {
        error.message[0] = '\0';
        if (give_order(p, id, i, &error) < 0) {
            if (!error.message[0])
                fail_msg("%s: order %zu is refused without a reason", label, i);
            continue;
        }
        while (orders[i].answers == 0)
            turn(p);
    }
    close_session(p, id, label);
    for (size_t i = 0; i < ARRAY_SIZE(orders); i++)
        if (orders[i].answers > 1)
            fail_msg("%s: order %zu has %u answers", label, i, orders[i].answers);
    check_orders(label);
}

/* How many calls an engine makes until it is open: a policy and a filter are thousands of allocations of one kind. */
static unsigned count_calls_of_open(struct lair *p, enum failpoint_kind kind)
{
    failpoint_arm(kind, UINT_MAX, 0);
    open_engine(p, "");
    failpoint_disarm();
    hutch_engine_free(p->engine);
    p->engine = NULL;
    return failpoint.seen;
}

#define OPEN_STEPS 30

static unsigned next_failpoint(unsigned n, unsigned n_open)
{
    unsigned next = n + n_open / OPEN_STEPS + 1;

    return n >= n_open ? n + 1 : next < n_open ? next : n_open;
}

/* Nothing is left of the engine, however it went. Whether a call has failed. */
static bool end_of_failpoint(struct lair *p, const char *label, long blocks)
{
    bool has_failed;

    hutch_engine_free(p->engine);
    p->engine = NULL;
    has_failed = failpoint_disarm();
    if (count_fds() != p->n_fds)
        fail_msg("%s: %d descriptors, and %d before", label, count_fds(), p->n_fds);
    if (FAILPOINT_HAS_MALLOC && failpoint.blocks != blocks)
        fail_msg("%s: %ld blocks of memory are left", label, failpoint.blocks - blocks);
    if (waitpid(-1, NULL, WNOHANG) != -1)
        fail_msg("%s: a process is left", label);
    return has_failed;
}

static void test_failpoints(void **state)
{
    static const unsigned lengths[] = { 1, 5, 40 };
    struct lair *p = *state;

    setenv("HUTCH_FAKE", "", 1);
    go_through(p, "none"); /* what libc keeps for itself it has now */
    hutch_engine_free(p->engine);
    p->engine = NULL;
    for (int kind = 0; kind < FAILPOINT_COUNT; kind++) {
        const unsigned n_open = count_calls_of_open(p, (enum failpoint_kind)kind);
        unsigned n = 1, n_tried = 0;

        if (kind == FAILPOINT_ALLOCATION && !FAILPOINT_HAS_MALLOC)
            continue;
        for (size_t l = 0; l < ARRAY_SIZE(lengths); l++) {
            bool has_failed = true;

            for (n = 1; has_failed; n = next_failpoint(n, n_open)) {
                long blocks = failpoint.blocks;
                char label[64];

                snprintf(label, sizeof(label), "%s %u to %u", failpoint_names[kind], n, n + lengths[l] - 1);
                n_tried++;
                failpoint_arm((enum failpoint_kind)kind, n, lengths[l]);
                go_through(p, label);
                has_failed = end_of_failpoint(p, label, blocks);
            }
        }
        print_message("%s: the last of %u calls, %u runs\n", failpoint_names[kind], n - 2, n_tried);
    }
}

/* Calls of an engine that is ready, each of which may fail. */
struct passage {
    const char *name;
    void (*go)(struct lair *p, const char *label);
    void (*check)(void); /* that all was well: nothing has failed */
    unsigned answer_ms;  /* of its helpers; 0: as usual */
};

static bool try_passage(struct lair *p, const struct passage *passage, enum failpoint_kind kind, unsigned first)
{
    long blocks = failpoint.blocks;
    char label[64];

    snprintf(label, sizeof(label), "%s %u of %s", failpoint_names[kind], first, passage->name);
    open_engine(p, "lives");
    await_full_pool(p);
    p->engine->core.setup_ms = p->engine->core.import_ms = 500;
    if (passage->answer_ms > 0)
        p->engine->core.answer_ms = passage->answer_ms;
    failpoint_arm(kind, first, 1);
    passage->go(p, label);
    return end_of_failpoint(p, label, blocks);
}

/* Nothing fails; then the first call of each kind, the second, and so on until there is none. */
static void try_each_call(struct lair *p, const struct passage *passage)
{
    open_engine(p, "lives");
    await_full_pool(p);
    passage->go(p, "none"); /* what libc keeps for itself it has now */
    hutch_engine_free(p->engine);
    p->engine = NULL;
    passage->check();
    for (int kind = 0; kind < FAILPOINT_FORK; kind++) {
        unsigned first = 1;

        if (kind == FAILPOINT_ALLOCATION && !FAILPOINT_HAS_MALLOC)
            continue;
        while (try_passage(p, passage, (enum failpoint_kind)kind, first))
            first++;
        print_message("%s: %u calls of %s\n", failpoint_names[kind], first - 1, passage->name);
    }
}

static void check_all_orders(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(orders); i++)
        if (!orders[i].is_ok)
            fail_msg("nothing fails, and order %zu does: %s", i, orders[i].message);
}

static void test_failpoints_of_a_session(void **state)
{
    static const struct passage passage = { "a session", go_through_session, check_all_orders, 0 };

    try_each_call(*state, &passage);
}

/* --- its processes --- */

static struct {
    unsigned ends;
    int exit_code;
    size_t n_said;
    char said[16], why[256];
} spawned[2];

static void on_said(void *user, uint64_t session, uint64_t process, int stream, const char *data, size_t len)
{
    const size_t i = (size_t)user;

    (void)session;
    (void)process;
    assert_int_equal(stream, 1);
    for (size_t k = 0; k < len && spawned[i].n_said + 1 < sizeof(spawned[i].said); k++)
        spawned[i].said[spawned[i].n_said++] = data[k];
}

static void on_process_end(void *user, uint64_t session, uint64_t process, const struct hutch_process_end *end)
{
    const size_t i = (size_t)user;

    (void)session;
    (void)process;
    spawned[i].ends++;
    spawned[i].exit_code = end->exit_code;
    snprintf(spawned[i].why, sizeof(spawned[i].why), "%s", end->why);
}

/* What may be asked of it at any time. */
static void ask_of_process(struct lair *p, uint64_t session, uint64_t process)
{
    struct hutch_error error;

    hutch_process_write(p->engine, session, process, "input", 5, &error);
    hutch_process_close_stdin(p->engine, session, process, &error);
    hutch_process_hold(p->engine, session, process, 1, &error);
    free(hutch_session_processes(p->engine, session, &error));
    hutch_process_hold(p->engine, session, process, 0, &error);
}

/* Two processes, one before the session has a sandbox. */
static void go_through_processes(struct lair *p, const char *label)
{
    static const char *const args[] = { "program", "argument", NULL };
    struct hutch_session_options options;
    struct hutch_process_options process;
    struct hutch_error error = { .message = "" };
    uint64_t id = 0, number;

    memset(spawned, 0, sizeof(spawned));
    memset(&last_word, 0, sizeof(last_word));
    hutch_session_options_init(&options);
    options.max_processes = 2;
    options.on_end = on_end;
    if (hutch_session_open(p->engine, &options, &id, &error) < 0) {
        if (!error.message[0])
            fail_msg("%s: a session is refused without a reason", label);
        return;
    }
    hutch_process_options_init(&process);
    process.args = args;
    process.has_input = 1;
    process.on_output = on_said;
    process.on_end = on_process_end;
    for (size_t i = 0; i < ARRAY_SIZE(spawned); i++) {
        process.user = (void *)i;
        error.message[0] = '\0';
        if (hutch_session_spawn(p->engine, id, &process, &number, &error) < 0) {
            if (!error.message[0])
                fail_msg("%s: process %zu is refused without a reason", label, i);
            continue;
        }
        ask_of_process(p, id, number);
        while (spawned[i].ends == 0)
            turn(p);
        if (spawned[i].exit_code != 0 && !spawned[i].why[0])
            fail_msg("%s: process %zu does not say why it failed", label, i);
        if (spawned[i].exit_code == 0 && strcmp(spawned[i].said, "said\n") != 0)
            fail_msg("%s: process %zu is well, and has said '%s'", label, i, spawned[i].said);
    }
    close_session(p, id, label);
    for (size_t i = 0; i < ARRAY_SIZE(spawned); i++)
        if (spawned[i].ends > 1)
            fail_msg("%s: process %zu has %u ends", label, i, spawned[i].ends);
}

static void check_all_processes(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(spawned); i++)
        if (spawned[i].ends != 1 || spawned[i].exit_code != 0)
            fail_msg("nothing fails, and process %zu does: %s", i, spawned[i].why);
}

static void test_failpoints_of_processes(void **state)
{
    static const struct passage passage = { "processes", go_through_processes, check_all_processes, 500 };

    try_each_call(*state, &passage);
}

#define ROUGH_SESSIONS 4
#define ROUGH_PROCESSES 3

static unsigned rough_ends[ROUGH_SESSIONS * ROUGH_PROCESSES], n_rough_ends, n_rough_ok, n_rough_sessions;

static void on_rough_end(void *user, uint64_t session, uint64_t process, const struct hutch_process_end *end)
{
    (void)session;
    (void)process;
    rough_ends[(size_t)user]++;
    n_rough_ends++;
    n_rough_ok += end->exit_code == 0;
    assert_true(end->exit_code == 0 || end->exit_code > 0 || end->signal != 0 || end->why[0]);
}

static void on_rough_session(void *user, uint64_t session, const char *why, const char *directory)
{
    (void)user;
    (void)session;
    (void)directory;
    assert_true(why[0]);
    n_rough_sessions--;
}

static void on_nothing(void *user, uint64_t session, uint64_t process, int stream, const char *data, size_t len)
{
    (void)user;
    (void)session;
    (void)process;
    (void)data;
    assert_true((stream == 1 || stream == 2) && len > 0);
}

/* Whatever the spawner, the processes and init say, and whichever of them ends: each process has one end. */
static void test_anything_of_processes(void **state)
{
    static const char *const args[] = { "program", NULL };
    struct lair *p = *state;
    unsigned n_all = 0, n_ok = 0;

    for (int seed = 1; seed <= 8; seed++) {
        struct hutch_session_options options;
        struct hutch_process_options process;
        uint64_t sessions[ROUGH_SESSIONS], number;
        unsigned n = 0;
        char how[16];
        double until;

        memset(rough_ends, 0, sizeof(rough_ends));
        n_rough_ends = n_rough_ok = n_rough_sessions = 0;
        snprintf(how, sizeof(how), "%d lives", seed);
        open_engine(p, how);
        p->engine->core.setup_ms = p->engine->core.import_ms = p->engine->core.answer_ms = 300;
        hutch_process_options_init(&process);
        process.args = args;
        process.has_input = 1;
        process.on_output = on_nothing;
        process.on_end = on_rough_end;
        for (size_t i = 0; i < ROUGH_SESSIONS; i++) {
            hutch_session_options_init(&options);
            options.max_processes = ROUGH_PROCESSES;
            options.on_end = on_rough_session;
            assert_int_equal(hutch_session_open(p->engine, &options, &sessions[i], NULL), 0);
            n_rough_sessions++;
            for (size_t k = 0; k < ROUGH_PROCESSES; k++, n++) {
                process.user = (void *)(uintptr_t)n;
                process.terminal = k == 2; /* its master never comes: what comes may be anything */
                assert_int_equal(hutch_session_spawn(p->engine, sessions[i], &process, &number, NULL), 0);
                ask_of_process(p, sessions[i], number);
            }
        }
        /* one whose end was not told to the engine runs until its session is closed */
        for (until = hutch_clock_ms() + 1500; n_rough_ends < n && hutch_clock_ms() < until;)
            turn_within(p, 100);
        for (size_t i = 0; i < ROUGH_SESSIONS; i++)
            hutch_session_close(p->engine, sessions[i]);
        while (n_rough_sessions > 0)
            turn(p);
        for (unsigned i = 0; i < n; i++)
            assert_int_equal(rough_ends[i], 1);
        n_all += n;
        n_ok += n_rough_ok;
        close_engine(p);
    }
    print_message("%u of %u processes ended well\n", n_ok, n_all);
    assert_true(n_ok > 0);
}

/* --- its paths --- */

#define MAX_PATHS 64
static struct {
    unsigned replies;
    int ok, code;
    size_t n_entries;
    char message[160];
} paths[MAX_PATHS];
static unsigned n_replies;

static void on_path(void *user, uint64_t session, const struct hutch_path_reply *reply)
{
    const bool was_armed = failpoint.is_armed;
    const size_t i = (size_t)(uintptr_t)user;
    char *json;

    (void)session;
    failpoint.is_armed = false; /* what the caller does is not tried */
    assert_true(reply->ok ? reply->code == 0 && !reply->message[0] : reply->code > 0 && reply->message[0]);
    paths[i].replies++;
    paths[i].ok = reply->ok;
    paths[i].code = reply->code;
    paths[i].n_entries = reply->n_entries;
    snprintf(paths[i].message, sizeof(paths[i].message), "%s", reply->message);
    if (reply->fd >= 0)
        assert_true(fcntl(reply->fd, F_GETFD) >= 0);
    json = hutch_path_reply_to_json(reply);
    assert_non_null(json);
    free(json);
    n_replies++;
    failpoint.is_armed = was_armed;
}

static int order_path(struct lair *p, uint64_t session, enum path_kind kind, const char *path, size_t number,
                      uint64_t timeout_ms, struct hutch_error *error)
{
    struct hutch_path_options options;

    hutch_path_options_init(&options);
    options.on_reply = on_path;
    options.user = (void *)(uintptr_t)number;
    options.timeout_ms = timeout_ms;
    switch (kind) {
    case PATH_LIST: return hutch_session_list(p->engine, session, path, &options, error);
    case PATH_MAKE: return hutch_session_make_directory(p->engine, session, path, &options, error);
    case PATH_RENAME: return hutch_session_rename(p->engine, session, path, "new", &options, error);
    case PATH_REMOVE: return hutch_session_remove(p->engine, session, path, &options, error);
    case PATH_OPEN: return hutch_session_open_path(p->engine, session, path, O_RDONLY, &options, error);
    default: return hutch_session_stat(p->engine, session, path, &options, error);
    }
}

static uint64_t open_for_paths(struct lair *p, struct hutch_error *error)
{
    struct hutch_session_options options;
    uint64_t id = 0;

    memset(paths, 0, sizeof(paths));
    memset(&last_word, 0, sizeof(last_word));
    n_replies = 0;
    hutch_session_options_init(&options);
    options.paths = 1;
    options.on_end = on_end;
    return hutch_session_open(p->engine, &options, &id, error) < 0 ? 0 : id;
}

/* What inside answers is judged: a descriptor that may not be used, a name that leads elsewhere, more than was asked
 * for. */
static void test_forged_answers_about_paths(void **state)
{
    static const struct {
        const char *path;
        enum path_kind kind;
        int code; /* 0: it is well */
    } rows[] = {
        { "good", PATH_STAT, 0 }, { "good", PATH_LIST, 0 }, { "good", PATH_OPEN, 0 }, { "good", PATH_MAKE, 0 },
        { "deny", PATH_STAT, EACCES },
        { "memory", PATH_OPEN, EINVAL }, { "device", PATH_OPEN, EINVAL }, { "proc", PATH_OPEN, EINVAL },
        { "directory", PATH_OPEN, EINVAL }, { "handle", PATH_OPEN, EINVAL }, { "nothing", PATH_OPEN, EPROTO },
        { "silent", PATH_STAT, EPROTO }, { "name", PATH_STAT, EPROTO }, { "up", PATH_LIST, EPROTO },
        { "flood", PATH_STAT, EPROTO }, { "flood", PATH_LIST, 0 }, { "flood", PATH_OPEN, EPROTO },
        { "leave", PATH_STAT, ECANCELED }, { "hang", PATH_STAT, ETIMEDOUT }, { "hang", PATH_OPEN, ETIMEDOUT },
    };
    struct lair *p = *state;
    struct hutch_error error;
    uint64_t id;

    open_engine(p, "lives");
    id = open_for_paths(p, &error);
    assert_true(id > 0);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        assert_int_equal(order_path(p, id, rows[i].kind, rows[i].path, i, 400, &error), 0);
    assert_int_equal(n_replies, 0);
    while (n_replies < ARRAY_SIZE(rows))
        turn(p);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (paths[i].replies != 1 || paths[i].code != rows[i].code)
            fail_msg("'%s' of order %zu: %u replies, code %d: %s", rows[i].path, i, paths[i].replies, paths[i].code,
                     paths[i].message);
    assert_int_equal(order_path(p, id, PATH_STAT, "hang", 0, 0, &error), 0);
    assert_int_equal(hutch_session_close(p->engine, id), 1);
    while (last_word.ends == 0)
        turn(p);
    assert_int_equal(paths[0].replies, 2); /* before the session's end */
    assert_int_equal(paths[0].code, ECANCELED);
    close_engine(p);
}

static void go_through_paths(struct lair *p, const char *label)
{
    static const enum path_kind kinds[] = { PATH_LIST, PATH_STAT, PATH_OPEN, PATH_RENAME };
    struct hutch_error error = { .message = "" };
    uint64_t id = open_for_paths(p, &error);

    if (id == 0) {
        if (!error.message[0])
            fail_msg("%s: a session is refused without a reason", label);
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        error.message[0] = '\0';
        if (order_path(p, id, kinds[i], "good", i, 0, &error) < 0) {
            if (!error.message[0])
                fail_msg("%s: order %zu is refused without a reason", label, i);
            continue;
        }
        while (i % 2 == 1 && paths[i].replies == 0) /* two at a time */
            turn(p);
    }
    close_session(p, id, label);
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        if (paths[i].replies > 1)
            fail_msg("%s: order %zu has %u replies", label, i, paths[i].replies);
}

static void check_all_paths(void)
{
    for (size_t i = 0; i < 4; i++)
        if (paths[i].replies != 1 || !paths[i].ok)
            fail_msg("nothing fails, and order %zu does: %s", i, paths[i].message);
}

static void test_failpoints_of_paths(void **state)
{
    static const struct passage passage = { "paths", go_through_paths, check_all_paths, 500 };

    try_each_call(*state, &passage);
}

/* Whatever comes: each order has one reply. */
static void test_anything_about_paths(void **state)
{
    struct lair *p = *state;
    unsigned n_ok = 0;

    for (int seed = 1; seed <= 8; seed++) {
        struct hutch_error error;
        uint64_t id;
        char how[16];

        snprintf(how, sizeof(how), "%d lives", seed);
        open_engine(p, how);
        p->engine->core.setup_ms = p->engine->core.import_ms = p->engine->core.answer_ms = 300;
        id = open_for_paths(p, &error);
        assert_true(id > 0);
        for (size_t i = 0; i < MAX_PATHS; i++)
            assert_int_equal(order_path(p, id, (enum path_kind)(i % PATH_KINDS), "good", i, 300, &error), 0);
        for (double until = hutch_clock_ms() + 1500; n_replies < MAX_PATHS && hutch_clock_ms() < until;)
            turn_within(p, 100);
        hutch_session_close(p->engine, id);
        while (last_word.ends == 0)
            turn(p);
        for (size_t i = 0; i < MAX_PATHS; i++) {
            assert_int_equal(paths[i].replies, 1);
            n_ok += paths[i].ok != 0;
        }
        close_engine(p);
    }
    print_message("%u of %u orders about paths were done\n", n_ok, 8 * MAX_PATHS);
    assert_true(n_ok > 0);
}

/* Programs as the worker plays them, and the verdict of each. */
static const char batch_tasks[] = "{\"id\":\"a\",\"code\":\"#! out\",\"expected\":\"said\"}\n"
                                  "{\"id\":\"b\",\"code\":\"#! err\",\"expected\":\"said\"}\n"
                                  "{\"id\":\"c\",\"code\":\"#! fail\",\"expected\":\"said\"}\n"
                                  "{\"id\":\"d\",\"code\":\"#! echo\",\"stdin\":\"1\",\"expected\":\"1\"}\n"
                                  "{\"id\":\"e\",\"code\":\"#! out\",\"files\":{\"f/g\":\"h\"},"
                                  "\"expected\":\"said\"}\n";
static const struct {
    const char *id, *verdict;
} batch_items[] = {
    { "a", "pass" }, { "b", "wrong_answer" }, { "c", "runtime_error" }, { "d", "pass" }, { "e", "pass" }
};

/* A batch, or what is left of it, in an engine that is ready. What hutch_batch_schedule() says. */
static int run_batch(struct lair *p, int files_fd, const char *files_path, struct hutch_err *err)
{
    const struct batch_engine engine = { p->engine, hutch_engine_submit, hutch_engine_cancel, hutch_engine_fd,
                                         hutch_engine_dispatch };
    const struct batch_task_options options = { .format = BATCH_GENERIC };
    struct batch_progress progress = { .is_terminal = false };
    struct batch_settings settings = { .jobs = 2, .stop_fd = -1, .progress = &progress, .proc = "/nonexistent" };
    struct batch_output output = BATCH_OUTPUT_INIT;
    struct batch_plan plan = BATCH_PLAN_INIT;
    struct batch_tally tally = { .n_done = 0 };
    char tasks[80], out[80];
    int rc;

    snprintf(tasks, sizeof(tasks), "%s/tasks", p->dir);
    snprintf(out, sizeof(out), "%s/out", p->dir);
    settings.manner.limits.cpu_ms = 1000;
    settings.manner.files_fd = files_fd;
    settings.manner.files_path = files_path;
    rc = hutch_batch_plan_make(tasks, NULL, &options, 7, false, &plan, err);
    if (rc == 0)
        rc = hutch_batch_output_open(out, true, true, &plan, &output, err);
    if (rc == 0)
        rc = hutch_batch_schedule(&plan, &output, &engine, &settings, &tally, err);
    hutch_batch_tally_done(&tally);
    hutch_batch_output_done(&output);
    hutch_batch_plan_done(&plan);
    return rc;
}

/* The file has each of the items once, with its verdict; where it is not whole, at most once, or with a reason why it
 * was not judged. */
static void check_records(struct lair *p, const char *label, bool is_whole)
{
    unsigned n[ARRAY_SIZE(batch_items)] = { 0 };
    auto_free char *text = NULL;
    struct hutch_err err;
    char path[80];
    size_t len;

    snprintf(path, sizeof(path), "%s/out", p->dir);
    if (access(path, F_OK) == 0 && hutch_fd_slurp_path(path, 1 << 20, &text, &len, &err) < 0)
        fail_msg("%s: %s", label, err.msg);
    for (char *line = text, *end; line && (end = strchr(line, '\n')); line = end + 1) {
        bool is_internal, is_known = false;

        *end = '\0';
        is_internal = strstr(line, "\"verdict\": \"internal\"") && !strstr(line, "\"result\": \"internal: \"");
        for (size_t i = 0; i < ARRAY_SIZE(batch_items); i++) {
            char id[16], verdict[48];

            snprintf(id, sizeof(id), "{\"id\": \"%s\"", batch_items[i].id);
            snprintf(verdict, sizeof(verdict), "\"verdict\": \"%s\"", batch_items[i].verdict);
            if (strncmp(line, id, strlen(id)) != 0)
                continue;
            n[i]++;
            is_known = strstr(line, verdict) || (!is_whole && is_internal);
        }
        if (!is_known)
            fail_msg("%s: this was written: %s", label, line);
    }
    for (size_t i = 0; i < ARRAY_SIZE(batch_items); i++)
        if (n[i] > 1 || (is_whole && n[i] == 0))
            fail_msg("%s: the results have program '%s' %u times", label, batch_items[i].id, n[i]);
}

/* As an interruption leaves it. */
static void tear_last_line(struct lair *p)
{
    char path[80];
    struct stat st;

    snprintf(path, sizeof(path), "%s/out", p->dir);
    if (stat(path, &st) == 0 && st.st_size > 9)
        assert_int_equal(truncate(path, st.st_size - 9), 0);
}

/* A batch, and how it goes on after an interruption; at the end, when nothing fails any more, all of it is there. */
static void go_through_batch(struct lair *p, const char *label)
{
    const bool was_armed = failpoint.is_armed;
    struct hutch_err err;
    auto_fd dirfd = -1;

    failpoint.is_armed = false; /* but within hutch_batch_…() */
    dirfd = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    unlinkat(dirfd, "out", 0);
    for (int i = 0; i < 3; i++) {
        const bool is_last = i == 2;
        auto_fd files_fd = -1;
        char files_path[80];
        int rc;

        snprintf(files_path, sizeof(files_path), "%s/files", p->dir);
        assert_int_equal(mkdir(files_path, 0700), 0);
        files_fd = open(files_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        err.msg[0] = '\0';
        /* while something fails, much of what it waits for never comes */
        p->engine->core.setup_ms = p->engine->core.import_ms = is_last ? CORE_SETUP_MS : 200;
        failpoint.is_armed = was_armed && !is_last;
        rc = run_batch(p, files_fd, files_path, &err);
        failpoint.is_armed = false;
        if (rc < 0 && (is_last || !err.msg[0]))
            fail_msg("%s: batch %d fails: '%s'", label, i, err.msg);
        check_records(p, label, is_last);
        if (i == 0)
            tear_last_line(p);
        if (hutch_rmtree(dirfd, "files", &err) < 0) /* hutch itself says what is left there */
            fail_msg("%s: batch %d: %s", label, i, err.msg);
    }
    failpoint.is_armed = was_armed;
}

static bool try_batch(struct lair *p, enum failpoint_kind kind, unsigned first, unsigned n)
{
    const long blocks = failpoint.blocks;
    char label[64];

    snprintf(label, sizeof(label), "%s %u to %u of a batch", failpoint_names[kind], first, first + n - 1);
    open_engine(p, "");
    await_full_pool(p);
    failpoint_arm(kind, first, n);
    go_through_batch(p, label);
    return end_of_failpoint(p, label, blocks);
}

static void test_failpoints_of_a_batch(void **state)
{
    static const unsigned lengths[] = { 1, 5, 40 };
    struct lair *p = *state;
    char tasks[80];

    snprintf(tasks, sizeof(tasks), "%s/tasks", p->dir);
    write_file(tasks, batch_tasks);
    open_engine(p, "");
    await_full_pool(p);
    go_through_batch(p, "none"); /* what libc keeps for itself it has now */
    hutch_engine_free(p->engine);
    p->engine = NULL;
    for (int kind = 0; kind < FAILPOINT_FORK; kind++) {
        unsigned first = 1;

        if (kind == FAILPOINT_ALLOCATION && !FAILPOINT_HAS_MALLOC)
            continue;
        for (size_t l = 0; l < ARRAY_SIZE(lengths); l++)
            for (first = 1; try_batch(p, (enum failpoint_kind)kind, first, lengths[l]);)
                first += (lengths[l] + 1) / 2;
        print_message("%s: about %u calls of a batch\n", failpoint_names[kind], first - 1);
    }
}

static void set_open_files(rlim_t soft)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = soft;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void check_refusal(const struct hutch_error *error, unsigned limit)
{
    char want[64];

    snprintf(want, sizeof(want), "more are needed, and the limit is %u: raise RLIMIT_NOFILE", limit);
    if (error->code != EMFILE || !strstr(error->message, want))
        fail_msg("a limit of %u: error %d, '%s'", limit, error->code, error->message);
}

/* Under whatever limit: an engine does not open and says what it needs, or it runs all that it takes. */
static void test_few_descriptors(void **state)
{
    static const struct hutch_zygote one = { .name = "bare", .min = 1, .max = 8 };
    const unsigned max_limit = 400, n_enough = 6;
    struct lair *p = *state;
    unsigned opened = 0, n_refused = 0;
    struct rlimit usual;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &usual), 0);
    p->options.zygotes = &one;
    p->options.n_zygotes = 1;
    p->options.max_running = 2;
    setenv("HUTCH_FAKE", "", 1);
    for (unsigned limit = 16; opened < n_enough; limit++) {
        struct hutch_request request = request_for("#! out file");
        struct hutch_error error = { .message = "" };
        int rc;

        memset(runs, 0, sizeof(runs));
        n_results = 0;
        assert_true(limit < max_limit);
        set_open_files(limit);
        rc = hutch_engine_open(&p->options, &p->engine, &error);
        if (rc < 0)
            check_refusal(&error, limit);
        for (int i = 0; rc == 0 && i < 12; i++) { /* more than there is room for in the pool */
            request.data_dir = i % 4 == 3 ? "/usr/include" : NULL;
            request.keep_data = i % 4 == 2;
            submit(p, &request);
        }
        if (rc == 0)
            await(p, 12);
        set_open_files(usual.rlim_cur);
        for (uint64_t id = 1; rc == 0 && id <= 12; id++)
            if (runs[id].results != 1 || runs[id].verdict != HUTCH_OK)
                fail_msg("a limit of %u: run %u: %u results, %s", limit, (unsigned)id, runs[id].results,
                         runs[id].message);
        opened += rc == 0;
        n_refused += rc < 0;
        if (rc == 0)
            close_engine(p);
        else
            p->engine = NULL;
        assert_int_equal(count_fds(), p->n_fds);
    }
    print_message("%u limits are too low for this engine\n", n_refused);
    assert_true(n_refused > 0);
}

/* A session is refused while there are still enough for all that was promised before. */
static void test_too_many_sessions(void **state)
{
    const unsigned limit = 400;
    struct hutch_session_options session;
    struct hutch_request request = request_for("#! out");
    struct hutch_error error = { .message = "" };
    struct lair *p = *state;
    struct rlimit usual;
    uint64_t id = 0;
    unsigned n = 0;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &usual), 0);
    open_engine(p, "");
    for (int i = 0; i < 24; i++) /* the pools grow */
        submit(p, &request);
    await(p, 24);
    set_open_files(limit);
    hutch_session_options_init(&session);
    while (n < limit && hutch_session_open(p->engine, &session, &id, &error) == 0)
        n++;
    check_refusal(&error, limit);
    assert_in_range(n, 5, limit / 10);
    for (int i = 0; i < 24; i++)
        submit(p, &request);
    await(p, 48);
    for (size_t i = 0; i < MAX_RUNS; i++)
        if (runs[i].results > 0)
            assert_int_equal(runs[i].verdict, HUTCH_OK);
    set_open_files(limit / 4);
    assert_int_equal(hutch_session_checkpoint(p->engine, id, NULL, NULL, &error), -1);
    check_refusal(&error, limit / 4);
    assert_int_equal(hutch_session_fork(p->engine, id, NULL, NULL, &error), -1);
    check_refusal(&error, limit / 4);
    request.policy = "default"; /* by a template of its own */
    assert_int_equal(hutch_engine_submit(p->engine, &request, NULL, &error), -1);
    check_refusal(&error, limit / 4);
    set_open_files(usual.rlim_cur);
    assert_int_equal(hutch_session_open(p->engine, &session, NULL, &error), 0); /* a limit may be raised at any time */
    close_engine(p);
}

/* What a program does that clears away old files, or a hand: all of it, or the empty directories. */
static void remove_runs(const struct lair *p, bool only_prepared)
{
    auto_fd home = open(p->home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct hutch_err err = { .msg = "" };
    struct dirent *entry;
    unsigned n = 0;
    DIR *dir;

    if (!only_prepared) {
        assert_int_equal(hutch_rmtree(home, "runs", &err), 0);
        return;
    }
    dir = opendir(p->engine->core.data_root);
    assert_non_null(dir);
    while ((entry = readdir(dir)))
        n += entry->d_name[0] != '.' && unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR) == 0;
    closedir(dir);
    assert_true(n > 0);
}

static void remove_while_it_runs(void *user, uint64_t id, int stream, const char *data, size_t len)
{
    on_output(user, id, stream, data, len);
    remove_runs(user, false);
}

static void test_the_directory_is_removed(void **state)
{
    static const char why[] = "was removed while the engine used it: open another engine";
    struct lair *p = *state;
    struct hutch_request request = request_for("#! out file");
    struct hutch_error error = { .message = "" };
    int rc;

    request.keep_data = 1;
    open_engine(p, "");
    await_full_pool(p);
    remove_runs(p, true);
    submit(p, &request);
    await(p, 1);
    assert_int_equal(runs[1].verdict, HUTCH_OK);
    assert_true(runs[1].directory[0] != '\0');
    await_full_pool(p);
    request.on_output = remove_while_it_runs;
    request.user = p;
    submit(p, &request);
    await(p, 2);
    assert_int_equal(runs[2].verdict, HUTCH_KILLED);
    assert_non_null(strstr(runs[2].message, "the files of the run are lost: another program has removed '"));
    rc = hutch_engine_dispatch(p->engine, &error);
    assert_int_equal(rc, -1);
    assert_non_null(strstr(error.message, why));
    close_engine_without_runs(p);

    /* before a run comes, whose sandbox is prepared */
    n_results = 0;
    memset(runs, 0, sizeof(runs));
    request.on_output = NULL;
    open_engine(p, "");
    await_full_pool(p);
    remove_runs(p, false);
    submit(p, &request);
    submit(p, &request);
    await(p, 2);
    for (uint64_t id = 1; id <= 2; id++) {
        assert_int_equal(runs[id].results, 1);
        assert_int_equal(runs[id].verdict, HUTCH_SETUP_FAILED);
        assert_non_null(strstr(runs[id].message, why));
    }
    assert_int_equal(hutch_engine_dispatch(p->engine, &error), -1);
    close_engine_without_runs(p);
}

/* For lack of descriptors nothing is lost; where the files cannot be kept, the session's last word says so. */
static void test_the_files_of_a_session(void **state)
{
    struct lair *p = *state;
    struct session_data data = { .name = "some.files" };
    struct core *core;
    char why[256] = "", *directory;

    open_engine(p, "");
    core = &p->engine->core;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mkdirat(core->data_root_fd, data.name, 0755), 0);
        data.dirfd = openat(core->data_root_fd, data.name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(openat(data.dirfd, "made", O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
        failpoint_arm(i == 0 ? FAILPOINT_DESCRIPTOR : FAILPOINT_DISK, 1, 1000);
        directory = hutch_session_data_end(&data, core, true, why, sizeof(why));
        failpoint_disarm();
        hutch_fd_closep(&data.dirfd);
        assert_int_equal(directory != NULL, i == 0);
        assert_int_equal(why[0] != '\0', i == 1);
        free(directory);
    }
    assert_non_null(strstr(why, "; its files are lost: keep the files of a run"));
    hutch_file_list_done(&data.seen);
}

/* As under valgrind 3.19. The filter stays, so this is the last test. */
static void test_without_pidfd_open(void **state)
{
    struct lair *p = *state;
    struct hutch_request request = request_for("#! out");
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);

    assert_non_null(filter);
    assert_int_equal(seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(pidfd_open), 0), 0);
    assert_int_equal(seccomp_load(filter), 0);
    seccomp_release(filter);
    open_engine(p, "");
    submit(p, &request);
    await(p, 1);
    assert_int_equal(runs[1].verdict, HUTCH_OK);
    close_engine(p); /* looks for processes that were not waited for */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_runs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_ends, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_zygote_dies, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_job_that_nobody_reads, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_zygote_that_cannot_be, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_recycling, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_callbacks_may_submit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_helper_that_hangs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_run_that_cannot_start, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_free_at_any_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_anything_from_the_helpers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_failpoints, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_failpoints_of_a_session, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_failpoints_of_processes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_anything_of_processes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_forged_answers_about_paths, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_failpoints_of_paths, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_anything_about_paths, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_failpoints_of_a_batch, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_few_descriptors, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_too_many_sessions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_directory_is_removed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_files_of_a_session, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_without_pidfd_open, set_up, tear_down),
    };

    if (argc > 0 && strcmp(argv[0], "hutch-launcher") == 0)
        return play();
    if (argc == 2) /* the tests whose names match */
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}

/* players.h - the helper processes of an engine, played by one program: opener, launcher, zygotes, inits and workers.
 * No sandbox is made, so it runs anywhere. HUTCH_FAKE says how it plays: "" well; "12" as roughly as a generator with
 * that seed will have it; "fork:5" the zygote dies at the fifth fork; "deaf:3" the first three workers die before
 * they read their job; "refuse" and "speechless" no zygote but the root gets ready, and says why, or does not;
 * "mute:1:3" no role of that number answers from its third order on, until it was replaced; "lives": the process of a
 * sandbox is one that can be killed. The code of a run or cell tells its worker what to do. */
#ifndef HUTCH_TEST_LIB_PLAYERS_H
#define HUTCH_TEST_LIB_PLAYERS_H

#include "runtime/launcher/spec_wire.h"
#include "runtime/launcher/wire.h"
#include "sandbox/err.h"
#include "sandbox/fd.h"
#include "sandbox/fdpass.h"
#include "sandbox/path_wire.h"
#include "sandbox/process_wire.h"
#include "sandbox/spec.h"
#include "sandbox/zygote_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

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

static inline struct player *add_player(int fd, enum role role, uint32_t id)
{
    for (size_t i = 0; i < MAX_PLAYERS; i++)
        if (players[i].fd < 0) {
            players[i] = (struct player){ .fd = fd, .role = role, .id = id, .out_fd = -1, .err_fd = -1, .in_fd = -1,
                                          .data_fd = -1 };
            return &players[i];
        }
    _exit(70);
}

static inline void drop_player(struct player *p)
{
    hutch_fd_closep(&p->fd);
    hutch_fd_closep(&p->out_fd);
    hutch_fd_closep(&p->err_fd);
    hutch_fd_closep(&p->in_fd);
    hutch_fd_closep(&p->data_fd);
}

static inline struct player *find_player(enum role role, uint32_t id)
{
    for (size_t i = 0; i < MAX_PLAYERS; i++)
        if (players[i].fd >= 0 && players[i].role == role && players[i].id == id)
            return &players[i];
    return NULL;
}

static inline bool perhaps(int one_in)
{
    return is_rough && rand() % one_in == 0;
}

/* What is said may be garbled, cut, said twice, or followed by a thing that nobody asked for. */
static inline void say(int fd, const void *msg, size_t len, const int *fds, size_t n_fds)
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

static inline void tell_engine(const struct player *to, uint32_t what, uint32_t id, const int *fds, size_t n_fds)
{
    struct launcher_reply reply = { .what = what, .id = id, .controllers = 0 };

    say(to->fd, &reply, sizeof(reply), fds, n_fds);
}

static inline void tell(int fd, struct init_msg msg)
{
    say(fd, &msg, sizeof(msg), NULL, 0);
}

static inline void play_zygote(int fd, uint32_t id)
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

static inline void read_spec(int memfd)
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
static inline int make_life(uint32_t id)
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

static inline void drop_sandbox(uint32_t id)
{
    for (size_t i = 0; i < MAX_PLAYERS; i++)
        if (players[i].fd >= 0 && players[i].id == id && players[i].role >= CONTROL && players[i].role != LIFE)
            drop_player(&players[i]);
}

static inline void play_life(struct player *p)
{
    waitpid(p->pid, NULL, 0);
    drop_sandbox(p->id);
    drop_player(p);
}

static inline void play_launcher(struct player *p)
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

static inline void play_fork(struct player *p)
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

static inline void follow(struct player *init, pid_t pid)
{
    for (size_t i = 0; i < MAX_PLAYERS; i++)
        if (players[i].fd >= 0 && players[i].role == CELLS && players[i].id == init->id && players[i].pid != pid)
            drop_player(&players[i]);
    tell(init->fd, (struct init_msg){ .kind = INIT_FOLLOWED, .followed = pid });
}

static inline void play_init(struct player *p)
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

static inline void make_file(const struct player *init)
{
    char path[PATH_MAX + 80];
    int fd;

    snprintf(path, sizeof(path), "%s/%s/made", data_root, init->data);
    fd = init->data_fd < 0 ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644)
                           : openat(init->data_fd, "made", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd >= 0)
        close(fd);
}

static inline void say_frame(const struct player *p, const char *text)
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
static inline void say_numbered(struct player *p, const char *members)
{
    char text[256];

    snprintf(text, sizeof(text), "{\"n\":%u,%s}", ++p->n_said, members);
    say_frame(p, text);
}

static inline void say_pid(struct player *p)
{
    char text[64];

    p->pid = ++last_pid;
    snprintf(text, sizeof(text), "{\"is\":\"here\",\"pid\":%d}", (int)p->pid);
    say_frame(p, text);
}

/* Another one that writes to where @p does. */
static inline struct player *add_copy(const struct player *p, enum role role, int fd)
{
    struct player *copy = add_player(fd, role, p->id);

    copy->out_fd = dup(p->out_fd);
    copy->err_fd = dup(p->err_fd);
    return copy;
}

static inline void play_cell(struct player *p, const char *order)
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

static inline void play_cells(struct player *p)
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

static inline void play_parked(struct player *p)
{
    char order[64];
    int fd = -1;
    size_t n_fds = 0;

    if (hutch_fdpass_receive(p->fd, order, sizeof(order), &fd, 1, &n_fds, MSG_DONTWAIT) <= 0 || fd < 0)
        drop_player(p);
    else
        say_pid(add_copy(p, CELLS, fd));
}

static inline void say_here(struct player *p)
{
    const struct process_said here = { .what = PROCESS_HERE, .pid = p->pid = ++last_pid };

    say(p->fd, &here, sizeof(here), NULL, 0);
}

/* A record of @path behind the @len bytes of @packet. How long it is now. */
static inline size_t add_record(char *packet, size_t len, const char *path)
{
    const struct path_record record = { .mode = S_IFREG | 0644, .path_len = (uint16_t)(strlen(path) + 1),
                                        .target_len = 1 };

    memcpy(packet + len, &record, sizeof(record));
    strcpy(packet + len + sizeof(record), path);
    len += sizeof(record) + record.path_len;
    packet[len] = '\0';
    return len + 1;
}

static inline int open_for_answer(const char *path)
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
static inline void play_path(int control, const char *order)
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

static inline void play_spawner(struct player *p)
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
static inline void play_process(struct player *p)
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
static inline void play_worker(struct player *p)
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

static inline void play_opener(struct player *p)
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

static inline void send_launcher(struct player *opener)
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
static inline bool is_really_ready(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };

    return poll(&p, 1, 0) == 1;
}

static inline void play_part(struct player *p)
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
static inline void raise_open_files(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        _exit(80);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static inline _Noreturn void play(void)
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

#endif

/* What the helper processes tell the engine: opener, disk worker and launcher, as their sockets carry it. */
#include "runtime/engine/helper.h"

#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>

#include "sandbox/clock.h"
#include "sandbox/fdpass.h"

#include "tests/fuzz/fuzz.h"

static int their_end = -1; /* of the opener's socket, which a helper process would have */

/* In place of libc's: the helper is this program, and a child that ends at once stands for its process. */
int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attr,
                char *const argv[], char *const envp[])
{
    (void)path, (void)actions, (void)attr, (void)argv, (void)envp;
    *pid = vfork();
    if (*pid == 0)
        _exit(0);
    return 0;
}

/* The socket is the highest descriptor that the engine has made for it. */
int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *actions, int fd, int new_fd)
{
    (void)actions, (void)new_fd;
    their_end = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return 0;
}

static void on_nothing(void *owner)
{
    (void)owner;
}

static void on_launcher_reply(void *owner, const struct launcher_reply *reply, const char *text, int *fds, size_t n_fds)
{
    unsigned sum = 0;

    (void)owner, (void)fds, (void)n_fds;
    for (uint32_t i = 0; i < reply->text_len; i++)
        sum += (unsigned char)text[i];
    fuzz_check(sum <= 255u * reply->text_len);
}

static void on_opened(void *owner, uint32_t id, int fd, int base_fd, const struct hutch_err *why)
{
    (void)owner, (void)why;
    fuzz_check(id != 0);
    hutch_fd_closep(&fd);
    hutch_fd_closep(&base_fd);
}

static void on_files(void *owner, const struct disk_reply *reply, const int *fds, size_t n_fds)
{
    (void)owner;
    fuzz_check(n_fds == 0 || fds);
    if (reply)
        fuzz_check(reply->id == reply->id);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct helper_events events = { .on_launcher = on_nothing,
                                                 .on_lost_launcher = on_nothing,
                                                 .on_launcher_reply = on_launcher_reply,
                                                 .on_opened = on_opened,
                                                 .on_files = on_files,
                                                 .on_lost = on_nothing };
    static struct core core;
    int ends[3] = { -1, -1, -1 }; /* that are spoken into: opener, disk worker, launcher */
    struct hutch_err err = { .msg = "" };
    struct helper helper;

    core = (struct core)CORE_INIT;
    core.has_worked = true;
    fuzz_check(hutch_loop_open(&core.loop, &err) == 0);
    hutch_helper_init(&helper, &core, &events, NULL);
    helper.launcher_path = strdup("hutch-launcher");
    helper.cgroup = strdup("");
    fuzz_check(hutch_helper_start(&helper, &err) == 0);
    ends[0] = their_end;
    their_end = -1;
    while (size > 0) {
        unsigned what = fuzz_byte(&data, &size);
        int *end = &ends[what % 3];
        struct opener_reply news = { .what = what & 4 ? OPENER_HELLO : OPENER_LAUNCHER };
        struct opener_reply opened = { .what = OPENER_OPENED };
        struct launcher_reply built = { .what = LAUNCHER_BUILT };
        struct disk_reply files = { .id = 1 };
        char packet[4096];
        size_t len, total;
        char *piece;
        int pair[2];

        if (what & 8) { /* a good one, with a socket */
            fuzz_check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
            if (ends[0] >= 0)
                hutch_fdpass_send(ends[0], &news, sizeof(news), &pair[0], 1, MSG_DONTWAIT | MSG_NOSIGNAL);
            hutch_fd_closep(&pair[0]);
            hutch_fd_closep(&ends[what & 4 ? 1 : 2]);
            ends[what & 4 ? 1 : 2] = pair[1];
        } else { /* one of the right size, the beginning as the input has it; or of any size */
            piece = fuzz_piece(&data, &size, &len);
            total = what % 3 == 0 ? sizeof(opened) : what % 3 == 1 ? sizeof(files) : sizeof(built);
            memset(packet, 0, sizeof(packet));
            memcpy(packet, what % 3 == 0 ? (void *)&opened : what % 3 == 1 ? (void *)&files : (void *)&built, total);
            len = len < sizeof(packet) ? len : sizeof(packet);
            memcpy(packet, piece, len);
            free(piece);
            if (what & 16)
                total = len;
            if (*end >= 0)
                hutch_fdpass_send(*end, packet, total, ends, what & 32 && ends[0] >= 0, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (what & 64)
                hutch_fd_closep(end);
        }
        hutch_loop_begin_turn(&core.loop);
        hutch_loop_run_due(&core.loop);
        hutch_loop_end_turn(&core.loop, false);
        if (their_end >= 0) { /* it was started again */
            hutch_fd_closep(&ends[0]);
            ends[0] = their_end;
            their_end = -1;
        }
    }
    for (int i = 0; i < 3; i++)
        hutch_fd_closep(&ends[i]);
    hutch_helper_done(&helper);
    hutch_loop_done(&core.loop);
    return 0;
}

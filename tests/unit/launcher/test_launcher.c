/* The engine's helper processes, spoken to as an engine does: a sandbox is built, a zygote forks a worker into it, init
 * tells its end. */
#include "sandbox/cgroup.h"
#include "sandbox/fdpass.h"
#include "rootfs/guest.h"
#include "runtime/launcher/spec_wire.h"
#include "runtime/launcher/wire.h"
#include "sandbox/zygote_wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tests/unit/box.h"
#include "tests/unit/place.h"

#define PATIENCE_MS 30000

/* A zygote in a few lines: what it is given as a job it executes. */
static const char zygote_py[] =
    "import ctypes, os, socket\n"
    "lib = ctypes.PyDLL('" GUEST_ZYGOTE_DIR "/helper.so')\n"
    "buf = ctypes.create_string_buffer(65536)\n"
    "lib.hutch_zygote_ready(b'')\n"
    "while True:\n"
    "    kind = lib.hutch_zygote_serve(buf, 65536)\n"
    "    if kind == 0: os._exit(0)\n"
    "    if kind == 2:\n"
    "        lib.hutch_zygote_ready(buf.value)\n"
    "        continue\n"
    "    lib.hutch_worker_ready()\n"
    "    exec(os.read(3, 65536))\n"
    "    os._exit(0)\n";

struct rig {
    pid_t opener;
    int sock;     /* of the opener */
    int launcher; /* its socket */
    int launcher_pidfd;
    int zygote;   /* its socket */
    int disk;     /* its socket */
    char dir[96]; /* the data directory, in the place of all tests */
    struct sandbox_spec spec;
};

static void await(int fd, const char *what)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };

    if (poll(&p, 1, PATIENCE_MS) != 1)
        fail_msg("nothing came: %s", what);
}

static void hear(int sock, void *buf, size_t size, int *fds, size_t max, size_t *n_fds, const char *what)
{
    ssize_t n;

    await(sock, what);
    n = hutch_fdpass_receive(sock, buf, size, fds, max, n_fds, 0);
    if (n <= 0)
        fail_msg("%s: %zd, %s", what, n, strerror(errno));
}

static void hear_opener(struct rig *r, struct opener_reply *reply, int *fds, size_t *n_fds)
{
    hear(r->sock, reply, sizeof(*reply), fds, 3, n_fds, "the opener");
    if (reply->what == OPENER_FAILED)
        fail_msg("opener: %s", reply->err.msg);
}

static void hear_ready(int sock, struct zygote_reply *reply)
{
    size_t n_fds;

    do
        hear(sock, reply, sizeof(*reply), NULL, 0, &n_fds, "the zygote");
    while (reply->what == ZYGOTE_BORN);
    assert_int_equal(reply->what, ZYGOTE_READY);
}

static void take_launcher(struct rig *r)
{
    struct opener_reply reply;
    size_t n_fds;
    int fds[3];

    hear_opener(r, &reply, fds, &n_fds);
    assert_int_equal(reply.what, OPENER_LAUNCHER);
    assert_int_equal(n_fds, 3);
    r->launcher = fds[0];
    r->launcher_pidfd = fds[1];
    close(fds[2]);
}

static void send_spec(struct rig *r, const struct sandbox_spec *spec, uint32_t id, bool is_mapped_away)
{
    struct launcher_request request = { .what = LAUNCHER_SPEC, .spec_id = id };
    struct hutch_err err;
    int fds[8], n = 1;

    assert_int_equal(hutch_spec_encode(spec, &fds[0], &err), 0);
    for (size_t i = 0; is_mapped_away && i < spec->n_mounts; i++) {
        struct opener_request open_it = { .what = OPENER_OPEN, .id = 7, .flags = spec->mounts[i].flags };
        struct opener_reply reply;
        size_t n_fds;

        if (spec->mounts[i].kind != MOUNT_BIND)
            continue;
        snprintf(open_it.path, sizeof(open_it.path), "%s", spec->mounts[i].source);
        assert_int_equal(send(r->sock, &open_it, sizeof(open_it), 0), sizeof(open_it));
        hear_opener(r, &reply, &fds[n++], &n_fds);
        assert_int_equal(reply.what, OPENER_OPENED);
    }
    assert_true(hutch_fdpass_send(r->launcher, &request, sizeof(request), fds, (size_t)n, 0) > 0);
    for (int i = 0; i < n; i++)
        close(fds[i]);
}

static char *slurp(const char *path, size_t *len)
{
    struct hutch_err err;
    char *data;

    if (hutch_fd_slurp_path(path, 16 << 20, &data, len, &err) < 0)
        fail_msg("%s", err.msg);
    return data;
}

/* The file that `make` puts beside the tests' own directory, or where the tests were installed. */
static const char *built(const char *variable, const char *beside)
{
    static char path[4][4096];
    static int turn;
    char self[2048];
    ssize_t n;

    if (getenv(variable))
        return getenv(variable);
    turn = (turn + 1) % 4;
    n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    assert_true(n > 0);
    self[n] = '\0';
    *strrchr(self, '/') = '\0';
    snprintf(path[turn], sizeof(path[0]), "%s/../%s", self, beside);
    return path[turn];
}

/* In the place that is @state, which becomes the rig. @musl: the zygote's program, or NULL for Python. */
static int start_rig(void **state, const char *musl)
{
    const struct place *place = *state;
    struct rig *r = calloc(1, sizeof(*r));
    const char *launcher = built("HUTCH_LAUNCHER", "hutch-launcher");
    char *const argv[] = { (char *)launcher, (char *)"", (char *)"not asked for", NULL };
    char *const envp[] = { NULL };
    struct opener_reply reply;
    posix_spawn_file_actions_t actions;
    int pair[2], order[2], disk[3];
    struct sandbox_spec zygote;
    struct launcher_request request = { .what = LAUNCHER_ZYGOTE, .id = 1, .spec_id = 1 };
    struct launcher_reply answer;
    struct zygote_reply hello;
    const char *python[] = { "python3", GUEST_ZYGOTE_DIR "/main.py" };
    const char *program[] = { GUEST_ZYGOTE_DIR "/main", GUEST_ZYGOTE_DIR "/helper.so" };
    struct hutch_err err;
    size_t n_fds, len;
    struct sandbox_mount *run;
    char *so;
    int pidfd;

    assert_non_null(r);
    snprintf(r->dir, sizeof(r->dir), "%s/rig.XXXXXX", place->path);
    assert_non_null(mkdtemp(r->dir));
    chmod(r->dir, 0755);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    r->sock = pair[0];
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pair[1], WARM_SOCKET_FD);
    assert_int_equal(posix_spawn(&r->opener, launcher, &actions, NULL, argv, envp), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(pair[1]);
    hear_opener(r, &reply, disk, &n_fds);
    assert_int_equal(reply.what, OPENER_HELLO);
    assert_int_equal(n_fds, 2);
    r->disk = disk[0];
    close(disk[1]);
    assert_int_equal(reply.is_mapped_away, geteuid() == 0);
    take_launcher(r);

    box_spec(&r->spec, NULL);
    assert_non_null(hutch_spec_add_mount(&r->spec, MOUNT_TMPFS, NULL, "/mnt/data", MOUNT_RDONLY, &err));
    assert_non_null(hutch_spec_add_mount(&r->spec, MOUNT_BIND, r->dir, "/mnt/data", MOUNT_DATA | MOUNT_IDMAP, &err));
    send_spec(r, &r->spec, 2, reply.is_mapped_away);

    box_spec(&zygote, NULL);
    run = hutch_spec_add_mount(&zygote, MOUNT_TMPFS, NULL, "/run", MOUNT_RDONLY, &err);
    assert_non_null(run);
    run->size_bytes = 16 << 20;
    so = slurp(built("HUTCH_HELPER", "rootfs/helper.so"), &len);
    assert_int_equal(hutch_spec_add_file(&zygote, GUEST_ZYGOTE_DIR "/helper.so", so, len, 0555, &err), 0);
    assert_int_equal(
        hutch_spec_add_file(&zygote, GUEST_ZYGOTE_DIR "/main.py", zygote_py, strlen(zygote_py), 0444, &err), 0);
    free(so);
    if (musl) {
        so = slurp(musl, &len);
        assert_int_equal(hutch_spec_add_file(&zygote, program[0], so, len, 0555, &err), 0);
        free(so);
    }
    assert_int_equal(hutch_spec_set_list(&zygote.argv, musl ? program : python, 2, &err), 0);
    send_spec(r, &zygote, 1, reply.is_mapped_away);
    hutch_spec_done(&zygote);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, order), 0);
    assert_true(hutch_fdpass_send(r->launcher, &request, sizeof(request), &order[1], 1, 0) > 0);
    close(order[1]);
    r->zygote = order[0];
    hear(r->launcher, &answer, sizeof(answer), &pidfd, 1, &n_fds, "the launcher, about a zygote");
    if (answer.what != LAUNCHER_STARTED)
        fail_msg("launcher: %s", answer.err.msg);
    close(pidfd);
    hear_ready(r->zygote, &hello);
    *state = r;
    return 0;
}

static int setup(void **state)
{
    return start_rig(state, NULL);
}

static int teardown(void **state)
{
    struct rig *r = *state;
    int status;

    close(r->sock);
    close(r->launcher);
    close(r->launcher_pidfd);
    close(r->zygote);
    close(r->disk);
    assert_int_equal(waitpid(r->opener, &status, 0), r->opener);
    assert_int_equal(status, 0);
    hutch_spec_done(&r->spec);
    assert_int_equal(rmdir(r->dir), 0);
    free(r);
    return 0;
}

struct warm_box {
    struct sandbox sb;
    int job, out, err_out;
    pid_t holder;
};

static void build(struct rig *r, struct warm_box *w, const char *name, const char *data_name)
{
    struct launcher_request request = { .what = LAUNCHER_BUILD, .id = 11, .spec_id = 2 };
    struct { struct launcher_reply reply; char program[65536]; } answer;
    struct zygote_request order = { .what = ZYGOTE_WORKER, .id = 12 };
    struct zygote_reply forked;
    struct worker_hello hello;
    struct init_msg msg;
    struct hutch_err err;
    int fds[3], in[2], out[2], err_out[2], job[2], ruleset, give[7], n = 0;
    size_t n_fds;

    snprintf(request.name, sizeof(request.name), "%s", name);
    snprintf(request.data_name, sizeof(request.data_name), "%s", data_name);
    assert_int_equal(send(r->launcher, &request, sizeof(request), 0), sizeof(request));
    hear(r->launcher, &answer, sizeof(answer), fds, 3, &n_fds, "the launcher, about a sandbox");
    if (answer.reply.what != LAUNCHER_BUILT)
        fail_msg("launcher: %s", answer.reply.err.msg);
    assert_int_equal(answer.reply.id, 11);
    assert_int_equal(n_fds, answer.reply.has_cgroup ? 3 : 2);
    w->sb = (struct sandbox)SANDBOX_INIT;
    w->sb.control_fd = fds[0];
    w->sb.pidfd = fds[1];
    if (n_fds == 3)
        w->sb.cgroup.dirfd = fds[2];
    await(fds[0], "init");
    assert_int_equal(hutch_sandbox_receive_fd(&w->sb, &msg, &ruleset, &err), 1);
    if (msg.kind != INIT_READY)
        fail_msg("init: %s", msg.err.msg);
    assert_int_equal(ruleset >= 0, answer.reply.plan.has_landlock);

    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err_out, O_CLOEXEC), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, job), 0);
    order.plan = answer.reply.plan;
    order.text_len = answer.reply.text_len;
    give[n++] = w->sb.pidfd;
    give[n++] = job[1];
    give[n++] = in[0];
    give[n++] = out[1];
    give[n++] = err_out[1];
    if (order.plan.has_landlock)
        give[n++] = ruleset;
    if (order.plan.has_cgroup)
        give[n++] = w->sb.cgroup.dirfd;
    assert_true(
        hutch_fdpass_send2(r->zygote, &order, sizeof(order), answer.program, order.text_len, give, (size_t)n, 0) > 0);
    close(in[0]);
    close(in[1]);
    close(out[1]);
    close(err_out[1]);
    close(job[1]);
    hutch_fd_closep(&ruleset);
    hear(r->zygote, &forked, sizeof(forked), NULL, 0, &n_fds, "the zygote, about a worker");
    if (forked.what != ZYGOTE_FORKED)
        fail_msg("zygote: %s", forked.err.msg);
    assert_int_equal(hutch_sandbox_order(&w->sb, INIT_ADOPT, forked.pid), 0);
    await(w->sb.control_fd, "init, about the worker");
    assert_int_equal(hutch_sandbox_receive(&w->sb, &msg, &err), 1);
    if (msg.kind != INIT_ADOPTED)
        fail_msg("init: %d %s", (int)msg.kind, msg.err.msg);
    hear(job[0], &hello, sizeof(hello), NULL, 0, &n_fds, "the worker");
    if (hello.what != WORKER_READY)
        fail_msg("worker: %s", hello.err.msg);
    assert_true(hello.holder_pid != 1); /* 0: it goes without, on a machine that was too busy */
    w->holder = hello.holder_pid;
    w->job = job[0];
    w->out = out[0];
    w->err_out = err_out[0];
}

#define NAME "hutch-0123456789abcdef"

/* Has the launcher mount @fd as the data directory. */
static void attach(struct rig *r, int fd)
{
    struct launcher_request request = { .what = LAUNCHER_ATTACH, .id = 14, .spec_id = 2 };
    struct launcher_reply attached;
    size_t n_fds;

    snprintf(request.name, sizeof(request.name), "%s", NAME);
    assert_true(hutch_fdpass_send(r->launcher, &request, sizeof(request), &fd, 1, 0) > 0);
    hear(r->launcher, &attached, sizeof(attached), NULL, 0, &n_fds, "the launcher, about the data");
    if (attached.what != LAUNCHER_ATTACHED)
        fail_msg("launcher: %s", attached.err.msg);
    assert_int_equal(attached.id, 14);
}

static char *run_code(struct rig *r, struct warm_box *w, const char *code, int want_status)
{
    static char text[65536];
    struct launcher_request request = { .what = LAUNCHER_DESTROY, .id = 13 };
    struct launcher_reply gone;
    struct init_msg msg = { .kind = INIT_SAMPLE };
    struct hutch_err err;
    size_t n_fds;
    ssize_t n;

    assert_int_equal(hutch_sandbox_order(&w->sb, INIT_START, w->holder), 0);
    assert_int_equal(send(w->job, code, strlen(code), 0), strlen(code));
    do {
        await(w->sb.control_fd, code);
        assert_int_equal(hutch_sandbox_receive(&w->sb, &msg, &err), 1);
    } while (msg.kind == INIT_SAMPLE);
    if (msg.kind != INIT_ENDED)
        fail_msg("init: %d %s", (int)msg.kind, msg.err.msg);
    n = read(w->out, text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    if (msg.ended.status != want_status) {
        char why[4096];

        n = read(w->err_out, why, sizeof(why) - 1);
        why[n > 0 ? n : 0] = '\0';
        fail_msg("status %#x; it said: %s%s", (unsigned)msg.ended.status, text, why);
    }
    close(w->sb.control_fd);
    close(w->sb.pidfd);
    hutch_fd_closep(&w->sb.cgroup.dirfd);
    close(w->job);
    close(w->out);
    close(w->err_out);
    strcpy(request.name, "hutch-0123456789abcdef");
    assert_int_equal(send(r->launcher, &request, sizeof(request), 0), sizeof(request));
    hear(r->launcher, &gone, sizeof(gone), NULL, 0, &n_fds, "the launcher, about the end");
    assert_int_equal(gone.what, LAUNCHER_DESTROYED);
    assert_int_equal(gone.id, 13);
    return text;
}


/* A sandbox whose memory is held: the first of some. */
static void build_with_holder(struct rig *r, struct warm_box *w)
{
    for (int i = 0; i < 50; i++) {
        build(r, w, NAME, "");
        if (w->holder > 1)
            return;
        run_code(r, w, "pass", 0);
    }
    fail_msg("no memory is held");
}

static void test_a_worker_runs_in_the_sandbox(void **state)
{
    struct warm_box w;

    build(*state, &w, NAME, "");
    assert_string_equal(
        run_code(*state, &w, "os.write(1, b'%d %d %d' % (os.getppid(), os.getuid(), len(os.listdir('/proc/self/fd'))))",
                 0),
        "1 1000 5");
}

static void test_it_has_given_up_everything(void **state)
{
    struct warm_box w;

    build(*state, &w, NAME, "");
    assert_string_equal(run_code(*state, &w,
                                 "t = open('/proc/self/status').read()\n"
                                 "os.write(1, ' '.join(l for l in t.split('\\n') if l[:3] in ('Cap', 'NoN')).encode())",
                                 0),
                        "CapInh:\t0000000000000000 CapPrm:\t0000000000000000 CapEff:\t0000000000000000 "
                        "CapBnd:\t0000000000000000 CapAmb:\t0000000000000000 NoNewPrivs:\t1");
}

static void test_its_namespaces_are_those_of_init(void **state)
{
    struct warm_box w;

    build_with_holder(*state, &w);
    /* init does not let anybody look, so what is seen is compared with what the zygote would see: nothing but its
     * own */
    assert_string_equal(run_code(*state, &w,
                                 "p = sorted(int(e) for e in os.listdir('/proc') if e.isdigit())\n"
                                 "os.write(1, repr((p[0], len(p), os.uname().nodename,"
                                 " open('/proc/self/uid_map').read().split()[0], os.listdir('/mnt/data'))).encode())",
                                 0),
                        "(1, 3, 'hutch', '1000', [])");
}

/* What sleeps beside the worker has its memory, so the worker can make it run anything; it must be able to do
 * nothing. */
static void test_the_pin_can_do_nothing(void **state)
{
    struct warm_box w;

    build_with_holder(*state, &w);
    assert_string_equal(
        run_code(*state, &w,
                 "t = open('/proc/%d/status' % max(int(e) for e in os.listdir('/proc') if e.isdigit())).read()\n"
                 "os.write(1, ' '.join(l for l in t.split('\\n') if l[:9] in ('CapEff:\t0', 'NoNewPriv',"
                 " 'Seccomp:\t')).encode())",
                 0),
        "CapEff:\t0000000000000000 NoNewPrivs:\t1 Seccomp:\t2");
    build_with_holder(*state, &w);
    /* its code, at the return address of the call that it sleeps in, becomes getpid() for ever; that ends it */
    assert_string_equal(run_code(*state, &w,
                                 "import ctypes, signal, time\n"
                                 "holder = max(int(e) for e in os.listdir('/proc') if e.isdigit())\n"
                                 "while True:\n"
                                 "    t = open('/proc/%d/syscall' % holder).read()\n"
                                 "    if t[0] in '0123456789': break\n"
                                 "pc = int(t.split()[-1], 16)\n"
                                 "libc = ctypes.CDLL(None)\n"
                                 "assert libc.mprotect(ctypes.c_void_p(pc & ~4095), 8192, 7) == 0\n"
                                 "ctypes.memmove(pc, b'\\xb8\\x27\\x00\\x00\\x00\\x0f\\x05\\xeb\\xf7', 9)\n"
                                 "ctypes.memmove(pc - 2, b'\\x90\\x90', 2)\n"
                                 "os.kill(holder, signal.SIGSTOP)\n"
                                 "os.kill(holder, signal.SIGCONT)\n"
                                 "for i in range(500):\n"
                                 "    if not os.path.exists('/proc/%d' % holder): break\n"
                                 "    time.sleep(0.01)\n"
                                 "else: os.write(1, b'alive')\n"
                                 "os.write(1, b'over')", 0), "over");
}

static void test_signals_end_it_as_a_signal(void **state)
{
    struct warm_box w;

    build(*state, &w, NAME, "");
    run_code(*state, &w, "os.kill(os.getpid(), 9)", SIGKILL);
}

static void test_exit_codes_come_from_wait(void **state)
{
    struct warm_box w;

    build(*state, &w, NAME, "");
    run_code(*state, &w, "os._exit(7)", 7 << 8);
}

static void test_data_is_written_to_the_host(void **state)
{
    struct rig *r = *state;
    struct warm_box w;
    char path[128];
    struct stat st;

    snprintf(path, sizeof(path), "%s/one", r->dir);
    assert_int_equal(mkdir(path, 0755), 0);
    build(r, &w, NAME, "one");
    run_code(r, &w, "open('/mnt/data/f', 'w').write('x')", 0);
    snprintf(path, sizeof(path), "%s/one/f", r->dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_uid, geteuid());
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof(path), "%s/one", r->dir);
    assert_int_equal(rmdir(path), 0);
}

static void test_data_can_come_later(void **state)
{
    struct rig *r = *state;
    struct opener_request request = { .what = OPENER_OPEN, .id = 3, .flags = MOUNT_IDMAP };
    char path[128];
    struct opener_reply opened;
    struct warm_box w;
    struct init_msg msg;
    struct hutch_err err;
    size_t n_fds;
    int fd;

    snprintf(request.path, sizeof(request.path), "%s-later", r->dir);
    assert_int_equal(mkdir(request.path, 0700), 0);
    build(r, &w, NAME, "");
    assert_int_equal(send(r->sock, &request, sizeof(request), 0), sizeof(request));
    hear_opener(r, &opened, &fd, &n_fds);
    assert_int_equal(n_fds, 1);
    attach(r, fd);
    close(fd);
    assert_int_equal(hutch_sandbox_order(&w.sb, INIT_ATTACH, 0), 0);
    await(w.sb.control_fd, "init, about the data");
    assert_int_equal(hutch_sandbox_receive(&w.sb, &msg, &err), 1);
    if (msg.kind != INIT_ATTACHED)
        fail_msg("init: %s", msg.err.msg);
    run_code(r, &w, "open('/mnt/data/late', 'w').write('x')", 0);
    snprintf(path, sizeof(path), "%s-later/late", r->dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(request.path), 0);
}

static void test_the_disk_worker_removes_a_directory(void **state)
{
    struct rig *r = *state;
    struct disk_request request = { .name = "left" }, wrong = { .name = "../left" };
    char path[128], inside[160];
    int dirfd = open(r->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    assert_true(dirfd >= 0);
    snprintf(path, sizeof(path), "%s/left", r->dir);
    assert_int_equal(mkdir(path, 0700), 0);
    for (int i = 0; i < 10; i++) {
        snprintf(inside, sizeof(inside), "%s/%d", path, i);
        assert_int_equal(mkdir(inside, 0), 0);
    }
    assert_true(hutch_fdpass_send(r->disk, &wrong, sizeof(wrong), &dirfd, 1, 0) > 0); /* passed over */
    assert_true(hutch_fdpass_send(r->disk, &request, sizeof(request), &dirfd, 1, 0) > 0);
    close(dirfd);
    for (int i = 0; i < PATIENCE_MS && access(path, F_OK) == 0; i++)
        poll(NULL, 0, 1);
    assert_int_equal(access(path, F_OK), -1);
}

static void test_a_dead_launcher_is_replaced(void **state)
{
    struct rig *r = *state;
    struct warm_box w;

    build(r, &w, NAME, ""); /* outlives it */
    assert_int_equal(syscall(SYS_pidfd_send_signal, r->launcher_pidfd, SIGKILL, NULL, 0), 0);
    close(r->launcher);
    close(r->launcher_pidfd);
    take_launcher(r);
    assert_string_equal(run_code(r, &w, "os.write(1, b'alive')", 0), "alive");
    send_spec(r, &r->spec, 2, geteuid() == 0);
    build(r, &w, NAME, "");
    assert_string_equal(run_code(r, &w, "os.write(1, b'again')", 0), "again");
}

static void test_a_zygote_forks_a_zygote(void **state)
{
    struct rig *r = *state;
    struct zygote_request order = { .what = ZYGOTE_ZYGOTE, .id = 5, .text_len = 5 };
    struct zygote_reply reply;
    int pair[2], first = r->zygote;
    struct warm_box w;
    size_t n_fds;

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    assert_true(hutch_fdpass_send2(r->zygote, &order, sizeof(order), "names", 5, &pair[1], 1, 0) > 0);
    close(pair[1]);
    hear(r->zygote, &reply, sizeof(reply), NULL, 0, &n_fds, "the zygote");
    assert_int_equal(reply.what, ZYGOTE_FORKED);
    hear_ready(pair[0], &reply);
    assert_string_equal(reply.modules, "names");
    r->zygote = pair[0];
    build(r, &w, NAME, "");
    assert_string_equal(run_code(r, &w, "os.write(1, b'grandchild')", 0), "grandchild");
    r->zygote = first;
    close(pair[0]);
}

static void test_the_helper_works_with_another_libc(void **state)
{
    const char *musl = built("HUTCH_MUSL_ZYGOTE", "tests/musl_zygote");
    struct warm_box w;

    if (access(musl, X_OK) < 0) {
        print_message("SKIP: there is no musl-gcc, so no '%s'\n", musl);
        skip();
    }
    assert_int_equal(start_rig(state, musl), 0);
    build(*state, &w, NAME, "");
    assert_string_equal(run_code(*state, &w, "any libc", 0), "any libc");
    assert_int_equal(teardown(state), 0);
}

int main(void)
{
    const char *launcher = built("HUTCH_LAUNCHER", "hutch-launcher");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_worker_runs_in_the_sandbox, setup, teardown),
        cmocka_unit_test_setup_teardown(test_it_has_given_up_everything, setup, teardown),
        cmocka_unit_test_setup_teardown(test_its_namespaces_are_those_of_init, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_pin_can_do_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_signals_end_it_as_a_signal, setup, teardown),
        cmocka_unit_test_setup_teardown(test_exit_codes_come_from_wait, setup, teardown),
        cmocka_unit_test_setup_teardown(test_data_is_written_to_the_host, setup, teardown),
        cmocka_unit_test_setup_teardown(test_data_can_come_later, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_disk_worker_removes_a_directory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_dead_launcher_is_replaced, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_zygote_forks_a_zygote, setup, teardown),
        cmocka_unit_test(test_the_helper_works_with_another_libc),
    };

    if (access(launcher, X_OK) < 0) {
        print_message("SKIP: there is no '%s'\n", launcher);
        return 77;
    }
    return cmocka_run_group_tests(tests, place_set_up, place_tear_down);
}

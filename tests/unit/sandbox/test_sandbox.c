/* test_sandbox.c - real sandboxes: what is refused before one is made, how each step's failure is told, what the code
 * inside is, and that nothing of it outlives its supervisor. */
#include "tests/unit/box.h"

#include "sandbox/landlock.h"

#include <grp.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

static char *run(const char *script)
{
    struct sandbox_spec spec;

    box_spec(&spec, script);
    return box_shell(&spec);
}

/* --- before anything is made -------------------------------------------------------------------------------------- */

static void no_program(struct sandbox_spec *spec)
{
    struct hutch_err err;

    assert_int_equal(hutch_spec_set_list(&spec->argv, NULL, 0, &err), 0);
}
static void uid_0(struct sandbox_spec *spec)
{
    spec->uid_inside = 0;
}
static void gid_0(struct sandbox_spec *spec)
{
    spec->gid_inside = 0;
}
static void host_network(struct sandbox_spec *spec)
{
    spec->network = NETWORK_HOST;
}
static void require_cgroup(struct sandbox_spec *spec)
{
    spec->layers[LAYER_CGROUP] = NEED_REQUIRE;
}
static void require_memory(struct sandbox_spec *spec)
{
    spec->limits_need = NEED_REQUIRE;
    spec->limits[LIMIT_MEMORY] = 1 << 30;
}
static void require_pids(struct sandbox_spec *spec)
{
    spec->limits_need = NEED_REQUIRE;
    spec->limits[LIMIT_PIDS] = 10;
}
static void require_cpus(struct sandbox_spec *spec)
{
    spec->limits_need = NEED_REQUIRE;
    spec->limits[LIMIT_CPUS] = 1000;
}
static void bad_filter(struct sandbox_spec *spec)
{
    static char name[] = "no_such_call", *names[] = { name, NULL };
    static struct seccomp_rule rule;

    /* a forbidden call that is unknown here while the default allows */
    rule = (struct seccomp_rule){ .names = names, .verdict = SECCOMP_ERRNO, .errnum = EPERM };
    spec->layers[LAYER_SECCOMP] = NEED_REQUIRE;
    spec->seccomp = (struct seccomp_rules){ .default_verdict = SECCOMP_ALLOW, .rules = &rule, .n_rules = 1 };
}

static int count_fds(void)
{
    int n = 0;

    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void test_refusals(void **state)
{
    static const struct { const char *label; void (*change)(struct sandbox_spec *spec); const char *begins; } rows[] = {
        { "no program", no_program, "there is no program to run" },
        { "uid 0", uid_0, "uid and gid 0 are not given to code inside a sandbox" },
        { "gid 0", gid_0, "uid and gid 0 are not given to code inside a sandbox" },
        { "the host's network against the layer", host_network,
          "layer 'net_namespace' is required, and network 'host' would go without it" },
        { "a cgroup that cannot be had", require_cgroup, "the policy requires a cgroup: not here" },
        { "memory that no cgroup counts", require_memory,
          "the policy requires that a cgroup enforces the limit 'memory', and none can: not here" },
        { "processes that no cgroup counts", require_pids,
          "the policy requires that a cgroup enforces the limit 'pids', and none can: not here" },
        { "CPUs that no cgroup counts", require_cpus,
          "the policy requires that a cgroup enforces the limit 'cpus', and none can: not here" },
        { "a filter that does not compile", bad_filter, "compile the seccomp profile: " },
    };
    int before = count_fds();

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct cgroup_base base = { .mount = NULL, .dirfd = -1, .why_not = "not here" };
        struct hutch_err err = { .msg = "" };
        struct sandbox_spec spec;
        struct box box;

        print_message("  %s\n", rows[i].label);
        box_spec(&spec, "exit 0");
        rows[i].change(&spec);
        assert_int_equal(box_start_in(&spec, &base, "x", &box, &err), -1);
        assert_memory_equal(err.msg, rows[i].begins, strlen(rows[i].begins));
        assert_int_equal(box.sb.pid, -1);
        assert_int_equal(box.sb.control_fd, -1);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
        if (rows[i].change == bad_filter)
            spec.seccomp = (struct seccomp_rules){ 0 }; /* not of the heap */
        hutch_spec_done(&spec);
    }
    assert_int_equal(count_fds(), before);
}

static void test_layers_that_cannot_be_switched_off(void **state)
{
    (void)state;
    for (int layer = 0; layer < LAYER_COUNT; layer++) {
        struct hutch_err err = { .msg = "" };
        struct sandbox_spec spec;
        char want[96];
        struct box box;

        if (layer == LAYER_NET_NS || layer == LAYER_SECCOMP || layer == LAYER_LANDLOCK || layer == LAYER_CGROUP ||
            layer == LAYER_OWN_UID || layer == LAYER_OWN_INODES)
            continue;
        box_spec(&spec, "exit 0");
        spec.layers[layer] = NEED_OFF;
        assert_int_equal(box_start(&spec, &box, &err), -1);
        snprintf(want, sizeof(want), "layer '%s' cannot be switched off", hutch_layer_name(layer));
        assert_string_equal(err.msg, want);
        hutch_spec_done(&spec);
    }
}

/* --- what a step's failure says ----------------------------------------------------------------------------------- */

static void missing_cwd(struct sandbox_spec *spec)
{
    struct hutch_err err;

    hutch_spec_set_string(&spec->cwd, "/tmp/nowhere", &err);
}
static void cwd_is_a_file(struct sandbox_spec *spec)
{
    struct hutch_err err;

    hutch_spec_set_string(&spec->cwd, "/etc/passwd", &err);
}
static void missing_program(struct sandbox_spec *spec)
{
    static const char *const argv[] = { "/usr/bin/no-such-program" };
    struct hutch_err err;

    hutch_spec_set_list(&spec->argv, argv, 1, &err);
}
static void missing_in_path(struct sandbox_spec *spec)
{
    static const char *const argv[] = { "no-such-program" };
    struct hutch_err err;

    hutch_spec_set_list(&spec->argv, argv, 1, &err);
}
static void empty_path(struct sandbox_spec *spec)
{
    static const char *const argv[] = { "sh" };
    struct hutch_err err;

    hutch_spec_set_env(spec, "PATH", "", &err);
    hutch_spec_set_list(&spec->argv, argv, 1, &err);
}
static void missing_interpreter(struct sandbox_spec *spec)
{
    static const char *const argv[] = { "/tmp/script" };
    struct hutch_err err;

    hutch_spec_add_file(spec, "/tmp/script", "#!/usr/bin/no-such-interpreter\n", 31, 0555, &err);
    hutch_spec_set_list(&spec->argv, argv, 1, &err);
}
static void not_executable(struct sandbox_spec *spec)
{
    static const char *const argv[] = { "/etc/passwd" };
    struct hutch_err err;

    hutch_spec_set_list(&spec->argv, argv, 1, &err);
}
static void not_executable_in_path(struct sandbox_spec *spec)
{
    static const char *const argv[] = { "passwd" };
    struct hutch_err err;

    hutch_spec_set_env(spec, "PATH", "/nowhere::/etc:/nowhere", &err);
    hutch_spec_set_list(&spec->argv, argv, 1, &err);
}
static void no_format(struct sandbox_spec *spec)
{
    static const char *const argv[] = { "/tmp/noise" };
    struct hutch_err err;

    hutch_spec_add_file(spec, "/tmp/noise", "\1\2\3\4", 4, 0555, &err);
    hutch_spec_set_list(&spec->argv, argv, 1, &err);
}
static void a_directory(struct sandbox_spec *spec)
{
    static const char *const argv[] = { "/usr" };
    struct hutch_err err;

    hutch_spec_set_list(&spec->argv, argv, 1, &err);
}
static void too_many_arguments(struct sandbox_spec *spec)
{
    struct hutch_err err;
    char *huge = malloc(200000);
    const char *argv[] = { "/bin/true", huge };

    memset(huge, 'x', 199999);
    huge[199999] = '\0';
    hutch_spec_set_list(&spec->argv, argv, 2, &err);
    free(huge);
}
static void long_hostname(struct sandbox_spec *spec)
{
    struct hutch_err err;
    char name[100];

    memset(name, 'h', 99);
    name[99] = '\0';
    hutch_spec_set_string(&spec->hostname, name, &err);
}
static void missing_bind(struct sandbox_spec *spec)
{
    struct hutch_err err;

    hutch_spec_add_mount(spec, MOUNT_BIND, "/no/such/source", "/mnt/x", 0, &err);
}
static void file_over_directory(struct sandbox_spec *spec)
{
    struct hutch_err err;

    hutch_spec_add_mount(spec, MOUNT_BIND, "/etc/passwd", "/usr/bin", MOUNT_RDONLY, &err);
}
static void directory_over_file(struct sandbox_spec *spec)
{
    struct hutch_err err;

    hutch_spec_add_mount(spec, MOUNT_BIND, "/usr/bin", "/etc/ld.so.cache", MOUNT_RDONLY, &err);
}
static void mount_below_a_file(struct sandbox_spec *spec)
{
    struct hutch_err err;

    hutch_spec_add_mount(spec, MOUNT_TMPFS, NULL, "/etc/ld.so.cache/x", 0, &err);
}
static void mount_in_read_only(struct sandbox_spec *spec)
{
    struct hutch_err err;

    hutch_spec_add_mount(spec, MOUNT_TMPFS, NULL, "/usr/no-such-directory", 0, &err);
}
static void missing_root(struct sandbox_spec *spec)
{
    struct hutch_err err;

    spec->root_kind = ROOT_DIR;
    hutch_spec_set_string(&spec->rootfs_path, "/no/such/root", &err);
}
static void test_failures_are_told_with_their_step(void **state)
{
    enum { SETUP, EXEC, SETUP_OR_START }; /* root opens the sources before anything is cloned */
    static const struct {
        void (*change)(struct sandbox_spec *spec);
        int when;
        int errnum;
        const char *says;
    } rows[] = {
        { missing_cwd, SETUP, ENOENT,
          "enter the working directory: '/tmp/nowhere' inside the sandbox: No such file or directory" },
        { cwd_is_a_file, SETUP, ENOTDIR,
          "enter the working directory: '/etc/passwd' inside the sandbox: Not a directory" },
        { missing_program, EXEC, ENOENT,
          "execute '/usr/bin/no-such-program' (is it in this image?): No such file or directory" },
        { missing_in_path, EXEC, ENOENT,
          "execute 'no-such-program' (is it in this image?): No such file or directory" },
        { empty_path, EXEC, ENOENT, "execute 'sh' (is it in this image?): No such file or directory" },
        { missing_interpreter, EXEC, ENOENT,
          "execute '/tmp/script' (is it in this image?): No such file or directory" },
        { not_executable, EXEC, EACCES, "execute '/etc/passwd': Permission denied" },
        { not_executable_in_path, EXEC, EACCES, "execute 'passwd': Permission denied" },
        { no_format, EXEC, ENOEXEC, "execute '/tmp/noise': Exec format error" },
        { a_directory, EXEC, EACCES, "execute '/usr': Permission denied" },
        { too_many_arguments, EXEC, E2BIG, "execute '/bin/true': Argument list too long" },
        { long_hostname, SETUP, EINVAL, "name the host: set the host name 'hhhh" },
        { missing_bind, SETUP_OR_START, ENOENT, "open '/no/such/source': No such file or directory" },
        { missing_root, SETUP_OR_START, ENOENT, "use the root tree: open '/no/such/root': No such file or directory" },
        { file_over_directory, SETUP, EINVAL,
          "build the mount tree: mount on '/usr/bin' (a file covers only a file, a directory only a directory): "
          "Invalid argument" },
        { directory_over_file, SETUP, EINVAL,
          "build the mount tree: mount on '/etc/ld.so.cache' (a file covers only a file, a directory only a "
          "directory): Invalid argument" },
        { mount_below_a_file, SETUP, ENOTDIR,
          "build the mount tree: open the mount point '/etc/ld.so.cache/x': Not a directory" },
        { mount_in_read_only, SETUP, EROFS,
          "build the mount tree: make the mount point '/usr/no-such-directory' (the image has no such directory): "
          "Read-only file system" },
    };
    int before = count_fds();

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct outcome *o = calloc(1, sizeof(*o));
        struct sandbox_spec spec;
        struct box box;
        bool is_before;

        box_spec(&spec, "echo this must not run");
        rows[i].change(&spec);
        is_before = box_start(&spec, &box, &o->err) < 0;
        if (!is_before)
            box_finish(&box, o);
        print_message("  %s\n", o->err.msg);
        assert_int_equal(is_before, rows[i].when == SETUP_OR_START && geteuid() == 0);
        assert_int_equal(o->exec_failed, rows[i].when == EXEC);
        assert_int_equal(o->setup_failed, rows[i].when != EXEC && !is_before);
        assert_int_equal(o->err.errnum, rows[i].errnum);
        if (!strstr(o->err.msg, rows[i].says))
            fail_msg("expected: %s", rows[i].says);
        if (rows[i].when == SETUP_OR_START && !is_before)
            assert_memory_equal(o->err.msg, "build the mount tree: ", 22);
        assert_false(o->is_started);
        assert_false(o->has_ended);
        assert_string_equal(o->out, "");
        hutch_spec_done(&spec);
        free(o);
    }
    assert_int_equal(count_fds(), before);
}

/* --- how it ends -------------------------------------------------------------------------------------------------- */

static void test_endings(void **state)
{
    static const struct { const char *script; int status; const char *out, *err_out; } rows[] = {
        { "exit 0", 0, "", "" },
        { "exit 7", 7 << 8, "", "" },
        { "exit 255", 255 << 8, "", "" },
        { "echo out; echo err >&2; exit 3", 3 << 8, "out\n", "err\n" },
        { "kill -TERM $$", SIGTERM, "", "" },
        { "kill -KILL $$", SIGKILL, "", "" },
        { "cat", 0, "", "" }, /* its input is closed */
        { "(trap '' HUP TERM; while :; do :; done) & echo done", 0, "done\n", "" }, /* dies with the sandbox */
        { "exec >&- 2>&-; exit 4", 4 << 8, "", "" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct sandbox_spec spec;
        struct outcome *o;

        print_message("  %s\n", rows[i].script);
        box_spec(&spec, rows[i].script);
        o = box_run_spec(&spec);
        assert_true(o->is_started);
        assert_true(o->has_ended);
        assert_int_equal(o->status, rows[i].status);
        assert_int_equal(o->end.init_status, 0);
        assert_string_equal(o->out, rows[i].out);
        assert_string_equal(o->err_out, rows[i].err_out);
        free(o);
    }
}

static void test_input_output_and_report(void **state)
{
    struct outcome *o = calloc(1, sizeof(*o));
    struct sandbox_spec spec;
    struct hutch_err err;
    struct box box;

    (void)state;
    box_spec(&spec, "tr a-z A-Z; echo record >&3; : >&4");
    assert_int_equal(box_start(&spec, &box, &err), 0);
    assert_int_equal(hutch_fd_write_all(box.in_w, "through and back\n", 17), 0);
    box_finish(&box, o);
    assert_string_equal(o->out, "THROUGH AND BACK\n");
    assert_string_equal(o->report, "record\n");
    assert_non_null(strstr(o->err_out, "4")); /* Bad file descriptor */
    assert_int_not_equal(o->status, 0);
    hutch_spec_done(&spec);
    free(o);
}

/* Waits for @text on stdout. */
static void wait_for(struct box *box, struct outcome *o, const char *text)
{
    int64_t deadline = box_now_ms() + BOX_PATIENCE_MS;

    while (!strstr(o->out, text) || !o->is_started) /* the program's output can overtake init's word that it runs */
        if (!box_turn(box, o, deadline))
            fail_msg("ended without '%s': %s%s%s", text, o->out, o->err_out, o->err.msg);
}

static void test_signals_reach_the_whole_group(void **state)
{
    struct outcome *o = calloc(1, sizeof(*o));
    struct sandbox_spec spec;
    struct hutch_err err;
    struct box box;

    (void)state;
    /* a child of the shell, in its group, and stopped: it hears too */
    box_spec(&spec, "sh -c 'trap \"echo child; exit\" TERM; kill -STOP $$; while :; do :; done' & c=$!\n"
                    "trap 'wait $c; echo parent; exit 5' TERM\n"
                    "while read -r _ _ s _ </proc/$c/stat && [ \"$s\" != T ]; do :; done; echo ready; wait $c; exit 9");
    assert_int_equal(box_start(&spec, &box, &err), 0);
    wait_for(&box, o, "ready");
    hutch_sandbox_signal(&box.sb, SIGTERM);
    hutch_sandbox_signal(&box.sb, 12345); /* nonsense does nothing */
    hutch_sandbox_signal(&box.sb, -1);
    box_finish(&box, o);
    assert_string_equal(o->out, "ready\nchild\nparent\n");
    assert_int_equal(o->status, 5 << 8);
    hutch_sandbox_signal(&box.sb, SIGTERM); /* the worker is gone */
    hutch_sandbox_kill(&box.sb);
    hutch_spec_done(&spec);
    free(o);
}

static void wait_for_pause(struct box *box, struct outcome *o, unsigned n)
{
    int64_t deadline = box_now_ms() + BOX_PATIENCE_MS;

    while (o->n_pauses < n)
        if (!box_turn(box, o, deadline))
            fail_msg("ended before it was paused: %s%s", o->out, o->err_out);
}

/* Nothing moves while it is paused, and what was stopped before stays so when it goes on. */
static void test_pause_by_signals(void **state)
{
    struct outcome *o = calloc(1, sizeof(*o));
    struct sandbox_spec spec;
    struct hutch_err err;
    struct box box;
    char byte[1];

    (void)state;
    box_spec(&spec, "sh -c 'kill -STOP $$; echo woken' & stopped=$!\n"
                    "while read -r _ _ s _ </proc/$stopped/stat && [ \"$s\" != T ]; do :; done\n"
                    "(while :; do echo .; sleep 0.01; done) & (while :; do :; done) &\n"
                    "while read -r _ _ s _ </proc/$!/stat && [ \"$s\" != R ]; do :; done\n"
                    "trap 'echo told; exit 5' TERM; echo ready; while :; do sleep 0.01; done");
    assert_int_equal(box_start(&spec, &box, &err), 0);
    wait_for(&box, o, "ready");
    assert_int_equal(hutch_sandbox_order(&box.sb, INIT_PAUSE, 1), 0);
    wait_for_pause(&box, o, 1);
    while (!o->is_still) /* where a process does not come to stop at once, this is said later */
        if (!box_turn(&box, o, box_now_ms() + BOX_PATIENCE_MS))
            fail_msg("ended before it stood still");
    hutch_sandbox_signal(&box.sb, SIGTERM); /* waits */
    usleep(100000);
    fcntl(box.out_r, F_SETFL, O_NONBLOCK);
    while (read(box.out_r, byte, 1) == 1) /* what was in the pipe */
        ;
    usleep(200000);
    assert_int_equal(read(box.out_r, byte, 1), -1);
    fcntl(box.out_r, F_SETFL, 0);
    assert_null(strstr(o->out, "told"));
    assert_int_equal(hutch_sandbox_order(&box.sb, INIT_PAUSE, 0), 0);
    box_finish(&box, o);
    assert_non_null(strstr(o->out, "told"));
    assert_null(strstr(o->out, "woken"));
    assert_int_equal(o->status, 5 << 8);
    hutch_spec_done(&spec);
    free(o);
}

/* A program that has the kernel continue it is stopped again, and init says that it ran. */
static void test_a_pause_that_is_withstood(void **state)
{
    struct outcome *o = calloc(1, sizeof(*o));
    struct sandbox_spec spec;
    struct hutch_err err;
    struct box box;

    (void)state;
    /* each continues the other as long as it runs; the supervisor's word still ends them */
    box_spec(&spec, "f() { while :; do kill -CONT -1 2>/dev/null; done; }\nf & f & f & f & echo ready; f");
    assert_int_equal(box_start(&spec, &box, &err), 0);
    wait_for(&box, o, "ready");
    for (unsigned n = 1; n <= 10; n++) {
        assert_int_equal(hutch_sandbox_order(&box.sb, INIT_PAUSE, n % 2), 0);
        wait_for_pause(&box, o, n);
    }
    hutch_sandbox_kill(&box.sb);
    box_finish(&box, o);
    hutch_spec_done(&spec);
    free(o);
}

static const char keeps_running[] =
    "(trap '' HUP INT TERM; echo ready; while :; do :; done) & (setsid sh -c 'while :; do :; done') & wait";

static void test_kill(void **state)
{
    struct outcome *o = calloc(1, sizeof(*o));
    struct sandbox_spec spec;
    struct hutch_err err;
    struct box box;

    (void)state;
    box_spec(&spec, keeps_running);
    assert_int_equal(box_start(&spec, &box, &err), 0);
    wait_for(&box, o, "ready");
    hutch_sandbox_kill(&box.sb);
    box_finish(&box, o); /* reads to the end of stdout: every holder of it is dead */
    assert_true(o->is_started);
    assert_false(o->has_ended);
    assert_true(WIFSIGNALED(o->end.init_status));
    assert_int_equal(WTERMSIG(o->end.init_status), SIGKILL);
    hutch_spec_done(&spec);
    free(o);
}

static void test_a_closed_socket_ends_everything(void **state)
{
    struct outcome *o = calloc(1, sizeof(*o));
    struct sandbox_spec spec;
    struct hutch_err err;
    struct box box;
    struct pollfd p;

    (void)state;
    box_spec(&spec, keeps_running);
    assert_int_equal(box_start(&spec, &box, &err), 0);
    wait_for(&box, o, "ready");
    hutch_fd_closep(&box.sb.control_fd);
    p = (struct pollfd){ box.sb.pidfd, POLLIN, 0 };
    assert_int_equal(poll(&p, 1, BOX_PATIENCE_MS), 1);
    box_finish(&box, o);
    assert_true(WIFEXITED(o->end.init_status)); /* by itself, not by the kill of the end */
    hutch_spec_done(&spec);
    free(o);
}

/* The supervisor is killed at some moment of a sandbox's life: nothing stays. Stdout is held by every process inside
 * and by nothing else, so its end is theirs. */
static void kill_supervisor(const char *script, bool wait_until_ready)
{
    struct pollfd p;
    int out[2], tell[2];
    char buf[64];
    pid_t supervisor;

    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(tell, O_CLOEXEC), 0);
    supervisor = fork();
    assert_true(supervisor >= 0);
    if (supervisor == 0) {
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        struct sandbox_io io = { .stdin_r = null, .stdout_w = out[1], .stderr_w = null, .report_w = -1 };
        struct cgroup_base none = CGROUP_BASE_INIT;
        struct sandbox_spec spec;
        struct sandbox sb;
        struct hutch_err err;

        box_spec(&spec, script);
        if (hutch_sandbox_start(&spec, &none, "x", &io, &sb, &err) < 0)
            _exit(1);
        close(out[1]);
        if (hutch_fd_write_all(tell[1], &sb.pid, sizeof(sb.pid)) < 0)
            _exit(2);
        for (;;)
            pause();
    }
    close(out[1]);
    close(tell[1]);
    {
        pid_t init;
        int pidfd, status;

        assert_int_equal(hutch_fd_read_full(tell[0], &init, sizeof(init)), sizeof(init));
        pidfd = (int)syscall(SYS_pidfd_open, init, 0);
        if (wait_until_ready)
            assert_true(read(out[0], buf, sizeof(buf)) > 0);
        assert_int_equal(kill(supervisor, SIGKILL), 0);
        if (pidfd >= 0) { /* or it is gone already */
            p = (struct pollfd){ pidfd, POLLIN, 0 };
            assert_int_equal(poll(&p, 1, BOX_PATIENCE_MS), 1);
            close(pidfd);
        }
        p = (struct pollfd){ out[0], POLLIN, 0 };
        do
            assert_int_equal(poll(&p, 1, BOX_PATIENCE_MS), 1);
        while (read(out[0], buf, sizeof(buf)) > 0);
        assert_int_equal(waitpid(supervisor, &status, 0), supervisor);
        assert_int_equal(status, SIGKILL);
    }
    close(out[0]);
    close(tell[0]);
}

static void test_a_killed_supervisor_takes_everything_along(void **state)
{
    (void)state;
    kill_supervisor(keeps_running, true);
    for (int i = 0; i < 10; i++) /* while init is building */
        kill_supervisor(keeps_running, false);
}

/* --- what the code inside is -------------------------------------------------------------------------------------- */

/* Groups of the caller's that an ordinary user cannot drop have no number inside. */
static void test_groups(void **state)
{
    const char *groups;
    char *out = run("id -G");

    (void)state;
    assert_memory_equal(out, "1000", 4);
    for (groups = out + 4; strncmp(groups, " 65534", 6) == 0;)
        groups += 6;
    assert_string_equal(groups, "\n");
    assert_true(geteuid() != 0 || groups == out + 4);
    free(out);
}

static void test_identity(void **state)
{
    char *out = run(
        "id -u; id -g; uname -n; pwd; umask; cat /proc/self/uid_map /proc/self/gid_map; tr '\\0' '\\n' "
        "</proc/self/environ;"
        "grep -E '^(Cap|NoNewPrivs|Groups)' /proc/self/status; ps -o pid= -o pgid= -o sid= -p $$");
    char want_uid[64], want_gid[64];

    (void)state;
    assert_memory_equal(out, "1000\n1000\nhutch\n/\n0022\n", 23);
    snprintf(want_uid, sizeof(want_uid), "%10d %10u %10d", 1000, geteuid() == 0 ? 0 : geteuid(), 1);
    snprintf(want_gid, sizeof(want_gid), "%10d", 1000);
    if (geteuid() != 0)
        assert_non_null(strstr(out, want_uid));
    else
        assert_null(strstr(out, want_uid)); /* host uid 0 is never behind it */
    assert_non_null(strstr(out, want_gid));
    assert_non_null(strstr(out, "PATH=/usr/bin:/bin:/usr/sbin:/sbin\n"));
    assert_null(strstr(out, "HOME=")); /* nothing of the caller's environment */
    assert_null(strstr(out, "USER="));
    for (const char *const *set = (const char *const[]){ "Inh", "Prm", "Eff", "Bnd", "Amb", NULL }; *set; set++) {
        char line[48];

        snprintf(line, sizeof(line), "Cap%s:\t0000000000000000\n", *set);
        assert_non_null(strstr(out, line));
    }
    assert_non_null(strstr(out, "NoNewPrivs:\t1\n"));
    free(out);
}

/* The caller's supplementary groups open nothing inside when the ids are mapped away. */
static void test_groups_of_root_are_dropped(void **state)
{
    struct sandbox_spec spec;
    char dir[] = "/tmp/hutch-test-sandbox.XXXXXX", *out;
    struct hutch_err err;

    (void)state;
    if (geteuid() != 0) {
        print_message("skip: taking on a supplementary group needs root\n");
        skip();
    }
    assert_int_equal(setgroups(1, (gid_t[]){ 54321 }), 0);
    assert_non_null(mkdtemp(dir));
    assert_int_equal(chown(dir, 0, 54321), 0);
    assert_int_equal(chmod(dir, 0770), 0);
    box_spec(&spec, "ls /mnt/data >/dev/null 2>&1 && echo open; grep ^Groups /proc/self/status");
    assert_non_null(hutch_spec_add_mount(&spec, MOUNT_BIND, dir, "/mnt/data", 0, &err));
    out = box_shell(&spec);
    assert_null(strstr(out, "54321"));
    assert_null(strstr(out, "65534"));
    assert_null(strstr(out, "open"));
    free(out);
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(setgroups(0, NULL), 0);
}

static void test_namespaces_are_its_own(void **state)
{
    static const char *const names[] = { "user", "mnt", "pid", "net", "ipc", "uts", "cgroup" };
    char *out = run("for n in user mnt pid net ipc uts cgroup; do readlink /proc/self/ns/$n; done");

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        char path[64], ours[64] = "", begins[16];

        snprintf(path, sizeof(path), "/proc/self/ns/%s", names[i]);
        snprintf(begins, sizeof(begins), "%s:[", names[i]);
        assert_true(readlink(path, ours, sizeof(ours) - 1) > 0);
        assert_non_null(strstr(out, begins));
        if (strstr(out, ours))
            fail_msg("the %s namespace is the host's", names[i]);
    }
    free(out);
}

static void test_network(void **state)
{
    static const struct { enum sandbox_network network; const char *label; } rows[] = {
        { NETWORK_NONE, "none" }, { NETWORK_HOST, "host" },
    };
    char ours[64] = "";

    (void)state;
    assert_true(readlink("/proc/self/ns/net", ours, sizeof(ours) - 1) > 0);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct sandbox_spec spec;
        char *out;

        box_spec(&spec, "readlink /proc/self/ns/net; grep -c : /proc/net/dev; tail -n +2 /proc/net/route | wc -l;"
                        "grep -q 127.0.0.1 /proc/net/fib_trie && echo loopback is up");
        spec.network = rows[i].network;
        spec.layers[LAYER_NET_NS] = rows[i].network == NETWORK_NONE ? NEED_REQUIRE : NEED_OFF;
        out = box_shell(&spec);
        if (rows[i].network == NETWORK_NONE) {
            char *rest = strchr(out, '\n');

            assert_null(strstr(out, ours));
            assert_string_equal(rest, "\n1\n0\nloopback is up\n"); /* lo, and no route anywhere */
        } else {
            assert_non_null(strstr(out, ours));
        }
        free(out);
    }
}

/* Init has our worker's uid: everything of it must be out of reach. */
static void test_init_is_out_of_reach(void **state)
{
    char *out = run(
        "for s in HUP INT QUIT KILL TERM STOP TSTP CONT CHLD SEGV ABRT USR1 USR2 PIPE ALRM; do kill -$s 1 "
        "2>/dev/null; done\n"
        "for f in environ mem maps smaps smaps_rollup auxv stack syscall io pagemap personality timers; do\n"
        "  cat /proc/1/$f >/dev/null 2>&1 && echo reads $f; done\n"
        "for d in fd fdinfo map_files; do ls /proc/1/$d >/dev/null 2>&1 && echo lists $d; done\n"
        "for l in root cwd exe ns/mnt ns/user ns/net; do readlink /proc/1/$l >/dev/null 2>&1 && echo follows $l; done\n"
        "ls /proc/1/root/ >/dev/null 2>&1 && echo enters root\n"
        "(: >/proc/1/mem) 2>/dev/null && echo writes mem\n"
        "(echo 0 >/proc/1/oom_score_adj) 2>/dev/null && echo writes oom_score_adj\n"
        "tr -d '\\0' </proc/1/cmdline; cat /proc/1/comm\n"
        "echo still here");

    (void)state;
    assert_string_equal(out, "hutch-init\nstill here\n");
    free(out);
}

/* The code of init's own environment and arguments is a copy of the supervisor's. */
static void test_nothing_of_the_supervisor_shows(void **state)
{
    char *out;

    (void)state;
    assert_int_equal(setenv("HUTCH_TEST_SECRET", "squirrel", 1), 0);
    out = run(
        "cat /proc/*/cmdline /proc/*/environ /proc/*/comm 2>/dev/null | tr '\\0' '\\n'; env; ls /proc | grep '^[0-9]' "
        "| sort -n | head -3");
    assert_null(strstr(out, "squirrel"));
    assert_null(strstr(out, "test_sandbox"));
    assert_non_null(strstr(out, "hutch-init"));
    unsetenv("HUTCH_TEST_SECRET");
    free(out);
}

static void test_no_descriptor_is_inherited(void **state)
{
    int extra[3], sock[2];
    char *out;

    (void)state;
    extra[0] = open("/etc/passwd", O_RDONLY); /* without O_CLOEXEC, as a careless host program has it */
    extra[1] = dup2(extra[0], 200);
    extra[2] = open("/", O_PATH | O_DIRECTORY);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sock), 0);
    out = run("ls /proc/self/fd; for f in /proc/$$/fd/*; do readlink $f; done | sed 's/:.*//'");
    assert_string_equal(out, "0\n1\n2\n3\n4\npipe\npipe\npipe\npipe\n"); /* streams, report, and what ls itself
                                                                          * opened */
    free(out);
    for (int i = 0; i < 3; i++)
        close(extra[i]);
    close(sock[0]);
    close(sock[1]);
}

/* Streams given as one descriptor, or as numbers that the steps themselves use, arrive where they should. */
static void test_streams_on_awkward_numbers(void **state)
{
    int saved[4], pair[2], r, w, null_fd, rc;
    struct sandbox_io io = { .stdin_r = 3, .stdout_w = 0, .stderr_w = 1, .report_w = 2 };
    struct cgroup_base none = CGROUP_BASE_INIT;
    struct sandbox_spec spec;
    struct hutch_err err;
    struct init_msg msg;
    struct sandbox sb;
    char buf[64] = "";
    int status = -1;

    (void)state;
    box_spec(&spec, "echo 1; echo 2 >&2; echo 3 >&3");
    for (int i = 0; i < 4; i++)
        saved[i] = fcntl(i, F_DUPFD_CLOEXEC, 100); /* -1 where there is none */
    assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
    r = fcntl(pair[0], F_DUPFD_CLOEXEC, 110);
    w = fcntl(pair[1], F_DUPFD_CLOEXEC, 110);
    null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    close(pair[0]);
    close(pair[1]);
    null_fd = fcntl(null_fd, F_DUPFD_CLOEXEC, 110);
    dup2(null_fd, 3);
    dup2(w, 0);
    dup2(w, 1);
    dup2(w, 2);
    rc = hutch_sandbox_start(&spec, &none, "x", &io, &sb, &err);
    for (int i = 0; i < 4; i++) {
        close(i);
        if (saved[i] >= 0) {
            dup2(saved[i], i);
            close(saved[i]);
        }
    }
    close(w);
    close(null_fd);
    assert_int_equal(rc, 0);
    while (hutch_sandbox_receive(&sb, &msg, &err) == 1)
        if (msg.kind == INIT_ENDED)
            status = msg.ended.status;
    assert_int_equal(hutch_fd_read_full(r, buf, sizeof(buf) - 1), 6);
    close(r);
    assert_int_equal(hutch_sandbox_finish(&sb, NULL, &err), 0);
    assert_string_equal(buf, "1\n2\n3\n");
    assert_int_equal(status, 0);
    hutch_spec_done(&spec);
}

static void test_no_way_to_new_privileges(void **state)
{
    char *out =
        run("unshare -U true 2>/dev/null && unshare -Ur sh -c 'mount -t tmpfs x /mnt' 2>/dev/null && echo mounted;"
            "mount -t tmpfs x /mnt 2>/dev/null && echo mounted; mount -o remount,rw / 2>/dev/null && echo remounted;"
            "umount /tmp 2>/dev/null && echo unmounted; hostname x 2>/dev/null && echo renamed;"
            "chroot / true 2>/dev/null && echo chrooted; mknod /tmp/n c 1 3 2>/dev/null && echo made;"
            "touch /tmp/f && chown 0 /tmp/f 2>/dev/null && echo given; su -c true 2>/dev/null && echo su; echo end");

    (void)state;
    assert_string_equal(out, "end\n");
    free(out);
}

/* Signals are undone: the caller ignores and blocks some, the program inside starts afresh. */
static void test_signal_state_starts_afresh(void **state)
{
    sigset_t all, old;
    char *out;

    (void)state;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &old);
    out = run("cat /proc/self/status | grep -E '^Sig(Blk|Ign|Cgt)'");
    sigprocmask(SIG_SETMASK, &old, NULL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    assert_string_equal(out, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\nSigCgt:\t0000000000000000\n");
    free(out);
}

/* --- limits ------------------------------------------------------------------------------------------------------- */

static void test_limits_apply_inside(void **state)
{
    struct sandbox_spec spec;
    char *out;

    (void)state;
    box_spec(
        &spec,
        "ulimit -n; ulimit -f; ulimit -c; ulimit -u 2>/dev/null || grep processes /proc/self/limits | tr -s ' ' | cut "
        "-d' ' -f3;"
        "grep -c 'Max cpu time *6 *7 ' /proc/self/limits; nproc");
    spec.limits[LIMIT_OPEN_FILES] = 50;
    spec.limits[LIMIT_FILE_SIZE] = 1 << 20;
    spec.limits[LIMIT_PIDS] = 20;
    spec.limits[LIMIT_CPU_TIME] = 5000;
    spec.limits[LIMIT_CPUS] = 1000;
    out = box_shell(&spec);
    assert_string_equal(out, "50\n2048\n0\n21\n1\n1\n");
    free(out);
}

static void test_who_enforces_what(void **state)
{
    struct outcome *o = calloc(1, sizeof(*o));
    struct sandbox_spec spec;
    struct hutch_err err;
    struct box box;

    (void)state;
    box_spec(&spec, "exit 0");
    for (int i = 0; i < LIMIT_COUNT; i++)
        spec.limits[i] = 1 << 30;
    spec.limits[LIMIT_OPEN_FILES] = 100;
    assert_int_equal(box_start(&spec, &box, &err), 0);
    assert_int_equal(box.sb.enforcement.limits[LIMIT_MEMORY], 0); /* what init counts, the supervisor enforces */
    assert_int_equal(box.sb.enforcement.limits[LIMIT_PIDS], 1u << ENFORCER_RLIMIT);
    assert_int_equal(box.sb.enforcement.limits[LIMIT_CPUS], 1u << ENFORCER_NONE); /* no filter keeps the affinity */
    assert_int_equal(box.sb.enforcement.limits[LIMIT_TMP_SIZE], 1u << ENFORCER_KERNEL);
    assert_int_equal(box.sb.enforcement.limits[LIMIT_WALL], 0); /* the supervisor enforces it */
    assert_true(box.sb.wants_samples);
    for (int i = 0; i < LAYER_COUNT; i++)
        if (i != LAYER_SECCOMP && i != LAYER_CGROUP && i != LAYER_LANDLOCK && i != LAYER_OWN_UID)
            assert_true(box.sb.enforcement.layer_active[i]);
    assert_false(box.sb.enforcement.layer_active[LAYER_SECCOMP]);
    assert_false(box.sb.enforcement.layer_active[LAYER_CGROUP]);
    assert_int_equal(box.sb.enforcement.layer_active[LAYER_LANDLOCK], hutch_landlock_abi() > 0);
    assert_int_equal(box.sb.enforcement.layer_active[LAYER_OWN_UID], box.sb.id_fd >= 0);
    box_finish(&box, o);
    hutch_spec_done(&spec);
    free(o);
}

static void test_samples(void **state)
{
    struct outcome *o = calloc(1, sizeof(*o));
    int64_t deadline = box_now_ms() + BOX_PATIENCE_MS;
    struct sandbox_spec spec;
    struct hutch_err err;
    struct box box;

    (void)state;
    box_spec(&spec, "exec 5<&0; cat <&5 & cat <&5 & while :; do :; done");
    assert_int_equal(box_start(&spec, &box, &err), 0);
    while (o->peak.pids < 3 || o->peak.cpu_ms == 0)
        assert_true(box_turn(&box, o, deadline));
    assert_int_equal(o->peak.pids, 3); /* init is not counted */
    assert_true(o->peak.memory_bytes > 100000 && o->peak.memory_bytes < 100000000);
    hutch_sandbox_kill(&box.sb);
    box_finish(&box, o);
    hutch_spec_done(&spec);
    free(o);
}

/* Code that keeps init busy, with orphans to reap, is counted all the same. */
static void test_samples_under_a_storm_of_orphans(void **state)
{
    struct outcome *o = calloc(1, sizeof(*o));
    int64_t deadline = box_now_ms() + BOX_PATIENCE_MS;
    struct sandbox_spec spec;
    struct hutch_err err;
    struct box box;

    (void)state;
    box_spec(&spec, "for i in 1 2 3; do while :; do (:&); done & done; wait");
    spec.limits[LIMIT_PIDS] = 4000; /* on a busy machine they come faster than they are reaped, and there are others who
                                     * fork */
    assert_int_equal(box_start(&spec, &box, &err), 0);
    while (o->n_samples < 3)
        assert_true(box_turn(&box, o, deadline));
    hutch_sandbox_kill(&box.sb);
    box_finish(&box, o);
    hutch_spec_done(&spec);
    free(o);
}

/* The filter is sent while init builds; what it forbids is forbidden. */
static void test_filter(void **state)
{
    static char mkdir_name[] = "mkdir", mkdirat_name[] = "mkdirat", *names[] = { mkdir_name, mkdirat_name, NULL };
    static struct seccomp_rule rule = { .names = names, .verdict = SECCOMP_ERRNO, .errnum = EXDEV };
    struct sandbox_spec spec;
    struct outcome *o;

    (void)state;
    box_spec(&spec, "grep Seccomp: /proc/self/status; mkdir /tmp/x");
    spec.layers[LAYER_SECCOMP] = NEED_REQUIRE;
    spec.seccomp = (struct seccomp_rules){ .default_verdict = SECCOMP_ALLOW, .rules = &rule, .n_rules = 1 };
    {
        struct hutch_err err;
        struct box box;

        o = calloc(1, sizeof(*o));
        if (box_start(&spec, &box, &err) < 0)
            fail_msg("%s", err.msg);
        assert_true(box.sb.enforcement.layer_active[LAYER_SECCOMP]);
        assert_non_null(strstr(box.sb.enforcement.layer_detail[LAYER_SECCOMP], "instructions"));
        box_finish(&box, o);
    }
    assert_string_equal(o->out, "Seccomp:\t2\n");
    assert_non_null(strstr(o->err_out, strerrordesc_np(EXDEV)));
    spec.seccomp = (struct seccomp_rules){ 0 };
    hutch_spec_done(&spec);
    free(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_layers_that_cannot_be_switched_off),
        cmocka_unit_test(test_failures_are_told_with_their_step),
        cmocka_unit_test(test_endings),
        cmocka_unit_test(test_input_output_and_report),
        cmocka_unit_test(test_signals_reach_the_whole_group),
        cmocka_unit_test(test_kill),
        cmocka_unit_test(test_pause_by_signals),
        cmocka_unit_test(test_a_pause_that_is_withstood),
        cmocka_unit_test(test_a_closed_socket_ends_everything),
        cmocka_unit_test(test_a_killed_supervisor_takes_everything_along),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_identity),
        cmocka_unit_test(test_groups_of_root_are_dropped),
        cmocka_unit_test(test_namespaces_are_its_own),
        cmocka_unit_test(test_network),
        cmocka_unit_test(test_init_is_out_of_reach),
        cmocka_unit_test(test_nothing_of_the_supervisor_shows),
        cmocka_unit_test(test_no_descriptor_is_inherited),
        cmocka_unit_test(test_streams_on_awkward_numbers),
        cmocka_unit_test(test_no_way_to_new_privileges),
        cmocka_unit_test(test_signal_state_starts_afresh),
        cmocka_unit_test(test_limits_apply_inside),
        cmocka_unit_test(test_who_enforces_what),
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_samples_under_a_storm_of_orphans),
        cmocka_unit_test(test_filter),
    };

    alarm(100); /* ends a test that hangs */
    return cmocka_run_group_tests_name("sandbox", tests, NULL, NULL);
}

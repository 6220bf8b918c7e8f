/* test_cgroup.c - groups are made where they may be, and go with everything in them. */
#include "sandbox/cgroup.h"

#include "tests/unit/box.h"

#include <sched.h>
#include <signal.h>
#include <sys/stat.h>

/* A base that this process may use, or a skip that says why not. */
static struct cgroup_base need_base(void)
{
    struct cgroup_base base = CGROUP_BASE_INIT;

    hutch_cgroup_find_base(&base);
    if (base.dirfd < 0) {
        print_message("skip: cgroup v2: %s\n", base.why_not);
        hutch_cgroup_base_done(&base);
        skip();
    }
    return base;
}

static const char *own_name(void)
{
    static char name[48];

    snprintf(name, sizeof(name), "hutch-test-%d", getpid());
    return name;
}

static bool is_there(const struct cgroup_base *base)
{
    return faccessat(base->dirfd, own_name(), F_OK, 0) == 0;
}

static void test_a_base_or_a_reason(void **state)
{
    struct cgroup_base base = CGROUP_BASE_INIT;

    (void)state;
    hutch_cgroup_find_base(&base);
    print_message("  %s%s, controllers %#x, %s\n", base.mount ? base.mount : "-", base.path ? base.path : "",
                  base.controllers, base.why_not);
    if (base.dirfd < 0) {
        assert_int_equal(base.controllers, 0);
        assert_null(base.path);
    } else {
        assert_non_null(base.mount);
        assert_int_equal(base.path[0], '/');
    }
    assert_int_equal(base.why_not[0] == '\0', base.controllers == (CGROUP_MEMORY | CGROUP_PIDS | CGROUP_CPU));
    hutch_cgroup_base_done(&base);
    hutch_cgroup_base_done(&base);
    assert_int_equal(base.dirfd, -1);
    assert_null(base.mount);
}

static void test_create_and_destroy(void **state)
{
    struct cgroup_base base = need_base();
    struct sandbox_cgroup cg = CGROUP_INIT, second = CGROUP_INIT;
    struct sandbox_spec spec = { 0 };
    struct cgroup_usage usage;
    struct hutch_err err;
    char want[256];

    (void)state;
    if (hutch_cgroup_create(&base, own_name(), &spec, &cg, &err) < 0)
        fail_msg("%s", err.msg);
    assert_true(is_there(&base));
    assert_string_equal(cg.name, own_name());
    assert_int_equal(cg.controllers, 0); /* nothing is limited */
    hutch_cgroup_read_usage(&cg, &usage);
    assert_true(usage.cpu_user_us == 0);
    assert_true(usage.oom_kills == 0);

    assert_int_equal(hutch_cgroup_create(&base, own_name(), &spec, &second, &err), -1);
    assert_int_equal(err.errnum, EEXIST);
    snprintf(want, sizeof(want), "make the cgroup '%s' below '%s%s': File exists", own_name(), base.mount, base.path);
    assert_string_equal(err.msg, want);
    assert_int_equal(second.dirfd, -1);
    assert_true(is_there(&base)); /* the failure took nothing of the other's away */

    assert_int_equal(hutch_cgroup_destroy(&cg, 2000, &err), 0);
    assert_false(is_there(&base));
    assert_int_equal(cg.dirfd, -1);
    assert_int_equal(hutch_cgroup_destroy(&cg, 2000, &err), 0); /* again */
    hutch_cgroup_done(&cg);
    hutch_cgroup_base_done(&base);
}

static void test_limits_are_written(void **state)
{
    static const struct { unsigned bit; const char *file, *want; } rows[] = {
        { CGROUP_MEMORY, "memory.max", "67108864\n" },
        { CGROUP_MEMORY, "memory.oom.group", "1\n" },
        { CGROUP_PIDS, "pids.max", "11\n" },
        { CGROUP_CPU, "cpu.max", "50000 100000\n" },
    };
    struct cgroup_base base = need_base();
    struct sandbox_cgroup cg = CGROUP_INIT;
    struct sandbox_spec spec = { 0 };
    struct hutch_err err;

    (void)state;
    spec.limits[LIMIT_MEMORY] = 64 << 20;
    spec.limits[LIMIT_PIDS] = 10;
    spec.limits[LIMIT_CPUS] = 500;
    if (hutch_cgroup_create(&base, own_name(), &spec, &cg, &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(cg.controllers, base.controllers);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char text[64] = "";
        auto_fd fd = openat(cg.dirfd, rows[i].file, O_RDONLY | O_CLOEXEC);

        if (!(cg.controllers & rows[i].bit)) {
            print_message("  no %s here\n", rows[i].file);
            continue;
        }
        assert_true(hutch_fd_read_full(fd, text, sizeof(text) - 1) > 0);
        assert_string_equal(text, rows[i].want);
    }
    assert_int_equal(hutch_cgroup_destroy(&cg, 2000, &err), 0);
    hutch_cgroup_base_done(&base);
}

/* Puts a child into the group, which then waits for ever. */
static pid_t child_in(const struct sandbox_cgroup *cg)
{
    struct hutch_err err;
    char text[24];
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGTERM, SIG_IGN);
        for (;;)
            pause();
    }
    snprintf(text, sizeof(text), "%d", pid);
    if (hutch_fd_write_file_at(cg->dirfd, "cgroup.procs", text, &err) < 0)
        fail_msg("%s", err.msg);
    return pid;
}

static void expect_killed(pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
}

static bool has_kill(const struct sandbox_cgroup *cg)
{
    return faccessat(cg->dirfd, "cgroup.kill", W_OK, 0) == 0;
}

static void test_destroy_kills(void **state)
{
    struct cgroup_base base = need_base();
    struct sandbox_cgroup cg = CGROUP_INIT;
    struct sandbox_spec spec = { 0 };
    struct hutch_err err;
    pid_t pids[3];

    (void)state;
    assert_int_equal(hutch_cgroup_create(&base, own_name(), &spec, &cg, &err), 0);
    if (!has_kill(&cg)) {
        hutch_cgroup_destroy(&cg, 2000, &err);
        hutch_cgroup_base_done(&base);
        print_message("skip: cgroup.kill: needs Linux 5.14\n");
        skip();
    }
    for (size_t i = 0; i < ARRAY_SIZE(pids); i++)
        pids[i] = child_in(&cg);
    if (hutch_cgroup_destroy(&cg, 5000, &err) < 0)
        fail_msg("%s", err.msg);
    assert_false(is_there(&base));
    for (size_t i = 0; i < ARRAY_SIZE(pids); i++)
        expect_killed(pids[i]);
    hutch_cgroup_base_done(&base);
}

static void test_destroy_named(void **state)
{
    struct cgroup_base base = need_base(), none = CGROUP_BASE_INIT;
    struct sandbox_cgroup cg = CGROUP_INIT;
    struct sandbox_spec spec = { 0 };
    struct hutch_err err = { .errnum = -7 };
    pid_t pid;

    (void)state;
    assert_int_equal(hutch_cgroup_destroy_named(&base, own_name(), 2000, &err), 0); /* nothing there */
    assert_int_equal(hutch_cgroup_destroy_named(&none, own_name(), 2000, &err), 0);
    assert_int_equal(err.errnum, -7);
    assert_int_equal(hutch_cgroup_create(&base, own_name(), &spec, &cg, &err), 0);
    pid = child_in(&cg);
    hutch_cgroup_done(&cg); /* as if its hutch had died */
    if (hutch_cgroup_destroy_named(&base, own_name(), 2000, &err) < 0)
        fail_msg("%s", err.msg);
    expect_killed(pid);
    assert_false(is_there(&base));
    hutch_cgroup_base_done(&base);
}

/* What only looks like a group is left alone. */
static void test_destroy_named_elsewhere(void **state)
{
    char dir[] = "/tmp/hutch-test-cgroup.XXXXXX";
    struct cgroup_base base = CGROUP_BASE_INIT;
    struct hutch_err err;

    (void)state;
    assert_non_null(mkdtemp(dir));
    base.dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(mkdirat(base.dirfd, "group", 0700), 0);
    assert_int_equal(hutch_cgroup_destroy_named(&base, "group", 2000, &err), 0);
    assert_int_equal(unlinkat(base.dirfd, "group", AT_REMOVEDIR), 0); /* it is still there */
    hutch_cgroup_base_done(&base);
    assert_int_equal(rmdir(dir), 0);
}

static void write_file(int dirfd, const char *name, const char *text)
{
    auto_fd fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

/* What the files say; a directory with such files stands in for the group. */
static void test_usage_as_the_files_have_it(void **state)
{
    static const struct { const char *name, *text; } files[] = {
        { "memory.peak", "1048576\n" },
        { "pids.peak", "4\n" },
        { "cpu.stat", "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\nnr_periods 0\n" },
        { "memory.events", "low 0\nhigh 0\nmax 3\noom 2\noom_kill 1\n" },
    };
    char dir[] = "/tmp/hutch-test-cgroup.XXXXXX";
    struct sandbox_cgroup cg = CGROUP_INIT;
    struct cgroup_usage usage;

    (void)state;
    assert_non_null(mkdtemp(dir));
    cg.dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        write_file(cg.dirfd, files[i].name, files[i].text);
    hutch_cgroup_read_usage(&cg, &usage);
    assert_int_equal(usage.memory_peak_bytes, 1048576);
    assert_int_equal(usage.pids_peak, 4);
    assert_int_equal(usage.cpu_user_us, 1000);
    assert_int_equal(usage.cpu_system_us, 500);
    assert_int_equal(hutch_cgroup_read_cpu(&cg), 1500);
    assert_int_equal(usage.oom_kills, 1);
    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        assert_int_equal(unlinkat(cg.dirfd, files[i].name, 0), 0);
    hutch_cgroup_done(&cg);
    assert_int_equal(rmdir(dir), 0);
}

/* Those that are less are written where a controller counts; the others stay as they are. Likewise. */
static void test_limits_are_lowered(void **state)
{
    static const struct {
        enum sandbox_limit limit;
        unsigned bit;
        uint64_t from, to;
        const char *file, *want;
    } rows[] = {
        { LIMIT_MEMORY, CGROUP_MEMORY, 64 << 20, 32 << 20, "memory.max", "33554432" },
        { LIMIT_PIDS, CGROUP_PIDS, 10, 5, "pids.max", "8" }, /* and init, and two more */
        { LIMIT_CPUS, CGROUP_CPU, 500, 250, "cpu.max", "25000 100000" },
    };
    char dir[] = "/tmp/hutch-test-cgroup.XXXXXX", text[64];
    struct sandbox_cgroup cg = CGROUP_INIT;
    uint64_t from[LIMIT_COUNT] = { 0 }, to[LIMIT_COUNT];
    struct hutch_err err;

    (void)state;
    assert_non_null(mkdtemp(dir));
    cg.dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        from[rows[i].limit] = rows[i].from;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        memcpy(to, from, sizeof(to));
        to[rows[i].limit] = rows[i].to;
        cg.controllers = (CGROUP_MEMORY | CGROUP_PIDS | CGROUP_CPU) & ~rows[i].bit;
        assert_int_equal(hutch_cgroup_lower(&cg, from, to, 2, &err), 0); /* no file is looked for */
        cg.controllers = rows[i].bit;
        assert_int_equal(hutch_cgroup_lower(&cg, from, from, 2, &err), 0);
        assert_int_equal(hutch_cgroup_lower(&cg, to, from, 2, &err), 0);
        assert_int_equal(hutch_cgroup_lower(&cg, from, to, 2, &err), -1);
        assert_non_null(strstr(err.msg, rows[i].file));
        write_file(cg.dirfd, rows[i].file, "");
        assert_int_equal(hutch_cgroup_lower(&cg, from, to, 2, &err), 0);
        memset(text, 0, sizeof(text));
        {
            auto_fd fd = openat(cg.dirfd, rows[i].file, O_RDONLY | O_CLOEXEC);

            assert_true(hutch_fd_read_full(fd, text, sizeof(text) - 1) > 0);
        }
        assert_string_equal(text, rows[i].want);
        assert_int_equal(unlinkat(cg.dirfd, rows[i].file, 0), 0);
    }
    hutch_cgroup_done(&cg);
    assert_int_equal(rmdir(dir), 0);
}

static void test_usage_of_nothing(void **state)
{
    struct sandbox_cgroup cg = CGROUP_INIT;
    struct cgroup_usage usage;
    struct hutch_err err;

    (void)state;
    hutch_cgroup_read_usage(&cg, &usage);
    assert_true(usage.memory_peak_bytes == UINT64_MAX && usage.pids_peak == UINT64_MAX);
    assert_true(usage.cpu_user_us == UINT64_MAX && usage.cpu_system_us == UINT64_MAX);
    assert_true(usage.oom_kills == 0);
    assert_int_equal(hutch_cgroup_destroy(&cg, 0, &err), 0);
}

/* A sandbox is born in its group, sees it as the root, and leaves nothing behind. */
static void test_sandbox_in_a_group(void **state)
{
    struct cgroup_base base = need_base();
    struct outcome *o = calloc(1, sizeof(*o));
    struct sandbox_spec spec;
    struct hutch_err err;
    struct box box;

    (void)state;
    box_spec(&spec,
             "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; grep ^0:: /proc/self/cgroup; ls /sys/fs 2>/dev/null");
    spec.layers[LAYER_CGROUP] = NEED_REQUIRE;
    if (box_start_in(&spec, &base, own_name(), &box, &err) < 0)
        fail_msg("%s", err.msg);
    assert_true(box.sb.enforcement.layer_active[LAYER_CGROUP]);
    assert_true(is_there(&base));
    box_finish(&box, o);
    if (o->setup_failed)
        fail_msg("%s", o->err.msg);
    assert_string_equal(o->out, "0::/\n");
    assert_true(o->end.cgroup.cpu_user_us != UINT64_MAX && o->end.cgroup.cpu_user_us > 0);
    assert_false(is_there(&base));
    hutch_spec_done(&spec);
    hutch_cgroup_base_done(&base);
    free(o);
}

/* The group goes too when nothing could be started, and when the name is taken the other's stays. */
static void test_failures_leave_no_group(void **state)
{
    struct cgroup_base base = need_base();
    struct sandbox_cgroup other = CGROUP_INIT;
    struct sandbox_spec spec, empty = { 0 };
    struct hutch_err err;
    struct box box;

    (void)state;
    box_spec(&spec, "exit 0");
    spec.limits_need = NEED_REQUIRE;
    spec.limits[LIMIT_MEMORY] = 1 << 30;
    if (!(base.controllers & CGROUP_MEMORY)) {
        assert_int_equal(box_start_in(&spec, &base, own_name(), &box, &err), -1);
        assert_memory_equal(err.msg, "the policy requires that a cgroup enforces the limit 'memory'", 61);
        assert_false(is_there(&base));
    }
    spec.limits_need = NEED_TRY;
    spec.layers[LAYER_CGROUP] = NEED_REQUIRE;
    assert_int_equal(hutch_cgroup_create(&base, own_name(), &empty, &other, &err), 0);
    assert_int_equal(box_start_in(&spec, &base, own_name(), &box, &err), -1);
    assert_memory_equal(err.msg, "the policy requires a cgroup: make the cgroup '", 47);
    assert_int_equal(err.errnum, EEXIST);
    assert_true(is_there(&base));
    assert_int_equal(hutch_cgroup_destroy(&other, 2000, &err), 0);
    hutch_spec_done(&spec);
    hutch_cgroup_base_done(&base);
}

/* A frozen group stands still, its numbers can be read, and it can be killed. */
static void test_freeze(void **state)
{
    struct cgroup_base base = need_base();
    struct sandbox_cgroup cg = CGROUP_INIT;
    struct sandbox_spec spec = { 0 };
    struct cgroup_now before, after;
    struct hutch_err err;
    char text[16];
    int status;
    pid_t pid;

    (void)state;
    assert_int_equal(hutch_cgroup_freeze(&cg, true), -1);
    assert_int_equal(errno, ENOENT);
    assert_false(hutch_cgroup_is_frozen(&cg));
    if (hutch_cgroup_create(&base, own_name(), &spec, &cg, &err) < 0)
        fail_msg("%s", err.msg);
    pid = fork();
    if (pid == 0)
        for (;;)
            ;
    snprintf(text, sizeof(text), "%d", pid);
    assert_int_equal(hutch_fd_write_file_at(cg.dirfd, "cgroup.procs", text, &err), 0);
    assert_int_equal(hutch_cgroup_freeze(&cg, true), 0);
    for (int i = 0; i < 5000 && !hutch_cgroup_is_frozen(&cg); i++)
        usleep(1000);
    assert_true(hutch_cgroup_is_frozen(&cg));
    hutch_cgroup_read_now(&cg, &before);
    usleep(100000);
    hutch_cgroup_read_now(&cg, &after);
    assert_true(after.cpu_us != UINT64_MAX && after.cpu_us == before.cpu_us);
    assert_int_equal(hutch_cgroup_freeze(&cg, false), 0);
    for (int i = 0; i < 5000 && after.cpu_us == before.cpu_us; i++, hutch_cgroup_read_now(&cg, &after))
        usleep(1000);
    assert_true(after.cpu_us > before.cpu_us);
    assert_int_equal(hutch_cgroup_freeze(&cg, true), 0);
    assert_int_equal(hutch_cgroup_destroy(&cg, 5000, &err), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    hutch_cgroup_base_done(&base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_base_or_a_reason),
        cmocka_unit_test(test_create_and_destroy),
        cmocka_unit_test(test_limits_are_written),
        cmocka_unit_test(test_limits_are_lowered),
        cmocka_unit_test(test_destroy_kills),
        cmocka_unit_test(test_destroy_named),
        cmocka_unit_test(test_freeze),
        cmocka_unit_test(test_destroy_named_elsewhere),
        cmocka_unit_test(test_usage_as_the_files_have_it),
        cmocka_unit_test(test_usage_of_nothing),
        cmocka_unit_test(test_sandbox_in_a_group),
        cmocka_unit_test(test_failures_leave_no_group),
    };

    alarm(100); /* ends a test that hangs */
    return cmocka_run_group_tests_name("cgroup", tests, NULL, NULL);
}

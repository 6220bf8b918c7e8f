/* test_userns.c - whose host ids a sandbox has, and that the maps say so. */
#include "sandbox/userns.h"

#include "sandbox/fd.h"
#include "sandbox/spec.h"

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

static void test_plan(void **state)
{
    struct id_plan plan;
    struct hutch_err err;

    (void)state;
    if (hutch_userns_plan(&plan, &err) < 0)
        fail_msg("%s", err.msg);
    if (geteuid() != 0) {
        assert_int_equal(plan.host_uid, geteuid());
        assert_int_equal(plan.host_gid, getegid());
        assert_false(plan.is_mapped_away);
        assert_false(plan.can_mount);
    } else {
        assert_true(plan.is_mapped_away);
        assert_true(plan.can_mount);
    }
    assert_int_not_equal(plan.host_uid, 0);
    assert_int_not_equal(plan.host_gid, 0);
}

/* Root without the right to become another user: no plan at all, rather than a sandbox of root's. */
static void test_root_without_setuid_is_refused(void **state)
{
    int status;
    pid_t pid;

    (void)state;
    if (geteuid() != 0) {
        print_message("skip: this is about uid 0\n");
        skip();
    }
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        cap_t caps = cap_get_proc();
        cap_value_t drop[] = { CAP_SETUID };
        struct id_plan plan;
        struct hutch_err err = { .msg = "" };

        if (cap_set_flag(caps, CAP_EFFECTIVE, 1, drop, CAP_CLEAR) < 0 || cap_set_proc(caps) < 0)
            _exit(1);
        if (hutch_userns_plan(&plan, &err) != -1 || err.errnum != 0)
            _exit(2);
        _exit(strncmp(err.msg, "refuse to run a sandbox as uid 0 of the host: uid ", 50) == 0 &&
                      strstr(err.msg, "call hutch as an ordinary user") ? 0 : 3);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* A child in a new user namespace that waits at a pipe; -1 in *@ret_pid where there are none. */
static void test_maps_and_entering(void **state)
{
    struct sandbox_spec spec = { .uid_inside = 1000, .gid_inside = 1001 };
    struct id_plan plan;
    struct hutch_err err;
    int ready[2], go[2], status;
    char c, path[64], *map;
    size_t len;
    pid_t pid;
    unsigned in, out, count;

    (void)state;
    assert_int_equal(hutch_userns_plan(&plan, &err), 0);
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    assert_int_equal(pipe2(go, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        gid_t groups[64];

        close(go[1]);
        if (unshare(CLONE_NEWUSER) < 0)
            _exit(77);
        if (hutch_fd_write_all(ready[1], "r", 1) < 0 || read(go[0], &c, 1) != 0)
            _exit(1);
        if (hutch_userns_enter(&spec, &plan, &err) < 0)
            _exit(2);
        if (getuid() != 1000 || geteuid() != 1000 || getgid() != 1001 || getegid() != 1001)
            _exit(3);
        if (plan.is_mapped_away && getgroups(64, groups) != 0)
            _exit(4);
        {
            cap_t caps = cap_get_proc(); /* what building the sandbox needs is still there */
            cap_flag_value_t value = CAP_CLEAR;

            cap_get_flag(caps, CAP_SYS_ADMIN, CAP_EFFECTIVE, &value);
            if (value != CAP_SET)
                _exit(5);
        }
        _exit(0);
    }
    close(ready[1]);
    close(go[0]);
    if (read(ready[0], &c, 1) != 1) {
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(WEXITSTATUS(status), 77);
        print_message("skip: user namespaces: not for this user here\n");
        skip();
    }
    if (hutch_userns_write_maps(pid, &spec, &plan, &err) < 0)
        fail_msg("%s", err.msg);
    snprintf(path, sizeof(path), "/proc/%d/uid_map", pid);
    assert_int_equal(hutch_fd_slurp_path(path, 1000, &map, &len, &err), 0);
    assert_int_equal(sscanf(map, "%u %u %u", &in, &out, &count), 3);
    assert_int_equal(in, 1000);
    assert_int_equal(out, plan.host_uid);
    assert_int_equal(count, 1);
    assert_ptr_equal(strchr(map, '\n'), map + len - 1); /* one line: no other user is mapped */
    free(map);
    snprintf(path, sizeof(path), "/proc/%d/gid_map", pid);
    assert_int_equal(hutch_fd_slurp_path(path, 1000, &map, &len, &err), 0);
    assert_int_equal(sscanf(map, "%u %u %u", &in, &out, &count), 3);
    assert_int_equal(in, 1001);
    assert_int_equal(out, plan.host_gid);
    assert_int_equal(count, 1);
    free(map);
    assert_int_equal(hutch_userns_write_maps(pid, &spec, &plan, &err), -1); /* the kernel takes a map once */
    assert_int_equal(err.errnum, EPERM);
    close(go[1]);
    close(ready[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void test_maps_of_nobody(void **state)
{
    struct sandbox_spec spec = { .uid_inside = 1000, .gid_inside = 1000 };
    struct id_plan plan = { .host_uid = geteuid(), .host_gid = getegid() };
    struct hutch_err err;
    pid_t pid = fork();
    char want[128];

    (void)state;
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(hutch_userns_write_maps(pid, &spec, &plan, &err), -1);
    snprintf(want, sizeof(want), "open '/proc/%d' (is /proc mounted?): No such file or directory", pid);
    assert_string_equal(err.msg, want);
}

static void test_idmap(void **state)
{
    struct id_plan plan;
    struct hutch_err err;
    int fd = -1;

    (void)state;
    assert_int_equal(hutch_userns_plan(&plan, &err), 0);
    if (!plan.is_mapped_away) {
        assert_int_equal(hutch_userns_open_idmap(12345, 54321, &plan, &fd, &err), -1); /* not an ordinary user's to
                                                                                        * give */
        assert_int_equal(fd, -1);
        assert_int_equal(err.errnum, EPERM);
    } else {
        struct stat ours, theirs;

        if (hutch_userns_open_idmap(12345, 54321, &plan, &fd, &err) < 0)
            fail_msg("%s", err.msg);
        assert_int_equal(fstat(fd, &theirs), 0);
        assert_int_equal(stat("/proc/self/ns/user", &ours), 0);
        assert_true(ours.st_ino != theirs.st_ino);
        close(fd);
    }
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* the child that made it is reaped */
    assert_int_equal(errno, ECHILD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_root_without_setuid_is_refused),
        cmocka_unit_test(test_maps_and_entering),
        cmocka_unit_test(test_maps_of_nobody),
        cmocka_unit_test(test_idmap),
    };

    return cmocka_run_group_tests_name("userns", tests, NULL, NULL);
}

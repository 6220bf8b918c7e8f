/* test_state.c - lock files of runs: taken by one run at a time, reused when nothing is left of the last, cleaned when
 * their holder died. */
#include "runtime/run/state.h"

#include "sandbox/fd.h"
#include "sandbox/rmtree.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>

#include <cmocka.h>

struct place {
    char dir[48], home[64]; /* home is below dir and not there yet */
    int dirfd;
};

static int set_up(void **state)
{
    struct place *p = calloc(1, sizeof(*p));

    strcpy(p->dir, "/tmp/hutch-test-state.XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    snprintf(p->home, sizeof(p->home), "%s/a/home", p->dir);
    p->dirfd = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(p->dirfd >= 0);
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    struct place *p = *state;
    struct hutch_err err = { .msg = "" };

    if (hutch_rmtree(p->dirfd, "a", &err) < 0)
        fail_msg("%s", err.msg);
    close(p->dirfd);
    assert_int_equal(rmdir(p->dir), 0);
    free(p);
    return 0;
}

static void open_ok(const struct place *p, struct run_state *ret)
{
    struct hutch_err err;

    if (hutch_state_open(p->home, ret, &err) < 0)
        fail_msg("%s", err.msg);
}

static void close_ok(struct run_state *s)
{
    struct hutch_err err;

    if (hutch_state_close(s, &err) < 0)
        fail_msg("%s", err.msg);
}

static void make_data(struct run_state *s, char **ret_path)
{
    struct hutch_err err;

    if (hutch_state_make_data(s, ret_path, &err) < 0)
        fail_msg("%s", err.msg);
}

static bool is_there(const struct place *p, const char *below_home)
{
    char path[192];

    snprintf(path, sizeof(path), "%s/%s", p->home, below_home);
    return faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void write_text(const struct place *p, const char *below_home, const char *text)
{
    char path[192];
    auto_fd fd = -1;

    snprintf(path, sizeof(path), "%s/%s", p->home, below_home);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(hutch_fd_write_all(fd, text, strlen(text)), 0);
}

static off_t size_of(const struct place *p, const char *below_home)
{
    struct stat st;
    char path[192];

    snprintf(path, sizeof(path), "%s/%s", p->home, below_home);
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

static void test_a_start_makes_its_home(void **state)
{
    struct place *p = *state;
    struct run_state s = RUN_STATE_INIT;
    char want[32];
    struct stat st;

    open_ok(p, &s);
    assert_int_equal(strlen(s.id), 16);
    assert_int_equal(strspn(s.id, "0123456789abcdef"), 16);
    snprintf(want, sizeof(want), "hutch-%s", s.id);
    assert_string_equal(s.cgroup_name, want);
    assert_string_equal(s.home, p->home);
    assert_string_equal(s.data_name, "0.data");
    assert_int_equal(fstat(s.home_dirfd, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(fstat(s.runs_dirfd, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_false(is_there(p, "runs/0.data")); /* only when asked for */
    close_ok(&s);
    assert_int_equal(s.lock_fd, -1);
    assert_int_equal(s.home_dirfd, -1);
    assert_null(s.home);
    close_ok(&s); /* twice does no harm */
}

static void test_an_untouched_directory_is_reused(void **state)
{
    struct place *p = *state;
    char ids[3][17];
    struct stat st[3];

    for (int i = 0; i < 3; i++) {
        struct run_state s = RUN_STATE_INIT;
        char *path = NULL, want[128];

        open_ok(p, &s);
        strcpy(ids[i], s.id);
        make_data(&s, &path);
        snprintf(want, sizeof(want), "%s/runs/0.data", p->home);
        assert_string_equal(path, want);
        assert_int_equal(stat(path, &st[i]), 0);
        assert_int_equal(st[i].st_mode & 07777, 0755);
        free(path);
        close_ok(&s);
    }
    assert_string_not_equal(ids[0], ids[1]);
    assert_string_not_equal(ids[1], ids[2]);
    assert_false(is_there(p, "runs/1")); /* one at a time needs one lock file */
    assert_int_equal(size_of(p, "runs/0"), 0);
}

static void leave_file(const char *path)
{
    auto_fd fd = openat(AT_FDCWD, path, O_PATH | O_CLOEXEC);
    auto_fd made = openat(fd, "left", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    assert_true(made >= 0);
}
static void leave_deleted_file(const char *path)
{
    char name[160];

    leave_file(path);
    snprintf(name, sizeof(name), "%s/left", path);
    assert_int_equal(unlink(name), 0);
}
static void leave_mode(const char *path)
{
    assert_int_equal(chmod(path, 01777), 0);
}
static void leave_no_mode(const char *path)
{
    assert_int_equal(chmod(path, 0), 0);
}
static void leave_mode_and_back(const char *path)
{
    assert_int_equal(chmod(path, 0700), 0);
    assert_int_equal(chmod(path, 0755), 0);
}
static void leave_xattr(const char *path)
{
    assert_int_equal(setxattr(path, "user.left", "x", 1, 0), 0);
}
static void leave_tree(const char *path)
{
    char name[160];

    snprintf(name, sizeof(name), "%s/d", path);
    assert_int_equal(mkdir(name, 0700), 0);
    leave_file(name);
    assert_int_equal(chmod(name, 0), 0);
}
static void leave_link(const char *path)
{
    char name[160];

    snprintf(name, sizeof(name), "%s/etc", path);
    assert_int_equal(symlink("/etc", name), 0);
}
static void leave_old_times(const char *path)
{
    struct timespec times[2] = { { .tv_sec = 1 }, { .tv_sec = 1 } };

    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}
static void leave_replaced(const char *path)
{
    auto_fd fd = -1;

    assert_int_equal(rmdir(path), 0);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
}
static void leave_link_in_its_place(const char *path)
{
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(symlink("/etc", path), 0);
}

static const struct { const char *label; void (*leave)(const char *path); } remains[] = {
    { "a file", leave_file },
    { "a file made and deleted", leave_deleted_file },
    { "another mode", leave_mode },
    { "no permission at all", leave_no_mode },
    { "another mode, and the old one again", leave_mode_and_back },
    { "an extended attribute", leave_xattr },
    { "a directory that cannot be read", leave_tree },
    { "a link", leave_link },
    { "other times", leave_old_times },
    { "a file in its place", leave_replaced },
    { "a link in its place", leave_link_in_its_place },
};

/* Whatever a run did to its directory, the next one gets a fresh one. */
static void check_fresh(const struct place *p)
{
    struct run_state s = RUN_STATE_INIT;
    char *path = NULL;
    struct stat st;

    open_ok(p, &s);
    assert_string_equal(s.data_name, "0.data");
    make_data(&s, &path);
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISDIR(st.st_mode));
    assert_int_equal(st.st_mode & 07777, 0755);
    assert_int_equal(st.st_uid, geteuid());
    assert_true(st.st_mtim.tv_sec > 1);
    assert_int_equal(listxattr(path, NULL, 0), 0);
    assert_int_equal(rmdir(path), 0); /* empty */
    free(path);
    close_ok(&s);
}

/* The kernel's clock has ticks, and what happens within the tick of the mkdir leaves no trace in the times; the way
 * back to the old mode leaves none elsewhere either. Waits for the tick to pass. */
static void pass_the_tick(const char *path)
{
    struct stat st;
    struct timespec now;

    assert_int_equal(stat(path, &st), 0);
    do
        clock_gettime(CLOCK_REALTIME_COARSE, &now);
    while (now.tv_sec == st.st_ctim.tv_sec && now.tv_nsec <= st.st_ctim.tv_nsec);
}

static void test_a_touched_directory_is_not_reused(void **state)
{
    struct place *p = *state;

    for (size_t i = 0; i < ARRAY_SIZE(remains); i++) {
        struct run_state s = RUN_STATE_INIT;
        char *path = NULL;
        struct stat st;

        print_message("  %s\n", remains[i].label);
        open_ok(p, &s);
        make_data(&s, &path);
        pass_the_tick(path);
        remains[i].leave(path);
        close_ok(&s);
        assert_int_equal(lstat(path, &st), -1); /* gone with its run, not only at the next */
        free(path);
        check_fresh(p);
    }
}

/* A run whose hutch is killed: the kernel gives the lock back, and the next start finds what is left. */
static void test_what_a_dead_run_left(void **state)
{
    struct place *p = *state;

    for (size_t i = 0; i < ARRAY_SIZE(remains); i++) {
        int status;
        pid_t pid;

        print_message("  %s\n", remains[i].label);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            struct run_state s = RUN_STATE_INIT;
            struct hutch_err err;
            char *path;

            if (hutch_state_open(p->home, &s, &err) < 0 || hutch_state_make_data(&s, &path, &err) < 0)
                _exit(1);
            pass_the_tick(path);
            remains[i].leave(path);
            kill(getpid(), SIGKILL);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        assert_true(is_there(p, "runs/0"));
        check_fresh(p);
    }
    assert_false(is_there(p, "runs/1"));
}

static void test_live_runs_keep_theirs(void **state)
{
    enum { N = 20 };
    struct place *p = *state;
    struct run_state s[N];
    char *paths[N];

    for (int i = 0; i < N; i++) {
        char want[24];

        s[i] = (struct run_state)RUN_STATE_INIT;
        open_ok(p, &s[i]);
        snprintf(want, sizeof(want), "%d.data", i);
        assert_string_equal(s[i].data_name, want);
        make_data(&s[i], &paths[i]);
        leave_file(paths[i]);
    }
    for (int i = 0; i < N; i++) {
        char left[160];

        snprintf(left, sizeof(left), "%s/left", paths[i]);
        assert_int_equal(access(left, F_OK), 0); /* later starts swept nothing of a live run */
    }
    close_ok(&s[7]);
    open_ok(p, &s[7]);
    assert_string_equal(s[7].data_name, "7.data"); /* the lowest that is free */
    for (int i = 0; i < N; i++) {
        close_ok(&s[i]);
        assert_int_equal(access(paths[i], F_OK), -1);
        free(paths[i]);
    }
    assert_false(is_there(p, "runs/20"));
}

/* Many at once, in processes: none share a lock file. Each holds its own until all have one. */
static void test_starts_at_once(void **state)
{
    enum { N = 8 };
    struct place *p = *state;
    int report[2], hold[2], status;
    char names[N][24];
    pid_t pids[N];

    assert_int_equal(pipe2(report, O_CLOEXEC), 0);
    assert_int_equal(pipe2(hold, O_CLOEXEC), 0);
    for (int i = 0; i < N; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            struct run_state s = RUN_STATE_INIT;
            struct hutch_err err;
            char *path, c;

            close(hold[1]);
            if (hutch_state_open(p->home, &s, &err) < 0 || hutch_state_make_data(&s, &path, &err) < 0)
                _exit(1);
            leave_file(path);
            if (hutch_fd_write_all(report[1], s.data_name, sizeof(s.data_name)) < 0 || read(hold[0], &c, 1) != 0)
                _exit(2);
            _exit(hutch_state_close(&s, &err) == 0 ? 0 : 3);
        }
    }
    close(report[1]);
    close(hold[0]);
    for (int i = 0; i < N; i++) {
        assert_int_equal(hutch_fd_read_full(report[0], names[i], sizeof(names[i])), sizeof(names[i]));
        for (int j = 0; j < i; j++)
            assert_string_not_equal(names[i], names[j]);
    }
    close(hold[1]);
    close(report[0]);
    for (int i = 0; i < N; i++) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
}

static void test_keeping(void **state)
{
    struct place *p = *state;
    struct run_state s = RUN_STATE_INIT;
    struct hutch_err err;
    char *path = NULL, *kept = NULL, want[128], left[128];

    open_ok(p, &s);
    make_data(&s, &path);
    leave_file(path);
    assert_int_equal(hutch_state_keep_data(&s, &kept, &err), 0);
    snprintf(want, sizeof(want), "%s/outputs/%s", p->home, s.id);
    assert_string_equal(kept, want);
    assert_int_equal(access(path, F_OK), -1);
    close_ok(&s);
    check_fresh(p);
    snprintf(left, sizeof(left), "%s/left", kept);
    assert_int_equal(access(left, F_OK), 0); /* neither the end of its run nor the next start takes it away */
    free(path);
    free(kept);
}

static void test_keeping_nothing(void **state)
{
    struct place *p = *state;
    struct run_state s = RUN_STATE_INIT;
    struct hutch_err err;
    char *kept = NULL;

    open_ok(p, &s);
    assert_int_equal(hutch_state_keep_data(&s, &kept, &err), -1);
    assert_string_equal(err.msg, "keep the files of a run: No such file or directory");
    assert_null(kept);
    close_ok(&s);
}

/* The code inside may have closed the directory, and the place for results may be taken: nothing is lost. */
static void test_keeping_what_resists(void **state)
{
    struct place *p = *state;
    struct run_state s = RUN_STATE_INIT;
    struct hutch_err err;
    char *data = NULL, *kept = NULL, path[300];

    open_ok(p, &s);
    assert_int_equal(hutch_state_make_data(&s, &data, &err), 0);
    assert_int_equal(chmod(data, 0), 0);
    snprintf(path, sizeof(path), "%s/outputs", p->home);
    assert_int_equal(close(open(path, O_CREAT | O_EXCL | O_WRONLY, 0600)), 0);
    assert_int_equal(hutch_state_keep_data(&s, &kept, &err), 0);
    snprintf(path, sizeof(path), "%s/runs/%s.kept", p->home, s.id);
    assert_string_equal(kept, path);
    assert_int_equal(access(kept, R_OK | W_OK | X_OK), 0);
    close_ok(&s);
    open_ok(p, &s);
    assert_int_equal(access(kept, F_OK), 0);
    close_ok(&s);
    free(data);
    free(kept);
}

static void test_notes(void **state)
{
    struct place *p = *state;
    struct run_state s = RUN_STATE_INIT;
    struct cgroup_base none = CGROUP_BASE_INIT, base = CGROUP_BASE_INIT;
    struct hutch_err err;
    char want[256], got[256] = "";

    open_ok(p, &s);
    assert_int_equal(hutch_state_note_cgroup(&s, &none, &err), 0);
    assert_int_equal(size_of(p, "runs/0"), 0); /* no cgroup, no note */
    base.mount = (char *)"/sys/fs/cgroup";
    base.path = (char *)"/a/b";
    base.dirfd = 0;
    assert_int_equal(hutch_state_note_cgroup(&s, &base, &err), 0);
    snprintf(want, sizeof(want), "/sys/fs/cgroup/a/b\n%s\n", s.cgroup_name);
    assert_true(pread(s.lock_fd, got, sizeof(got) - 1, 0) > 0);
    assert_string_equal(got, want);
    close_ok(&s);
    assert_int_equal(size_of(p, "runs/0"), 0);
}

/* A note is only ever ours, but it is read as if it were not: nothing but a cgroup is removed, nobody outside of one is
 * killed, and a lock file with nonsense in it works again. */
static void test_hostile_notes(void **state)
{
    struct place *p = *state;
    char victim[96], parent[64], here[160], note[512];
    static const struct { const char *label, *format; bool unusable; } rows[] = {
        { "an ordinary directory", "%1$s\nvictim\n", false },
        { "an ordinary directory with the name of a group", "%1$s\nhutch-0123456789abcdef\n", false },
        { "the directory itself", "%1$s/victim\n.\n", false },
        { "its parent", "%1$s/victim\n..\n", false },
        { "a path as name", "/\n%1$s/victim\n", false },
        { "no directory", "\nvictim\n", false },
        { "a relative directory", "victim\nvictim\n", false },
        { "a file as directory", "/etc/passwd\nx\n", false },
        { "no name", "%1$s\n\n", false },
        { "cut short", "%1$s\nvict", false },
        { "one line", "%1$s", false },
        { "empty lines", "\n\n\n\n", false },
        { "garbage", "\377\376\001\n\002\n", false },
    };

    {
        struct run_state s = RUN_STATE_INIT;

        open_ok(p, &s);
        close_ok(&s);
    }
    snprintf(parent, sizeof(parent), "%s/a", p->dir);
    snprintf(victim, sizeof(victim), "%s/victim", parent);
    assert_int_equal(mkdir(victim, 0700), 0);
    snprintf(here, sizeof(here), "%s/hutch-0123456789abcdef", parent);
    assert_int_equal(mkdir(here, 0700), 0);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct run_state s = RUN_STATE_INIT;

        print_message("  %s\n", rows[i].label);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(note, sizeof(note), rows[i].format, parent);
#pragma GCC diagnostic pop
        write_text(p, "runs/0", note);
        open_ok(p, &s);
        assert_string_equal(s.data_name, "0.data");
        assert_int_equal(size_of(p, "runs/0"), 0);
        close_ok(&s);
        assert_int_equal(access(victim, F_OK), 0);
        assert_int_equal(access(here, F_OK), 0);
    }
}

/* More than any note can be: the lock file is left alone, and the run takes another. */
static void test_a_huge_note(void **state)
{
    struct place *p = *state;
    struct run_state s = RUN_STATE_INIT;
    char path[128];

    open_ok(p, &s);
    close_ok(&s);
    snprintf(path, sizeof(path), "%s/runs/0", p->home);
    assert_int_equal(truncate(path, 1ll << 40), 0);
    open_ok(p, &s);
    assert_string_equal(s.data_name, "1.data");
    close_ok(&s);
}

/* What is no lock file is left alone, and what is in the way of one does not stop a run. */
static void test_strange_things_among_the_lock_files(void **state)
{
    struct place *p = *state;
    struct run_state s = RUN_STATE_INIT;
    char path[128];

    open_ok(p, &s);
    close_ok(&s);
    snprintf(path, sizeof(path), "%s/runs/0", p->home);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/runs/1", p->home);
    assert_int_equal(symlink("2", path), 0);
    write_text(p, "runs/notes.txt", "mine");
    write_text(p, "runs/99999999999999999999", "mine");
    write_text(p, "runs/-1", "mine");
    write_text(p, "runs/4096", "mine");
    open_ok(p, &s);
    assert_string_equal(s.data_name, "2.data");
    close_ok(&s);
    assert_int_equal(size_of(p, "runs/notes.txt"), 4);
    assert_int_equal(size_of(p, "runs/99999999999999999999"), 4);
    assert_int_equal(size_of(p, "runs/-1"), 4);
    assert_int_equal(size_of(p, "runs/4096"), 4);
}

static void test_no_home(void **state)
{
    struct place *p = *state;
    struct run_state s = RUN_STATE_INIT;
    struct hutch_err err;
    char file[128];

    static const struct { const char *home, *begins; int errnum; } rows[] = {
        { "/dev/null/home", "keep the state of a run: ", ENOTDIR },
        { "/proc/home", "keep the state of a run: ", ENOENT },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        assert_int_equal(hutch_state_open(rows[i].home, &s, &err), -1);
        assert_memory_equal(err.msg, rows[i].begins, strlen(rows[i].begins));
        assert_non_null(strstr(err.msg, rows[i].home));
        assert_int_equal(err.errnum, rows[i].errnum);
        assert_int_equal(s.lock_fd, -1); /* untouched */
    }
    open_ok(p, &s);
    close_ok(&s);
    {
        struct hutch_err ignored;
        auto_fd home = open(p->home, O_PATH | O_DIRECTORY | O_CLOEXEC);

        assert_int_equal(hutch_rmtree(home, "runs", &ignored), 0);
        assert_int_equal(symlinkat("/tmp", home, "runs"), 0);
        assert_int_equal(hutch_state_open(p->home, &s, &err), -1); /* not through a link */
        assert_string_equal(err.msg, "keep the state of a run: open the directory 'runs': Not a directory");
        assert_int_equal(unlinkat(home, "runs", 0), 0);
    }
    snprintf(file, sizeof(file), "%s/runs", p->home);
    close(open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    assert_int_equal(hutch_state_open(p->home, &s, &err), -1);
    assert_string_equal(err.msg, "keep the state of a run: open the directory 'runs': Not a directory");
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_a_start_makes_its_home),
        T(test_an_untouched_directory_is_reused),
        T(test_a_touched_directory_is_not_reused),
        T(test_what_a_dead_run_left),
        T(test_live_runs_keep_theirs),
        T(test_starts_at_once),
        T(test_keeping),
        T(test_keeping_nothing),
        T(test_keeping_what_resists),
        T(test_notes),
        T(test_hostile_notes),
        T(test_a_huge_note),
        T(test_strange_things_among_the_lock_files),
        T(test_no_home),
    };

    return cmocka_run_group_tests_name("state", tests, NULL, NULL);
}

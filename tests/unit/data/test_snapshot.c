/* test_snapshot.c - the files of a data directory come back as they were, any number of times, whatever lies in it, and
 * are never lost. */
#include "tests/unit/failpoint.h" /* the first: see there */

#include "sandbox/fdpass.h"
#include "sandbox/rmtree.h"
#include "tests/unit/place.h"
#include "runtime/data/changes_wire.h"
#include "runtime/data/snapshot.h"
#include "runtime/launcher/disk.h"
#include "sandbox/userns.h"
#include "runtime/launcher/wire.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>

#include <cmocka.h>

static const struct snapshot_bounds no_bounds = { 0 };
static const struct timespec stamp[] = { { 1000000001, 5 }, { 1234567890, 987654321 } };

static int set_up(void **state)
{
    struct place *p;

    place_set_up(state);
    p = *state;
    assert_int_equal(mkdirat(p->top, "store", 0700), 0);
    p->store = openat(p->top, "store", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(p->store >= 0);
    return 0;
}

static bool is_there(int dirfd, const char *name)
{
    return faccessat(dirfd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int count(int dirfd)
{
    DIR *dir = fdopendir(openat(dirfd, ".", O_RDONLY | O_DIRECTORY));
    int n = -2;

    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static struct stat look(int dirfd, const char *name)
{
    struct stat st;

    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        fail_msg("%s: %s", name, strerror(errno));
    return st;
}

static struct snapshot_report take(struct place *p, const char *name)
{
    struct snapshot_report report = { 0 };
    struct hutch_err err = { 0 };

    if (hutch_snapshot_take(p->data, p->store, name, &no_bounds, &report, &err) < 0)
        fail_msg("%s", err.msg);
    return report;
}

static void restore_with(struct place *p, const char *name, bool resumes)
{
    struct snapshot_report report;
    struct hutch_err err = { 0 };

    if (hutch_snapshot_restore(p->data, p->store, name, resumes, &no_bounds, &report, &err) < 0)
        fail_msg("%s", err.msg);
}

static void restore(struct place *p, const char *name)
{
    restore_with(p, name, false);
}

static void change_over(struct place *p, const char *name, const char *keep, bool resumes)
{
    struct snapshot_report report;
    struct hutch_err err = { 0 };

    if (hutch_snapshot_switch(p->data, p->store, name, keep, resumes, &report, &err) < 0)
        fail_msg("%s", err.msg);
}

/* One of everything. */
static void furnish(struct place *p)
{
    auto_fd sparse = -1;

    put(p->top, "secret", "secret");
    mkdirat(p->data, "d", 0750);
    mkdirat(p->data, "d/empty", 0700);
    put(p->data, "d/a", "text of a");
    assert_int_equal(linkat(p->data, "d/a", p->data, "other name", 0), 0);
    assert_int_equal(fchmodat(p->data, "d/a", 0640, 0), 0);
    put(p->data, "\xff\n\x01", "odd");
    put(p->data, "none", "");
    assert_int_equal(symlinkat("../secret", p->data, "link"), 0);
    assert_int_equal(symlinkat("..", p->data, "up"), 0);
    assert_int_equal(symlinkat("nowhere", p->data, "dangling"), 0);
    assert_int_equal(linkat(p->data, "dangling", p->data, "dangling too", 0), 0);
    mkfifoat(p->data, "fifo", 0600);
    assert_int_equal(fchmodat(p->data, "fifo", 0622, 0), 0);
    put_socket(p, "socket");
    sparse = openat(p->data, "sparse", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(pwrite(sparse, "end", 3, 64 << 20), 3);
    assert_int_equal(ftruncate(sparse, 128 << 20), 0);
    assert_int_equal(utimensat(p->data, "d/a", stamp, 0), 0);
    assert_int_equal(utimensat(p->data, "link", stamp, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(utimensat(p->data, "d", stamp, 0), 0);
    assert_int_equal(futimens(p->data, stamp), 0);
}

static void assert_time(struct stat st)
{
    assert_int_equal(st.st_mtim.tv_sec, stamp[1].tv_sec);
    assert_int_equal(st.st_mtim.tv_nsec, stamp[1].tv_nsec);
}

static void assert_furnished(int dirfd)
{
    auto_fd sparse = -1;
    char buf[64] = "";

    assert_int_equal(count(dirfd), 11);
    assert_text(dirfd, "d/a", "text of a");
    assert_text(dirfd, "\xff\n\x01", "odd");
    assert_text(dirfd, "none", "");
    assert_int_equal(look(dirfd, "d/a").st_ino, look(dirfd, "other name").st_ino);
    assert_int_equal(look(dirfd, "d/a").st_nlink, 2);
    assert_int_equal(look(dirfd, "d/a").st_mode, S_IFREG | 0640);
    assert_int_equal(look(dirfd, "d").st_mode, S_IFDIR | 0750);
    assert_int_equal(look(dirfd, "d/empty").st_mode, S_IFDIR | 0700);
    assert_int_equal(readlinkat(dirfd, "link", buf, sizeof(buf)), 9);
    assert_memory_equal(buf, "../secret", 9);
    assert_int_equal(look(dirfd, "dangling").st_ino, look(dirfd, "dangling too").st_ino);
    assert_int_equal(look(dirfd, "up").st_mode & S_IFMT, S_IFLNK);
    assert_int_equal(look(dirfd, "fifo").st_mode, S_IFIFO | 0622);
    assert_int_equal(look(dirfd, "socket").st_mode & S_IFMT, S_IFSOCK);
    assert_time(look(dirfd, "d/a"));
    assert_time(look(dirfd, "link"));
    assert_time(look(dirfd, "d"));
    assert_time(look(dirfd, "."));
    assert_int_equal(look(dirfd, "sparse").st_size, 128 << 20);
    assert_true(look(dirfd, "sparse").st_blocks < 1000);
    sparse = openat(dirfd, "sparse", O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(sparse, buf, 3, 64 << 20), 3);
    assert_memory_equal(buf, "end", 3);
}

static void wreck(struct place *p)
{
    struct hutch_err err;

    put(p->data, "d/a", "other text");
    put(p->data, "new", "new");
    unlinkat(p->data, "link", 0);
    assert_int_equal(hutch_rmtree(p->data, "d", &err), 0);
    put(p->data, "d", "no directory any more");
    mkdirat(p->data, "link", 0755);
    put(p->data, "link/x", "x");
    assert_int_equal(fchmod(p->data, 0700), 0);
}

static void test_roll_back_twice(void **state)
{
    struct place *p = *state;
    struct snapshot_report report;
    struct stat before = look(p->data, ".");
    auto_fd fd = -1;

    furnish(p);
    report = take(p, "one");
    assert_int_equal(report.entries, 13);
    assert_true(report.bytes_copied + report.bytes_cloned < 1 << 20);
    fd = openat(p->store, "one", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_furnished(fd);
    for (int i = 0; i < 2; i++) {
        wreck(p);
        restore(p, "one");
        assert_furnished(p->data);
        assert_int_equal(look(p->data, ".").st_ino, before.st_ino);
        assert_int_equal(look(p->data, ".").st_mode, before.st_mode);
        assert_int_equal(count(p->store), 1);
    }
    assert_text(p->top, "secret", "secret");
    put(p->data, "d/a", "changed"); /* what was brought back is no part of the state */
    assert_text(p->store, "one/d/a", "text of a");
}

static void test_attributes(void **state)
{
    struct place *p = *state;
    char value[16];
    auto_fd fd = -1;

    put(p->data, "a", "a");
    mkdirat(p->data, "d", 0755);
    fd = openat(p->data, "a", O_RDWR | O_CLOEXEC);
    if (fsetxattr(fd, "user.color", "blue", 4, 0) < 0)
        skip(); /* not on this file system */
    assert_int_equal(fsetxattr(p->data, "user.top", "1", 1, 0), 0);
    take(p, "one");
    assert_int_equal(fremovexattr(p->data, "user.top"), 0);
    assert_int_equal(fsetxattr(p->data, "user.more", "1", 1, 0), 0);
    put(p->data, "a", "b");
    unlinkat(p->data, "a", 0);
    restore(p, "one");
    hutch_fd_closep(&fd);
    fd = openat(p->data, "a", O_RDWR | O_CLOEXEC);
    assert_int_equal(fgetxattr(fd, "user.color", value, sizeof(value)), 4);
    assert_int_equal(fgetxattr(p->data, "user.top", value, sizeof(value)), 1);
    assert_int_equal(fgetxattr(p->data, "user.more", value, sizeof(value)), -1);
}

static void test_set_user_id_is_not_kept(void **state)
{
    struct place *p = *state;

    put(p->data, "a", "a");
    assert_int_equal(fchmodat(p->data, "a", 06755, 0), 0);
    take(p, "one");
    restore(p, "one");
    assert_int_equal(look(p->data, "a").st_mode, S_IFREG | 0755);
}

static void test_owners(void **state)
{
    struct place *p = *state;

    if (geteuid() != 0)
        skip();
    put(p->data, "a", "a");
    mkdirat(p->data, "d", 0755);
    assert_int_equal(symlinkat("a", p->data, "link"), 0);
    assert_int_equal(fchownat(p->data, "a", 12345, 12346, 0), 0);
    assert_int_equal(fchownat(p->data, "d", 12345, 12346, 0), 0);
    assert_int_equal(fchownat(p->data, "link", 12345, 12346, AT_SYMLINK_NOFOLLOW), 0);
    take(p, "one");
    restore(p, "one");
    assert_int_equal(look(p->data, "a").st_uid, 12345);
    assert_int_equal(look(p->data, "d").st_gid, 12346);
    assert_int_equal(look(p->data, "link").st_uid, 12345);
}

static void test_branches_take_turns(void **state)
{
    struct place *p = *state;
    ino_t a, b;

    put(p->data, "a", "first");
    mkdirat(p->data, "d", 0755);
    put(p->data, "d/x", "first");
    take(p, "two"); /* the fork */
    a = look(p->data, "a").st_ino;
    b = look(p->store, "two/a").st_ino;
    change_over(p, "two", "one", false);
    put(p->data, "d/x", "second");
    assert_int_equal(fchmod(p->data, 0700), 0);
    assert_int_equal(look(p->data, "a").st_ino, b); /* moved and not copied */
    assert_int_equal(look(p->store, "one/a").st_ino, a);
    assert_false(is_there(p->store, "two"));
    change_over(p, "one", "two", false);
    assert_text(p->data, "d/x", "first");
    assert_int_equal(look(p->data, "a").st_ino, a);
    assert_int_equal(look(p->data, ".").st_mode, S_IFDIR | 0755);
    change_over(p, "two", "one", false);
    assert_text(p->data, "d/x", "second");
    assert_int_equal(look(p->data, ".").st_mode, S_IFDIR | 0700);
    assert_int_equal(count(p->store), 1);
}

static void test_bounds(void **state)
{
    static const struct { const char *label; struct snapshot_bounds bounds; const char *part; } rows[] = {
        { "bytes", { .max_bytes = 21 }, "larger than 21 bytes" },
        { "bytes, just enough", { .max_bytes = 40 << 10 }, NULL },
        { "entries", { .max_entries = 5 }, "more than 5 files and directories" },
        { "entries, just enough", { .max_entries = 6 }, NULL },
        { "depth", { .max_depth = 2 }, "more than 2 deep" },
        { "depth, just enough", { .max_depth = 3 }, NULL },
    };
    struct place *p = *state;
    auto_fd fd = -1;

    mkdirat(p->data, "d", 0755);
    mkdirat(p->data, "d/d", 0755);
    mkdirat(p->data, "d/d/d", 0755);
    put(p->data, "d/d/d/a", "0123456789");
    put(p->data, "b", "0123456789");
    fd = openat(p->data, "hole", O_RDWR | O_CREAT, 0644);
    assert_int_equal(ftruncate(fd, 1ll << 40), 0);
    assert_int_equal(pwrite(fd, "end", 3, (1ll << 40) - 3), 3);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct snapshot_report report;
        struct hutch_err err = { 0 };
        int rc = hutch_snapshot_take(p->data, p->store, "one", &rows[i].bounds, &report, &err);

        if (rc != (rows[i].part ? -1 : 0) || (rows[i].part && !strstr(err.msg, rows[i].part)))
            fail_msg("%s: %d, %s", rows[i].label, rc, err.msg);
        if (rows[i].part)
            assert_int_equal(err.errnum, E2BIG);
        else
            assert_int_equal(hutch_rmtree(p->store, "one", &err), 0);
        assert_int_equal(count(p->store), 0);
    }
}

static void test_deepest(void **state)
{
    struct place *p = *state;
    struct snapshot_report report;
    struct hutch_err err = { 0 };
    int fd = dup(p->data);

    for (int i = 0; i <= SNAPSHOT_MAX_DEPTH; i++) {
        int next;

        assert_int_equal(mkdirat(fd, "d", 0755), 0);
        next = openat(fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(next >= 0);
        close(fd);
        fd = next;
        if (i + 1 == SNAPSHOT_MAX_DEPTH) {
            put(fd, "a", "deep");
            take(p, "one");
        }
    }
    close(fd);
    assert_int_equal(hutch_snapshot_take(p->data, p->store, "two", &no_bounds, &report, &err), -1);
    assert_int_equal(err.errnum, E2BIG);
    restore(p, "one");
    take(p, "two");
}

static void test_names(void **state)
{
    static const char *const names[] = { "", ".", "..", "a/b", "a.b", "/a", "012345678901234567890123" };
    struct place *p = *state;
    struct snapshot_report report;
    struct hutch_err err;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        assert_int_equal(hutch_snapshot_take(p->data, p->store, names[i], &no_bounds, &report, &err), -1);
        assert_int_equal(hutch_snapshot_restore(p->data, p->store, names[i], false, &no_bounds, &report, &err), -1);
        assert_int_equal(hutch_snapshot_switch(p->data, p->store, "a", names[i], false, &report, &err), -1);
        assert_int_equal(err.errnum, EINVAL);
    }
    take(p, "one");
    assert_int_equal(hutch_snapshot_take(p->data, p->store, "one", &no_bounds, &report, &err), -1);
    assert_int_equal(err.errnum, EEXIST);
    put(p->data, "a", "a");
    assert_int_equal(hutch_snapshot_restore(p->data, p->store, "none", false, &no_bounds, &report, &err), -1);
    assert_int_equal(err.errnum, ENOENT);
    assert_int_equal(hutch_snapshot_switch(p->data, p->store, "none", "two", false, &report, &err), -1);
    assert_int_equal(err.errnum, ENOENT);
    assert_text(p->data, "a", "a");
    assert_int_equal(count(p->store), 1);
}

static void test_device_is_refused(void **state)
{
    struct place *p = *state;
    struct snapshot_report report;
    struct hutch_err err = { 0 };

    if (mknodat(p->data, "null\n", S_IFCHR | 0666, makedev(1, 3)) < 0)
        skip();
    assert_int_equal(hutch_snapshot_take(p->data, p->store, "one", &no_bounds, &report, &err), -1);
    assert_non_null(strstr(err.msg, "a device cannot be kept: 'null\\x0a'"));
    assert_int_equal(count(p->store), 0);
}

static void test_lease_is_refused(void **state)
{
    struct place *p = *state;
    struct snapshot_report report;
    struct hutch_err err = { 0 };
    pid_t pid;
    int rc;

    put(p->data, "a", "text");
    pid = hold_lease(p->data, "a");
    if (pid < 0)
        skip();
    rc = hutch_snapshot_take(p->data, p->store, "one", &no_bounds, &report, &err);
    end_process(pid);
    assert_int_equal(rc, -1);
    assert_non_null(strstr(err.msg, "holds on to it"));
    assert_int_equal(count(p->store), 0);
}

/* ---- failures half way ---- */

/* Has @run done by an ordinary user who owns the place: root moves what others cannot. Its exit status. */
static int as_ordinary(struct place *p, int (*run)(struct place *p))
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        if (geteuid() == 0) {
            static const char *const names[] = { ".",      "data",  "data/a",    "data/locked",
                                                 "data/z", "store", "store/one", "store/one/new" };

            for (size_t i = 0; i < ARRAY_SIZE(names); i++)
                if (fchownat(p->top, names[i], 65534, 65534, 0) < 0)
                    _exit(100);
            if (setresgid(65534, 65534, 65534) < 0 || setresuid(65534, 65534, 65534) < 0)
                _exit(100);
        }
        _exit(run(p));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int restore_fails(struct place *p)
{
    struct snapshot_report report;
    struct hutch_err err = { 0 };

    if (hutch_snapshot_restore(p->data, p->store, "one", false, &no_bounds, &report, &err) == 0)
        return 1;
    return strstr(err.msg, "move 'locked'") ? 0 : 2;
}

static void test_what_fails_is_put_back(void **state)
{
    struct place *p = *state;

    put(p->data, "new", "state");
    take(p, "one");
    unlinkat(p->data, "new", 0);
    put(p->data, "a", "a");
    put(p->data, "z", "z");
    mkdirat(p->data, "locked",
            0555); /* a directory changes its "..", which takes the right to write to it: rename(2) */
    assert_int_equal(as_ordinary(p, restore_fails), 0);
    assert_int_equal(count(p->data), 3);
    assert_text(p->data, "a", "a");
    assert_text(p->data, "z", "z");
    assert_true(is_there(p->data, "locked"));
    assert_int_equal(count(p->store), 1);
    assert_int_equal(fchmodat(p->data, "locked", 0755, 0), 0);
    restore(p, "one");
    assert_text(p->data, "new", "state");
    assert_int_equal(count(p->data), 1);
}

static int restore_half_fails(struct place *p)
{
    struct snapshot_report report;
    struct hutch_err err = { 0 };

    if (hutch_snapshot_restore(p->data, p->store, "one", true, &no_bounds, &report, &err) == 0)
        return 1;
    return strstr(err.msg, "move 'z'") ? 0 : 2;
}

/* The state's own directory cannot be moved: when the data directory is empty already. */
static void test_what_fails_in_the_second_half_is_put_back(void **state)
{
    struct place *p = *state;

    mkdirat(p->store, "one", 0755);
    put(p->store, "one/new", "state");
    take(p, "unused");
    mkdirat(p->store, "one.in", 0755); /* as if the copy had been made, and broken off then */
    mkdirat(p->store, "one.out.part", 0755);
    mkdirat(p->store, "one.in/z", 0555);
    put(p->store, "one.in/b", "b");
    put(p->data, "a", "a");
    put(p->data, "z", "z");
    mkdirat(p->data, "locked", 0755);
    if (geteuid() == 0)
        for (size_t i = 0; i < 4; i++)
            assert_int_equal(fchownat(p->store,
                                      (const char *const[]){ "one.in", "one.in/z", "one.in/b", "one.out.part" }[i],
                                      65534, 65534, 0),
                             0);
    assert_int_equal(as_ordinary(p, restore_half_fails), 0);
    assert_int_equal(count(p->data), 3);
    assert_text(p->data, "a", "a");
    assert_text(p->data, "z", "z");
    restore(p, "one");
    assert_int_equal(count(p->data), 1);
    assert_text(p->data, "new", "state");
    assert_int_equal(count(p->store), 2);
}

static void clear(int dirfd)
{
    DIR *dir = fdopendir(openat(dirfd, ".", O_RDONLY | O_DIRECTORY));
    const struct dirent *entry;
    struct hutch_err err;

    assert_non_null(dir);
    while ((entry = readdir(dir)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            assert_int_equal(hutch_rmtree(dirfd, entry->d_name, &err), 0);
    closedir(dir);
}

/* Somewhere below the data directory or the store, but not where the removal of the state @removed would find it. */
static bool is_anywhere(struct place *p, const char *path, const char *removed)
{
    static const char *const ends[] = { "", ".in", ".gone" };
    DIR *dir = fdopendir(openat(p->store, ".", O_RDONLY | O_DIRECTORY));
    const struct dirent *entry;
    bool found = is_there(p->data, path);
    char full[PATH_MAX];

    assert_non_null(dir);
    while ((entry = readdir(dir))) {
        bool goes = false;

        for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
            snprintf(full, sizeof(full), "%s%s", removed, ends[i]);
            goes |= strcmp(entry->d_name, full) == 0;
        }
        snprintf(full, sizeof(full), "%s/%s", entry->d_name, path);
        found |= !goes && is_there(p->store, full);
    }
    closedir(dir);
    return found;
}

static const char *const old_files[] = { "a", "d/x", "z" };

/* @label: of the failpoint. What lay in the data directory is somewhere, and the state can still be brought back. */
static void try_restore(struct place *p, const char *label, enum failpoint_kind kind, unsigned first, unsigned n,
                        bool *ret_has_failed)
{
    struct snapshot_report report;
    struct hutch_err err = { 0 };
    int rc;

    failpoint_arm(kind, first, n);
    rc = hutch_snapshot_restore(p->data, p->store, "one", false, &no_bounds, &report, &err);
    *ret_has_failed = failpoint_disarm();
    for (size_t i = 0; rc < 0 && i < sizeof(old_files) / sizeof(old_files[0]); i++)
        if (!is_anywhere(p, old_files[i], "two"))
            fail_msg("%s: '%s' is gone: %s", label, old_files[i], err.msg);
    put(p->data, "later", "x"); /* the session goes on as it is, and goes back once more */
    restore(p, "one");
    if (count(p->data) != 2 || !is_there(p->data, "new") || !is_there(p->data, "e/y"))
        fail_msg("%s: it is not the state: %s", label, err.msg);
}

static void try_switch(struct place *p, const char *label, enum failpoint_kind kind, unsigned first, unsigned n,
                       bool *ret_has_failed)
{
    static const char *const new_files[] = { "new", "e/y" };
    struct snapshot_report report;
    struct hutch_err err = { 0 };
    int rc;

    failpoint_arm(kind, first, n);
    rc = hutch_snapshot_switch(p->data, p->store, "one", "two", false, &report, &err);
    *ret_has_failed = failpoint_disarm();
    for (size_t i = 0; i < sizeof(old_files) / sizeof(old_files[0]); i++)
        if (!is_anywhere(p, old_files[i], rc < 0 ? "two" : "none"))
            fail_msg("%s: '%s' is gone: %s", label, old_files[i], err.msg);
    for (size_t i = 0; i < sizeof(new_files) / sizeof(new_files[0]); i++)
        if (!is_anywhere(p, new_files[i], "two"))
            fail_msg("%s: '%s' of the state is gone: %s", label, new_files[i], err.msg);
    if (rc == 0)
        return;
    change_over(p, "third", "two", false); /* to another branch, which is that one and nothing else */
    if (count(p->data) != 1 || !is_there(p->data, "of the third"))
        fail_msg("%s: it is not the third: %s", label, err.msg);
}

/* The undoing fails, too: what was in the data directory is not back there then, but nowhere lost. */
static void test_failures_in_a_row(void **state)
{
    static const unsigned lengths[] = { 1, 3, 5, 12, 40 };
    struct place *p = *state;
    unsigned n_tried = 0;

    for (int kind = FAILPOINT_HAS_MALLOC ? 0 : 1; kind < FAILPOINT_FORK; kind++)
        for (size_t l = 0; l < 2 * sizeof(lengths) / sizeof(lengths[0]); l++) {
            unsigned length = lengths[l / 2], n = 1;
            bool has_failed = true;

            for (; has_failed; n++, n_tried++) {
                char label[64];

                snprintf(label, sizeof(label), "%s, %s %u to %u", l % 2 ? "switch" : "restore", failpoint_names[kind],
                         n, n + length - 1);
                assert_true(n < 2000);
                clear(p->data);
                clear(p->store);
                put(p->data, "of the third", "third");
                take(p, "third");
                clear(p->data);
                put(p->data, "new", "state");
                mkdirat(p->data, "e", 0755);
                put(p->data, "e/y", "state");
                take(p, "one");
                clear(p->data);
                put(p->data, "a", "a");
                put(p->data, "z", "z");
                mkdirat(p->data, "d", 0755);
                put(p->data, "d/x", "x");
                (l % 2 ? try_switch : try_restore)(p, label, (enum failpoint_kind)kind, n, length, &has_failed);
            }
        }
    print_message("%u runs\n", n_tried);
}

/* The process was killed; the same order comes once more. */
static void test_broken_off(void **state)
{
    struct place *p = *state;
    struct hutch_err err;

    put(p->data, "s", "state");
    take(p, "one");

    /* while it copied */
    mkdirat(p->store, "one.in", 0700);
    put(p->store, "one.in/half", "");
    put(p->data, "s", "later");
    restore_with(p, "one", true);
    assert_text(p->data, "s", "state");
    assert_int_equal(count(p->data), 1);

    /* while the data directory was emptied */
    put(p->data, "x", "later");
    put(p->data, "y", "later");
    mkdirat(p->store, "one.in", 0700);
    put(p->store, "one.in/s", "state");
    mkdirat(p->store, "one.out.part", 0700);
    assert_int_equal(renameat(p->data, "x", p->store, "one.out.part/x"), 0);
    restore_with(p, "one", true);
    assert_text(p->data, "s", "state");
    assert_int_equal(count(p->data), 1);

    /* while it was filled */
    mkdirat(p->store, "one.in", 0700);
    put(p->store, "one.in/t", "state");
    mkdirat(p->store, "one.out", 0700);
    put(p->store, "one.out/x", "later");
    restore_with(p, "one", true);
    assert_text(p->data, "s", "state");
    assert_text(p->data, "t", "state");

    /* when all was done but the cleaning up */
    mkdirat(p->store, "one.out", 0700);
    put(p->store, "one.out/x", "later");
    restore_with(p, "one", true);
    assert_text(p->data, "t", "state");
    assert_int_equal(count(p->store), 1);

    /* a change-over, in either half, and after it */
    mkdirat(p->store, "b", 0755);
    put(p->store, "b/of-b", "b");
    mkdirat(p->store, "a.out.part", 0700);
    assert_int_equal(renameat(p->data, "t", p->store, "a.out.part/t"), 0);
    change_over(p, "b", "a", true);
    assert_int_equal(count(p->data), 1);
    assert_text(p->data, "of-b", "b");
    assert_text(p->store, "a/s", "state");
    assert_text(p->store, "a/t", "state");
    change_over(p, "b", "a", true);
    assert_text(p->data, "of-b", "b");
    assert_int_equal(hutch_rmtree(p->store, "a", &err), 0);
    assert_int_equal(count(p->store), 1);
}

/* ---- across file systems ---- */

static void test_other_file_system(void **state)
{
    struct place *p = *state;
    char path[] = "/dev/shm/hutch-test-snapshot.XXXXXX";
    auto_fd shm = open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct place far = *p;
    struct hutch_err err;
    struct stat st;
    bool is_far;

    if (shm < 0 || !mkdtemp(path))
        skip();
    far.store = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(fstat(far.store, &st), 0);
    is_far = st.st_dev != look(p->data, ".").st_dev;
    if (is_far) {
        furnish(p);
        take(&far, "one");
        for (int i = 0; i < 2; i++) {
            wreck(p);
            restore(&far, "one");
            assert_furnished(p->data);
        }
        take(&far, "two");
        wreck(p);
        change_over(&far, "two", "three", false);
        assert_furnished(p->data);
        assert_text(far.store, "three/d", "no directory any more");
        change_over(&far, "three", "two", false);
        assert_text(p->data, "link/x", "x");
        change_over(&far, "two", "three", false);
        assert_furnished(p->data);
        assert_int_equal(count(far.store), 2);
    }
    close(far.store);
    assert_int_equal(hutch_rmtree(shm, strrchr(path, '/') + 1, &err), 0);
    if (!is_far)
        skip();
}

/* ---- while processes run inside ---- */

static _Noreturn void thrash(struct place *p)
{
    for (unsigned i = 0;; i++) {
        mkdirat(p->data, "make", 0755);
        put_in_turn(p);
        (void)!linkat(p->data, "name", p->data, "make/b", 0);
        unlinkat(p->data, "name", 0);
        mkdirat(p->data, "name", 0755);
        (void)!symlinkat("../..", p->data, "name/up");
        renameat2(p->data, "name", p->data, "make", RENAME_EXCHANGE);
        unlinkat(p->data, "name/b", 0);
        unlinkat(p->data, "make/up", 0);
        unlinkat(p->data, "make", AT_REMOVEDIR);
        unlinkat(p->data, "name", AT_REMOVEDIR);
    }
}

static void test_a_tree_that_changes(void **state)
{
    struct place *p = *state;
    struct hutch_err err = { 0 };
    struct snapshot_report report;
    int taken = 0;
    pid_t pid;

    put(p->top, "secret", "secret");
    put(p->data, "kept", "kept");
    take(p, "zero");
    pid = fork();
    if (pid == 0)
        thrash(p);
    for (int i = 0; i < 300; i++) {
        if (hutch_snapshot_take(p->data, p->store, "one", &no_bounds, &report, &err) == 0) {
            assert_text(p->store, "one/kept", "kept");
            if (is_there(p->store, "one/name/up")) /* and not what it points to */
                assert_true(S_ISLNK(look(p->store, "one/name/up").st_mode));
            taken++;
            assert_int_equal(hutch_rmtree(p->store, "one", &err), 0);
        } else if (!strstr(err.msg, "keep")) {
            fail_msg("%s", err.msg);
        }
        if (hutch_snapshot_restore(p->data, p->store, "zero", false, &no_bounds, &report, &err) < 0)
            assert_int_equal(kill(pid, 0), 0);
        assert_text(p->data, "kept", "kept");
    }
    end_process(pid);
    assert_true(taken > 0);
    assert_text(p->top, "secret", "secret");
    assert_int_equal(count(p->top), 3);
    restore(p, "zero");
    assert_int_equal(count(p->data), 1);
    assert_int_equal(count(p->store), 1);
}

/* ---- the disk worker ---- */

/* In the opener it has what it takes to make a pid namespace. For the tests that follow it has it here. */
static int set_up_disk(void **state)
{
    static bool is_owner;
    struct hutch_err err = { 0 };
    struct id_plan plan = { .host_uid = geteuid(), .host_gid = getegid() };

    if (geteuid() != 0 && !is_owner &&
        (unshare(CLONE_NEWUSER) < 0 || hutch_userns_write_identity(0, &plan, &err) < 0))
        fail_msg("own a user namespace: %s", err.msg);
    is_owner = true;
    return set_up(state);
}

static struct disk_reply ask(int sock, const struct disk_request *request, int store, int data)
{
    const int fds[] = { store, data };
    struct disk_reply reply;
    size_t n_fds;

    assert_int_equal(hutch_fdpass_send(sock, request, sizeof(*request), fds, 2, 0), sizeof(*request));
    assert_int_equal(hutch_fdpass_receive(sock, &reply, sizeof(reply), NULL, 0, &n_fds, 0), sizeof(reply));
    assert_int_equal(reply.id, request->id);
    return reply;
}

static void test_orders(void **state)
{
    struct place *p = *state;
    struct hutch_err err = { 0 };
    struct disk_request request = { .what = DISK_TAKE, .id = 7, .name = "one" };
    const int fds[] = { p->store, p->data };
    struct disk_reply reply;
    auto_fd sock = -1, pidfd = -1;
    int status, too_many[40];
    pid_t pid = hutch_disk_start(&sock, &pidfd, &err);

    assert_true(pid > 0);
    put(p->data, "a", "state");
    reply = ask(sock, &request, p->store, p->data);
    assert_false(reply.has_failed);
    assert_int_equal(reply.report.entries, 1);
    assert_int_equal(reply.report.bytes_copied + reply.report.bytes_cloned, 5);
    assert_non_null(hutch_snapshot_how(&reply.report));
    put(p->data, "a", "later");

    request.what = 99;
    assert_true(ask(sock, &request, p->store, p->data).has_failed);
    request.what = DISK_RESTORE;
    memset(request.keep, 'x', sizeof(request.keep)); /* no end: nothing happens, and who waits is told */
    assert_true(ask(sock, &request, p->store, p->data).has_failed);
    assert_true(hutch_fdpass_send(sock, &request, sizeof(request) - 1, fds, 2, 0) > 0); /* nobody knows who waits */
    memset(request.keep, 0, sizeof(request.keep));
    for (size_t i = 0; i < sizeof(too_many) / sizeof(too_many[0]); i++)
        too_many[i] = p->store;
    for (size_t n = 0; n <= sizeof(too_many) / sizeof(too_many[0]); n += n == 1 ? 2 : 1) {
        size_t n_fds;

        assert_true(hutch_fdpass_send(sock, &request, sizeof(request), too_many, n, 0) > 0);
        assert_int_equal(hutch_fdpass_receive(sock, &reply, sizeof(reply), NULL, 0, &n_fds, 0), sizeof(reply));
        assert_true(reply.id == 7 && reply.has_failed);
    }
    request.id = 8;
    strcpy(request.name, "none");
    reply = ask(sock, &request, p->store, p->data);
    assert_true(reply.has_failed);
    if (!strstr(reply.err.msg, "open the state 'none'"))
        fail_msg("%s", reply.err.msg);
    strcpy(request.name, "one");
    assert_false(ask(sock, &request, p->store, p->data).has_failed);
    assert_text(p->data, "a", "state");

    request.what = DISK_REMOVE;
    strcpy(request.name, "..");
    assert_true(hutch_fdpass_send(sock, &request, sizeof(request), fds, 1, 0) > 0);
    strcpy(request.name, "one");
    assert_true(hutch_fdpass_send(sock, &request, sizeof(request), fds, 1, 0) > 0);
    request.what = DISK_TAKE; /* the same name: after the removal, or there would be such a state already */
    assert_false(ask(sock, &request, p->store, p->data).has_failed);
    assert_text(p->data, "a", "state");

    /* a removal waits for what it removes, and takes along what was left of earlier orders */
    mkdirat(p->store, "two.gone", 0700);
    put(p->store, "two.gone/x", "x");
    strcpy(request.name, "two");
    assert_true(hutch_fdpass_send(sock, &request, sizeof(request), fds, 2, 0) > 0);
    request.what = DISK_REMOVE;
    assert_true(hutch_fdpass_send(sock, &request, sizeof(request), fds, 1, 0) > 0);
    hutch_fd_closep(&sock); /* what it was given it does all the same */
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(count(p->store), 1);
}

/* Counts and lists have no name, and a list comes back as a memory file. */
static void test_looks(void **state)
{
    struct place *p = *state;
    struct hutch_err err = { 0 };
    struct disk_request request = { .what = DISK_COUNT, .id = 7, .look = COLLECT_BOUNDS_DEFAULT };
    struct file_changes changes = FILE_CHANGES_INIT;
    struct file_list before = FILE_LIST_INIT;
    struct disk_reply reply;
    auto_fd sock = -1, pidfd = -1, list = -1, answer = -1;
    int fds[3] = { p->store, p->data, -1 }, status;
    size_t n_fds = 0;
    pid_t pid = hutch_disk_start(&sock, &pidfd, &err);

    assert_true(pid > 0);
    put(p->data, "a", "state");
    assert_return_code(hutch_collect_snapshot(p->data, &request.look, &before, &err), 0);
    assert_return_code(hutch_file_list_store(&before, &list, &err), 0);
    put(p->data, "b", "later");
    reply = ask(sock, &request, p->store, p->data);
    assert_false(reply.has_failed);
    assert_int_equal(reply.entries, 2);
    assert_true(reply.bytes > 0);

    request.what = DISK_LIST;
    fds[2] = list;
    assert_true(hutch_fdpass_send(sock, &request, sizeof(request), fds, 3, 0) > 0);
    assert_int_equal(hutch_fdpass_receive(sock, &reply, sizeof(reply), &answer, 1, &n_fds, 0), sizeof(reply));
    assert_false(reply.has_failed);
    assert_int_equal(reply.entries, 2);
    assert_int_equal(n_fds, 1);
    assert_return_code(hutch_file_changes_load(answer, &changes, &err), 0);
    assert_int_equal(changes.added.n, 1);
    assert_string_equal(changes.added.items[0].path, "b");

    fds[2] = p->data;
    assert_true(hutch_fdpass_send(sock, &request, sizeof(request), fds, 3, 0) > 0);
    assert_int_equal(hutch_fdpass_receive(sock, &reply, sizeof(reply), NULL, 0, &n_fds, 0), sizeof(reply));
    assert_true(reply.has_failed); /* a directory is no list */
    hutch_file_changes_done(&changes);
    hutch_file_list_done(&before);
    hutch_fd_closep(&sock);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
}

/* An engine that ends with an answer unread: the socket tells ECONNRESET ahead of the orders that are still in it. */
static void test_orders_behind_an_unread_answer(void **state)
{
    struct place *p = *state;
    struct hutch_err err = { 0 };
    struct disk_request request = { .what = DISK_TAKE, .name = "one" };
    const int fds[] = { p->store, p->data };
    auto_fd sock = -1, pidfd = -1;
    struct pollfd answer;
    pid_t pid = hutch_disk_start(&sock, &pidfd, &err);
    int status;

    assert_true(pid > 0);
    put(p->data, "a", "state");
    assert_true(hutch_fdpass_send(sock, &request, sizeof(request), fds, 2, 0) > 0);
    answer = (struct pollfd){ .fd = sock, .events = POLLIN };
    assert_int_equal(poll(&answer, 1, -1), 1);
    assert_int_equal(count(p->store), 1);
    kill(pid, SIGSTOP);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    request.what = DISK_REMOVE;
    assert_true(hutch_fdpass_send(sock, &request, sizeof(request), fds, 1, 0) > 0);
    hutch_fd_closep(&sock);
    kill(pid, SIGCONT);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(count(p->store), 0);
}

/* A session may end while its files are being changed over: they are removed when that is done. */
static void test_removal_of_a_data_directory(void **state)
{
    struct place *p = *state;
    struct hutch_err err = { 0 };
    struct disk_request restore = { .what = DISK_RESTORE, .name = "one" };
    struct disk_request change = { .what = DISK_SWITCH, .name = "one", .keep = "kept" };
    struct disk_request removal = { .what = DISK_REMOVE, .name = "ours" };
    auto_fd sock = -1, pidfd = -1, ours = -1;
    pid_t pid = hutch_disk_start(&sock, &pidfd, &err);
    int status;

    assert_true(pid > 0);
    for (int i = 0; i < 400; i++) { /* so that the first order takes a while, and the second waits for it */
        char name[16];

        snprintf(name, sizeof(name), "file%d", i);
        put(p->data, name, "state");
    }
    take(p, "one");
    assert_int_equal(mkdirat(p->store, "ours", 0755), 0);
    ours = openat(p->store, "ours", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    put(ours, "a", "mine");
    assert_true(hutch_fdpass_send(sock, &restore, sizeof(restore), (int[]){ p->store, p->data }, 2, 0) > 0);
    assert_true(hutch_fdpass_send(sock, &change, sizeof(change), (int[]){ p->store, ours }, 2, 0) > 0);
    assert_true(hutch_fdpass_send(sock, &removal, sizeof(removal), &p->store, 1, 0) > 0);
    hutch_fd_closep(&sock);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_text(p->store, "kept/a", "mine");
    assert_int_equal(count(p->store), 1);
}

static pid_t child_of(pid_t parent)
{
    char path[64], text[64] = "";
    auto_fd fd = -1;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", parent, parent);
    fd = open(path, O_RDONLY);
    return fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 ? (pid_t)atoi(text) : 0;
}

/* Whoever kills the process of an order at any moment: the data directory is one state or the other, and the answer
 * says which. */
static void test_killed(void **state)
{
    struct place *p = *state;
    struct hutch_err err = { 0 };
    struct disk_request request = { .what = DISK_RESTORE, .name = "one" };
    const int fds[] = { p->store, p->data };
    auto_fd sock = -1, pidfd = -1;
    pid_t pid = hutch_disk_start(&sock, &pidfd, &err);
    int status;

    assert_true(pid > 0);
    for (int i = 0; i < 50; i++) {
        char name[16];

        snprintf(name, sizeof(name), "file%d", i);
        put(p->data, name, "state");
    }
    take(p, "one");
    for (int i = 0; i < 60; i++) {
        struct disk_reply reply;
        size_t n_fds;
        pid_t child = 0;
        int n;

        put(p->data, "later", "later");
        request.id = 1 + 2 * (uint32_t)i;
        request.what = DISK_RESTORE;
        assert_true(hutch_fdpass_send(sock, &request, sizeof(request), fds, 2, 0) > 0);
        while (hutch_fdpass_receive(sock, &reply, sizeof(reply), NULL, 0, &n_fds, MSG_DONTWAIT) < 0 ||
               reply.id != request.id) {
            if (child == 0 && (child = child_of(pid)) > 0) {
                nanosleep(&(struct timespec){ .tv_nsec = i * 60000 }, NULL);
                kill(child, SIGKILL);
            }
        }
        if (reply.has_failed)
            fail_msg("%s", reply.err.msg);
        /* One that was killed when it had answered, and not ended, is done and answered again: before this one, which
         * is refused, as there is such a state. */
        request.id++;
        request.what = DISK_TAKE;
        assert_true(hutch_fdpass_send(sock, &request, sizeof(request), fds, 2, 0) > 0);
        do
            assert_int_equal(hutch_fdpass_receive(sock, &reply, sizeof(reply), NULL, 0, &n_fds, 0), sizeof(reply));
        while (reply.id != request.id);
        assert_true(reply.has_failed);
        n = count(p->data);
        if (n != 50)
            fail_msg("%d files after kill %d", n, i);
        assert_int_equal(count(p->store), 1);
    }
    hutch_fd_closep(&sock);
    assert_int_equal(waitpid(pid, &status, 0), pid);
}

/* As the owner of a user namespace, as which it runs for an ordinary user, it reads what a program took its own rights
 * from. */
static int take_closed_files(struct place *p)
{
    struct hutch_err err = { 0 };
    struct snapshot_report report;
    struct id_plan plan = { .host_uid = geteuid(), .host_gid = getegid() };

    if (geteuid() != 0 && (unshare(CLONE_NEWUSER) < 0 || hutch_userns_write_identity(0, &plan, &err) < 0))
        return 77;
    if (hutch_snapshot_take(p->data, p->store, "one", &no_bounds, &report, &err) < 0)
        return 1;
    return hutch_snapshot_restore(p->data, p->store, "one", false, &no_bounds, &report, &err) < 0 ? 2 : 0;
}

static void test_closed_files(void **state)
{
    struct place *p = *state;
    int status;
    pid_t pid;

    put(p->data, "a", "closed");
    mkdirat(p->data, "d", 0755);
    put(p->data, "d/b", "closed");
    assert_int_equal(fchmodat(p->data, "a", 0, 0), 0);
    assert_int_equal(fchmodat(p->data, "d", 0, 0), 0);
    assert_int_equal(fchmod(p->data, 0), 0);
    pid = fork();
    if (pid == 0)
        _exit(take_closed_files(p));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(fchmod(p->data, 0755), 0);
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(look(p->data, "a").st_mode, S_IFREG);
    assert_int_equal(look(p->data, "d").st_mode, S_IFDIR);
    assert_int_equal(fchmodat(p->data, "a", 0600, 0), 0);
    assert_int_equal(fchmodat(p->data, "d", 0700, 0), 0);
    assert_text(p->data, "a", "closed");
    assert_text(p->data, "d/b", "closed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_roll_back_twice, set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(test_attributes, set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(test_set_user_id_is_not_kept, set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(test_owners, set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(test_branches_take_turns, set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(test_bounds, set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(test_deepest, set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(test_names, set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(test_device_is_refused, set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(test_lease_is_refused, set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(test_what_fails_is_put_back, set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(test_what_fails_in_the_second_half_is_put_back, set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(test_failures_in_a_row, set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(test_broken_off, set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(test_other_file_system, set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(test_a_tree_that_changes, set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(test_looks, set_up_disk, place_tear_down),
        cmocka_unit_test_setup_teardown(test_orders, set_up_disk, place_tear_down),
        cmocka_unit_test_setup_teardown(test_orders_behind_an_unread_answer, set_up_disk, place_tear_down),
        cmocka_unit_test_setup_teardown(test_removal_of_a_data_directory, set_up_disk, place_tear_down),
        cmocka_unit_test_setup_teardown(test_killed, set_up_disk, place_tear_down),
        cmocka_unit_test_setup_teardown(test_closed_files, set_up, place_tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

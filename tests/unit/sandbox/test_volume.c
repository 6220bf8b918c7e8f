/* test_volume.c - a file system in memory for a data directory: its bounds are the kernel's, and one mount follows the
 * other. */
#include "sandbox/volume.h"

#include "sandbox/fd.h"
#include "sandbox/userns.h"

#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#define BYTES (1u << 20)
#define FILES 10

/* In a process of its own, which owns the mount namespace that it takes. Returns its exit status: 77 where the host has
 * no user namespaces for ordinary users. */
static int in_child(void (*body)(const struct id_plan *plan))
{
    struct mount_attr private = { .propagation = MS_PRIVATE };
    struct hutch_err why = { 0 }, err;
    struct id_plan plan;
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        if (hutch_userns_plan(&plan, &err) < 0)
            _exit(77);
        if (plan.is_mapped_away) {
            if (unshare(CLONE_NEWNS) < 0)
                _exit(77);
        } else if (hutch_userns_unshare(&plan, CLONE_NEWNS, &why, &err) < 0) {
            _exit(77);
        }
        if (mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &private, sizeof(private)) < 0)
            _exit(1);
        body(&plan);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void expect(bool is_so, int line)
{
    if (is_so)
        return;
    fprintf(stderr, "line %d: not as expected: %s\n", line, strerrordesc_np(errno));
    _exit(1);
}
#define EXPECT(condition) expect(condition, __LINE__)

static int open_root(int base_fd)
{
    return openat(base_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void fill(const struct id_plan *plan)
{
    static const char page[4096];
    struct volume_mounts mounts = VOLUME_MOUNTS_INIT;
    struct hutch_err err;
    int root, fd, made = 0;
    size_t written = 0;
    char name[16];
    struct stat st;

    if (hutch_volume_make(BYTES, FILES, plan, &mounts, &err) < 0)
        _exit(err.errnum == EOPNOTSUPP ? 77 : 1);
    root = open_root(mounts.base_fd);
    EXPECT(root >= 0 && fstat(root, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & 07777) == 0755);
    fd = openat(root, "big", O_CREAT | O_WRONLY, 0600);
    EXPECT(fd >= 0);
    while (write(fd, page, sizeof(page)) == (ssize_t)sizeof(page))
        written += sizeof(page);
    EXPECT(errno == ENOSPC && written == BYTES);
    do
        snprintf(name, sizeof(name), "%d", ++made);
    while (made < 100 && mkdirat(root, name, 0700) == 0);
    EXPECT(errno == ENOSPC && made == FILES); /* one of them was the file */
    EXPECT(unlinkat(root, "1", AT_REMOVEDIR) == 0 && linkat(root, "big", root, "again", 0) == 0);
    EXPECT(linkat(root, "big", root, "more", 0) < 0 && errno == ENOSPC);
}

static void follow(const struct id_plan *plan)
{
    struct volume_mounts first = VOLUME_MOUNTS_INIT, second = VOLUME_MOUNTS_INIT, third = VOLUME_MOUNTS_INIT;
    struct hutch_err err;
    struct stat st, same;
    int root;

    if (hutch_volume_make(BYTES, 0, plan, &first, &err) < 0)
        _exit(err.errnum == EOPNOTSUPP ? 77 : 1);
    root = open_root(first.base_fd);
    EXPECT(root >= 0 && mkdirat(root, "kept", 0700) == 0 && fstatat(root, "kept", &st, 0) == 0);
    EXPECT(hutch_volume_open(first.base_fd, plan, &second, &err) == 0);
    EXPECT(fstatat(second.base_fd, "kept", &same, 0) == 0 && st.st_ino == same.st_ino && st.st_dev == same.st_dev);
    EXPECT(fstatat(second.sandbox_fd, "kept", &same, 0) == 0 && st.st_ino == same.st_ino);
    EXPECT(plan->is_mapped_away || same.st_uid == st.st_uid);
    /* The former base opens another one, or none where it had to be attached; its descriptors lead to the files. */
    if (hutch_volume_open(first.base_fd, plan, &third, &err) == 0)
        EXPECT(fstatat(third.sandbox_fd, "kept", &same, 0) == 0 && st.st_ino == same.st_ino);
    else
        EXPECT(third.base_fd == -1 && third.sandbox_fd == -1);
    EXPECT(mkdirat(root, "late", 0700) == 0 && fstatat(second.base_fd, "late", &same, 0) == 0);
    EXPECT(access("/tmp/kept", F_OK) < 0); /* where the base is attached for a moment */
}

static void test_bounds(void **state)
{
    int status = in_child(fill);

    (void)state;
    if (status == 77)
        skip();
    assert_int_equal(status, 0);
}

static void test_mounts_follow_one_another(void **state)
{
    int status = in_child(follow);

    (void)state;
    if (status == 77)
        skip();
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_mounts_follow_one_another),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What only a C caller sees of the store: finding trees, the locks on them, and work in progress. */
#include "sandbox/fd.h"
#include "sandbox/rmtree.h"
#include "rootfs/store.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cmocka.h>

#define A64 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define A63B "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"
#define C64 "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"

struct fixture {
    char home[64];
    struct store store;
};

static void write_text(const struct store *store, const char *name, const char *text)
{
    auto_fd fd = openat(store->dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(hutch_fd_write_all(fd, text, strlen(text)), 0);
}

static void make_tree(const struct store *store, const char *hex)
{
    char path[128];

    snprintf(path, sizeof(path), "trees/%s", hex);
    assert_int_equal(mkdirat(store->dirfd, path, 0700), 0);
    snprintf(path, sizeof(path), "trees/%s/root", hex);
    assert_int_equal(mkdirat(store->dirfd, path, 0755), 0);
}

static int set_up(void **state)
{
    static struct fixture f;
    struct hutch_err err = { 0 };

    snprintf(f.home, sizeof(f.home), "/tmp/hutch-test-store.XXXXXX");
    assert_non_null(mkdtemp(f.home));
    assert_int_equal(hutch_store_open(f.home, &f.store, &err), 0);
    make_tree(&f.store, A64);
    make_tree(&f.store, A63B);
    make_tree(&f.store, C64);
    write_text(&f.store, "names/one", "sha256:" A64 "\n");
    write_text(&f.store, "names/lib%two:latest", "sha256:" A63B "\n");
    write_text(&f.store, "names/dangling", "sha256:dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd\n");
    write_text(&f.store, "names/rubbish", "hello\n");
    write_text(&f.store, "names/cccccc", "sha256:" A64 "\n"); /* a name wins over a digest */
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    struct hutch_err err = { 0 };
    auto_fd tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    hutch_store_done(&f->store);
    hutch_store_done(&f->store);
    return hutch_rmtree(tmp, f->home + strlen("/tmp/"), &err);
}

static const struct { const char *label, *name, *want; int want_errnum; const char *want_msg; } find_cases[] = {
    { "name", "one", A64, 0, NULL },
    { "name with a slash and a tag", "lib/two:latest", A63B, 0, NULL },
    { "the tag latest may be left out", "lib/two", A63B, 0, NULL },
    { "digest", C64, C64, 0, NULL },
    { "digest with its algorithm", "sha256:" C64, C64, 0, NULL },
    { "beginning of a digest", "sha256:cccccc", C64, 0, NULL },
    { "a name that looks like a digest", "cccccc", A64, 0, NULL },
    { "beginning of two digests", "aaaaaaaa", NULL, EINVAL, "'aaaaaaaa' is the beginning of 2 digests" },
    { "too short a beginning", "ccccc", NULL, ENOENT, "there is no image 'ccccc' in the store; there are: cccccc, "
                                                      "lib/two:latest, one (" },
    { "name whose tree is gone", "dangling", NULL, ENOENT, "there is no image 'dangling'" },
    { "name with rubbish in it", "rubbish", NULL, ENOENT, "there is no image 'rubbish'" },
    { "path", "../lock", NULL, ENOENT, "there is no image '../lock'" },
    { "empty", "", NULL, ENOENT, "there is no image ''" },
    { "on-disk form of a name", "lib%two:latest", NULL, ENOENT, "there is no image 'lib%two:latest'" },
};

static void test_find(void **state)
{
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_SIZE(find_cases); i++) {
        struct hutch_err err = { 0 };
        char want[256];
        char *path = NULL;
        int lockfd = -1;
        int rc = hutch_store_find(&f->store, find_cases[i].name, &path, &lockfd, &err);

        print_message("%s\n", find_cases[i].label);
        if (find_cases[i].want) {
            assert_int_equal(rc, 0);
            snprintf(want, sizeof(want), "%s/images/trees/%s/root", f->home, find_cases[i].want);
            assert_string_equal(path, want);
            assert_int_equal(fcntl(lockfd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
            close(lockfd);
            free(path);
        } else {
            assert_int_equal(rc, -1);
            assert_int_equal(err.errnum, find_cases[i].want_errnum);
            assert_non_null(strstr(err.msg, find_cases[i].want_msg));
            assert_null(path);
            assert_int_equal(lockfd, -1);
        }
    }
}

static void test_found_tree_cannot_be_removed(void **state)
{
    struct fixture *f = *state;
    struct hutch_err err = { 0 };
    char *path = NULL, *again = NULL;
    int lockfd = -1, second = -1;

    assert_int_equal(hutch_store_find(&f->store, C64, &path, &lockfd, &err), 0);
    assert_int_equal(hutch_store_find(&f->store, C64, &again, &second, &err), 0); /* shared */
    assert_int_equal(hutch_store_remove(&f->store, C64, &err), -1);
    assert_int_equal(err.errnum, EBUSY);
    assert_non_null(strstr(err.msg, "is in use by a running sandbox"));
    close(lockfd);
    assert_int_equal(hutch_store_remove(&f->store, C64, &err), -1);
    close(second);
    assert_int_equal(hutch_store_remove(&f->store, C64, &err), 0);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(hutch_store_find(&f->store, "sha256:" C64, &path, &lockfd, &err), -1);
    assert_int_equal(err.errnum, ENOENT);
    free(path);
    free(again);
}

static void test_work(void **state)
{
    struct fixture *f = *state;
    struct hutch_err err = { 0 };
    struct store_work work = STORE_WORK_INIT, other = STORE_WORK_INIT;
    struct store second = STORE_INIT;
    char path[128];

    assert_int_equal(hutch_store_work_begin(&f->store, &work, &err), 0);
    assert_int_equal(hutch_store_work_begin(&f->store, &other, &err), 0);
    assert_string_not_equal(work.name, other.name);
    snprintf(path, sizeof(path), "tmp/%s", work.name);

    /* Opening the store sweeps what no process holds, and that alone. */
    assert_int_equal(mkdirat(f->store.dirfd, "tmp/1-left", 0700), 0);
    write_text(&f->store, "tmp/file", "left");
    assert_int_equal(hutch_store_open(f->home, &second, &err), 0);
    assert_int_equal(faccessat(f->store.dirfd, path, F_OK, 0), 0);
    assert_int_equal(faccessat(f->store.dirfd, "tmp/1-left", F_OK, 0), -1);
    assert_int_equal(faccessat(f->store.dirfd, "tmp/file", F_OK, 0), -1);
    hutch_store_done(&second);

    hutch_store_work_end(&work);
    assert_int_equal(faccessat(f->store.dirfd, path, F_OK, 0), -1);
    hutch_store_work_end(&work);
    hutch_store_work_end(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_find, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_found_tree_cannot_be_removed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_work, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_landlock.c - writes go where the spec has a writable mount, whatever the files' own permissions say. */
#include "sandbox/landlock.h"

#include "sandbox/fd.h"
#include "sandbox/rmtree.h"
#include "sandbox/spec.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cmocka.h>

struct place {
    char dir[48];
    int dirfd;
};

/* in/ is a writable mount of the spec, ro/ a read-only one, out/ none at all, one a file mounted writable. */
static int set_up(void **state)
{
    struct place *p = calloc(1, sizeof(*p));

    strcpy(p->dir, "/tmp/hutch-test-landlock.XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    p->dirfd = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (const char *const *name = (const char *const[]){ "in", "in/sub", "ro", "out", "out/sub", NULL }; *name; name++)
        assert_int_equal(mkdirat(p->dirfd, *name, 0700), 0);
    for (const char *const *name = (const char *const[]){ "in/f", "ro/f", "out/f", "one", "two", NULL }; *name;
         name++) {
        auto_fd fd = openat(p->dirfd, *name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

        assert_int_equal(hutch_fd_write_all(fd, "text", 4), 0);
    }
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    struct place *p = *state;
    struct hutch_err err;

    for (const char *const *name = (const char *const[]){ "in", "ro", "out", "one", "two", NULL }; *name; name++)
        if (hutch_rmtree(p->dirfd, *name, &err) < 0)
            fail_msg("%s", err.msg);
    close(p->dirfd);
    assert_int_equal(rmdir(p->dir), 0);
    free(p);
    return 0;
}

enum act {
    CREATE,
    APPEND,
    TRUNCATE,
    MAKE_DIR,
    MAKE_FIFO,
    MAKE_LINK,
    MAKE_SOCKET,
    REMOVE,
    REMOVE_DIR,
    RENAME,
    HARD_LINK,
    READ,
    LIST
};

static int attempt(enum act act, const char *path, const char *other)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    auto_fd fd = -1;
    char c;

    switch (act) {
    case CREATE:
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        return fd < 0 ? -1 : 0;
    case APPEND:
        fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
        return fd < 0 || write(fd, "x", 1) != 1 ? -1 : 0;
    case TRUNCATE:
        return truncate(path, 1);
    case MAKE_DIR:
        return mkdir(path, 0700);
    case MAKE_FIFO:
        return mkfifo(path, 0600);
    case MAKE_LINK:
        return symlink("/etc", path);
    case MAKE_SOCKET:
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        strcpy(addr.sun_path, path);
        return bind(fd, (struct sockaddr *)&addr, sizeof(addr));
    case REMOVE:
        return unlink(path);
    case REMOVE_DIR:
        return rmdir(path);
    case RENAME:
        return rename(path, other);
    case HARD_LINK:
        return link(path, other);
    case READ:
        fd = open(path, O_RDONLY | O_CLOEXEC);
        return fd < 0 || read(fd, &c, 1) != 1 ? -1 : 0;
    case LIST:
        fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return fd < 0 ? -1 : 0;
    }
    return -1;
}

static void fill_spec(const struct place *p, struct sandbox_spec *spec)
{
    static const struct {
        const char *name;
        unsigned flags;
    } mounts[] = { { "in", 0 }, { "ro", MOUNT_RDONLY }, { "one", 0 }, { "gone", MOUNT_OPTIONAL } };
    struct hutch_err err;

    assert_int_equal(hutch_spec_init(spec, &err), 0);
    for (size_t i = 0; i < ARRAY_SIZE(mounts); i++) {
        char path[96];

        snprintf(path, sizeof(path), "%s/%s", p->dir, mounts[i].name);
        assert_non_null(hutch_spec_add_mount(spec, MOUNT_BIND, "/x", path, mounts[i].flags, &err));
    }
}

/* Runs @body restricted, in a child. Its exit status: 0 as expected. */
static int restricted(const struct place *p, int abi, int (*body)(const struct place *p, const void *arg),
                      const void *arg)
{
    struct sandbox_spec spec;
    int status;
    pid_t pid;

    fill_spec(p, &spec);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct hutch_err err;
        int ruleset;

        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || hutch_landlock_make(&spec, abi, false, &ruleset, &err) < 0 ||
            hutch_landlock_enforce(ruleset, &err) < 0) {
            print_error("%s\n", err.msg);
            _exit(99);
        }
        _exit(body(p, arg));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    hutch_spec_done(&spec);
    return WEXITSTATUS(status);
}

static void need_landlock(int abi)
{
    if (hutch_landlock_abi() < abi) {
        print_message("skip: landlock: this kernel offers ABI %d, wanted %d\n", hutch_landlock_abi(), abi);
        skip();
    }
}

static const struct row {
    enum act act;
    const char *path, *other;
    int errnum; /* 0: goes through */
    int abi;    /* first that handles it */
} rows[] = {
    { CREATE, "in/new", NULL, 0, 1 },
    { CREATE, "in/sub/new", NULL, 0, 1 },
    { APPEND, "in/f", NULL, 0, 1 },
    { TRUNCATE, "in/f", NULL, 0, 1 },
    { MAKE_DIR, "in/new", NULL, 0, 1 },
    { MAKE_FIFO, "in/new", NULL, 0, 1 },
    { MAKE_LINK, "in/new", NULL, 0, 1 },
    { MAKE_SOCKET, "in/new", NULL, 0, 1 },
    { REMOVE, "in/f", NULL, 0, 1 },
    { REMOVE_DIR, "in/sub", NULL, 0, 1 },
    { RENAME, "in/f", "in/g", 0, 1 },
    { RENAME, "in/f", "in/sub/f", 0, 2 },
    { HARD_LINK, "in/f", "in/sub/f", 0, 2 },
    { APPEND, "one", NULL, 0, 1 },
    { TRUNCATE, "one", NULL, 0, 1 },
    { READ, "out/f", NULL, 0, 1 }, /* reading is for the mounts to bound */
    { LIST, "out", NULL, 0, 1 },
    { READ, "ro/f", NULL, 0, 1 },

    { CREATE, "ro/new", NULL, EACCES, 1 },
    { APPEND, "ro/f", NULL, EACCES, 1 },
    { TRUNCATE, "ro/f", NULL, EACCES, 3 },
    { REMOVE, "ro/f", NULL, EACCES, 1 },
    { CREATE, "out/new", NULL, EACCES, 1 },
    { APPEND, "out/f", NULL, EACCES, 1 },
    { TRUNCATE, "out/f", NULL, EACCES, 3 },
    { MAKE_DIR, "out/new", NULL, EACCES, 1 },
    { MAKE_FIFO, "out/new", NULL, EACCES, 1 },
    { MAKE_LINK, "out/new", NULL, EACCES, 1 },
    { MAKE_SOCKET, "out/new", NULL, EACCES, 1 },
    { REMOVE, "out/f", NULL, EACCES, 1 },
    { REMOVE_DIR, "out/sub", NULL, EACCES, 1 },
    { RENAME, "out/f", "out/g", EACCES, 1 },
    { RENAME, "in/f", "out/g", EACCES, 2 },  /* out of what is writable */
    { RENAME, "out/f", "in/g", EACCES, 2 },  /* and in, from where it may only be read */
    { HARD_LINK, "out/f", "in/g", EXDEV, 2 },
    { HARD_LINK, "ro/f", "in/g", EXDEV, 2 },
    { APPEND, "two", NULL, EACCES, 1 },
    { CREATE, "gone", NULL, EACCES, 1 },     /* an optional mount that is not there opens nothing */
    { RENAME, "one", "three", EACCES, 1 },   /* the file may be written, its name is its directory's */
    { APPEND, "/dev/null", NULL, EACCES, 1 },
};

static int try_row(const struct place *p, const void *arg)
{
    const struct row *row = arg;
    char path[128], other[128];

    snprintf(path, sizeof(path), "%s/%s", row->path[0] == '/' ? "" : p->dir, row->path);
    snprintf(other, sizeof(other), "%s/%s", p->dir, row->other ? row->other : "");
    errno = 0;
    return attempt(row->act, path, other) == 0 ? 0 : errno;
}

static void test_what_may_be_written(void **state)
{
    need_landlock(1);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        int want = rows[i].errnum, got;

        if (rows[i].abi > hutch_landlock_abi())
            continue;
        tear_down(state);
        set_up(state);
        got = restricted(*state, hutch_landlock_abi(), try_row, &rows[i]);
        /* a link or rename from where less is allowed to where more is: EXDEV or EACCES, as landlock(7) has it */
        if (got != want && !(want && (got == EXDEV || got == EACCES) && rows[i].other))
            fail_msg("row %zu (%s %s): %s", i, rows[i].path, rows[i].other ? rows[i].other : "",
                     got ? strerrordesc_np(got) : "went through");
    }
}

/* Older ABIs do not know every right; what they know they keep. */
static void test_older_abis(void **state)
{
    static const struct row create_out = { CREATE, "out/new", NULL, EACCES, 1 },
                            create_in = { CREATE, "in/new", NULL, 0, 1 };

    need_landlock(1);
    for (int abi = 1; abi <= hutch_landlock_abi(); abi++) {
        tear_down(state);
        set_up(state);
        assert_int_equal(restricted(*state, abi, try_row, &create_out), EACCES);
        assert_int_equal(restricted(*state, abi, try_row, &create_in), 0);
    }
}

/* Devices cannot be made anywhere, even by root. */
static int make_device(const struct place *p, const void *arg)
{
    (void)arg;
    errno = 0;
    return mknodat(p->dirfd, "in/null", S_IFCHR | 0600, 0x103) == 0 ? 0 : errno;
}

static void test_no_devices(void **state)
{
    need_landlock(1);
    assert_int_equal(restricted(*state, hutch_landlock_abi(), make_device, NULL), EACCES);
}

static int signal_parent(const struct place *p, const void *arg)
{
    (void)p;
    (void)arg;
    if (kill(getpid(), 0) < 0)
        return 1;
    return kill(getppid(), 0) == 0 ? 0 : errno;
}

static int connect_abstract(const struct place *p, const void *arg)
{
    auto_fd fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)p;
    return connect(fd, arg, sizeof(struct sockaddr_un)) == 0 ? 0 : errno;
}

static void test_scopes(void **state)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    auto_fd fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    need_landlock(6);
    assert_int_equal(restricted(*state, hutch_landlock_abi(), signal_parent, NULL), EPERM);
    snprintf(addr.sun_path + 1, sizeof(addr.sun_path) - 1, "hutch-test-%d", getpid());
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(restricted(*state, hutch_landlock_abi(), connect_abstract, &addr), EPERM);
    assert_int_equal(restricted(*state, 5, connect_abstract, &addr), 0); /* the filter, not the address, was it */
}

/* A writable mount that is not there is an error, and nothing is enforced half. */
static void test_a_missing_mount(void **state)
{
    struct place *p = *state;
    struct sandbox_spec spec;
    struct hutch_err err = { .msg = "" };
    char path[96], want[256];
    int ruleset = -1;

    need_landlock(1);
    fill_spec(p, &spec);
    snprintf(path, sizeof(path), "%s/nowhere", p->dir);
    assert_non_null(hutch_spec_add_mount(&spec, MOUNT_TMPFS, NULL, path, 0, &err));
    assert_int_equal(hutch_landlock_make(&spec, hutch_landlock_abi(), false, &ruleset, &err), -1);
    snprintf(want, sizeof(want), "open '%s' to allow writing there: No such file or directory", path);
    assert_string_equal(err.msg, want);
    assert_int_equal(err.errnum, ENOENT);
    hutch_spec_done(&spec);
    assert_int_equal(mkdir(path, 0700), 0); /* this process is as free as before */
    assert_int_equal(rmdir(path), 0);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_what_may_be_written), T(test_older_abis), T(test_no_devices), T(test_scopes), T(test_a_missing_mount),
    };

    return cmocka_run_group_tests_name("landlock", tests, NULL, NULL);
}

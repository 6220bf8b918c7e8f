/* test_changes.c - what a hostile run did to its data directory is told truly, and nothing outside is touched. */
#include "runtime/data/changes.h"
#include "tests/unit/place.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

struct watched {
    struct place place;
    int fd;   /* of its data directory; O_PATH as the program may use it */
    struct file_list before;
    struct file_changes changes;
};

static const struct collect_bounds plain_bounds = COLLECT_BOUNDS_DEFAULT;

static int set_up(void **state)
{
    struct watched *p = calloc(1, sizeof(*p));

    place_open(&p->place);
    p->fd = openat(p->place.top, "data", O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_true(p->fd >= 0);
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    struct watched *p = *state;

    hutch_file_list_done(&p->before);
    hutch_file_changes_done(&p->changes);
    close(p->fd);
    place_close(&p->place);
    free(p);
    return 0;
}

static void snapshot(struct watched *p, const struct collect_bounds *bounds)
{
    struct hutch_err err = { 0 };

    hutch_file_list_done(&p->before);
    if (hutch_collect_snapshot(p->fd, bounds, &p->before, &err) < 0)
        fail_msg("%s", err.msg);
}

static void compare(struct watched *p, const struct collect_bounds *bounds)
{
    struct hutch_err err = { 0 };

    hutch_file_changes_done(&p->changes);
    if (hutch_collect_changes(p->fd, &p->before, bounds, &p->changes, &err) < 0)
        fail_msg("%s", err.msg);
}

static const struct file_change *find(const struct file_change_list *list, const char *path)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i].path, path) == 0)
            return &list->items[i];
    return NULL;
}

static void assert_counts(const struct watched *p, size_t added, size_t modified, size_t deleted)
{
    assert_int_equal(p->changes.added.n, added);
    assert_int_equal(p->changes.modified.n, modified);
    assert_int_equal(p->changes.deleted.n, deleted);
}

static void test_nothing_happened(void **state)
{
    struct watched *p = *state;

    put(p->fd, "a", "text");
    mkdirat(p->fd, "d", 0755);
    put(p->fd, "d/b", "text");
    snapshot(p, &plain_bounds);
    assert_int_equal(p->before.n_files, 2);
    assert_string_equal(p->before.files[0].path, "a");
    assert_string_equal(p->before.files[1].path, "d/b");
    compare(p, &plain_bounds);
    assert_counts(p, 0, 0, 0);
    assert_false(p->changes.truncated);
}

/* ---- cells of a session ---- */

static void step(struct watched *p)
{
    struct hutch_err err = { 0 };
    double left_ms = hutch_collect_unsettled_ms(&p->before);

    if (left_ms > 0) /* as a session does before it begins a cell */
        nanosleep(&(struct timespec){ .tv_nsec = (long)(left_ms * 1e6) + 1 }, NULL);
    hutch_file_changes_done(&p->changes);
    if (hutch_collect_step(p->fd, &p->before, &plain_bounds, &p->changes, &err) < 0)
        fail_msg("%s", err.msg);
}

static void settle(struct watched *p)
{
    double left_ms;

    while ((left_ms = hutch_collect_unsettled_ms(&p->before)) > 0)
        nanosleep(&(struct timespec){ .tv_nsec = (long)(left_ms * 1e6) }, NULL);
}

static void test_cells(void **state)
{
    struct watched *p = *state;
    const struct timespec old[] = { { .tv_sec = 1000000000 }, { .tv_sec = 1000000000 } };

    step(p);
    assert_counts(p, 0, 0, 0);
    put(p->fd, "a", "one");
    put(p->fd, "b", "one");
    assert_int_equal(linkat(p->fd, "b", p->fd, "b too", 0), 0);
    step(p);
    assert_counts(p, 3, 0, 0);
    settle(p);
    step(p);
    assert_counts(p, 0, 0, 0);
    put(p->fd, "a", "two"); /* as long as it was */
    assert_int_equal(utimensat(p->fd, "a", old, 0), 0);
    step(p);
    assert_counts(p, 0, 1, 0);
    settle(p);
    put(p->fd, "a", "new");
    assert_int_equal(utimensat(p->fd, "a", old, 0), 0); /* nothing but the status change tells */
    step(p);
    assert_counts(p, 0, 1, 0);
    settle(p);
    put(p->fd, "b too", "two");
    step(p);
    assert_counts(p, 0, 2, 0);
    settle(p);
    renameat(p->fd, "a", p->fd, "c");
    step(p);
    assert_counts(p, 1, 0, 1);
    assert_non_null(find(&p->changes.added, "c"));
    assert_non_null(find(&p->changes.deleted, "a"));
    settle(p);
    renameat2(p->fd, "b", p->fd, "c", RENAME_EXCHANGE);
    step(p);
    assert_counts(p, 0, 3, 0); /* the other name of b has a new status */
    settle(p);
    unlinkat(p->fd, "b", 0);
    unlinkat(p->fd, "c", 0);
    unlinkat(p->fd, "b too", 0);
    mkdirat(p->fd, "d", 0755);
    step(p);
    assert_counts(p, 0, 0, 3);
    step(p);
    assert_counts(p, 0, 0, 0);
    put(p->fd, "d/x", "x");
    step(p);
    assert_counts(p, 1, 0, 0);
    assert_false(p->changes.truncated);
}

/* Same size, one cell right after the other: each of them is told. */
static void test_cells_within_a_tick(void **state)
{
    struct watched *p = *state;
    char text[] = "a";

    put(p->fd, "a", text);
    step(p);
    for (int i = 0; i < 40; i++) {
        settle(p);
        text[0]++;
        put(p->fd, "a", text);
        step(p);
        assert_counts(p, 0, 1, 0);
    }
}

/* While the directory is empty no walk is made, and whatever comes into it is seen all the same. */
static void test_cells_without_files(void **state)
{
    struct watched *p = *state;
    const struct timespec tick = { .tv_nsec = 12000000 };
    struct stat st;

    for (int i = 0; i < 40; i++) {
        struct timespec old[2];

        step(p);
        if (i % 2)
            nanosleep(&tick, NULL);
        step(p);
        if (i % 2)
            assert_int_not_equal(p->before.top.ino, 0);
        assert_int_equal(fstatat(p->fd, "", &st, AT_EMPTY_PATH), 0);
        old[0] = st.st_atim;
        old[1] = st.st_mtim;
        put(p->fd, "a", "a");
        utimensat(p->place.top, "data", old, 0); /* hides nothing */
        step(p);
        assert_counts(p, 1, 0, 0);
        unlinkat(p->fd, "a", 0);
        step(p);
        assert_counts(p, 0, 0, 1);
    }
}

static void test_cells_leave_directories_closed(void **state)
{
    struct watched *p = *state;
    const struct timespec tick = { .tv_nsec = 12000000 };
    struct stat st;

    if (geteuid() == 0)
        skip(); /* whom nothing is closed to */
    mkdirat(p->fd, "d", 0755);
    put(p->fd, "d/a", "a");
    step(p);
    assert_counts(p, 1, 0, 0);
    nanosleep(&tick, NULL); /* or the file could be as new as the next look */
    assert_int_equal(fchmodat(p->fd, "d", 0, 0), 0);
    step(p);
    assert_true(p->changes.truncated); /* nobody knows what is in there */
    assert_int_equal(p->changes.deleted.n, 0);
    assert_int_equal(fstatat(p->fd, "d", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0);
    step(p);
    assert_counts(p, 0, 0, 0);
    assert_int_equal(fchmodat(p->fd, "d", 0755, 0), 0);
    step(p);
    assert_int_equal(p->changes.added.n, 0); /* it was there before */
}

static void test_cells_lose_setuid_bits(void **state)
{
    struct watched *p = *state;
    struct stat st;

    put(p->fd, "a", "a");
    assert_int_equal(fchmodat(p->fd, "a", 04755, 0), 0);
    step(p);
    assert_counts(p, 1, 0, 0);
    assert_int_equal(p->changes.stripped, 1);
    assert_int_equal(fstatat(p->fd, "a", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0755);
    step(p);
    assert_counts(p, 0, 0, 0); /* that was not the program's doing */
}

static void test_list(void **state)
{
    struct watched *p = *state;
    struct hutch_err err = { 0 };

    put(p->fd, "a", "text");
    assert_int_equal(fchmodat(p->fd, "a", 04755, 0), 0);
    assert_int_equal(symlinkat("a", p->fd, "link"), 0);
    if (hutch_collect_list(p->fd, &plain_bounds, &p->changes, &err) < 0)
        fail_msg("%s", err.msg);
    assert_counts(p, 2, 0, 0);
    assert_false(p->changes.truncated);
    assert_int_equal(p->changes.stripped, 0);
}

static void test_added_modified_deleted(void **state)
{
    struct watched *p = *state;
    const struct file_change *change;
    struct timespec times[2];
    struct stat st;

    put(p->fd, "grows", "1");
    put(p->fd, "same-size", "aaaa");
    put(p->fd, "forged-mtime", "aaaa");
    put(p->fd, "chmod", "aaaa");
    put(p->fd, "replaced", "aaaa");
    put(p->fd, "goes", "aaaa");
    put(p->fd, "stays", "aaaa");
    mkdirat(p->fd, "dir", 0755);
    put(p->fd, "dir/inside", "aaaa");
    put(p->fd, "becomes-dir", "aaaa");
    put(p->fd, "moved", "aaaa");
    snapshot(p, &plain_bounds);

    put(p->fd, "grows", "1234567");
    put(p->fd, "same-size", "bbbb");
    assert_int_equal(fstatat(p->fd, "forged-mtime", &st, 0), 0);
    put(p->fd, "forged-mtime", "bbbb");
    times[0] = st.st_atim;
    times[1] = st.st_mtim;
    assert_int_equal(utimensat(p->fd, "forged-mtime", times, 0), 0);
    assert_int_equal(fchmodat(p->fd, "chmod", 0600, 0), 0);
    put(p->fd, "new", "bbbb");
    assert_int_equal(renameat(p->fd, "new", p->fd, "replaced"), 0);
    unlinkat(p->fd, "goes", 0);
    unlinkat(p->fd, "dir/inside", 0);
    unlinkat(p->fd, "dir", AT_REMOVEDIR);
    unlinkat(p->fd, "becomes-dir", 0);
    mkdirat(p->fd, "becomes-dir", 0755);
    put(p->fd, "becomes-dir/chart.PNG", "not really");
    put(p->fd, "table.csv", "a,b\n");
    mkdirat(p->fd, "empty", 0755);
    assert_int_equal(renameat(p->fd, "moved", p->fd, "moved-here"), 0);
    compare(p, &plain_bounds);

    assert_counts(p, 3, 5, 4);
    assert_false(p->changes.truncated);
    change = find(&p->changes.added, "becomes-dir/chart.PNG");
    assert_non_null(change);
    assert_string_equal(change->mime, "image/png");
    assert_int_equal(change->size, 10);
    assert_string_equal(p->changes.added.items[1].path, "moved-here"); /* sorted */
    assert_string_equal(find(&p->changes.added, "table.csv")->mime, "text/csv");
    assert_int_equal(find(&p->changes.modified, "grows")->size, 7);
    assert_non_null(find(&p->changes.modified, "same-size"));
    assert_non_null(find(&p->changes.modified, "forged-mtime"));
    assert_non_null(find(&p->changes.modified, "chmod"));
    assert_non_null(find(&p->changes.modified, "replaced"));
    assert_string_equal(p->changes.deleted.items[0].path, "becomes-dir");
    assert_string_equal(p->changes.deleted.items[1].path, "dir/inside");
    assert_string_equal(p->changes.deleted.items[2].path, "goes");
    assert_string_equal(p->changes.deleted.items[3].path, "moved");
    assert_null(p->changes.deleted.items[0].mime);
}

/* However soon it happens after the snapshot, and though size, name and inode stay. */
static void test_a_change_right_after_the_snapshot(void **state)
{
    struct watched *p = *state;

    for (int i = 0; i < 50; i++) {
        put(p->fd, "file", "aaaa");
        snapshot(p, &plain_bounds);
        put(p->fd, "file", "bbbb");
        compare(p, &plain_bounds);
        assert_counts(p, 0, 1, 0);
    }
}

/* A stamp from a clock that is ahead must not hold up the snapshot. */
static void test_stamps_of_tomorrow(void **state)
{
    struct watched *p = *state;
    struct timespec times[2] = { { .tv_sec = 4000000000 }, { .tv_sec = 4000000000 } };

    put(p->fd, "file", "aaaa");
    assert_int_equal(utimensat(p->fd, "file", times, 0), 0);
    snapshot(p, &plain_bounds);
    compare(p, &plain_bounds);
    assert_counts(p, 0, 0, 0);
}

static void test_content_tells_the_type(void **state)
{
    static const struct { const char *name, *text, *mime; } cases[] = {
        { "picture", "\x89PNG\r\n\x1a\n....", "image/png" },
        { "notes", "plain words\n", "text/plain" },
        { "noise", "\x01\x02\x03", "application/octet-stream" },
        { "nothing", "", "application/x-empty" },
        { "doc.unknown-ext", "%PDF-1.7\n", "application/pdf" },
    };
    struct watched *p = *state;

    snapshot(p, &plain_bounds);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        put(p->fd, cases[i].name, cases[i].text);
    put(p->fd, "locked", "plain words\n");
    assert_int_equal(fchmodat(p->fd, "locked", 0, 0), 0);
    compare(p, &plain_bounds);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_string_equal(find(&p->changes.added, cases[i].name)->mime, cases[i].mime);
    assert_string_equal(find(&p->changes.added, "locked")->mime,
                        geteuid() == 0 ? "text/plain" : "application/octet-stream");
}

/* None of these may be opened: a FIFO would block for ever, so the alarm is what fails the test. */
static void test_special_files_are_listed_and_never_opened(void **state)
{
    struct watched *p = *state;
    const struct file_change *change;
    uint64_t bytes, entries;
    struct hutch_err err = { 0 };

    snapshot(p, &plain_bounds);
    alarm(60);
    assert_int_equal(mkfifoat(p->fd, "fifo.csv", 0600), 0);
    assert_int_equal(mkfifoat(p->fd, "fifo", 0600), 0);
    put_socket(&p->place, "sock");
    assert_int_equal(mkdirat(p->place.top, "outside", 0755), 0);
    put(p->place.top, "outside/secret", "secret");
    assert_int_equal(symlinkat("../outside", p->fd, "dirlink"), 0);
    assert_int_equal(symlinkat("../outside/secret", p->fd, "link.txt"), 0);
    assert_int_equal(symlinkat("/dev/zero", p->fd, "zero"), 0);
    assert_int_equal(symlinkat("loop", p->fd, "loop"), 0);
    assert_int_equal(symlinkat("/nowhere", p->fd, "dangling"), 0);
    compare(p, &plain_bounds);
    assert_int_equal(hutch_collect_usage(p->fd, &plain_bounds, &bytes, &entries, &err), 0);
    alarm(0);

    assert_counts(p, 8, 0, 0);
    assert_int_equal(entries, 8);
    change = find(&p->changes.added, "fifo.csv");
    assert_int_equal(change->type, FILE_FIFO);
    assert_null(change->mime);
    assert_int_equal(find(&p->changes.added, "sock")->type, FILE_SOCKET);
    change = find(&p->changes.added, "link.txt");
    assert_int_equal(change->type, FILE_SYMLINK);
    assert_int_equal(change->size, strlen("../outside/secret"));
    assert_null(find(&p->changes.added, "dirlink/secret"));
}

static void test_devices(void **state)
{
    struct watched *p = *state;

    snapshot(p, &plain_bounds);
    if (mknodat(p->fd, "mem", S_IFCHR | 0600, 1 << 8 | 1) < 0 || mknodat(p->fd, "disk", S_IFBLK | 0600, 0) < 0) {
        print_message("skip: device nodes need CAP_MKNOD\n");
        skip();
    }
    compare(p, &plain_bounds);
    assert_counts(p, 2, 0, 0);
    assert_int_equal(find(&p->changes.added, "mem")->type, FILE_CHAR_DEVICE);
    assert_int_equal(find(&p->changes.added, "disk")->type, FILE_BLOCK_DEVICE);
}

static void test_any_byte_in_a_name(void **state)
{
    struct watched *p = *state;
    char longest[256];
    size_t n = 1;

    snapshot(p, &plain_bounds);
    for (int c = 1; c < 256; c++) {
        char name[] = { (char)c, (char)c, (char)c, '\0' };

        if (c == '/')
            continue;
        put(p->fd, name, "x");
        n++;
    }
    memset(longest, 0xff, 255);
    longest[255] = '\0';
    put(p->fd, longest, "x");
    compare(p, &plain_bounds);
    assert_counts(p, n, 0, 0);
    assert_non_null(find(&p->changes.added, longest));
    assert_non_null(find(&p->changes.added, "\n\n\n"));
    for (size_t i = 1; i < n; i++) /* strictly sorted: nothing twice */
        assert_true(strcmp(p->changes.added.items[i - 1].path, p->changes.added.items[i].path) < 0);
}

static void test_locked_directories(void **state)
{
    static const mode_t modes[] = { 0, 0100, 0200, 0300, 0400, 0600 };
    struct watched *p = *state;
    uint64_t bytes, entries;
    struct hutch_err err = { 0 };
    char name[32];

    snapshot(p, &plain_bounds);
    for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
        snprintf(name, sizeof(name), "d%zu", i);
        mkdirat(p->fd, name, 0700);
        snprintf(name, sizeof(name), "d%zu/sub", i);
        mkdirat(p->fd, name, 0700);
        snprintf(name, sizeof(name), "d%zu/sub/file.txt", i);
        put(p->fd, name, "x");
        snprintf(name, sizeof(name), "d%zu/sub", i);
        assert_int_equal(fchmodat(p->fd, name, modes[i], 0), 0);
        snprintf(name, sizeof(name), "d%zu", i);
        assert_int_equal(fchmodat(p->fd, name, modes[i], 0), 0);
    }
    assert_int_equal(fchmodat(p->place.top, "data", 0, 0), 0); /* and the top itself */
    assert_int_equal(hutch_collect_usage(p->fd, &plain_bounds, &bytes, &entries, &err), 0);
    assert_int_equal(entries, 3 * ARRAY_SIZE(modes));
    compare(p, &plain_bounds);
    assert_counts(p, ARRAY_SIZE(modes), 0, 0);
    assert_false(p->changes.truncated);
    assert_non_null(find(&p->changes.added, "d0/sub/file.txt"));
}

/* A directory that the caller locked before the run is left as it is by the snapshot. */
static void test_a_directory_that_was_locked_before(void **state)
{
    struct watched *p = *state;
    struct stat st;

    mkdirat(p->fd, "locked", 0700);
    put(p->fd, "locked/file", "x");
    assert_int_equal(fchmodat(p->fd, "locked", 0, 0), 0);
    snapshot(p, &plain_bounds);
    assert_int_equal(fstatat(p->fd, "locked", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0);
    if (geteuid() == 0) {
        assert_int_equal(p->before.n_files, 1);
        assert_string_equal(p->before.files[0].path, "locked/file");
    } else {
        assert_int_equal(p->before.n_files, 1);
        assert_string_equal(p->before.files[0].path, "locked");
    }
}

static void test_another_users_directory(void **state)
{
    struct watched *p = *state;
    int status;
    pid_t pid;

    if (geteuid() != 0) {
        print_message("skip: making a directory of another user needs root\n");
        skip();
    }
    mkdirat(p->fd, "theirs", 0700);
    put(p->fd, "theirs/file", "x");
    assert_int_equal(fchmodat(p->place.top, ".", 0755, 0), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) { /* an ordinary user looks */
        struct file_list before = FILE_LIST_INIT;
        struct file_changes changes = FILE_CHANGES_INIT;
        struct hutch_err err = { 0 };
        int rc = setresuid(65534, 65534, 65534);

        if (rc == 0)
            rc = hutch_collect_snapshot(p->fd, &plain_bounds, &before, &err);
        if (rc == 0 && before.n_files == 1 && strcmp(before.files[0].path, "theirs") == 0)
            rc = hutch_collect_changes(p->fd, &before, &plain_bounds, &changes, &err);
        /* closed before and after: no change, and nothing unknown */
        if (rc != 0 || changes.added.n + changes.modified.n + changes.deleted.n != 0 || changes.truncated)
            _exit(1);
        hutch_file_list_done(&before);
        /* but one that was not there before is something that we cannot see into */
        rc = hutch_collect_changes(p->fd, &before, &plain_bounds, &changes, &err);
        if (rc != 0 || changes.added.n != 1 || changes.added.items[0].type != FILE_DIRECTORY || !changes.truncated)
            _exit(2);
        hutch_file_changes_done(&changes);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static mode_t mode_of(int dirfd, const char *name)
{
    struct stat st;

    assert_int_equal(fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW), 0);
    return st.st_mode & 07777;
}

static void test_setid_bits_of_the_run_go(void **state)
{
    struct watched *p = *state;

    put(p->place.top, "outside", "x");
    assert_int_equal(fchmodat(p->place.top, "outside", 04755, 0), 0);
    put(p->fd, "old", "x");
    assert_int_equal(fchmodat(p->fd, "old", 04755, 0), 0);
    put(p->fd, "touched", "x");
    snapshot(p, &plain_bounds);
    put(p->fd, "uid", "x");
    assert_int_equal(fchmodat(p->fd, "uid", 04755, 0), 0);
    put(p->fd, "gid", "x");
    assert_int_equal(fchmodat(p->fd, "gid", 02711, 0), 0);
    put(p->fd, "both-locked", "x");
    assert_int_equal(fchmodat(p->fd, "both-locked", 06000, 0), 0);
    put(p->fd, "sticky", "x");
    assert_int_equal(fchmodat(p->fd, "sticky", 07755, 0), 0);
    assert_int_equal(fchmodat(p->fd, "touched", 04755, 0), 0);
    mkdirat(p->fd, "locked", 0700);
    put(p->fd, "locked/uid", "x");
    assert_int_equal(fchmodat(p->fd, "locked/uid", 04755, 0), 0);
    assert_int_equal(fchmodat(p->fd, "locked", 0, 0), 0);
    mkdirat(p->fd, "shared", 0755);
    assert_int_equal(fchmodat(p->fd, "shared", 02775, 0), 0);
    assert_int_equal(symlinkat("../outside", p->fd, "link"), 0);
    compare(p, &plain_bounds);

    assert_int_equal(p->changes.stripped, 6);
    assert_int_equal(p->changes.strip_failed, 0);
    assert_int_equal(mode_of(p->fd, "uid"), 0755);
    assert_int_equal(mode_of(p->fd, "gid"), 0711);
    assert_int_equal(mode_of(p->fd, "both-locked"), 0);
    assert_int_equal(mode_of(p->fd, "sticky"), 01755);
    assert_int_equal(mode_of(p->fd, "touched"), 0755);
    assert_int_equal(mode_of(p->fd, "locked/uid"), 0755);
    assert_int_equal(mode_of(p->fd, "shared"), 02775); /* a directory gives its group to new files, no more */
    assert_int_equal(mode_of(p->fd, "old"), 04755);    /* the caller's own */
    assert_int_equal(mode_of(p->place.top, "outside"), 04755);
}

/* Makes "n/n/n/…" @levels deep below @dirfd, with a file in the deepest. */
static void make_deep(int dirfd, const char *name, int levels, const char *file)
{
    auto_fd at = dup(dirfd);

    for (int i = 0; i < levels; i++) {
        int next;

        assert_int_equal(mkdirat(at, name, 0700), 0);
        next = openat(at, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
        assert_true(next >= 0);
        close(at);
        at = next;
    }
    put(at, file, "x");
    assert_int_equal(fchmodat(at, file, 04755, 0), 0);
}

static size_t count_open_fds(void)
{
    auto_fd fd = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fdopendir(hutch_fd_take(&fd));
    size_t n = 0;

    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

static void test_five_thousand_levels(void **state)
{
    struct watched *p = *state;
    struct rlimit old, few = { 0 };
    uint64_t bytes, entries;
    struct hutch_err err = { 0 };
    size_t n_fds = count_open_fds();

    snapshot(p, &plain_bounds);
    make_deep(p->fd, "n", 5000, "deepest.txt");
    mkdirat(p->fd, "z", 0755);
    make_deep(p->fd, "m", 60, "deep.txt"); /* closed levels, and a path that is short enough to be listed */
    put(p->fd, "z/after.txt", "x");

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    few = old;
    few.rlim_cur = 64;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    assert_int_equal(hutch_collect_usage(p->fd, &plain_bounds, &bytes, &entries, &err), 0);
    compare(p, &plain_bounds);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);

    assert_int_equal(entries, 5001 + 61 + 2);
    assert_counts(p, 2, 0, 0);
    assert_true(p->changes.truncated);           /* the deepest file's path is too long to be listed */
    assert_int_equal(p->changes.stripped, 2);    /* but not too deep to be reached */
    assert_non_null(find(&p->changes.added, "z/after.txt"));
    assert_int_equal(strlen(p->changes.added.items[0].path), 60 * 2 + strlen("deep.txt"));
    assert_int_equal(count_open_fds(), n_fds);
}

/* Many siblings after a level that was closed and reopened: each is seen once. */
static void test_reopened_levels_go_on_where_they_were(void **state)
{
    struct watched *p = *state;
    auto_fd at = -1;
    char name[64];

    snapshot(p, &plain_bounds);
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof(name), "d%d", i);
        assert_int_equal(mkdirat(p->fd, name, 0755), 0);
        at = openat(p->fd, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
        make_deep(at, "n", 50, "f");
        hutch_fd_closep(&at);
        for (int k = 0; k < 40; k++) {
            snprintf(name, sizeof(name), "d%d/s%d", i, k);
            put(p->fd, name, "x");
        }
    }
    compare(p, &plain_bounds);
    assert_false(p->changes.truncated);
    assert_counts(p, 40 * 41, 0, 0);
    for (size_t i = 1; i < p->changes.added.n; i++)
        assert_true(strcmp(p->changes.added.items[i - 1].path, p->changes.added.items[i].path) < 0);
}

static void test_a_hundred_thousand_files(void **state)
{
    enum { COUNT = 100000 };
    struct watched *p = *state;
    uint64_t bytes, entries;
    struct hutch_err err = { 0 };
    char name[32];

    mkdirat(p->fd, "many", 0755);
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof(name), "many/%06d.txt", i);
        assert_int_equal(mknodat(p->fd, name, S_IFREG | 0644, 0), 0);
    }
    compare(p, &plain_bounds); /* before: nothing */
    assert_counts(p, COUNT, 0, 0);
    assert_false(p->changes.truncated);
    assert_string_equal(p->changes.added.items[COUNT - 1].path, "many/099999.txt");

    snapshot(p, &plain_bounds);
    assert_int_equal(p->before.n_files, COUNT);
    put(p->fd, "many/050000.txt", "changed");
    unlinkat(p->fd, "many/000007.txt", 0);
    put(p->fd, "new", "new");
    compare(p, &plain_bounds);
    assert_counts(p, 1, 1, 1);
    assert_string_equal(p->changes.deleted.items[0].path, "many/000007.txt");

    assert_int_equal(hutch_collect_usage(p->fd, &plain_bounds, &bytes, &entries, &err), 0);
    assert_int_equal(entries, COUNT + 1);
}

static void test_bounds_on_lists(void **state)
{
    struct collect_bounds few = COLLECT_BOUNDS_DEFAULT;
    struct watched *p = *state;
    char name[32];

    few.max_listed = 10;
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof(name), "old%d", i);
        put(p->fd, name, "x");
    }
    snapshot(p, &few);
    assert_true(p->before.truncated);
    assert_int_equal(p->before.n_files, 10);
    compare(p, &plain_bounds);
    assert_true(p->changes.truncated);
    assert_int_equal(p->changes.deleted.n, 0);

    snapshot(p, &plain_bounds);
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof(name), "old%d", i);
        unlinkat(p->fd, name, 0);
        snprintf(name, sizeof(name), "new%d", i);
        put(p->fd, name, "x");
        assert_int_equal(fchmodat(p->fd, name, 04755, 0), 0);
    }
    compare(p, &few);
    assert_true(p->changes.truncated);
    assert_counts(p, 10, 0, 10);
    assert_int_equal(p->changes.stripped, 20); /* listed or not */
}

/* A scan that stopped early must not call what it has not seen deleted. */
static void test_bound_on_the_walk(void **state)
{
    struct collect_bounds few = COLLECT_BOUNDS_DEFAULT;
    struct watched *p = *state;
    char name[32];

    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof(name), "f%d", i);
        put(p->fd, name, "x");
    }
    snapshot(p, &plain_bounds);
    few.max_walked = 5;
    compare(p, &few);
    assert_true(p->changes.truncated);
    assert_counts(p, 0, 0, 0);
}

static void test_usage(void **state)
{
    struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;
    struct watched *p = *state;
    uint64_t bytes, entries, more;
    struct hutch_err err = { 0 };
    static char block[1 << 20];
    auto_fd fd = -1;

    assert_int_equal(hutch_collect_usage(p->fd, &bounds, &bytes, &entries, &err), 0);
    assert_int_equal(entries, 0);
    assert_int_equal(bytes, 0);

    memset(block, 'x', sizeof(block));
    fd = openat(p->fd, "big", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(hutch_fd_write_all(fd, block, sizeof(block)), 0);
    assert_int_equal(fdatasync(fd), 0);
    assert_int_equal(hutch_collect_usage(p->fd, &bounds, &bytes, &entries, &err), 0);
    assert_int_equal(entries, 1);
    assert_true(bytes >= sizeof(block) && bytes < 2 * sizeof(block));

    /* more names for the same blocks, and a hole of a terabyte, take no space */
    assert_int_equal(linkat(p->fd, "big", p->fd, "big2", 0), 0);
    assert_int_equal(linkat(p->fd, "big", p->fd, "big3", 0), 0);
    put(p->fd, "sparse", "");
    {
        auto_fd sparse = openat(p->fd, "sparse", O_WRONLY | O_CLOEXEC);

        assert_int_equal(ftruncate(sparse, (off_t)1 << 40), 0);
    }
    assert_int_equal(hutch_collect_usage(p->fd, &bounds, &more, &entries, &err), 0);
    assert_int_equal(entries, 4);
    assert_int_equal(more, bytes);

    /* stops once past a bound */
    for (int i = 0; i < 100; i++) {
        char name[32];

        snprintf(name, sizeof(name), "f%d", i);
        put(p->fd, name, "x");
    }
    bounds.usage_entries = 10;
    assert_int_equal(hutch_collect_usage(p->fd, &bounds, &bytes, &entries, &err), 0);
    assert_int_equal(entries, 11);
    bounds.usage_entries = 0;
    bounds.usage_bytes = 1000;
    assert_int_equal(hutch_collect_usage(p->fd, &bounds, &bytes, &entries, &err), 0);
    assert_true(bytes > 1000 && entries <= 104);
}

static void test_many_hard_links_count_once(void **state)
{
    struct watched *p = *state;
    uint64_t bytes, entries, one = 0;
    struct hutch_err err = { 0 };
    char name[32], link[32];

    for (int i = 0; i < 1000; i++) { /* the set of seen files grows a few times */
        snprintf(name, sizeof(name), "f%d", i);
        put(p->fd, name, "0123456789abcdef");
        if (i == 0)
            assert_int_equal(hutch_collect_usage(p->fd, &plain_bounds, &one, &entries, &err), 0);
        for (int k = 0; k < 3; k++) {
            snprintf(link, sizeof(link), "l%d-%d", i, k);
            assert_int_equal(linkat(p->fd, name, p->fd, link, 0), 0);
        }
    }
    assert_int_equal(hutch_collect_usage(p->fd, &plain_bounds, &bytes, &entries, &err), 0);
    assert_int_equal(entries, 4000);
    assert_int_equal(bytes, 1000 * one);
}

/* While somebody moves directories in and out, locks them and swaps them for links, a count ends, and stays inside. */
static void test_usage_of_a_tree_that_moves(void **state)
{
    struct watched *p = *state;
    pid_t pid;

    mkdirat(p->place.top, "elsewhere", 0755);
    {
        auto_fd elsewhere = openat(p->place.top, "elsewhere", O_PATH | O_CLOEXEC);
        char name[32];

        for (int i = 0; i < 2000; i++) {
            snprintf(name, sizeof(name), "not-counted-%d", i);
            put(elsewhere, name, "x");
        }
    }
    make_deep(p->fd, "n", 100, "f");
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        auto_fd deep = openat(p->fd, "n/n/n/n/n/n/n/n/n/n/n/n/n/n/n/n/n/n/n/n", O_PATH | O_CLOEXEC);

        for (;;) {
            if (renameat(deep, "n", p->fd, "moved") < 0 || symlinkat("../../elsewhere", deep, "n") < 0 ||
                fchmodat(p->fd, "moved", 0, 0) < 0 || unlinkat(deep, "n", 0) < 0 ||
                fchmodat(p->fd, "moved", 0700, 0) < 0 || renameat(p->fd, "moved", deep, "n") < 0 || getppid() == 1)
                _exit(0);
        }
    }
    for (int i = 0; i < 300; i++) {
        struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;
        struct hutch_err err = { 0 };
        uint64_t bytes, entries;

        bounds.usage_entries = 1000;
        assert_int_equal(hutch_collect_usage(p->fd, &bounds, &bytes, &entries, &err), 0);
        assert_true(entries <= 2 * 103 || entries == 1001); /* a subtree may be seen at both of its places */
    }
    end_process(pid);
}

static void test_a_directory_that_cannot_be_read_at_all(void **state)
{
    struct watched *p = *state;
    struct hutch_err err = { 0 };
    auto_fd fd = -1;

    put(p->place.top, "plain", "x");
    fd = openat(p->place.top, "plain", O_PATH | O_CLOEXEC);
    assert_int_equal(hutch_collect_snapshot(fd, &plain_bounds, &p->before, &err), -1);
    assert_int_equal(err.errnum, ENOTDIR);
    assert_string_equal(err.msg, "list the data directory: read directory '.': Not a directory");
    assert_int_equal(hutch_collect_changes(fd, &p->before, &plain_bounds, &p->changes, &err), -1);
    assert_string_equal(err.msg, "list the data directory after the run: read directory '.': Not a directory");
}

static void test_type_names(void **state)
{
    (void)state;
    for (unsigned i = 0; i < FILE_TYPE_COUNT; i++)
        for (unsigned k = 0; k < i; k++)
            assert_string_not_equal(hutch_file_type_name((enum file_type)i), hutch_file_type_name((enum file_type)k));
    assert_string_equal(hutch_file_type_name(FILE_TYPE_COUNT), "unknown");
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_nothing_happened),
        T(test_cells),
        T(test_cells_within_a_tick),
        T(test_cells_without_files),
        T(test_cells_leave_directories_closed),
        T(test_cells_lose_setuid_bits),
        T(test_list),
        T(test_added_modified_deleted),
        T(test_a_change_right_after_the_snapshot),
        T(test_stamps_of_tomorrow),
        T(test_content_tells_the_type),
        T(test_special_files_are_listed_and_never_opened),
        T(test_devices),
        T(test_any_byte_in_a_name),
        T(test_locked_directories),
        T(test_a_directory_that_was_locked_before),
        T(test_another_users_directory),
        T(test_setid_bits_of_the_run_go),
        T(test_five_thousand_levels),
        T(test_reopened_levels_go_on_where_they_were),
        T(test_a_hundred_thousand_files),
        T(test_bounds_on_lists),
        T(test_bound_on_the_walk),
        T(test_usage),
        T(test_many_hard_links_count_once),
        T(test_usage_of_a_tree_that_moves),
        T(test_a_directory_that_cannot_be_read_at_all),
        cmocka_unit_test(test_type_names),
    };

    return cmocka_run_group_tests_name("collect", tests, NULL, NULL);
}

/* test_changes_wire.c - lists of files as bytes: what is written is read again, and other bytes are refused. */
#include "runtime/data/changes_wire.h"

#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cmocka.h>

static struct file_change changes_of_three[] = {
    { .path = "a b", .size = 7, .mtime_ns = -5, .mime = "text/plain", .type = FILE_REGULAR },
    { .path = "b\n\xff", .size = UINT64_MAX, .mtime_ns = INT64_MAX, .mime = "text/plain", .type = FILE_REGULAR },
    { .path = "c/d", .type = FILE_SYMLINK },
};

static const struct file_changes some_changes = {
    .added = { .items = changes_of_three, .n = 3 },
    .modified = { .items = changes_of_three + 1, .n = 2 },
    .truncated = true,
    .stripped = 3,
    .strip_failed = 4,
};

static void check_same(const struct file_change_list *list, const struct file_change_list *want)
{
    assert_int_equal(list->n, want->n);
    for (size_t i = 0; i < want->n; i++) {
        const struct file_change *a = &list->items[i], *b = &want->items[i];

        assert_string_equal(a->path, b->path);
        assert_true(a->size == b->size && a->mtime_ns == b->mtime_ns && a->type == b->type);
        assert_true(a->mime ? b->mime && strcmp(a->mime, b->mime) == 0 : !b->mime);
    }
}

static void test_changes(void **state)
{
    struct file_changes read = FILE_CHANGES_INIT;
    struct file_list list = FILE_LIST_INIT;
    struct hutch_err err;
    auto_fd fd = -1;

    (void)state;
    assert_return_code(hutch_file_changes_store(&some_changes, &fd, &err), 0);
    assert_return_code(hutch_file_changes_load(fd, &read, &err), 0);
    check_same(&read.added, &some_changes.added);
    check_same(&read.modified, &some_changes.modified);
    check_same(&read.deleted, &some_changes.deleted);
    assert_true(read.truncated && read.stripped == 3 && read.strip_failed == 4);
    hutch_file_changes_done(&read);
    assert_int_equal(hutch_file_list_load(fd, &list, &err), -1); /* it is one of the other kind */
    assert_int_equal(err.errnum, EPROTO);
}

static void test_list(void **state)
{
    struct file_seen files[] = {
        { .path = "one", .size = 1, .ino = 2, .mtime_ns = 3, .ctime_ns = 4, .mode = S_IFREG | 0644 },
        { .path = "two/three", .size = 5, .ino = UINT64_MAX, .mtime_ns = INT64_MIN, .ctime_ns = 8, .mode = S_IFDIR },
    };
    struct file_list list = {
        .files = files, .n_files = 2, .truncated = true, .taken_ns = 9, .newest_ns = INT64_MIN
    };
    struct file_list read = FILE_LIST_INIT;
    struct hutch_err err;
    auto_fd fd = -1;

    (void)state;
    list.top.ino = 10;
    list.top.ctime_ns = 11;
    assert_return_code(hutch_file_list_store(&list, &fd, &err), 0);
    assert_return_code(hutch_file_list_load(fd, &read, &err), 0);
    assert_int_equal(read.n_files, 2);
    for (size_t i = 0; i < 2; i++) {
        const struct file_seen *a = &read.files[i], *b = &files[i];

        assert_string_equal(a->path, b->path);
        assert_true(a->size == b->size && a->ino == b->ino && a->mode == b->mode);
        assert_true(a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns);
    }
    assert_true(read.truncated && read.taken_ns == 9 && read.newest_ns == INT64_MIN && read.top.ino == 10 &&
                read.top.ctime_ns == 11);
    hutch_file_list_done(&read);
}

/* Whatever the memory file holds: a list that was taken has what its counts say, or there is an error. */
static void test_any_bytes(void **state)
{
    unsigned n_taken = 0, n_refused = 0;
    auto_fd whole = -1;
    struct hutch_err err;
    struct stat st;
    char *bytes, *changed;

    (void)state;
    assert_return_code(hutch_file_changes_store(&some_changes, &whole, &err), 0);
    assert_return_code(fstat(whole, &st), 0);
    bytes = malloc((size_t)st.st_size);
    changed = malloc((size_t)st.st_size);
    assert_int_equal(pread(whole, bytes, (size_t)st.st_size, 0), st.st_size);
    for (off_t i = 0; i < 3 * st.st_size; i++) {
        off_t at = i % st.st_size, len = i < st.st_size ? at : st.st_size; /* cut there, or changed there */
        auto_fd fd = memfd_create("test", MFD_CLOEXEC);
        struct file_changes read = FILE_CHANGES_INIT;

        memcpy(changed, bytes, (size_t)st.st_size);
        changed[at] ^= (char)(i < 2 * st.st_size ? 0x01 : 0xff);
        assert_int_equal(write(fd, changed, (size_t)len), len);
        if (hutch_file_changes_load(fd, &read, &err) < 0) {
            assert_true(err.errnum == EPROTO || err.errnum == ENOMEM);
            n_refused++;
            continue;
        }
        n_taken++;
        for (size_t k = 0; k < read.added.n; k++)
            assert_true(strlen(read.added.items[k].path) > 0 && read.added.items[k].type < FILE_TYPE_COUNT);
        hutch_file_changes_done(&read);
    }
    assert_true(n_taken > 0 && n_refused >= (unsigned)st.st_size);
    free(bytes);
    free(changed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changes),
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_any_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

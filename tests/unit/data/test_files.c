/* test_files.c - a caller reads, writes and deletes below a data directory, and nothing else, whatever lies there. */
#include "runtime/data/changes.h"
#include "runtime/data/files.h"
#include "runtime/text/json.h"
#include "tests/unit/place.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static const struct collect_bounds plain_bounds = COLLECT_BOUNDS_DEFAULT;

static void assert_refused(struct place *p, const char *name, int flags, const char *part)
{
    struct hutch_err err = { 0 };
    int fd = -1;

    if (hutch_files_open(p->data, name, flags, &fd, &err) == 0)
        fail_msg("'%s' was opened", name);
    if (!strstr(err.msg, part))
        fail_msg("'%s': \"%s\" does not say \"%s\"", name, err.msg, part);
    assert_int_equal(fd, -1);
}

static void test_names(void **state)
{
    static const struct { const char *name, *part; } rows[] = {
        { "", "empty" },
        { "/etc/passwd", "relative" },
        { "..", "'.' or '..'" },
        { "../secret", "'.' or '..'" },
        { "a/../../secret", "'.' or '..'" },
        { "./a", "'.' or '..'" },
        { "a//b", "empty" },
        { "a/", "ends in '/'" },
    };
    struct place *p = *state;
    char longer[5000];
    struct hutch_err err;

    put(p->top, "secret", "secret");
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        assert_refused(p, rows[i].name, O_RDONLY, rows[i].part);
        assert_refused(p, rows[i].name, O_WRONLY, rows[i].part);
        assert_int_equal(hutch_files_delete(p->data, rows[i].name, &err), -1);
        assert_non_null(strstr(err.msg, rows[i].part));
    }
    memset(longer, 'a', sizeof(longer));
    longer[sizeof(longer) - 1] = '\0';
    assert_refused(p, longer, O_RDONLY, "4999 bytes");
    longer[300] = '\0';
    assert_refused(p, longer, O_WRONLY, "name too long");
    longer[250] = '/';
    longer[290] = '/';
    longer[291] = '.';
    longer[292] = '\0';
    assert_refused(p, longer, O_WRONLY, "'.' or '..'");
    assert_refused(p, "a", O_RDWR, "O_RDONLY");
    assert_refused(p, "a", O_WRONLY | O_APPEND, "O_RDONLY");
    assert_text(p->top, "secret", "secret");
}

static void test_read(void **state)
{
    struct place *p = *state;
    struct hutch_err err;
    auto_fd fd = -1;
    char buf[8];

    put(p->top, "secret", "secret");
    mkdirat(p->data, "d", 0755);
    put(p->data, "d/\xff\n'", "text");
    assert_int_equal(symlinkat("../secret", p->data, "link"), 0);
    assert_int_equal(symlinkat("..", p->data, "up"), 0);
    assert_int_equal(symlinkat("/proc/self/fd", p->data, "magic"), 0);
    mkfifoat(p->data, "fifo", 0644);
    put_socket(p, "socket");

    assert_int_equal(hutch_files_open(p->data, "d/\xff\n'", O_RDONLY, &fd, &err), 0);
    assert_int_equal(read(fd, buf, sizeof(buf)), 4);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);

    assert_refused(p, "link", O_RDONLY, "symbolic link");
    assert_refused(p, "up/secret", O_RDONLY, "symbolic link");
    assert_refused(p, "magic/1", O_RDONLY, "symbolic link");
    assert_refused(p, "fifo", O_RDONLY, "not a regular file"); /* and does not wait for a writer */
    assert_refused(p, "socket", O_RDONLY, "not a regular file");
    assert_refused(p, "d", O_RDONLY, "directory");
    assert_refused(p, "d/\xff\n'/x", O_RDONLY, "'d/\\xff\\x0a\\x27/x'");
    assert_refused(p, "none", O_RDONLY, "No such file");
}

static void test_lease(void **state)
{
    struct place *p = *state;
    struct hutch_err err;
    auto_fd fd = -1;
    pid_t pid;

    put(p->data, "a", "text");
    pid = hold_lease(p->data, "a");
    if (pid < 0)
        skip();
    assert_refused(p, "a", O_RDONLY, "holds on to it");
    assert_int_equal(hutch_files_open(p->data, "a", O_WRONLY, &fd, &err), 0); /* a new one */
    end_process(pid);
}

static void test_write(void **state)
{
    struct place *p = *state;
    struct hutch_err err;
    struct stat st;
    int fd = -1;

    assert_int_equal(hutch_files_open(p->data, "a/b/c.txt", O_WRONLY, &fd, &err), 0);
    assert_int_equal(write(fd, "new", 3), 3);
    close(fd);
    assert_text(p->data, "a/b/c.txt", "new");
    assert_int_equal(fstatat(p->data, "a/b/c.txt", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0644);
    assert_int_equal(fstatat(p->data, "a/b", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0755);

    /* who has the old file keeps it, and its other name too */
    assert_int_equal(linkat(p->data, "a/b/c.txt", p->data, "other", 0), 0);
    assert_int_equal(fchmodat(p->data, "other", 0, 0), 0);
    assert_int_equal(hutch_files_open(p->data, "a/b/c.txt", O_WRONLY, &fd, &err), 0);
    close(fd);
    assert_text(p->data, "a/b/c.txt", "");
    assert_int_equal(fchmodat(p->data, "other", 0644, 0), 0);
    assert_text(p->data, "other", "new");
}

static void test_write_where_something_is(void **state)
{
    struct place *p = *state;

    put(p->top, "secret", "secret");
    assert_int_equal(symlinkat("../secret", p->data, "link"), 0);
    assert_int_equal(symlinkat("..", p->data, "up"), 0);
    mkdirat(p->data, "d", 0755);
    mkfifoat(p->data, "fifo", 0644);
    put_socket(p, "socket");
    put(p->data, "file", "");
    assert_refused(p, "link", O_WRONLY, "symbolic link");
    assert_refused(p, "up/new", O_WRONLY, "symbolic link");
    assert_refused(p, "d", O_WRONLY, "directory");
    assert_refused(p, "fifo", O_WRONLY, "not a regular file");
    assert_refused(p, "socket", O_WRONLY, "not a regular file");
    assert_refused(p, "file/x", O_WRONLY, "Not a directory");
    assert_text(p->top, "secret", "secret");
    assert_int_equal(faccessat(p->top, "new", F_OK, 0), -1);
}

static void test_new_files_belong_to_the_directory(void **state)
{
    struct place *p = *state;
    struct hutch_err err;
    struct stat st;
    int fd;

    if (geteuid() != 0)
        skip();
    assert_int_equal(fchown(p->data, 12345, 12346), 0);
    assert_int_equal(hutch_files_open(p->data, "a/b", O_WRONLY, &fd, &err), 0);
    close(fd);
    assert_int_equal(fstatat(p->data, "a/b", &st, 0), 0);
    assert_int_equal(st.st_uid, 12345);
    assert_int_equal(st.st_gid, 12346);
    assert_int_equal(fstatat(p->data, "a", &st, 0), 0);
    assert_int_equal(st.st_uid, 12345);
}

static void test_delete(void **state)
{
    struct place *p = *state;
    struct hutch_err err;

    put(p->top, "secret", "secret");
    mkdirat(p->top, "outside", 0755);
    put(p->top, "outside/x", "x");
    mkdirat(p->data, "d", 0755);
    put(p->data, "d/a", "a");
    assert_int_equal(symlinkat("../../outside", p->data, "d/link"), 0);
    assert_int_equal(symlinkat("../secret", p->data, "link"), 0);
    assert_int_equal(symlinkat("../outside", p->data, "dirlink"), 0);
    mkfifoat(p->data, "fifo", 0);

    assert_int_equal(hutch_files_delete(p->data, "dirlink/x", &err), -1);
    assert_non_null(strstr(err.msg, "symbolic link"));
    assert_int_equal(hutch_files_delete(p->data, "none", &err), -1);
    assert_int_equal(err.errnum, ENOENT);
    assert_int_equal(hutch_files_delete(p->data, "link", &err), 0);
    assert_int_equal(hutch_files_delete(p->data, "dirlink", &err), 0);
    assert_int_equal(hutch_files_delete(p->data, "fifo", &err), 0);
    assert_int_equal(hutch_files_delete(p->data, "d/a", &err), 0);
    assert_int_equal(faccessat(p->data, "d", F_OK, 0), 0);
    assert_int_equal(hutch_files_delete(p->data, "d", &err), 0);
    assert_int_equal(faccessat(p->data, "d", F_OK, 0), -1);
    assert_text(p->top, "secret", "secret");
    assert_text(p->top, "outside/x", "x");
}

static void test_list(void **state)
{
    static const struct { const char *path, *base64, *type, *mime; double size; } rows[] = {
        { "a.csv", NULL, "file", "text/csv", 4 },
        { "b\xef\xbf\xbd", "Yv8=", "file", "text/plain", 4 },
        { "d/deep.png", NULL, "file", "image/png", 4 },
        { "fifo", NULL, "fifo", NULL, 0 },
        { "link", NULL, "symlink", NULL, 11 },
    };
    __attribute__((cleanup(hutch_json_done))) struct json_doc doc = JSON_DOC_INIT;
    const struct timespec long_ago[] = { { .tv_sec = -1, .tv_nsec = 500000000 },
                                         { .tv_sec = -1, .tv_nsec = 500000000 } };
    const struct collect_bounds few = { .max_walked = 100, .max_listed = 2, .max_text = 1000 };
    struct place *p = *state;
    struct hutch_err err;
    struct stat st;
    char *json = NULL;

    assert_int_equal(hutch_files_list(p->data, &plain_bounds, &json, &err), 0);
    assert_string_equal(json, "[]");
    free(json);
    put(p->data, "a.csv", "1,2\n");
    put(p->data, "b\xff", "text");
    mkdirat(p->data, "d", 0755);
    put(p->data, "d/deep.png", "text");
    mkfifoat(p->data, "fifo", 0644);
    assert_int_equal(symlinkat("/etc/passwd", p->data, "link"), 0);
    assert_int_equal(utimensat(p->data, "a.csv", long_ago, 0), 0);
    assert_int_equal(fchmodat(p->data, "b\xff", 04755, 0), 0);

    if (hutch_files_list(p->data, &plain_bounds, &json, &err) < 0)
        fail_msg("%s", err.msg);
    if (hutch_json_parse("list", json, strlen(json), 4, &doc, &err) < 0)
        fail_msg("%s", err.msg);
    free(json);
    assert_int_equal(cJSON_GetArraySize(doc.root), ARRAY_SIZE(rows));
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const cJSON *o = cJSON_GetArrayItem(doc.root, (int)i), *mime = cJSON_GetObjectItem(o, "mime");
        const cJSON *base64 = cJSON_GetObjectItem(o, "path_base64");

        assert_string_equal(cJSON_GetObjectItem(o, "path")->valuestring, rows[i].path);
        assert_string_equal(cJSON_GetObjectItem(o, "type")->valuestring, rows[i].type);
        assert_true(cJSON_GetObjectItem(o, "size")->valuedouble == rows[i].size);
        assert_true(rows[i].mime ? strcmp(mime->valuestring, rows[i].mime) == 0 : cJSON_IsNull(mime));
        assert_true(rows[i].base64 ? strcmp(base64->valuestring, rows[i].base64) == 0 : base64 == NULL);
    }
    assert_true(cJSON_GetObjectItem(cJSON_GetArrayItem(doc.root, 0), "mtime")->valuedouble == -0.5);
    assert_int_equal(fstatat(p->data, "b\xff", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 04755); /* looking changes nothing */

    assert_int_equal(hutch_files_list(p->data, &few, &json, &err), -1);
    assert_int_equal(err.errnum, E2BIG);
}

static void test_list_with_a_closed_directory(void **state)
{
    struct place *p = *state;
    struct hutch_err err;
    char *json = NULL;

    if (geteuid() == 0)
        skip(); /* whom nothing is closed to */
    mkdirat(p->data, "closed", 0);
    assert_int_equal(hutch_files_list(p->data, &plain_bounds, &json, &err), 0);
    assert_non_null(strstr(json, "\"path\":\"closed\",\"size\":0,\"mime\":null,\"type\":\"directory\""));
    free(json);
}

static void test_quote(void **state)
{
    char buf[FILES_QUOTED], name[300];

    (void)state;
    assert_string_equal(hutch_files_quote("plain name.txt", buf), "plain name.txt");
    assert_string_equal(hutch_files_quote("\x1b[2J'\\\xc3\xa4\n", buf), "\\x1b[2J\\x27\\x5c\\xc3\\xa4\\x0a");
    for (size_t len = 0; len < sizeof(name); len++) { /* neither end of the buffer is passed */
        memset(name, len % 2 ? 1 : 'x', len);
        name[len] = '\0';
        assert_true(strlen(hutch_files_quote(name, buf)) < FILES_QUOTED);
    }
}

/* A process inside makes a name a file, a FIFO, a directory and a link to the outside by turns. */
static void test_a_name_that_changes(void **state)
{
    struct place *p = *state;
    pid_t pid;

    put(p->top, "secret", "secret");
    mkdirat(p->data, "make", 0755);
    pid = fork();
    if (pid == 0) {
        for (;;) {
            put_in_turn(p);
            unlinkat(p->data, "name", 0);
            mkdirat(p->data, "name", 0755);
            unlinkat(p->data, "name", AT_REMOVEDIR);
        }
    }
    for (int i = 0; i < 2000; i++) {
        struct hutch_err err;
        auto_fd fd = -1;
        char buf[8];

        if (hutch_files_open(p->data, "name", O_RDONLY, &fd, &err) == 0)
            assert_int_equal(read(fd, buf, sizeof(buf)), 0);
        hutch_fd_closep(&fd);
        if (hutch_files_open(p->data, "name", O_WRONLY, &fd, &err) == 0) {
            struct stat st;

            assert_int_equal(fstat(fd, &st), 0);
            assert_true(S_ISREG(st.st_mode));
        }
        hutch_files_delete(p->data, "name", &err);
    }
    end_process(pid);
    assert_text(p->top, "secret", "secret");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_names, place_set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(test_read, place_set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(test_lease, place_set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(test_write, place_set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(test_write_where_something_is, place_set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(test_new_files_belong_to_the_directory, place_set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(test_delete, place_set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(test_list, place_set_up, place_tear_down),
        cmocka_unit_test_setup_teardown(test_list_with_a_closed_directory, place_set_up, place_tear_down),
        cmocka_unit_test(test_quote),
        cmocka_unit_test_setup_teardown(test_a_name_that_changes, place_set_up, place_tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

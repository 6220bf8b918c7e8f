/* test_path_answer.c - what came from inside about a path is put together within its bounds, or refused. */
#include "runtime/session/path_answer.h"

#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct packet {
    size_t len;
    char data[PATH_PACKET_MAX + 64];
};

static void begin(struct packet *p, struct path_said said)
{
    memcpy(p->data, &said, sizeof(said));
    p->len = sizeof(said);
}

static void add(struct packet *p, uint32_t mode, const char *path, const char *target)
{
    struct path_record r = { .bytes = 5, .mtime_s = -1, .mtime_ns = 500000000, .mode = mode, .uid = 1, .gid = 2,
                             .path_len = (uint16_t)(strlen(path) + 1),
                             .target_len = (uint16_t)(target ? strlen(target) + 1 : 1), .has_target = target != NULL };

    memcpy(p->data + p->len, &r, sizeof(r));
    p->len += sizeof(r);
    strcpy(p->data + p->len, path);
    p->len += r.path_len;
    strcpy(p->data + p->len, target ? target : "");
    p->len += r.target_len;
}

/* In a block of its own, so that no read goes beyond it unseen. */
static int take(struct path_answer *a, const struct packet *p, struct hutch_err *err)
{
    char *copy = malloc(p->len ? p->len : 1);
    int rc;

    memcpy(copy, p->data, p->len);
    rc = hutch_path_answer_take(a, copy, p->len, err);
    free(copy);
    return rc;
}

static const struct path_order list = { .kind = PATH_LIST, .depth = 2, .max_entries = 3 };
static const struct path_order look = { .kind = PATH_STAT, .depth = 1, .max_entries = 9 };

static void test_a_list(void **state)
{
    struct path_answer a;
    struct hutch_err err;
    static struct packet p;

    (void)state;
    hutch_path_answer_init(&a, &list);
    begin(&p, (struct path_said){ .what = PATH_ENTRIES, .n = 2 });
    add(&p, 0104755, "b", NULL);
    add(&p, 0120777, "a\xff\n", "to");
    assert_int_equal(take(&a, &p, &err), 0);
    assert_false(a.is_over);
    begin(&p, (struct path_said){ .what = PATH_DONE, .n = 1, .truncated = 1, .existed = 1 });
    add(&p, 0040700, "a/b", NULL);
    assert_int_equal(take(&a, &p, &err), 0);
    assert_true(a.is_over && a.truncated && !a.existed && a.errnum == 0 && a.n == 3);
    assert_string_equal(a.entries[0].path, "a/b"); /* by bytes */
    assert_int_equal(a.entries[0].type, HUTCH_PATH_DIRECTORY);
    assert_string_equal(a.entries[1].path, "a\xff\n");
    assert_string_equal(a.entries[1].target, "to");
    assert_int_equal(a.entries[1].type, HUTCH_PATH_LINK);
    assert_string_equal(a.entries[2].path, "b");
    assert_int_equal(a.entries[2].mode, 04755);
    assert_null(a.entries[2].target);
    assert_true(a.entries[2].mtime == -0.5 && a.entries[2].uid == 1 && a.entries[2].gid == 2);
    hutch_path_answer_done(&a);
    hutch_path_answer_done(&a);
}

static void test_a_failure(void **state)
{
    static const struct {
        struct path_said said;
        int step, errnum;
    } rows[] = {
        { { .what = PATH_FAILED, .step = PATH_STEP_OPEN, .errnum = ENOENT }, PATH_STEP_OPEN, ENOENT },
        { { .what = PATH_FAILED, .step = 77777, .errnum = 0 }, PATH_STEP_ORDER, EPROTO }, /* it was none of ours */
        { { .what = PATH_FAILED, .step = PATH_STEP_READ, .errnum = -1 }, PATH_STEP_READ, EPROTO },
        { { .what = PATH_FAILED, .step = PATH_STEP_READ, .errnum = 1 << 20 }, PATH_STEP_READ, EPROTO },
    };
    static struct packet p;
    struct path_answer a;
    struct hutch_err err;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        hutch_path_answer_init(&a, &look);
        begin(&p, rows[i].said);
        assert_int_equal(take(&a, &p, &err), 0);
        assert_true(a.is_over && (int)a.step == rows[i].step && a.errnum == rows[i].errnum);
        hutch_path_answer_done(&a);
    }
}

/* Whatever is changed in a good packet, it is refused with a sentence. */
static void test_what_is_refused(void **state)
{
    static const struct {
        const char *label;
        const struct path_order *order;
        const char *paths[5];
        uint32_t what, n; /* n 0: as many as there are */
        int cut;          /* bytes at its end */
    } rows[] = {
        { "upwards", &list, { ".." }, PATH_DONE, 0, 0 },
        { "upwards, later", &list, { "a/.." }, PATH_DONE, 0, 0 },
        { "itself", &list, { "." }, PATH_DONE, 0, 0 },
        { "absolute", &list, { "/etc" }, PATH_DONE, 0, 0 },
        { "an empty name", &list, { "a//" }, PATH_DONE, 0, 0 },
        { "ends with a slash", &list, { "a/" }, PATH_DONE, 0, 0 },
        { "no name", &list, { "" }, PATH_DONE, 0, 0 },
        { "too deep", &list, { "a/b/c" }, PATH_DONE, 0, 0 },
        { "too many", &list, { "a", "b", "c", "d" }, PATH_DONE, 0, 0 },
        { "more than it says", &list, { "a", "b" }, PATH_DONE, 1, 0 },
        { "less than it says", &list, { "a", "b" }, PATH_DONE, 3, 0 },
        { "far less than it says", &list, { "a" }, PATH_DONE, UINT32_MAX, 0 },
        { "a text is cut", &list, { "a" }, PATH_DONE, 0, 1 },
        { "a record is cut", &list, { "a" }, PATH_DONE, 0, 5 },
        { "entries without any", &list, { NULL }, PATH_ENTRIES, 0, 0 },
        { "entries, where one was asked for", &look, { "" }, PATH_ENTRIES, 0, 0 },
        { "two, where one was asked for", &look, { "", "" }, PATH_DONE, 0, 0 },
        { "a name, where one was asked for", &look, { "x" }, PATH_DONE, 0, 0 },
        { "another word", &look, { "" }, PATH_FAILED + 1, 0, 0 },
        { "a failure with a tail", &look, { "" }, PATH_FAILED, 0, 0 },
        { "half a head", &look, { NULL }, PATH_DONE, 0, 4 },
    };
    static struct packet p;
    struct path_answer a;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct hutch_err err = { .msg = "" };
        uint32_t n = 0;

        while (rows[i].paths[n])
            n++;
        hutch_path_answer_init(&a, rows[i].order);
        begin(&p, (struct path_said){ .what = rows[i].what, .n = rows[i].n ? rows[i].n : n });
        for (uint32_t k = 0; k < n; k++)
            add(&p, 0100644, rows[i].paths[k], NULL);
        p.len -= (size_t)rows[i].cut;
        if (take(&a, &p, &err) == 0)
            fail_msg("%s: it is taken", rows[i].label);
        assert_true(err.msg[0] && !strchr(err.msg, '\n'));
        hutch_path_answer_done(&a);
    }
}

static void test_its_amount(void **state)
{
    const struct path_order all = { .kind = PATH_LIST, .depth = PATH_DEPTH_MAX, .max_entries = PATH_ENTRIES_MAX };
    static struct packet p;
    struct path_answer a;
    struct hutch_err err;
    char path[251];
    size_t n = 0;

    (void)state;
    hutch_path_answer_init(&a, &all);
    p.len = sizeof(p.data);
    assert_int_equal(take(&a, &p, &err), -1); /* one packet */
    memset(path, 'x', 250);
    path[250] = '\0';
    begin(&p, (struct path_said){ .what = PATH_ENTRIES, .n = 100 });
    for (int i = 0; i < 100; i++)
        add(&p, 0100644, path, NULL);
    while (take(&a, &p, &err) == 0)
        n += 100;
    assert_in_range(n * 252, PATH_NAMES_MAX - 100 * 252, PATH_NAMES_MAX);
    assert_non_null(strstr(err.msg, "too long"));
    hutch_path_answer_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_list),
        cmocka_unit_test(test_a_failure),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_its_amount),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

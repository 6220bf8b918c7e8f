/* Forms with files, in pieces of every size. */
#include "runtime/gateway/multipart.h"

#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* What was told, as text: "name(filename)[data]". */
struct heard {
    char text[8192];
    size_t len;
};

static void note(struct heard *h, const char *data, size_t len)
{
    assert_true(h->len + len < sizeof(h->text));
    memcpy(h->text + h->len, data, len);
    h->len += len;
    h->text[h->len] = '\0';
}

static int on_part(void *user, const char *name, const char *filename, struct hutch_err *err)
{
    (void)err;
    note(user, name, strlen(name));
    if (filename) {
        note(user, "(", 1);
        note(user, filename, strlen(filename));
        note(user, ")", 1);
    }
    note(user, "[", 1);
    return 0;
}

static int on_data(void *user, const char *data, size_t len, struct hutch_err *err)
{
    (void)err;
    assert_true(len > 0);
    note(user, data, len);
    return 0;
}

static int on_end(void *user, struct hutch_err *err)
{
    (void)err;
    note(user, "]", 1);
    return 0;
}

static const struct multipart_events events = { on_part, on_data, on_end };

#define D "Content-Disposition: form-data; "
#define TYPE "multipart/form-data; boundary=XX"

static const struct { const char *label, *type, *body, *want, *error; } rows[] = {
    { "one", TYPE, "--XX\r\n" D "name=\"a\"\r\n\r\nhello\r\n--XX--\r\n", "a[hello]", NULL },
    { "nothing", TYPE, "--XX--", "", NULL },
    { "empty part", TYPE, "--XX\r\n" D "name=a\r\n\r\n\r\n--XX--", "a[]", NULL },
    { "two, and a file", TYPE, "--XX\r\n" D "name=\"a\"\r\n\r\n1\r\n--XX\r\n" D "name=\"f\"; filename=\"d/x y.txt\"\r\n"
      "Content-Type: text/plain\r\n\r\n\r\n2\r\n\r\n--XX--", "a[1]f(d/x y.txt)[\r\n2\r\n]", NULL },
    { "what looks like a boundary", TYPE, "--XX\r\n" D "name=a\r\n\r\n\r\r\n--X\r\n--\r\n-\r\r\n\n--XX\r\n--XX--",
      "a[\r\r\n--X\r\n--\r\n-\r\r\n\n--XX]", NULL },
    { "preamble and epilogue", TYPE,
      "words\r\n--XX\r\n" D "name=a\r\n\r\n1\r\n--XX--\r\nmore --XX\r\n--XX\r\n", "a[1]", NULL },
    { "boundary in quotes", "Multipart/Form-Data; charset=x; BOUNDARY=\"a b\"",
      "--a b\r\n" D "name=a\r\n\r\n1\r\n--a b--", "a[1]", NULL },
    { "quoted name", TYPE, "--XX\r\n" D "name=\"a\\\"b\\\\\"; filename=\"C:\\x\"\r\n\r\n\r\n--XX--",
      "a\"b\\(C:\\x)[]", NULL },
    { "empty file name", TYPE, "--XX\r\n" D "name=\"a\"; filename=\"\"\r\n\r\n\r\n--XX--", "a()[]", NULL },
    { "filename*", TYPE, "--XX\r\n" D "name=a; filename=b; filename*=UTF-8''c\r\n\r\n\r\n--XX--", "a(b)[]", NULL },
    { "filename* before", TYPE,
      "--XX\r\n" D "name=a; filename*=UTF-8''c; filename=b\r\n\r\n\r\n--XX--", "a(b)[]", NULL },
    { "filename* alone", TYPE,
      "--XX\r\n" D "name=a; filename*=utf-8'de'%C3%A4%2522; filename*=utf-8''c\r\n\r\n\r\n--XX--",
      "a(\xc3\xa4%22)[]", NULL },
    { "filename* of another set", TYPE, "--XX\r\n" D "name=a; filename*=latin-1''%E4\r\n\r\n\r\n--XX--", "a[]", NULL },
    { "filename* with half a byte", TYPE,
      "--XX\r\n" D "name=a; filename*=utf-8''%E\r\n\r\n\r\n--XX--", "", "'filename*'" },
    { "header in other letters", TYPE, "--XX\r\ncontent-disposition:FORM-DATA; NAME=a\r\n\r\n\r\n--XX--", "a[]", NULL },
    { "no boundary", "multipart/form-data", "", NULL, "no boundary" },
    { "empty boundary", "multipart/form-data; boundary=\"\"", "", NULL, "no boundary" },
    { "boundary with a line in it", "multipart/form-data; boundary=\"a\rb\"", "", NULL, "no boundary" },
    { "long boundary",
      "multipart/form-data; boundary=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
      "", NULL, "no boundary" },
    { "empty body", TYPE, "", "", "before its last boundary" },
    { "cut", TYPE, "--XX\r\n" D "name=a\r\n\r\nhel", "a[hel", "before its last boundary" },
    { "cut behind a boundary", TYPE, "--XX\r\n" D "name=a\r\n\r\n1\r\n--XX-", "a[1]", "before its last boundary" },
    { "no header", TYPE, "--XX\r\n\r\nx\r\n--XX--", "", "no headers" },
    { "no disposition", TYPE, "--XX\r\nA: b\r\n\r\nx\r\n--XX--", "", "no Content-Disposition" },
    { "two dispositions", TYPE, "--XX\r\n" D "name=a\r\n" D "name=b\r\n\r\nx\r\n--XX--", "", "two headers" },
    { "two names", TYPE, "--XX\r\n" D "name=a; name=b\r\n\r\nx\r\n--XX--", "", "'name' twice" },
    { "no name", TYPE, "--XX\r\n" D "filename=a\r\n\r\nx\r\n--XX--", "", "no name" },
    { "attachment", TYPE, "--XX\r\nContent-Disposition: attachment; name=a\r\n\r\nx\r\n--XX--", "", "not 'form-data'" },
    { "open quote", TYPE, "--XX\r\n" D "name=\"a\r\n\r\nx\r\n--XX--", "", "cannot be read" },
    { "rest behind a quote", TYPE, "--XX\r\n" D "name=\"a\"b\r\n\r\nx\r\n--XX--", "", "cannot be read" },
    { "lines without CR", TYPE, "--XX\n" D "name=a\n\nx\n--XX--", "", "end of its line" },
    { "header without CR", TYPE, "--XX\r\nA: b\n" D "name=a\r\n\r\nx\r\n--XX--", "", "a header that is none" },
    { "folded header", TYPE, "--XX\r\n" D "name=a;\r\n filename=b\r\n\r\nx\r\n--XX--", "", "" },
    { "longer boundary", TYPE, "--XXY\r\n" D "name=a\r\n\r\nx\r\n--XX--", "", "end of its line" },
};

static int parse(const char *type, const char *body, size_t len, size_t step, struct heard *h, struct hutch_err *err)
{
    struct multipart m;

    if (hutch_multipart_open(&m, type, &events, h, err) < 0)
        return -1;
    for (size_t at = 0; at < len; at += step)
        if (hutch_multipart_feed(&m, body + at, len - at < step ? len - at : step, err) < 0)
            return -1;
    return hutch_multipart_finish(&m, err);
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        size_t len = strlen(rows[i].body);

        for (size_t step = 1; step <= len + 1; step++) {
            struct heard h = { .len = 0 };
            struct hutch_err err = { .msg = "" };
            int rc = parse(rows[i].type, rows[i].body, len, step, &h, &err);

            if (rc != (rows[i].error ? -1 : 0) || (rows[i].error && !strstr(err.msg, rows[i].error)) ||
                (rows[i].want && strcmp(rows[i].want, h.text) != 0))
                fail_msg("%s, %zu at a time: %d '%s', heard '%s'", rows[i].label, step, rc, err.msg, h.text);
        }
    }
}

static void test_bounds(void **state)
{
    static char body[400000];
    struct heard h = { .len = 0 };
    struct hutch_err err;
    size_t len = (size_t)snprintf(body, sizeof(body), "--XX\r\nA: ");

    (void)state;
    memset(body + len, 'x', MULTIPART_MAX_HEADERS);
    assert_int_equal(parse(TYPE, body, len + MULTIPART_MAX_HEADERS, 1000, &h, &err), -1);
    assert_non_null(strstr(err.msg, "more than"));
    len = 0;
    for (int i = 0; i <= MULTIPART_MAX_PARTS; i++)
        len += (size_t)snprintf(body + len, sizeof(body) - len, "\r\n--XX\r\n" D "name=a\r\n\r\n");
    assert_int_equal(parse(TYPE, body, len, 1000, &h, &err), -1);
    assert_non_null(strstr(err.msg, "more than 1100 parts"));
    len = (size_t)snprintf(body, sizeof(body), "--XX\r\n" D "name=a") + 1; /* and its NUL */
    assert_int_equal(parse(TYPE, body, len, 1000, &h, &err), -1);
    assert_non_null(strstr(err.msg, "NUL"));
}

static int ignore_part(void *user, const char *name, const char *filename, struct hutch_err *err)
{
    (void)user, (void)name, (void)filename, (void)err;
    return 0;
}

struct counted {
    size_t n_calls, n_bytes;
};

static int count_data(void *user, const char *data, size_t len, struct hutch_err *err)
{
    struct counted *c = user;

    (void)data, (void)err;
    c->n_calls++;
    c->n_bytes += len;
    return 0;
}

static int ignore_end(void *user, struct hutch_err *err)
{
    (void)user, (void)err;
    return 0;
}

/* Each call is a write to a file. A piece of the body makes at most two: one for what an earlier piece has begun. */
static void test_blocks(void **state)
{
    static const struct multipart_events counting = { ignore_part, count_data, ignore_end };
    static const char *const fillings[] = { "\r\n--", "\r", "\r\n--X", "\r\n--X\r\n" };
    static const char head[] = "--XX\r\n" D "name=a\r\n\r\n";
    static char body[32000];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(fillings); i++) {
        struct counted counted = { .n_calls = 0 };
        struct multipart m;
        struct hutch_err err;
        size_t len = strlen(fillings[i]);

        for (size_t at = 0; at < sizeof(body); at++)
            body[at] = fillings[i][at % len];
        assert_int_equal(hutch_multipart_open(&m, TYPE, &counting, &counted, &err), 0);
        assert_int_equal(hutch_multipart_feed(&m, head, strlen(head), &err), strlen(head));
        for (int k = 0; k < 10; k++)
            assert_int_equal(hutch_multipart_feed(&m, body, sizeof(body), &err), sizeof(body));
        assert_int_equal(hutch_multipart_feed(&m, "\r\n--XX--", 8, &err), 8);
        assert_int_equal(hutch_multipart_finish(&m, &err), 0);
        assert_int_equal(counted.n_bytes, 10 * sizeof(body));
        assert_true(counted.n_calls <= 2 * 11);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows), cmocka_unit_test(test_bounds), cmocka_unit_test(test_blocks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

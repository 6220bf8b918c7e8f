/* test_multipart.c - parts of a form: what each has, however the bytes come, and what is refused. */
#include "runtime/gateway/multipart.h"

#include "runtime/text/buffer.h"
#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static int on_begin(void *owner, const char *name, const char *filename)
{
    hutch_text_addf(owner, "[%s|%s|", name ? name : "-", filename ? filename : "-");
    return 0;
}

static int on_data(void *owner, const char *data, size_t len)
{
    hutch_text_add(owner, data, len);
    return 0;
}

static int on_end(void *owner)
{
    hutch_text_add_string(owner, "]");
    return 0;
}

static const struct multipart_events events = { on_begin, on_data, on_end };

#define HEAD "Content-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n"

static const struct { const char *label, *body, *seen; } cases[] = { /* seen NULL: refused */
    { "one part", "--b\r\n" HEAD "\r\nx\r\n--b--\r\n", "[file|a|x]" },
    { "a preamble, an epilogue", "hello\r\n--b\r\n" HEAD "\r\nx\r\n--b--\r\nbye", "[file|a|x]" },
    { "empty", "--b\r\n" HEAD "\r\n\r\n--b--", "[file|a|]" },
    { "two",
      "--b\r\n" HEAD "\r\n1\r\n--b \r\ncontent-disposition: form-data; NAME=n\r\n\r\n2\r\n--b--",
      "[file|a|1][n|-|2]" },
    { "beginnings of the boundary", "--b\r\n\r\n\r\r\n-\r\n--\r\n\r\n--b--", "[-|-|\r\r\n-\r\n--\r\n]" },
    { "escapes", "--b\r\nContent-Disposition: form-data; name=\"f\\\"\"; filename=\"%22;%0d%0A%41\"\r\n\r\n\r\n--b--",
      "[f\"|\";\r\n%41|]" },
    { "no part", "--b--", "" },
    { "no end", "--b\r\n" HEAD "\r\nx", NULL },
    { "another boundary", "--bc\r\n\r\n\r\n--bc--", NULL },
    { "nothing", "", NULL },
};

static void check(size_t i, size_t step)
{
    struct text_buffer seen = TEXT_BUFFER_INIT;
    struct hutch_err err = { .msg = "" };
    size_t len = strlen(cases[i].body);
    struct multipart m;
    int rc = hutch_multipart_begin(&m, "multipart/form-data; boundary=b", &events, &seen, &err);

    for (size_t at = 0; rc == 0 && at < len; at += step)
        rc = hutch_multipart_take(&m, cases[i].body + at, len - at < step ? len - at : step, &err);
    if (rc == 0)
        rc = hutch_multipart_finish(&m, &err);
    assert_int_equal(rc, cases[i].seen ? 0 : -1);
    if (cases[i].seen)
        assert_string_equal(seen.data ? seen.data : "", cases[i].seen);
    hutch_text_done(&seen);
}

static void test_parts(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        print_message("  %s\n", cases[i].label);
        for (size_t step = 1; step < 9; step++)
            check(i, step);
        check(i, 4096);
    }
}

static void test_types(void **state)
{
    static const struct { const char *type; int rc; } rows[] = {
        { "multipart/form-data; boundary=b", 0 },
        { "Multipart/Form-Data; charset=utf-8; boundary=\"a b\"", 0 },
        { "multipart/form-data", -1 },
        { "multipart/form-data; boundary=", -1 },
        { "multipart/form-data; boundary=\"b", -1 },
        { "application/json; boundary=b", -1 },
        { NULL, -1 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct hutch_err err;
        struct multipart m;

        assert_int_equal(hutch_multipart_begin(&m, rows[i].type, &events, NULL, &err), rows[i].rc);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_parts), cmocka_unit_test(test_types) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

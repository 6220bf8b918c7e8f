/* test_connect.c - messages of streams: which bodies are one, and that each that is written is read again. */
#include "runtime/e2b/connect.h"

#include "runtime/text/buffer.h"
#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const struct { const char *label, *body; size_t len; const char *json; } cases[] = {
    { "nothing", "", 0, NULL },
    { "half a head", "\0\0\0\0", 4, NULL },
    { "no JSON at all", "\0\0\0\0\0", 5, "" },
    { "an object", "\0\0\0\0\2{}", 7, "{}" },
    { "compressed", "\1\0\0\0\2{}", 7, NULL },
    { "the last one", "\2\0\0\0\2{}", 7, NULL },
    { "cut", "\0\0\0\0\3{}", 7, NULL },
    { "more than one", "\0\0\0\0\2{}x", 8, NULL },
    { "4 GiB", "\0\xff\xff\xff\xff{}", 7, NULL },
};

static void test_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct hutch_err err = { .msg = "" };
        struct json_view json = JSON_VIEW_NONE;
        int rc = hutch_connect_read(cases[i].body, cases[i].len, &json, &err);

        print_message("  %s\n", cases[i].label);
        assert_int_equal(rc, cases[i].json ? 0 : -1);
        if (rc == 0) {
            assert_int_equal(json.len, strlen(cases[i].json));
            assert_memory_equal(json.text, cases[i].json, json.len);
        } else {
            assert_true(err.msg[0]);
        }
    }
}

static void test_written_is_read(void **state)
{
    struct text_buffer t = TEXT_BUFFER_INIT;
    struct json_view json;
    struct hutch_err err;

    (void)state;
    hutch_connect_add(&t, 0, "{\"a\":1}", 7);
    assert_int_equal(hutch_connect_read(t.data, t.len, &json, &err), 0);
    assert_memory_equal(json.text, "{\"a\":1}", 7);
    hutch_text_done(&t);
    hutch_connect_add_error(&t, hutch_connect_code(404), "a \"word\"");
    assert_string_equal(t.data, "{\"code\":\"not_found\",\"message\":\"a \\\"word\\\"\"}");
    hutch_text_done(&t);
    assert_string_equal(hutch_connect_code(500), "internal");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_read), cmocka_unit_test(test_written_is_read) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

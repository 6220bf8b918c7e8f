/* test_rpc.c - messages of JSON-RPC: which are taken, which are refused with which code, and the frames of answers. */
#include "runtime/mcp/rpc.h"

#include "runtime/text/buffer.h"
#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define V "\"jsonrpc\":\"2.0\""

static const struct {
    const char *label, *text;
    int code; /* 0: it is taken */
    enum rpc_kind kind;
    const char *id, *method;
} rows[] = {
    { "a request", "{" V ",\"id\":0,\"method\":\"ping\"}", 0, RPC_REQUEST, "0", "ping" },
    { "any order, and blanks", " {\"method\" : \"a\",\"params\":{},\"id\":\"x\"," V "} ", 0, RPC_REQUEST, "\"x\"",
      "a" },
    { "a negative id", "{" V ",\"id\":-7,\"method\":\"a\"}", 0, RPC_REQUEST, "-7", "a" },
    { "a notification", "{" V ",\"method\":\"a\"}", 0, RPC_NOTIFICATION, NULL, "a" },
    { "an answer", "{" V ",\"id\":1,\"result\":{}}", 0, RPC_ANSWER, "1", "" },
    { "an answer that is an error", "{" V ",\"id\":1,\"error\":{}}", 0, RPC_ANSWER, "1", "" },
    { "escapes", "{" V ",\"\\u0069d\":1,\"m\\u0065thod\":\"tools\\/list\"}", 0, RPC_REQUEST, "1", "tools/list" },
    { "members that nobody knows", "{" V ",\"id\":1,\"method\":\"a\",\"x\":[{}]}", 0, RPC_REQUEST, "1", "a" },
    { "a NUL in the method", "{" V ",\"id\":1,\"method\":\"a\\u0000b\"}", 0, RPC_REQUEST, "1", "?" },
    { "not an object", "7", RPC_INVALID_REQUEST, 0, NULL, NULL },
    { "another version", "{\"jsonrpc\":\"1.0\",\"id\":3,\"method\":\"a\"}", RPC_INVALID_REQUEST, 0, "3", NULL },
    { "no version", "{\"id\":3,\"method\":\"a\"}", RPC_INVALID_REQUEST, 0, "3", NULL },
    { "id null", "{" V ",\"id\":null,\"method\":\"a\"}", RPC_INVALID_REQUEST, 0, NULL, NULL },
    { "a fraction", "{" V ",\"id\":1.0,\"method\":\"a\"}", RPC_INVALID_REQUEST, 0, NULL, NULL },
    { "an exponent", "{" V ",\"id\":1E2,\"method\":\"a\"}", RPC_INVALID_REQUEST, 0, NULL, NULL },
    { "id twice", "{" V ",\"id\":1,\"\\u0069d\":2,\"method\":\"a\"}", RPC_INVALID_REQUEST, 0, "2", NULL },
    { "method twice", "{" V ",\"id\":1,\"method\":\"a\",\"method\":\"b\"}", RPC_INVALID_REQUEST, 0, "1", NULL },
    { "nothing", "{" V ",\"id\":1}", RPC_INVALID_REQUEST, 0, "1", NULL },
    { "params that are a list", "{" V ",\"id\":1,\"method\":\"a\",\"params\":[]}", RPC_INVALID_PARAMS, 0, "1", "a" },
};

static void test_messages(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct hutch_err err = { .msg = "" };
        struct rpc_message m;
        struct json_view value;
        int code;

        print_message("  %s\n", rows[i].label);
        assert_int_equal(hutch_rpc_check(rows[i].text, strlen(rows[i].text), &value, &err), 0);
        code = hutch_rpc_read(value, &m, &err);
        assert_int_equal(code, rows[i].code);
        assert_int_equal(code == 0, err.msg[0] == '\0');
        assert_int_equal(m.id.text != NULL, rows[i].id != NULL);
        if (rows[i].id) {
            assert_int_equal(m.id.len, strlen(rows[i].id));
            assert_memory_equal(m.id.text, rows[i].id, m.id.len);
        }
        if (code == 0)
            assert_int_equal(m.kind, rows[i].kind);
        if (rows[i].method)
            assert_string_equal(m.method, rows[i].method);
    }
}

static void test_what_is_no_json(void **state)
{
    static const char *const texts[] = { "", "{", "{}x", "{\"a\":\"\\ud800\"}", "\"\x80\"", "{\"a\":01}", "NaN",
                                         "{'a':1}", "\"a\nb\"" };
    char deep[2 * RPC_MAX_DEPTH + 3];
    struct hutch_err err;
    struct json_view value;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        print_message("  %s\n", texts[i]);
        assert_int_equal(hutch_rpc_check(texts[i], strlen(texts[i]), &value, &err), -1);
    }
    for (int levels = RPC_MAX_DEPTH; levels <= RPC_MAX_DEPTH + 1; levels++) {
        memset(deep, '[', (size_t)levels);
        memset(deep + levels, ']', (size_t)levels);
        assert_int_equal(hutch_rpc_check(deep, 2 * (size_t)levels, &value, &err), levels > RPC_MAX_DEPTH ? -1 : 0);
    }
}

static struct json_view view(const char *text)
{
    return (struct json_view){ text, strlen(text) };
}

static void test_ids(void **state)
{
    char longest[RPC_MAX_ID + 2];

    (void)state;
    assert_true(hutch_rpc_is_same_id(view("1"), view("1")));
    assert_true(hutch_rpc_is_same_id(view("\"a\\/b\""), view("\"a/\\u0062\"")));
    assert_true(hutch_rpc_is_same_id(view("\"\\u0000\""), view("\"\\u0000\"")));
    assert_false(hutch_rpc_is_same_id(view("\"\\u0000\""), view("\"\\u0000a\"")));
    assert_false(hutch_rpc_is_same_id(view("1"), view("\"1\"")));
    assert_false(hutch_rpc_is_same_id(view("1"), view("11")));
    assert_false(hutch_rpc_is_same_id(view("1"), JSON_VIEW_NONE));
    assert_false(hutch_rpc_is_same_id(view("{}"), view("{}")));
    memset(longest, 'x', sizeof(longest));
    longest[0] = longest[RPC_MAX_ID - 1] = '"';
    assert_true(hutch_rpc_is_id((struct json_view){ longest, RPC_MAX_ID }));
    assert_true(hutch_rpc_is_same_id((struct json_view){ longest, RPC_MAX_ID },
                                     (struct json_view){ longest, RPC_MAX_ID }));
    assert_false(hutch_rpc_is_id((struct json_view){ longest, RPC_MAX_ID + 1 }));
}

static void test_members(void **state)
{
    char text[8];

    (void)state;
    assert_int_equal(*hutch_rpc_get(view("{\"b\":{\"a\":1},\"a\":2}"), "a").text, '2');
    assert_int_equal(*hutch_rpc_get(view("{\"x\\/y\":3}"), "x/y").text, '3');
    assert_null(hutch_rpc_get(view("{\"ab\":3}"), "a").text);
    assert_null(hutch_rpc_get(view("[\"a\"]"), "a").text);
    assert_null(hutch_rpc_get(JSON_VIEW_NONE, "a").text);
    assert_true(hutch_rpc_text(view("\"1234567\""), text, sizeof(text)));
    assert_string_equal(text, "1234567");
    assert_false(hutch_rpc_text(view("\"12345678\""), text, sizeof(text)));
    assert_false(hutch_rpc_text(view("\"a\\u0000\""), text, sizeof(text)));
    assert_false(hutch_rpc_text(view("7"), text, sizeof(text)));
}

static void test_answers(void **state)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    (void)state;
    hutch_rpc_write_error(&t, view("\"a\""), RPC_INTERNAL_ERROR, "it's \"\n\xff\"", "{\"x\":1}");
    assert_string_equal(t.data, "{" V ",\"id\":\"a\",\"error\":{\"code\":-32603,"
                                "\"message\":\"it's \\\"\\n\xef\xbf\xbd\\\"\",\"data\":{\"x\":1}}}");
    t.len = 0;
    hutch_rpc_write_error(&t, JSON_VIEW_NONE, RPC_PARSE_ERROR, "x", NULL);
    assert_string_equal(t.data, "{" V ",\"error\":{\"code\":-32700,\"message\":\"x\"}}");
    t.len = 0;
    hutch_rpc_begin_result(&t, view("0"));
    assert_string_equal(t.data, "{" V ",\"id\":0,\"result\":");
    hutch_text_done(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages), cmocka_unit_test(test_what_is_no_json), cmocka_unit_test(test_ids),
        cmocka_unit_test(test_members),  cmocka_unit_test(test_answers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

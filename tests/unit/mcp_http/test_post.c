/* What a client has posted: its era, and headers that have to say what the body says. */
#include "runtime/mcp_http/post.h"

#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define VERSION "\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\""
#define NEW "\"_meta\":{" VERSION ",\"io.modelcontextprotocol/clientCapabilities\":{}}"
#define META(text) "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{\"_meta\":{" text "}}}"
#define CALL "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"run_python\"," NEW "}}"
#define LIST "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{" NEW "}}"
#define PING "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}"
#define MODERN "2026-07-28"

static const struct {
    const char *label, *text;
    struct mcp_headers headers;
    int code;
    bool is_modern;
} rows[] = {
    { "older", PING, { NULL, NULL, NULL }, 0, false },
    { "older, with its version", PING, { "2025-06-18", NULL, NULL }, 0, false },
    { "older, others' headers do not count", PING, { "2025-06-18", "x", "y" }, 0, false },
    { "a version that is not known", PING, { "2025-06-19", NULL, NULL }, RPC_INVALID_REQUEST, false },
    { "newer by its header alone", PING, { MODERN, "ping", NULL }, RPC_INVALID_PARAMS, true },
    { "newer", LIST, { MODERN, "tools/list", NULL }, 0, true },
    { "newer, without a version header", LIST, { NULL, "tools/list", NULL }, RPC_HEADER_MISMATCH, true },
    { "newer, another version header", LIST, { "2025-11-25", "tools/list", NULL }, RPC_HEADER_MISMATCH, true },
    { "newer, without a method", LIST, { MODERN, NULL, NULL }, RPC_HEADER_MISMATCH, true },
    { "newer, another method", LIST, { MODERN, "tools/call", NULL }, RPC_HEADER_MISMATCH, true },
    { "newer, without capabilities", META(VERSION), { MODERN, "tools/list", NULL }, RPC_INVALID_PARAMS, true },
    { "newer, capabilities of another type", META(VERSION ",\"io.modelcontextprotocol/clientCapabilities\":[]"),
      { MODERN, "tools/list", NULL }, RPC_INVALID_PARAMS, true },
    { "a version to come, of which nobody knows what it has to have",
      META("\"io.modelcontextprotocol/protocolVersion\":\"2099-01-01\""), { "2099-01-01", "tools/list", NULL }, 0,
      true },
    { "a call", CALL, { MODERN, "tools/call", "run_python" }, 0, true },
    { "a call, blanks around", CALL, { MODERN " ", "\ttools/call", "  run_python \t" }, 0, true },
    { "a call, blanks within", CALL, { MODERN, "tools/call", "run python" }, RPC_HEADER_MISMATCH, true },
    { "a call, blanks alone", CALL, { MODERN, "tools/call", "  " }, RPC_HEADER_MISMATCH, true },
    { "a call, without a name", CALL, { MODERN, "tools/call", NULL }, RPC_HEADER_MISMATCH, true },
    { "a call, another name", CALL, { MODERN, "tools/call", "run_pytho" }, RPC_HEADER_MISMATCH, true },
    { "a call, in base64", CALL, { MODERN, "tools/call", "=?base64?cnVuX3B5dGhvbg==?=" }, 0, true },
    { "a call, in base64 with blanks", CALL, { MODERN, "tools/call", " =?base64?cnVuX3B5dGhvbg==?= " }, 0, true },
    { "another in base64", CALL, { MODERN, "tools/call", "=?base64?cnVuX3B5dGhv?=" }, RPC_HEADER_MISMATCH, true },
    { "a call, no base64", CALL, { MODERN, "tools/call", "=?base64?%%?=" }, RPC_HEADER_MISMATCH, true },
    { "a call, base64 of nothing", CALL, { MODERN, "tools/call", "=?base64?=" }, RPC_HEADER_MISMATCH, true },
    { "an array", "[" PING "]", { NULL, NULL, NULL }, 0, false },
    { "an array of the newer", "[" LIST "]", { MODERN, NULL, NULL }, RPC_INVALID_REQUEST, true },
    { "a notification of the newer", "{\"jsonrpc\":\"2.0\",\"method\":\"x\"}", { MODERN, NULL, NULL }, 0, true },
    { "no JSON", "{", { NULL, NULL, NULL }, RPC_PARSE_ERROR, false },
    { "nothing", "", { NULL, NULL, NULL }, RPC_PARSE_ERROR, false },
    { "a number", "7", { NULL, NULL, NULL }, RPC_INVALID_REQUEST, false },
};

static void test_posts(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct hutch_err err = { .msg = "" };
        struct mcp_post post;

        print_message("  %s\n", rows[i].label);
        assert_int_equal(hutch_mcp_post_read(rows[i].text, strlen(rows[i].text), &rows[i].headers, &post, &err),
                         rows[i].code);
        assert_int_equal(post.is_modern, rows[i].is_modern);
        assert_int_equal(err.msg[0] != '\0', rows[i].code != 0);
    }
}

static void test_opening(void **state)
{
    static const char text[] = "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{}}";
    static const struct mcp_headers none;
    struct mcp_post post;
    struct hutch_err err;

    (void)state;
    assert_int_equal(hutch_mcp_post_read(text, sizeof(text) - 1, &none, &post, &err), 0);
    assert_true(post.is_opening && !post.is_array);
    assert_int_equal(hutch_mcp_post_read(PING, sizeof(PING) - 1, &none, &post, &err), 0);
    assert_false(post.is_opening);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_posts), cmocka_unit_test(test_opening) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

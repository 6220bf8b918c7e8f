/* test_progress.c - output in pieces of any length becomes messages that are UTF-8, and nothing is lost in between. */
#include "runtime/mcp/progress.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HEAD                                                                                                        \
    "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":\"t\",\"progress\":"

static struct mcp_progress begin(void)
{
    struct mcp_progress p = MCP_PROGRESS_INIT;

    p.token = strdup("\"t\"");
    p.sent_ms = 1000;
    return p;
}

/* The message that is written now. */
static const char *message(struct mcp_progress *p)
{
    static struct text_buffer t = TEXT_BUFFER_INIT;

    t.len = 0;
    hutch_mcp_progress_write(p, &t, 2000);
    return t.data;
}

static void test_characters_are_whole(void **state)
{
    static const char text[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z";

    (void)state;
    for (size_t step = 1; step < sizeof(text); step++) {
        struct mcp_progress p = begin();

        for (size_t at = 0; at < sizeof(text) - 1; at += step) {
            size_t left = sizeof(text) - 1 - at;

            hutch_mcp_progress_add(&p, 1, text + at, left < step ? left : step, 1000);
        }
        assert_string_equal(message(&p), HEAD "1,\"message\":\"a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z\"}}");
        hutch_mcp_progress_done(&p);
    }
}

static void test_streams_are_apart(void **state)
{
    struct mcp_progress p = begin();

    (void)state;
    hutch_mcp_progress_add(&p, 1, "\xe2\x82", 2, 1000);
    hutch_mcp_progress_add(&p, 2, "err\xff", 4, 1000);
    assert_string_equal(message(&p), HEAD "1,\"message\":\"err\xef\xbf\xbd\"}}");
    hutch_mcp_progress_add(&p, 1, "\xac", 1, 1000);
    assert_string_equal(message(&p), HEAD "2,\"message\":\"\xe2\x82\xac\"}}");
    hutch_mcp_progress_done(&p);
}

static void test_bounds(void **state)
{
    struct mcp_progress p = begin();
    size_t len = 3 * MCP_PROGRESS_MAX;
    char *much = malloc(len);

    (void)state;
    memset(much, 'x', len);
    hutch_mcp_progress_add(&p, 1, much, len, 1000);
    assert_true(p.pending.len <= MCP_PROGRESS_MAX);
    hutch_mcp_progress_add(&p, 1, much, len, 1000);
    assert_true(p.pending.len <= MCP_PROGRESS_MAX);
    assert_non_null(strstr(message(&p), "bytes are left out here"));
    hutch_mcp_progress_add(&p, 1, "y", 1, 1000);
    hutch_mcp_progress_drop(&p, 3000);
    assert_string_equal(message(&p),
                        HEAD "2,\"message\":\"[... 1 bytes are left out here, the result has more ...]\"}}");
    free(much);
    hutch_mcp_progress_done(&p);
}

static void test_deadlines(void **state)
{
    struct mcp_progress p = begin(), none = MCP_PROGRESS_INIT;

    (void)state;
    assert_true(hutch_mcp_progress_deadline(&none) < 0);
    hutch_mcp_progress_add(&none, 1, "x", 1, 1000);
    assert_int_equal(none.pending.len, 0);
    assert_true(hutch_mcp_progress_deadline(&p) == 1000 + MCP_SILENCE_MS);
    hutch_mcp_progress_add(&p, 1, "x", 1, 1001);
    assert_true(hutch_mcp_progress_deadline(&p) == 1000 + MCP_PROGRESS_MS);
    hutch_mcp_progress_add(&p, 1, "x", 1, 1002);
    message(&p);
    assert_true(hutch_mcp_progress_deadline(&p) == 2000 + MCP_SILENCE_MS);
    assert_string_equal(message(&p), HEAD "2}}"); /* a sign of life */
    hutch_mcp_progress_add(&p, 1, "x", 1, 5000);
    assert_true(hutch_mcp_progress_deadline(&p) == 5000 + MCP_GATHER_MS);
    hutch_mcp_progress_done(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_characters_are_whole), cmocka_unit_test(test_streams_are_apart),
        cmocka_unit_test(test_bounds), cmocka_unit_test(test_deadlines),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

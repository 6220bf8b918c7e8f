/* runtime/text/http_reader.c: answers however they are cut, and what is none. */
#include "runtime/text/http_reader.h"

#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define OK "HTTP/1.1 200 OK\r\n"
#define CHUNKED OK "Transfer-Encoding: chunked\r\n\r\n"

/* body NULL: it is refused. */
static const struct { const char *label, *answer; unsigned status; const char *body; bool is_over; } rows[] = {
    { "length", OK "Content-Length: 5\r\n\r\nhello", 200, "hello", true },
    { "names in any case", "HTTP/1.1 404 Not Found\r\nX: y\r\ncontent-length:2\r\n\r\nno", 404, "no", true },
    { "empty", OK "Content-Length: 0\r\n\r\n", 200, "", true },
    { "cut", OK "Content-Length: 5\r\n\r\nhell", 200, "hell", false },
    { "cut in its head", OK "Content-Len", 0, "", false },
    { "chunks", CHUNKED "5\r\nhello\r\nA\r\n0123456789\r\n0\r\n\r\n", 200, "hello0123456789", true },
    { "chunks, cut", CHUNKED "5\r\nhello\r\n", 200, "hello", false },
    { "no content", "HTTP/1.1 204 No Content\r\n\r\n", 204, "", true },
    { "another protocol", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: a\r\n\r\n\x81\x01x", 101, "\x81\x01x", false },
    { "behind its end", OK "Content-Length: 1\r\n\r\nhe", 200, NULL, false },
    { "no length", OK "\r\n", 200, NULL, false },
    { "two lengths", OK "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 200, NULL, false },
    { "other encoding", OK "Transfer-Encoding: gzip\r\n\r\n", 200, NULL, false },
    { "a length that is none", OK "Content-Length: 1x\r\n\r\n", 200, NULL, false },
    { "less than nothing", OK "Content-Length: -1\r\n\r\n", 200, NULL, false },
    { "a length of many digits", OK "Content-Length: 9999999999999999\r\n\r\n", 200, NULL, false },
    { "HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", 0, NULL, false },
    { "no HTTP", "SSH-2.0-x\r\n\r\n", 0, NULL, false },
    { "no chunk", CHUNKED "x\r\n", 200, NULL, false },
    { "empty chunk line", CHUNKED "\r\n", 200, NULL, false },
    { "chunk extension", CHUNKED "1;a=b\r\nx\r\n", 200, NULL, false },
    { "long chunk", CHUNKED "1\r\nxy\r\n", 200, NULL, false },
    { "trailer", CHUNKED "0\r\nA: b\r\n\r\n", 200, NULL, false },
    { "long line of a chunk", CHUNKED "0000000000000000000000000000000000000001\r\n", 200, NULL, false },
};

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const size_t len = strlen(rows[i].answer);

        for (size_t step = 1; step <= len; step++) {
            struct http_reader r = HTTP_READER_INIT;
            struct hutch_err err = { .msg = "" };
            int rc = 0;

            for (size_t at = 0; rc == 0 && at < len; at += step)
                rc = hutch_http_reader_feed(&r, rows[i].answer + at, len - at < step ? len - at : step, &err);
            if ((rc == 0) != (rows[i].body != NULL) || (rc < 0) != (err.msg[0] != '\0'))
                fail_msg("%s, %zu at a time: %d '%s'", rows[i].label, step, rc, err.msg);
            if (rc == 0) {
                assert_int_equal(r.status, rows[i].status);
                assert_int_equal(hutch_http_reader_is_over(&r), rows[i].is_over);
                assert_int_equal(r.body.len, strlen(rows[i].body));
                assert_memory_equal(r.body.data ? r.body.data : "", rows[i].body, r.body.len);
            }
            hutch_http_reader_done(&r);
        }
    }
}

/* The answer to HEAD says how long it would be. */
static void test_head(void **state)
{
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nX-A:  b c\r\nEmpty:\r\n\r\n";
    static const char *const wanted[][2] = { { "Content-Length", "7" }, { "X-A", "b c" }, { "Empty", "" } };
    struct http_reader r = HTTP_READER_INIT;
    struct hutch_err err;
    const char *name, *value;
    size_t at = 0, name_len, value_len, n = 0;

    (void)state;
    r.has_no_body = r.keeps_head = true;
    assert_int_equal(hutch_http_reader_feed(&r, answer, strlen(answer), &err), 0);
    assert_true(hutch_http_reader_is_over(&r));
    assert_int_equal(r.length, 7);
    while (hutch_http_reader_next_header(&r, &at, &name, &name_len, &value, &value_len)) {
        assert_true(n < ARRAY_SIZE(wanted));
        assert_int_equal(name_len, strlen(wanted[n][0]));
        assert_memory_equal(name, wanted[n][0], name_len);
        assert_int_equal(value_len, strlen(wanted[n][1]));
        assert_memory_equal(value, wanted[n][1], value_len);
        n++;
    }
    assert_int_equal(n, ARRAY_SIZE(wanted));
    hutch_http_reader_done(&r);
}

static void test_head_that_does_not_end(void **state)
{
    struct http_reader r = HTTP_READER_INIT;
    struct hutch_err err;
    int rc = 0;

    (void)state;
    for (size_t i = 0; rc == 0 && i < 2 * HTTP_READER_MAX_HEAD; i++)
        rc = hutch_http_reader_feed(&r, "x", 1, &err);
    assert_int_equal(rc, -1);
    assert_true(r.line.len <= HTTP_READER_MAX_HEAD + 1);
    hutch_http_reader_done(&r);
}

static void test_lines(void **state)
{
    struct http_reader r = HTTP_READER_INIT;
    struct hutch_err err;
    const char *text = CHUNKED "7\r\none\ntwo\r\n2\r\n\nx\r\n";

    (void)state;
    assert_int_equal(hutch_http_reader_feed(&r, text, strlen(text), &err), 0);
    assert_int_equal(hutch_http_reader_line(&r, 0), 4);
    assert_int_equal(hutch_http_reader_line(&r, 4), 4);
    assert_int_equal(hutch_http_reader_line(&r, 8), 0);
    assert_int_equal(hutch_http_reader_line(&r, 9), 0);
    hutch_http_reader_done(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_head),
        cmocka_unit_test(test_head_that_does_not_end),
        cmocka_unit_test(test_lines),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What a client sends over a WebSocket, and what is kept for it. The tests through a server have the wrong frames. */
#include "runtime/gateway/output_tail.h"
#include "runtime/gateway/process_request.h"
#include "runtime/gateway/ws_frames.h"
#include "runtime/gateway/ws_handshake.h"
#include "runtime/gateway/ws_reader.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct input {
    const char *data;
    size_t len;
};

static ssize_t receive(void *owner, void *to, size_t len)
{
    struct input *in = owner;

    if (in->len == 0)
        return -1;
    (void)len;
    memcpy(to, in->data, 1); /* byte by byte */
    in->data++;
    in->len--;
    return 1;
}

static void test_messages(void **state)
{
    /* "Hi" as text; "a" + ping + "b" as a binary message in pieces; close 1000. The mask is 0. */
    static const char data[] = "\x81\x82\0\0\0\0Hi" "\x02\x81\0\0\0\0a" "\x89\x80\0\0\0\0" "\x80\x81\0\0\0\0b"
                               "\x88\x82\0\0\0\0\x03\xe8";
    static const struct { enum ws_opcode opcode; const char *data; } wanted[] = {
        { WS_TEXT, "Hi" }, { WS_BINARY, "a" }, { WS_PING, "" }, { WS_BINARY, "b" }, { WS_CLOSE, "\x03\xe8" },
    };
    struct input in = { data, sizeof(data) - 1 };
    struct ws_message m;
    struct ws_reader r;
    enum ws_code code;

    (void)state;
    hutch_ws_reader_init(&r, receive, &in);
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        enum ws_read rc;

        while ((rc = hutch_ws_reader_next(&r, &m, &code)) == WS_READ_NOTHING && in.len > 0)
            ;
        assert_int_equal(rc, WS_READ_MESSAGE);
        assert_int_equal(m.opcode, wanted[i].opcode);
        assert_int_equal(m.len, strlen(wanted[i].data));
        assert_memory_equal(m.data, wanted[i].data, m.len);
    }
    assert_int_equal(m.code, WS_CODE_NORMAL);
    assert_int_equal(hutch_ws_reader_next(&r, &m, &code), WS_READ_NOTHING);
    hutch_ws_reader_done(&r);
}

/* Section 5.2: a length is written in the shortest form. Reserved bits and missing masks are told, not judged. */
static void test_frames(void **state)
{
    static const struct { const char *label, *head; size_t n; ssize_t rc; uint64_t len; } cases[] = {
        { "none", "\x82\x80" "abcd", 6, 0, 0 },
        { "one byte of two", "\x82", 1, WS_FRAMES_NOTHING, 0 },
        { "half a mask", "\x82\x81" "ab", 4, WS_FRAMES_NOTHING, 0 },
        { "no payload yet", "\x82\x81" "abcd", 6, WS_FRAMES_NOTHING, 0 },
        { "126 in two", "\x82\xfe\0\x7e" "abcdA", 9, 1, 126 },
        { "125 in two", "\x82\xfe\0\x7d" "abcdA", 9, WS_FRAMES_BROKEN, 0 },
        { "65536 in eight", "\x82\xff\0\0\0\0\0\1\0\0" "abcdA", 15, 1, 65536 },
        { "65535 in eight", "\x82\xff\0\0\0\0\0\0\xff\xff" "abcdA", 15, WS_FRAMES_BROKEN, 0 },
        { "the highest bit", "\x82\xff\x80\0\0\0\0\1\0\0" "abcdA", 15, WS_FRAMES_BROKEN, 0 },
        { "not masked", "\x82\1A", 3, 1, 1 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct input in = { cases[i].head, cases[i].n };
        const char *data = NULL;
        struct ws_frame frame;
        struct ws_frames f;
        ssize_t n;

        hutch_ws_frames_init(&f, receive, &in);
        while ((n = hutch_ws_frames_next(&f, &frame, &data)) == WS_FRAMES_NOTHING && in.len > 0)
            ;
        if (n != cases[i].rc)
            fail_msg("%s: %zd", cases[i].label, n);
        if (n < 0)
            continue;
        assert_int_equal(frame.len, cases[i].len);
        assert_int_equal(frame.is_masked, strcmp(cases[i].label, "not masked") != 0);
        if (n == 1)
            assert_int_equal(data[0], frame.is_masked ? 'A' ^ 'a' : 'A');
    }
}

static void test_written(void **state)
{
    static char large[70000];
    struct text_buffer t = TEXT_BUFFER_INIT;

    (void)state;
    hutch_ws_write(&t, WS_BINARY, "x", 1);
    assert_int_equal(t.len, 3);
    assert_memory_equal(t.data, "\x82\x01x", 3);
    hutch_text_done(&t);
    hutch_ws_write(&t, WS_TEXT, large, 126);
    assert_memory_equal(t.data, "\x81\x7e\0\x7e", 4);
    hutch_text_done(&t);
    hutch_ws_write(&t, WS_BINARY, large, sizeof(large));
    assert_memory_equal(t.data, "\x82\x7f\0\0\0\0\0\x01\x11\x70", 10);
    assert_int_equal(t.len, 10 + sizeof(large));
    hutch_text_done(&t);
    memset(large, 'x', 200);
    hutch_ws_write_close(&t, WS_CODE_POLICY, large); /* cut */
    assert_int_equal(t.len, 2 + WS_MAX_CONTROL);
    assert_memory_equal(t.data, "\x88\x7d\x03\xf0x", 5);
    hutch_text_done(&t);
}

/* The example of RFC 6455, 1.3. */
static void test_handshake(void **state)
{
    struct ws_handshake h = { "WebSocket", "keep-alive, Upgrade", "13", "dGhlIHNhbXBsZSBub25jZQ==",
                              "a,hutch.token.b , hutch.v1" };
    char answer[WS_ACCEPT_LEN + 1], token[32];
    struct hutch_err err;

    (void)state;
    assert_true(hutch_ws_handshake_asks(&h));
    assert_int_equal(hutch_ws_handshake_answer(&h, answer, &err), 0);
    assert_string_equal(answer, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert_true(hutch_ws_handshake_offers(&h));
    assert_true(hutch_ws_handshake_token(&h, token, sizeof(token)));
    assert_string_equal(token, "Bearer b");
    assert_false(hutch_ws_handshake_token(&h, token, 8)); /* no room */
    h.protocols = "hutch.token., xhutch.token.a";
    assert_false(hutch_ws_handshake_token(&h, token, sizeof(token)));
    h.connection = "Upgraded";
    assert_false(hutch_ws_handshake_asks(&h));
}

static void test_control(void **state)
{
    static const char resize[] = "{\"type\":\"resize\",\"rows\":24,\"cols\":80}";
    static const char interrupt[] = "{\"type\":\"signal\",\"signal\":\"SIGINT\"}";
    static const char wrong[] = "{\"type\":\"resize\",\"rows\":24}";
    struct control_message m;
    struct hutch_err err;

    (void)state;
    assert_int_equal(hutch_control_message_parse(resize, strlen(resize), &m, &err), 0);
    assert_int_equal(m.type, CONTROL_RESIZE);
    assert_int_equal(m.rows * 1000 + m.cols, 24080);
    assert_int_equal(hutch_control_message_parse(interrupt, strlen(interrupt), &m, &err), 0);
    assert_int_equal(m.signal, SIGINT);
    assert_int_equal(hutch_control_message_parse(wrong, strlen(wrong), &m, &err), -1);
}

static void test_tail(void **state)
{
    struct output_tail tail = OUTPUT_TAIL_INIT;
    static char piece[5000];
    size_t len, sum = 0, n_pieces = 0;
    const char *data;
    int stream;

    (void)state;
    assert_false(hutch_output_tail_first(&tail, &stream, &data, &len));
    hutch_output_tail_add(&tail, 1, "a", 1);
    hutch_output_tail_add(&tail, 1, "b", 1);
    hutch_output_tail_add(&tail, 2, "c", 1);
    assert_true(hutch_output_tail_first(&tail, &stream, &data, &len));
    assert_int_equal(stream, 1);
    assert_memory_equal(data, "ab", len);
    hutch_output_tail_pop(&tail);
    assert_true(hutch_output_tail_first(&tail, &stream, &data, &len));
    assert_int_equal(stream * 10 + (int)len, 21);
    for (int i = 0; i < 1000; i++)
        hutch_output_tail_add(&tail, 1 + i % 2, piece, sizeof(piece));
    assert_true(hutch_output_tail_size(&tail) <= 4 * OUTPUT_TAIL_MAX);
    for (; hutch_output_tail_first(&tail, &stream, &data, &len); hutch_output_tail_pop(&tail), n_pieces++)
        sum += len;
    assert_true(sum <= OUTPUT_TAIL_MAX && sum > OUTPUT_TAIL_MAX / 2 && n_pieces > 10);
    assert_int_equal(tail.n_dropped, 1000 * sizeof(piece) + 1 - sum);
    assert_int_equal(hutch_output_tail_size(&tail), 0);
    for (int i = 0; i < 100000; i++)
        hutch_output_tail_add(&tail, 1 + i % 2, "x", 1);
    assert_true(hutch_output_tail_size(&tail) <= 4 * OUTPUT_TAIL_MAX);
    hutch_output_tail_done(&tail);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),  cmocka_unit_test(test_frames),  cmocka_unit_test(test_written),
        cmocka_unit_test(test_handshake), cmocka_unit_test(test_control), cmocka_unit_test(test_tail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

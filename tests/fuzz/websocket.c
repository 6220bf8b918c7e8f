/* What a client sends over a WebSocket: frames, with the text messages in them as JSON; and the handshake's headers. */
#include "runtime/gateway/process_request.h"
#include "runtime/gateway/ws_handshake.h"
#include "runtime/gateway/ws_reader.h"
#include "runtime/text/utf8.h"

#include "tests/fuzz/fuzz.h"

struct input {
    const uint8_t *data;
    size_t len, step; /* step: so much comes at a time */
};

static ssize_t receive(void *owner, void *to, size_t len)
{
    struct input *in = owner;
    size_t n = in->len < in->step ? in->len : in->step;

    n = n < len ? n : len;
    if (n == 0)
        return -1;
    memcpy(to, in->data, n);
    in->data += n;
    in->len -= n;
    return (ssize_t)n;
}

static void take_text(const char *text, size_t len)
{
    struct control_message m;
    struct hutch_err err = { .msg = "" };
    int rc = hutch_control_message_parse(text, len, &m, &err);

    fuzz_check(len <= WS_MAX_TEXT && hutch_utf8_is_valid(text, len));
    fuzz_check_err(rc, &err);
    fuzz_check(rc < 0 || m.type != CONTROL_RESIZE || (m.rows && m.cols && m.rows <= UINT16_MAX));
    fuzz_check(rc < 0 || m.type != CONTROL_SIGNAL || (m.signal > 0 && m.signal <= 64));
}

static void read_frames(const uint8_t *data, size_t size)
{
    struct input in = { data, size, 1 + fuzz_byte(&data, &size) % 64 };
    struct ws_message m;
    struct ws_reader r;
    enum ws_code code;
    enum ws_read rc;

    in.data = data;
    in.len = size;
    hutch_ws_reader_init(&r, receive, &in);
    while ((rc = hutch_ws_reader_next(&r, &m, &code)) == WS_READ_MESSAGE || rc == WS_READ_TURN ||
           (rc == WS_READ_NOTHING && in.len > 0)) {
        if (rc != WS_READ_MESSAGE)
            continue;
        if (m.opcode == WS_TEXT)
            take_text(m.data, m.len);
        else
            fuzz_check(m.opcode == WS_BINARY || m.len <= WS_MAX_CONTROL);
        fuzz_check(m.opcode != WS_CLOSE || (m.code >= 1000 && m.code < 5000));
    }
    fuzz_check(rc == WS_READ_NOTHING || (code >= 1000 && code < 5000));
    hutch_ws_reader_done(&r);
}

static void shake_hands(const uint8_t *data, size_t size)
{
    auto_free char *text = fuzz_string(data, size);
    const struct ws_handshake h = { text, text, "13", text, text };
    char answer[WS_ACCEPT_LEN + 1], token[128];
    struct hutch_err err = { .msg = "" };

    hutch_ws_handshake_asks(&h);
    hutch_ws_handshake_offers(&h);
    fuzz_check(!hutch_ws_handshake_token(&h, token, sizeof(token)) || strncmp(token, "Bearer ", 7) == 0);
    fuzz_check_err(hutch_ws_handshake_answer(&h, answer, &err), &err);
}

static void parse_requests(const char *text, size_t size)
{
    struct process_request r;
    struct hutch_err err = { .msg = "" };
    auto_free char *data = NULL;
    unsigned rows, cols;
    size_t len;
    int rc = hutch_process_request_parse(text, size, &r, &err), number;

    fuzz_check_err(rc, &err);
    fuzz_check(rc < 0 || (!r.options.args) != (!r.options.shell));
    hutch_process_request_done(&r);
    fuzz_check_err(hutch_input_request_parse(text, size, &data, &len, &err), &err);
    fuzz_check_err(hutch_signal_request_parse(text, size, &number, &err), &err);
    fuzz_check_err(hutch_size_request_parse(text, size, &rows, &cols, &err), &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned which = fuzz_byte(&data, &size) % 8;
    auto_free char *text = malloc(size ? size : 1); /* of its own, so that no read goes beyond it unseen */

    fuzz_check(text);
    memcpy(text, data, size);
    if (which < 4)
        read_frames((const uint8_t *)text, size);
    else if (which == 4)
        shake_hands(data, size);
    else if (which == 5)
        parse_requests(text, size);
    else if (hutch_utf8_is_valid(text, size) && size <= WS_MAX_TEXT)
        take_text(text, size);
    return 0;
}

#include "runtime/gateway/ws_reader.h"

#include "runtime/text/utf8.h"

#include <string.h>

#define TURN_FRAMES 64 /* of those that say nothing, as empty ones, before others have their turn */

/* ---- life ---- */

void hutch_ws_reader_init(struct ws_reader *ret, ssize_t (*receive)(void *, void *, size_t), void *owner)
{
    *ret = (struct ws_reader){ .data_opcode = -1, .frame_opcode = -1 };
    hutch_ws_frames_init(&ret->frames, receive, owner);
}

void hutch_ws_reader_done(struct ws_reader *r)
{
    hutch_text_done(&r->text);
}

/* ---- frames ---- */

static bool is_control(int opcode)
{
    return opcode >= WS_CLOSE;
}

/* A frame begins. 0, or the code of what is wrong with it. */
static unsigned begin_frame(struct ws_reader *r, const struct ws_frame *frame)
{
    if (!frame->is_masked || frame->reserved)
        return WS_CODE_PROTOCOL;
    switch (frame->opcode) {
    case WS_TEXT:
    case WS_BINARY:
        if (r->data_opcode >= 0)
            return WS_CODE_PROTOCOL; /* in the midst of another message */
        r->data_opcode = frame->opcode;
        break;
    case WS_CONTINUATION:
        if (r->data_opcode < 0)
            return WS_CODE_PROTOCOL;
        break;
    case WS_CLOSE:
    case WS_PING:
    case WS_PONG:
        if (!frame->is_final || frame->len > WS_MAX_CONTROL)
            return WS_CODE_PROTOCOL;
        r->n_control = 0;
        break;
    default:
        return WS_CODE_PROTOCOL;
    }
    if (!is_control(frame->opcode) && r->data_opcode == WS_TEXT && frame->len > WS_MAX_TEXT - r->text.len)
        return WS_CODE_TOO_LARGE;
    r->frame_opcode = frame->opcode;
    r->is_final = frame->is_final;
    r->left = frame->len;
    return 0;
}

/* A close message of the client's. 0, or the code of what is wrong with it. */
static unsigned check_close(struct ws_message *m)
{
    if (m->len == 0) {
        m->code = WS_CODE_NONE;
        return 0;
    }
    if (m->len == 1)
        return WS_CODE_PROTOCOL;
    m->code = (unsigned)(unsigned char)m->data[0] << 8 | (unsigned char)m->data[1];
    if (m->code < 1000 || (m->code >= 1004 && m->code <= 1006) || (m->code >= 1015 && m->code < 3000) ||
        m->code >= 5000)
        return WS_CODE_PROTOCOL;
    return hutch_utf8_is_valid(m->data + 2, m->len - 2) ? 0 : WS_CODE_NO_UTF8;
}

/* @data is the piece of a frame that has just come. True when it makes something to tell. */
static bool take_piece(struct ws_reader *r, const char *data, size_t len, struct ws_message *ret)
{
    bool is_over = r->left == 0;

    if (is_control(r->frame_opcode)) {
        if (len > 0)
            memcpy(r->control + r->n_control, data, len);
        r->n_control += len;
        *ret = (struct ws_message){ .opcode = (enum ws_opcode)r->frame_opcode, .data = r->control,
                                    .len = r->n_control };
    } else if (r->data_opcode == WS_BINARY) {
        *ret = (struct ws_message){ .opcode = WS_BINARY, .data = data, .len = len };
    } else {
        hutch_text_add(&r->text, data, len);
        *ret = (struct ws_message){ .opcode = WS_TEXT, .data = r->text.data, .len = r->text.len };
    }
    return ret->opcode == WS_BINARY ? len > 0 : is_over && (is_control(r->frame_opcode) || r->is_final);
}

static void end_frame(struct ws_reader *r)
{
    if (!is_control(r->frame_opcode) && r->is_final)
        r->data_opcode = -1;
    r->frame_opcode = -1;
}

static unsigned check_message(const struct ws_reader *r, struct ws_message *m)
{
    if (m->opcode == WS_CLOSE)
        return check_close(m);
    if (m->opcode != WS_TEXT)
        return 0;
    if (r->text.is_broken)
        return WS_CODE_TRY_LATER;
    return hutch_utf8_is_valid(m->data, m->len) ? 0 : WS_CODE_NO_UTF8;
}

enum ws_read hutch_ws_reader_next(struct ws_reader *r, struct ws_message *ret, enum ws_code *ret_code)
{
    bool is_told = false;
    unsigned code = 0;

    if (r->data_opcode < 0)
        hutch_text_done(&r->text); /* what was told before */
    for (int i = 0; !is_told && !code; i++) {
        const char *data = NULL;
        struct ws_frame frame;
        ssize_t n = i < TURN_FRAMES ? hutch_ws_frames_next(&r->frames, &frame, &data) : 0;

        if (i == TURN_FRAMES)
            return WS_READ_TURN;
        if (n == WS_FRAMES_NOTHING)
            return WS_READ_NOTHING;
        if (n < 0) {
            *ret_code = WS_CODE_PROTOCOL;
            return WS_READ_REFUSED;
        }
        if (r->frame_opcode < 0)
            code = begin_frame(r, &frame);
        if (code)
            break;
        r->left -= (uint64_t)n;
        is_told = take_piece(r, data, (size_t)n, ret);
        if (is_told)
            code = check_message(r, ret);
        if (r->left == 0)
            end_frame(r);
    }
    *ret_code = (enum ws_code)code;
    return code ? WS_READ_REFUSED : WS_READ_MESSAGE;
}

/* ---- what the server sends ---- */

/* Servers do not mask: section 5.1. */
void hutch_ws_write(struct text_buffer *to, enum ws_opcode opcode, const char *data, size_t len)
{
    unsigned char head[10] = { (unsigned char)(0x80 | opcode) };
    size_t n = 2;

    if (len < 126) {
        head[1] = (unsigned char)len;
    } else {
        size_t n_length = len <= UINT16_MAX ? 2 : 8;

        head[1] = n_length == 2 ? 126 : 127;
        for (size_t i = 0; i < n_length; i++)
            head[n++] = (unsigned char)((uint64_t)len >> 8 * (n_length - 1 - i));
    }
    hutch_text_add(to, (const char *)head, n);
    hutch_text_add(to, data, len);
}

void hutch_ws_write_close(struct text_buffer *to, enum ws_code code, const char *reason)
{
    char data[WS_MAX_CONTROL];
    size_t len = hutch_utf8_cut(reason, strlen(reason), sizeof(data) - 2);

    data[0] = (char)((unsigned)code >> 8);
    data[1] = (char)code;
    memcpy(data + 2, reason, len);
    hutch_ws_write(to, WS_CLOSE, data, len + 2);
}

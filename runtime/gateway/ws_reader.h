/* ws_reader.h - the frames of a WebSocket's client as messages: RFC 6455, section 5.
 *
 * Pieces of a binary message are told as they come, so nothing of one is gathered, however long it is. A text message
 * is gathered and checked for UTF-8. What no client may send has a close code. */
#ifndef HUTCH_GATEWAY_WS_READER_H
#define HUTCH_GATEWAY_WS_READER_H

#include "runtime/gateway/ws_frames.h"
#include "runtime/text/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define WS_MAX_TEXT (16u << 10) /* bytes of a text message */
#define WS_MAX_CONTROL 125

enum ws_opcode { WS_CONTINUATION = 0, WS_TEXT = 1, WS_BINARY = 2, WS_CLOSE = 8, WS_PING = 9, WS_PONG = 10 };

/* RFC 6455, 7.4.1; from 4000 on they are an application's. */
enum ws_code {
    WS_CODE_NORMAL = 1000,
    WS_CODE_GOING_AWAY = 1001,
    WS_CODE_PROTOCOL = 1002,
    WS_CODE_NONE = 1005, /* never sent: the client's has none */
    WS_CODE_NO_UTF8 = 1007,
    WS_CODE_POLICY = 1008,
    WS_CODE_TOO_LARGE = 1009,
    WS_CODE_INTERNAL = 1011,
    WS_CODE_TRY_LATER = 1013,
    WS_CODE_REPLACED = 4001,
    WS_CODE_GONE = 4004,
};

/* What has come. */
struct ws_message {
    enum ws_opcode opcode;
    const char *data; /* until the next call */
    size_t len;
    unsigned code;    /* WS_CLOSE: what the client says, WS_CODE_NONE for nothing */
};

struct ws_reader {
    struct ws_frames frames;
    int data_opcode;         /* of the message that has begun; -1: none has */
    int frame_opcode;        /* of the frame that has begun; -1: none has */
    bool is_final;
    uint64_t left;           /* bytes of that frame's payload */
    struct text_buffer text; /* owned; of a text message */
    char control[WS_MAX_CONTROL];
    size_t n_control;
};

/* WS_READ_TURN: there may be more, but others have their turn first. */
enum ws_read { WS_READ_MESSAGE, WS_READ_NOTHING, WS_READ_REFUSED, WS_READ_TURN };

/* @receive as recv(2) without waiting; -1 and 0: there is nothing now. */
void hutch_ws_reader_init(struct ws_reader *ret, ssize_t (*receive)(void *, void *, size_t), void *owner);
void hutch_ws_reader_done(struct ws_reader *r);

/* The next message or piece of one. WS_READ_REFUSED: *ret_code says how to close. */
enum ws_read hutch_ws_reader_next(struct ws_reader *r, struct ws_message *ret, enum ws_code *ret_code);

/* A whole message of the server's, as one frame. @to may be broken afterwards. */
void hutch_ws_write(struct text_buffer *to, enum ws_opcode opcode, const char *data, size_t len);
/* A close message. */
void hutch_ws_write_close(struct text_buffer *to, enum ws_code code, const char *reason);

#endif

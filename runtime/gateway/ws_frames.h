/* ws_frames.h - frames as a WebSocket's client sends them, without their masks: RFC 6455, section 5.2.
 *
 * The payload is handed out in pieces as it comes, so a frame may be of any length and takes no memory. */
#ifndef HUTCH_GATEWAY_WS_FRAMES_H
#define HUTCH_GATEWAY_WS_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { WS_FRAMES_NOTHING = -1, WS_FRAMES_BROKEN = -2 };

struct ws_frame {
    bool is_final, is_masked;
    unsigned reserved; /* bits that only extensions set */
    int opcode;
    uint64_t len;      /* of the whole payload */
};

struct ws_frames {
    /* As recv(2) without waiting; -1 and 0: there is nothing now. */
    ssize_t (*receive)(void *owner, void *to, size_t len);
    void *owner;
    unsigned char bytes[4096];
    size_t at, n;              /* of bytes: what has come and was not handed out */
    bool has_head;             /* frame and key are set; the payload is being handed out */
    struct ws_frame frame;
    unsigned char key[4];
    uint64_t taken;            /* of the payload */
};

void hutch_ws_frames_init(struct ws_frames *ret, ssize_t (*receive)(void *owner, void *to, size_t len), void *owner);

/* The next piece of the payload, valid until the next call: its length, which is 0 for a frame without any, and in
 * *ret_frame the frame that it is of. WS_FRAMES_NOTHING: nothing has come. WS_FRAMES_BROKEN: a length that is not
 * written in the shortest form, or has its highest bit set; nothing can be read behind it. */
ssize_t hutch_ws_frames_next(struct ws_frames *f, struct ws_frame *ret_frame, const char **ret_data);

#endif

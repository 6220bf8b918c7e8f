#include "runtime/gateway/ws_frames.h"

#include <string.h>

enum { SHORT_LENGTH = 125, TWO_BYTES = 126, EIGHT_BYTES = 127 };

void hutch_ws_frames_init(struct ws_frames *ret, ssize_t (*receive)(void *owner, void *to, size_t len), void *owner)
{
    *ret = (struct ws_frames){ .receive = receive, .owner = owner };
}

/* True when @len bytes have come that were not handed out; they are at f->bytes + f->at. */
static bool has_come(struct ws_frames *f, size_t len)
{
    while (f->n - f->at < len) {
        ssize_t n;

        memmove(f->bytes, f->bytes + f->at, f->n - f->at);
        f->n -= f->at;
        f->at = 0;
        n = f->receive(f->owner, f->bytes + f->n, sizeof(f->bytes) - f->n);
        if (n <= 0)
            return false;
        f->n += (size_t)n;
    }
    return true;
}

static uint64_t big_endian(const unsigned char *bytes, size_t len)
{
    uint64_t value = 0;

    for (size_t i = 0; i < len; i++)
        value = value << 8 | bytes[i];
    return value;
}

/* 0, or one of the negative answers. */
static int read_head(struct ws_frames *f)
{
    size_t n_length, n_key;
    const unsigned char *head;
    unsigned length;

    if (!has_come(f, 2))
        return WS_FRAMES_NOTHING;
    length = f->bytes[f->at + 1] & 0x7f;
    n_length = length == TWO_BYTES ? 2 : length == EIGHT_BYTES ? 8 : 0;
    n_key = f->bytes[f->at + 1] & 0x80 ? sizeof(f->key) : 0;
    if (!has_come(f, 2 + n_length + n_key))
        return WS_FRAMES_NOTHING;
    head = f->bytes + f->at;
    f->frame = (struct ws_frame){ .is_final = head[0] & 0x80, .is_masked = n_key > 0, .reserved = head[0] >> 4 & 7,
                                  .opcode = head[0] & 0xf,
                                  .len = n_length ? big_endian(head + 2, n_length) : length };
    if ((n_length == 2 && f->frame.len <= SHORT_LENGTH) || (n_length == 8 && f->frame.len <= UINT16_MAX) ||
        f->frame.len > INT64_MAX)
        return WS_FRAMES_BROKEN;
    memset(f->key, 0, sizeof(f->key));
    memcpy(f->key, head + 2 + n_length, n_key);
    f->at += 2 + n_length + n_key;
    f->taken = 0;
    f->has_head = true;
    return 0;
}

ssize_t hutch_ws_frames_next(struct ws_frames *f, struct ws_frame *ret_frame, const char **ret_data)
{
    int rc = f->has_head ? 0 : read_head(f);
    uint64_t left;
    size_t n;

    if (rc < 0)
        return rc;
    left = f->frame.len - f->taken;
    if (left > 0 && !has_come(f, 1))
        return WS_FRAMES_NOTHING;
    n = left < f->n - f->at ? (size_t)left : f->n - f->at;
    for (size_t i = 0; i < n; i++)
        f->bytes[f->at + i] ^= f->key[(f->taken + i) % sizeof(f->key)];
    *ret_data = (const char *)f->bytes + f->at;
    *ret_frame = f->frame;
    f->at += n;
    f->taken += n;
    f->has_head = f->taken < f->frame.len;
    return (ssize_t)n;
}

/* Forms with files: whatever the pieces are in which a body comes, the same is told of it. */
#include "runtime/gateway/multipart.h"
#include "runtime/text/buffer.h"

#include "tests/fuzz/fuzz.h"

static int on_part(void *user, const char *name, const char *filename, struct hutch_err *err)
{
    (void)err;
    hutch_text_add_string(user, name);
    hutch_text_add_string(user, filename ? filename : "");
    hutch_text_add_string(user, "[");
    return 0;
}

static int on_data(void *user, const char *data, size_t len, struct hutch_err *err)
{
    (void)err;
    fuzz_check(len > 0);
    hutch_text_add(user, data, len);
    return 0;
}

static int on_end(void *user, struct hutch_err *err)
{
    (void)err;
    hutch_text_add_string(user, "]");
    return 0;
}

static int parse(const char *type, const uint8_t *data, size_t size, size_t step, struct text_buffer *heard,
                 struct hutch_err *err)
{
    static const struct multipart_events events = { on_part, on_data, on_end };
    struct multipart m;

    if (hutch_multipart_open(&m, type, &events, heard, err) < 0)
        return -1;
    for (size_t at = 0; at < size; at += step) {
        size_t len = size - at < step ? size - at : step;
        auto_free char *piece = malloc(len); /* of its own, so that no read goes beyond it unseen */

        fuzz_check(piece);
        memcpy(piece, data + at, len);
        if (hutch_multipart_feed(&m, piece, len, err) < 0)
            return -1;
    }
    return hutch_multipart_finish(&m, err);
}

/* The first line is the Content-Type. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t step = 1 + fuzz_byte(&data, &size) % 16;
    const uint8_t *newline = memchr(data, '\n', size);
    size_t len = newline ? (size_t)(newline - data) : size;
    auto_free char *type = fuzz_string(data, len);
    struct text_buffer whole = TEXT_BUFFER_INIT, pieces = TEXT_BUFFER_INIT;
    struct hutch_err err = { .msg = "" };
    int rc;

    data += len + (newline != NULL);
    size -= len + (newline != NULL);
    rc = parse(type, data, size, size + 1, &whole, &err);
    fuzz_check_err(rc, &err);
    fuzz_check(parse(type, data, size, step, &pieces, &err) == rc);
    fuzz_check(whole.len == pieces.len && (whole.len == 0 || memcmp(whole.data, pieces.data, whole.len) == 0));
    hutch_text_done(&whole);
    hutch_text_done(&pieces);
    return 0;
}

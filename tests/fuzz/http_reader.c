/* What a server answers, or somebody in its place: whatever the pieces are in which it comes, the same is read. */
#include "runtime/text/http_reader.h"

#include "tests/fuzz/fuzz.h"

/* How many lines of the body there are, and where they end. */
static size_t count_lines(const struct http_reader *r, size_t *ret_end)
{
    size_t n = 0, len;

    for (*ret_end = 0; (len = hutch_http_reader_line(r, *ret_end)) > 0; n++) {
        *ret_end += len;
        fuzz_check(*ret_end <= r->body.len && r->body.data[*ret_end - 1] == '\n');
    }
    return n;
}

static int read_all(struct http_reader *r, const uint8_t *data, size_t size, size_t step, struct hutch_err *err)
{
    for (size_t at = 0; at < size; at += step) {
        size_t len = size - at < step ? size - at : step;
        auto_free char *piece = malloc(len); /* of its own, so that no read goes beyond it unseen */

        fuzz_check(piece);
        memcpy(piece, data + at, len);
        if (hutch_http_reader_feed(r, piece, len, err) < 0)
            return -1;
        fuzz_check(r->status < 1000 && r->line.len <= HTTP_READER_MAX_HEAD && r->body.len <= size);
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t step = 1 + fuzz_byte(&data, &size) % 16, ends[2];
    struct http_reader whole = HTTP_READER_INIT, pieces = HTTP_READER_INIT;
    struct hutch_err err = { .msg = "" };
    int rc = read_all(&whole, data, size, size + 1, &err);

    fuzz_check_err(rc, &err);
    fuzz_check(read_all(&pieces, data, size, step, &err) == rc);
    if (rc == 0) {
        fuzz_check(whole.status == pieces.status);
        fuzz_check(hutch_http_reader_is_over(&whole) == hutch_http_reader_is_over(&pieces));
        fuzz_check(whole.body.len == pieces.body.len);
        fuzz_check(whole.body.len == 0 || memcmp(whole.body.data, pieces.body.data, whole.body.len) == 0);
        fuzz_check(count_lines(&whole, &ends[0]) == count_lines(&pieces, &ends[1]) && ends[0] == ends[1]);
    }
    hutch_http_reader_done(&whole);
    hutch_http_reader_done(&pieces);
    return 0;
}

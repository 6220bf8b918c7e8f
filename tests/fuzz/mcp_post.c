/* What clients of the Model Context Protocol post: three headers, each a piece, and the body. */
#include "runtime/mcp_http/post.h"

#include "tests/fuzz/fuzz.h"

static char *header(const uint8_t **data, size_t *size)
{
    size_t len;
    auto_free char *piece = fuzz_piece(data, size, &len);

    return len > 0 ? fuzz_string((const uint8_t *)piece, len) : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_free char *version = header(&data, &size), *method = header(&data, &size), *name = header(&data, &size);
    const struct mcp_headers headers = { version, method, name };
    auto_free char *text = malloc(size ? size : 1); /* of its own, so that no read goes beyond it unseen */
    struct hutch_err err = { .msg = "" };
    struct mcp_post post;
    int code;

    fuzz_check(text);
    memcpy(text, data, size);
    code = hutch_mcp_post_read(text, size, &headers, &post, &err);
    fuzz_check_err(code == 0 ? 0 : -1, &err);
    fuzz_check(!post.message.id.text || (post.message.id.text >= text && post.message.id.text < text + size));
    if (code == 0 && post.is_modern && post.message.kind == RPC_REQUEST)
        fuzz_check(version && method && strcmp(method, post.message.method) == 0);
    return 0;
}

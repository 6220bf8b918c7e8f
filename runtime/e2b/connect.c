#include "runtime/e2b/connect.h"

#include "runtime/text/buffer.h"
#include "runtime/text/json_write.h"
#include "sandbox/fd.h"

#include <stdint.h>
#include <string.h>

int hutch_connect_read(const char *body, size_t len, struct json_view *ret, struct hutch_err *err)
{
    const unsigned char *head = (const unsigned char *)body;
    uint32_t n;

    if (len < CONNECT_HEAD)
        return hutch_err_set(err, 0, "request: the body is no message: it has %zu bytes, and its head alone %d", len,
                             CONNECT_HEAD);
    if (head[0])
        return hutch_err_set(err, 0, "request: the message has flags 0x%02x, and can have none", head[0]);
    n = (uint32_t)head[1] << 24 | (uint32_t)head[2] << 16 | (uint32_t)head[3] << 8 | head[4];
    if (n != len - CONNECT_HEAD)
        return hutch_err_set(err, 0, "request: the message says that it has %u bytes, and %zu are there", n,
                             len - CONNECT_HEAD);
    *ret = (struct json_view){ body + CONNECT_HEAD, n };
    return 0;
}

void hutch_connect_add(struct text_buffer *t, unsigned flags, const char *json, size_t len)
{
    char head[CONNECT_HEAD] = { (char)flags, (char)(len >> 24), (char)(len >> 16), (char)(len >> 8), (char)len };

    hutch_text_add(t, head, sizeof(head));
    hutch_text_add(t, json, len);
}

const char *hutch_connect_code(unsigned status)
{
    static const struct { unsigned status; const char *code; } rows[] = {
        { 400, "invalid_argument" },   { 401, "unauthenticated" },    { 403, "permission_denied" },
        { 404, "not_found" },          { 405, "unimplemented" },      { 408, "deadline_exceeded" },
        { 409, "failed_precondition" }, { 413, "resource_exhausted" }, { 415, "unimplemented" },
        { 416, "out_of_range" },       { 429, "resource_exhausted" }, { 501, "unimplemented" },
        { 503, "unavailable" },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (rows[i].status == status)
            return rows[i].code;
    return "internal";
}

void hutch_connect_add_error(struct text_buffer *t, const char *code, const char *message)
{
    hutch_text_addf(t, "{\"code\":\"%s\",\"message\":", code);
    hutch_json_quote(t, message, strlen(message));
    hutch_text_add_string(t, "}");
}

void hutch_connect_add_last(struct text_buffer *t, const char *code, const char *message)
{
    hutch_text_add_string(t, "{");
    if (code) {
        hutch_text_add_string(t, "\"error\":");
        hutch_connect_add_error(t, code, message);
    }
    hutch_text_add_string(t, "}");
}

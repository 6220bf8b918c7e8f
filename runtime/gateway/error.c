#include "runtime/gateway/error.h"

#include "runtime/text/buffer.h"
#include "runtime/text/json_write.h"

#include <errno.h>
#include <string.h>

const struct gateway_error_row hutch_gateway_errors[GATEWAY_ERROR_COUNT] = {
    [GATEWAY_INVALID_REQUEST] = { 400, "invalid_request", "docs/gateway.md says what this request takes.", 0 },
    [GATEWAY_UNAUTHORIZED] = { 401, "unauthorized",
                               "Send 'Authorization: Bearer TOKEN' with a token that the server knows.", 0 },
    [GATEWAY_HOST_NOT_ALLOWED] = { 403, "host_not_allowed",
                                   "Use an address, or have the server started with --allow-host NAME.", 0 },
    [GATEWAY_ORIGIN_NOT_ALLOWED] = { 403, "origin_not_allowed",
                                     "Have the server started with --allow-origin ORIGIN for this page.", 0 },
    [GATEWAY_NOT_FOUND] = { 404, "not_found", "docs/gateway.md lists what there is.", 0 },
    [GATEWAY_METHOD_NOT_ALLOWED] = { 405, "method_not_allowed", "The header Allow lists the methods.", 0 },
    [GATEWAY_TIMEOUT] = { 408, "request_timeout", "Send the whole request without pauses.", 0 },
    [GATEWAY_CONFLICT] = { 409, "conflict", "The message says what stands in the way.", 0 },
    [GATEWAY_PRECONDITION] = { 412, "precondition_failed", "Leave out the headers that are for hutch itself.", 0 },
    [GATEWAY_BODY_TOO_LARGE] = { 413, "body_too_large",
                                 "Send less, or have the server started with a larger --max-body.", 0 },
    [GATEWAY_MEDIA_TYPE] = { 415, "unsupported_media_type", "Send the Content-Type that the message names.", 0 },
    [GATEWAY_RANGE] = { 416, "range_not_satisfiable", "Ask for bytes that the file has.", 0 },
    [GATEWAY_KEY_REUSED] = { 422, "idempotency_key_reused", "Send another key with another request.", 0 },
    [GATEWAY_UPGRADE_REQUIRED] = { 426, "upgrade_required", "Open it with a WebSocket client of version 13.", 0 },
    [GATEWAY_QUEUE_FULL] = { 429, "queue_full", "Try again after the seconds in Retry-After.", 1 },
    [GATEWAY_INTERNAL] = { 500, "internal", "The server's log may say more.", 0 },
    [GATEWAY_SETUP_FAILED] = { 501, "setup_failed", "What the message names has to be mended on the server first.", 0 },
    [GATEWAY_OVERLOADED] = { 503, "overloaded", "Try again after the seconds in Retry-After.", 1 },
    [GATEWAY_SHUTTING_DOWN] = { 503, "shutting_down", "Try again with another server, or when this one is back.", 5 },
    [GATEWAY_ENGINE_FAILED] = { 503, "engine_failed", "The server's log says why; it has to be started again.", 0 },
    [GATEWAY_FUNCTION_STARTING] = { 503, "function_starting", "Try again after the seconds in Retry-After.", 1 },
    [GATEWAY_FUNCTION_FAILED] = { 503, "function_failed", "Its file has to be mended, and is read again on SIGHUP.",
                                  0 },
};

enum gateway_error hutch_gateway_error_of(int code, enum gateway_error again, enum gateway_error absent)
{
    switch (code) {
    case EAGAIN:
        return again;
    case ENOENT:
        return absent;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
        return GATEWAY_OVERLOADED;
    case EIO:
        return GATEWAY_INTERNAL;
    default:
        return GATEWAY_INVALID_REQUEST;
    }
}

char *hutch_gateway_error_json(enum gateway_error error, const char *message, size_t *ret_len)
{
    const struct gateway_error_row *row = &hutch_gateway_errors[error];
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_text_addf(&t, "{\"error\":{\"status\":%u,\"code\":\"%s\",\"message\":", row->status, row->code);
    hutch_json_quote(&t, message, strlen(message));
    hutch_text_add_string(&t, ",\"hint\":");
    hutch_json_quote(&t, row->hint, strlen(row->hint));
    hutch_text_add_string(&t, "}}\n");
    return hutch_text_take(&t, ret_len);
}

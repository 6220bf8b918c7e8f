/* error.h - the one shape of all errors of the native API: status, stable code, sentence, hint.
 *
 *     {"error": {"status": 429, "code": "queue_full", "message": "…", "hint": "…"}} */
#ifndef HUTCH_GATEWAY_ERROR_H
#define HUTCH_GATEWAY_ERROR_H

#include <stddef.h>

enum gateway_error {
    GATEWAY_INVALID_REQUEST,
    GATEWAY_UNAUTHORIZED,
    GATEWAY_HOST_NOT_ALLOWED,
    GATEWAY_ORIGIN_NOT_ALLOWED,
    GATEWAY_NOT_FOUND,
    GATEWAY_METHOD_NOT_ALLOWED,
    GATEWAY_TIMEOUT,
    GATEWAY_CONFLICT,
    GATEWAY_PRECONDITION,
    GATEWAY_BODY_TOO_LARGE,
    GATEWAY_MEDIA_TYPE,
    GATEWAY_RANGE,
    GATEWAY_KEY_REUSED,
    GATEWAY_UPGRADE_REQUIRED,
    GATEWAY_QUEUE_FULL,
    GATEWAY_INTERNAL,
    GATEWAY_SETUP_FAILED,
    GATEWAY_OVERLOADED,
    GATEWAY_SHUTTING_DOWN,
    GATEWAY_ENGINE_FAILED,
    GATEWAY_FUNCTION_STARTING,
    GATEWAY_FUNCTION_FAILED,
    GATEWAY_ERROR_COUNT
};

struct gateway_error_row {
    unsigned status;   /* of HTTP */
    const char *code;  /* never changes its meaning */
    const char *hint;  /* what to do; one sentence */
    unsigned retry_after; /* seconds; 0: trying again does not help by itself */
};
extern const struct gateway_error_row hutch_gateway_errors[GATEWAY_ERROR_COUNT];

/* What errno @code, from a call of the library, is over HTTP. @again, @absent: what EAGAIN and ENOENT mean to that
 * call. */
enum gateway_error hutch_gateway_error_of(int code, enum gateway_error again, enum gateway_error absent);

/* The JSON object, the caller's to free; NULL on ENOMEM. @message: any bytes. */
char *hutch_gateway_error_json(enum gateway_error error, const char *message, size_t *ret_len);

#endif

/* call_request.h - the answer to a call that the code of a cell has made: {"value": …} or {"error": …}, any JSON, of
 * which nothing is changed on its way. */
#ifndef HUTCH_GATEWAY_CALL_REQUEST_H
#define HUTCH_GATEWAY_CALL_REQUEST_H

#include "runtime/text/json_view.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>

struct call_request {
    struct json_view value; /* a part of the request's text */
    bool is_error;
};

int hutch_call_request_parse(const char *text, size_t len, struct call_request *ret, struct hutch_err *err);

#endif

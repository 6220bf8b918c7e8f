/* function_request.h - the body of POST /v1/functions/NAME: an event alone, or with what belongs to this call only.
 *
 * Which of the two it is says the Content-Type and nothing in the body, so no event can be taken for the other. */
#ifndef HUTCH_GATEWAY_FUNCTION_REQUEST_H
#define HUTCH_GATEWAY_FUNCTION_REQUEST_H

#include "runtime/hutch.h"
#include "runtime/text/json.h"
#include "runtime/text/json_view.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>

#define FUNCTION_CALL_TYPE "application/vnd.hutch.call+json"

struct function_request {
    struct json_view event; /* of the body */
    struct hutch_limits limits;
    char **env;             /* owned */
    struct json_doc doc;    /* owned */
};

/* @is_call: {"event": …, "env": {…}, "limits": {…}}, each of which may be missing; else the event. Strict as
 * run_request.h is, but for what is in the event. hutch_function_request_done() in any case. */
int hutch_function_request_parse(const char *text, size_t len, bool is_call, struct function_request *ret,
                                 struct hutch_err *err);
void hutch_function_request_done(struct function_request *r);

#endif

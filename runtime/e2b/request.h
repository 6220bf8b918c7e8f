/* request.h - the bodies of requests to envd: which codec they have, and what is in them. */
#ifndef HUTCH_E2B_REQUEST_H
#define HUTCH_E2B_REQUEST_H

#include "runtime/text/json_view.h"

#include <stdbool.h>

struct exchange;

/* The object that the body is; of a stream, that its one message is. False: the exchange is refused. */
bool hutch_e2b_request_read(struct exchange *x, bool is_stream, struct json_view *ret);

#endif

#include "runtime/gateway/body.h"

#include "runtime/text/json_scan.h"
#include "sandbox/fd.h"

static int count_values(const char *text, size_t len, unsigned max_depth, struct hutch_err *err)
{
    struct json_scan s = { .what = "request", .text = text, .len = len, .line = 1, .column = 1,
                           .flags = JSON_NO_CONTROL, .max_depth = max_depth, .err = err };
    enum json_token token;
    size_t n = 0;

    while ((token = hutch_json_scan_next(&s)) > JSON_END)
        if (++n > 2 * BODY_MAX_VALUES) /* closing brackets are tokens, too */
            return hutch_json_scan_refuse(&s, "more values than any request has");
    return token;
}

int hutch_body_parse(const char *text, size_t len, unsigned max_depth, struct json_doc *ret, struct hutch_err *err)
{
    if (len == 0)
        return hutch_err_set(err, 0, "request: the body is empty, and is to be a JSON object");
    if (len > BODY_MAX_VALUES && count_values(text, len, max_depth, err) < 0)
        return -1;
    return hutch_json_parse("request", text, len, max_depth, ret, err);
}

#include "runtime/gateway/call_request.h"

#include "runtime/text/json_scan.h"

#define MAX_DEPTH 100

int hutch_call_request_parse(const char *text, size_t len, struct call_request *ret, struct hutch_err *err)
{
    struct json_scan scan = { .what = "request", .text = text ? text : "", .len = len, .line = 1, .column = 1,
                              .max_depth = MAX_DEPTH, .err = err };
    struct json_view whole, key;
    struct json_walk walk;

    if (hutch_json_view_scan(&scan, &whole) < 0)
        return -1;
    if (hutch_json_view_is_object(whole) && hutch_json_view_count(whole) == 1) {
        walk = hutch_json_view_walk(whole);
        hutch_json_view_next(&walk, &key, &ret->value);
        ret->is_error = hutch_json_view_is(key, "error");
        if (ret->is_error || hutch_json_view_is(key, "value"))
            return 0;
    }
    return hutch_err_set(err, 0, "request: at $: expected an object with value or error, and nothing else");
}

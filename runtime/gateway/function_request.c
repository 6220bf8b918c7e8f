#include "runtime/gateway/function_request.h"

#include "runtime/gateway/body.h"
#include "runtime/gateway/request_parts.h"
#include "runtime/text/buffer.h"
#include "runtime/text/json_scan.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <string.h>

#define EVENT_MAX_DEPTH 100
#define PARTS_MAX_DEPTH 4

static int check(const char *text, size_t len, struct json_view *ret, struct hutch_err *err)
{
    struct json_scan scan = { .what = "request", .text = text, .len = len, .line = 1, .column = 1,
                              .max_depth = EVENT_MAX_DEPTH, .err = err };

    if (len == 0)
        return hutch_err_set(err, 0, "request: the body is empty, and is to be the event as JSON, such as null");
    return hutch_json_view_scan(&scan, ret);
}

static int read_env(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_request_read_env(node, &((struct function_request *)context)->env, err);
}

static int read_limits(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_request_read_limits(node, &((struct function_request *)context)->limits, err);
}

/* In place of the event stands null by now. */
static const struct json_field fields[] = {
    { "event", NULL, false },
    { "env", read_env, false },
    { "limits", read_limits, false },
};

/* The event, of which nothing is to be lost, is taken out of the text; the strict reader has the rest. */
static int read_call(struct json_view call, struct function_request *r, struct hutch_err *err)
{
    struct text_buffer rest = TEXT_BUFFER_INIT;
    struct json_view key, value;
    auto_free char *text = NULL;
    struct json_walk walk;
    struct json_node root;
    size_t len = 0, n = 0;

    if (!hutch_json_view_is_object(call))
        return hutch_err_set(err, 0, "request: at $: expected an object with event, env and limits");
    hutch_text_add_string(&rest, "{");
    for (walk = hutch_json_view_walk(call); hutch_json_view_next(&walk, &key, &value); n++) {
        bool is_event = hutch_json_view_is(key, "event");

        if (memchr(key.text, '\\', key.len)) { /* it could be an event all the same */
            hutch_text_done(&rest);
            return hutch_err_set(err, 0, "request: at $: keys are written without escapes");
        }
        if (is_event)
            r->event = value;
        if (n > 0)
            hutch_text_add_string(&rest, ",");
        hutch_text_add(&rest, key.text, key.len);
        hutch_text_add_string(&rest, ":");
        hutch_text_add(&rest, is_event ? "null" : value.text, is_event ? 4 : value.len);
    }
    hutch_text_add_string(&rest, "}");
    text = hutch_text_take(&rest, &len);
    if (!text)
        return hutch_err_set(err, ENOMEM, "read the request");
    if (hutch_body_parse(text, len, PARTS_MAX_DEPTH, &r->doc, err) < 0)
        return -1;
    root = hutch_json_root(&r->doc);
    return hutch_json_object(&root, fields, ARRAY_SIZE(fields), r, err);
}

int hutch_function_request_parse(const char *text, size_t len, bool is_call, struct function_request *ret,
                                 struct hutch_err *err)
{
    struct json_view whole;

    *ret = (struct function_request){ .doc = JSON_DOC_INIT, .event = { "null", 4 } };
    if (check(text, len, &whole, err) < 0)
        return -1;
    if (is_call)
        return read_call(whole, ret, err);
    ret->event = whole;
    return 0;
}

void hutch_function_request_done(struct function_request *r)
{
    hutch_request_env_free(r->env);
    hutch_json_done(&r->doc);
    *r = (struct function_request){ .doc = JSON_DOC_INIT };
}

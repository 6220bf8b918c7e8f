#include "runtime/e2b/request.h"

#include "runtime/e2b/connect.h"
#include "runtime/e2b/fields.h"
#include "runtime/gateway/exchange.h"

#include <string.h>

static bool is_type(const char *given, const char *type)
{
    return !given || (strncmp(given, type, strlen(type)) == 0 && strchr("; ", given[strlen(type)]));
}

bool hutch_e2b_request_read(struct exchange *x, bool is_stream, struct json_view *ret)
{
    const char *type = is_stream ? "application/connect+json" : "application/json";
    struct hutch_err err;

    *ret = (struct json_view){ x->body.data, x->body.len };
    if (!is_type(hutch_exchange_header(x, "Content-Type"), type))
        hutch_exchange_refuse(x, GATEWAY_MEDIA_TYPE, "the body is to be %s: other codecs are not spoken here", type);
    else if ((is_stream && hutch_connect_read(x->body.data, x->body.len, ret, &err) < 0) ||
             hutch_e2b_fields_parse(ret->text, ret->len, ret, &err) < 0)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
    else
        return true;
    return false;
}

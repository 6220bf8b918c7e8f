#include "runtime/fusion/format.h"

#include "runtime/fusion/cells.h"
#include "runtime/fusion/run.h"
#include "runtime/gateway/exchange.h"
#include "runtime/text/buffer.h"
#include "runtime/text/json_write.h"
#include "sandbox/fd.h"

#include <string.h>

static void answer_static(struct exchange *x, const char *type, const char *text)
{
    hutch_exchange_answer(x, 200, type, strdup(text), strlen(text));
}

static void answer_ping(struct exchange *x)
{
    answer_static(x, "application/json", "\"pong\"");
}

static void answer_page(struct exchange *x)
{
    answer_static(x, "text/html; charset=utf-8",
                  "<!doctype html><title>hutch</title><p>POST /run_code runs a program.\n");
}

/* What is wrong with a request is a list under "detail", and all else is a text there: also what is wrong with its
 * HTTP, which the clients' own server would not have read. */
static char *refusal(const struct exchange *x, enum gateway_error error, const char *message, unsigned *status,
                     const char **type, size_t *ret_len)
{
    struct text_buffer t = TEXT_BUFFER_INIT;
    bool is_request = error == GATEWAY_INVALID_REQUEST && x->body_len != EXCHANGE_UNREADABLE;

    (void)type;
    *ret_len = 0;
    if (error == GATEWAY_NOT_FOUND)
        message = "Not Found";
    else if (error == GATEWAY_METHOD_NOT_ALLOWED)
        message = "Method Not Allowed";
    if (is_request)
        *status = 422;
    hutch_text_add_string(&t, is_request ? "{\"detail\":[{\"type\":\"value_error\",\"loc\":[\"body\"],\"msg\":"
                                         : "{\"detail\":");
    hutch_json_quote(&t, message, strlen(message));
    hutch_text_add_string(&t, is_request ? ",\"input\":null}]}\n" : "}\n");
    return hutch_text_take(&t, ret_len);
}

static const struct route routes[] = {
    { "GET", "/", ROUTE_NO_BODY, true, answer_page, NULL, NULL },
    { "GET", "/v1/ping", ROUTE_NO_BODY, true, answer_ping, NULL, NULL },
    { "POST", "/run_code", ROUTE_JSON, false, hutch_fusion_run, NULL, NULL },
    { "POST", "/run_jupyter", ROUTE_JSON, false, hutch_fusion_run_cells, NULL, NULL },
};

const struct format hutch_fusion_format = {
    .name = "sandboxfusion",
    .routes = routes,
    .n_routes = ARRAY_SIZE(routes),
    .refusal = refusal,
    .takes_any_type = true,
};

#include "runtime/azure/format.h"

#include "runtime/azure/execute.h"
#include "runtime/azure/files.h"
#include "runtime/azure/session.h"
#include "runtime/gateway/exchange.h"
#include "runtime/gateway/place.h"
#include "runtime/gateway/session_api.h"
#include "runtime/gateway/sessions.h"
#include "runtime/text/json_write.h"
#include "runtime/text/moment.h"
#include "sandbox/fd.h"

#include <string.h>

static char *error_body(enum gateway_error error, const char *message, unsigned *status, size_t *ret_len)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    (void)status;
    *ret_len = 0;
    hutch_text_addf(&t, "{\"error\":{\"code\":\"%s\",\"message\":", hutch_gateway_errors[error].code);
    hutch_json_quote(&t, message, strlen(message));
    hutch_text_add_string(&t, "}}\n");
    return hutch_text_take(&t, ret_len);
}

/* ---- sessions ---- */

static void add_time(struct text_buffer *t, const char *key, double seconds)
{
    hutch_text_addf(t, ",\"%s\":", key);
    hutch_moment_add(t, seconds, 0);
}

static void add_session(struct text_buffer *t, const struct gateway_session *session)
{
    hutch_text_add_string(t, "{\"identifier\":");
    hutch_json_quote(t, session->name, strlen(session->name));
    add_time(t, "createdAt", session->created);
    add_time(t, "lastAccessedAt", session->last_used);
    add_time(t, "expireAt", session->last_used + (double)session->idle_ms / 1000);
    hutch_text_addf(t, ",\"etag\":\"%s\"}", session->id);
}

static void get_session(struct exchange *x)
{
    const struct gateway_session *session = hutch_azure_find(x, false);
    struct text_buffer t = TEXT_BUFFER_INIT;

    if (!session)
        return;
    add_session(&t, session);
    hutch_text_add_string(&t, "\n");
    hutch_exchange_answer_json(x, 200, &t);
}

static void delete_session(struct exchange *x)
{
    struct gateway_session *session = hutch_azure_find(x, false);

    if (!session)
        return;
    hutch_session_api_end(x, session);
    hutch_exchange_answer(x, 204, NULL, strdup(""), 0);
}

static void list_sessions(struct exchange *x)
{
    struct gateway_session *session = NULL;
    struct text_buffer t = TEXT_BUFFER_INIT;
    const char *comma = "";
    enum azure_shape shape;

    if (!hutch_azure_read_version(x, &shape))
        return;
    hutch_text_add_string(&t, "{\"sessions\":[");
    while ((session = hutch_session_api_next_named(x, session))) {
        hutch_text_add_string(&t, comma);
        add_session(&t, session);
        comma = ",";
    }
    hutch_text_add_string(&t, "],\"nextLink\":null}\n");
    hutch_exchange_answer_json(x, 200, &t);
}

/* Names of sessions are their clients'. */
static void place(const struct exchange *x, struct placement *ret)
{
    struct hutch_err ignored;
    auto_free char *name = hutch_exchange_query(x, "identifier", &ignored);

    if (strcmp(x->route->path, "/listSessions") == 0)
        *ret = (struct placement){ .kind = PLACE_ALL, .merge = hutch_merge_lists };
    else if (name)
        hutch_placement_name(ret, name);
}

static const struct route routes[] = {
    { "POST", "/code/execute", ROUTE_JSON, false, hutch_azure_execute, NULL, NULL },
    { "POST", "/executions", ROUTE_JSON, false, hutch_azure_execute, NULL, NULL },
    { "GET", "/executions/{id}", ROUTE_NO_BODY, false, hutch_azure_get_execution, NULL, NULL },
    { "POST", "/files/upload", ROUTE_JSON, false, hutch_azure_upload, NULL, NULL },
    { "POST", "/files", ROUTE_JSON, false, hutch_azure_upload, NULL, NULL },
    { "GET", "/files", ROUTE_NO_BODY, false, hutch_azure_list, NULL, NULL },
    { "GET", "/files/content/{path*}", ROUTE_NO_BODY, false, hutch_azure_download, NULL, NULL },
    { "GET", "/files/{path*}", ROUTE_NO_BODY, false, hutch_azure_get_file, NULL, NULL },
    { "DELETE", "/files/{path*}", ROUTE_NO_BODY, false, hutch_azure_delete_file, NULL, NULL },
    { "GET", "/session", ROUTE_NO_BODY, false, get_session, NULL, NULL },
    { "DELETE", "/session", ROUTE_NO_BODY, false, delete_session, NULL, NULL },
    { "GET", "/listSessions", ROUTE_NO_BODY, false, list_sessions, NULL, NULL },
};

const struct format hutch_azure_format = {
    .name = "azure",
    .routes = routes,
    .n_routes = ARRAY_SIZE(routes),
    .error_body = error_body,
    .is_rare = true, /* E2B's has /files */
    .takes_any_type = true,
    .names_are_given = true,
    .place = place,
};

/* routes.c - the native API: all that can be asked in hutch's own format. */
#include "runtime/gateway/format.h"

#include "runtime/gateway/batch_api.h"
#include "runtime/gateway/call_api.h"
#include "runtime/gateway/catalog_api.h"
#include "runtime/gateway/cell_api.h"
#include "runtime/gateway/change_stream.h"
#include "runtime/gateway/exchange.h"
#include "runtime/gateway/file_api.h"
#include "runtime/gateway/function_api.h"
#include "runtime/gateway/local_peer.h"
#include "runtime/gateway/order_api.h"
#include "runtime/gateway/path_api.h"
#include "runtime/gateway/place.h"
#include "runtime/gateway/process_api.h"
#include "runtime/gateway/run_api.h"
#include "runtime/gateway/session_api.h"
#include "runtime/gateway/status_api.h"
#include "runtime/gateway/terminal_api.h"
#include "sandbox/fd.h"

#include <string.h>

#define SESSION "/v1/sessions/{id}"
#define PROCESS SESSION "/processes/{process}"

static const struct route routes[] = {
    { "GET", "/healthz", ROUTE_NO_BODY, true, hutch_status_health, NULL, NULL },
    { "GET", "/readyz", ROUTE_NO_BODY, true, hutch_status_ready, NULL, NULL },
    { "GET", "/metrics", ROUTE_NO_BODY, false, hutch_status_metrics, NULL, NULL },
    { "GET", "/openapi.json", ROUTE_NO_BODY, true, hutch_catalog_openapi, NULL, NULL },
    { "GET", "/v1/pools", ROUTE_NO_BODY, false, hutch_status_pools, NULL, NULL },
    { "GET", "/v1/languages", ROUTE_NO_BODY, false, hutch_catalog_languages, NULL, NULL },
    { "GET", "/v1/policies", ROUTE_NO_BODY, false, hutch_catalog_policies, NULL, NULL },
    { "POST", "/v1/run", ROUTE_FORM, false, hutch_run_api_run, hutch_run_api_begin, hutch_run_api_take },
    { "GET", "/v1/functions", ROUTE_NO_BODY, false, hutch_function_api_list, NULL, NULL },
    { "POST", "/v1/functions/{name}", ROUTE_CALL, false, hutch_function_api_call, NULL, NULL },
    { "POST", "/v1/batch", ROUTE_LINES, false, hutch_batch_api_run, NULL, NULL },
    { "POST", "/v1/sessions", ROUTE_JSON, false, hutch_session_api_open, NULL, NULL },
    { "GET", "/v1/sessions", ROUTE_NO_BODY, false, hutch_session_api_list, NULL, NULL },
    { "GET", SESSION, ROUTE_NO_BODY, false, hutch_session_api_get, NULL, NULL },
    { "DELETE", SESSION, ROUTE_NO_BODY, false, hutch_session_api_close, NULL, NULL },
    { "POST", SESSION "/cells", ROUTE_JSON, false, hutch_cell_api_execute, NULL, NULL },
    { "POST", SESSION "/interrupt", ROUTE_NO_BODY, false, hutch_session_api_interrupt, NULL, NULL },
    { "POST", SESSION "/restart", ROUTE_NO_BODY, false, hutch_session_api_restart, NULL, NULL },
    { "POST", SESSION "/pause", ROUTE_NO_BODY, false, hutch_session_api_pause, NULL, NULL },
    { "POST", SESSION "/resume", ROUTE_NO_BODY, false, hutch_session_api_resume, NULL, NULL },
    { "POST", SESSION "/lifetime", ROUTE_JSON, false, hutch_session_api_lifetime, NULL, NULL },
    { "POST", SESSION "/checkpoints", ROUTE_NO_BODY, false, hutch_order_api_checkpoint, NULL, NULL },
    { "DELETE", SESSION "/checkpoints/{checkpoint}", ROUTE_NO_BODY, false, hutch_order_api_drop, NULL, NULL },
    { "POST", SESSION "/rollback", ROUTE_JSON, false, hutch_order_api_rollback, NULL, NULL },
    { "POST", SESSION "/branches", ROUTE_NO_BODY, false, hutch_order_api_fork, NULL, NULL },
    { "DELETE", SESSION "/branches/{branch}", ROUTE_NO_BODY, false, hutch_order_api_drop, NULL, NULL },
    { "POST", SESSION "/switch", ROUTE_JSON, false, hutch_order_api_switch, NULL, NULL },
    { "POST", SESSION "/calls/{call}", ROUTE_JSON, false, hutch_call_api_answer, NULL, NULL },
    { "POST", SESSION "/input", ROUTE_JSON, false, hutch_call_api_input, NULL, NULL },
    { "POST", SESSION "/contexts/{context}/reset", ROUTE_NO_BODY, false, hutch_order_api_reset_context, NULL, NULL },
    { "DELETE", SESSION "/contexts/{context}", ROUTE_NO_BODY, false, hutch_order_api_drop_context, NULL, NULL },
    { "POST", SESSION "/complete", ROUTE_JSON, false, hutch_order_api_complete, NULL, NULL },
    { "POST", SESSION "/inspect", ROUTE_JSON, false, hutch_order_api_inspect, NULL, NULL },
    { "POST", SESSION "/is_complete", ROUTE_JSON, false, hutch_order_api_is_complete, NULL, NULL },
    { "POST", SESSION "/processes", ROUTE_JSON, false, hutch_process_api_spawn, NULL, NULL },
    { "GET", SESSION "/processes", ROUTE_NO_BODY, false, hutch_process_api_list, NULL, NULL },
    { "GET", PROCESS "/output", ROUTE_NO_BODY, false, hutch_process_api_output, NULL, NULL },
    { "POST", PROCESS "/stdin", ROUTE_JSON, false, hutch_process_api_stdin, NULL, NULL },
    { "POST", PROCESS "/close_stdin", ROUTE_NO_BODY, false, hutch_process_api_close_stdin, NULL, NULL },
    { "POST", PROCESS "/signal", ROUTE_JSON, false, hutch_process_api_signal, NULL, NULL },
    { "POST", PROCESS "/resize", ROUTE_JSON, false, hutch_process_api_resize, NULL, NULL },
    { "GET", PROCESS "/attach", ROUTE_NO_BODY, false, hutch_terminal_api_attach, NULL, NULL },
    { "GET", SESSION "/terminal", ROUTE_NO_BODY, false, hutch_terminal_api_open, NULL, NULL },
    { "GET", SESSION "/stat", ROUTE_NO_BODY, false, hutch_path_api_stat, NULL, NULL },
    { "GET", SESSION "/list", ROUTE_NO_BODY, false, hutch_path_api_list, NULL, NULL },
    { "POST", SESSION "/make_directory", ROUTE_NO_BODY, false, hutch_path_api_make_directory, NULL, NULL },
    { "POST", SESSION "/rename", ROUTE_NO_BODY, false, hutch_path_api_rename, NULL, NULL },
    { "GET", SESSION "/watch", ROUTE_NO_BODY, false, hutch_change_stream_watch, NULL, NULL },
    { "GET", SESSION "/files", ROUTE_NO_BODY, false, hutch_path_api_download, NULL, NULL },
    { "PUT", SESSION "/files", ROUTE_STREAM, false, hutch_file_api_uploaded, hutch_path_api_begin,
      hutch_file_api_take },
    { "DELETE", SESSION "/files", ROUTE_NO_BODY, false, hutch_path_api_remove, NULL, NULL },
    { "GET", SESSION "/files/{path*}", ROUTE_NO_BODY, false, hutch_file_api_download, NULL, NULL },
    { "PUT", SESSION "/files/{path*}", ROUTE_STREAM, false, hutch_file_api_uploaded, hutch_file_api_begin,
      hutch_file_api_take },
    { "DELETE", SESSION "/files/{path*}", ROUTE_NO_BODY, false, hutch_file_api_delete, NULL, NULL },
};

static bool is_route(const struct exchange *x, const char *method, const char *path)
{
    return strcmp(x->route->method, method) == 0 && strcmp(x->route->path, path) == 0;
}

/* A repeated key finds its first answer only where that one was given. */
static void place(const struct exchange *x, struct placement *ret)
{
    const char *key = hutch_exchange_header(x, "Idempotency-Key");

    if (strncmp(x->route->path, SESSION, strlen(SESSION)) == 0) {
        hutch_placement_name(ret, x->params[0]);
    } else if (is_route(x, "POST", "/v1/sessions")) {
        hutch_session_api_place(x, ret);
    } else if (is_route(x, "GET", "/v1/sessions")) {
        *ret = (struct placement){ .kind = PLACE_ALL, .merge = hutch_merge_lists };
    } else if (is_route(x, "GET", "/v1/pools") || is_route(x, "GET", "/v1/functions")) {
        *ret = (struct placement){ .kind = PLACE_ALL, .merge = hutch_merge_sums };
    } else if (is_route(x, "GET", "/metrics")) {
        *ret = (struct placement){ .kind = PLACE_ALL, .merge = hutch_merge_metrics };
    } else if (key && !hutch_local_peer_is_claimed(x)) {
        hutch_placement_name(ret, key);
    }
}

const struct format hutch_native_format = {
    .name = "native", .routes = routes, .n_routes = ARRAY_SIZE(routes), .place = place
};

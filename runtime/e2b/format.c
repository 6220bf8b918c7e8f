#include "runtime/e2b/format.h"

#include "runtime/e2b/alarm.h"
#include "runtime/e2b/answer.h"
#include "runtime/e2b/code.h"
#include "runtime/e2b/control.h"
#include "runtime/e2b/filesystem.h"
#include "runtime/e2b/names.h"
#include "runtime/e2b/process.h"
#include "runtime/e2b/sandbox.h"
#include "runtime/e2b/upload.h"
#include "sandbox/fd.h"

#define SANDBOX "/sandboxes/{id}"
#define PROCESS "/process.Process/"
#define FILESYSTEM "/filesystem.Filesystem/"

#define ABSENT(method, path) { method, path, ROUTE_JSON, false, hutch_e2b_control_refuse_absent, NULL, NULL }

static const struct route routes[] = {
    /* The control plane. Paths with v2 are those of newer clients. */
    { "POST", "/sandboxes", ROUTE_JSON, false, hutch_e2b_control_create, NULL, NULL },
    { "POST", "/v2/sandboxes", ROUTE_JSON, false, hutch_e2b_control_create, NULL, NULL },
    { "GET", "/sandboxes", ROUTE_NO_BODY, false, hutch_e2b_control_list, NULL, NULL },
    { "GET", "/v2/sandboxes", ROUTE_NO_BODY, false, hutch_e2b_control_list, NULL, NULL },
    { "GET", SANDBOX, ROUTE_NO_BODY, false, hutch_e2b_control_get, NULL, NULL },
    { "DELETE", SANDBOX, ROUTE_NO_BODY, false, hutch_e2b_control_kill, NULL, NULL },
    { "GET", SANDBOX "/metrics", ROUTE_NO_BODY, false, hutch_e2b_control_metrics, NULL, NULL },
    { "POST", SANDBOX "/timeout", ROUTE_JSON, false, hutch_e2b_control_timeout, NULL, NULL },
    { "POST", SANDBOX "/pause", ROUTE_JSON, false, hutch_e2b_control_pause, NULL, NULL },
    { "POST", SANDBOX "/connect", ROUTE_JSON, false, hutch_e2b_control_connect, NULL, NULL },
    { "POST", "/v2" SANDBOX "/connect", ROUTE_JSON, false, hutch_e2b_control_connect, NULL, NULL },
    { "POST", SANDBOX "/resume", ROUTE_JSON, false, hutch_e2b_control_connect, NULL, NULL },
    { "POST", SANDBOX "/fork", ROUTE_JSON, false, hutch_e2b_control_refuse, NULL, NULL },
    { "POST", SANDBOX "/snapshots", ROUTE_JSON, false, hutch_e2b_control_refuse, NULL, NULL },
    { "PUT", SANDBOX "/network", ROUTE_JSON, false, hutch_e2b_control_refuse, NULL, NULL },
    /* What clients know and is not here. */
    ABSENT("GET", "/snapshots"),
    ABSENT("GET", "/templates"),
    ABSENT("POST", "/templates"),
    ABSENT("POST", "/v2/templates"),
    ABSENT("POST", "/v3/templates"),
    ABSENT("GET", "/templates/{rest*}"),
    ABSENT("POST", "/templates/{rest*}"),
    ABSENT("PATCH", "/templates/{rest*}"),
    ABSENT("PATCH", "/v2/templates/{rest*}"),
    ABSENT("POST", "/v2/templates/{rest*}"),
    ABSENT("DELETE", "/templates/{rest*}"),
    ABSENT("GET", "/teams"),
    ABSENT("GET", "/teams/{rest*}"),
    ABSENT("GET", "/volumes"),
    ABSENT("POST", "/volumes"),
    ABSENT("GET", "/volumes/{rest*}"),
    ABSENT("DELETE", "/volumes/{rest*}"),
    /* The code interpreter: from here on the token is hutch_e2b_sandbox_admit()'s business. */
    { "GET", "/health", ROUTE_NO_BODY, true, hutch_e2b_code_health, NULL, NULL },
    { "POST", "/execute", ROUTE_JSON, true, hutch_e2b_code_execute, NULL, NULL },
    { "POST", "/contexts", ROUTE_JSON, true, hutch_e2b_code_create_context, NULL, NULL },
    { "GET", "/contexts", ROUTE_NO_BODY, true, hutch_e2b_code_list_contexts, NULL, NULL },
    { "POST", "/contexts/{context}/restart", ROUTE_JSON, true, hutch_e2b_code_restart_context, NULL, NULL },
    { "DELETE", "/contexts/{context}", ROUTE_NO_BODY, true, hutch_e2b_code_remove_context, NULL, NULL },
    /* envd. */
    { "POST", PROCESS "Start", ROUTE_JSON, true, hutch_e2b_process_start, NULL, NULL },
    { "POST", PROCESS "Connect", ROUTE_JSON, true, hutch_e2b_process_connect, NULL, NULL },
    { "POST", PROCESS "List", ROUTE_JSON, true, hutch_e2b_process_list, NULL, NULL },
    { "POST", PROCESS "SendInput", ROUTE_JSON, true, hutch_e2b_process_input, NULL, NULL },
    { "POST", PROCESS "CloseStdin", ROUTE_JSON, true, hutch_e2b_process_close_stdin, NULL, NULL },
    { "POST", PROCESS "SendSignal", ROUTE_JSON, true, hutch_e2b_process_signal, NULL, NULL },
    { "POST", PROCESS "Update", ROUTE_JSON, true, hutch_e2b_process_update, NULL, NULL },
    { "POST", FILESYSTEM "ListDir", ROUTE_JSON, true, hutch_e2b_filesystem_list, NULL, NULL },
    { "POST", FILESYSTEM "Stat", ROUTE_JSON, true, hutch_e2b_filesystem_stat, NULL, NULL },
    { "POST", FILESYSTEM "MakeDir", ROUTE_JSON, true, hutch_e2b_filesystem_make, NULL, NULL },
    { "POST", FILESYSTEM "Move", ROUTE_JSON, true, hutch_e2b_filesystem_move, NULL, NULL },
    { "POST", FILESYSTEM "Remove", ROUTE_JSON, true, hutch_e2b_filesystem_remove, NULL, NULL },
    { "POST", FILESYSTEM "WatchDir", ROUTE_JSON, true, hutch_e2b_filesystem_watch, NULL, NULL },
    { "GET", "/files", ROUTE_NO_BODY, true, hutch_e2b_filesystem_download, NULL, NULL },
    { "POST", "/files", ROUTE_STREAM, true, hutch_e2b_upload_end, hutch_e2b_upload_begin, hutch_e2b_upload_take },
};

const char *const hutch_e2b_data_targets[] = { E2B_HOME, NULL };

static const struct format_state state = {
    .open = hutch_e2b_alarms_open, .deadline = hutch_e2b_alarms_deadline, .tick = hutch_e2b_alarms_tick,
    .close = hutch_e2b_alarms_close,
};

const struct format hutch_e2b_format = {
    .name = "e2b",
    .routes = routes,
    .n_routes = ARRAY_SIZE(routes),
    .refusal = hutch_e2b_answer_refusal,
    .admit = hutch_e2b_sandbox_admit,
    .read_id = hutch_e2b_name_read,
    .place = hutch_e2b_sandbox_place,
    .token_header = "X-API-Key",
    .takes_any_type = true,
    .state = &state,
};

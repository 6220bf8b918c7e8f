#include "runtime/e2b/control.h"

#include "runtime/e2b/answer.h"
#include "runtime/e2b/fields.h"
#include "runtime/e2b/filter.h"
#include "runtime/e2b/format.h"
#include "runtime/e2b/sandbox.h"
#include "runtime/gateway/exchange.h"
#include "runtime/gateway/host.h"
#include "runtime/gateway/session_api.h"
#include "runtime/gateway/sessions.h"
#include "runtime/hutch.h"
#include "runtime/text/json_write.h"
#include "runtime/text/moment.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define USUAL_SECONDS 300
#define MAX_SECONDS (366u * 24 * 3600)
#define PAUSED_MS (24ull * 3600 * 1000) /* a paused one is kept for so long */
#define MAX_PROCESSES 32
#define MAX_METADATA (64u << 10)
#define MAX_TEMPLATE 512
#define ENVD_VERSION "0.6.2" /* clients choose by it what they ask */

static void refuse(struct exchange *x, const struct hutch_error *error)
{
    hutch_exchange_refuse_error(x, error, GATEWAY_QUEUE_FULL, GATEWAY_NOT_FOUND);
}

/* ---- what is told of one ---- */

/* What stands before the names of sandboxes in their hosts: the server answers for "*.NAME". */
static const char *domain(const struct exchange *x)
{
    for (const char *const *host = hutch_exchange_hosts(x); host && *host; host++)
        if (strncmp(*host, "*.", 2) == 0)
            return *host + 2;
    return NULL;
}

static void add_string(struct text_buffer *t, const char *key, const char *text)
{
    hutch_text_addf(t, "\"%s\":", key);
    hutch_json_quote(t, text, strlen(text));
}

static void answer_created(struct exchange *x, unsigned status, const struct e2b_sandbox *sandbox)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_text_addf(&t, "{\"sandboxID\":\"%s\",\"clientID\":\"hutch\",\"envdVersion\":\"" ENVD_VERSION "\","
                    "\"envdAccessToken\":\"%s\",", sandbox->name, sandbox->token);
    add_string(&t, "templateID", sandbox->template);
    hutch_text_add_string(&t, ",");
    if (domain(x))
        add_string(&t, "domain", domain(x));
    else
        hutch_text_add_string(&t, "\"domain\":null");
    hutch_text_add_string(&t, "}");
    hutch_exchange_answer_json(x, status, &t);
}

static uint64_t count_cpus(const struct hutch_limits *limits)
{
    return limits->cpus ? (limits->cpus + 999) / 1000 : (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
}

static void add_info(struct text_buffer *t, struct exchange *x, const struct e2b_sandbox *sandbox,
                     const struct hutch_session_info *info)
{
    struct hutch_limits limits = { .size = sizeof(limits) };

    hutch_exchange_policy(x, &limits);
    hutch_text_addf(t, "{\"sandboxID\":\"%s\",\"clientID\":\"hutch\",\"envdVersion\":\"" ENVD_VERSION "\",",
                    sandbox->name);
    add_string(t, "templateID", sandbox->template);
    hutch_text_add_string(t, ",\"startedAt\":");
    hutch_moment_add(t, info->t_opened, 6);
    hutch_text_add_string(t, ",\"endAt\":");
    hutch_moment_add(t, info->t_end, 6);
    hutch_text_addf(t, ",\"cpuCount\":%" PRIu64 ",\"memoryMB\":%" PRIu64 ",\"diskSizeMB\":%" PRIu64 ",\"state\":\"%s\"",
                    count_cpus(&limits), limits.memory_bytes >> 20, limits.data_bytes >> 20,
                    info->state == HUTCH_SESSION_PAUSED ? "paused" : "running");
    hutch_text_add_string(t, ",\"metadata\":");
    hutch_text_add_string(t, sandbox->metadata);
    hutch_text_add_string(t, "}");
}

/* ---- create ---- */

struct creation {
    struct e2b_sandbox *sandbox;
    bool was_left; /* nobody hears its name */
};

static void close_session(struct exchange *x, struct gateway_session *session)
{
    session->is_closing = true;
    hutch_session_close(hutch_exchange_engine(x), session->number);
}

static void on_creation_gone(struct exchange *x)
{
    struct creation *creation = x->work;

    creation->was_left = true;
    close_session(x, creation->sandbox->session);
}

/* There is an interpreter now, and with it the files. */
static void on_first_cell(void *user, uint64_t number, const struct hutch_cell_result *result)
{
    struct exchange *x = user;
    struct creation *creation = x->work;
    struct gateway_session *session = creation->sandbox->session;

    (void)number;
    hutch_gateway_sessions_end(session);
    if (creation->was_left) {
        hutch_exchange_refuse(x, GATEWAY_SHUTTING_DOWN, "the sandbox was closed before it was ready");
    } else if (result->verdict != HUTCH_OK) {
        close_session(x, session);
        hutch_exchange_refuse(x, hutch_session_api_error(result), "the sandbox could not be made: %s", result->message);
    } else {
        answer_created(x, 201, creation->sandbox);
    }
}

static void begin_sandbox(struct exchange *x, struct e2b_sandbox *sandbox)
{
    struct creation *creation = calloc(1, sizeof(*creation));
    struct hutch_error error;
    struct hutch_cell cell;

    x->work = creation;
    if (!creation) {
        close_session(x, sandbox->session);
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the sandbox");
        return;
    }
    creation->sandbox = sandbox;
    hutch_cell_init(&cell);
    cell.code = "pass";
    cell.silent = cell.no_history = 1;
    cell.on_result = on_first_cell;
    cell.user = x;
    hutch_gateway_sessions_begin(sandbox->session);
    hutch_exchange_wait(x, on_creation_gone);
    if (hutch_session_execute(hutch_exchange_engine(x), sandbox->session->number, &cell, &error) == 0)
        return;
    hutch_gateway_sessions_end(sandbox->session);
    close_session(x, sandbox->session);
    refuse(x, &error);
}

struct creation_request {
    char *template, *metadata; /* owned */
    char **env;                /* owned */
    uint64_t seconds;
    bool is_absent;            /* the template */
};

static int check_metadata(struct json_view metadata, struct hutch_err *err)
{
    struct json_walk walk = hutch_json_view_walk(metadata);
    struct json_view key, value;

    if (metadata.len > MAX_METADATA)
        return hutch_err_set(err, 0, "request: 'metadata' has more than %u bytes", MAX_METADATA);
    while (hutch_json_view_next(&walk, &key, &value))
        if (!hutch_json_view_is_string(value))
            return hutch_err_set(err, 0, "request: values of 'metadata' are to be strings");
    return 0;
}

/* E2B's templates for code, and its smallest: here all of them are the image of the server. */
static int check_template(const char *template, bool *ret_absent, struct hutch_err *err)
{
    if (strncmp(template, "code-interpreter", 16) == 0 || strcmp(template, "base") == 0)
        return 0;
    *ret_absent = true;
    return hutch_err_set(err, 0, "there is no template '%.100s': sandboxes here have the one image of the server, "
                         "which goes by 'code-interpreter-v1' and 'base'", template);
}

/* What would change how the sandbox is, and is not there. */
static int check_wishes(struct json_view request, struct hutch_err *err)
{
    bool pauses = false;

    if (hutch_e2b_fields_bool(request, "autoPause", &pauses, err) < 0)
        return -1;
    if (pauses)
        return hutch_err_set(err, 0, "a sandbox ends at its timeout here, and is not paused by it");
    if (!hutch_json_view_is_null(hutch_json_view_get(request, "mcp")))
        return hutch_err_set(err, 0, "there are no MCP servers in sandboxes here");
    if (hutch_json_view_count(hutch_json_view_get(request, "volumeMounts")) > 0)
        return hutch_err_set(err, 0, "there are no volumes for sandboxes here");
    return 0;
}

static int read_creation(struct json_view request, struct creation_request *ret, struct hutch_err *err)
{
    struct json_view metadata = { "{}", 2 };

    ret->seconds = USUAL_SECONDS;
    if (hutch_e2b_fields_text(request, "templateID", MAX_TEMPLATE, &ret->template, err) < 0 ||
        hutch_e2b_fields_number(request, "timeout", 0, MAX_SECONDS, &ret->seconds, err) < 0 ||
        hutch_e2b_fields_env(request, "envVars", &ret->env, err) < 0 ||
        hutch_e2b_fields_object(request, "metadata", &metadata, err) < 0 || check_metadata(metadata, err) < 0 ||
        check_wishes(request, err) < 0)
        return -1;
    if (!ret->template)
        return hutch_err_set(err, 0, "request: 'templateID' is missing");
    ret->metadata = strndup(metadata.text, metadata.len);
    if (!ret->metadata)
        return hutch_err_set(err, ENOMEM, "read the request");
    return check_template(ret->template, &ret->is_absent, err);
}

static uint64_t milliseconds(uint64_t seconds)
{
    return seconds ? seconds * 1000 : 1;
}

static void open_sandbox(struct exchange *x, struct creation_request *request)
{
    struct hutch_session_options options;
    struct gateway_session *session;
    struct e2b_sandbox *sandbox;

    hutch_session_options_init(&options);
    options.env = (const char *const *)request->env;
    options.idle_ms = HUTCH_NO_LIMIT;
    options.lifetime_ms = milliseconds(request->seconds);
    options.max_processes = MAX_PROCESSES;
    session = hutch_session_api_begin(x, &options);
    if (!session)
        return;
    sandbox = hutch_e2b_sandbox_create(session, request->template, request->metadata);
    request->template = request->metadata = NULL;
    if (sandbox) {
        begin_sandbox(x, sandbox);
    } else {
        close_session(x, session);
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the sandbox");
    }
}

void hutch_e2b_control_create(struct exchange *x)
{
    struct creation_request request = { .template = NULL };
    struct json_view body;
    struct hutch_err err;

    if (hutch_e2b_fields_parse(x->body.data, x->body.len, &body, &err) < 0 || read_creation(body, &request, &err) < 0)
        hutch_exchange_refuse(x, request.is_absent ? GATEWAY_NOT_FOUND : GATEWAY_INVALID_REQUEST, "%s", err.msg);
    else
        open_sandbox(x, &request);
    free(request.template);
    free(request.metadata);
    hutch_e2b_fields_env_free(request.env);
}

/* ---- list ---- */

void hutch_e2b_control_list(struct exchange *x)
{
    struct hutch_err err;
    auto_free char *metadata = hutch_exchange_query(x, "metadata", &err);
    auto_free char *states = hutch_exchange_query(x, "state", &err);
    struct text_buffer t = TEXT_BUFFER_INIT;
    struct gateway_session *session;
    struct hutch_session_info info;
    const char *between = "";

    hutch_text_add_string(&t, "[");
    LIST_FOREACH(session, &hutch_exchange_sessions(x)->list, in_list) {
        const struct e2b_sandbox *sandbox = hutch_e2b_sandbox_of(session);

        if (!sandbox || session->owner != x->token || session->is_closing ||
            !hutch_e2b_filter_metadata(sandbox->metadata, metadata) || !hutch_e2b_sandbox_info(x, sandbox, &info) ||
            !hutch_e2b_filter_state(states, info.state == HUTCH_SESSION_PAUSED ? "paused" : "running"))
            continue;
        hutch_text_add_string(&t, between);
        add_info(&t, x, sandbox, &info);
        between = ",";
    }
    hutch_text_add_string(&t, "]");
    hutch_exchange_answer_json(x, 200, &t);
}

/* ---- one of them ---- */

/* NULL: the exchange is refused. */
static struct e2b_sandbox *find(struct exchange *x, struct hutch_session_info *ret_info)
{
    struct e2b_sandbox *sandbox = hutch_e2b_sandbox_in_path(x);

    if (!sandbox || hutch_e2b_sandbox_info(x, sandbox, ret_info))
        return sandbox;
    hutch_exchange_refuse(x, GATEWAY_NOT_FOUND, "the sandbox was not found");
    return NULL;
}

void hutch_e2b_control_get(struct exchange *x)
{
    struct hutch_session_info info;
    const struct e2b_sandbox *sandbox = find(x, &info);
    struct text_buffer t = TEXT_BUFFER_INIT;

    if (!sandbox)
        return;
    add_info(&t, x, sandbox, &info);
    hutch_exchange_answer_json(x, 200, &t);
}

static uint64_t known(uint64_t value)
{
    return value == HUTCH_UNKNOWN ? 0 : value;
}

void hutch_e2b_control_metrics(struct exchange *x)
{
    struct hutch_limits limits = { .size = sizeof(limits) };
    struct hutch_session_info info;
    struct e2b_sandbox *sandbox = find(x, &info);
    double now = hutch_clock_unix(), since, percent = 0;
    struct text_buffer t = TEXT_BUFFER_INIT;

    if (!sandbox)
        return;
    hutch_exchange_policy(x, &limits);
    since = now - (sandbox->t_metrics > 0 ? sandbox->t_metrics : info.t_opened);
    if (since > 0 && known(info.cpu_ms) > sandbox->cpu_ms)
        percent = (double)(info.cpu_ms - sandbox->cpu_ms) / (10 * since);
    sandbox->t_metrics = now;
    sandbox->cpu_ms = known(info.cpu_ms);
    hutch_text_add_string(&t, "[{\"timestamp\":");
    hutch_moment_add(&t, now, 6);
    hutch_text_addf(&t, ",\"timestampUnix\":%.0f,\"cpuUsedPct\":%.2f,\"cpuCount\":%" PRIu64, now, percent,
                    count_cpus(&limits));
    hutch_text_addf(&t, ",\"memUsed\":%" PRIu64 ",\"memTotal\":%" PRIu64 ",\"memCache\":0,\"diskUsed\":%" PRIu64
                    ",\"diskTotal\":%" PRIu64 "}]", known(info.memory_bytes), limits.memory_bytes,
                    known(info.data_bytes), limits.data_bytes);
    hutch_exchange_answer_json(x, 200, &t);
}

/* A @key of the body in seconds, which stays as it is where there is none; false: the exchange is refused. */
static bool read_seconds(struct exchange *x, uint64_t *ret, bool *ret_is_there)
{
    struct json_view body;
    struct hutch_err err;

    *ret_is_there = false;
    if (hutch_e2b_fields_parse(x->body.data, x->body.len, &body, &err) == 0 &&
        hutch_e2b_fields_number(body, "timeout", 0, MAX_SECONDS, ret, &err) == 0) {
        *ret_is_there = !hutch_json_view_is_null(hutch_json_view_get(body, "timeout"));
        return true;
    }
    hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
    return false;
}

static bool set_lifetime(struct exchange *x, const struct e2b_sandbox *sandbox, uint64_t ms)
{
    struct hutch_error error;

    if (hutch_session_set_lifetime(hutch_exchange_engine(x), sandbox->session->number, 0, ms, &error) == 0) {
        sandbox->session->lifetime_ms = ms;
        return true;
    }
    refuse(x, &error);
    return false;
}

void hutch_e2b_control_timeout(struct exchange *x)
{
    const struct e2b_sandbox *sandbox = hutch_e2b_sandbox_in_path(x);
    uint64_t seconds = 0;
    bool is_there;

    if (!sandbox || !read_seconds(x, &seconds, &is_there))
        return;
    if (!is_there)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "request: 'timeout' is missing");
    else if (set_lifetime(x, sandbox, milliseconds(seconds)))
        hutch_e2b_answer_empty(x, 204);
}

void hutch_e2b_control_pause(struct exchange *x)
{
    struct hutch_session_info info;
    struct e2b_sandbox *sandbox = find(x, &info);
    struct hutch_error error;

    if (!sandbox)
        return;
    if (info.state == HUTCH_SESSION_PAUSED)
        hutch_exchange_refuse(x, GATEWAY_CONFLICT, "the sandbox is paused already");
    else if (hutch_session_pause(hutch_exchange_engine(x), sandbox->session->number, &error) < 0)
        refuse(x, &error);
    else if (set_lifetime(x, sandbox, PAUSED_MS))
        hutch_e2b_answer_empty(x, 204);
}

void hutch_e2b_control_connect(struct exchange *x)
{
    struct hutch_session_info info;
    struct e2b_sandbox *sandbox = find(x, &info);
    uint64_t seconds = USUAL_SECONDS;
    struct hutch_error error;
    bool was_paused, is_there;

    if (!sandbox || !read_seconds(x, &seconds, &is_there))
        return;
    was_paused = info.state == HUTCH_SESSION_PAUSED;
    if (was_paused && hutch_session_resume(hutch_exchange_engine(x), sandbox->session->number, &error) < 0) {
        refuse(x, &error);
        return;
    }
    hutch_gateway_sessions_touch(sandbox->session);
    /* One that runs is never given less time by this. */
    if ((was_paused || hutch_clock_unix() + (double)seconds > info.t_end) &&
        !set_lifetime(x, sandbox, milliseconds(seconds)))
        return;
    answer_created(x, was_paused ? 201 : 200, sandbox);
}

void hutch_e2b_control_kill(struct exchange *x)
{
    struct e2b_sandbox *sandbox = hutch_e2b_sandbox_in_path(x);

    if (!sandbox)
        return;
    close_session(x, sandbox->session);
    hutch_e2b_answer_empty(x, 204);
}

void hutch_e2b_control_refuse(struct exchange *x)
{
    if (hutch_e2b_sandbox_in_path(x))
        hutch_e2b_answer_error(x, 501, "a sandbox cannot be copied here, and its network cannot be changed: "
                               "hutch's own API has checkpoints and branches, which stay within a session");
}

void hutch_e2b_control_refuse_absent(struct exchange *x)
{
    static const struct { const char *part, *message; } rows[] = {
        { "/snapshots", "there are no snapshots here: hutch's own API has checkpoints, which stay within a session" },
        { "/templates", "there are no templates to be made, listed or changed here: sandboxes have the one image of "
                        "the server, which the operator chooses" },
        { "/teams", "there are no teams here: a token of the server stands for who asks, and /metrics has the "
                    "server's figures" },
        { "/volumes", "there are no volumes for sandboxes here" },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (strstr(x->route->path, rows[i].part))
            hutch_e2b_answer_error(x, 501, rows[i].message);
}

#include "runtime/gateway/session_api.h"

#include "runtime/gateway/events.h"
#include "runtime/gateway/local_peer.h"
#include "runtime/gateway/server_priv.h"
#include "runtime/gateway/session_request.h"
#include "runtime/gateway/session_stream.h"
#include "sandbox/fd.h"

#include <inttypes.h>
#include <string.h>

#define MS_PER_MINUTE 60000ull
#define USUAL_IDLE_MS (10 * MS_PER_MINUTE)
#define USUAL_LIFETIME_MS (24 * 60 * MS_PER_MINUTE)

struct gateway_session *hutch_session_api_find(struct exchange *x)
{
    struct gateway_session *session = hutch_gateway_sessions_find(&x->server->sessions, x->params[0], x->token);

    if (!session)
        hutch_exchange_refuse(x, GATEWAY_NOT_FOUND, "there is no such session");
    return session;
}

/* ---- what is told of one ---- */

static void add_time(struct text_buffer *t, const char *key, uint64_t ms)
{
    if (ms == HUTCH_NO_LIMIT)
        hutch_text_addf(t, ",\"%s\":null", key);
    else
        hutch_text_addf(t, ",\"%s\":%" PRIu64, key, ms);
}

/* Without the brace at its end. */
static void begin_session(struct text_buffer *t, const struct gateway_session *session)
{
    hutch_text_addf(t, "{\"id\":\"%s\",\"created\":%.3f,\"last_used\":%.3f,\"waiting\":%u", session->id,
                    session->created, session->last_used, session->n_waiting);
    add_time(t, "idle_ms", session->idle_ms);
    add_time(t, "lifetime_ms", session->lifetime_ms);
}

static void add_session(struct text_buffer *t, const struct gateway_session *session)
{
    begin_session(t, session);
    hutch_text_add_string(t, "}");
}

static void answer_session(struct exchange *x, unsigned status, const struct gateway_session *session)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    add_session(&t, session);
    hutch_text_add_string(&t, "\n");
    hutch_exchange_answer_json(x, status, &t);
}

static void answer_flag(struct exchange *x, const char *key, bool value)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_text_addf(&t, "{\"%s\":%s}\n", key, value ? "true" : "false");
    hutch_exchange_answer_json(x, 200, &t);
}

static void refuse(struct exchange *x, const struct hutch_error *error)
{
    hutch_exchange_refuse_error(x, error, GATEWAY_QUEUE_FULL, GATEWAY_NOT_FOUND);
}

/* ---- open, list, get, close ---- */

static void on_end(void *user, uint64_t number, const char *why, const char *directory)
{
    (void)number;
    hutch_session_stream_end(user, why, directory);
    hutch_gateway_sessions_remove(user);
}

void hutch_session_api_count_cell(struct exchange *x, struct gateway_session *session,
                                  const struct hutch_cell_result *result)
{
    if (session && result->verdict != HUTCH_OUTPUT_LIMIT && result->verdict != HUTCH_SETUP_FAILED)
        session->n_uploaded = 0; /* they were counted, and fit */
    hutch_server_count_cell(x->server, x->format->name, result);
}

enum gateway_error hutch_session_api_error(const struct hutch_cell_result *result)
{
    return result->verdict == HUTCH_SETUP_FAILED ? GATEWAY_SETUP_FAILED : GATEWAY_INTERNAL;
}

static uint64_t data_limit(const struct exchange *x, const struct hutch_session_options *options)
{
    struct hutch_limits limits = { .size = sizeof(limits) };

    hutch_exchange_policy(x, &limits);
    if (options->data_bytes)
        return options->data_bytes;
    return limits.data_bytes ? limits.data_bytes : HUTCH_NO_LIMIT;
}

void hutch_session_api_place(const struct exchange *x, struct placement *ret)
{
    char given[ID_LEN + 1];
    struct hutch_err ignored;
    int rc = hutch_exchange_given_id(x, given, &ignored);

    if (hutch_local_peer_is_claimed(x)) /* it is seen from its connection who that is */
        return;
    if (rc > 0)
        hutch_placement_name(ret, given);
    else if (rc == 0)
        ret->kind = PLACE_NEW;
}

struct gateway_session *hutch_session_api_begin(struct exchange *x, struct hutch_session_options *options)
{
    struct server *s = x->server;
    unsigned n = hutch_gateway_sessions_count(&s->sessions, x->token);
    struct gateway_session *session;
    char given[ID_LEN + 1];
    struct hutch_error error;
    struct hutch_err err;
    int rc;

    if (s->has_failed) {
        hutch_exchange_refuse(x, GATEWAY_ENGINE_FAILED, "the engine can run nothing any more");
        return NULL;
    }
    if (n >= hutch_server_session_share(s)) {
        hutch_exchange_refuse(x, GATEWAY_QUEUE_FULL, "this token has %u sessions, which is its share", n);
        return NULL;
    }
    session = hutch_gateway_sessions_add(&s->sessions, x->token, &err);
    if (!session) {
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "%s", err.msg);
        return NULL;
    }
    rc = hutch_exchange_given_id(x, given, &err);
    if (rc < 0 || (rc > 0 && hutch_gateway_sessions_name(session, given, &err) < 0)) {
        hutch_gateway_sessions_remove(session);
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
        return NULL;
    }
    session->idle_ms = options->idle_ms ? options->idle_ms : USUAL_IDLE_MS;
    session->lifetime_ms = options->lifetime_ms ? options->lifetime_ms : USUAL_LIFETIME_MS;
    session->data_bytes = data_limit(x, options);
    options->policy = hutch_exchange_policy(x, NULL);
    options->on_end = on_end;
    options->user = session;
    if (hutch_session_open(s->engine, options, &session->number, &error) < 0) {
        hutch_gateway_sessions_remove(session);
        hutch_exchange_refuse_error(x, &error, GATEWAY_QUEUE_FULL, GATEWAY_INVALID_REQUEST);
        return NULL;
    }
    return session;
}

static void answer_open(struct exchange *x, struct gateway_session *session)
{
    const enum events_format format = hutch_events_asked(x);
    struct text_buffer t = TEXT_BUFFER_INIT;

    if (format == EVENTS_NONE) {
        answer_session(x, 201, session);
        return;
    }
    add_session(&t, session);
    hutch_session_stream_begin(x, session, format, &t);
}

/* What hutch's own command line asks for besides. */
static void add_grant(struct hutch_session_options *options, const struct local_grant *grant)
{
    options->data_dir = grant->data;
    options->keep_data = 1;
    options->wall_ms = grant->wall_ms;
}

void hutch_session_api_open(struct exchange *x)
{
    __attribute__((cleanup(hutch_local_grant_done))) struct local_grant grant = LOCAL_GRANT_INIT;
    struct session_request request;
    struct gateway_session *session;
    struct hutch_err err;

    if (hutch_session_request_parse(x->body.data, x->body.len, &request, &err) < 0)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
    else if (hutch_local_peer_is_claimed(x) && hutch_local_peer_grant(x, &grant))
        add_grant(&request.options, &grant);
    if (!x->status && (session = hutch_session_api_begin(x, &request.options)))
        answer_open(x, session);
    hutch_session_request_done(&request);
}

struct gateway_session *hutch_session_api_find_name(struct exchange *x, const char *name)
{
    return hutch_gateway_sessions_find_name(&x->server->sessions, name, x->token);
}

struct gateway_session *hutch_session_api_next_named(struct exchange *x, struct gateway_session *after)
{
    struct gateway_session *session = after ? LIST_NEXT(after, in_list) : LIST_FIRST(&x->server->sessions.list);

    while (session && (!session->name || session->owner != x->token || session->is_closing))
        session = LIST_NEXT(session, in_list);
    return session;
}

void hutch_session_api_end(struct exchange *x, struct gateway_session *session)
{
    session->is_closing = true; /* on_end() removes it, after the results of its cells */
    hutch_session_close(x->server->engine, session->number);
}

void hutch_session_api_list(struct exchange *x)
{
    struct text_buffer t = TEXT_BUFFER_INIT;
    const struct gateway_session *session;
    bool has_one = false;

    hutch_text_add_string(&t, "{\"sessions\":[");
    LIST_FOREACH(session, &x->server->sessions.list, in_list) {
        if (session->owner != x->token || session->is_closing)
            continue;
        hutch_text_add_string(&t, has_one ? "," : "");
        add_session(&t, session);
        has_one = true;
    }
    hutch_text_add_string(&t, "]}\n");
    hutch_exchange_answer_json(x, 200, &t);
}

void hutch_session_api_get(struct exchange *x)
{
    const struct gateway_session *session = hutch_session_api_find(x);
    struct hutch_session_info info = { .size = sizeof(info) };
    struct text_buffer t = TEXT_BUFFER_INIT;
    auto_free char *now = NULL;
    struct hutch_error error;

    if (!session)
        return;
    if (hutch_session_get_info(x->server->engine, session->number, &info, &now, &error) < 0) {
        refuse(x, &error);
        return;
    }
    begin_session(&t, session);
    hutch_text_add_string(&t, ",\"now\":");
    hutch_text_add_string(&t, now);
    hutch_text_add_string(&t, "}\n");
    hutch_exchange_answer_json(x, 200, &t);
}

void hutch_session_api_close(struct exchange *x)
{
    struct gateway_session *session = hutch_session_api_find(x);

    if (!session)
        return;
    hutch_session_api_end(x, session);
    hutch_exchange_answer(x, 204, NULL, strdup(""), 0);
}

/* ---- interrupt, restart, pause, end ---- */

void hutch_session_api_interrupt(struct exchange *x)
{
    struct gateway_session *session = hutch_session_api_find(x);

    if (session)
        answer_flag(x, "interrupted", hutch_session_interrupt(x->server->engine, session->number) == 1);
}

void hutch_session_api_restart(struct exchange *x)
{
    struct gateway_session *session = hutch_session_api_find(x);
    struct hutch_error error;

    if (!session)
        return;
    hutch_gateway_sessions_touch(session);
    if (hutch_session_restart(x->server->engine, session->number, &error) < 0)
        refuse(x, &error);
    else
        answer_flag(x, "restarted", true);
}

void hutch_session_api_pause(struct exchange *x)
{
    struct gateway_session *session = hutch_session_api_find(x);
    struct hutch_error error;

    if (!session)
        return;
    if (hutch_session_pause(x->server->engine, session->number, &error) < 0)
        refuse(x, &error);
    else
        answer_flag(x, "paused", true);
}

void hutch_session_api_resume(struct exchange *x)
{
    struct gateway_session *session = hutch_session_api_find(x);
    struct hutch_error error;

    if (!session)
        return;
    hutch_gateway_sessions_touch(session);
    if (hutch_session_resume(x->server->engine, session->number, &error) < 0)
        refuse(x, &error);
    else
        answer_flag(x, "paused", false);
}

void hutch_session_api_lifetime(struct exchange *x)
{
    struct gateway_session *session = hutch_session_api_find(x);
    uint64_t idle_ms, lifetime_ms;
    struct hutch_error error;
    struct hutch_err err;

    if (!session)
        return;
    if (hutch_lifetime_request_parse(x->body.data, x->body.len, &idle_ms, &lifetime_ms, &err) < 0) {
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
        return;
    }
    if (hutch_session_set_lifetime(x->server->engine, session->number, idle_ms, lifetime_ms, &error) < 0) {
        refuse(x, &error);
        return;
    }
    session->idle_ms = idle_ms ? idle_ms : session->idle_ms;
    session->lifetime_ms = lifetime_ms ? lifetime_ms : session->lifetime_ms;
    answer_session(x, 200, session);
}

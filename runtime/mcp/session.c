#include "runtime/mcp/session.h"

#include "runtime/hutch.h"
#include "runtime/mcp/call.h"
#include "runtime/mcp/server_priv.h"
#include "runtime/mcp/tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- all of them ------------------------------------------------------------------------------------------------ */

void hutch_mcp_sessions_init(struct mcp_sessions *all, const struct mcp_settings *settings)
{
    *all = (struct mcp_sessions){ .settings = settings };
    LIST_INIT(&all->list);
}

static void free_session(struct mcp_session *s)
{
    LIST_REMOVE(s, in_list);
    s->sessions->n -= !s->is_closing; /* the place of one that is given up is free already */
    free(s);
}

void hutch_mcp_sessions_done(struct mcp_sessions *all)
{
    while (!LIST_EMPTY(&all->list))
        free_session(LIST_FIRST(&all->list));
}

static unsigned max_sessions(const struct mcp_sessions *all)
{
    return all->settings->max_sessions ? all->settings->max_sessions : MCP_MAX_SESSIONS;
}

static int make_handle(const struct mcp_sessions *all, char ret[ID_LEN + 1], struct hutch_err *err)
{
    if (all->account && all->account->make_handle)
        return all->account->make_handle(all->owner, ret, err);
    return hutch_id_make(ret, err);
}

static struct mcp_session *make_session(struct mcp_sessions *all, bool is_main, struct hutch_err *err)
{
    struct mcp_session *s;

    if (all->n >= max_sessions(all)) {
        hutch_err_set(err, 0, "%u sessions are open, which is the most that may: go on in one of them", all->n);
        return NULL;
    }
    s = calloc(1, sizeof(*s));
    if (!s) {
        hutch_err_set(err, ENOMEM, "make a session");
        return NULL;
    }
    if (make_handle(all, s->handle, err) < 0) {
        free(s);
        return NULL;
    }
    s->sessions = all;
    s->is_main = is_main;
    TAILQ_INIT(&s->queue);
    LIST_INSERT_HEAD(&all->list, s, in_list);
    all->n++;
    return s;
}

/* Whether @handle asks for a session that is not there yet. */
static bool is_new(const struct mcp_sessions *all, const char *handle)
{
    return handle ? strcmp(handle, "new") == 0 : all->settings->has_no_main;
}

/* How long it takes says nothing of where they differ. */
static bool is_same_handle(const struct mcp_session *s, const char *handle)
{
    unsigned char differs = 0;

    for (size_t i = 0; i < ID_LEN; i++)
        differs |= (unsigned char)(s->handle[i] ^ handle[i]);
    return differs == 0;
}

struct mcp_session *hutch_mcp_sessions_find(struct mcp_sessions *all, const char *handle, struct hutch_err *err)
{
    struct mcp_session *s;

    if (is_new(all, handle))
        return make_session(all, false, err);
    LIST_FOREACH(s, &all->list, in_list)
        if (!s->is_closing && (handle ? strlen(handle) == ID_LEN && is_same_handle(s, handle) : s->is_main))
            return s;
    if (!handle)
        return make_session(all, true, err);
    hutch_err_set(err, 0, "there is no session with this 'session_id', or no more: leave it out, or \"new\" makes one");
    return NULL;
}

bool hutch_mcp_sessions_needs_room(const struct mcp_sessions *all, const char *handle)
{
    return all->settings->has_no_main && is_new(all, handle) && all->n >= max_sessions(all);
}

void hutch_mcp_sessions_make_room(struct mcp_sessions *all, struct hutch_engine *engine)
{
    struct mcp_session *s, *oldest = NULL;

    LIST_FOREACH(s, &all->list, in_list)
        if (s->id && !s->is_closing && !s->running && TAILQ_EMPTY(&s->queue) && (!oldest || s->used < oldest->used))
            oldest = s;
    if (!oldest)
        return;
    oldest->is_closing = true;
    all->n--; /* its place is free */
    hutch_session_close(engine, oldest->id);
}

void hutch_mcp_sessions_close(struct mcp_sessions *all, struct hutch_engine *engine)
{
    struct mcp_session *s;

    LIST_FOREACH(s, &all->list, in_list)
        if (s->id && !s->is_closing)
            hutch_session_close(engine, s->id);
}

bool hutch_mcp_sessions_are_closed(const struct mcp_sessions *all)
{
    const struct mcp_session *s;

    LIST_FOREACH(s, &all->list, in_list)
        if (s->id)
            return false;
    return true;
}

/* --- beginning and end ------------------------------------------------------------------------------------------ */

/* What was in it is gone. The main one is opened anew by the next call, others are forgotten. */
static void lose(struct mcp_session *s, const char *why)
{
    struct mcp_call *call;

    s->id = 0;
    s->is_ready = false;
    if (s->sessions->account)
        s->sessions->account->leave(s->sessions->owner);
    snprintf(s->why_lost, sizeof(s->why_lost), "%s", why);
    s->loss = MCP_LOST_SESSION;
    s->is_turning = true; /* nothing begins in it just now */
    if (s->running)
        hutch_mcp_call_fail(s->running, "the session has ended: %s", why);
    while (!s->is_main && (call = TAILQ_FIRST(&s->queue)))
        hutch_mcp_call_fail(call, "the session has ended: %s", why);
    s->is_turning = false;
    if (s->is_main)
        hutch_mcp_session_turn(s);
    else
        free_session(s);
}

static void on_end(void *user, uint64_t session, const char *why, const char *directory)
{
    struct mcp_session *s = user;

    (void)session;
    (void)directory;
    lose(s, why);
}

void hutch_mcp_sessions_lose(struct mcp_sessions *all, const char *why)
{
    struct mcp_session *s, *next;

    for (s = LIST_FIRST(&all->list); s; s = next) {
        next = LIST_NEXT(s, in_list);
        if (s->id)
            lose(s, why);
    }
}

static int open_session(struct mcp_session *s, struct hutch_engine *engine, struct hutch_err *err)
{
    const struct mcp_settings *settings = s->sessions->settings;
    const struct mcp_account *account = s->sessions->account;
    struct hutch_session_options options;
    struct hutch_error error;

    if (account && account->enter(s->sessions->owner, err) < 0)
        return -1;
    hutch_session_options_init(&options);
    options.policy = account ? account->policy(s->sessions->owner, NULL) : NULL;
    options.data_dir = settings->data_dir;
    options.idle_ms = settings->idle_ms;
    options.lifetime_ms = settings->lifetime_ms;
    options.on_end = on_end;
    options.user = s;
    if (hutch_session_open(engine, &options, &s->id, &error) == 0)
        return 0;
    if (account)
        account->leave(s->sessions->owner);
    return hutch_err_set(err, 0, "%s", error.message);
}

void hutch_mcp_session_restart(struct mcp_session *s, struct hutch_engine *engine)
{
    if (!s->id || hutch_session_restart(engine, s->id, NULL) < 0)
        return;
    s->loss = MCP_LOST_VARIABLES;
}

bool hutch_mcp_session_tell_loss(struct mcp_session *s, char *to, size_t size)
{
    enum mcp_loss loss = s->loss;

    s->loss = MCP_LOST_NOTHING;
    if (loss == MCP_LOST_SESSION)
        snprintf(to, size, "[The session of before has ended: %s. Its variables and files are gone.]", s->why_lost);
    else if (loss == MCP_LOST_VARIABLES)
        snprintf(to, size, "[A call that was cancelled did not stop, so its interpreter was ended. Variables are gone, "
                           "files are still there.]");
    return loss != MCP_LOST_NOTHING;
}

bool hutch_mcp_session_tell_handle(struct mcp_session *s, char *to, size_t size)
{
    if (!s->sessions->settings->has_no_main || s->is_told)
        return false;
    s->is_told = true;
    snprintf(to, size, "[Variables and files are kept for calls with the session_id \"%s\".]", s->handle);
    return true;
}

/* --- turns ------------------------------------------------------------------------------------------------------ */

static void on_prepared(void *user, uint64_t id, const struct hutch_cell_result *result)
{
    struct mcp_call *call = user;
    struct mcp_session *s = call->session;

    (void)id;
    if (result->verdict != HUTCH_OK || call->is_cancelled) {
        hutch_mcp_call_fail(call, "%s", result->message);
        return;
    }
    s->is_ready = true;
    call->tool->begin(call);
    hutch_mcp_session_turn(s);
}

/* Files of a session can be reached once a cell has run in it. So that they can be while the first call runs, there is
 * one before. */
static int prepare(struct mcp_session *s, struct hutch_engine *engine, struct mcp_call *call, struct hutch_err *err)
{
    struct hutch_cell cell;
    struct hutch_error error;

    hutch_cell_init(&cell);
    cell.code = "pass";
    cell.silent = cell.no_history = 1;
    cell.on_result = on_prepared;
    cell.user = call;
    if (hutch_session_execute(engine, s->id, &cell, &error) < 0)
        return hutch_err_set(err, 0, "%s", error.message);
    return 0;
}

static void begin(struct mcp_session *s, struct mcp_call *call)
{
    struct hutch_err err = { 0 };
    struct hutch_engine *engine = hutch_mcp_call_engine(call, &err);

    if (!engine || (!s->id && open_session(s, engine, &err) < 0))
        hutch_mcp_call_fail(call, "%s", err.msg);
    else if (s->is_ready)
        call->tool->begin(call);
    else if (prepare(s, engine, call, &err) < 0)
        hutch_mcp_call_fail(call, "%s", err.msg);
}

/* The first one in the queue when nothing runs. While code runs, the first one that does not execute any: files can be
 * reached meanwhile. */
static struct mcp_call *next_call(const struct mcp_session *s)
{
    struct mcp_call *call;

    TAILQ_FOREACH(call, &s->queue, in_queue)
        if (!s->running || (s->is_ready && !call->tool->is_cell))
            return call;
    return NULL;
}

/* A client that does not read gets one result more at most: files are quicker read than sent. */
void hutch_mcp_session_turn(struct mcp_session *s)
{
    struct mcp_call *call;

    if (s->is_turning)
        return;
    s->is_turning = true;
    while ((call = next_call(s)) && !call->server->transport->is_behind(call->server->owner)) {
        TAILQ_REMOVE(&s->queue, call, in_queue);
        call->is_waiting = false;
        if (!s->running)
            s->running = call;
        begin(s, call); /* which may have ended it */
    }
    s->is_turning = false;
    if (!s->id && !s->is_main && !s->running && TAILQ_EMPTY(&s->queue))
        free_session(s); /* it could not be opened, and nobody knows its handle */
}

void hutch_mcp_session_enter(struct mcp_session *s, struct mcp_call *call)
{
    s->used = ++s->sessions->n_calls;
    TAILQ_INSERT_TAIL(&s->queue, call, in_queue);
    call->is_waiting = true;
    hutch_mcp_session_turn(s);
}

void hutch_mcp_session_leave(struct mcp_session *s, struct mcp_call *call)
{
    if (call->is_waiting)
        TAILQ_REMOVE(&s->queue, call, in_queue);
    call->is_waiting = false;
    if (s->running == call)
        s->running = NULL;
}

void hutch_mcp_sessions_turn(struct mcp_sessions *all)
{
    struct mcp_session *s, *next;

    for (s = LIST_FIRST(&all->list); s; s = next) {
        next = LIST_NEXT(s, in_list);
        hutch_mcp_session_turn(s);
    }
}

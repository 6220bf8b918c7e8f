#include "engine.h"

#include "call.h"

#include <stdlib.h>
#include <string.h>

/* ---- what is pending ---- */

static void hold_loop(struct engine *e, int change)
{
    e->n_holding = (unsigned)((int)e->n_holding + change);
    if (e->n_holding)
        uv_ref((uv_handle_t *)&e->poll);
    else
        uv_unref((uv_handle_t *)&e->poll);
}

struct pending *hutch_node_pending_create(struct engine *e, napi_value on_output, napi_value on_result,
                                          bool holds_loop)
{
    struct pending *p = calloc(1, sizeof(*p));
    napi_valuetype type = napi_undefined;

    if (!p) {
        napi_throw_error(e->env, "ENOMEM", "there is no memory for the request");
        return NULL;
    }
    p->engine = e;
    napi_typeof(e->env, on_output, &type);
    if ((type == napi_function && napi_create_reference(e->env, on_output, 1, &p->on_output) != napi_ok) ||
        napi_create_reference(e->env, on_result, 1, &p->on_result) != napi_ok) {
        if (p->on_output)
            napi_delete_reference(e->env, p->on_output);
        free(p);
        napi_throw_type_error(e->env, NULL, "a callback is no function");
        return NULL;
    }
    p->holds_loop = holds_loop;
    LIST_INSERT_HEAD(&e->pending, p, in_list);
    hold_loop(e, holds_loop);
    return p;
}

void hutch_node_pending_free(struct pending *p)
{
    struct engine *e = p->engine;

    LIST_REMOVE(p, in_list);
    hold_loop(e, -(int)p->holds_loop);
    if (p->on_output)
        napi_delete_reference(e->env, p->on_output);
    napi_delete_reference(e->env, p->on_result);
    free(p);
}

void hutch_node_note(struct pending *p, bool is_last, int kind, const char *text, size_t len)
{
    struct note *note = calloc(1, sizeof(*note));

    if (!note)
        return; /* an answer that is lost leaves its promise open until the engine is closed, which rejects it */
    note->pending = p;
    note->is_last = is_last;
    note->kind = kind;
    note->text = malloc(len + 1);
    if (note->text) {
        memcpy(note->text, text, len);
        note->text[len] = '\0';
        note->len = len;
    }
    TAILQ_INSERT_TAIL(&p->engine->notes, note, in_queue);
}

void hutch_node_note_json(struct pending *p, char *json)
{
    hutch_node_note(p, true, NOTE_TEXT, json ? json : "", json ? strlen(json) : 0);
    free(json);
}

static void free_note(struct engine *e, struct note *note)
{
    TAILQ_REMOVE(&e->notes, note, in_queue);
    free(note->text);
    free(note);
}

/* ---- what is told ---- */

static void call(struct engine *e, napi_ref function, int kind, const char *text, size_t len)
{
    napi_value global, callee, args[2], error;

    if (!function || napi_get_reference_value(e->env, function, &callee) != napi_ok ||
        napi_get_global(e->env, &global) != napi_ok || napi_create_int32(e->env, kind, &args[0]) != napi_ok)
        return;
    if (!text)
        napi_get_null(e->env, &args[1]);
    else if (kind >= NOTE_TEXT)
        napi_create_string_utf8(e->env, text, len, &args[1]);
    else
        napi_create_buffer_copy(e->env, len, text, NULL, &args[1]);
    if (napi_make_callback(e->env, e->context, global, callee, 2, args, NULL) == napi_pending_exception &&
        napi_get_and_clear_last_exception(e->env, &error) == napi_ok)
        napi_fatal_exception(e->env, error); /* the caller's own: "uncaughtException" */
}

static void tell(struct engine *e)
{
    struct note *note;

    while (!e->is_closing && (note = TAILQ_FIRST(&e->notes))) {
        struct pending *p = note->pending;
        napi_handle_scope scope;

        if (napi_open_handle_scope(e->env, &scope) != napi_ok)
            return;
        call(e, note->is_last ? p->on_result : p->on_output, note->kind, note->text, note->len);
        if (!e->is_closing && note->is_last)
            hutch_node_pending_free(p);
        if (!e->is_closing) /* else both go with the engine */
            free_note(e, note);
        napi_close_handle_scope(e->env, scope);
    }
}

/* uv_poll_cb. */
static void on_ready(uv_poll_t *poll, int status, int events)
{
    struct engine *e = poll->data;
    struct hutch_error error;
    int rc;

    (void)status;
    (void)events;
    rc = hutch_engine_dispatch(e->engine, &error);
    tell(e);
    if (rc < 0 && !e->is_closing) {
        napi_handle_scope scope;

        uv_poll_stop(poll);
        if (napi_open_handle_scope(e->env, &scope) == napi_ok) {
            call(e, e->on_failure, NOTE_TEXT, error.message, strlen(error.message));
            napi_close_handle_scope(e->env, scope);
        }
    }
}

/* ---- beginning and end ---- */

static void on_closed(uv_handle_t *handle)
{
    struct engine *e = handle->data;
    struct pending *p;
    struct note *note;

    while ((note = TAILQ_FIRST(&e->notes)))
        free_note(e, note);
    while ((p = LIST_FIRST(&e->pending))) {
        LIST_REMOVE(p, in_list);
        if (p->on_output)
            napi_delete_reference(e->env, p->on_output);
        napi_delete_reference(e->env, p->on_result);
        free(p);
    }
    if (e->box)
        e->box->engine = NULL;
    napi_delete_reference(e->env, e->on_failure);
    napi_async_destroy(e->env, e->context);
    napi_remove_async_cleanup_hook(e->hook);
    free(e);
}

void hutch_node_engine_close(struct engine *e)
{
    if (e->is_closing)
        return;
    e->is_closing = true;
    uv_poll_stop(&e->poll);
    hutch_engine_free(e->engine);
    e->engine = NULL;
    uv_close((uv_handle_t *)&e->poll, on_closed);
}

/* The environment ends: the process, or a worker thread of Node's. */
static void on_cleanup(napi_async_cleanup_hook_handle hook, void *data)
{
    (void)hook;
    hutch_node_engine_close(data);
}

struct engine *hutch_node_engine_open(napi_env env, const struct hutch_engine_options *options, napi_value on_failure)
{
    struct engine *e = calloc(1, sizeof(*e));
    struct hutch_error error = { 0 };
    napi_value name;
    uv_loop_t *loop;

    if (!e || napi_get_uv_event_loop(env, &loop) != napi_ok) {
        free(e);
        napi_throw_error(env, "ENOMEM", "there is no memory for an engine");
        return NULL;
    }
    e->env = env;
    LIST_INIT(&e->pending);
    TAILQ_INIT(&e->notes);
    if (hutch_engine_open(options, &e->engine, &error) < 0) {
        free(e);
        hutch_node_throw(env, &error);
        return NULL;
    }
    if (napi_create_string_utf8(env, "hutch", NAPI_AUTO_LENGTH, &name) != napi_ok ||
        napi_async_init(env, NULL, name, &e->context) != napi_ok ||
        napi_create_reference(env, on_failure, 1, &e->on_failure) != napi_ok ||
        uv_poll_init(loop, &e->poll, hutch_engine_fd(e->engine)) != 0) {
        hutch_engine_free(e->engine);
        if (e->on_failure)
            napi_delete_reference(env, e->on_failure);
        if (e->context)
            napi_async_destroy(env, e->context);
        free(e);
        napi_throw_error(env, "EIO", "the engine's descriptor cannot be watched in the event loop");
        return NULL;
    }
    e->poll.data = e;
    uv_poll_start(&e->poll, UV_READABLE, on_ready);
    uv_unref((uv_handle_t *)&e->poll); /* an engine that has nothing to do lets the process end */
    napi_add_async_cleanup_hook(env, on_cleanup, e, &e->hook);
    return e;
}

#include "runtime/gateway/run_api.h"

#include "runtime/gateway/answered_run.h"
#include "runtime/gateway/keyed_run.h"
#include "runtime/gateway/local_peer.h"
#include "runtime/gateway/run_form.h"
#include "runtime/gateway/run_request.h"
#include "runtime/gateway/server_priv.h"
#include "runtime/gateway/submit.h"
#include "sandbox/fd.h"

#include <inttypes.h>
#include <string.h>

#define KEYED_AS "run" /* no path of a function, which has a '/' */

/* ---- with files ---- */

static void free_form(struct exchange *x)
{
    hutch_run_form_free(x->work);
    x->work = NULL;
}

void hutch_run_api_begin(struct exchange *x)
{
    struct hutch_err err;

    x->work = hutch_run_form_create(hutch_exchange_header(x, "Content-Type"), x->server->options->max_body, &err);
    x->on_free = free_form;
    if (!x->work)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
}

void hutch_run_api_take(struct exchange *x, const char *data, size_t len)
{
    uint64_t max = x->server->options->max_body;
    struct hutch_err err;

    if (x->n_in > max)
        hutch_exchange_refuse(x, GATEWAY_BODY_TOO_LARGE, "the body is larger than %" PRIu64 " bytes", max);
    else if (!hutch_exchange_hold(x, len))
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server holds as much of requests and answers as it may");
    else if (hutch_run_form_take(x->work, data, len, &err) < 0)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
    if (x->status)
        free_form(x);
}

/* ---- the request ---- */

/* What hutch's own command line asks for besides. */
static void add_grant(struct hutch_request *request, const struct local_grant *grant)
{
    request->has_input_fd = grant->input_fd >= 0;
    request->input_fd = grant->input_fd;
    request->data_dir = grant->data;
    request->keep_data = 1;
}

static void run(struct exchange *x, const struct text_buffer *text, const struct run_form *form, const char *key)
{
    __attribute__((cleanup(hutch_local_grant_done))) struct local_grant grant = LOCAL_GRANT_INIT;
    const bool is_local = hutch_local_peer_is_claimed(x);
    struct run_request request;
    struct hutch_err err;

    if (hutch_run_request_parse(text->data, text->len, &request, &err) < 0)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
    else
        hutch_exchange_note_program(x, request.request.code, request.request.code_len);
    if (!x->status && is_local && hutch_local_peer_grant(x, &grant))
        add_grant(&request.request, &grant);
    if (!x->status && hutch_submit_is_allowed(x)) {
        if (key) {
            hutch_keyed_run_submit(x, &request.request, key, KEYED_AS);
        } else {
            request.request.files = form ? form->files : NULL;
            request.request.n_files = form ? form->n_files : 0;
            hutch_answered_run_submit(x, &request.request);
        }
    }
    hutch_run_request_done(&request);
}

static void run_form(struct exchange *x)
{
    struct run_form *form = x->work;
    struct hutch_err err;

    x->work = NULL; /* which is the run's place */
    x->on_free = NULL;
    if (hutch_run_form_finish(form, &err) < 0)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
    else
        run(x, &form->request, form, NULL);
    hutch_run_form_free(form);
}

void hutch_run_api_run(struct exchange *x)
{
    const char *key = hutch_keyed_run_key(x);

    if (x->status || (key && hutch_keyed_run_join(x, key, KEYED_AS)))
        return;
    if (x->is_streamed)
        run_form(x);
    else
        run(x, &x->body, NULL, key);
}

#include "runtime/e2b/sandbox.h"

#include "runtime/e2b/format.h"
#include "runtime/e2b/process.h"
#include "runtime/e2b/signature.h"
#include "runtime/gateway/exchange.h"
#include "runtime/gateway/place.h"
#include "runtime/gateway/session_api.h"
#include "runtime/gateway/sessions.h"
#include "runtime/gateway/token.h"
#include "runtime/hutch.h"
#include "sandbox/fd.h"

#include <openssl/crypto.h>
#include <string.h>

#define NOT_FOUND "the sandbox was not found"

struct e2b_sandbox *hutch_e2b_sandbox_create(struct gateway_session *session, char *template, char *metadata)
{
    struct e2b_sandbox *sandbox = calloc(1, sizeof(*sandbox));
    struct hutch_err err;

    if (!sandbox || hutch_id_make(sandbox->token, &err) < 0) {
        free(sandbox);
        free(template);
        free(metadata);
        return NULL;
    }
    sandbox->session = session;
    sandbox->template = template;
    sandbox->metadata = metadata;
    LIST_INIT(&sandbox->processes);
    LIST_INIT(&sandbox->shells);
    hutch_e2b_name_write(session->id, sandbox->name);
    strcpy(sandbox->contexts[0].id, "main"); /* the session's own name for its first one */
    sandbox->contexts[0].has_begun = true;
    sandbox->n_contexts = 1;
    session->format = &hutch_e2b_format;
    session->own = sandbox;
    session->free_own = hutch_e2b_sandbox_free;
    return sandbox;
}

void hutch_e2b_sandbox_free(void *own)
{
    struct e2b_sandbox *sandbox = own;

    hutch_e2b_processes_free(sandbox);
    hutch_e2b_shells_free(sandbox);
    for (size_t i = 0; i < sandbox->n_contexts; i++)
        free(sandbox->contexts[i].cwd);
    free(sandbox->template);
    free(sandbox->metadata);
    free(sandbox);
}

struct e2b_sandbox *hutch_e2b_sandbox_of(struct gateway_session *session)
{
    return session && session->format == &hutch_e2b_format ? session->own : NULL;
}

struct e2b_sandbox *hutch_e2b_sandbox_in_path(struct exchange *x)
{
    char id[ID_LEN + 1];
    struct e2b_sandbox *sandbox;

    hutch_e2b_name_read(x->params[0], id); /* what is no name is looked for, too, and takes as long */
    sandbox = hutch_e2b_sandbox_of(hutch_gateway_sessions_find(hutch_exchange_sessions(x), id, x->token));
    if (!sandbox)
        hutch_exchange_refuse(x, GATEWAY_NOT_FOUND, NOT_FOUND);
    return sandbox;
}

static bool read_host(const struct exchange *x, char name[E2B_ID_LEN + 1], unsigned *ret_port)
{
    const char *host = hutch_exchange_header(x, "Host");

    return host && hutch_e2b_name_of_host(host, name, ret_port);
}

/* False: neither header names a sandbox. */
static bool read_header(const struct exchange *x, char id[ID_LEN + 1])
{
    const char *name = hutch_exchange_header(x, "E2b-Sandbox-Id");
    char in_host[E2B_ID_LEN + 1];
    unsigned port;

    if (!name && read_host(x, in_host, &port))
        name = in_host;
    hutch_e2b_name_read(name ? name : "", id);
    return name != NULL;
}

void hutch_e2b_sandbox_place(const struct exchange *x, struct placement *ret)
{
    const bool is_of_all = strcmp(x->route->path, "/sandboxes") == 0 || strcmp(x->route->path, "/v2/sandboxes") == 0;
    char id[ID_LEN + 1];

    if (is_of_all && strcmp(x->route->method, "POST") == 0) {
        hutch_session_api_place(x, ret);
    } else if (is_of_all) {
        *ret = (struct placement){ .kind = PLACE_ALL, .merge = hutch_merge_lists };
    } else if (!x->route->is_open && !strstr(x->route->path, "/sandboxes/")) {
        return; /* it is about none */
    } else if (!x->route->is_open) {
        hutch_e2b_name_read(x->params[0], id);
        hutch_placement_name(ret, id);
    } else if (read_header(x, id)) {
        hutch_placement_name(ret, id);
    }
}

struct e2b_sandbox *hutch_e2b_sandbox_in_header(const struct exchange *x)
{
    char id[ID_LEN + 1];

    read_header(x, id);
    return hutch_e2b_sandbox_of(hutch_gateway_sessions_find_any(hutch_exchange_sessions(x), id));
}

unsigned hutch_e2b_sandbox_port(const struct exchange *x)
{
    const char *text = hutch_exchange_header(x, "E2b-Sandbox-Port");
    char name[E2B_ID_LEN + 1];
    unsigned port = 0;

    if (!text)
        return read_host(x, name, &port) ? port : 0;
    return strcmp(text, "49999") == 0 ? E2B_PORT_CODE : E2B_PORT_ENVD;
}

bool hutch_e2b_sandbox_info(const struct exchange *x, const struct e2b_sandbox *sandbox, struct hutch_session_info *ret)
{
    struct hutch_error error;

    *ret = (struct hutch_session_info){ .size = sizeof(*ret) };
    return hutch_session_get_info(hutch_exchange_engine(x), sandbox->session->number, ret, NULL, &error) == 0;
}

struct e2b_sandbox *hutch_e2b_sandbox_awake(struct exchange *x)
{
    struct e2b_sandbox *sandbox = hutch_e2b_sandbox_in_header(x);
    struct hutch_session_info info;

    if (!sandbox || !hutch_e2b_sandbox_info(x, sandbox, &info)) {
        hutch_exchange_refuse(x, GATEWAY_NOT_FOUND, NOT_FOUND);
        return NULL;
    }
    if (info.state != HUTCH_SESSION_PAUSED)
        return sandbox;
    hutch_exchange_refuse(x, GATEWAY_CONFLICT, "the sandbox is paused: connect to it, and it goes on");
    return NULL;
}

/* ---- who may ----- */

static bool is_path(const struct exchange *x, const char *begin)
{
    return strncmp(x->route->path, begin, strlen(begin)) == 0;
}

static bool has_token(const struct exchange *x, const struct e2b_sandbox *sandbox)
{
    const char *given = hutch_exchange_header(x, "X-Access-Token");

    return given && strlen(given) == ID_LEN && CRYPTO_memcmp(given, sandbox->token, ID_LEN) == 0;
}

void hutch_e2b_sandbox_admit(struct exchange *x)
{
    struct e2b_sandbox *sandbox;

    if (is_path(x, "/health"))
        return; /* it says by its status that there is none */
    sandbox = hutch_e2b_sandbox_in_header(x);
    if (hutch_exchange_is_draining(x))
        hutch_exchange_refuse(x, GATEWAY_SHUTTING_DOWN, "the server is shutting down");
    else if (!sandbox || (sandbox->session->owner && sandbox->session->owner->is_retired))
        hutch_exchange_refuse(x, GATEWAY_NOT_FOUND, NOT_FOUND);
    else if (!is_path(x, "/contexts") && !has_token(x, sandbox) && /* clients send it none: the id is enough there */
             !(is_path(x, "/files") && hutch_e2b_signature_is_good(x, sandbox)))
        hutch_exchange_refuse(x, GATEWAY_UNAUTHORIZED,
                              "this request has neither the access token of the sandbox nor a signature made with it");
    else
        x->token = sandbox->session->owner;
}

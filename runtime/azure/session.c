#include "runtime/azure/session.h"

#include "runtime/gateway/exchange.h"
#include "runtime/gateway/session_api.h"
#include "runtime/gateway/sessions.h"
#include "sandbox/fd.h"

#include <string.h>

#define MIN_IDENTIFIER 4
#define MAX_IDENTIFIER 128
#define MAX_PROCESSES 16

/* ---- what a request names ---- */

bool hutch_azure_read_version(struct exchange *x, enum azure_shape *ret)
{
    static const struct { const char *name; enum azure_shape shape; } versions[] = {
        { "2024-02-02-preview", AZURE_PROPERTIES }, { "2024-09-01", AZURE_STRING },
        { "2024-10-02-preview", AZURE_STRING },     { "2025-02-02-preview", AZURE_NATIVE },
        { "2025-10-02-preview", AZURE_NATIVE },
    };
    struct hutch_err ignored;
    auto_free char *name = hutch_exchange_query(x, "api-version", &ignored);

    for (size_t i = 0; name && i < ARRAY_SIZE(versions); i++) {
        if (strcmp(versions[i].name, name) == 0) {
            *ret = versions[i].shape;
            return true;
        }
    }
    hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "the parameter 'api-version' is not one that is known here");
    return false;
}

static bool is_identifier(const char *text)
{
    size_t len = strlen(text);

    for (size_t i = 0; i < len; i++)
        if (text[i] < ' ' || text[i] > '~')
            return false;
    return len >= MIN_IDENTIFIER && len <= MAX_IDENTIFIER;
}

/* ---- its state ---- */

static void free_state(void *state)
{
    struct azure_session *s = state;
    struct azure_execution *e;

    while ((e = TAILQ_FIRST(&s->list))) {
        TAILQ_REMOVE(&s->list, e, in_list);
        hutch_text_done(&e->out);
        hutch_text_done(&e->err);
        hutch_text_done(&e->result);
        free(e);
    }
    free(s);
}

static struct gateway_session *make(struct exchange *x, const char *identifier)
{
    struct azure_session *state = calloc(1, sizeof(*state));
    char *name = strdup(identifier);
    struct hutch_session_options options;
    struct gateway_session *session = NULL;

    hutch_session_options_init(&options);
    options.max_processes = MAX_PROCESSES;
    if (state && name)
        session = hutch_session_api_begin(x, &options);
    else
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the session");
    if (!session) {
        free(state);
        free(name);
        return NULL;
    }
    TAILQ_INIT(&state->list);
    session->name = name;
    session->own = state;
    session->free_own = free_state;
    return session;
}

struct gateway_session *hutch_azure_find(struct exchange *x, bool makes)
{
    struct hutch_err ignored;
    auto_free char *identifier = hutch_exchange_query(x, "identifier", &ignored);
    struct gateway_session *session;
    enum azure_shape shape;

    if (!hutch_azure_read_version(x, &shape))
        return NULL;
    if (!identifier || !is_identifier(identifier)) {
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "the parameter 'identifier' is to be %d to %d printable "
                              "characters", MIN_IDENTIFIER, MAX_IDENTIFIER);
        return NULL;
    }
    session = hutch_session_api_find_name(x, identifier);
    if (session && session->free_own != free_state) /* another format's */
        hutch_exchange_refuse(x, GATEWAY_NOT_FOUND, "there is no such session");
    else if (session)
        hutch_gateway_sessions_touch(session);
    else if (makes)
        session = make(x, identifier);
    else
        hutch_exchange_refuse(x, GATEWAY_NOT_FOUND, "there is no such session");
    return x->status ? NULL : session;
}

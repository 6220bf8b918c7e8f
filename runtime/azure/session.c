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

/* ---- its files ---- */

/* What waits for a sandbox, by a cell that does nothing. */
struct azure_wait {
    struct gateway_session *session;
    uint64_t cell;
    void (*go)(struct exchange *x, struct gateway_session *session);
    struct text_buffer body; /* the exchange's, which would be gone by then */
    bool is_left; /* nobody wants it any more */
};

static void free_wait(struct exchange *x)
{
    struct azure_wait *wait = x->work;

    hutch_text_done(&wait->body);
}

/* The body is not kept until the cell has ended, which may be its time limit. */
static void on_gone(struct exchange *x)
{
    struct azure_wait *wait = x->work;

    wait->is_left = true;
    hutch_exchange_let_go(x, wait->body.len);
    hutch_text_done(&wait->body);
    hutch_session_cancel_cell(hutch_exchange_engine(x), wait->session->number, wait->cell);
}

static void on_sandbox(void *user, uint64_t number, const struct hutch_cell_result *result)
{
    struct exchange *x = user;
    struct azure_wait *wait = x->work;

    (void)number;
    if (wait->is_left) { /* the cell may have ended well all the same; and the query is gone with the client */
        hutch_exchange_refuse(x, GATEWAY_SHUTTING_DOWN, "the server is shutting down");
        return;
    }
    x->body = wait->body;
    wait->body = (struct text_buffer)TEXT_BUFFER_INIT;
    if (result->verdict == HUTCH_OK)
        wait->go(x, wait->session);
    else
        hutch_exchange_refuse(x, hutch_session_api_error(result), "the session has no sandbox: %s", result->message);
}

void hutch_azure_with_files(struct exchange *x, struct gateway_session *session,
                            void (*go)(struct exchange *x, struct gateway_session *session))
{
    struct hutch_session_info info = { .size = sizeof(info) };
    struct azure_wait *wait;
    struct hutch_cell cell;
    struct hutch_error error;

    if (hutch_session_get_info(hutch_exchange_engine(x), session->number, &info, NULL, NULL) == 0 &&
        info.state != HUTCH_SESSION_OPENING && info.state != HUTCH_SESSION_LOST) {
        go(x, session);
        return;
    }
    wait = x->work = calloc(1, sizeof(*wait));
    if (!wait) {
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the request");
        return;
    }
    *wait = (struct azure_wait){ .session = session, .go = go, .body = x->body };
    x->body = (struct text_buffer)TEXT_BUFFER_INIT;
    x->on_free = free_wait;
    hutch_cell_init(&cell);
    cell.code = "pass";
    cell.silent = 1;
    cell.on_result = on_sandbox;
    cell.user = x;
    cell.ret_id = &wait->cell;
    hutch_exchange_wait(x, on_gone);
    if (hutch_session_execute(hutch_exchange_engine(x), session->number, &cell, &error) < 0)
        hutch_exchange_refuse_error(x, &error, GATEWAY_QUEUE_FULL, GATEWAY_NOT_FOUND);
}

#include "runtime/gateway/sessions.h"

#include "runtime/gateway/token.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"

#include <openssl/crypto.h>
#include <string.h>

struct gateway_session *hutch_gateway_sessions_add(struct sessions *all, struct token *owner, struct hutch_err *err)
{
    struct gateway_session *session = calloc(1, sizeof(*session));

    if (!session) {
        hutch_err_set(err, ENOMEM, "open a session");
        return NULL;
    }
    if (hutch_place_make_id(&all->place, session->id, err) < 0) {
        free(session);
        return NULL;
    }
    session->sessions = all;
    session->owner = owner;
    session->created = session->last_used = hutch_clock_unix();
    TAILQ_INIT(&session->processes);
    LIST_INSERT_HEAD(&all->list, session, in_list);
    all->n++;
    return session;
}

int hutch_gateway_sessions_name(struct gateway_session *session, const char *id, struct hutch_err *err)
{
    const struct gateway_session *other;

    LIST_FOREACH(other, &session->sessions->list, in_list)
        if (CRYPTO_memcmp(other->id, id, ID_LEN) == 0)
            return hutch_err_say(err, EEXIST, "the name for the session is taken");
    memcpy(session->id, id, ID_LEN);
    return 0;
}

void hutch_gateway_sessions_remove(struct gateway_session *session)
{
    LIST_REMOVE(session, in_list);
    session->sessions->n--;
    hutch_gateway_processes_done(session);
    if (session->own)
        session->free_own(session->own);
    free(session->name);
    free(session);
}

void hutch_gateway_sessions_touch(struct gateway_session *session)
{
    session->last_used = hutch_clock_unix();
}

void hutch_gateway_sessions_begin(struct gateway_session *session)
{
    session->n_waiting++;
    hutch_gateway_sessions_touch(session);
}

void hutch_gateway_sessions_end(struct gateway_session *session)
{
    session->n_waiting--;
    hutch_gateway_sessions_touch(session);
}

void hutch_gateway_sessions_done(struct sessions *all)
{
    struct gateway_session *session;

    while ((session = LIST_FIRST(&all->list)))
        hutch_gateway_sessions_remove(session);
}

static struct gateway_session *find(const struct sessions *all, const char *id, const struct token *owner, bool of_any)
{
    char padded[ID_LEN + 1] = "";
    struct gateway_session *session, *found = NULL;

    if (strlen(id) == ID_LEN)
        memcpy(padded, id, ID_LEN);
    LIST_FOREACH(session, &all->list, in_list) /* all of them, wherever it is */
        if (CRYPTO_memcmp(session->id, padded, ID_LEN) == 0 && (of_any || session->owner == owner) &&
            !session->is_closing)
            found = session;
    return found;
}

struct gateway_session *hutch_gateway_sessions_find(const struct sessions *all, const char *id,
                                                    const struct token *owner)
{
    return find(all, id, owner, false);
}

struct gateway_session *hutch_gateway_sessions_find_any(const struct sessions *all, const char *id)
{
    return find(all, id, NULL, true);
}

struct gateway_session *hutch_gateway_sessions_find_name(const struct sessions *all, const char *name,
                                                         const struct token *owner)
{
    struct gateway_session *session;

    LIST_FOREACH(session, &all->list, in_list)
        if (session->name && session->owner == owner && !session->is_closing && strcmp(session->name, name) == 0)
            return session;
    return NULL;
}

unsigned hutch_gateway_sessions_count(const struct sessions *all, const struct token *owner)
{
    const struct gateway_session *session;
    unsigned n = 0;

    LIST_FOREACH(session, &all->list, in_list)
        n += session->owner == owner;
    return n + (owner ? owner->n_sessions : 0);
}

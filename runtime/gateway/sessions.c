#include "runtime/gateway/sessions.h"

#include "sandbox/fd.h"

#include <openssl/crypto.h>
#include <string.h>
#include <time.h>

static double now_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

struct gateway_session *hutch_gateway_sessions_add(struct sessions *all, const struct token *owner,
                                                   struct hutch_err *err)
{
    struct gateway_session *session = calloc(1, sizeof(*session));

    if (!session) {
        hutch_err_set(err, ENOMEM, "open a session");
        return NULL;
    }
    if (hutch_id_make(session->id, err) < 0) {
        free(session);
        return NULL;
    }
    session->sessions = all;
    session->owner = owner;
    session->created = session->last_used = now_seconds();
    LIST_INSERT_HEAD(&all->list, session, in_list);
    all->n++;
    return session;
}

void hutch_gateway_sessions_remove(struct gateway_session *session)
{
    LIST_REMOVE(session, in_list);
    session->sessions->n--;
    if (session->free_state)
        session->free_state(session->state);
    free(session->name);
    free(session);
}

void hutch_gateway_sessions_touch(struct gateway_session *session)
{
    session->last_used = now_seconds();
}

void hutch_gateway_sessions_done(struct sessions *all)
{
    struct gateway_session *session;

    while ((session = LIST_FIRST(&all->list)))
        hutch_gateway_sessions_remove(session);
}

struct gateway_session *hutch_gateway_sessions_find(const struct sessions *all, const char *id,
                                                    const struct token *owner)
{
    char padded[ID_LEN + 1] = "";
    struct gateway_session *session, *found = NULL;

    if (strlen(id) == ID_LEN)
        memcpy(padded, id, ID_LEN);
    LIST_FOREACH(session, &all->list, in_list) /* all of them, wherever it is */
        if (CRYPTO_memcmp(session->id, padded, ID_LEN) == 0 && session->owner == owner && !session->is_closing)
            found = session;
    return found;
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
    return n;
}

/* sessions.h - the open sessions under the names that clients know, and whose each is. */
#ifndef HUTCH_GATEWAY_SESSIONS_H
#define HUTCH_GATEWAY_SESSIONS_H

#include "runtime/gateway/place.h"
#include "runtime/gateway/processes.h"
#include "runtime/text/ids.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct exchange;
struct format;
struct token;
struct sessions;

struct gateway_session {
    LIST_ENTRY(gateway_session) in_list;
    struct sessions *sessions;
    char id[ID_LEN + 1];
    uint64_t number;           /* the engine's */
    struct token *owner;       /* who opened it; NULL where nobody has to say */
    double created, last_used; /* seconds since 1970 */
    uint64_t idle_ms, lifetime_ms;
    bool is_closing;           /* nobody finds it any more */
    bool has_files;            /* they are known to be there (await_files.h) */
    unsigned n_waiting;        /* cells and orders that are not answered */
    uint64_t data_bytes;       /* the limit of its files; HUTCH_NO_LIMIT: none */
    uint64_t n_uploaded;       /* bytes since the last cell, whose end counts what lies there */
    struct gateway_process_list processes;
    struct exchange *holder;   /* whose stream it lives as long as; NULL: it has none */
    const struct format *format; /* that opened it; NULL: the native one */
    void *own;                 /* that format's; NULL: nothing */
    void (*free_own)(void *own);
    char *name;                /* owned; by which a format's clients know it; NULL: only by its id */
};
LIST_HEAD(session_list, gateway_session);

struct sessions {
    struct session_list list;
    unsigned n;
    struct place place; /* of the worker whose they are */
};

/* With a name of its own, and not yet in the engine. NULL on failure. */
struct gateway_session *hutch_gateway_sessions_add(struct sessions *all, struct token *owner, struct hutch_err *err);
/* Another name for one that nobody knows yet. -1: it is another session's, whoever owns that. */
int hutch_gateway_sessions_name(struct gateway_session *session, const char *id, struct hutch_err *err);
void hutch_gateway_sessions_remove(struct gateway_session *session);
/* A cell or order of it is handed in; is answered. */
void hutch_gateway_sessions_begin(struct gateway_session *session);
void hutch_gateway_sessions_end(struct gateway_session *session);
/* It is used now. */
void hutch_gateway_sessions_touch(struct gateway_session *session);
void hutch_gateway_sessions_done(struct sessions *all);

/* That of @owner with this name, else NULL: another one's, one that has ended and one that never was take the same time
 * and get the same answer. */
struct gateway_session *hutch_gateway_sessions_find(const struct sessions *all, const char *id,
                                                    const struct token *owner);
/* The same for a format whose ids are enough: whoever it is of. */
struct gateway_session *hutch_gateway_sessions_find_any(const struct sessions *all, const char *id);
/* That of @owner which a format has called @name, else NULL. */
struct gateway_session *hutch_gateway_sessions_find_name(const struct sessions *all, const char *name,
                                                         const struct token *owner);
/* How many @owner has. */
unsigned hutch_gateway_sessions_count(const struct sessions *all, const struct token *owner);

#endif

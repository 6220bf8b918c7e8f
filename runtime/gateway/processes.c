#include "runtime/gateway/processes.h"

#include "runtime/gateway/held.h"
#include "runtime/gateway/server_priv.h"
#include "sandbox/fd.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* ---- life ---- */

static void free_process(struct gateway_process *p)
{
    TAILQ_REMOVE(&p->session->processes, p, in_list);
    hutch_held_remove(p->server, p->token, hutch_output_tail_size(&p->tail));
    hutch_output_tail_done(&p->tail);
    free(p->why);
    free(p);
}

void hutch_gateway_processes_done(struct gateway_session *session)
{
    struct gateway_process *p;

    while ((p = TAILQ_FIRST(&session->processes)))
        free_process(p);
}

struct gateway_process *hutch_gateway_processes_find(const struct gateway_session *session, uint64_t number)
{
    struct gateway_process *p;

    TAILQ_FOREACH(p, &session->processes, in_list)
        if (p->number == number)
            return p;
    return NULL;
}

/* ---- what is heard of it ---- */

static void keep_output(struct gateway_process *p, int stream, const char *data, size_t len)
{
    size_t before = hutch_output_tail_size(&p->tail);

    if (hutch_held_has_room(p->server, p->token, len))
        hutch_output_tail_add(&p->tail, stream, data, len);
    else
        p->tail.n_dropped += len;
    hutch_held_remove(p->server, p->token, before);
    hutch_held_add(p->server, p->token, hutch_output_tail_size(&p->tail));
}

static void on_output(void *user, uint64_t session, uint64_t process, int stream, const char *data, size_t len)
{
    struct gateway_process *p = user;

    (void)session;
    (void)process;
    if (p->listener)
        p->listener->on_output(p->owner, stream, data, len);
    else
        keep_output(p, stream, data, len);
}

static void wake_writers(struct gateway_process *p)
{
    struct process_writer waiting[ARRAY_SIZE(p->writers)];

    memcpy(waiting, p->writers, sizeof(waiting));
    memset(p->writers, 0, sizeof(p->writers)); /* each may wait again within its call */
    for (size_t i = 0; i < ARRAY_SIZE(waiting); i++)
        if (waiting[i].on_room)
            waiting[i].on_room(waiting[i].owner);
}

static void on_room(void *user, uint64_t session, uint64_t process)
{
    (void)session;
    (void)process;
    wake_writers(user);
}

/* Frees it. */
static void tell_end(struct gateway_process *p)
{
    const struct process_listener *listener = p->listener;

    p->listener = NULL;
    listener->on_end(p->owner, &p->end);
    free_process(p);
}

static void bound_ended(struct gateway_session *session)
{
    struct gateway_process *p, *oldest = NULL;
    unsigned n = 0;

    TAILQ_FOREACH(p, &session->processes, in_list)
        if (p->has_ended) {
            oldest = oldest ? oldest : p;
            n++;
        }
    if (n > PROCESSES_MAX_ENDED)
        free_process(oldest);
}

static void on_end(void *user, uint64_t session, uint64_t process, const struct hutch_process_end *end)
{
    struct gateway_process *p = user;

    (void)session;
    (void)process;
    p->end = *end;
    p->why = strdup(end->why);
    p->end.why = p->why ? p->why : "";
    p->has_ended = true;
    wake_writers(p); /* their next write says that there is no more of it */
    /* In the order of their ends: the oldest is the first. */
    TAILQ_REMOVE(&p->session->processes, p, in_list);
    TAILQ_INSERT_TAIL(&p->session->processes, p, in_list);
    if (p->listener)
        tell_end(p);
    else
        bound_ended(p->session);
}

struct gateway_process *hutch_gateway_processes_spawn(struct server *server, struct gateway_session *session,
                                                      struct hutch_process_options *options, bool ends_with_client,
                                                      struct token *token, struct hutch_error *error)
{
    struct gateway_process *p = calloc(1, sizeof(*p));

    if (!p) {
        *error = (struct hutch_error){ .code = ENOMEM };
        snprintf(error->message, sizeof(error->message), "the server has no memory for a process");
        return NULL;
    }
    p->session = session;
    p->server = server;
    p->token = token;
    p->ends_with_client = ends_with_client;
    p->tail = (struct output_tail)OUTPUT_TAIL_INIT;
    options->on_output = on_output;
    options->on_room = on_room;
    options->on_end = on_end;
    options->user = p;
    if (hutch_session_spawn(server->engine, session->number, options, &p->number, error) < 0) {
        free(p);
        return NULL;
    }
    TAILQ_INSERT_TAIL(&session->processes, p, in_list);
    hutch_gateway_sessions_touch(session);
    return p;
}

/* ---- who listens ---- */

static void replay(struct gateway_process *p)
{
    const struct process_listener *listener = p->listener;
    const void *owner = p->owner;
    size_t before = hutch_output_tail_size(&p->tail), len;
    uint64_t n_dropped = p->tail.n_dropped;
    const char *data;
    int stream;

    p->tail.n_dropped = 0;
    if (n_dropped)
        listener->on_dropped(p->owner, n_dropped);
    /* It may detach within each call. */
    while (p->listener == listener && p->owner == owner && hutch_output_tail_first(&p->tail, &stream, &data, &len)) {
        listener->on_output(p->owner, stream, data, len);
        hutch_output_tail_pop(&p->tail);
    }
    hutch_held_remove(p->server, p->token, before);
    hutch_held_add(p->server, p->token, hutch_output_tail_size(&p->tail));
}

void hutch_gateway_process_attach(struct gateway_process *p, const struct process_listener *listener, void *owner)
{
    const struct process_listener *other = p->listener;
    void *other_owner = p->owner;

    p->listener = listener;
    p->owner = owner;
    if (other) {
        hutch_gateway_process_hold(p, false); /* the other one's back-pressure */
        other->on_replaced(other_owner);
    }
    replay(p);
    if (p->has_ended && p->listener == listener && p->owner == owner)
        tell_end(p);
}

void hutch_gateway_process_hold(struct gateway_process *p, bool is_held)
{
    struct hutch_error ignored;

    if (!p->has_ended)
        hutch_process_hold(p->server->engine, p->session->number, p->number, is_held, &ignored);
}

void hutch_gateway_process_detach(struct gateway_process *p, const void *owner)
{
    struct hutch_error ignored;

    if (!p->listener || p->owner != owner)
        return;
    p->listener = NULL;
    hutch_gateway_process_hold(p, false);
    if (p->ends_with_client && !p->has_ended)
        hutch_process_signal(p->server->engine, p->session->number, p->number, SIGKILL, &ignored);
}

/* ---- its input ---- */

ssize_t hutch_gateway_process_write(struct gateway_process *p, enum process_writer_kind kind, const char *data,
                                    size_t len, const struct process_writer *who, struct hutch_error *error)
{
    struct process_writer *writer = &p->writers[kind];
    int n;

    if (p->has_ended) {
        error->code = EPIPE;
        snprintf(error->message, sizeof(error->message), "the process has ended");
        return -1;
    }
    if (writer->on_room) {
        error->code = EBUSY;
        snprintf(error->message, sizeof(error->message), "another one waits already to write to the process");
        return -1;
    }
    n = hutch_process_write(p->server->engine, p->session->number, p->number, data, len, error);
    if (n >= 0)
        return n;
    if (error->code != EAGAIN)
        return -1;
    *writer = *who;
    return 0;
}

void hutch_gateway_process_forget_writer(struct gateway_process *p, const void *owner)
{
    for (size_t i = 0; i < ARRAY_SIZE(p->writers); i++)
        if (p->writers[i].owner == owner)
            p->writers[i] = (struct process_writer){ .on_room = NULL };
}

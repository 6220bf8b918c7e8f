/* processes.h - the processes of the open sessions, each with the one client that listens to it, if there is one.
 *
 *     spawn -> [ attach -> output -> detach ]* -> end, told to who listens, or kept for who attaches next
 *
 * A client that leaves does not end its process. While nobody listens the last of its output is kept, and the older is
 * dropped; so it does not stand still. A client that listens and reads nothing holds it. */
#ifndef HUTCH_GATEWAY_PROCESSES_H
#define HUTCH_GATEWAY_PROCESSES_H

#include "runtime/gateway/output_tail.h"
#include "runtime/hutch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

struct gateway_session;
struct server;
struct token;

/* Those of a session that have ended and whose end nobody has heard; the oldest goes. */
#define PROCESSES_MAX_ENDED 16

/* What is told to who listens. */
struct process_listener {
    void (*on_dropped)(void *owner, uint64_t bytes); /* of output, before what comes now */
    void (*on_output)(void *owner, int stream, const char *data, size_t len);
    void (*on_end)(void *owner, const struct hutch_process_end *end); /* nothing more comes, and it need not detach */
    void (*on_replaced)(void *owner); /* another one listens from here on; as above */
};

enum process_writer_kind { PROCESS_WRITER_REQUEST, PROCESS_WRITER_WEBSOCKET, PROCESS_WRITER_COUNT };

/* Who waits until a process's stdin takes more. */
struct process_writer {
    void (*on_room)(void *owner); /* it takes more, or never again; once */
    void *owner;
};

struct gateway_process {
    TAILQ_ENTRY(gateway_process) in_list;
    struct gateway_session *session;
    struct server *server;
    struct token *token;       /* whose memory it takes */
    uint64_t number;           /* in its session */
    bool ends_with_client;
    bool has_ended;
    struct hutch_process_end end;
    char *why;                 /* owned; end.why */
    struct output_tail tail;
    const struct process_listener *listener; /* NULL: nobody listens */
    void *owner;
    struct process_writer writers[PROCESS_WRITER_COUNT];
};
TAILQ_HEAD(gateway_process_list, gateway_process);

/* NULL: @error says why. */
struct gateway_process *hutch_gateway_processes_spawn(struct server *server, struct gateway_session *session,
                                                      struct hutch_process_options *options, bool ends_with_client,
                                                      struct token *token, struct hutch_error *error);
/* NULL: there is none with this number, or no more. */
struct gateway_process *hutch_gateway_processes_find(const struct gateway_session *session, uint64_t number);
/* The session is freed. */
void hutch_gateway_processes_done(struct gateway_session *session);

/* Tells what there is, and then all that comes. It may have ended already: then it is freed here. */
void hutch_gateway_process_attach(struct gateway_process *p, const struct process_listener *listener, void *owner);
/* Fine when @owner does not listen to it. */
void hutch_gateway_process_detach(struct gateway_process *p, const void *owner);
/* Its output waits, or comes again. */
void hutch_gateway_process_hold(struct gateway_process *p, bool is_held);

/* How many bytes its stdin has taken; 0: @who is told when there is room. -1 with *error. One of each kind can wait at
 * a time: a further one is refused with EBUSY. */
ssize_t hutch_gateway_process_write(struct gateway_process *p, enum process_writer_kind kind, const char *data,
                                    size_t len, const struct process_writer *who, struct hutch_error *error);
void hutch_gateway_process_forget_writer(struct gateway_process *p, const void *owner);

#endif

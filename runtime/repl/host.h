/* host.h - where the session of a prompt lives: in an engine of the prompt's own (host_engine.c), or with a server of
 * the same user (host_server.c). There is one session at a time. What is not said here is as in hutch.h: one answer to
 * each cell, question and order, from within dispatch() or the call itself. */
#ifndef HUTCH_REPL_HOST_H
#define HUTCH_REPL_HOST_H

#include "runtime/hutch.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stdint.h>

enum host_order { HOST_CHECKPOINT, HOST_FORK, HOST_ROLLBACK, HOST_SWITCH, HOST_DROP };

/* A file of the session that was opened for reading. */
struct host_file {
    int fd;          /* owned; at its begin */
    uint64_t size;   /* that it had then */
    bool is_counted; /* fewer bytes than that are an error, and not a file that has become shorter */
};
#define HOST_FILE_INIT { .fd = -1 }

struct host;

struct host_kind {
    void (*free)(struct host *host);
    /* What poll(2) waits for. @is_behind: the terminal is, so as little as can be is to come; -1: nothing does. */
    int (*fd)(const struct host *host, bool is_behind);
    bool (*is_ready)(const struct host *host); /* something has come that dispatch() has not told yet */
    int (*dispatch)(struct host *host, bool is_behind, struct hutch_err *err);
    int (*open)(struct host *host, const struct hutch_session_options *options, struct hutch_err *err);
    bool (*close)(struct host *host);
    int (*execute)(struct host *host, const struct hutch_cell *cell, struct hutch_err *err);
    int (*ask)(struct host *host, const struct hutch_question *question, hutch_on_reply on_reply, void *user,
               struct hutch_err *err);
    int (*order)(struct host *host, enum host_order order, uint64_t which, hutch_on_reply on_reply, void *user,
                 struct hutch_err *err);
    void (*reply)(struct host *host, const char *text);
    void (*interrupt)(struct host *host);
    int (*restart)(struct host *host, struct hutch_err *err);
    bool (*is_lost)(struct host *host);
    char *(*files)(struct host *host, struct hutch_err *err);
    int (*open_file)(struct host *host, const char *name, struct host_file *ret, struct hutch_err *err);
    int (*put_file)(struct host *host, const char *name, int from_fd, uint64_t size, bool (*is_called_off)(void *user),
                    void *user, uint64_t *ret_bytes, struct hutch_err *err);
};

/* The first member of each. */
struct host {
    const struct host_kind *kind;
};

/* Takes @engine. @max_bytes: of a file that is put into its sessions. NULL: ENOMEM, and it is the caller's still. */
struct host *hutch_host_of_engine(struct hutch_engine *engine, uint64_t max_bytes, struct hutch_err *err);

/* How a server is asked. The texts live as long as the host. */
struct host_server_way {
    int (*connect)(int *ret_fd, struct hutch_err *err); /* to a socket that blocks */
    const char *open_head; /* lines of the request that opens a session, each after "\r\n" */
    const char *open_body; /* … its JSON */
};

/* Has opened a session already, which the first open() finds. NULL: the server cannot be used, or does not
 * make sandboxes as this command would. */
struct host *hutch_host_of_server(const struct host_server_way *way, struct hutch_err *err);

/* With the session that it has. */
static inline void hutch_host_free(struct host *host)
{
    if (host)
        host->kind->free(host);
}

#endif

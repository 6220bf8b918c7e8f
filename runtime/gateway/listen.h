/* listen.h - the sockets on which the server is asked: unix sockets, TCP, and those that a service manager hands over.
 *
 * Source: unix(7), sd_listen_fds(3). */
#ifndef HUTCH_GATEWAY_LISTEN_H
#define HUTCH_GATEWAY_LISTEN_H

#include "runtime/gateway/poller.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define LISTEN_MAX 16
#define LISTEN_NAME_SIZE 160

struct listener {
    int fd;                      /* owned */
    bool is_tcp;
    char name[LISTEN_NAME_SIZE]; /* "unix:/run/…", "127.0.0.1:8080", with the port that the kernel chose */
    char *path;                  /* owned; the socket's file, removed at the end; NULL: not ours to remove */
    dev_t device;                /* of that file, so that another server's is not removed */
    ino_t inode;
    struct watch watch;
    void *owner;                 /* that accepts from it */
};

struct listeners {
    struct listener rows[LISTEN_MAX];
    size_t n;
};

/* "unix:PATH", "HOST:PORT", "[ADDRESS]:PORT"; port 0: one that is free. A unix socket has mode 0600; one that nobody
 * listens on any more is replaced. Errors: what is no such address; EADDRINUSE, with what to do. */
int hutch_listeners_add(struct listeners *l, const char *address, struct hutch_err *err);
/* $XDG_RUNTIME_DIR/hutch/hutch.sock, whose directory is made. */
int hutch_listeners_add_default(struct listeners *l, struct hutch_err *err);
/* What $LISTEN_PID and $LISTEN_FDS say. The variables are taken out of the environment, so that no child has them.
 * *ret_n: how many there were. */
int hutch_listeners_add_inherited(struct listeners *l, size_t *ret_n, struct hutch_err *err);
/* All that a server listens on: @addresses, which ends with NULL or is NULL, and what was handed over; else the
 * default. */
int hutch_listeners_open(struct listeners *l, const char *const *addresses, struct hutch_err *err);
/* Whether everybody is kept out who may not come in: TCP @is_guarded. */
int hutch_listeners_may_open(const struct listeners *l, bool is_guarded, struct hutch_err *err);
/* The same of @addresses that nobody has opened yet. */
int hutch_listeners_may_name(const char *const *addresses, bool is_guarded, struct hutch_err *err);
/* Closes all of them and removes the files of unix sockets. */
void hutch_listeners_done(struct listeners *l);
/* Closes them in a child of the process that has them; the files stay. */
void hutch_listeners_forget(struct listeners *l);

#endif

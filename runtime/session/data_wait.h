/* data_wait.h - those who wait for a session's files to be there, which come with its first sandbox. */
#ifndef HUTCH_SESSION_DATA_WAIT_H
#define HUTCH_SESSION_DATA_WAIT_H

#include "runtime/hutch.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <sys/queue.h>

#define DATA_WAITS_MAX 64 /* of one session */

struct session;

struct data_wait {
    TAILQ_ENTRY(data_wait) link;
    hutch_on_reply on_reply;
    void *user;
    double t_begun;
    char why[512]; /* there will be no sandbox; "": there may be */
};
TAILQ_HEAD(data_wait_list, data_wait);

/* Of one session. */
struct data_waits {
    struct data_wait_list list;
    unsigned n;
};

void hutch_data_waits_init(struct data_waits *waits);
/* The session is freed: nothing is told. */
void hutch_data_waits_done(struct data_waits *waits);
/* Errors: EAGAIN, ENOMEM. */
int hutch_data_waits_add(struct session *session, hutch_on_reply on_reply, void *user, struct hutch_err *err);
/* There will be no sandbox for those that wait. */
void hutch_data_waits_refuse(struct session *session, const char *why);
/* Calls back, and frees those that were answered. */
void hutch_data_waits_work(struct session *session);
/* Any waits for a sandbox. */
bool hutch_data_waits_any(const struct session *session);

#endif

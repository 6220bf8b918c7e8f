/* path.h - orders about paths inside a session's sandbox: each from its caller to its answer. sandbox/path_wire.h says
 * who does them.
 *
 * An order is answered once, by hutch_paths_work(), and its answer is inside's word. A descriptor that comes with it is
 * used only where it is of a regular file on a file system that keeps files. */
#ifndef HUTCH_SESSION_PATH_H
#define HUTCH_SESSION_PATH_H

#include "runtime/engine/loop.h"
#include "runtime/hutch.h"
#include "runtime/session/path_answer.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define PATHS_AT_WORK 8 /* of one session: each is a process of its sandbox */
#define PATHS_MAX 64    /* with those that wait */

struct session;

enum path_state { PATH_WAITING, PATH_AT_WORK, PATH_OVER };

struct path_task {
    TAILQ_ENTRY(path_task) link;
    struct session *session;
    enum path_state state;
    struct path_order *order; /* owned; with the paths behind it, order_len bytes in all */
    size_t order_len;
    hutch_on_path on_reply;
    void *user;
    uint64_t timeout_ms;
    int control_fd;           /* owned; -1: closed */
    struct watch control;
    int file_fd;              /* owned; -1: none */
    struct path_answer answer;
    struct deadline clock;    /* of the answer */
    double put_off_at;        /* that was due then, in a pause of the session; 0: it was not */
    bool has_left;            /* it closed its socket without an answer */
    double t_begun, t_over;
    int code;                 /* PATH_OVER: 0: it was done, */
    char why[512];            /* … else why not */
    struct doomed doomed;
};
TAILQ_HEAD(path_list, path_task);

/* Of one session. */
struct paths {
    struct path_list list;
    unsigned n, n_at_work;
    bool is_allowed; /* there is a spawner for them */
};

void hutch_paths_init(struct paths *paths);
/* The session is freed: nothing is told. */
void hutch_paths_done(struct paths *paths);
/* One that waits; @new_path NULL: it has one path. It begins when it can. Errors: EINVAL, EAGAIN, ENOMEM. */
int hutch_paths_add(struct session *session, const struct path_order *order, const char *path, const char *new_path,
                    const struct hutch_path_options *options, struct hutch_err *err);
/* Those that wait begin, where there is a spawner to take orders. */
void hutch_paths_begin(struct session *session);
/* They were begun in vain, and wait for another sandbox. */
void hutch_paths_reset(struct session *session);
/* Their sandbox is over; those that wait go on waiting. */
void hutch_paths_lose(struct session *session, const char *why);
/* There will be no sandbox for those that wait. */
void hutch_paths_refuse(struct session *session, const char *why);
/* Calls back, and frees those that are over. */
void hutch_paths_work(struct session *session);
bool hutch_paths_wait(const struct session *session);
/* The session has stood still for so long. */
void hutch_paths_shift_clocks(struct session *session, double by_ms);

#endif

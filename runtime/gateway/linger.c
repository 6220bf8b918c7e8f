#include "runtime/gateway/linger.h"

#include "sandbox/clock.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>

#define PIECE (64u << 10)
#define PIECES 8 /* in one turn: others go on */

struct lingerer {
    TAILQ_ENTRY(lingerer) in_rows;
    struct lingering *all;
    struct watch watch;
    int fd; /* owned */
    double deadline_ms;
};

void hutch_linger_init(struct lingering *l, struct poller *poller)
{
    *l = (struct lingering){ .poller = poller };
    TAILQ_INIT(&l->rows);
}

static void let_go(struct lingerer *row)
{
    struct lingering *l = row->all;

    hutch_poller_remove(l->poller, &row->watch);
    hutch_fd_closep(&row->fd);
    TAILQ_REMOVE(&l->rows, row, in_rows);
    l->n--;
    free(row);
}

void hutch_linger_done(struct lingering *l)
{
    struct lingerer *row;

    while ((row = TAILQ_FIRST(&l->rows)))
        let_go(row);
}

static void on_input(void *owner, uint32_t events)
{
    struct lingerer *row = owner;
    char piece[PIECE];
    ssize_t n = 1;

    (void)events;
    for (int i = 0; i < PIECES && n > 0; i++)
        n = recv(row->fd, piece, sizeof(piece), MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        let_go(row);
}

void hutch_linger_take(struct lingering *l, int fd)
{
    struct lingerer *row = l->n < LINGER_MOST ? calloc(1, sizeof(*row)) : NULL;
    struct hutch_err err;

    if (!row)
        return;
    row->all = l;
    row->watch = (struct watch){ .fd = -1, .on_ready = on_input, .owner = row };
    row->deadline_ms = hutch_clock_ms() + LINGER_MS;
    row->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    TAILQ_INSERT_TAIL(&l->rows, row, in_rows);
    l->n++;
    if (row->fd < 0 || shutdown(row->fd, SHUT_WR) < 0 ||
        hutch_poller_add(l->poller, &row->watch, row->fd, EPOLLIN | EPOLLRDHUP, &err) < 0)
        let_go(row);
}

double hutch_linger_deadline(const struct lingering *l)
{
    const struct lingerer *first = TAILQ_FIRST(&l->rows);

    return first ? first->deadline_ms : -1;
}

void hutch_linger_expire(struct lingering *l, double now_ms)
{
    struct lingerer *row;

    while ((row = TAILQ_FIRST(&l->rows)) && row->deadline_ms <= now_ms)
        let_go(row);
}

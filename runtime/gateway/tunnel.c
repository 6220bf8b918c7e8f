#include "runtime/gateway/tunnel.h"

#include "runtime/gateway/exchange_mhd.h"
#include "runtime/gateway/inner.h"
#include "runtime/gateway/inner_answer.h"
#include "runtime/gateway/server_priv.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define BLOCK (32u << 10)

struct side {
    struct tunnel *tunnel;
    struct side *other;
    int fd;                 /* the client's is MHD's, the worker's is owned */
    struct watch watch;
    uint32_t watched;
    struct text_buffer in;  /* read here, and not yet sent to the other side */
    size_t n_sent;
    bool has_ended;         /* nothing more comes from here */
};

struct tunnel {
    struct exchange *x;
    struct MHD_UpgradeResponseHandle *upgrade; /* NULL: the client has not been answered */
    struct side client, worker;
    bool is_over;
};

static void end(struct tunnel *t)
{
    struct server *s = t->x->server;

    if (t->is_over)
        return;
    t->is_over = true;
    hutch_poller_remove(&s->poller, &t->client.watch);
    hutch_poller_remove(&s->poller, &t->worker.watch);
    t->x->is_pending = false;
    if (!t->upgrade)
        return;
    MHD_upgrade_action(t->upgrade, MHD_UPGRADE_ACTION_CLOSE);
    hutch_server_wake(s);
}

static size_t unsent(const struct side *side)
{
    return side->in.len - side->n_sent;
}

/* Not while what was read before waits: so much is in memory, and no more. */
static void watch_again(struct side *side)
{
    struct poller *poller = &side->tunnel->x->server->poller;
    uint32_t events = (unsent(side) || side->has_ended ? 0 : EPOLLIN) | (unsent(side->other) ? EPOLLOUT : 0);
    struct hutch_err ignored;
    int rc = 0;

    if (side->tunnel->is_over || events == side->watched)
        return;
    if (!events)
        hutch_poller_remove(poller, &side->watch);
    else if (!side->watched)
        rc = hutch_poller_add(poller, &side->watch, side->fd, events, &ignored);
    else
        rc = hutch_poller_change(poller, &side->watch, events, &ignored);
    side->watched = events;
    if (rc < 0)
        end(side->tunnel);
}

/* What was read at @side goes to the other one. False: that takes nothing any more. */
static bool pass(struct side *side)
{
    while (unsent(side)) {
        ssize_t n = send(side->other->fd, side->in.data + side->n_sent, unsent(side), MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return true;
        if (n <= 0)
            return false;
        side->n_sent += (size_t)n;
    }
    hutch_text_done(&side->in);
    side->n_sent = 0;
    if (side->has_ended)
        shutdown(side->other->fd, SHUT_WR);
    return true;
}

static bool receive(struct side *side)
{
    char buf[BLOCK];
    ssize_t n;

    if (unsent(side) || side->has_ended)
        return true;
    n = recv(side->fd, buf, sizeof(buf), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (n > 0)
        hutch_text_add(&side->in, buf, (size_t)n);
    else
        side->has_ended = true;
    return !side->in.is_broken && n >= 0 && pass(side);
}

static void on_ready(void *owner, uint32_t events)
{
    struct side *side = owner;
    struct tunnel *t = side->tunnel;
    bool is_well = true;

    if (events & EPOLLOUT)
        is_well = pass(side->other);
    if (is_well && events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        is_well = receive(side);
    if (!is_well || (t->worker.has_ended && !unsent(&t->worker))) {
        end(t);
        return;
    }
    watch_again(&t->client);
    watch_again(&t->worker);
}

static void on_gone(struct exchange *x)
{
    struct tunnel *t = x->tunnel;

    end(t);
}

/* MHD_UpgradeHandler. */
static void on_upgrade(void *cls, struct MHD_Connection *mhd, void *context, const char *early, size_t n_early,
                       MHD_socket fd, struct MHD_UpgradeResponseHandle *upgrade)
{
    struct tunnel *t = cls;
    struct exchange *x = t->x;

    (void)mhd;
    (void)context;
    t->upgrade = upgrade;
    t->client.fd = fd;
    hutch_exchange_wait(x, on_gone);
    hutch_connection_enter(&x->server->connections, x->connection, CONNECTION_BUSY); /* the other worker pings it */
    hutch_text_add(&t->client.in, early, n_early);
    if (t->client.in.is_broken || t->worker.in.is_broken) {
        end(t);
        return;
    }
    watch_again(&t->client);
    watch_again(&t->worker);
}

static void init_side(struct tunnel *t, struct side *side, struct side *other, int fd)
{
    *side = (struct side){ .tunnel = t, .other = other, .fd = fd,
                           .watch = { .fd = -1, .on_ready = on_ready, .owner = side } };
}

struct tunnel *hutch_tunnel_begin(struct exchange *x, struct inner *inner)
{
    struct tunnel *t = calloc(1, sizeof(*t));

    if (!t) {
        hutch_exchange_abort(x);
        return NULL;
    }
    t->x = x;
    x->tunnel = t;
    init_side(t, &t->client, &t->worker, -1);
    init_side(t, &t->worker, &t->client, hutch_inner_take(inner));
    hutch_text_add(&t->worker.in, inner->reader.body.data ? inner->reader.body.data : "", inner->reader.body.len);
    hutch_exchange_upgrade(x, on_upgrade, t);
    hutch_inner_answer_add_headers(x, &inner->reader);
    hutch_exchange_go_on(x); /* to be answered, and then to wait for either end */
    return t;
}

void hutch_tunnel_free(struct tunnel *t)
{
    if (!t)
        return;
    hutch_poller_remove(&t->x->server->poller, &t->client.watch);
    hutch_poller_remove(&t->x->server->poller, &t->worker.watch);
    hutch_fd_closep(&t->worker.fd);
    hutch_text_done(&t->client.in);
    hutch_text_done(&t->worker.in);
    free(t);
}

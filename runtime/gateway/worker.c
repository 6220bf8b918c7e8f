#include "runtime/gateway/worker.h"

#include "runtime/gateway/crew.h"
#include "runtime/gateway/server_priv.h"

#include <microhttpd.h>
#include <sys/socket.h>
#include <sys/un.h>

#define TURN_MESSAGES 64 /* before others have their turn */

/* MHD keeps an address with each connection, and gives it back when it tells of it: what the channel says of the
 * connection is in there. */
static void take_connection(struct server *s, enum channel_kind kind, int fd)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = { (char)kind, '\0' } };

    MHD_add_connection(s->daemon, fd, (struct sockaddr *)&address, sizeof(address)); /* closes it when it cannot */
    hutch_server_wake(s);
}

static void obey(struct server *s, const struct channel_message *message, int fd)
{
    switch (message->kind) {
    case CHANNEL_CLIENT:
    case CHANNEL_TCP_CLIENT:
    case CHANNEL_INNER:
    case CHANNEL_TCP_INNER:
        if (fd >= 0) /* else it was lost: no descriptor was left for it */
            take_connection(s, message->kind, fd);
        if (message->kind == CHANNEL_CLIENT || message->kind == CHANNEL_TCP_CLIENT)
            atomic_fetch_add(&s->crew->counts[s->place.index].taken, 1);
        break;
    case CHANNEL_READY:
        s->are_all_ready = true;
        break;
    case CHANNEL_RELOAD:
        hutch_server_reload(s);
        break;
    case CHANNEL_DRAIN:
        hutch_server_drain(s);
        break;
    default:
        break;
    }
}

static void on_channel(void *owner, uint32_t events)
{
    struct server *s = owner;
    struct channel_message message;
    int fd;

    (void)events;
    for (int i = 0; i < TURN_MESSAGES; i++) {
        if (hutch_channel_receive(&s->crew->workers[s->place.index], &message, &fd) == 0)
            return;
        obey(s, &message, fd);
    }
}

int hutch_worker_begin(struct server *s, struct hutch_err *err)
{
    s->channel_watch.on_ready = on_channel;
    s->channel_watch.owner = s;
    return hutch_poller_add(&s->poller, &s->channel_watch, s->crew->workers[s->place.index].in, EPOLLIN, err);
}

void hutch_worker_turn(struct server *s)
{
    atomic_fetch_add(&s->crew->counts[s->place.index].turns, 1);
}

void hutch_worker_describe(struct server *s, struct connection *c, const struct sockaddr *address)
{
    const struct sockaddr_un *given = (const struct sockaddr_un *)address;
    enum channel_kind kind = given ? (enum channel_kind)given->sun_path[0] : CHANNEL_TCP_INNER;

    c->is_tcp = kind == CHANNEL_TCP_CLIENT || kind == CHANNEL_TCP_INNER;
    c->is_inner = kind == CHANNEL_INNER || kind == CHANNEL_TCP_INNER;
    if (c->is_inner)
        s->connections.n_inner++;
    else
        atomic_fetch_add(&s->crew->counts[s->place.index].clients, 1);
}

void hutch_worker_forget(struct server *s, const struct connection *c)
{
    if (c->is_inner)
        s->connections.n_inner--;
    else
        atomic_fetch_sub(&s->crew->counts[s->place.index].clients, 1);
}

#include "runtime/gateway/connection.h"

#include "sandbox/clock.h"
#include "sandbox/fd.h"

#include <microhttpd.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

void hutch_connections_init(struct connections *all, uint64_t request_ms, uint64_t idle_ms,
                            void (*on_late)(void *owner, const struct connection *c), void *owner)
{
    *all = (struct connections){ .on_late = on_late, .owner = owner };
    for (int i = 0; i < CONNECTION_PHASE_COUNT; i++)
        TAILQ_INIT(&all->queues[i]);
    all->patience_ms[CONNECTION_HEADERS] = all->patience_ms[CONNECTION_BODY] = (double)request_ms;
    all->patience_ms[CONNECTION_IDLE] = (double)idle_ms;
    all->patience_ms[CONNECTION_UPGRADED] = (double)idle_ms / 2; /* a ping, and then an answer to it */
    all->patience_ms[CONNECTION_CLOSING] = CONNECTION_CLOSE_MS;
}

static void set_deadline(struct connections *all, struct connection *c)
{
    c->n_step = 0;
    c->deadline_ms = all->patience_ms[c->phase] > 0 ? hutch_clock_ms() + all->patience_ms[c->phase] : -1;
    TAILQ_INSERT_TAIL(&all->queues[c->phase], c, in_queue);
}

struct connection *hutch_connection_create(struct connections *all, int fd, bool is_tcp)
{
    struct connection *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->fd = fd;
    c->is_tcp = is_tcp;
    c->phase = CONNECTION_HEADERS;
    set_deadline(all, c);
    all->n++;
    return c;
}

void hutch_connection_free(struct connections *all, struct connection *c)
{
    if (!c)
        return;
    TAILQ_REMOVE(&all->queues[c->phase], c, in_queue);
    all->n--;
    free(c->uri);
    free(c);
}

void hutch_connection_enter(struct connections *all, struct connection *c, enum connection_phase phase)
{
    TAILQ_REMOVE(&all->queues[c->phase], c, in_queue);
    c->phase = phase;
    set_deadline(all, c);
}

void hutch_connection_advance(struct connections *all, struct connection *c, size_t len)
{
    c->n_step += len;
    if (c->phase == CONNECTION_BODY && c->n_step >= CONNECTION_BODY_STEP)
        hutch_connection_enter(all, c, CONNECTION_BODY);
}

double hutch_connections_deadline(const struct connections *all)
{
    double next = -1;

    for (int i = 0; i < CONNECTION_PHASE_COUNT; i++) {
        const struct connection *first = TAILQ_FIRST(&all->queues[i]);

        if (first && first->deadline_ms >= 0 && (next < 0 || first->deadline_ms < next))
            next = first->deadline_ms;
    }
    return next;
}

void hutch_connection_say_last(const struct connection *c, unsigned status, const char *type, const char *body,
                               size_t len)
{
    char head[256];
    int n = snprintf(head, sizeof(head),
                     "HTTP/1.1 %u %s\r\nContent-Type: %s\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n", status,
                     MHD_get_reason_phrase_for(status), type, len);

    if (n > 0 && (size_t)n < sizeof(head) && send(c->fd, head, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL) == n)
        (void)!send(c->fd, body, len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void hutch_connections_expire(struct connections *all, double now_ms)
{
    for (int i = 0; i < CONNECTION_PHASE_COUNT; i++) {
        struct connection *c;

        while ((c = TAILQ_FIRST(&all->queues[i])) && c->deadline_ms >= 0 && c->deadline_ms <= now_ms) {
            if (c->on_due) {
                hutch_connection_enter(all, c, c->phase);
                c->on_due(c->owner);
                continue;
            }
            if (c->phase != CONNECTION_IDLE) {
                all->on_late(all->owner, c);
                all->n_expired++;
            }
            shutdown(c->fd, SHUT_RDWR);
            hutch_connection_enter(all, c, CONNECTION_BUSY); /* until MHD closes it */
        }
    }
}

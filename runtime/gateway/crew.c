#include "runtime/gateway/crew.h"

#include "sandbox/fd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

int hutch_crew_open(struct crew *c, unsigned n, struct hutch_err *err)
{
    *c = (struct crew){ .n = n, .parent = CHANNEL_INIT };
    for (unsigned i = 0; i < n; i++)
        c->workers[i] = (struct channel)CHANNEL_INIT;
    c->counts = mmap(NULL, n * sizeof(*c->counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (c->counts == MAP_FAILED) {
        c->counts = NULL;
        return hutch_err_set(err, errno, "map what the workers share");
    }
    for (unsigned i = 0; i < n; i++)
        if (hutch_channel_open(&c->workers[i], err) < 0)
            return -1;
    return hutch_channel_open(&c->parent, err);
}

void hutch_crew_done(struct crew *c)
{
    for (unsigned i = 0; i < c->n; i++)
        hutch_channel_done(&c->workers[i]);
    hutch_channel_done(&c->parent);
    if (c->counts)
        munmap(c->counts, c->n * sizeof(*c->counts));
    *c = (struct crew){ .parent = CHANNEL_INIT };
}

void hutch_crew_keep(struct crew *c, unsigned index)
{
    hutch_fd_closep(&c->parent.in);
    for (unsigned i = 0; i < c->n; i++)
        if (i != index)
            hutch_fd_closep(&c->workers[i].in);
}

int hutch_crew_connect(const struct crew *c, unsigned to, bool is_tcp, struct hutch_err *err)
{
    struct channel_message message = { .kind = is_tcp ? CHANNEL_TCP_INNER : CHANNEL_INNER };
    int pair[2], rc;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return hutch_err_set(err, errno, "make a connection to worker %u", to);
    rc = hutch_channel_send(&c->workers[to], &message, pair[1]);
    if (rc < 0)
        hutch_err_set(err, errno, "hand a connection to worker %u", to);
    close(pair[1]);
    if (rc < 0) {
        close(pair[0]);
        return -1;
    }
    return pair[0];
}

unsigned hutch_crew_clients(const struct crew *c, unsigned index)
{
    struct crew_counts *counts = &c->counts[index];

    return atomic_load(&counts->clients) + (atomic_load(&counts->handed) - atomic_load(&counts->taken));
}

void hutch_crew_tell(const struct crew *c, unsigned from, enum channel_kind kind, const char *text)
{
    struct channel_message message = { .kind = kind, .from = from };

    snprintf(message.text, sizeof(message.text), "%s", text ? text : "");
    hutch_channel_send(&c->parent, &message, -1);
}

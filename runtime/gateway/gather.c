#include "runtime/gateway/gather.h"

#include "runtime/gateway/crew.h"
#include "runtime/gateway/inner.h"
#include "runtime/gateway/inner_answer.h"
#include "runtime/gateway/inner_request.h"
#include "runtime/gateway/server_priv.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_TEXT (32u << 20) /* of one worker */
#define HTTP_OK 200

struct part {
    struct gather *gather;
    struct inner inner;
    bool is_whole;
};

struct gather {
    struct exchange *x;
    merge_function *merge;
    unsigned n, n_waiting;
    struct part parts[];
};

static void close_all(struct gather *g)
{
    for (unsigned i = 0; i < g->n; i++)
        hutch_inner_done(&g->parts[i].inner);
}

/* The value of a header, the caller's to free; NULL: it is not there. */
static char *header_of(const struct http_reader *r, const char *wanted)
{
    const char *name, *value;
    size_t at = 0, name_len, value_len;

    while (hutch_http_reader_next_header(r, &at, &name, &name_len, &value, &value_len))
        if (name_len == strlen(wanted) && strncasecmp(name, wanted, name_len) == 0)
            return strndup(value, value_len);
    return NULL;
}

/* One worker's answer for all of them: they refuse alike what is wrong with a request. */
static void pass_on(struct exchange *x, const struct http_reader *r)
{
    hutch_inner_answer_begin(x, r);
    hutch_exchange_write_all(x, r->body.data ? r->body.data : "", r->body.len);
    hutch_exchange_end(x, true);
}

static void answer(struct gather *g)
{
    const char *texts[WORKERS_MAX];
    auto_free char *type = header_of(&g->parts[0].inner.reader, "Content-Type");
    size_t len = 0;
    char *text;

    for (unsigned i = 0; i < g->n; i++) {
        const struct http_reader *r = &g->parts[i].inner.reader;

        if (!g->parts[i].is_whole) {
            hutch_exchange_refuse(g->x, GATEWAY_OVERLOADED, "worker %u of the server's %u does not answer", i, g->n);
            return;
        }
        if (r->status != HTTP_OK) {
            pass_on(g->x, r);
            return;
        }
        texts[i] = r->body.data ? r->body.data : "";
    }
    text = g->merge(texts, g->n, &len);
    hutch_exchange_answer(g->x, HTTP_OK, type, text, len);
}

static void on_nothing(void *owner)
{
    (void)owner;
}

static void on_end(void *owner, bool is_whole)
{
    struct part *part = owner;
    struct gather *g = part->gather;

    part->is_whole = is_whole;
    if (--g->n_waiting == 0)
        answer(g);
}

/* The body stays in the reader. More than that is no list of ours. */
static void on_body(void *owner)
{
    struct part *part = owner;

    if (part->inner.reader.body.len <= MAX_TEXT)
        return;
    hutch_inner_done(&part->inner);
    on_end(part, false);
}

static const struct inner_events events = { .on_head = on_nothing, .on_body = on_body, .on_sent = on_nothing,
                                            .on_end = on_end };

static void on_gone(struct exchange *x)
{
    close_all(x->work);
    if (x->server->is_cancelled && !x->is_aborted)
        hutch_exchange_refuse(x, GATEWAY_SHUTTING_DOWN, "the server is shutting down");
    else
        hutch_exchange_forget(x);
}

static void on_free(struct exchange *x)
{
    close_all(x->work);
}

static int ask(struct gather *g, unsigned to, const struct text_buffer *request, struct hutch_err *err)
{
    struct part *part = &g->parts[to];
    int fd = hutch_crew_connect(g->x->server->crew, to, g->x->connection->is_tcp, err);

    part->gather = g;
    if (fd < 0 || hutch_inner_begin(&part->inner, &g->x->server->poller, fd, &events, part, err) < 0)
        return -1;
    part->inner.reader.has_no_body = strcmp(g->x->method, "HEAD") == 0;
    return hutch_inner_send(&part->inner, request->data, request->len) ? 0 : hutch_err_set(err, ENOMEM, "ask it");
}

static void handle(struct exchange *x)
{
    struct gather *g = x->work;
    struct text_buffer request = TEXT_BUFFER_INIT;
    struct hutch_err err;
    int rc = 0;

    hutch_inner_request_write(&request, x, NULL);
    if (request.is_broken)
        rc = hutch_err_set(&err, ENOMEM, "write the request");
    for (unsigned i = 0; i < g->n && rc == 0; i++)
        rc = ask(g, i, &request, &err);
    hutch_text_done(&request);
    if (rc < 0) {
        close_all(g);
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "ask all workers of the server: %s", err.msg);
    } else if (!x->status) {
        hutch_exchange_wait(x, on_gone);
    }
}

static const struct route gather_route = { .handle = handle };

bool hutch_gather_take(struct exchange *x, merge_function *merge)
{
    unsigned n = x->server->place.n;
    struct gather *g = calloc(1, sizeof(*g) + n * sizeof(g->parts[0]));

    if (!g) {
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the request");
        return true;
    }
    *g = (struct gather){ .x = x, .merge = merge, .n = n, .n_waiting = n };
    x->work = g;
    x->on_free = on_free;
    x->handler = &gather_route;
    return true;
}

#include "runtime/gateway/keyed_run.h"

#include "runtime/gateway/events.h"
#include "runtime/gateway/idempotency.h"
#include "runtime/gateway/run_result.h"
#include "runtime/gateway/server_priv.h"
#include "runtime/gateway/submit.h"
#include "sandbox/clock.h"

#include <string.h>

const char *hutch_keyed_run_key(struct exchange *x)
{
    const char *key = hutch_exchange_header(x, "Idempotency-Key");

    if (!key)
        return NULL;
    if (!hutch_idempotency_is_key(key))
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST,
                              "an Idempotency-Key is 1 to %d visible characters of ASCII", IDEMPOTENCY_MAX_KEY);
    else if (x->is_streamed)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "an Idempotency-Key is for a request whose body is JSON");
    else if (hutch_events_asked(x) != EVENTS_NONE)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "an answer with an Idempotency-Key comes in one piece, and "
                                                          "this request asks for a stream");
    return x->status ? NULL : key;
}

/* The run goes on: its client may ask again. */
static void on_gone(struct exchange *x)
{
    (void)x;
}

static void add_waiting(struct idempotency_entry *entry, struct exchange *x)
{
    entry->waiting[entry->n_waiting++] = x;
    hutch_exchange_wait(x, on_gone);
}

static void answer(struct exchange *x, const char *json, size_t len)
{
    hutch_exchange_answer(x, 200, "application/json", json ? strdup(json) : NULL, len);
}

int hutch_keyed_run_join(struct exchange *x, const char *key, const char *what)
{
    struct idempotency_entry *entry = hutch_idempotency_find(&x->server->idempotency, x->token, key, hutch_clock_ms());
    unsigned char hash[IDEMPOTENCY_HASH_SIZE];

    if (!entry)
        return 0;
    hutch_idempotency_hash(what, x->body.data, x->body.len, hash);
    if (memcmp(hash, entry->hash, sizeof(hash)) != 0)
        hutch_exchange_refuse(x, GATEWAY_KEY_REUSED, "this Idempotency-Key belongs to an earlier request, for "
                                                     "something else or with another body");
    else if (entry->is_over)
        answer(x, entry->answer, entry->len);
    else if (entry->n_waiting == IDEMPOTENCY_MAX_WAITING)
        hutch_exchange_refuse(x, GATEWAY_QUEUE_FULL, "%d requests wait for the answer to this Idempotency-Key",
                              IDEMPOTENCY_MAX_WAITING);
    else
        add_waiting(entry, x);
    return 1;
}

/* The requests that wait, also those whose clients have left, are there until they are answered. */
static void on_result(void *user, uint64_t id, const struct hutch_result *result)
{
    struct idempotency_entry *entry = user;
    struct server *s = entry->waiting[0]->server;
    char *json = hutch_run_result_json(result);
    size_t len = json ? strlen(json) : 0;

    (void)id;
    hutch_server_count_run(s, entry->waiting[0]->format->name, result);
    if (entry->token)
        entry->token->n_runs--;
    for (size_t i = 0; i < entry->n_waiting; i++)
        answer(entry->waiting[i], json, len);
    entry->n_waiting = 0;
    hutch_idempotency_conclude(&s->idempotency, entry, json, len, hutch_clock_ms());
}

void hutch_keyed_run_submit(struct exchange *x, struct hutch_request *request, const char *key, const char *what)
{
    struct idempotency *all = &x->server->idempotency;
    unsigned share = x->server->tokens.n > 1 ? all->max_entries / 2 : all->max_entries;
    struct idempotency_entry *entry = hutch_idempotency_add(all, x->token, share, key, hutch_clock_ms());
    struct hutch_error err;

    if (!entry) {
        hutch_exchange_refuse(x, GATEWAY_QUEUE_FULL, "too many requests with an Idempotency-Key are not answered");
        return;
    }
    hutch_idempotency_hash(what, x->body.data, x->body.len, entry->hash);
    request->on_result = on_result;
    request->user = entry;
    if (hutch_submit_for(x, request, &entry->run, &err) < 0) {
        hutch_idempotency_remove(all, entry);
        hutch_exchange_refuse_error(x, &err, GATEWAY_QUEUE_FULL, GATEWAY_INVALID_REQUEST);
        return;
    }
    if (entry->token)
        entry->token->n_runs++;
    add_waiting(entry, x);
}

void hutch_keyed_runs_cancel(struct server *s)
{
    const struct idempotency_entry *entry;

    TAILQ_FOREACH(entry, &s->idempotency.list, in_list)
        if (!entry->is_over)
            hutch_engine_cancel(s->engine, entry->run);
}

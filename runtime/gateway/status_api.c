#include "runtime/gateway/status_api.h"

#include "runtime/gateway/memory.h"
#include "runtime/gateway/pool_row.h"
#include "runtime/gateway/server_priv.h"
#include "runtime/text/json_write.h"
#include "sandbox/fd.h"

#include <inttypes.h>
#include <string.h>

static void answer_state(struct exchange *x, unsigned status, const char *state)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_text_addf(&t, "{\"status\":\"%s\"}\n", state);
    hutch_exchange_answer_json(x, status, &t);
}

void hutch_status_health(struct exchange *x)
{
    bool has_failed = x->server->has_failed;

    answer_state(x, has_failed ? 503 : 200, has_failed ? "failed" : "ok");
}

void hutch_status_ready(struct exchange *x)
{
    struct server *s = x->server;
    bool is_ready = hutch_server_is_ready(s);

    answer_state(x, is_ready ? 200 : 503,
                 is_ready ? "ready" : s->has_failed ? "failed" : s->is_draining ? "shutting down" : "starting");
}

void hutch_status_metrics(struct exchange *x)
{
    struct server *s = x->server;
    struct hutch_engine_stats stats = { .size = sizeof(stats) };
    struct metrics_now now = { .connections = s->connections.n - s->connections.n_inner,
                               .held = s->n_held, .expired = s->connections.n_expired,
                               .log_lost = s->log.n_lost, .resident = hutch_memory_of(0),
                               .is_ready = hutch_server_is_ready(s) };
    const struct exchange *each;
    size_t len = 0;
    char *text;

    LIST_FOREACH(each, &s->exchanges, in_list)
        now.exchanges += !each->is_inner; /* those are counted where their clients are */
    hutch_engine_get_stats(s->engine, &stats);
    text = hutch_metrics_text(&s->metrics, &s->formats, &stats, &now, &len);
    hutch_exchange_answer(x, 200, "text/plain; version=0.0.4", text, len);
}

static void add_counts(struct text_buffer *t, const struct pool_row *row)
{
    hutch_text_addf(t, ",\"from_pool\":%" PRIu64 ",\"on_demand\":%" PRIu64, row->from_pool, row->on_demand);
}

/* The pools that it has for other policies than the engine's. */
static void add_policies(struct text_buffer *t, const char *zygote, const struct pool_row *rows, size_t n)
{
    bool is_first = true;

    hutch_text_add_string(t, ",\"policies\":[");
    for (size_t i = 0; i < n; i++) {
        const struct pool_row *row = &rows[i];

        if (!row->policy[0] || strcmp(row->zygote, zygote) != 0)
            continue;
        hutch_text_add_string(t, is_first ? "{\"name\":" : ",{\"name\":");
        hutch_json_quote(t, row->policy, strlen(row->policy));
        hutch_text_addf(t, ",\"prepared\":%u,\"building\":%u", row->prepared, row->building);
        add_counts(t, row);
        hutch_text_add_string(t, "}");
        is_first = false;
    }
    hutch_text_add_string(t, "]");
}

void hutch_status_pools(struct exchange *x)
{
    struct hutch_engine_stats stats = { .size = sizeof(stats) };
    struct text_buffer t = TEXT_BUFFER_INIT;
    auto_free struct pool_row *rows = NULL;
    size_t n = 0;

    hutch_engine_get_stats(x->server->engine, &stats);
    rows = hutch_pool_rows(&stats, &n); /* one of each zygote first */
    t.is_broken = n < stats.n_zygotes;
    hutch_text_add_string(&t, "{\"pools\":[");
    for (size_t i = 0; i < stats.n_zygotes && i < n; i++) {
        const struct hutch_zygote_stats *zygote = &stats.zygotes[i];

        hutch_text_add_string(&t, i ? ",{\"name\":" : "{\"name\":");
        hutch_json_quote(&t, zygote->name, strlen(zygote->name));
        hutch_text_addf(&t, ",\"ready\":%s,\"prepared\":%u,\"building\":%u", zygote->is_ready ? "true" : "false",
                        zygote->prepared, zygote->building);
        hutch_text_addf(&t, ",\"forks\":%" PRIu64 ",\"recycled\":%" PRIu64, zygote->forks, zygote->recycled);
        add_counts(&t, &rows[i]);
        add_policies(&t, zygote->name, rows, n);
        hutch_text_add_string(&t, "}");
    }
    hutch_text_addf(&t, "],\"running\":%u,\"queued\":%u,\"sessions\":%u}\n", stats.running, stats.queued,
                    stats.sessions);
    hutch_exchange_answer_json(x, 200, &t);
}

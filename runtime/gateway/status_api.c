#include "runtime/gateway/status_api.h"

#include "runtime/gateway/server_priv.h"
#include "runtime/text/json_write.h"

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
                               .log_lost = s->log.n_lost, .is_ready = hutch_server_is_ready(s) };
    const struct exchange *each;
    size_t len = 0;
    char *text;

    LIST_FOREACH(each, &s->exchanges, in_list)
        now.exchanges += !each->is_inner; /* those are counted where their clients are */
    hutch_engine_get_stats(s->engine, &stats);
    text = hutch_metrics_text(&s->metrics, &s->formats, &stats, &now, &len);
    hutch_exchange_answer(x, 200, "text/plain; version=0.0.4", text, len);
}

void hutch_status_pools(struct exchange *x)
{
    struct hutch_engine_stats stats = { .size = sizeof(stats) };
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_engine_get_stats(x->server->engine, &stats);
    hutch_text_add_string(&t, "{\"pools\":[");
    for (size_t i = 0; i < stats.n_zygotes; i++) {
        const struct hutch_zygote_stats *zygote = &stats.zygotes[i];

        hutch_text_add_string(&t, i ? ",{\"name\":" : "{\"name\":");
        hutch_json_quote(&t, zygote->name, strlen(zygote->name));
        hutch_text_addf(&t, ",\"ready\":%s,\"prepared\":%u,\"building\":%u", zygote->is_ready ? "true" : "false",
                        zygote->prepared, zygote->building);
        hutch_text_addf(&t, ",\"forks\":%" PRIu64 ",\"recycled\":%" PRIu64 "}", zygote->forks, zygote->recycled);
    }
    hutch_text_addf(&t, "],\"running\":%u,\"queued\":%u,\"sessions\":%u}\n", stats.running, stats.queued,
                    stats.sessions);
    hutch_exchange_answer_json(x, 200, &t);
}

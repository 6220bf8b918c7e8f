#include "runtime/gateway/metrics.h"

#include "runtime/text/buffer.h"
#include "sandbox/fd.h"

#include <inttypes.h>
#include <stdio.h>

/* Upper bounds in milliseconds; what is above the last has the bucket behind them. */
static const double bounds_ms[METRICS_BUCKETS - 1] = { 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 5000, 30000 };

static const char *const phase_names[METRICS_PHASES] = { "queued", "prepared", "run", "total" };

static void observe(struct histogram *h, double ms)
{
    size_t i = 0;

    while (i < METRICS_BUCKETS - 1 && ms > bounds_ms[i])
        i++;
    h->buckets[i]++;
    h->sum += ms;
}

void hutch_metrics_add_request(struct metrics *m, size_t route, unsigned status, double ms)
{
    m->requests[route < ROUTE_MAX ? route : ROUTE_MAX][status < METRICS_STATUSES ? status / 100 : 0]++;
    observe(&m->requests_ms, ms);
}

void hutch_metrics_add_run(struct metrics *m, const struct hutch_result *result)
{
    if ((unsigned)result->verdict < METRICS_VERDICTS)
        m->runs[result->verdict]++;
    observe(&m->phases[METRICS_QUEUED], result->queued_ms);
    observe(&m->phases[METRICS_PREPARED], result->prepared_ms);
    observe(&m->phases[METRICS_RUN], result->run_ms);
    observe(&m->phases[METRICS_TOTAL], result->total_ms);
}

void hutch_metrics_add_cell(struct metrics *m, const struct hutch_cell_result *result)
{
    if ((unsigned)result->verdict < METRICS_VERDICTS)
        m->cells[result->verdict]++;
}

/* ---- the text ---- */

static void describe(struct text_buffer *t, const char *name, const char *type, const char *help)
{
    hutch_text_addf(t, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void add_one(struct text_buffer *t, const char *name, const char *type, const char *help, double value)
{
    describe(t, name, type, help);
    hutch_text_addf(t, "%s %.17g\n", name, value);
}

/* @label: "phase=\"run\"," or "". */
static void add_histogram(struct text_buffer *t, const char *name, const char *label, const struct histogram *h)
{
    uint64_t n = 0;

    for (size_t i = 0; i < METRICS_BUCKETS - 1; i++) {
        n += h->buckets[i];
        hutch_text_addf(t, "%s_bucket{%sle=\"%g\"} %" PRIu64 "\n", name, label, bounds_ms[i] / 1e3, n);
    }
    n += h->buckets[METRICS_BUCKETS - 1];
    hutch_text_addf(t, "%s_bucket{%sle=\"+Inf\"} %" PRIu64 "\n", name, label, n);
    hutch_text_addf(t, "%s_sum{%s} %.6f\n%s_count{%s} %" PRIu64 "\n", name, label, h->sum / 1e3, name, label, n);
}

static void add_route(struct text_buffer *t, const struct metrics *m, const struct formats *formats, size_t i)
{
    const char *prefix = "";
    const struct route *route = hutch_formats_route(formats, i, &prefix);
    const char *method = route ? route->method : "", *path = route ? route->path : "";

    for (size_t k = 0; k < ARRAY_SIZE(m->requests[i]); k++)
        if (m->requests[i][k])
            hutch_text_addf(t, "%s{method=\"%s\",route=\"%s%s\",status=\"%zuxx\"} %" PRIu32 "\n",
                            "hutch_http_requests_total", method, prefix, path, k, m->requests[i][k]);
}

static void add_requests(struct text_buffer *t, const struct metrics *m, const struct formats *formats)
{
    describe(t, "hutch_http_requests_total", "counter", "Requests by route and hundred of their status; 0: none.");
    for (size_t i = 0; i <= ROUTE_MAX; i++)
        add_route(t, m, formats, i);
    describe(t, "hutch_http_errors_total", "counter", "Requests that were refused, by the error's code.");
    for (size_t i = 0; i < GATEWAY_ERROR_COUNT; i++)
        hutch_text_addf(t, "hutch_http_errors_total{code=\"%s\"} %" PRIu64 "\n", hutch_gateway_errors[i].code,
                        m->errors[i]);
    add_one(t, "hutch_http_gone_total", "counter", "Clients that left before their answer's end.", (double)m->gone);
    describe(t, "hutch_http_request_seconds", "histogram", "From the headers of a request to the end of its answer.");
    add_histogram(t, "hutch_http_request_seconds", "", &m->requests_ms);
}

static void add_verdicts(struct text_buffer *t, const char *name, const char *help, const uint64_t *counts)
{
    describe(t, name, "counter", help);
    for (int i = 0; i < METRICS_VERDICTS; i++)
        hutch_text_addf(t, "%s{verdict=\"%s\"} %" PRIu64 "\n", name, hutch_verdict_text((enum hutch_verdict)i),
                        counts[i]);
}

static void add_runs(struct text_buffer *t, const struct metrics *m)
{
    add_verdicts(t, "hutch_runs_total", "Runs by verdict.", m->runs);
    add_verdicts(t, "hutch_cells_total", "Cells of sessions by verdict.", m->cells);
    describe(t, "hutch_run_seconds", "histogram", "Times of runs by phase.");
    for (int i = 0; i < METRICS_PHASES; i++) {
        char label[32];

        snprintf(label, sizeof(label), "phase=\"%s\",", phase_names[i]);
        add_histogram(t, "hutch_run_seconds", label, &m->phases[i]);
    }
}

static void add_engine(struct text_buffer *t, const struct hutch_engine_stats *s)
{
    add_one(t, "hutch_running", "gauge", "Runs that have a sandbox.", s->running);
    add_one(t, "hutch_queued", "gauge", "Runs that wait for one.", s->queued);
    add_one(t, "hutch_sessions", "gauge", "Open sessions.", s->sessions);
    add_one(t, "hutch_from_pool_total", "counter", "Runs that found a prepared sandbox.", (double)s->from_pool);
    add_one(t, "hutch_on_demand_total", "counter", "Runs for which a sandbox was built.", (double)s->on_demand);
    add_one(t, "hutch_restarted_total", "counter", "Runs begun again because their sandbox broke before that.",
            (double)s->restarted);
    add_one(t, "hutch_lost_total", "counter", "Processes and sandboxes that died of something else than the engine.",
            (double)(s->lost_zygotes + s->lost_launchers + s->lost_sandboxes));
    add_one(t, "hutch_hung_total", "counter", "Processes of the engine that did not answer and were replaced.",
            (double)s->hung);
    describe(t, "hutch_pool_prepared", "gauge", "Sandboxes that wait for a run, by zygote.");
    for (size_t i = 0; i < s->n_zygotes; i++)
        hutch_text_addf(t, "hutch_pool_prepared{zygote=\"%s\"} %u\n", s->zygotes[i].name, s->zygotes[i].prepared);
    describe(t, "hutch_pool_building", "gauge", "Sandboxes on their way to that, by zygote.");
    for (size_t i = 0; i < s->n_zygotes; i++)
        hutch_text_addf(t, "hutch_pool_building{zygote=\"%s\"} %u\n", s->zygotes[i].name, s->zygotes[i].building);
}

char *hutch_metrics_text(const struct metrics *m, const struct formats *formats, const struct hutch_engine_stats *stats,
                         const struct metrics_now *now, size_t *ret_len)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    add_requests(&t, m, formats);
    add_runs(&t, m);
    if (stats)
        add_engine(&t, stats);
    add_one(&t, "hutch_ready", "gauge", "1 when /readyz says so.", now->is_ready);
    add_one(&t, "hutch_http_connections", "gauge", "Open connections of clients.", now->connections);
    add_one(&t, "hutch_http_exchanges", "gauge", "Requests that are not over.", now->exchanges);
    add_one(&t, "hutch_http_held_bytes", "gauge", "Bodies and answers in memory.", (double)now->held);
    add_one(&t, "hutch_http_expired_total", "counter", "Requests that took too long to arrive.", (double)now->expired);
    add_one(&t, "hutch_log_lost_total", "counter", "Lines that the reader of the log did not take.",
            (double)now->log_lost);
    return hutch_text_take(&t, ret_len);
}

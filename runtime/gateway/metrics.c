#include "runtime/gateway/metrics.h"

#include "runtime/gateway/memory.h"
#include "runtime/gateway/pool_row.h"
#include "runtime/text/buffer.h"
#include "sandbox/fd.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Upper bounds in milliseconds; what is above the last has the bucket behind them. */
static const double bounds_ms[METRICS_BUCKETS - 1] = { 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 5000, 30000 };

static const char *const phase_names[METRICS_PHASES] = { "queued", "prepared", "run", "total" };
static const char *const cell_phase_names[METRICS_CELL_PHASES] = { "queued", "run" };

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

void hutch_metrics_add_run(struct metrics *m, size_t format, const struct hutch_result *result)
{
    struct metrics_times *times = &m->times[format];

    if ((unsigned)result->verdict < METRICS_VERDICTS)
        m->runs[result->verdict]++;
    observe(&times->runs[METRICS_QUEUED], result->queued_ms);
    observe(&times->runs[METRICS_PREPARED], result->prepared_ms);
    observe(&times->runs[METRICS_RUN], result->run_ms);
    observe(&times->runs[METRICS_TOTAL], result->total_ms);
    times->has_runs = true;
}

void hutch_metrics_add_cell(struct metrics *m, size_t format, const struct hutch_cell_result *result)
{
    struct metrics_times *times = &m->times[format];

    if ((unsigned)result->verdict < METRICS_VERDICTS)
        m->cells[result->verdict]++;
    observe(&times->cells[METRICS_CELL_QUEUED], result->queued_ms);
    observe(&times->cells[METRICS_CELL_RUN], result->run_ms);
    times->has_cells = true;
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

/* The value of a label, with its quotes. */
static void add_label(struct text_buffer *t, const char *value)
{
    hutch_text_add(t, "\"", 1);
    for (; *value; value++) {
        size_t n = strcspn(value, "\\\"\n");

        hutch_text_add(t, value, n);
        value += n;
        if (!*value)
            break;
        hutch_text_add_string(t, *value == '\n' ? "\\n" : *value == '"' ? "\\\"" : "\\\\");
    }
    hutch_text_add(t, "\"", 1);
}

/* @label: "phase=\"run\"" or the like; NULL: none. */
static void add_histogram(struct text_buffer *t, const char *name, const char *label, const struct histogram *h)
{
    const char *own = label ? label : "", *comma = label ? "," : "", *open = label ? "{" : "", *end = label ? "}" : "";
    uint64_t n = 0;

    for (size_t i = 0; i < METRICS_BUCKETS - 1; i++) {
        n += h->buckets[i];
        hutch_text_addf(t, "%s_bucket{%s%sle=\"%g\"} %" PRIu64 "\n", name, own, comma, bounds_ms[i] / 1e3, n);
    }
    n += h->buckets[METRICS_BUCKETS - 1];
    hutch_text_addf(t, "%s_bucket{%s%sle=\"+Inf\"} %" PRIu64 "\n", name, own, comma, n);
    hutch_text_addf(t, "%s_sum%s%s%s %.6f\n", name, open, own, end, h->sum / 1e3);
    hutch_text_addf(t, "%s_count%s%s%s %" PRIu64 "\n", name, open, own, end, n);
}

static void add_phases(struct text_buffer *t, const char *name, const char *format, const char *const *names,
                       const struct histogram *phases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char label[64];

        snprintf(label, sizeof(label), "format=\"%s\",phase=\"%s\"", format, names[i]);
        add_histogram(t, name, label, &phases[i]);
    }
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
    add_histogram(t, "hutch_http_request_seconds", NULL, &m->requests_ms);
}

static void add_verdicts(struct text_buffer *t, const char *name, const char *help, const uint64_t *counts)
{
    describe(t, name, "counter", help);
    for (int i = 0; i < METRICS_VERDICTS; i++)
        hutch_text_addf(t, "%s{verdict=\"%s\"} %" PRIu64 "\n", name, hutch_verdict_text((enum hutch_verdict)i),
                        counts[i]);
}

/* Of each format that has had one; the native one's are there from the start. */
static void add_runs(struct text_buffer *t, const struct metrics *m, const struct formats *formats)
{
    add_verdicts(t, "hutch_runs_total", "Runs by verdict.", m->runs);
    add_verdicts(t, "hutch_cells_total", "Cells of sessions by verdict.", m->cells);
    describe(t, "hutch_run_seconds", "histogram", "Times of runs by format and phase.");
    for (size_t i = 0; i < formats->n; i++)
        if (i == 0 || m->times[i].has_runs)
            add_phases(t, "hutch_run_seconds", formats->list[i].format->name, phase_names, m->times[i].runs,
                       METRICS_PHASES);
    describe(t, "hutch_cell_seconds", "histogram", "Times of cells by format and phase.");
    for (size_t i = 0; i < formats->n; i++)
        if (i == 0 || m->times[i].has_cells)
            add_phases(t, "hutch_cell_seconds", formats->list[i].format->name, cell_phase_names, m->times[i].cells,
                       METRICS_CELL_PHASES);
}

/* ---- pools and memory ---- */

enum pool_number { POOL_PREPARED, POOL_BUILDING, POOL_HITS, POOL_MISSES };

static uint64_t pool_number(const struct pool_row *row, enum pool_number which)
{
    switch (which) {
    case POOL_PREPARED:
        return row->prepared;
    case POOL_BUILDING:
        return row->building;
    case POOL_HITS:
        return row->from_pool;
    default:
        return row->on_demand;
    }
}

static void add_pool(struct text_buffer *t, const char *name, const struct pool_row *row, uint64_t value)
{
    hutch_text_addf(t, "%s{zygote=", name);
    add_label(t, row->zygote);
    if (row->policy[0]) {
        hutch_text_add_string(t, ",policy=");
        add_label(t, row->policy);
    }
    hutch_text_addf(t, "} %" PRIu64 "\n", value);
}

static void add_pools(struct text_buffer *t, const struct hutch_engine_stats *s)
{
    static const struct { enum pool_number which; const char *name, *type, *help; } kinds[] = {
        { POOL_PREPARED, "hutch_pool_prepared", "gauge", "Sandboxes that wait for a run, by zygote and policy." },
        { POOL_BUILDING, "hutch_pool_building", "gauge", "Sandboxes on their way to that, by zygote and policy." },
        { POOL_HITS, "hutch_pool_hits_total", "counter", "Runs that found a prepared sandbox in this pool." },
        { POOL_MISSES, "hutch_pool_misses_total", "counter", "Runs that had to wait for one of it." },
    };
    size_t n = 0;
    auto_free struct pool_row *rows = hutch_pool_rows(s, &n);

    t->is_broken |= !rows && s->n_pools > 0;
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        describe(t, kinds[i].name, kinds[i].type, kinds[i].help);
        for (size_t k = 0; k < n; k++)
            add_pool(t, kinds[i].name, &rows[k], pool_number(&rows[k], kinds[i].which));
    }
}

/* Of the first layout where there are several. A process that cannot be looked at has no line. */
static void add_zygotes(struct text_buffer *t, const struct hutch_engine_stats *s)
{
    describe(t, "hutch_zygote_recycled_total", "counter", "Times that a zygote was replaced, for its age or its end.");
    for (size_t i = 0; i < s->n_zygotes; i++)
        hutch_text_addf(t, "hutch_zygote_recycled_total{zygote=\"%s\"} %" PRIu64 "\n", s->zygotes[i].name,
                        s->zygotes[i].recycled);
    describe(t, "hutch_zygote_resident_memory_bytes", "gauge", "Memory of a zygote, which its sandboxes share.");
    for (size_t i = 0; i < s->n_zygotes; i++) {
        uint64_t bytes = s->zygotes[i].pid > 0 ? hutch_memory_of(s->zygotes[i].pid) : 0;

        if (bytes)
            hutch_text_addf(t, "hutch_zygote_resident_memory_bytes{zygote=\"%s\"} %" PRIu64 "\n",
                            s->zygotes[i].name, bytes);
    }
    if (s->launcher_pid > 0)
        add_one(t, "hutch_launcher_resident_memory_bytes", "gauge", "Memory of the process that starts sandboxes.",
                (double)hutch_memory_of(s->launcher_pid));
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
    add_one(t, "hutch_submitted_total", "counter", "Runs that the engine has taken.", (double)s->submitted);
    add_one(t, "hutch_finished_total", "counter", "Runs of these that are over.", (double)s->finished);
    add_pools(t, s);
    add_zygotes(t, s);
}

char *hutch_metrics_text(const struct metrics *m, const struct formats *formats, const struct hutch_engine_stats *stats,
                         const struct metrics_now *now, size_t *ret_len)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    add_requests(&t, m, formats);
    add_runs(&t, m, formats);
    if (stats)
        add_engine(&t, stats);
    add_one(&t, "hutch_ready", "gauge", "1 when /readyz says so.", now->is_ready);
    add_one(&t, "hutch_http_connections", "gauge", "Open connections of clients.", now->connections);
    add_one(&t, "hutch_http_exchanges", "gauge", "Requests that are not over.", now->exchanges);
    add_one(&t, "hutch_http_held_bytes", "gauge", "Bodies and answers in memory.", (double)now->held);
    if (now->resident)
        add_one(&t, "process_resident_memory_bytes", "gauge", "Memory of the process, or of all workers.",
                (double)now->resident);
    add_one(&t, "hutch_http_expired_total", "counter", "Requests that took too long to arrive.", (double)now->expired);
    add_one(&t, "hutch_log_lost_total", "counter", "Lines that the reader of the log did not take.",
            (double)now->log_lost);
    return hutch_text_take(&t, ret_len);
}

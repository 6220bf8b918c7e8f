/* metrics.h - what the server counts, and its text in the format of Prometheus. */
#ifndef HUTCH_GATEWAY_METRICS_H
#define HUTCH_GATEWAY_METRICS_H

#include "runtime/gateway/error.h"
#include "runtime/gateway/format.h"
#include "runtime/hutch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define METRICS_STATUSES 600
#define METRICS_BUCKETS 14
#define METRICS_VERDICTS (HUTCH_SETUP_FAILED + 1)

struct histogram {
    uint64_t buckets[METRICS_BUCKETS]; /* the last is for all that is above the largest bound */
    double sum;
};

enum metrics_phase { METRICS_QUEUED, METRICS_PREPARED, METRICS_RUN, METRICS_TOTAL, METRICS_PHASES };
enum metrics_cell_phase { METRICS_CELL_QUEUED, METRICS_CELL_RUN, METRICS_CELL_PHASES };

/* Of one format. */
struct metrics_times {
    struct histogram runs[METRICS_PHASES], cells[METRICS_CELL_PHASES];
    bool has_runs, has_cells;
};

struct metrics {
    uint32_t requests[ROUTE_MAX + 1][METRICS_STATUSES / 100 + 1]; /* of each route, the last for none; by hundreds */
    uint64_t errors[GATEWAY_ERROR_COUNT];
    uint64_t gone;                        /* clients that left before their answer */
    uint64_t runs[METRICS_VERDICTS], cells[METRICS_VERDICTS];
    struct metrics_times times[FORMATS_MAX]; /* by hutch_formats_index() */
    struct histogram requests_ms;         /* whole requests, without those of health and metrics */
};

/* What is so just now, of the server. */
struct metrics_now {
    unsigned connections, exchanges;
    size_t held;
    uint64_t expired, log_lost;
    uint64_t resident;                    /* bytes of this process; 0: not known */
    int is_ready;
};

/* @route: hutch_formats_number(). */
void hutch_metrics_add_request(struct metrics *m, size_t route, unsigned status, double ms);
/* @format: hutch_formats_index(). */
void hutch_metrics_add_run(struct metrics *m, size_t format, const struct hutch_result *result);
void hutch_metrics_add_cell(struct metrics *m, size_t format, const struct hutch_cell_result *result);

/* The caller's to free; NULL on ENOMEM. */
char *hutch_metrics_text(const struct metrics *m, const struct formats *formats, const struct hutch_engine_stats *stats,
                         const struct metrics_now *now, size_t *ret_len);

#endif

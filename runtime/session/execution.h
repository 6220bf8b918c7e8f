/* execution.h - what happens to one cell after the other, as far as the interpreter tells: times, outputs, and not
 * verdicts. */
#ifndef HUTCH_SESSION_EXECUTION_H
#define HUTCH_SESSION_EXECUTION_H

#include "runtime/cell/feed.h"
#include "runtime/cell/outputs.h"
#include "runtime/hutch.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stdint.h>

struct cJSON;
struct hutch_cell_details;
struct interpreter;

struct execution {
    int64_t id;
    bool is_silent, wants_value, has_begun, is_done, is_error;
    double t_begun;                  /* ms, monotonic */
    double t_busy, t_input, t_reply; /* seconds since 1970; 0: not yet */
    int64_t count, line;
    char *cause;                     /* owned; NULL: not known */
    char *value;                     /* owned; JSON; NULL: it has none, or none was wanted */
    char *outputs;                   /* owned; from hutch_execution_fill() on */
    struct cell_error error;         /* likewise */
};

/* Orders a cell; @cell's own code, context and calls are not looked at. @calls: see calls.h; NULL: none. */
int hutch_execution_begin(struct execution *execution, struct interpreter *interpreter, const struct hutch_cell *cell,
                          const char *code, const char *context, const struct cJSON *calls, uint64_t output_bytes,
                          struct hutch_err *err);
/* More came in frames than the outputs and what replaced some of them can be. */
bool hutch_execution_is_flooded(const struct interpreter *interpreter, uint64_t output_bytes);
/* As a result has it: 0 for a silent one. */
int hutch_execution_count(const struct execution *execution);
void hutch_execution_hear(struct execution *execution, const struct cell_event *event);
/* Outputs, error, count and times of @result, which points into @execution and @details then. */
void hutch_execution_fill(struct execution *execution, const struct interpreter *interpreter,
                          struct hutch_cell_result *result, struct hutch_cell_details *details);
void hutch_execution_done(struct execution *execution); /* frees; fine twice */

#endif

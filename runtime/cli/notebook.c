#include "runtime/cli/notebook.h"

#include "runtime/cli/engine.h"
#include "runtime/cli/exits.h"
#include "sandbox/fd.h"
#include "sandbox/inside.h"
#include "runtime/hutch.h"
#include "runtime/text/json_write.h"
#include "runtime/notebook/notebook.h"
#include "runtime/notebook/params.h"
#include "runtime/notebook/run.h"
#include "runtime/cli/output_file.h"
#include "runtime/cli/say.h"
#include "runtime/term/filter.h"
#include "runtime/term/terminal.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { EXIT_EXCEPTION = 1 };

#define SUFFIX ".ipynb"
#define OUT_SUFFIX ".out.ipynb"
#define LLM_BUDGET 2000 /* tokens for all cells together */
#define LLM_LEAST 100   /* … and for each, whatever is left */

struct report {
    const struct notebook_opts *opts;
    bool has_terminal; /* progress is shown */
    size_t nth, n, cell;
    time_t since;      /* when that cell began */
    struct cJSON *cells; /* owned; with --json */
    size_t budget;
    bool is_out_of_memory;
};

/* ---- where it is written ---- */

/* NAME.out.ipynb beside NAME.ipynb: the notebook itself is overwritten only when the user asks for it. */
static int default_output(const char *path, char **ret, struct hutch_err *err)
{
    size_t len = strlen(path), end = strlen(SUFFIX);

    if (len > end && strcmp(path + len - end, SUFFIX) == 0)
        len -= end;
    if (asprintf(ret, "%.*s" OUT_SUFFIX, (int)len, path) < 0) {
        *ret = NULL;
        return hutch_err_set(err, ENOMEM, "name the output of '%s'", path);
    }
    return 0;
}

static int write_notebook(struct notebook *nb, const struct output_file *file, struct hutch_err *err)
{
    auto_free char *text = NULL;
    size_t len;

    if (hutch_notebook_print(nb, &text, &len, err) < 0)
        return -1;
    return hutch_output_file_write(file, text, len, err);
}

/* ---- what is said meanwhile ---- */

static void clear_line(const struct report *report)
{
    if (report->has_terminal && report->cell)
        fputs("\r\033[K", stderr);
}

static void show_progress(const struct report *report)
{
    time_t seconds = time(NULL) - report->since;

    if (!report->has_terminal || !report->cell)
        return;
    fprintf(stderr, "\r\033[K[%zu/%zu] cell %zu …", report->nth, report->n, report->cell);
    if (seconds > 0)
        fprintf(stderr, " %lld s", (long long)seconds);
    fflush(stderr);
}

static void on_begin(void *user, size_t nth, size_t n, size_t cell)
{
    struct report *report = user;

    report->nth = nth;
    report->n = n;
    report->cell = cell;
    report->since = time(NULL);
    show_progress(report);
}

static void on_tick(void *user)
{
    show_progress(user);
}

static void add_json(struct report *report, size_t cell, const struct hutch_cell_result *result)
{
    struct cJSON *entry = cJSON_CreateObject();
    auto_free char *text = hutch_cell_result_to_json(result);

    if (!hutch_json_add_u64(entry, "cell", cell) || !text || !hutch_json_add(entry, "result", cJSON_CreateRaw(text)) ||
        !cJSON_AddItemToArray(report->cells, entry)) {
        report->is_out_of_memory = true;
        cJSON_Delete(entry);
    }
}

static void print_llm(struct report *report, size_t cell, const struct hutch_cell_result *result)
{
    size_t left = report->n - report->nth + 1, share = report->budget / left;
    auto_free char *text = hutch_cell_result_to_text(result, share < LLM_LEAST ? LLM_LEAST : share);

    report->budget -= share;
    if (!text) {
        report->is_out_of_memory = true;
        return;
    }
    printf("%sCell %zu:\n%s%s", report->nth > 1 ? "\n" : "", cell, text,
           *text && text[strlen(text) - 1] != '\n' ? "\n" : "");
    fflush(stdout);
}

static void on_result(void *user, size_t cell, const struct hutch_cell_result *result)
{
    struct report *report = user;

    clear_line(report);
    if (report->cells)
        add_json(report, cell, result);
    if (report->opts->llm)
        print_llm(report, cell, result);
    if (report->opts->quiet || report->opts->json)
        return;
    if (result->truncated)
        hutch_say("cell %zu: its output, or the state of its widgets, was cut at the limit", cell);
    if (result->verdict == HUTCH_TIMEOUT && report->opts->interrupt_on_timeout && !result->interpreter_died)
        hutch_say("cell %zu: it took too long, and was interrupted", cell);
}

/* ---- what is said at the end ---- */

static void to_stderr(void *user, const char *text, size_t len)
{
    (void)user;
    fwrite(text, 1, len, stderr);
}

/* It is text of hostile code, and this may be a terminal. */
static void print_traceback(const char *text)
{
    struct term_filter filter;

    hutch_term_describe(STDERR_FILENO, &filter);
    hutch_term_filter(&filter, text, strlen(text), to_stderr, NULL);
    hutch_term_filter_end(&filter, to_stderr, NULL);
    fputc('\n', stderr);
}

static void print_summary(const struct report *report, const struct notebook_outcome *outcome,
                          const struct notebook *nb, const char *path)
{
    if (outcome->traceback && !report->opts->llm)
        print_traceback(outcome->traceback);
    if (outcome->message)
        hutch_say("%s", outcome->message);
    if (report->opts->quiet)
        return;
    if (nb->has_lost_widgets)
        hutch_say("the notebook does not have the state of all widgets: there are more than %d, more than %zu bytes, "
                  "too many levels, or more than a cell may have", NOTEBOOK_MAX_WIDGETS, NOTEBOOK_MAX_WIDGET_BYTES);
    hutch_say("%zu of %zu cells in %.1f s%s%s", outcome->n_executed, outcome->n, outcome->ms / 1e3,
              strcmp(path, "-") != 0 ? ", written to " : "", strcmp(path, "-") != 0 ? path : "");
    if (outcome->directory)
        hutch_say("files written to " INSIDE_DATA_DIR " are in %s", outcome->directory);
}

static int print_json(struct report *report, const struct notebook_outcome *outcome, const struct notebook *nb,
                      const char *path, struct hutch_err *err)
{
    struct cJSON *object = cJSON_CreateObject();
    auto_free char *text = NULL;
    bool is_complete =
        hutch_json_add_u64(object, "version", 1) &&
        hutch_json_add_string(object, "verdict", hutch_verdict_text(outcome->verdict)) &&
        hutch_json_add_string(object, "message", outcome->message) && hutch_json_add_string(object, "notebook", path) &&
        hutch_json_add_string(object, "directory", outcome->directory ? outcome->directory : report->opts->data) &&
        hutch_json_add_u64(object, "n_cells", outcome->n) &&
        hutch_json_add_u64(object, "n_executed", outcome->n_executed) &&
        hutch_json_add_ms(object, "total_ms", outcome->ms) &&
        cJSON_AddBoolToObject(object, "widgets_truncated", nb->has_lost_widgets) && !report->is_out_of_memory;

    if (cJSON_AddItemToObject(object, "cells", report->cells))
        report->cells = NULL;
    text = is_complete ? cJSON_PrintUnformatted(object) : NULL;
    cJSON_Delete(object);
    if (!text)
        return hutch_err_set(err, ENOMEM, "print the result");
    return hutch_say_json(text, err);
}

void hutch_notebook_print_failure(const struct hutch_err *why)
{
    const struct notebook_opts opts = { .json = true };
    const struct notebook_outcome outcome = { .verdict = HUTCH_SETUP_FAILED, .message = (char *)why->msg };
    const struct notebook none = NOTEBOOK_INIT;
    struct report report = { .opts = &opts, .cells = cJSON_CreateArray() };
    struct hutch_err ignored;

    print_json(&report, &outcome, &none, NULL, &ignored); /* the sentence on standard error is left */
    cJSON_Delete(report.cells);
}

static int exit_status(const struct notebook_outcome *outcome)
{
    if (outcome->signal)
        return EXIT_SIGNAL_BASE + outcome->signal;
    switch (outcome->verdict) {
    case HUTCH_OK:
        return 0;
    case HUTCH_TIMEOUT:
    case HUTCH_CPU_TIME:
        return EXIT_TIMEOUT;
    case HUTCH_SETUP_FAILED:
        return EXIT_HUTCH;
    default:
        return EXIT_EXCEPTION;
    }
}

/* ---- all of it ---- */

static int load(const char *path, struct notebook *ret, struct hutch_err *err)
{
    auto_free char *text = NULL, *what = NULL;
    size_t len;

    if (asprintf(&what, "notebook '%s'", path) < 0) {
        what = NULL;
        return hutch_err_set(err, ENOMEM, "read the notebook '%s'", path);
    }
    if (hutch_fd_slurp_path(path, NOTEBOOK_MAX_BYTES, &text, &len, err) < 0)
        return hutch_err_wrap(err, "read the notebook '%s'", path);
    return hutch_notebook_parse(what, text, len, ret, err);
}

static int run_and_write(const struct notebook_opts *opts, struct notebook *nb, struct report *report,
                         const struct output_file *file, struct hutch_err *err)
{
    struct notebook_outcome outcome = NOTEBOOK_OUTCOME_INIT;
    const struct notebook_order order = {
        .engine = &opts->engine->options,
        .data = opts->data,
        .cell_timeout_ms = opts->cell_timeout_ms,
        .allow_errors = opts->allow_errors,
        .interrupt_on_timeout = opts->interrupt_on_timeout,
        .signal_fd = opts->signal_fd,
        .on_begin = on_begin,
        .on_tick = report->has_terminal ? on_tick : NULL,
        .on_result = on_result,
        .user = report,
    };
    int rc = hutch_notebook_run(nb, &order, &outcome, err);

    clear_line(report);
    if (rc == 0)
        rc = write_notebook(nb, file, err);
    if (rc == 0 && opts->json)
        rc = print_json(report, &outcome, nb, file->path, err);
    else if (rc == 0)
        print_summary(report, &outcome, nb, file->path);
    if (rc == 0)
        rc = exit_status(&outcome);
    hutch_notebook_outcome_done(&outcome);
    return rc;
}

int hutch_cmd_notebook(const struct notebook_opts *opts, struct hutch_err *err)
{
    struct report report = { .opts = opts, .has_terminal = !opts->quiet && isatty(STDERR_FILENO) };
    struct notebook nb = NOTEBOOK_INIT;
    struct output_file file = OUTPUT_FILE_INIT;
    auto_free char *made = NULL;
    const char *path = opts->output;
    int rc;

    if (path && strcmp(path, "-") == 0 && (opts->json || opts->llm))
        return hutch_err_set(err, 0, "'-o -' and '%s' both write to standard output", opts->json ? "--json" : "--llm");
    if (!path && default_output(opts->path, &made, err) < 0)
        return -1;
    if (!path)
        path = made;
    report.budget = opts->llm_budget ? opts->llm_budget : LLM_BUDGET;
    report.cells = opts->json ? cJSON_CreateArray() : NULL;
    rc = load(opts->path, &nb, err);
    if (rc == 0 && opts->n_params > 0)
        rc = hutch_notebook_set_params(&nb, opts->params, opts->n_params, err);
    if (rc == 0)
        rc = hutch_output_file_open(path, &file, err); /* before anything is executed */
    if (rc == 0)
        rc = run_and_write(opts, &nb, &report, &file, err);
    hutch_output_file_done(&file);
    cJSON_Delete(report.cells);
    hutch_notebook_done(&nb);
    return rc;
}

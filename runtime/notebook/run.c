#include "runtime/notebook/run.h"

#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "runtime/lang/python_imports.h"
#include "runtime/text/nbjson.h"
#include "runtime/notebook/notebook.h"

#include <cjson/cJSON.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>

#define TICK_MS 1000
#define DEAD "DeadKernelError" /* nbclient's name for it */

struct run {
    const struct notebook_order *order;
    struct notebook *nb;
    struct notebook_outcome *out;
    struct hutch_engine *engine;
    uint64_t session;
    size_t at;      /* the cell that is being executed */
    size_t nth;     /* … and which of those with code it is, from 1 */
    bool is_over;   /* the session has ended */
    bool is_failed; /* by @err: the notebook could not be kept */
    struct hutch_err err;
};

/* ---- libraries: the interpreter has those before it starts that the notebook is going to import ---- */

static const struct {
    const char *import, *module;
} libraries[] = {
    { "numpy", "numpy" },
    { "pandas", "pandas" },
    { "matplotlib", "matplotlib.pyplot" },
    { "pylab", "matplotlib.pyplot" },
    { "seaborn", "pandas" },
    { "seaborn", "matplotlib.pyplot" },
};
static const char *const cell_modules[] = { "IPython", "ipykernel" }; /* what executes cells */
#define MAX_MODULES (ARRAY_SIZE(cell_modules) + ARRAY_SIZE(libraries))

static void find_library(void *context, const char *name, size_t name_len)
{
    bool *is_wanted = context;

    for (size_t i = 0; i < ARRAY_SIZE(libraries); i++)
        if (strlen(libraries[i].import) == name_len && memcmp(libraries[i].import, name, name_len) == 0)
            is_wanted[i] = true;
}

static void list_modules(const struct notebook *nb, const char *modules[MAX_MODULES + 1])
{
    bool is_wanted[ARRAY_SIZE(libraries)] = { false };
    size_t n = ARRAY_SIZE(cell_modules);

    memcpy(modules, cell_modules, sizeof(cell_modules));
    for (size_t i = 0; i < nb->n_cells; i++)
        if (hutch_notebook_is_executed(&nb->cells[i]))
            hutch_imports_scan(nb->cells[i].source, strlen(nb->cells[i].source), find_library, is_wanted);
    for (size_t i = 0; i < ARRAY_SIZE(libraries); i++)
        if (is_wanted[i])
            modules[n++] = libraries[i].module;
    modules[n] = NULL;
}

/* ---- the end ---- */

__attribute__((format(printf, 2, 3))) static void stop(struct run *run, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    if (!run->out->message && vasprintf(&run->out->message, format, args) < 0)
        run->out->message = NULL;
    va_end(args);
    hutch_session_close(run->engine, run->session);
}

/* The notebook cannot take what comes: not enough memory. */
static void stop_with_error(struct run *run, const struct hutch_err *err)
{
    if (!run->is_failed)
        run->err = *err;
    run->is_failed = true;
    stop(run, "%s", err->msg);
}

/* ---- one cell ---- */

static bool is_known_id(const struct run *run, const struct cJSON *id)
{
    return cJSON_IsString(id) && hutch_notebook_has_display(run->nb, id->valuestring);
}

/* The state of a widget, or a display with an id that cells before this one have shown, too. */
static void on_output(void *user, uint64_t session, const struct hutch_output *output)
{
    struct run *run = user;
    struct cJSON *json, *id;
    struct hutch_err err;

    (void)session;
    if (output->kind == HUTCH_WIDGET && hutch_notebook_set_widget(run->nb, output->json, &err) < 0)
        stop_with_error(run, &err);
    if (!run->nb->displays ||
        (output->kind != HUTCH_DISPLAY && output->kind != HUTCH_VALUE && output->kind != HUTCH_UPDATE) ||
        (output->kind != HUTCH_UPDATE && !strstr(output->json, "\"display_id\"")) ||
        hutch_nbjson_parse("output", output->json, strlen(output->json), &NBJSON_NOTEBOOK, &json, &err) < 0)
        return;
    id = cJSON_GetObjectItemCaseSensitive(
        output->kind == HUTCH_UPDATE ? json : cJSON_GetObjectItemCaseSensitive(json, "transient"),
        output->kind == HUTCH_UPDATE ? "id" : "display_id");
    if (is_known_id(run, id) && cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(json, "data")) &&
        hutch_notebook_update(run->nb, id->valuestring, cJSON_GetObjectItemCaseSensitive(json, "data"),
                              cJSON_GetObjectItemCaseSensitive(json, "metadata"), &err) < 0)
        stop_with_error(run, &err);
    cJSON_Delete(json);
}

static int keep_result(struct run *run, const struct hutch_cell_result *result, struct hutch_err *err)
{
    const struct notebook_result kept = {
        .execution_count = result->execution_count,
        .outputs = result->outputs,
        .t_busy = result->t_busy,
        .t_input = result->t_input,
        .t_reply = result->interpreter_died ? 0 : result->t_reply,
        .t_idle = result->interpreter_died ? 0 : result->t_idle,
    };

    if (hutch_notebook_set_result(run->nb, run->at, &kept, err) < 0)
        return -1;
    if (result->interpreter_died && hutch_notebook_add_error(run->nb, run->at, DEAD, result->message, err) < 0)
        return -1;
    return 0;
}

/* Whether the next cell may come; else stops. */
static bool judge(struct run *run, const struct hutch_cell_result *result)
{
    const struct notebook_cell *cell = &run->nb->cells[run->at];
    bool may_fail = run->order->allow_errors || cell->may_raise;

    if (run->out->signal) {
        run->out->cell = run->at + 1;
        run->out->verdict = HUTCH_KILLED;
        stop(run, "cell %zu: interrupted", run->at + 1);
    } else if (result->is_fresh && run->out->n_executed > 1) { /* nothing of what the cell needs was there */
        run->out->verdict = HUTCH_ERROR;
        stop(run, "cell %zu: the interpreter had died after the cell before, and its variables were lost", run->at + 1);
    } else if (result->verdict == HUTCH_OK && !result->interpreter_died) {
        return true;
    } else if (result->verdict == HUTCH_ERROR && !result->interpreter_died) {
        if (may_fail)
            return true;
        run->out->traceback = result->error_traceback_ansi ? strdup(result->error_traceback_ansi) : NULL;
        stop(run, "cell %zu: %s: %.500s", run->at + 1, result->error_name ? result->error_name : "error",
             result->error_value ? result->error_value : "");
    } else if (result->verdict == HUTCH_TIMEOUT && !result->interpreter_died && run->order->interrupt_on_timeout &&
               (may_fail || !result->error_name)) {
        return true; /* the KeyboardInterrupt is an exception like others, and the cell may have caught it */
    } else if (result->verdict == HUTCH_OUTPUT_LIMIT && !result->interpreter_died && may_fail) {
        return true;
    } else {
        stop(run, "cell %zu: %s", run->at + 1, result->message);
    }
    run->out->cell = run->at + 1;
    if (run->out->verdict == HUTCH_OK)
        /* an interpreter that ended well is gone, too */
        run->out->verdict = result->verdict == HUTCH_OK ? HUTCH_ERROR : result->verdict;
    return false;
}

static void execute_next(struct run *run, size_t from);

static void on_result(void *user, uint64_t session, const struct hutch_cell_result *result)
{
    struct run *run = user;
    struct hutch_err err;

    (void)session;
    if (run->is_failed)
        return;
    if (result->language_info && hutch_notebook_set_language(run->nb, result->language_info, &err) < 0)
        stop_with_error(run, &err);
    if (run->at == run->nb->n_cells) { /* it was only for the language */
        if (result->verdict != HUTCH_OK)
            run->out->verdict = result->verdict;
        stop(run, "%s", result->message);
        return;
    }
    if (result->verdict != HUTCH_SETUP_FAILED)
        run->out->n_executed++;
    if (keep_result(run, result, &err) < 0) {
        stop_with_error(run, &err);
        return;
    }
    if (run->order->on_result)
        run->order->on_result(run->order->user, run->at + 1, result);
    if (judge(run, result))
        execute_next(run, run->at + 1);
}

/* The first cell that is to be executed from @from on; when there is none, it is over. */
static void execute_next(struct run *run, size_t from)
{
    struct notebook *nb = run->nb;
    struct hutch_cell cell;
    struct hutch_error error;
    struct hutch_err err;

    for (run->at = from; run->at < nb->n_cells && !hutch_notebook_is_executed(&nb->cells[run->at]); run->at++)
        ;
    hutch_cell_init(&cell);
    cell.timeout_ms = run->order->cell_timeout_ms;
    cell.on_result = on_result;
    cell.user = run;
    if (run->at < nb->n_cells) {
        if (hutch_notebook_begin(nb, run->at, &err) < 0) {
            stop_with_error(run, &err);
            return;
        }
        run->nth++;
        if (run->order->on_begin)
            run->order->on_begin(run->order->user, run->nth, run->out->n, run->at + 1);
        cell.code = nb->cells[run->at].source;
        cell.on_output = on_output;
        cell.widgets = 1;
    } else if (run->out->n == 0) {
        cell.code = "pass"; /* nothing to execute, but which Python it is is written in any case */
        cell.silent = cell.no_history = 1;
    } else {
        hutch_session_close(run->engine, run->session);
        return;
    }
    if (hutch_session_execute(run->engine, run->session, &cell, &error) < 0) {
        run->out->verdict = HUTCH_SETUP_FAILED;
        run->out->cell = run->at + 1;
        stop(run, "cell %zu: %s", run->at + 1, error.message);
    }
}

/* ---- all of them ---- */

static void on_end(void *user, uint64_t session, const char *why, const char *directory)
{
    struct run *run = user;

    (void)session;
    (void)why;
    run->is_over = true;
    if (directory)
        run->out->directory = strdup(directory);
}

static void hear_signals(struct run *run)
{
    struct signalfd_siginfo info;

    while (read(run->order->signal_fd, &info, sizeof(info)) == sizeof(info)) {
        bool is_first = run->out->signal == 0;

        run->out->signal = (int)info.ssi_signo;
        if (!is_first || info.ssi_signo != SIGINT || !hutch_session_interrupt(run->engine, run->session))
            hutch_session_close(run->engine, run->session);
    }
}

static int open_engine(struct run *run, struct hutch_err *err)
{
    const char *modules[MAX_MODULES + 1];
    const struct hutch_zygote zygote = { .name = "shell", .modules = modules, .min = 1, .max = 1 };
    struct hutch_engine_options options = *run->order->engine;
    struct hutch_error error;

    list_modules(run->nb, modules);
    options.zygotes = &zygote;
    options.n_zygotes = 1;
    return hutch_engine_open(&options, &run->engine, &error) < 0 ? hutch_err_set(err, 0, "%s", error.message) : 0;
}

static int open_session(struct run *run, struct hutch_err *err)
{
    struct hutch_session_options options;
    struct hutch_error error;

    hutch_session_options_init(&options);
    options.data_dir = run->order->data;
    options.keep_data = 1;
    options.on_end = on_end;
    options.user = run;
    return hutch_session_open(run->engine, &options, &run->session, &error) < 0
           ? hutch_err_set(err, 0, "%s", error.message) : 0;
}

static int loop(struct run *run, struct hutch_err *err)
{
    while (!run->is_over) {
        struct pollfd p[] = {
            { .fd = hutch_engine_fd(run->engine), .events = POLLIN },
            { .fd = run->order->signal_fd, .events = POLLIN },
        };
        struct hutch_error error;

        if (poll(p, ARRAY_SIZE(p), run->order->on_tick ? TICK_MS : -1) < 0 && errno != EINTR)
            return hutch_err_set(err, errno, "wait for the engine");
        if (p[1].revents)
            hear_signals(run);
        if (hutch_engine_dispatch(run->engine, &error) < 0 && run->out->n_executed == 0)
            return hutch_err_set(err, 0, "%s", error.message);
        if (run->order->on_tick)
            run->order->on_tick(run->order->user);
    }
    return 0;
}

int hutch_notebook_run(struct notebook *nb, const struct notebook_order *order, struct notebook_outcome *ret,
                       struct hutch_err *err)
{
    struct notebook_outcome out = NOTEBOOK_OUTCOME_INIT;
    struct run run = { .order = order, .nb = nb, .out = &out };
    const double start = hutch_clock_ms();
    int rc;

    for (size_t i = 0; i < nb->n_cells; i++)
        out.n += hutch_notebook_is_executed(&nb->cells[i]);
    if (open_engine(&run, err) < 0)
        return -1;
    rc = open_session(&run, err);
    if (rc == 0) {
        execute_next(&run, 0);
        rc = loop(&run, err);
    }
    hutch_engine_free(run.engine);
    if (rc == 0 && run.is_failed) {
        *err = run.err;
        rc = -1;
    }
    if (rc == 0 && out.verdict == HUTCH_SETUP_FAILED && out.n_executed == 0)
        rc = hutch_err_set(err, 0, "%s", out.message ? out.message : "no interpreter could be had");
    out.ms = hutch_clock_ms() - start;
    if (out.verdict == HUTCH_OK) {
        free(out.message);
        out.message = NULL;
    }
    if (rc < 0)
        hutch_notebook_outcome_done(&out);
    else
        *ret = out;
    return rc;
}

void hutch_notebook_outcome_done(struct notebook_outcome *outcome)
{
    free(outcome->message);
    free(outcome->traceback);
    free(outcome->directory);
    *outcome = (struct notebook_outcome)NOTEBOOK_OUTCOME_INIT;
}

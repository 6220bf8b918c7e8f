#include "runtime/cli/run_warm.h"

#include "runtime/cli/engine.h"
#include "runtime/cli/run_options.h"
#include "runtime/cli/run_program.h"
#include "runtime/hutch.h"
#include "runtime/term/backlog.h"
#include "runtime/term/terminal.h"
#include "sandbox/fd.h"
#include "sandbox/spec.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/signalfd.h>

#define INPUT_MAX (256u << 20)

struct warm_run {
    const struct warm_run_request *request;
    struct hutch_engine *engine;
    struct run_report *report;
    int report_rc;
    struct hutch_err report_err;
    uint64_t id;
    struct backlog out, err_out;
    struct term_filter filters[2]; /* of stdout and stderr */
    bool is_shown[2];              /* on a terminal, through its filter */
    bool is_over;
    unsigned n_signals;
};

static void to_backlog(void *user, const char *data, size_t len)
{
    struct backlog *b = user;

    if (!hutch_backlog_add(b, data, len))
        b->write_errno = ENOMEM;
}

/* The engine's callbacks must not wait, or no clock would end the run. */
static void on_output(void *user, uint64_t id, int stream, const char *data, size_t len)
{
    struct warm_run *w = user;
    struct backlog *b = stream == 1 ? &w->out : &w->err_out;

    if (w->is_shown[stream - 1])
        hutch_term_filter(&w->filters[stream - 1], data, len, to_backlog, b);
    else
        to_backlog(b, data, len);
    if (b->write_errno == ENOMEM)
        hutch_engine_cancel(w->engine, id);
}

static void pass_on(struct warm_run *w, struct backlog *b)
{
    hutch_backlog_pass_on(b);
    if (b->write_errno && w->engine) /* its reader is gone, so there is no reason to go on */
        hutch_engine_cancel(w->engine, w->id);
}

static void on_result(void *user, uint64_t id, const struct hutch_result *result)
{
    struct warm_run *w = user;

    (void)id;
    for (int i = 0; i < 2; i++)
        if (w->is_shown[i])
            hutch_term_filter_end(&w->filters[i], to_backlog, i ? &w->err_out : &w->out);
    w->report_rc = hutch_run_report_make(w->request->opts, result, w->report, &w->report_err);
    w->is_over = true;
}

static int submit(struct warm_run *w, const char *input, size_t input_len, struct hutch_err *err)
{
    const struct run_opts *opts = w->request->opts;
    struct hutch_request request;
    struct hutch_error error;

    hutch_request_init(&request);
    hutch_run_program_describe(opts, w->request->program, w->request->args, &request);
    request.input = input;
    request.input_len = input_len;
    request.has_input_fd = strcmp(request.name, "-") != 0;
    request.input_fd = STDIN_FILENO;
    request.data_dir = w->request->data;
    request.keep_data = 1;
    if (!opts->json)
        request.on_output = on_output;
    request.on_result = on_result;
    request.user = w;
    return hutch_engine_submit(w->engine, &request, &w->id, &error) < 0 ? hutch_err_set(err, 0, "%s", error.message)
                                                                        : 0;
}

static void hear_signal(struct warm_run *w)
{
    struct signalfd_siginfo info;

    while (read(w->request->signal_fd, &info, sizeof(info)) == sizeof(info)) {
        w->n_signals++;
        if (w->engine)
            hutch_engine_signal(w->engine, w->id, (int)info.ssi_signo);
    }
}

int hutch_run_warm(const struct warm_run_request *request, struct run_report *ret, int *ret_lost_output,
                   struct hutch_err *err)
{
    struct warm_run w = { .request = request, .report = ret, .out.fd = STDOUT_FILENO, .err_out.fd = STDERR_FILENO };
    auto_free char *input = NULL;
    size_t input_len = 0;
    int rc, lost;

    /* The program itself is sent as a whole. */
    if (!request->opts->code && request->program->n_files == 0 &&
        hutch_fd_slurp(STDIN_FILENO, INPUT_MAX, "standard input", &input, &input_len, err) < 0)
        return -1;
    for (int i = 0; i < 2; i++)
        w.is_shown[i] = hutch_term_describe(i ? STDERR_FILENO : STDOUT_FILENO, &w.filters[i]) && !request->opts->raw;
    if (hutch_cli_engine_open_bare(request->engine, &w.engine, err) < 0)
        return -1;
    rc = submit(&w, input, input_len, err);
    while (rc == 0 && (!w.is_over || !hutch_backlog_is_empty(&w.out) || !hutch_backlog_is_empty(&w.err_out))) {
        struct pollfd p[] = {
            { .fd = w.engine ? hutch_engine_fd(w.engine) : -1, .events = POLLIN },
            { .fd = request->signal_fd, .events = POLLIN },
            { .fd = hutch_backlog_is_empty(&w.out) ? -1 : w.out.fd, .events = POLLOUT },
            { .fd = hutch_backlog_is_empty(&w.err_out) ? -1 : w.err_out.fd, .events = POLLOUT },
        };
        unsigned n_before = w.n_signals;

        if (poll(p, ARRAY_SIZE(p), -1) < 0 && errno != EINTR)
            rc = hutch_err_set(err, errno, "wait for the engine");
        if (p[1].revents)
            hear_signal(&w);
        if (w.is_over && w.n_signals != n_before) /* a reader that does not read holds us until then */
            break;
        if (w.engine)
            hutch_engine_dispatch(w.engine, NULL); /* an engine that cannot work ends the run, and its result says
                                                    * why */
        if (w.is_over) {
            hutch_engine_free(w.engine);
            w.engine = NULL;
        }
        if (p[2].revents)
            pass_on(&w, &w.out);
        if (p[3].revents)
            pass_on(&w, &w.err_out);
    }
    hutch_engine_free(w.engine);
    lost = w.out.write_errno ? w.out.write_errno : w.err_out.write_errno;
    hutch_backlog_done(&w.out);
    hutch_backlog_done(&w.err_out);
    *ret_lost_output = lost == EPIPE ? 0 : lost;
    if (rc == 0 && w.report_rc < 0) {
        *err = w.report_err;
        rc = -1;
    }
    return rc;
}

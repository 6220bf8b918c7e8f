#include "runtime/cli/run_server.h"

#include "runtime/cli/local_server.h"
#include "runtime/cli/result_read.h"
#include "runtime/cli/run_options.h"
#include "runtime/cli/run_program.h"
#include "runtime/cli/settings.h"
#include "runtime/gateway/local_peer.h"
#include "runtime/hutch.h"
#include "runtime/term/backlog.h"
#include "runtime/term/terminal.h"
#include "runtime/text/base64.h"
#include "runtime/text/http_reader.h"
#include "runtime/text/json_view.h"
#include "runtime/text/json_write.h"
#include "runtime/text/utf8.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#define HEAD_MS 15000 /* for the server to have taken the whole of the request */
#define READ_BYTES (64u << 10)

struct server_run {
    const struct server_run_request *request;
    int fd;
    struct http_reader reader;
    size_t n_read;                 /* bytes of its body that were taken */
    struct backlog out, err_out;
    struct term_filter filters[2]; /* of stdout and stderr */
    bool is_shown[2];              /* on a terminal, through its filter */
    struct run_report *report;
    bool has_result;
    int signal;                    /* that has ended it; 0: none */
};

/* ---- the request ---- */

static bool add_string(struct text_buffer *t, const char *key, const char *text, size_t len)
{
    hutch_text_addf(t, "%s\"%s\":", t->len > 1 ? "," : "", key);
    hutch_json_quote(t, text, len);
    return hutch_utf8_is_valid(text, len);
}

static bool add_args(struct text_buffer *t, const char *const *args)
{
    bool is_text = true;

    hutch_text_add_string(t, ",\"args\":[");
    for (size_t i = 0; args[i]; i++) {
        hutch_text_add_string(t, i ? "," : "");
        hutch_json_quote(t, args[i], strlen(args[i]));
        is_text &= hutch_utf8_is_valid(args[i], strlen(args[i]));
    }
    hutch_text_add_string(t, "]");
    return is_text;
}

static int write_body(const struct server_run_request *request, struct text_buffer *t, struct hutch_err *err)
{
    struct hutch_request r;
    bool is_text;

    hutch_request_init(&r);
    hutch_run_program_describe(request->opts, request->program, request->args, &r);
    if (!r.code)
        return hutch_err_set(err, 0, "a program from standard input does not go to a server");
    hutch_text_add_string(t, "{");
    is_text = add_string(t, "code", r.code, r.code_len ? r.code_len : strlen(r.code)) &&
              add_string(t, "name", r.name, strlen(r.name)) &&
              (!r.language || add_string(t, "language", r.language, strlen(r.language))) && add_args(t, r.args) &&
              hutch_local_server_add_env(t, &request->opts->env);
    if (!is_text)
        return hutch_err_set(err, 0, "the program, its arguments or variables are no text, or not of UTF-8");
    if (hutch_local_server_add_limits(t, request->opts, 0, err) < 0)
        return -1;
    hutch_text_add_string(t, "}");
    return 0;
}

static int write_request(const struct server_run_request *request, struct text_buffer *t, struct hutch_err *err)
{
    auto_free char *settings = hutch_settings_line(request->opts, request->home, false);
    struct text_buffer body = TEXT_BUFFER_INIT;
    const off_t at = lseek(STDIN_FILENO, 0, SEEK_CUR);
    int rc = -1;

    if (!settings) {
        hutch_err_set(err, 0, "the options, or what is installed, ask for more than a server can be asked for");
    } else if (write_body(request, &body, err) == 0) {
        hutch_text_add_string(t, "POST /v1/run HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                                 LOCAL_SETTINGS ": ");
        hutch_text_add_string(t, settings);
        if (request->data)
            hutch_local_server_add_path(t, LOCAL_DATA, request->data);
        if (fcntl(STDIN_FILENO, F_GETFD) >= 0)
            hutch_text_addf(t, "\r\n" LOCAL_INPUT ": %" PRIu64, at > 0 ? (uint64_t)at : 0);
        hutch_text_addf(t, "%s\r\nContent-Length: %zu\r\n\r\n",
                        request->opts->json ? "" : "\r\nAccept: application/x-ndjson", body.len);
        hutch_text_add(t, body.data, body.len);
        rc = body.is_broken || t->is_broken ? hutch_err_set(err, ENOMEM, "make the request") : 0;
    }
    hutch_text_done(&body);
    return rc;
}

/* ---- what comes ---- */

static void to_backlog(void *user, const char *data, size_t len)
{
    struct backlog *b = user;

    if (!hutch_backlog_add(b, data, len))
        b->write_errno = ENOMEM;
}

/* By views, as a text may have NUL bytes. */
static int take_output(struct server_run *s, struct json_view data, struct hutch_err *err)
{
    const struct json_view stream = hutch_json_view_get(data, "stream"), text = hutch_json_view_get(data, "text"),
                           base64 = hutch_json_view_get(data, "base64");
    const int which = hutch_json_view_is(stream, "stderr");
    struct backlog *b = which ? &s->err_out : &s->out;
    auto_free unsigned char *bytes = NULL;
    auto_free char *decoded = NULL;
    const char *from;
    size_t len;

    if (!hutch_json_view_is_string(stream) || !hutch_json_view_is_string(text))
        return hutch_err_set(err, 0, "what the server has answered is no output");
    if (hutch_json_view_text(hutch_json_view_is_string(base64) ? base64 : text, &decoded, &len, err) < 0)
        return -1;
    if (hutch_json_view_is_string(base64)) {
        bytes = hutch_base64_decode(decoded, len, &len);
        if (!bytes)
            return hutch_err_set(err, 0, "what the server has answered is no output: it is not base64");
    }
    from = bytes ? (const char *)bytes : decoded;
    if (s->is_shown[which])
        hutch_term_filter(&s->filters[which], from, len, to_backlog, b);
    else
        to_backlog(b, from, len);
    return 0;
}

/* As the engine's own result is told. */
static int take_result(struct server_run *s, const cJSON *json, struct hutch_err *err)
{
    const struct run_opts *opts = s->request->opts;
    struct hutch_run_details details;
    struct hutch_result published;
    struct run_result result;
    int rc = hutch_result_read(json, &result, err);

    s->has_result = true;
    for (int i = 0; i < 2; i++)
        if (s->is_shown[i])
            hutch_term_filter_end(&s->filters[i], to_backlog, i ? &s->err_out : &s->out);
    if (rc == 0) {
        hutch_result_publish(&result, &details, &published);
        rc = hutch_run_report_make(opts, &published, s->report, err);
    }
    hutch_result_done(&result);
    return rc;
}

static int take_result_text(struct server_run *s, const char *text, size_t len, struct hutch_err *err)
{
    cJSON *root = cJSON_ParseWithLength(text, len);
    int rc = root ? take_result(s, root, err) : hutch_err_set(err, 0, "what the server has answered is no result");

    cJSON_Delete(root);
    return rc;
}

static int take_event(struct server_run *s, const char *line, size_t len, struct hutch_err *err)
{
    struct json_view root, event, data;

    if (hutch_json_view_check("the answer of the server", 1, 1, line, len, &root, err) < 0)
        return -1;
    event = hutch_json_view_get(root, "event");
    data = hutch_json_view_get(root, "data");
    if (!hutch_json_view_is_object(data) || s->has_result)
        return hutch_err_set(err, 0, "what the server has answered is no event");
    if (hutch_json_view_is(event, "output"))
        return take_output(s, data, err);
    return hutch_json_view_is(event, "result") ? take_result_text(s, data.text, data.len, err) : 0;
}

/* --json: the server's words, as they are, and that they are the server's. */
static int take_json(struct server_run *s, struct hutch_err *err)
{
    const struct text_buffer *body = &s->reader.body;
    struct text_buffer t = TEXT_BUFFER_INIT;
    struct json_view whole;
    size_t len;

    if (take_result_text(s, body->data, body->len, err) < 0 ||
        hutch_json_view_check("the answer of the server", 1, 1, body->data, body->len, &whole, err) < 0)
        return -1;
    hutch_text_add(&t, whole.text, whole.len - 1); /* before its last brace */
    hutch_text_add_string(&t, ",\"server\":true}");
    free(s->report->json);
    s->report->json = hutch_text_take(&t, &len);
    return s->report->json ? 0 : hutch_err_set(err, ENOMEM, "print the result");
}

static int take_body(struct server_run *s, struct hutch_err *err)
{
    struct text_buffer *body = &s->reader.body;
    size_t len;

    if (s->reader.status != 200)
        return 0; /* what is wrong is looked at when all of it is there */
    if (s->request->opts->json)
        return hutch_http_reader_is_over(&s->reader) ? take_json(s, err) : 0;
    while ((len = hutch_http_reader_line(&s->reader, s->n_read)) > 0) {
        if (take_event(s, body->data + s->n_read, len, err) < 0)
            return -1;
        s->n_read += len;
    }
    if (s->n_read) { /* else there may be no body yet */
        memmove(body->data, body->data + s->n_read, body->len - s->n_read);
        body->len -= s->n_read;
        s->n_read = 0;
    }
    return 0;
}

/* 1: more can come; 0: its end. */
static int hear_server(struct server_run *s, struct hutch_err *err)
{
    char buf[READ_BYTES];
    ssize_t n = recv(s->fd, buf, sizeof(buf), MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 1;
    if (n <= 0)
        return 0;
    if (hutch_http_reader_feed(&s->reader, buf, (size_t)n, err) < 0 || take_body(s, err) < 0)
        return -1;
    return !hutch_http_reader_is_over(&s->reader);
}

/* Its connection closes, and the server ends the run. */
static void hear_signal(struct server_run *s)
{
    struct signalfd_siginfo info;

    while (read(s->request->signal_fd, &info, sizeof(info)) == sizeof(info))
        s->signal = (int)info.ssi_signo;
}

/* How long to wait, in milliseconds: the head of the answer comes when the server has taken the request. */
static int patience(const struct server_run *s, double until_ms)
{
    double left = until_ms - hutch_clock_ms();

    return s->reader.status || s->signal ? -1 : left > 0 ? (int)left + 1 : 0;
}

static int hear(struct server_run *s, struct hutch_err *err)
{
    const double until_ms = hutch_clock_ms() + HEAD_MS;
    bool is_open = true;

    while (is_open || !hutch_backlog_is_empty(&s->out) || !hutch_backlog_is_empty(&s->err_out)) {
        struct pollfd p[] = {
            { .fd = is_open ? s->fd : -1, .events = POLLIN },
            { .fd = s->request->signal_fd, .events = POLLIN },
            { .fd = hutch_backlog_is_empty(&s->out) ? -1 : s->out.fd, .events = POLLOUT },
            { .fd = hutch_backlog_is_empty(&s->err_out) ? -1 : s->err_out.fd, .events = POLLOUT },
        };

        int n = poll(p, ARRAY_SIZE(p), patience(s, until_ms));

        if (n < 0 && errno != EINTR)
            return hutch_err_set(err, errno, "wait for the server");
        if (n == 0)
            return hutch_err_set(err, 0, "the server does not answer; it may run this later (hutch run --no-server "
                                         "runs without it)");
        if (p[1].revents)
            hear_signal(s);
        if (s->signal)
            return 0;
        if (p[0].revents) {
            int rc = hear_server(s, err);

            if (rc < 0)
                return -1;
            is_open = rc > 0;
        }
        if (p[2].revents)
            hutch_backlog_pass_on(&s->out);
        if (p[3].revents)
            hutch_backlog_pass_on(&s->err_out);
        if (is_open && (s->out.write_errno || s->err_out.write_errno)) { /* its reader is gone, or memory was short */
            s->signal = SIGPIPE;
            return 0;
        }
    }
    return 0;
}

/* ---- its end ---- */

static void refuse(const struct server_run *s, struct hutch_err *err)
{
    cJSON *root = cJSON_ParseWithLength(s->reader.body.data ? s->reader.body.data : "", s->reader.body.len);
    const cJSON *error = cJSON_GetObjectItemCaseSensitive(root, "error");
    const char *message = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(error, "message"));

    hutch_err_set(err, 0, "the server refused: %s (%u)", message ? message : "it does not say why", s->reader.status);
    cJSON_Delete(root);
}

/* As a run without a server is told of that is ended from outside. */
static int report_end(struct server_run *s, struct hutch_err *err)
{
    struct hutch_run_details details;
    struct hutch_result published;
    struct run_result result;
    const char *abbrev = sigabbrev_np(s->signal);
    int rc;

    hutch_result_init(&result);
    result.verdict = HUTCH_KILLED;
    result.signal = s->signal == SIGPIPE ? SIGKILL : s->signal;
    if (s->signal == SIGPIPE)
        snprintf(result.message, sizeof(result.message), "nobody reads its output any more");
    else
        snprintf(result.message, sizeof(result.message), "hutch was told to stop by SIG%s", abbrev ? abbrev : "?");
    hutch_result_publish(&result, &details, &published);
    rc = hutch_run_report_make(s->request->opts, &published, s->report, err);
    hutch_result_done(&result);
    return rc < 0 ? -1 : 1;
}

static int conclude(struct server_run *s, struct hutch_err *err)
{
    if (s->signal)
        return report_end(s, err);
    if (s->reader.status && s->reader.status != 200) {
        refuse(s, err);
        return 0;
    }
    if (s->has_result)
        return 1;
    return hutch_err_set(err, 0, "the server went away before the run was over; it may have run (hutch run "
                                 "--no-server runs without it)");
}

int hutch_run_by_server(const struct server_run_request *request, struct run_report *ret, int *ret_lost_output,
                        struct hutch_err *err)
{
    struct server_run s = { .request = request, .fd = -1, .report = ret, .out.fd = STDOUT_FILENO,
                            .err_out.fd = STDERR_FILENO, .reader = HTTP_READER_INIT };
    struct text_buffer text = TEXT_BUFFER_INIT;
    int rc = 0, lost;

    if (hutch_local_server_connect(&s.fd, err) < 0 || write_request(request, &text, err) < 0)
        goto out;
    for (int i = 0; i < 2; i++)
        s.is_shown[i] = hutch_term_describe(i ? STDERR_FILENO : STDOUT_FILENO, &s.filters[i]) && !request->opts->raw;
    /* A server that has closed the connection may have answered before that, so its answer is looked for. After another
     * error the program is run without the server, as it runs no part of a request. */
    if (hutch_fd_write_all(s.fd, text.data, text.len) < 0 && errno != EPIPE && errno != ECONNRESET) {
        hutch_err_set(err, errno, "send the run to the server");
        goto out;
    }
    rc = hear(&s, err);
    if (rc == 0)
        rc = conclude(&s, err);
    lost = s.out.write_errno ? s.out.write_errno : s.err_out.write_errno;
    *ret_lost_output = lost == EPIPE ? 0 : lost;
out:
    hutch_fd_closep(&s.fd);
    hutch_text_done(&text);
    hutch_http_reader_done(&s.reader);
    hutch_backlog_done(&s.out);
    hutch_backlog_done(&s.err_out);
    return rc;
}

#include "runtime/fusion/cells.h"

#include "runtime/fusion/answer.h"
#include "runtime/fusion/request.h"
#include "runtime/gateway/exchange.h"
#include "runtime/gateway/host.h"
#include "runtime/gateway/outputs.h"
#include "runtime/gateway/session_api.h"
#include "runtime/gateway/sessions.h"
#include "runtime/hutch.h"
#include "runtime/text/json_view.h"
#include "runtime/text/json_write.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define USUAL_TOTAL_MS 45000
#define END_MS 60000                  /* of the session, behind the total */
#define MAX_OUTPUTS (64u << 20)       /* of all cells together */

/* What an exchange has besides while its cells run. */
struct fusion_cells {
    struct fusion_request request;
    struct gateway_session *session; /* NULL: it was ended */
    uint64_t number;                 /* the engine's */
    uint64_t cell_ms;                /* the policy's limit of one; 0: none */
    double start_ms;
    size_t n_begun;
    struct text_buffer outputs;      /* "{…},{…}", of the cells that are over */
};

static void on_free(struct exchange *x)
{
    struct fusion_cells *work = x->work;

    hutch_text_done(&work->outputs);
    hutch_fusion_request_done(&work->request);
}

static void end_session(struct exchange *x)
{
    struct fusion_cells *work = x->work;

    if (work->session)
        hutch_session_api_end(x, work->session);
    work->session = NULL;
}

/* ---- the end ---- */

/* A name as hutch_session_open_file() has it, relative to /mnt/data. */
static const char *relative_name(const char *path)
{
    static const char data[] = "/mnt/data/";

    path = hutch_fusion_request_name(path);
    return strncmp(path, data, sizeof(data) - 1) == 0 ? path + sizeof(data) - 1 : path;
}

/* What is no regular file is left out. */
static void fetch_files(struct exchange *x, struct fusion_files *files)
{
    const struct fusion_cells *work = x->work;

    for (size_t i = 0; work->session && i < work->request.n_fetch; i++) {
        auto_fd fd = hutch_session_open_file(hutch_exchange_engine(x), work->number,
                                             relative_name(work->request.fetch[i]), O_RDONLY, NULL);
        struct stat st;

        if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
            hutch_fusion_files_add(files, work->request.fetch[i], fd, (uint64_t)st.st_size);
    }
}

/* @status: of the whole, @step: of the interpreter. Cells are told of only where all of them were executed. */
static void finish(struct exchange *x, const char *status, enum fusion_step step, int code, const char *message)
{
    struct fusion_cells *work = x->work;
    struct text_buffer t = TEXT_BUFFER_INIT;
    struct fusion_files files = FUSION_FILES_INIT;
    bool is_whole = strcmp(status, "Success") == 0;

    fetch_files(x, &files);
    end_session(x);
    if (files.is_over) {
        status = "SandboxError";
        message = FUSION_TOO_MUCH;
    }
    hutch_text_addf(&t, "{\"status\":\"%s\",\"message\":", status);
    hutch_json_quote(&t, message, strlen(message));
    hutch_text_add_string(&t, ",\"driver\":");
    hutch_fusion_add_step(&t, step, (hutch_clock_ms() - work->start_ms) / 1000, code, "", 0, message, strlen(message));
    hutch_text_add_string(&t, ",\"cells\":[");
    if (is_whole && work->outputs.data)
        hutch_text_add(&t, work->outputs.data, work->outputs.len);
    hutch_text_add_string(&t, "],\"executor_pod_name\":null,\"files\":{");
    if (files.text.data)
        hutch_text_add(&t, files.text.data, files.text.len);
    hutch_text_add_string(&t, "}}\n");
    t.is_broken |= files.text.is_broken || work->outputs.is_broken;
    hutch_text_done(&files.text);
    hutch_exchange_answer_json(x, 200, &t);
}

static void finish_trouble(struct exchange *x, const char *message)
{
    finish(x, "SandboxError", FUSION_FAILED, 0, message);
}

static void finish_timeout(struct exchange *x)
{
    finish(x, "Failed", FUSION_TIMED_OUT, 0, "the cells took longer than they may");
}

/* ---- outputs ---- */

static void add_display(struct text_buffer *t, struct json_view outputs)
{
    struct json_walk walk = hutch_json_view_walk(outputs);
    struct json_view output, type, data;
    const char *comma = "";

    hutch_text_add_string(t, "\"display\":[");
    while (hutch_json_view_next(&walk, NULL, &output)) {
        type = hutch_json_view_get(output, "output_type");
        data = hutch_json_view_get(output, "data");
        if ((!hutch_json_view_is(type, "display_data") && !hutch_json_view_is(type, "execute_result")) || !data.text)
            continue;
        hutch_text_add_string(t, comma);
        hutch_text_add(t, data.text, data.len);
        comma = ",";
    }
    hutch_text_add_string(t, "],");
}

static void add_error(struct text_buffer *t, struct json_view outputs)
{
    static const char *const keys[] = { "ename", "evalue", "traceback" };
    struct json_view error = hutch_outputs_last(outputs, "error");

    hutch_text_add_string(t, "\"error\":[");
    for (size_t i = 0; error.text && i < ARRAY_SIZE(keys); i++) {
        struct json_view value = hutch_json_view_get(error, keys[i]);

        hutch_text_addf(t, "%s\"%s\":", i ? "," : "{", keys[i]);
        hutch_text_add(t, value.text ? value.text : "null", value.text ? value.len : 4);
    }
    hutch_text_add_string(t, error.text ? "}]" : "]");
}

/* False: there is no room for it. */
static bool add_cell(struct text_buffer *t, const char *json)
{
    struct json_view outputs;
    struct hutch_err ignored;
    size_t len = strlen(json);

    if (len > MAX_OUTPUTS || t->len > MAX_OUTPUTS - len ||
        hutch_json_view_check("outputs", 1, 1, json, len, &outputs, &ignored) < 0)
        return false;
    hutch_text_add_string(t, t->len ? ",{\"stdout\":" : "{\"stdout\":");
    hutch_outputs_add_stream(t, outputs, "stdout");
    hutch_text_add_string(t, ",\"stderr\":");
    hutch_outputs_add_stream(t, outputs, "stderr");
    hutch_text_add_string(t, ",");
    add_display(t, outputs);
    add_error(t, outputs);
    hutch_text_add_string(t, "}");
    return true;
}

/* ---- cells ---- */

static void execute_next(struct exchange *x);

static void finish_death(struct exchange *x, const struct hutch_cell_result *result)
{
    if (result->verdict == HUTCH_SETUP_FAILED)
        finish_trouble(x, result->message);
    else
        finish(x, "Failed", FUSION_FINISHED, -9, result->message);
}

static void on_cell(void *user, uint64_t number, const struct hutch_cell_result *result)
{
    struct exchange *x = user;
    struct fusion_cells *work = x->work;

    (void)number;
    hutch_session_api_count_cell(x, work->session, result);
    if (result->verdict == HUTCH_TIMEOUT || result->verdict == HUTCH_CPU_TIME)
        finish_timeout(x);
    else if (result->interpreter_died || result->verdict == HUTCH_SETUP_FAILED || result->verdict == HUTCH_KILLED)
        finish_death(x, result);
    else if (!add_cell(&work->outputs, result->outputs))
        finish_trouble(x, "the outputs of the cells are too large together");
    else
        execute_next(x);
}

/* False: they are over. */
static bool set_time(const struct fusion_cells *work, struct hutch_cell *cell)
{
    double left = (double)work->request.total_ms - (hutch_clock_ms() - work->start_ms);

    if (left < 1)
        return false;
    cell->timeout_ms = (uint64_t)left;
    if (work->cell_ms && cell->timeout_ms > work->cell_ms)
        cell->timeout_ms = work->cell_ms;
    return true;
}

static bool execute(struct exchange *x, struct hutch_cell *cell)
{
    struct fusion_cells *work = x->work;
    struct hutch_error error;

    cell->user = x;
    if (!set_time(work, cell))
        finish_timeout(x);
    else if (hutch_session_execute(hutch_exchange_engine(x), work->number, cell, &error) < 0)
        finish_trouble(x, error.message);
    else
        return true;
    return false;
}

static void execute_next(struct exchange *x)
{
    static const char with_nul[] = "compile('\\0', '<cell>', 'exec')"; /* says what Python thinks of NUL */
    struct fusion_cells *work = x->work;
    struct hutch_cell cell;
    const struct fusion_text *code;

    if (work->n_begun == work->request.n_cells) {
        finish(x, "Success", FUSION_FINISHED, 0, "");
        return;
    }
    code = &work->request.cells[work->n_begun++];
    hutch_cell_init(&cell);
    cell.code = strlen(code->data) == code->len ? code->data : with_nul;
    cell.on_result = on_cell;
    execute(x, &cell);
}

/* ---- the begin ---- */

static int put_file(struct exchange *x, const struct hutch_file *file, struct hutch_error *error)
{
    const struct fusion_cells *work = x->work;
    auto_fd fd = hutch_session_open_file(hutch_exchange_engine(x), work->number, relative_name(file->path), O_WRONLY,
                                         error);

    if (fd < 0)
        return -1;
    if (file->len && hutch_fd_write_all(fd, file->data, file->len) < 0) {
        *error = (struct hutch_error){ .code = errno, .message = "there is no room for the files" };
        return -1;
    }
    return 0;
}

/* The sandbox is there, so it takes files. */
static void on_sandbox(void *user, uint64_t number, const struct hutch_cell_result *result)
{
    struct exchange *x = user;
    const struct fusion_cells *work = x->work;
    struct hutch_error error;

    (void)number;
    if (result->verdict != HUTCH_OK) {
        finish_death(x, result);
        return;
    }
    for (size_t i = 0; i < work->request.n_files; i++) {
        if (put_file(x, &work->request.files[i], &error) < 0) {
            end_session(x);
            hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "request: files: %s", error.message);
            return;
        }
    }
    execute_next(x);
}

static void on_gone(struct exchange *x)
{
    end_session(x);
}

static bool fits(const struct fusion_request *r, const struct hutch_limits *limits)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < r->n_files; i++)
        bytes += r->files[i].len;
    return !limits->data_bytes || bytes <= limits->data_bytes;
}

static void begin(struct exchange *x, struct fusion_cells *work)
{
    struct hutch_limits limits = { .size = sizeof(limits) };
    struct hutch_session_options options;
    struct hutch_cell cell;

    hutch_exchange_policy(x, &limits);
    if (!fits(&work->request, &limits)) {
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "request: files: they are larger than the policy's limit");
        return;
    }
    work->cell_ms = limits.wall_ms;
    hutch_session_options_init(&options);
    options.lifetime_ms = work->request.total_ms + END_MS;
    if (!limits.memory_bytes || work->request.memory_bytes < limits.memory_bytes)
        options.memory_bytes = work->request.memory_bytes;
    work->session = hutch_session_api_begin(x, &options);
    if (!work->session)
        return;
    work->session->is_closing = true; /* nobody else's business */
    work->number = work->session->number;
    hutch_exchange_wait(x, on_gone);
    hutch_cell_init(&cell);
    cell.code = "pass";
    cell.silent = 1;
    cell.on_result = on_sandbox;
    execute(x, &cell);
}

void hutch_fusion_run_cells(struct exchange *x)
{
    struct fusion_cells *work = calloc(1, sizeof(*work));
    struct hutch_err err;

    x->work = work;
    if (!work) {
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the cells");
        return;
    }
    x->on_free = on_free;
    work->start_ms = hutch_clock_ms();
    if (hutch_fusion_request_parse_cells(x->body.data, x->body.len, &work->request, &err) < 0) {
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
        return;
    }
    if (!work->request.total_ms)
        work->request.total_ms = USUAL_TOTAL_MS;
    if (work->request.trouble.msg[0])
        finish_trouble(x, work->request.trouble.msg);
    else
        begin(x, work);
}

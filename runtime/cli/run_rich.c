#include "runtime/cli/run_rich.h"

#include "runtime/cli/engine.h"
#include "runtime/cli/run_report.h"
#include "runtime/cli/say.h"
#include "runtime/hutch.h"
#include "runtime/term/show.h"
#include "runtime/text/nbjson.h"
#include "sandbox/fd.h"
#include "sandbox/inside.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

struct rich_run {
    const struct rich_run_request *request;
    struct hutch_engine *engine;
    struct cell_show show;
    uint64_t id;
    bool is_over;
    unsigned n_signals;
    int status;
    char *directory; /* owned; where images go, NULL: not decided yet */
    int dirfd;       /* owned; of it, -1: not open */
};

/* A run that left no file of its own has no directory, so its images get one. */
static int open_directory(struct rich_run *run, struct hutch_err *err)
{
    if (!run->directory) {
        auto_free char *outputs = NULL;

        if (asprintf(&outputs, "%s/outputs", run->request->engine->options.home) < 0)
            return hutch_err_set(err, ENOMEM, "make a directory for images");
        if (mkdir(outputs, 0700) < 0 && errno != EEXIST)
            return hutch_err_set(err, errno, "make the directory '%s'", outputs);
        if (asprintf(&run->directory, "%s/imagesXXXXXX", outputs) < 0) {
            run->directory = NULL;
            return hutch_err_set(err, ENOMEM, "make a directory for images");
        }
        if (!mkdtemp(run->directory)) {
            hutch_err_set(err, errno, "make a directory in '%s'", outputs);
            free(run->directory);
            run->directory = NULL;
            return -1;
        }
    }
    run->dirfd = open(run->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return run->dirfd < 0 ? hutch_err_set(err, errno, "open the directory '%s'", run->directory) : 0;
}

static int save_image(void *user, const char *name, const void *data, size_t len, struct hutch_err *err)
{
    struct rich_run *run = user;
    struct stat dir;
    auto_fd fd = -1;

    if (run->dirfd < 0 && open_directory(run, err) < 0) {
        err->errnum = 0;
        return -1;
    }
    fd = openat(run->dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return hutch_err_set(err, errno, "'%s'", name);
    /* What root makes belongs to the owner of the directory; other callers are that owner. */
    if (geteuid() == 0 && (fstat(run->dirfd, &dir) < 0 || fchown(fd, dir.st_uid, dir.st_gid) < 0))
        return hutch_err_set(err, 0, "give away '%s': %s", name, strerror(errno));
    return hutch_fd_write_all(fd, data, len) < 0 ? hutch_err_set(err, 0, "write '%s': %s", name, strerror(errno)) : 0;
}

static void on_output(void *user, uint64_t id, int stream, const char *data, size_t len)
{
    struct rich_run *run = user;

    (void)id;
    hutch_cell_show_bytes(&run->show, stream, data, len);
}

static void show_outputs(struct rich_run *run, const struct hutch_cell_result *cell)
{
    cJSON *outputs, *output;
    struct hutch_err err;

    if (hutch_nbjson_parse("the outputs", cell->outputs, strlen(cell->outputs), &NBJSON_NOTEBOOK, &outputs, &err) < 0) {
        hutch_cell_show_say(&run->show, "%s", err.msg);
        return;
    }
    cJSON_ArrayForEach(output, outputs) {
        const cJSON *type = cJSON_GetObjectItemCaseSensitive(output, "output_type");

        if (!cJSON_IsString(type) || strcmp(type->valuestring, "stream") != 0) /* those came as they came */
            hutch_cell_show_json(&run->show, output);
    }
    cJSON_Delete(outputs);
    hutch_cell_show_end(&run->show);
}

static void print_text(struct rich_run *run, char *text, const char *end)
{
    if (text) {
        hutch_cell_show_raw(&run->show, text, strlen(text));
        hutch_cell_show_raw(&run->show, end, strlen(end));
    } else {
        run->show.is_out_of_memory = true;
    }
    free(text);
}

/* A program that ends its own interpreter is no error of a run; as a cell it has not come to its end. */
static void tell_death(struct rich_run *run, const struct hutch_result *r)
{
    char why[80];

    if (!r->cell || !r->cell->interpreter_died || r->message[0])
        return;
    if (r->signal)
        snprintf(why, sizeof(why), "the interpreter died of SIG%s",
                 sigabbrev_np(r->signal) ? sigabbrev_np(r->signal) : "RT");
    else
        snprintf(why, sizeof(why), "the interpreter ended with exit code %d before the end of the program",
                 r->exit_code);
    if (run->request->form == RICH_LLM) {
        hutch_cell_show_raw(&run->show, "[", 1);
        hutch_cell_show_raw(&run->show, why, strlen(why));
        hutch_cell_show_raw(&run->show, "]\n", 2);
    } else {
        hutch_cell_show_say(&run->show, "%s", why);
    }
}

static void on_result(void *user, uint64_t id, const struct hutch_result *result)
{
    struct rich_run *run = user;
    bool is_quiet = run->request->quiet;

    (void)id;
    run->is_over = true;
    run->status = hutch_run_exit_status(result);
    if (run->request->form == RICH_JSON) {
        auto_free char *json = hutch_result_to_json(result);

        print_text(run, json ? hutch_say_plain_json(json) : NULL, "");
        return;
    }
    run->directory = result->directory ? strdup(result->directory) : NULL;
    if (result->cell)
        show_outputs(run, result->cell);
    if (result->cell && run->request->form == RICH_LLM) {
        char *text = hutch_cell_result_to_text(result->cell, run->request->llm_budget);

        print_text(run, text, text && *text && text[strlen(text) - 1] != '\n' ? "\n" : "");
    }
    tell_death(run, result);
    if (result->message[0])
        hutch_cell_show_say(&run->show, "%s", result->message);
    if (!is_quiet && run->directory && !run->request->data)
        hutch_cell_show_say(&run->show, "files written to " INSIDE_DATA_DIR " are in %s", run->directory);
}

static int submit(struct rich_run *run, struct hutch_err *err)
{
    struct hutch_request request;
    struct hutch_error error;

    hutch_request_init(&request);
    request.code = run->request->code;
    request.code_len = run->request->code_len;
    request.rich = 1;
    request.data_dir = run->request->data;
    request.keep_data = 1;
    if (run->request->form == RICH_SHOWN)
        request.on_output = on_output;
    request.on_result = on_result;
    request.user = run;
    return hutch_engine_submit(run->engine, &request, &run->id, &error) < 0 ? hutch_err_set(err, 0, "%s", error.message)
                                                                            : 0;
}

static void hear_signal(struct rich_run *run)
{
    struct signalfd_siginfo info;

    while (read(run->request->signal_fd, &info, sizeof(info)) == sizeof(info)) {
        run->n_signals++;
        if (!run->is_over)
            hutch_engine_signal(run->engine, run->id, (int)info.ssi_signo);
    }
}

static void pass_on(struct rich_run *run, struct backlog *b, short revents)
{
    if (!revents)
        return;
    hutch_backlog_pass_on(b);
    if (b->write_errno && !run->is_over) /* its reader is gone, so there is no reason to go on */
        hutch_engine_cancel(run->engine, run->id);
}

static int loop(struct rich_run *run, struct hutch_err *err)
{
    struct backlog *out = &run->show.streams[0].backlog, *err_out = &run->show.streams[1].backlog;

    while (!run->is_over || !hutch_cell_show_is_written(&run->show)) {
        bool is_behind = hutch_cell_show_is_behind(&run->show);
        struct pollfd p[] = {
            { .fd = is_behind ? -1 : hutch_engine_fd(run->engine), .events = POLLIN },
            { .fd = run->request->signal_fd, .events = POLLIN },
            { .fd = hutch_backlog_is_empty(out) ? -1 : out->fd, .events = POLLOUT },
            { .fd = hutch_backlog_is_empty(err_out) ? -1 : err_out->fd, .events = POLLOUT },
        };
        unsigned n_before = run->n_signals;
        int n = poll(p, ARRAY_SIZE(p), is_behind ? BACKLOG_PAUSE_MS : -1);

        if (n < 0 && errno != EINTR)
            return hutch_err_set(err, errno, "wait for the engine");
        if (p[1].revents)
            hear_signal(run);
        if (run->is_over && run->n_signals != n_before) /* a reader that does not read holds us until then */
            break;
        if (p[0].revents || n == 0)
            hutch_engine_dispatch(run->engine, NULL); /* an engine that cannot work ends the run, and its result says
                                                       * why */
        pass_on(run, out, p[2].revents);
        pass_on(run, err_out, p[3].revents);
    }
    if (run->show.is_out_of_memory)
        return hutch_err_set(err, ENOMEM, "show what the program has shown");
    for (int i = 0; i < 2; i++)
        if (run->show.streams[i].backlog.write_errno && run->show.streams[i].backlog.write_errno != EPIPE)
            return hutch_err_set(err, run->show.streams[i].backlog.write_errno, "pass on the program's output");
    return run->status;
}

int hutch_run_rich(const struct rich_run_request *request, struct hutch_err *err)
{
    struct rich_run run = { .request = request, .dirfd = -1 };
    int status = -1;

    hutch_cell_show_init(&run.show, STDOUT_FILENO, STDERR_FILENO);
    run.show.only_images = request->form == RICH_LLM; /* the text has the rest */
    run.show.save_image = save_image;
    run.show.user = &run;
    if (hutch_cli_engine_open(request->engine, &run.engine, err) == 0 && submit(&run, err) == 0)
        status = loop(&run, err);
    hutch_engine_free(run.engine);
    hutch_cell_show_done(&run.show);
    hutch_fd_closep(&run.dirfd);
    free(run.directory);
    return status;
}

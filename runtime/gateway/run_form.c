#include "runtime/gateway/run_form.h"

#include "sandbox/fd.h"

#include <string.h>

static int add_file(struct run_form *f, const char *path, struct hutch_err *err)
{
    struct hutch_file *files;
    struct text_buffer *data;

    if (f->n_files == RUN_FORM_MAX_FILES)
        return hutch_err_set(err, 0, "there are more than %d files", RUN_FORM_MAX_FILES);
    files = reallocarray(f->files, f->n_files + 1, sizeof(*files));
    if (files)
        f->files = files;
    data = reallocarray(f->data, f->n_files + 1, sizeof(*data));
    if (data)
        f->data = data;
    if (!files || !data)
        return hutch_err_set(err, ENOMEM, "take a file");
    data[f->n_files] = (struct text_buffer)TEXT_BUFFER_INIT;
    files[f->n_files] = (struct hutch_file){ .path = strdup(path) };
    if (!files[f->n_files].path)
        return hutch_err_set(err, ENOMEM, "take a file");
    f->part = &data[f->n_files++];
    return 0;
}

static int on_part(void *user, const char *name, const char *filename, struct hutch_err *err)
{
    struct run_form *f = user;

    if (strcmp(name, "request") == 0) { /* some clients give each part a file's name */
        f->part = &f->request;
        return f->n_requests++ ? hutch_err_set(err, 0, "there are two parts 'request'") : 0;
    }
    if (strcmp(name, "file") != 0)
        return hutch_err_set(err, 0, "there is a part '%.100s': parts are 'request', and 'file' with a filename", name);
    if (!filename || !filename[0])
        return hutch_err_set(err, 0, "a part 'file' has no filename, which is to be the file's path");
    return add_file(f, filename, err);
}

static int on_data(void *user, const char *data, size_t len, struct hutch_err *err)
{
    struct run_form *f = user;

    if (f->part == &f->request && f->request.len + len > f->max_request)
        return hutch_err_set(err, 0, "the part 'request' has more than %zu bytes", f->max_request);
    hutch_text_add(f->part, data, len);
    return f->part->is_broken ? hutch_err_set(err, ENOMEM, "take a part of the form") : 0;
}

static int on_end(void *user, struct hutch_err *err)
{
    (void)err;
    ((struct run_form *)user)->part = NULL;
    return 0;
}

struct run_form *hutch_run_form_create(const char *type, size_t max_request, struct hutch_err *err)
{
    static const struct multipart_events events = { on_part, on_data, on_end };
    struct run_form *f = calloc(1, sizeof(*f));

    if (!f) {
        hutch_err_set(err, ENOMEM, "take a form");
        return NULL;
    }
    f->max_request = max_request;
    if (hutch_multipart_open(&f->parser, type, &events, f, err) < 0) {
        free(f);
        return NULL;
    }
    return f;
}

int hutch_run_form_take(struct run_form *f, const char *data, size_t len, struct hutch_err *err)
{
    return hutch_multipart_feed(&f->parser, data, len, err) < 0 ? hutch_err_wrap(err, "form") : 0;
}

int hutch_run_form_finish(struct run_form *f, struct hutch_err *err)
{
    if (hutch_multipart_finish(&f->parser, err) < 0)
        return hutch_err_wrap(err, "form");
    if (!f->n_requests)
        return hutch_err_set(err, 0, "form: the part 'request' is missing, which has the JSON");
    for (size_t i = 0; i < f->n_files; i++) {
        f->files[i].data = f->data[i].data ? f->data[i].data : "";
        f->files[i].len = f->data[i].len;
    }
    return 0;
}

void hutch_run_form_free(struct run_form *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < f->n_files; i++) {
        free((char *)f->files[i].path);
        hutch_text_done(&f->data[i]);
    }
    free(f->files);
    free(f->data);
    hutch_text_done(&f->request);
    free(f);
}

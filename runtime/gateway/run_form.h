/* run_form.h - the body of POST /v1/run as multipart/form-data: a part "request" with the JSON, and files. */
#ifndef HUTCH_GATEWAY_RUN_FORM_H
#define HUTCH_GATEWAY_RUN_FORM_H

#include "runtime/gateway/multipart.h"
#include "runtime/hutch.h"
#include "runtime/text/buffer.h"
#include "sandbox/err.h"

#include <stddef.h>

#define RUN_FORM_MAX_FILES 1024

struct run_form {
    struct multipart parser;
    struct text_buffer request;
    size_t max_request;        /* bytes of that */
    struct hutch_file *files;  /* owned, with the paths; the data as they come */
    struct text_buffer *data;  /* owned, of each file */
    size_t n_files;
    struct text_buffer *part;  /* that of the part which is being read; NULL: none */
    size_t n_requests;
};

/* NULL: memory was short, or the Content-Type is none. */
struct run_form *hutch_run_form_create(const char *type, size_t max_request, struct hutch_err *err);
int hutch_run_form_take(struct run_form *f, const char *data, size_t len, struct hutch_err *err);
/* The whole has come: request and files are complete. -1: something is missing. */
int hutch_run_form_finish(struct run_form *f, struct hutch_err *err);
void hutch_run_form_free(struct run_form *f);

#endif

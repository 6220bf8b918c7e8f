/* request.h - the JSON of POST /run_code and POST /run_jupyter, read as SandboxFusion's own server reads it: keys that
 * are not known are ignored, null stands for what a key is without it, and a number may be a text.
 *
 * Every text may hold NUL. Half of a surrogate pair is refused. */
#ifndef HUTCH_FUSION_REQUEST_H
#define HUTCH_FUSION_REQUEST_H

#include "runtime/hutch.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FUSION_MAX_FILES 1024
#define FUSION_MAX_FETCH 64
#define FUSION_MAX_CELLS 4096

struct fusion_text {
    char *data; /* owned; NUL-terminated */
    size_t len;
};

struct fusion_request {
    struct fusion_text code, language, input; /* data is NULL where there was none */
    struct fusion_text *cells;                /* owned */
    size_t n_cells;
    struct hutch_file *files;                 /* owned, with path and data; names without "./" */
    size_t n_files;
    char **fetch;                             /* owned, as it was asked for; ends with NULL */
    size_t n_fetch;
    uint64_t compile_ms, run_ms, total_ms;    /* 0: not said */
    uint64_t memory_bytes;                    /* 0: no limit is asked for */
    /* Nothing is wrong with the request, but it cannot be done: one sentence, else "". */
    struct hutch_err trouble;
};

/* hutch_fusion_request_done() in any case. */
int hutch_fusion_request_parse_run(const char *text, size_t len, struct fusion_request *ret, struct hutch_err *err);
int hutch_fusion_request_parse_cells(const char *text, size_t len, struct fusion_request *ret, struct hutch_err *err);
void hutch_fusion_request_done(struct fusion_request *r);

/* @path without "./" at its begin, which the engine takes no name with. */
const char *hutch_fusion_request_name(const char *path);

#endif

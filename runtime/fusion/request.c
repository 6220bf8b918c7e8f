#include "runtime/fusion/request.h"

#include "runtime/text/base64.h"
#include "runtime/text/json_scan.h"
#include "runtime/text/json_view.h"
#include "sandbox/fd.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_DEPTH 64 /* of what is ignored */
#define MAX_SECONDS 1e9
#define MAX_MEMORY_MB 1e9
#define MAX_NUMBER_LEN 32

/* One key and who reads it. A reader is called for what is there and is not null. */
struct fusion_key {
    const char *name;
    bool is_required;
    int (*read)(const char *name, struct json_view value, struct fusion_request *r, struct hutch_err *err);
};
#define MAX_KEYS 10

static int refuse(const char *name, struct hutch_err *err, const char *why)
{
    return hutch_err_set(err, 0, "request: %s: %s", name, why);
}

/* ---- texts ---- */

static int read_text(const char *name, struct json_view value, struct fusion_text *ret, struct hutch_err *err)
{
    if (!hutch_json_view_is_string(value))
        return refuse(name, err, "Input should be a valid string");
    free(ret->data);
    *ret = (struct fusion_text){ NULL, 0 };
    return hutch_json_view_text(value, &ret->data, &ret->len, err);
}

static int read_code(const char *name, struct json_view value, struct fusion_request *r, struct hutch_err *err)
{
    return read_text(name, value, &r->code, err);
}

static int read_language(const char *name, struct json_view value, struct fusion_request *r, struct hutch_err *err)
{
    return read_text(name, value, &r->language, err);
}

static int read_stdin(const char *name, struct json_view value, struct fusion_request *r, struct hutch_err *err)
{
    return read_text(name, value, &r->input, err);
}

static int read_kernel(const char *name, struct json_view value, struct fusion_request *r, struct hutch_err *err)
{
    (void)r;
    return hutch_json_view_is(value, "python3") ? 0 : refuse(name, err, "Input should be 'python3'");
}

static int read_cells(const char *name, struct json_view value, struct fusion_request *r, struct hutch_err *err)
{
    struct json_walk walk = hutch_json_view_walk(value);
    size_t n = hutch_json_view_is_array(value) ? hutch_json_view_count(value) : SIZE_MAX;
    struct json_view cell;

    if (n > FUSION_MAX_CELLS)
        return refuse(name, err, n == SIZE_MAX ? "Input should be a valid list" : "there are too many cells");
    r->cells = calloc(n + 1, sizeof(*r->cells));
    if (!r->cells)
        return hutch_err_set(err, ENOMEM, "read the cells");
    while (hutch_json_view_next(&walk, NULL, &cell)) {
        if (read_text(name, cell, &r->cells[r->n_cells], err) < 0)
            return -1;
        r->n_cells++;
    }
    return 0;
}

/* ---- numbers ---- */

/* A number, or a text that is one. No other spelling of strtod(3)'s: hexadecimal, nan, infinity. */
static int read_number(const char *name, struct json_view value, double max, double *ret, struct hutch_err *err)
{
    char text[MAX_NUMBER_LEN + 1], *end;
    size_t quote = hutch_json_view_is_string(value), len = value.len - 2 * quote;

    if (len == 0 || len > MAX_NUMBER_LEN)
        return refuse(name, err, "Input should be a valid number");
    memcpy(text, value.text + quote, len);
    text[len] = '\0';
    *ret = strtod(text, &end);
    if (strspn(text, "0123456789+-.eE") != len || *end || !isfinite(*ret))
        return refuse(name, err, "Input should be a valid number");
    if (*ret > max)
        return refuse(name, err, "Input should be less");
    return 0;
}

/* In whole milliseconds, rounded up. */
static int read_seconds(const char *name, struct json_view value, uint64_t *ret, struct hutch_err *err)
{
    double seconds;

    if (read_number(name, value, MAX_SECONDS, &seconds, err) < 0)
        return -1;
    if (seconds <= 0)
        return refuse(name, err, "Input should be greater than 0");
    *ret = (uint64_t)ceil(seconds * 1000);
    return 0;
}

static int read_compile_timeout(const char *name, struct json_view value, struct fusion_request *r,
                                struct hutch_err *err)
{
    return read_seconds(name, value, &r->compile_ms, err);
}

static int read_run_timeout(const char *name, struct json_view value, struct fusion_request *r, struct hutch_err *err)
{
    return read_seconds(name, value, &r->run_ms, err);
}

static int read_total_timeout(const char *name, struct json_view value, struct fusion_request *r, struct hutch_err *err)
{
    return read_seconds(name, value, &r->total_ms, err);
}

/* SandboxFusion's server takes it and does nothing by it, so clients send any. */
static int read_cell_timeout(const char *name, struct json_view value, struct fusion_request *r, struct hutch_err *err)
{
    double ignored;

    (void)r;
    return read_number(name, value, MAX_SECONDS, &ignored, err);
}

static int read_memory(const char *name, struct json_view value, struct fusion_request *r, struct hutch_err *err)
{
    double mebibytes;

    if (read_number(name, value, MAX_MEMORY_MB, &mebibytes, err) < 0)
        return -1;
    if (mebibytes != floor(mebibytes))
        return refuse(name, err, "Input should be a valid integer");
    r->memory_bytes = mebibytes > 0 ? (uint64_t)mebibytes << 20 : 0;
    return 0;
}

/* ---- files ---- */

const char *hutch_fusion_request_name(const char *path)
{
    while (path[0] == '.' && path[1] == '/')
        path += 2;
    return path;
}

static int read_path(const char *name, struct json_view value, char **ret, struct hutch_err *err)
{
    struct fusion_text path = { NULL, 0 };

    if (read_text(name, value, &path, err) < 0)
        return -1;
    *ret = path.data;
    if (path.len == 0 || strlen(path.data) != path.len)
        return refuse(name, err, "a path is not empty, and has no NUL");
    return path.len < PATH_MAX ? 0 : refuse(name, err, "a path is too long");
}

static int decode_file(struct json_view value, struct hutch_file *file, struct fusion_request *r, struct hutch_err *err)
{
    struct fusion_text text = { NULL, 0 };

    if (read_text("files", value, &text, err) < 0)
        return -1;
    file->data = hutch_base64_decode(text.data, text.len, &file->len);
    free(text.data);
    if (!file->data && errno == ENOMEM)
        return hutch_err_set(err, ENOMEM, "read the files");
    if (!file->data)
        hutch_err_set(&r->trouble, 0, "the file '%.200s' is not base64", file->path);
    return 0;
}

static int read_files(const char *name, struct json_view value, struct fusion_request *r, struct hutch_err *err)
{
    struct json_walk walk = hutch_json_view_walk(value);
    size_t n = hutch_json_view_is_object(value) ? hutch_json_view_count(value) : SIZE_MAX;
    struct json_view key, data;

    if (n > FUSION_MAX_FILES)
        return refuse(name, err, n == SIZE_MAX ? "Input should be a valid dictionary" : "there are too many files");
    r->files = calloc(n + 2, sizeof(*r->files)); /* one more than the caller's, for a program that holds NUL */
    if (!r->files)
        return hutch_err_set(err, ENOMEM, "read the files");
    while (hutch_json_view_next(&walk, &key, &data)) {
        struct hutch_file *file = &r->files[r->n_files++];
        char *path = NULL;
        int rc = read_path(name, key, &path, err);

        file->path = path;
        if (rc < 0)
            return -1;
        memmove(path, hutch_fusion_request_name(path), strlen(hutch_fusion_request_name(path)) + 1);
        if (hutch_json_view_is_null(data) || strstr(path, "IGNORE_THIS_FILE")) {
            free(path);
            r->n_files--;
        } else if (decode_file(data, file, r, err) < 0) {
            return -1;
        }
    }
    return 0;
}

static int read_fetch(const char *name, struct json_view value, struct fusion_request *r, struct hutch_err *err)
{
    struct json_walk walk = hutch_json_view_walk(value);
    size_t n = hutch_json_view_is_array(value) ? hutch_json_view_count(value) : SIZE_MAX;
    struct json_view path;

    if (n > FUSION_MAX_FETCH)
        return refuse(name, err, n == SIZE_MAX ? "Input should be a valid list" : "there are too many paths");
    r->fetch = calloc(n + 1, sizeof(*r->fetch));
    if (!r->fetch)
        return hutch_err_set(err, ENOMEM, "read the paths");
    while (hutch_json_view_next(&walk, NULL, &path))
        if (read_path(name, path, &r->fetch[r->n_fetch++], err) < 0)
            return -1;
    return 0;
}

/* ---- the whole ---- */

/* Of equal keys the last one counts, as in Python. */
static int read_object(struct json_view object, const struct fusion_key *keys, size_t n_keys, struct fusion_request *r,
                       struct hutch_err *err)
{
    struct json_view name, value, found[MAX_KEYS] = { { NULL, 0 } };
    struct json_walk walk = hutch_json_view_walk(object);

    while (hutch_json_view_next(&walk, &name, &value))
        for (size_t i = 0; i < n_keys; i++)
            if (hutch_json_view_is(name, keys[i].name))
                found[i] = value;
    for (size_t i = 0; i < n_keys; i++) {
        if (!found[i].text && keys[i].is_required)
            return refuse(keys[i].name, err, "Field required");
        if ((keys[i].is_required || !hutch_json_view_is_null(found[i])) &&
            keys[i].read(keys[i].name, found[i], r, err) < 0)
            return -1;
    }
    return 0;
}

static int parse(const char *text, size_t len, const struct fusion_key *keys, size_t n_keys, struct fusion_request *ret,
                 struct hutch_err *err)
{
    struct json_scan scan = { .what = "request", .text = text ? text : "", .len = len, .line = 1, .column = 1,
                              .max_depth = MAX_DEPTH, .err = err };
    struct json_view root;

    *ret = (struct fusion_request){ .code = { NULL, 0 } };
    if (len == 0)
        return hutch_err_set(err, 0, "request: the body is empty, and is to be a JSON object");
    if (hutch_json_view_scan(&scan, &root) < 0)
        return -1;
    if (!hutch_json_view_is_object(root))
        return hutch_err_set(err, 0, "request: Input should be a valid dictionary");
    return read_object(root, keys, n_keys, ret, err);
}

int hutch_fusion_request_parse_run(const char *text, size_t len, struct fusion_request *ret, struct hutch_err *err)
{
    static const struct fusion_key keys[] = {
        { "code", true, read_code },
        { "language", false, read_language },
        { "compile_timeout", false, read_compile_timeout },
        { "run_timeout", false, read_run_timeout },
        { "memory_limit_MB", false, read_memory },
        { "stdin", false, read_stdin },
        { "files", false, read_files },
        { "fetch_files", false, read_fetch },
    };

    _Static_assert(ARRAY_SIZE(keys) <= MAX_KEYS, "all have a place");
    return parse(text, len, keys, ARRAY_SIZE(keys), ret, err);
}

int hutch_fusion_request_parse_cells(const char *text, size_t len, struct fusion_request *ret, struct hutch_err *err)
{
    static const struct fusion_key keys[] = {
        { "cells", true, read_cells },
        { "cell_timeout", false, read_cell_timeout },
        { "total_timeout", false, read_total_timeout },
        { "memory_limit_MB", false, read_memory },
        { "kernel", false, read_kernel },
        { "files", false, read_files },
        { "fetch_files", false, read_fetch },
    };

    _Static_assert(ARRAY_SIZE(keys) <= MAX_KEYS, "all have a place");
    return parse(text, len, keys, ARRAY_SIZE(keys), ret, err);
}

void hutch_fusion_request_done(struct fusion_request *r)
{
    free(r->code.data);
    free(r->language.data);
    free(r->input.data);
    for (size_t i = 0; i < r->n_cells; i++)
        free(r->cells[i].data);
    free(r->cells);
    for (size_t i = 0; i < r->n_files; i++) {
        free((char *)r->files[i].path);
        free((void *)r->files[i].data);
    }
    free(r->files);
    for (size_t i = 0; i < r->n_fetch; i++)
        free(r->fetch[i]);
    free(r->fetch);
    *r = (struct fusion_request){ .code = { NULL, 0 } };
}

#include "runtime/azure/request.h"

#include "runtime/gateway/multipart.h"
#include "runtime/gateway/uri.h"
#include "runtime/text/base64.h"
#include "runtime/text/json_scan.h"
#include "runtime/text/json_view.h"
#include "sandbox/fd.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MAX_DEPTH 64
#define MAX_FIRST_LINE (2 + MULTIPART_MAX_BOUNDARY + 2)
#define MAX_SECONDS 1e9

/* ---- executions ---- */

static bool is_word(struct json_view value, const char *word)
{
    size_t len = strlen(word);

    return hutch_json_view_is_string(value) && value.len == len + 2 && strncasecmp(value.text + 1, word, len) == 0;
}

/* Without NUL, as neither a program nor a command can have it. */
static int read_text(const char *key, struct json_view value, char **ret, struct hutch_err *err)
{
    size_t len;

    if (!hutch_json_view_is_string(value))
        return hutch_err_set(err, 0, "request: '%s' is to be a text", key);
    if (hutch_json_view_text(value, ret, &len, err) < 0)
        return -1;
    return strlen(*ret) == len ? 0 : hutch_err_set(err, 0, "request: '%s' contains a NUL character", key);
}

static int decode_code(struct azure_request *r, struct hutch_err *err)
{
    size_t len;
    unsigned char *data = hutch_base64_decode(r->code, strlen(r->code), &len);
    char *text = data ? strndup((const char *)data, len) : NULL;

    free(data);
    if (!text)
        return hutch_err_set(err, 0, "request: 'code' is not base64");
    free(r->code);
    r->code = text;
    return strlen(text) == len ? 0 : hutch_err_set(err, 0, "request: 'code' contains a NUL character");
}

static int read_timeout(struct json_view value, uint64_t *ret, struct hutch_err *err)
{
    char text[32], *end;
    double seconds;

    if (hutch_json_view_is_null(value))
        return 0;
    if (value.len >= sizeof(text))
        return hutch_err_set(err, 0, "request: 'timeoutInSeconds' is to be a number");
    memcpy(text, value.text, value.len);
    text[value.len] = '\0';
    seconds = strtod(text, &end);
    if (*end || !isfinite(seconds) || seconds <= 0 || seconds > MAX_SECONDS)
        return hutch_err_set(err, 0, "request: 'timeoutInSeconds' is to be a number above 0");
    *ret = (uint64_t)ceil(seconds * 1000);
    return 0;
}

static int read_code(struct json_view object, struct azure_request *r, struct hutch_err *err)
{
    struct json_view type = hutch_json_view_get(object, "codeInputType");
    bool is_base64 = is_word(type, "inlinebase64");

    if (!hutch_json_view_is_null(type) && !is_base64 && !is_word(type, "inline") && !is_word(type, "inlinetext"))
        return hutch_err_set(err, 0, "request: 'codeInputType' is to be Inline, InlineText or InlineBase64");
    if (read_text("code", hutch_json_view_get(object, "code"), &r->code, err) < 0)
        return -1;
    return is_base64 ? decode_code(r, err) : 0;
}

int hutch_azure_request_parse(const char *text, size_t len, struct azure_request *ret, struct hutch_err *err)
{
    struct json_scan scan = { .what = "request", .text = text ? text : "", .len = len, .line = 1, .column = 1,
                              .max_depth = MAX_DEPTH, .err = err };
    struct json_view root, command, type, inner;

    *ret = (struct azure_request){ .code = NULL };
    if (len == 0)
        return hutch_err_set(err, 0, "request: the body is empty, and is to be a JSON object");
    if (hutch_json_view_scan(&scan, &root) < 0)
        return -1;
    inner = hutch_json_view_get(root, "properties");
    root = hutch_json_view_is_object(inner) ? inner : root;
    type = hutch_json_view_get(root, "executionType");
    command = hutch_json_view_get(root, "shellCommand");
    ret->is_async = is_word(type, "asynchronous");
    if (!hutch_json_view_is_null(type) && !ret->is_async && !is_word(type, "synchronous"))
        return hutch_err_set(err, 0, "request: 'executionType' is to be Synchronous or Asynchronous");
    if (read_timeout(hutch_json_view_get(root, "timeoutInSeconds"), &ret->timeout_ms, err) < 0)
        return -1;
    if (hutch_json_view_is_null(command))
        return read_code(root, ret, err);
    if (!hutch_json_view_is_null(hutch_json_view_get(root, "code")))
        return hutch_err_set(err, 0, "request: there is either 'code' or 'shellCommand'");
    return read_text("shellCommand", command, &ret->command, err);
}

void hutch_azure_request_done(struct azure_request *r)
{
    free(r->code);
    free(r->command);
    *r = (struct azure_request){ .code = NULL };
}

/* ---- files ---- */

const char *hutch_azure_relative(const char *path)
{
    static const char data[] = "/mnt/data";
    size_t len = sizeof(data) - 1;

    if (strncmp(path, data, len) == 0 && (path[len] == '/' || path[len] == '\0'))
        path += len;
    while (*path == '/')
        path++;
    return path;
}

static int set_name(const char *name, const char *directory, struct azure_upload *ret, struct hutch_err *err)
{
    const char *below = directory ? hutch_azure_relative(directory) : "";
    size_t len = strlen(below);

    name = hutch_azure_relative(name);
    if (name[0] == '\0')
        return hutch_err_set(err, 0, "the file has no name");
    if (strlen(name) + len >= PATH_MAX)
        return hutch_err_set(err, 0, "the file's name is too long");
    if (asprintf(&ret->name, "%s%s%s", below, len && below[len - 1] != '/' ? "/" : "", name) < 0) {
        ret->name = NULL;
        return hutch_err_set(err, ENOMEM, "read the file's name");
    }
    return 0;
}

struct upload_reader {
    struct multipart multipart;
    const char *body, *directory;
    struct azure_upload *upload;
    bool is_in_file;
};

/* Some clients write %XX in the name. */
static int on_part(void *user, const char *name, const char *filename, struct hutch_err *err)
{
    struct upload_reader *r = user;
    auto_free char *decoded = NULL;

    (void)name;
    r->is_in_file = filename && !r->upload->name; /* the first one */
    if (!r->is_in_file)
        return 0;
    decoded = hutch_uri_decode(filename, strlen(filename), err);
    r->upload->data = r->body + r->multipart.n_taken;
    return set_name(decoded ? decoded : filename, r->directory, r->upload, err); /* a '%' of its own */
}

static int on_data(void *user, const char *data, size_t len, struct hutch_err *err)
{
    struct upload_reader *r = user;

    (void)data;
    (void)err;
    r->upload->len += r->is_in_file ? len : 0;
    return 0;
}

static int on_end(void *user, struct hutch_err *err)
{
    (void)user;
    (void)err;
    return 0;
}

int hutch_azure_upload_parse(const char *body, size_t len, const char *directory, struct azure_upload *ret,
                             struct hutch_err *err)
{
    static const struct multipart_events events = { on_part, on_data, on_end };
    struct upload_reader r = { .body = body, .directory = directory, .upload = ret };
    const char *end = body ? memmem(body, len < MAX_FIRST_LINE ? len : MAX_FIRST_LINE, "\r\n", 2) : NULL;
    char type[MAX_FIRST_LINE + 40];

    *ret = (struct azure_upload){ NULL, NULL, 0 };
    if (!end || end - body < 3 || memcmp(body, "--", 2) != 0)
        return hutch_err_set(err, 0, "request: the body is to be multipart/form-data with a file");
    snprintf(type, sizeof(type), "multipart/form-data; boundary=\"%.*s\"", (int)(end - body - 2), body + 2);
    if (hutch_multipart_open(&r.multipart, type, &events, &r, err) < 0 ||
        hutch_multipart_feed(&r.multipart, body, len, err) < 0 || hutch_multipart_finish(&r.multipart, err) < 0)
        return hutch_err_wrap(err, "request: multipart");
    return ret->name ? 0 : hutch_err_set(err, 0, "request: the multipart body has no file");
}

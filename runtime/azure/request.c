#include "runtime/azure/request.h"

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
#define MAX_BOUNDARY 200
#define MAX_PART_HEADERS 8192
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

/* The value of @key="…" within the @len bytes of headers, for the caller to free; NULL: it is not there. */
static char *find_parameter(const char *headers, size_t len, const char *key)
{
    const char *at = memmem(headers, len, key, strlen(key));
    const char *end = headers + len;
    size_t n = 0;
    char *text;

    if (!at)
        return NULL;
    at += strlen(key);
    text = malloc((size_t)(end - at) + 1);
    for (; text && at < end && *at != '"' && *at != '\r'; at++) {
        if (*at == '\\' && at + 1 < end && (at[1] == '"' || at[1] == '\\'))
            at++;
        text[n++] = *at;
    }
    if (text)
        text[n] = '\0';
    return text;
}

/* filename="…", in which some clients write %XX, or filename*=utf-8''… */
static char *find_file_name(const char *headers, size_t len)
{
    auto_free char *written = find_parameter(headers, len, "filename=\"");
    struct hutch_err ignored;
    char *decoded;

    if (!written)
        written = find_parameter(headers, len, "filename*=utf-8''");
    decoded = written ? hutch_uri_decode(written, strlen(written), &ignored) : NULL;
    return decoded || !written ? decoded : strdup(written); /* a '%' of its own */
}

static int set_name(const char *name, const char *directory, struct azure_upload *ret, struct hutch_err *err)
{
    const char *below = directory ? hutch_azure_relative(directory) : "";
    size_t len = strlen(below);

    name = hutch_azure_relative(name);
    if (name[0] == '\0')
        return hutch_err_set(err, 0, "request: the file has no name");
    if (strlen(name) + len >= PATH_MAX)
        return hutch_err_set(err, 0, "request: the file's name is too long");
    if (asprintf(&ret->name, "%s%s%s", below, len && below[len - 1] != '/' ? "/" : "", name) < 0) {
        ret->name = NULL;
        return hutch_err_set(err, ENOMEM, "read the file's name");
    }
    return 0;
}

int hutch_azure_upload_parse(const char *body, size_t len, const char *directory, struct azure_upload *ret,
                             struct hutch_err *err)
{
    char line[MAX_BOUNDARY + 5];
    const char *end = body ? memmem(body, len < MAX_BOUNDARY ? len : MAX_BOUNDARY, "\r\n", 2) : NULL, *part;
    size_t line_len;

    *ret = (struct azure_upload){ NULL, NULL, 0 };
    if (!end || end - body < 3 || memcmp(body, "--", 2) != 0)
        return hutch_err_set(err, 0, "request: the body is to be multipart/form-data with a file");
    line_len = (size_t)(end - body);
    memcpy(line, "\r\n", 2);
    memcpy(line + 2, body, line_len); /* what is before a further part, and at the end */
    line_len += 2;
    part = end + 2;
    for (;;) {
        size_t left = len - (size_t)(part - body);
        const char *blank = memmem(part, left < MAX_PART_HEADERS ? left : MAX_PART_HEADERS, "\r\n\r\n", 4);
        const char *next = blank ? memmem(blank + 2, left - (size_t)(blank + 2 - part), line, line_len) : NULL;
        auto_free char *name = NULL;

        if (!next)
            return hutch_err_set(err, 0, "request: the multipart body has no file, or is cut off");
        name = find_file_name(part, (size_t)(blank - part));
        if (name) {
            ret->data = next > blank + 4 ? blank + 4 : next;
            ret->len = next > blank + 4 ? (size_t)(next - blank - 4) : 0;
            return set_name(name, directory, ret, err);
        }
        part = next + line_len;
        if (len - (size_t)(part - body) < 2)
            return hutch_err_set(err, 0, "request: the multipart body is cut off");
        part += 2;
    }
}

#include "runtime/text/json.h"

#include "runtime/text/json_scan.h"
#include "sandbox/fd.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_DEPTH 64

/* cJSON copies a number into 64 bytes and silently cuts a longer one. */
#define MAX_NUMBER_LEN 40

/* How much of a value or key a message repeats. */
#define SHOWN 40

/* ---- the text ---- */

static int check_text(struct json_scan *s)
{
    enum json_token token;

    while ((token = hutch_json_scan_next(s)) > JSON_END)
        if (token == JSON_NUMBER && s->token_len > MAX_NUMBER_LEN)
            return hutch_json_scan_refuse(s, "a number with too many digits");
    return token;
}

int hutch_json_parse(const char *what, const char *text, size_t len, unsigned max_depth, struct json_doc *ret,
                     struct hutch_err *err)
{
    struct json_scan s = { .what = what, .text = text, .len = len, .line = 1, .column = 1, .flags = JSON_NO_CONTROL,
                           .max_depth = max_depth < MAX_DEPTH ? max_depth : MAX_DEPTH, .err = err };
    struct json_doc doc = JSON_DOC_INIT;

    if (check_text(&s) < 0)
        return -1;
    doc.root = cJSON_ParseWithLength(text, len);
    doc.what = strdup(what);
    if (!doc.root || !doc.what) {
        hutch_json_done(&doc);
        return hutch_err_set(err, ENOMEM, "%s: parse %zu bytes", what, len);
    }
    *ret = doc;
    return 0;
}

int hutch_json_load(const char *kind, const char *path, size_t max_bytes, unsigned max_depth, struct json_doc *ret,
                    struct hutch_err *err)
{
    auto_free char *what = NULL;
    auto_free char *text = NULL;
    struct stat st;
    size_t len;
    /* O_NONBLOCK: opening a FIFO must not wait for a process that writes to it. */
    auto_fd fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

    if (asprintf(&what, "%s '%s'", kind, path) < 0) {
        what = NULL;
        return hutch_err_set(err, ENOMEM, "read %s '%s'", kind, path);
    }
    if (fd < 0 || fstat(fd, &st) < 0)
        return hutch_err_set(err, errno, "open %s", what);
    if (!S_ISREG(st.st_mode))
        return hutch_err_set(err, 0, "%s is not a regular file", what);
    if (hutch_fd_slurp(fd, max_bytes, path, &text, &len, err) < 0)
        return hutch_err_wrap(err, "%s", kind);
    return hutch_json_parse(what, text, len, max_depth, ret, err);
}

void hutch_json_done(struct json_doc *doc)
{
    cJSON_Delete(doc->root);
    free(doc->what);
    *doc = (struct json_doc)JSON_DOC_INIT;
}

/* ---- the values ---- */

struct json_node hutch_json_root(const struct json_doc *doc)
{
    return (struct json_node){ .what = doc->what, .value = doc->root };
}

static bool is_plain_key(const char *key)
{
    if (!*key || (*key >= '0' && *key <= '9') || strlen(key) > SHOWN)
        return false;
    for (; *key; key++)
        if (!(*key == '_' || (*key >= '0' && *key <= '9') || ((*key | 0x20) >= 'a' && (*key | 0x20) <= 'z')))
            return false;
    return true;
}

/* "$.limits.pids", "$.mounts[2].target", "$.environment["A B"]", cut when it is long. */
static void format_path(const struct json_node *node, char *buf, size_t size)
{
    size_t used;

    if (!node->parent) {
        snprintf(buf, size, "$");
        return;
    }
    format_path(node->parent, buf, size);
    used = strlen(buf);
    if (!node->key)
        snprintf(buf + used, size - used, "[%zu]", node->index);
    else if (is_plain_key(node->key))
        snprintf(buf + used, size - used, ".%s", node->key);
    else
        snprintf(buf + used, size - used, "[\"%.*s\"]", SHOWN, node->key);
}

static void format_value(const cJSON *value, char *buf, size_t size)
{
    if (cJSON_IsString(value))
        snprintf(buf, size, "\"%.*s\"%s", SHOWN, value->valuestring,
                 strlen(value->valuestring) > SHOWN ? "…" : "");
    else if (cJSON_IsNumber(value))
        snprintf(buf, size, "%.17g", value->valuedouble);
    else if (cJSON_IsBool(value))
        snprintf(buf, size, "%s", cJSON_IsTrue(value) ? "true" : "false");
    else if (cJSON_IsArray(value))
        snprintf(buf, size, "an array of %d", cJSON_GetArraySize(value));
    else
        snprintf(buf, size, "%s", cJSON_IsObject(value) ? "an object" : "null");
}

int hutch_json_expected(const struct json_node *node, struct hutch_err *err, const char *fmt, ...)
{
    char path[160], expected[200], got[80];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(expected, sizeof(expected), fmt, ap);
    va_end(ap);
    format_path(node, path, sizeof(path));
    format_value(node->value, got, sizeof(got));
    return hutch_err_set(err, 0, "%s: at %s: expected %s, got %s", node->what, path, expected, got);
}

int hutch_json_refuse(const struct json_node *node, struct hutch_err *err, const char *fmt, ...)
{
    char path[160], why[300];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    format_path(node, path, sizeof(path));
    return hutch_err_set(err, 0, "%s: at %s: %s", node->what, path, why);
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Which of two equal keys would win differs from reader to reader, so a policy has none. */
static int check_no_key_twice(const struct json_node *node, struct hutch_err *err)
{
    const char *few[16]; /* nearly all objects are small */
    auto_free const char **many = NULL;
    const char **keys = few;
    size_t n = (size_t)cJSON_GetArraySize(node->value), i = 0;
    const cJSON *item;

    if (n > ARRAY_SIZE(few)) {
        many = calloc(n, sizeof(*many));
        if (!many)
            return hutch_err_set(err, ENOMEM, "%s: look for equal keys", node->what);
        keys = many;
    }
    cJSON_ArrayForEach(item, node->value)
        keys[i++] = item->string;
    if (n > 1)
        qsort(keys, n, sizeof(*keys), compare_keys);
    for (i = 1; i < n; i++)
        if (strcmp(keys[i - 1], keys[i]) == 0) {
            struct json_node twice = { .what = node->what, .parent = node, .key = keys[i] };

            return hutch_json_refuse(&twice, err, "this key is there twice");
        }
    return 0;
}

static int check_is_object(const struct json_node *node, struct hutch_err *err)
{
    if (!cJSON_IsObject(node->value))
        return hutch_json_expected(node, err, "an object");
    return check_no_key_twice(node, err);
}

static int refuse_unknown_key(const struct json_node *node, const char *key, const struct json_field *fields,
                              size_t n_fields, struct hutch_err *err)
{
    struct json_node unknown = { .what = node->what, .parent = node, .key = key };
    char known[260] = "";
    size_t used = 0;

    for (size_t i = 0; i < n_fields && used < sizeof(known); i++)
        used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "", fields[i].key);
    return hutch_json_refuse(&unknown, err, "unknown key; known here: %s", known);
}

int hutch_json_object(const struct json_node *node, const struct json_field *fields, size_t n_fields, void *context,
                      struct hutch_err *err)
{
    const cJSON *item;

    if (check_is_object(node, err) < 0)
        return -1;
    cJSON_ArrayForEach(item, node->value) {
        size_t i = 0;

        while (i < n_fields && strcmp(fields[i].key, item->string) != 0)
            i++;
        if (i == n_fields)
            return refuse_unknown_key(node, item->string, fields, n_fields, err);
    }
    for (size_t i = 0; i < n_fields; i++) {
        struct json_node child = { .what = node->what, .parent = node, .key = fields[i].key };

        child.value = cJSON_GetObjectItemCaseSensitive(node->value, fields[i].key);
        if (!child.value) {
            if (fields[i].is_required)
                return hutch_json_refuse(node, err, "the key \"%s\" is missing", fields[i].key);
            continue;
        }
        if (fields[i].read && fields[i].read(&child, context, err) < 0)
            return -1;
    }
    return 0;
}

int hutch_json_map(const struct json_node *node, size_t max, json_read_fn *read, void *context, struct hutch_err *err)
{
    const cJSON *item;

    if (check_is_object(node, err) < 0)
        return -1;
    if ((size_t)cJSON_GetArraySize(node->value) > max)
        return hutch_json_refuse(node, err, "more than %zu entries", max);
    cJSON_ArrayForEach(item, node->value) {
        struct json_node child = { .what = node->what, .parent = node, .key = item->string, .value = item };

        if (read(&child, context, err) < 0)
            return -1;
    }
    return 0;
}

int hutch_json_array(const struct json_node *node, size_t max, json_read_fn *read, void *context, struct hutch_err *err)
{
    const cJSON *item;
    size_t i = 0;

    if (!cJSON_IsArray(node->value))
        return hutch_json_expected(node, err, "an array");
    if ((size_t)cJSON_GetArraySize(node->value) > max)
        return hutch_json_refuse(node, err, "more than %zu entries", max);
    cJSON_ArrayForEach(item, node->value) {
        struct json_node child = { .what = node->what, .parent = node, .index = i++, .value = item };

        if (read(&child, context, err) < 0)
            return -1;
    }
    return 0;
}

int hutch_json_string(const struct json_node *node, size_t max_len, const char **ret, struct hutch_err *err)
{
    if (!cJSON_IsString(node->value))
        return hutch_json_expected(node, err, "a string");
    if (strlen(node->value->valuestring) > max_len)
        return hutch_json_refuse(node, err, "longer than %zu bytes", max_len);
    *ret = node->value->valuestring;
    return 0;
}

int hutch_json_u64(const struct json_node *node, uint64_t min, uint64_t max, uint64_t *ret, struct hutch_err *err)
{
    double d = node->value->valuedouble; /* 0 when it is no number */

    if (!cJSON_IsNumber(node->value) || !(d >= (double)min && d <= (double)max) || (double)(uint64_t)d != d)
        return hutch_json_expected(node, err, "a whole number %llu..%llu", (unsigned long long)min,
                                   (unsigned long long)max);
    *ret = (uint64_t)d;
    return 0;
}

int hutch_json_bool(const struct json_node *node, bool *ret, struct hutch_err *err)
{
    if (!cJSON_IsBool(node->value))
        return hutch_json_expected(node, err, "true or false");
    *ret = cJSON_IsTrue(node->value);
    return 0;
}

bool hutch_json_is_null(const struct json_node *node)
{
    return cJSON_IsNull(node->value);
}

bool hutch_json_is_string(const struct json_node *node)
{
    return cJSON_IsString(node->value);
}

bool hutch_json_is_number(const struct json_node *node)
{
    return cJSON_IsNumber(node->value);
}

double hutch_json_number(const struct json_node *node)
{
    return node->value->valuedouble;
}

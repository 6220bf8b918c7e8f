#include "runtime/batch/fields_priv.h"

#include "sandbox/fd.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define WHY_MAX 300

bool hutch_batch_has(struct json_view record, const char *key)
{
    return !hutch_json_view_is_null(hutch_json_view_get(record, key));
}

int hutch_batch_refuse(const struct batch_fields *f, const char *fmt, ...)
{
    char why[WHY_MAX];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    return hutch_err_set(f->err, 0, "%s: %s", f->where, why);
}

int hutch_batch_read_text(const struct batch_fields *f, const char *key, size_t max, enum batch_need need,
                          struct json_view *ret)
{
    struct json_view value = hutch_json_view_get(f->record, key);

    if (hutch_json_view_is_null(value)) {
        if (need == REQUIRED)
            return hutch_batch_refuse(f, value.text ? "the key \"%s\" is null" : "the key \"%s\" is missing", key);
        *ret = JSON_VIEW_NONE;
        return 0;
    }
    if (!hutch_json_view_is_string(value))
        return hutch_batch_refuse(f, "the value of \"%s\" is not a text", key);
    if (value.len > max)
        return hutch_batch_refuse(f, "the text of \"%s\" is longer than %zu bytes", key, max);
    *ret = value;
    return 0;
}

int hutch_batch_read_texts(const struct batch_fields *f, const char *key, size_t max, struct json_view *ret)
{
    struct json_view value = hutch_json_view_get(f->record, key), item;
    struct json_walk walk = hutch_json_view_walk(value);

    if (!hutch_json_view_is_array(value))
        return hutch_batch_read_text(f, key, max, OPTIONAL, ret);
    if (value.len > max)
        return hutch_batch_refuse(f, "the texts of \"%s\" are longer than %zu bytes", key, max);
    while (hutch_json_view_next(&walk, NULL, &item))
        if (!hutch_json_view_is_string(item))
            return hutch_batch_refuse(f, "what \"%s\" lists is not all text", key);
    *ret = value;
    return 0;
}

int hutch_batch_read_string(const struct batch_fields *f, const char *key, struct json_view value, char **ret)
{
    char *text;
    size_t len;

    if (hutch_json_view_text(value, &text, &len, f->err) < 0)
        return hutch_err_wrap(f->err, "%s", f->where);
    if (strlen(text) != len) {
        free(text);
        return hutch_batch_refuse(f, "the text of \"%s\" has a NUL byte in it", key);
    }
    *ret = text;
    return 0;
}

/* EvalPlus and others call MBPP's task 2 "Mbpp/2". */
static void shorten_mbpp_id(char *id)
{
    static const char prefix[] = "mbpp/";
    size_t len = strlen(prefix);

    if (strncasecmp(id, prefix, len) == 0 && id[len])
        memmove(id, id + len, strlen(id + len) + 1);
}

int hutch_batch_read_id(const struct batch_fields *f, enum batch_format format, struct json_view *ret_json, char **ret)
{
    static const char *const keys[] = { "task_id", "id", "question_id", "problem_id" };
    struct json_view value = JSON_VIEW_NONE;
    const char *key = NULL;
    int64_t number;

    for (size_t i = 0; i < ARRAY_SIZE(keys) && !value.text; i++)
        value = hutch_json_view_get(f->record, key = keys[i]);
    if (!value.text)
        return hutch_batch_refuse(f, "the key \"task_id\" (or \"id\") is missing");
    if (hutch_json_view_is_string(value)) {
        if (value.len <= strlen("\"\"") || value.len > BATCH_ID_MAX)
            return hutch_batch_refuse(f, "\"%s\" is not a name of 1 to %d bytes", key, BATCH_ID_MAX);
        if (hutch_batch_read_string(f, key, value, ret) < 0)
            return -1;
    } else {
        if (!hutch_json_view_integer(value, &number))
            return hutch_batch_refuse(f, "\"%s\" is neither a text nor a whole number", key);
        if (asprintf(ret, "%" PRId64, number) < 0) {
            *ret = NULL;
            return hutch_err_set(f->err, ENOMEM, "%s", f->where);
        }
    }
    if (format == BATCH_MBPP)
        shorten_mbpp_id(*ret);
    *ret_json = value;
    return 0;
}

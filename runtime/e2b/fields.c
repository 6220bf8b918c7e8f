#include "runtime/e2b/fields.h"

#include "runtime/text/json_scan.h"
#include "sandbox/fd.h"

#include <stdio.h>
#include <string.h>

#define MAX_TEXT (1u << 20) /* of a variable */

int hutch_e2b_fields_parse(const char *text, size_t len, struct json_view *ret, struct hutch_err *err)
{
    struct json_scan s = { .what = "request", .text = text, .len = len, .line = 1, .column = 1, .err = err,
                           .max_depth = E2B_MAX_DEPTH };

    *ret = (struct json_view){ "{}", 2 };
    if (len == 0)
        return 0;
    if (hutch_json_view_scan(&s, ret) < 0)
        return -1;
    return hutch_json_view_is_object(*ret) ? 0 : hutch_err_set(err, 0, "request: expected a JSON object");
}

static int read_text(struct json_view value, const char *key, size_t max, char **ret, struct hutch_err *err)
{
    auto_free char *text = NULL;
    size_t len;

    if (!hutch_json_view_is_string(value))
        return hutch_err_set(err, 0, "request: '%s' is to be a string", key);
    if (value.len > max)
        return hutch_err_set(err, 0, "request: '%s' has %zu bytes, more than %zu", key, value.len, max);
    if (hutch_json_view_text(value, &text, &len, err) < 0)
        return -1;
    if (memchr(text, '\0', len))
        return hutch_err_set(err, 0, "request: '%s' has a NUL in it", key);
    *ret = text;
    text = NULL;
    return 0;
}

int hutch_e2b_fields_text(struct json_view object, const char *key, size_t max, char **ret, struct hutch_err *err)
{
    struct json_view value = hutch_json_view_get(object, key);

    return hutch_json_view_is_null(value) ? 0 : read_text(value, key, max, ret, err);
}

int hutch_e2b_fields_number(struct json_view object, const char *key, uint64_t min, uint64_t max, uint64_t *ret,
                            struct hutch_err *err)
{
    struct json_view value = hutch_json_view_get(object, key);
    int64_t number;

    if (hutch_json_view_is_null(value))
        return 0;
    if (!hutch_json_view_integer(value, &number) || number < 0 || (uint64_t)number < min || (uint64_t)number > max)
        return hutch_err_set(err, 0, "request: '%s' is to be a whole number from %llu to %llu", key,
                             (unsigned long long)min, (unsigned long long)max);
    *ret = (uint64_t)number;
    return 0;
}

int hutch_e2b_fields_bool(struct json_view object, const char *key, bool *ret, struct hutch_err *err)
{
    struct json_view value = hutch_json_view_get(object, key);
    bool is_true = value.len == 4 && memcmp(value.text, "true", 4) == 0;

    if (hutch_json_view_is_null(value))
        return 0;
    if (!is_true && !(value.len == 5 && memcmp(value.text, "false", 5) == 0))
        return hutch_err_set(err, 0, "request: '%s' is to be true or false", key);
    *ret = is_true;
    return 0;
}

int hutch_e2b_fields_object(struct json_view object, const char *key, struct json_view *ret, struct hutch_err *err)
{
    struct json_view value = hutch_json_view_get(object, key);

    if (hutch_json_view_is_null(value))
        return 0;
    if (!hutch_json_view_is_object(value))
        return hutch_err_set(err, 0, "request: '%s' is to be an object", key);
    *ret = value;
    return 0;
}

static int read_variable(struct json_view name, struct json_view value, char **ret, struct hutch_err *err)
{
    auto_free char *name_text = NULL, *value_text = NULL;

    if (read_text(name, "name of a variable", MAX_TEXT, &name_text, err) < 0 ||
        read_text(value, "value of a variable", MAX_TEXT, &value_text, err) < 0)
        return -1;
    if (!name_text[0] || strchr(name_text, '='))
        return hutch_err_set(err, 0, "request: '%.100s' is no name of a variable", name_text);
    if (asprintf(ret, "%s=%s", name_text, value_text) < 0) {
        *ret = NULL;
        return hutch_err_set(err, ENOMEM, "read the variables");
    }
    return 0;
}

int hutch_e2b_fields_env(struct json_view object, const char *key, char ***ret, struct hutch_err *err)
{
    struct json_view variables = JSON_VIEW_NONE, name, value;
    struct json_walk walk;
    size_t n, i = 0;

    if (hutch_e2b_fields_object(object, key, &variables, err) < 0)
        return -1;
    if (!variables.text)
        return 0;
    n = hutch_json_view_count(variables);
    if (n > E2B_MAX_VARIABLES)
        return hutch_err_set(err, 0, "request: '%s' has %zu variables, more than %d", key, n, E2B_MAX_VARIABLES);
    *ret = calloc(n + 1, sizeof(char *));
    if (!*ret)
        return hutch_err_set(err, ENOMEM, "read the variables");
    walk = hutch_json_view_walk(variables);
    while (hutch_json_view_next(&walk, &name, &value))
        if (read_variable(name, value, &(*ret)[i++], err) < 0)
            return -1;
    return 0;
}

void hutch_e2b_fields_env_free(char **env)
{
    for (char **variable = env; variable && *variable; variable++)
        free(*variable);
    free(env);
}

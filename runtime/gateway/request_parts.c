#include "runtime/gateway/request_parts.h"

#include "sandbox/fd.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct words {
    const char **to;
    size_t n;
};

static int read_word(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct words *words = context;

    return hutch_json_string(node, REQUEST_MAX_WORD, &words->to[words->n++], err);
}

int hutch_request_read_words(const struct json_node *node, const char ***ret, struct hutch_err *err)
{
    struct words words = { NULL, 0 };

    *ret = words.to = calloc((size_t)cJSON_GetArraySize(node->value) + 1, sizeof(*words.to));
    if (!words.to)
        return hutch_err_set(err, ENOMEM, "read the arguments");
    return hutch_json_array(node, REQUEST_MAX_LIST, read_word, &words, err);
}

struct variables {
    char **to;
    size_t n;
};

static int read_variable(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct variables *v = context;
    const char *value;

    if (node->key[0] == '\0' || strchr(node->key, '='))
        return hutch_json_refuse(node, err, "a variable's name is not empty and has no '='");
    if (hutch_json_string(node, REQUEST_MAX_WORD, &value, err) < 0)
        return -1;
    if (asprintf(&v->to[v->n], "%s=%s", node->key, value) < 0) {
        v->to[v->n] = NULL;
        return hutch_err_set(err, ENOMEM, "read the environment");
    }
    v->n++;
    return 0;
}

int hutch_request_read_env(const struct json_node *node, char ***ret, struct hutch_err *err)
{
    struct variables v = { NULL, 0 };

    *ret = v.to = calloc((size_t)cJSON_GetArraySize(node->value) + 1, sizeof(*v.to));
    if (!v.to)
        return hutch_err_set(err, ENOMEM, "read the environment");
    return hutch_json_map(node, REQUEST_MAX_LIST, read_variable, &v, err);
}

void hutch_request_env_free(char **env)
{
    for (char **variable = env; variable && *variable; variable++)
        free(*variable);
    free(env);
}

#define LIMIT_READER(field)                                                                      \
    static int read_##field(const struct json_node *node, void *limits, struct hutch_err *err)   \
    {                                                                                            \
        return hutch_json_u64(node, 1, JSON_U64_MAX, &((struct hutch_limits *)limits)->field, err); \
    }
LIMIT_READER(wall_ms)
LIMIT_READER(cpu_ms)
LIMIT_READER(memory_bytes)
LIMIT_READER(pids)
LIMIT_READER(cpus)
LIMIT_READER(output_bytes)
LIMIT_READER(data_bytes)
LIMIT_READER(data_files)
LIMIT_READER(file_bytes)

static const struct {
    struct json_field field;
    size_t at;
} limit_rows[] = {
#define ROW(name) { { #name, read_##name, false }, offsetof(struct hutch_limits, name) }
    ROW(wall_ms), ROW(cpu_ms), ROW(memory_bytes), ROW(pids), ROW(cpus), ROW(output_bytes), ROW(data_bytes),
    ROW(data_files), ROW(file_bytes),
#undef ROW
};

int hutch_request_read_limits(const struct json_node *node, struct hutch_limits *ret, struct hutch_err *err)
{
    struct json_field fields[ARRAY_SIZE(limit_rows)];

    for (size_t i = 0; i < ARRAY_SIZE(limit_rows); i++)
        fields[i] = limit_rows[i].field;
    *ret = (struct hutch_limits){ .size = sizeof(*ret) };
    return hutch_json_object(node, fields, ARRAY_SIZE(fields), ret, err);
}

void hutch_request_write_limits(struct text_buffer *t, const struct hutch_limits *limits)
{
    for (size_t i = 0; i < ARRAY_SIZE(limit_rows); i++) {
        uint64_t value;

        memcpy(&value, (const char *)limits + limit_rows[i].at, sizeof(value));
        hutch_text_addf(t, "%s\"%s\":", i ? "," : "{", limit_rows[i].field.key);
        if (value)
            hutch_text_addf(t, "%" PRIu64, value);
        else
            hutch_text_add_string(t, "null");
    }
    hutch_text_add_string(t, "}");
}

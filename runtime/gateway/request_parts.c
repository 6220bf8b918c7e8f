#include "runtime/gateway/request_parts.h"

#include "sandbox/fd.h"

#include <cjson/cJSON.h>
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

int hutch_request_read_limits(const struct json_node *node, struct hutch_limits *ret, struct hutch_err *err)
{
    static const struct json_field fields[] = {
        { "wall_ms", read_wall_ms, false },           { "cpu_ms", read_cpu_ms, false },
        { "memory_bytes", read_memory_bytes, false }, { "pids", read_pids, false },
        { "cpus", read_cpus, false },                 { "output_bytes", read_output_bytes, false },
        { "data_bytes", read_data_bytes, false },     { "data_files", read_data_files, false },
        { "file_bytes", read_file_bytes, false },
    };

    *ret = (struct hutch_limits){ .size = sizeof(*ret) };
    return hutch_json_object(node, fields, ARRAY_SIZE(fields), ret, err);
}

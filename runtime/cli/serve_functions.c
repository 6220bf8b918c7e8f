#include "runtime/cli/serve_functions.h"

#include "sandbox/fd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
#define NAME_MAX_LEN 64
#define PATH_MAX_LEN 4096
#define SANDBOXES_MAX 1000

/* What is wrong with one more of @name; NULL: nothing. */
static const char *refusal(const struct serve_functions *f, const char *name, size_t len)
{
    if (len == 0 || len > NAME_MAX_LEN || strspn(name, NAME_CHARACTERS) < len)
        return "a name has 1 to 64 letters, digits, '-' and '_'";
    for (size_t i = 0; i < f->n; i++)
        if (strncmp(f->list[i].name, name, len) == 0 && f->list[i].name[len] == '\0')
            return "this name is there twice";
    return f->n == FUNCTIONS_MAX ? "there can be 32 functions" : NULL;
}

static int add(struct serve_functions *f, const char *name, size_t len, const char *path, struct hutch_err *err)
{
    struct function_source *one = &f->list[f->n];

    *one = (struct function_source){ .name = strndup(name, len), .path = strdup(path) };
    f->n++;
    return one->name && one->path ? 0 : hutch_err_set(err, ENOMEM, "keep a function");
}

int hutch_serve_functions_take(struct serve_functions *f, const struct option_list *words, struct hutch_err *err)
{
    for (size_t i = 0; i < words->n; i++) {
        const char *word = words->values[i], *equals = strchr(word, '='), *why;

        if (!equals || !equals[1])
            return hutch_err_set(err, 0, "option '--function': '%s' is not NAME=FILE", word);
        why = refusal(f, word, (size_t)(equals - word));
        if (why)
            return hutch_err_set(err, 0, "option '--function': '%s': %s", word, why);
        if (add(f, word, (size_t)(equals - word), equals + 1, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- the configuration ---- */

struct one {
    const char *path;
    uint64_t min, max;
};

static int read_file(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct one *one = context;

    if (hutch_json_string(node, PATH_MAX_LEN, &one->path, err) < 0)
        return -1;
    return one->path[0] ? 0 : hutch_json_refuse(node, err, "there is no path");
}

static int read_min(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_u64(node, 0, SANDBOXES_MAX, &((struct one *)context)->min, err);
}

static int read_max(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_u64(node, 1, SANDBOXES_MAX, &((struct one *)context)->max, err);
}

static const struct json_field fields[] = {
    { "file", read_file, true }, { "min", read_min, false }, { "max", read_max, false },
};

static int read_one(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct serve_functions *f = context;
    const char *why = refusal(f, node->key, strlen(node->key));
    struct one one = { .path = NULL };

    if (why)
        return hutch_json_refuse(node, err, "%s", why);
    if (hutch_json_is_string(node) ? read_file(node, &one, err) < 0
                                   : hutch_json_object(node, fields, ARRAY_SIZE(fields), &one, err) < 0)
        return -1;
    if (one.max && one.min > one.max)
        return hutch_json_refuse(node, err, "min is above max");
    if (add(f, node->key, strlen(node->key), one.path, err) < 0)
        return -1;
    f->list[f->n - 1].min = (unsigned)one.min;
    f->list[f->n - 1].max = (unsigned)one.max;
    return 0;
}

int hutch_serve_functions_read(struct serve_functions *f, const struct json_node *node, struct hutch_err *err)
{
    return hutch_json_map(node, FUNCTIONS_MAX, read_one, f, err);
}

void hutch_serve_functions_done(struct serve_functions *f)
{
    for (size_t i = 0; i < f->n; i++) {
        free((char *)f->list[i].name);
        free((char *)f->list[i].path);
    }
    f->n = 0;
}

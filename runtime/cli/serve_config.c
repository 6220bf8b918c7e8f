#include "runtime/cli/serve_config.h"

#include "runtime/cli/option.h"
#include "sandbox/fd.h"

#include <inttypes.h>
#include <string.h>

#define MAX_BYTES (1u << 20)
#define MAX_DEPTH 4
#define MAX_TEXT 4096

struct reader {
    struct serve_config *config;
    struct serve_opts *opts;
};

static void *field_of(const struct option_row *row, const struct serve_opts *opts)
{
    return (char *)opts + row->offset;
}

/* Not those that a file cannot have. */
static bool find_option(const char *key, struct option_row *ret)
{
    static const char *const others[] = { "config", "check", "help" };
    size_t at = 0;

    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        if (strcmp(key, others[i]) == 0)
            return false;
    while (hutch_option_next(&hutch_commands[COMMAND_SERVE], &at, ret))
        if (ret->name && strcmp(ret->name + 2, key) == 0)
            return true;
    return false;
}

/* "4m", or 4194304. */
static int read_text(const struct json_node *node, struct serve_config *c, const char **ret, struct hutch_err *err)
{
    uint64_t number;

    if (!hutch_json_is_number(node))
        return hutch_json_string(node, MAX_TEXT, ret, err);
    if (hutch_json_u64(node, 0, JSON_U64_MAX, &number, err) < 0)
        return -1;
    if (c->n_numbers == SERVE_CONFIG_MAX_NUMBERS)
        return hutch_json_refuse(node, err, "more than %d numbers", SERVE_CONFIG_MAX_NUMBERS);
    if (asprintf(&c->numbers[c->n_numbers], "%" PRIu64, number) < 0)
        return hutch_err_set(err, ENOMEM, "read the configuration");
    *ret = c->numbers[c->n_numbers++];
    return 0;
}

static int read_word(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct option_list *list = context;

    return hutch_json_string(node, MAX_TEXT, &list->values[list->n++], err);
}

static int read_list(const struct json_node *node, struct option_list *to, struct hutch_err *err)
{
    struct option_list list = { .n = 0 };

    if (hutch_json_array(node, OPTION_MAX_REPEATED, read_word, &list, err) < 0)
        return -1;
    if (to->n == 0)
        *to = list;
    return 0;
}

/* One key. It is read in any case, so that a fault shows also where the command line says otherwise. */
static int read_option(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct reader *r = context;
    struct option_row row;
    const char *text;
    void *field;
    bool flag;

    if (!find_option(node->key, &row))
        return hutch_json_refuse(node, err, "unknown key; known are the options of 'hutch serve --help', without "
                                            "their '--'");
    field = field_of(&row, r->opts);
    if (row.kind == OPTION_REPEATED)
        return read_list(node, field, err);
    if (row.kind == OPTION_FLAG) {
        if (hutch_json_bool(node, &flag, err) < 0)
            return -1;
        *(bool *)field |= flag;
        return 0;
    }
    if (read_text(node, r->config, &text, err) < 0)
        return -1;
    if (!*(const char **)field)
        *(const char **)field = text;
    return 0;
}

int hutch_serve_config_read(struct serve_config *c, const char *path, struct serve_opts *opts, struct hutch_err *err)
{
    struct reader r = { c, opts };
    struct json_node root;

    if (hutch_json_load("configuration", path, MAX_BYTES, MAX_DEPTH, &c->doc, err) < 0)
        return -1;
    root = hutch_json_root(&c->doc);
    return hutch_json_map(&root, 256, read_option, &r, err);
}

void hutch_serve_config_done(struct serve_config *c)
{
    while (c->n_numbers)
        free(c->numbers[--c->n_numbers]);
    hutch_json_done(&c->doc);
}

void hutch_serve_config_print(FILE *to, const struct serve_opts *opts)
{
    struct option_row row;
    size_t at = 0;

    while (hutch_option_next(&hutch_commands[COMMAND_SERVE], &at, &row)) {
        const void *field = field_of(&row, opts);

        if (!row.name || strcmp(row.name, "--check") == 0)
            continue;
        if (row.kind == OPTION_FLAG && *(const bool *)field)
            fprintf(to, "%s: true\n", row.name + 2);
        else if (row.kind == OPTION_TEXT && *(const char *const *)field)
            fprintf(to, "%s: %s\n", row.name + 2, *(const char *const *)field);
        for (size_t i = 0; row.kind == OPTION_REPEATED && i < ((const struct option_list *)field)->n; i++)
            fprintf(to, "%s: %s\n", row.name + 2, ((const struct option_list *)field)->values[i]);
    }
}

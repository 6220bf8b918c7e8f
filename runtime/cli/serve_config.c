#include "runtime/cli/serve_config.h"

#include "runtime/cli/option.h"
#include "sandbox/fd.h"

#include <inttypes.h>
#include <string.h>

#define MAX_BYTES (1u << 20)
#define MAX_DEPTH 8
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
    static const char *const others[] = { "config", "check", "help", "function" };
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

/* Read in any case, too. */
static int read_functions(const struct json_node *node, struct reader *r, struct hutch_err *err)
{
    struct serve_functions functions = { .n = 0 };
    int rc = hutch_serve_functions_read(&functions, node, err);

    if (rc == 0 && r->opts->functions.n == 0)
        r->config->functions = functions;
    else
        hutch_serve_functions_done(&functions);
    return rc;
}

/* One key. It is read in any case, so that a fault shows also where the command line says otherwise. */
static int read_option(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct reader *r = context;
    struct option_row row;
    const char *text;
    void *field;
    bool flag;
    int rc;

    if (strcmp(node->key, "functions") == 0)
        return read_functions(node, r, err);
    rc = hutch_serve_engine_read(&r->config->engine, node, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (!find_option(node->key, &row))
        return hutch_json_refuse(node, err, "unknown key; known are the options of 'hutch serve --help', without "
                                            "their '--' but with functions in place of function, and zygotes, pools, "
                                            "layouts and policies");
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

int hutch_serve_config_read(struct serve_config *c, struct serve_opts *opts, struct hutch_err *err)
{
    struct reader r = { c, opts };
    struct json_node root;

    if (hutch_serve_functions_take(&c->functions, &opts->functions, err) < 0)
        return -1;
    if (!opts->config)
        return 0;
    if (hutch_json_load("configuration", opts->config, MAX_BYTES, MAX_DEPTH, &c->doc, err) < 0)
        return -1;
    root = hutch_json_root(&c->doc);
    return hutch_json_map(&root, 256, read_option, &r, err);
}

void hutch_serve_config_done(struct serve_config *c)
{
    while (c->n_numbers)
        free(c->numbers[--c->n_numbers]);
    hutch_serve_functions_done(&c->functions);
    hutch_serve_engine_done(&c->engine);
    hutch_json_done(&c->doc);
}

void hutch_serve_config_print(FILE *to, const struct serve_config *c, const struct serve_opts *opts)
{
    struct option_row row;
    size_t at = 0;

    hutch_serve_engine_print(to, &c->engine);
    for (size_t i = 0; i < c->functions.n; i++)
        fprintf(to, "function: %s=%s\n", c->functions.list[i].name, c->functions.list[i].path);

    while (hutch_option_next(&hutch_commands[COMMAND_SERVE], &at, &row)) {
        const void *field = field_of(&row, opts);

        if (!row.name || strcmp(row.name, "--check") == 0 || strcmp(row.name, "--function") == 0)
            continue;
        if (row.kind == OPTION_FLAG && *(const bool *)field)
            fprintf(to, "%s: true\n", row.name + 2);
        else if (row.kind == OPTION_TEXT && *(const char *const *)field)
            fprintf(to, "%s: %s\n", row.name + 2, *(const char *const *)field);
        for (size_t i = 0; row.kind == OPTION_REPEATED && i < ((const struct option_list *)field)->n; i++)
            fprintf(to, "%s: %s\n", row.name + 2, ((const struct option_list *)field)->values[i]);
    }
}

/* ---- a reload ---- */

static bool is_reloaded(const char *name)
{
    static const char *const names[] = { "--config", "--check", "--tokens", "--function", "--allow-host",
                                         "--allow-origin", "--max-body", "--drain", "--quiet", "--log-code",
                                         "--help" };

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static bool is_same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool is_same(const struct option_row *row, const void *a, const void *b)
{
    const struct option_list *lists[] = { a, b };

    if (row->kind == OPTION_FLAG)
        return *(const bool *)a == *(const bool *)b;
    if (row->kind == OPTION_TEXT)
        return is_same_text(*(const char *const *)a, *(const char *const *)b);
    if (row->kind != OPTION_REPEATED)
        return true;
    if (lists[0]->n != lists[1]->n)
        return false;
    for (size_t i = 0; i < lists[0]->n; i++)
        if (strcmp(lists[0]->values[i], lists[1]->values[i]) != 0)
            return false;
    return true;
}

static void add_name(char *ret, size_t size, const char *name)
{
    size_t len = strlen(ret);

    snprintf(ret + len, size - len, "%s%s", len ? ", " : "", name);
}

void hutch_serve_config_compare(const struct serve_setting *before, const struct serve_setting *now, char *ret,
                                size_t size)
{
    struct option_row row;
    const char *key;
    size_t at = 0;

    ret[0] = '\0';
    /* whether anybody has to say who asks is no thing to change by the way */
    if (!before->opts.tokens != !now->opts.tokens)
        add_name(ret, size, "tokens");
    while (hutch_option_next(&hutch_commands[COMMAND_SERVE], &at, &row))
        if (row.name && !is_reloaded(row.name) &&
            !is_same(&row, field_of(&row, &before->opts), field_of(&row, &now->opts)))
            add_name(ret, size, row.name + 2);
    at = 0;
    while ((key = hutch_serve_engine_differs(&before->config.doc, &now->config.doc, &at)))
        add_name(ret, size, key);
}

#include "runtime/cli/serve_engine.h"

#include "sandbox/fd.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAME 255
#define MAX_PATH 4096
#define MAX_WARM_UP (64u << 10)
#define MAX_MODULES 256
#define MAX_SANDBOXES 1000
#define MAX_LAYOUTS 8

/* ---- zygotes ---- */

struct modules {
    const char **list;
    size_t n;
};

static int read_module(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct modules *modules = context;

    return hutch_json_string(node, MAX_NAME, &modules->list[modules->n++], err);
}

static int read_modules(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct hutch_zygote *zygote = context;
    struct modules modules = { .list = calloc(MAX_MODULES + 1, sizeof(const char *)) };

    zygote->modules = modules.list;
    if (!modules.list)
        return hutch_err_set(err, ENOMEM, "read the zygotes");
    return hutch_json_array(node, MAX_MODULES, read_module, &modules, err);
}

static int read_name(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_string(node, MAX_NAME, &((struct hutch_zygote *)context)->name, err);
}

static int read_parent(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_string(node, MAX_NAME, &((struct hutch_zygote *)context)->parent, err);
}

static int read_warm_up(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_string(node, MAX_WARM_UP, &((struct hutch_zygote *)context)->warm_up, err);
}

static int read_number(const struct json_node *node, uint64_t min, uint64_t max, unsigned *ret, struct hutch_err *err)
{
    uint64_t number;

    if (hutch_json_u64(node, min, max, &number, err) < 0)
        return -1;
    *ret = (unsigned)number;
    return 0;
}

static int read_zygote_min(const struct json_node *node, void *context, struct hutch_err *err)
{
    return read_number(node, 0, MAX_SANDBOXES, &((struct hutch_zygote *)context)->min, err);
}

static int read_zygote_max(const struct json_node *node, void *context, struct hutch_err *err)
{
    return read_number(node, 1, MAX_SANDBOXES, &((struct hutch_zygote *)context)->max, err);
}

static const struct json_field zygote_fields[] = {
    { "name", read_name, true },       { "parent", read_parent, false },  { "modules", read_modules, false },
    { "warm_up", read_warm_up, false }, { "min", read_zygote_min, false }, { "max", read_zygote_max, false },
};

static int read_zygote(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct serve_engine *e = context;

    return hutch_json_object(node, zygote_fields, ARRAY_SIZE(zygote_fields), &e->zygotes[e->n_zygotes++], err);
}

static int read_zygotes(const struct json_node *node, struct serve_engine *e, struct hutch_err *err)
{
    if (hutch_json_array(node, SERVE_MAX_ZYGOTES, read_zygote, e, err) < 0)
        return -1;
    return e->n_zygotes > 0 ? 0 : hutch_json_refuse(node, err, "there has to be one zygote");
}

/* ---- pools ---- */

static int read_pool_zygote(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_string(node, MAX_NAME, &((struct hutch_pool *)context)->zygote, err);
}

static int read_policy(const struct json_node *node, const char **ret, struct hutch_err *err)
{
    if (hutch_json_string(node, MAX_PATH, ret, err) < 0)
        return -1;
    return (*ret)[0] ? 0 : hutch_json_refuse(node, err, "a policy has a name or path");
}

static int read_pool_policy(const struct json_node *node, void *context, struct hutch_err *err)
{
    return read_policy(node, &((struct hutch_pool *)context)->policy, err);
}

static int read_pool_min(const struct json_node *node, void *context, struct hutch_err *err)
{
    return read_number(node, 0, MAX_SANDBOXES, &((struct hutch_pool *)context)->min, err);
}

static int read_pool_max(const struct json_node *node, void *context, struct hutch_err *err)
{
    return read_number(node, 1, MAX_SANDBOXES, &((struct hutch_pool *)context)->max, err);
}

static const struct json_field pool_fields[] = {
    { "zygote", read_pool_zygote, false },
    { "policy", read_pool_policy, true },
    { "min", read_pool_min, false },
    { "max", read_pool_max, false },
};

static int read_pool(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct serve_engine *e = context;

    return hutch_json_object(node, pool_fields, ARRAY_SIZE(pool_fields), &e->pools[e->n_pools++], err);
}

/* ---- policies ---- */

static int add_rule(struct serve_engine *e, const struct json_node *node, bool is_token, struct hutch_err *err)
{
    struct policy_rule *rule = &e->policies[e->n_policies];

    if (e->n_policies == POLICIES_MAX)
        return hutch_json_refuse(node, err, "there can be %d policies of tokens and formats", POLICIES_MAX);
    *rule = (struct policy_rule){ .token = is_token ? node->key : NULL, .format = is_token ? NULL : node->key };
    e->n_policies++;
    return read_policy(node, &rule->policy, err);
}

static int read_token_policy(const struct json_node *node, void *context, struct hutch_err *err)
{
    return add_rule(context, node, true, err);
}

static int read_format_policy(const struct json_node *node, void *context, struct hutch_err *err)
{
    return add_rule(context, node, false, err);
}

static int read_token_policies(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_map(node, POLICIES_MAX, read_token_policy, context, err);
}

static int read_format_policies(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_map(node, POLICIES_MAX, read_format_policy, context, err);
}

static const struct json_field policy_fields[] = {
    { "tokens", read_token_policies, false },
    { "formats", read_format_policies, false },
};

/* ---- all of it ---- */

int hutch_serve_engine_read(struct serve_engine *e, const struct json_node *node, struct hutch_err *err)
{
    int rc;

    if (strcmp(node->key, "zygotes") == 0)
        rc = read_zygotes(node, e, err);
    else if (strcmp(node->key, "pools") == 0)
        rc = hutch_json_array(node, SERVE_MAX_POOLS, read_pool, e, err);
    else if (strcmp(node->key, "layouts") == 0)
        rc = read_number(node, 1, MAX_LAYOUTS, &e->layouts, err);
    else if (strcmp(node->key, "policies") == 0)
        rc = hutch_json_object(node, policy_fields, ARRAY_SIZE(policy_fields), e, err);
    else
        return 0;
    return rc < 0 ? -1 : 1;
}

void hutch_serve_engine_done(struct serve_engine *e)
{
    for (size_t i = 0; i < e->n_zygotes; i++)
        free((void *)e->zygotes[i].modules);
    e->n_zygotes = 0;
}

void hutch_serve_engine_set(const struct serve_engine *e, struct hutch_engine_options *options)
{
    if (e->n_zygotes > 0) {
        options->zygotes = e->zygotes;
        options->n_zygotes = e->n_zygotes;
    }
    options->pools = e->pools;
    options->n_pools = e->n_pools;
    options->layouts = e->layouts;
}

static void print_bounds(FILE *to, unsigned min, unsigned max)
{
    if (min || max)
        fprintf(to, ", %u to %u sandboxes\n", min, max ? max : min > 32 ? min : 32);
    else
        fprintf(to, "\n");
}

void hutch_serve_engine_print(FILE *to, const struct serve_engine *e)
{
    for (size_t i = 0; i < e->n_zygotes; i++) {
        const struct hutch_zygote *zygote = &e->zygotes[i];

        fprintf(to, "zygote: %s", zygote->name);
        if (zygote->parent)
            fprintf(to, " of %s", zygote->parent);
        for (const char *const *m = zygote->modules; m && *m; m++)
            fprintf(to, "%s%s", m == zygote->modules ? ", imports " : " ", *m);
        print_bounds(to, zygote->min, zygote->max);
    }
    for (size_t i = 0; i < e->n_pools; i++) {
        fprintf(to, "pool: policy %s", e->pools[i].policy);
        if (e->pools[i].zygote)
            fprintf(to, ", zygote %s", e->pools[i].zygote);
        print_bounds(to, e->pools[i].min, e->pools[i].max);
    }
    if (e->layouts)
        fprintf(to, "layouts: %u\n", e->layouts);
    for (size_t i = 0; i < e->n_policies; i++) {
        const struct policy_rule *rule = &e->policies[i];

        fprintf(to, "policy of %s %s: %s\n", rule->token ? "token" : "format", rule->token ? rule->token : rule->format,
                rule->policy);
    }
}

const char *hutch_serve_engine_differs(const struct json_doc *before, const struct json_doc *now, size_t *at)
{
    static const char *const keys[] = { "zygotes", "pools", "layouts" };

    while (*at < ARRAY_SIZE(keys)) {
        const char *key = keys[(*at)++];
        const cJSON *a = cJSON_GetObjectItemCaseSensitive(before->root, key);
        const cJSON *b = cJSON_GetObjectItemCaseSensitive(now->root, key);

        if (a || b ? !a || !b || !cJSON_Compare(a, b, true) : false)
            return key;
    }
    return NULL;
}

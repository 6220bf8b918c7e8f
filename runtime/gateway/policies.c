#include "runtime/gateway/policies.h"

#include "runtime/gateway/format.h"
#include "runtime/gateway/token.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int check_token(const struct tokens *tokens, const char *name, struct hutch_err *err)
{
    for (size_t i = 0; i < tokens->n; i++)
        if (!tokens->rows[i]->is_retired && strcmp(tokens->rows[i]->name, name) == 0)
            return 0;
    return hutch_err_set(err, 0, "policies: there is no token of the name '%s' in --tokens", name);
}

static int check_format(const struct formats *formats, const char *name, struct hutch_err *err)
{
    for (size_t i = 0; i < formats->n; i++)
        if (strcmp(formats->list[i].format->name, name) == 0)
            return 0;
    return hutch_err_set(err, 0, "policies: the server does not speak the format '%s' (--format)", name);
}

static char *copy(const char *text)
{
    return text ? strdup(text) : NULL;
}

static int set_row(struct policy_row *row, const struct policy_rule *rule, struct hutch_engine *engine,
                   struct hutch_err *err)
{
    struct hutch_error error;

    *row = (struct policy_row){ .token = copy(rule->token), .format = copy(rule->format),
                                .policy = copy(rule->policy), .limits = { .size = sizeof(row->limits) } };
    if ((rule->token && !row->token) || (rule->format && !row->format) || !row->policy)
        return hutch_err_set(err, ENOMEM, "keep the policies");
    if (hutch_engine_get_policy_limits(engine, row->policy, &row->limits, &error) < 0)
        return hutch_err_set(err, 0, "the policy of the %s '%s': %s", rule->token ? "token" : "format",
                             rule->token ? rule->token : rule->format, error.message);
    return 0;
}

int hutch_policies_set(struct policies *p, const struct policy_rule *rules, size_t n, struct hutch_engine *engine,
                       const struct tokens *tokens, const struct formats *formats, struct hutch_err *err)
{
    struct policies fresh = { .rows = n ? calloc(n, sizeof(fresh.rows[0])) : NULL };

    if (n && !fresh.rows)
        return hutch_err_set(err, ENOMEM, "keep the policies");
    for (size_t i = 0; i < n; i++) {
        const struct policy_rule *rule = &rules[i];

        fresh.n = i + 1;
        if ((rule->token ? check_token(tokens, rule->token, err) : check_format(formats, rule->format, err)) < 0 ||
            set_row(&fresh.rows[i], rule, engine, err) < 0) {
            hutch_policies_done(&fresh);
            return -1;
        }
    }
    hutch_policies_done(p);
    *p = fresh;
    return 0;
}

void hutch_policies_done(struct policies *p)
{
    for (size_t i = 0; i < p->n; i++) {
        free(p->rows[i].token);
        free(p->rows[i].format);
        free(p->rows[i].policy);
    }
    free(p->rows);
    *p = (struct policies)POLICIES_INIT;
}

const struct policy_row *hutch_policies_find(const struct policies *p, const char *token, const char *format)
{
    const struct policy_row *found = NULL;

    for (size_t i = 0; i < p->n; i++) {
        const struct policy_row *row = &p->rows[i];

        if (row->token && token && strcmp(row->token, token) == 0)
            return row;
        if (row->format && strcmp(row->format, format) == 0)
            found = row;
    }
    return found;
}

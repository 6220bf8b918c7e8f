#include "runtime/config/seccomp_json.h"

#include "runtime/config/seccomp_rule.h"
#include "runtime/text/json_write.h"
#include "sandbox/fd.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <string.h>

static const char *const actions[] = {
    [SECCOMP_ALLOW] = "SCMP_ACT_ALLOW",
    [SECCOMP_ERRNO] = "SCMP_ACT_ERRNO",
    [SECCOMP_KILL_PROCESS] = "SCMP_ACT_KILL_PROCESS",
    [SECCOMP_LOG] = "SCMP_ACT_LOG",
};

static const char *const ops[] = {
    [SECCOMP_OP_NE] = "SCMP_CMP_NE", [SECCOMP_OP_LT] = "SCMP_CMP_LT", [SECCOMP_OP_LE] = "SCMP_CMP_LE",
    [SECCOMP_OP_EQ] = "SCMP_CMP_EQ", [SECCOMP_OP_GE] = "SCMP_CMP_GE", [SECCOMP_OP_GT] = "SCMP_CMP_GT",
    [SECCOMP_OP_MASKED_EQ] = "SCMP_CMP_MASKED_EQ",
};

static bool is_among(const char *const *names, const char *name)
{
    for (; names && *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

/* A new entry of @syscalls, which is returned to get its names; NULL on failure. */
static cJSON *add_rule(cJSON *syscalls, enum seccomp_verdict verdict, int errnum, cJSON **ret_names)
{
    cJSON *rule = cJSON_CreateObject();

    *ret_names = hutch_json_add_new(rule, "names", cJSON_CreateArray());
    if (*ret_names && hutch_json_add_string(rule, "action", actions[verdict]) &&
        (verdict != SECCOMP_ERRNO || hutch_json_add_u64(rule, "errnoRet", (uint64_t)errnum)) &&
        cJSON_AddItemToArray(syscalls, rule))
        return rule;
    cJSON_Delete(rule);
    return NULL;
}

static bool add_condition(cJSON *args, const struct seccomp_arg *arg)
{
    bool is_masked = arg->op == SECCOMP_OP_MASKED_EQ;
    cJSON *one = cJSON_CreateObject();

    /* A masked comparison has the mask first, runtime-spec: (argument & value) op valueTwo. */
    if (hutch_json_add_u64(one, "index", arg->index) &&
        hutch_json_add_u64(one, "value", is_masked ? arg->mask : arg->value) &&
        (!is_masked || hutch_json_add_u64(one, "valueTwo", arg->value)) &&
        hutch_json_add_string(one, "op", ops[arg->op]) && cJSON_AddItemToArray(args, one))
        return true;
    cJSON_Delete(one);
    return false;
}

static bool is_refusal(enum seccomp_verdict verdict)
{
    return verdict == SECCOMP_ERRNO || verdict == SECCOMP_KILL_PROCESS;
}

static bool names_call(const struct seccomp_rule *rule, const char *call)
{
    for (char **name = rule->names; name && *name; name++)
        if (strcmp(*name, call) == 0)
            return true;
    return false;
}

/* Whether @rule is the otherwise of @call: an unconditional refusal beside conditional rules (sandbox/seccomp.c). In
 * other runtimes it would win over these, so it is left out, and the profile's default answers in its place. Where that
 * default is no refusal, it stays: what hutch refuses is then refused there, with what the conditions would allow. */
static bool is_otherwise(const struct seccomp_rules *rules, const struct seccomp_rule *rule, const char *call)
{
    if (rule->n_args > 0 || !is_refusal(rule->verdict) || !is_refusal(rules->default_verdict))
        return false;
    for (size_t i = 0; i < rules->n_rules; i++)
        if (rules->rules[i].n_args > 0 && names_call(&rules->rules[i], call))
            return true;
    return false;
}

static bool translate(cJSON *syscalls, const struct seccomp_rules *rules, const struct seccomp_rule *rule)
{
    cJSON *names, *args, *made = NULL;

    for (char **name = rule->names; name && *name; name++) {
        if (is_among(rules->withheld, *name) || is_among(rules->granted, *name) || is_otherwise(rules, rule, *name))
            continue;
        if (!made && !(made = add_rule(syscalls, rule->verdict, rule->errnum, &names)))
            return false;
        if (!hutch_json_append_string(names, *name))
            return false;
    }
    if (!made || rule->n_args == 0)
        return true;
    args = hutch_json_add_new(made, "args", cJSON_CreateArray());
    for (size_t i = 0; i < rule->n_args; i++)
        if (!args || !add_condition(args, &rule->args[i]))
            return false;
    return true;
}

static bool add_calls(cJSON *syscalls, enum seccomp_verdict verdict, int errnum, const char *const *calls)
{
    cJSON *names;

    if (!calls || !calls[0])
        return true;
    if (!add_rule(syscalls, verdict, errnum, &names))
        return false;
    for (; *calls; calls++)
        if (!hutch_json_append_string(names, *calls))
            return false;
    return true;
}

cJSON *hutch_seccomp_json_make(const struct seccomp_rules *rules)
{
    cJSON *root = cJSON_CreateObject(), *architectures, *syscalls;
    bool ok = hutch_json_add_string(root, "defaultAction", actions[rules->default_verdict]);

    if (rules->default_verdict == SECCOMP_ERRNO)
        ok &= hutch_json_add_u64(root, "defaultErrnoRet", (uint64_t)rules->default_errnum);
    architectures = hutch_json_add_new(root, "architectures", cJSON_CreateArray());
    ok &= hutch_json_append_string(architectures, SECCOMP_NATIVE_ARCH);
    /* Without the key a runtime may choose SECCOMP_FILTER_FLAG_SPEC_ALLOW, which takes a protection away. */
    ok &= hutch_json_add(root, "flags", cJSON_CreateArray());
    syscalls = hutch_json_add_new(root, "syscalls", cJSON_CreateArray());
    ok &= syscalls != NULL;
    for (size_t i = 0; ok && i < rules->n_rules; i++)
        ok = translate(syscalls, rules, &rules->rules[i]);
    ok = ok && add_calls(syscalls, SECCOMP_ERRNO, ENOSYS, rules->withheld) &&
         add_calls(syscalls, SECCOMP_ALLOW, 0, rules->granted);
    if (ok)
        return root;
    cJSON_Delete(root);
    return NULL;
}

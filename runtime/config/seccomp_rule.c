#include "runtime/config/seccomp_rule.h"

#include "runtime/config/seccomp_action.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#define MAX_NAMES 2048     /* in one rule */
#define MAX_NAME_LEN 64
#define MAX_COMMENT_LEN 4096
#define MAX_ARCHES 64

/* "includes" or "excludes". */
struct condition {
    bool has_caps, has_arches, has_native, has_kernel;
    bool is_kernel_reached;
};

struct rule_reader {
    struct seccomp_rule rule;
    size_t n_names;
    struct seccomp_answer answer;
    struct condition includes, excludes;
};

static int read_name(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct rule_reader *reader = context;
    const char *name;
    char **bigger;

    if (hutch_json_string(node, MAX_NAME_LEN, &name, err) < 0)
        return -1;
    if (!*name || strspn(name, "abcdefghijklmnopqrstuvwxyz_0123456789") != strlen(name))
        return hutch_json_expected(node, err, "the name of a system call");
    bigger = reallocarray(reader->rule.names, reader->n_names + 2, sizeof(*bigger));
    if (!bigger)
        return hutch_err_set(err, ENOMEM, "%s: keep a call name", node->what);
    reader->rule.names = bigger;
    bigger[reader->n_names] = strdup(name);
    if (!bigger[reader->n_names])
        return hutch_err_set(err, ENOMEM, "%s: keep a call name", node->what);
    bigger[++reader->n_names] = NULL;
    return 0;
}

static int read_names(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_array(node, MAX_NAMES, read_name, context, err);
}

static int read_rule_action(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_seccomp_read_action(node, &((struct rule_reader *)context)->rule.verdict, err);
}

static int read_rule_errno(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_seccomp_read_errno(node, &((struct rule_reader *)context)->answer, err);
}

static int read_rule_errno_name(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_seccomp_read_errno_name(node, &((struct rule_reader *)context)->answer, err);
}

/* One comparison as it stands in the file. */
struct arg_reader {
    uint64_t index, value, value_two;
    enum seccomp_op op;
};

static int read_arg_index(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_u64(node, 0, SECCOMP_MAX_ARGS - 1, &((struct arg_reader *)context)->index, err);
}

static int read_arg_value(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_u64(node, 0, JSON_U64_MAX, &((struct arg_reader *)context)->value, err);
}

static int read_arg_value_two(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_u64(node, 0, JSON_U64_MAX, &((struct arg_reader *)context)->value_two, err);
}

static int read_arg_op(const struct json_node *node, void *context, struct hutch_err *err)
{
    static const struct {
        const char *name;
        enum seccomp_op op;
    } ops[] = {
        { "SCMP_CMP_NE", SECCOMP_OP_NE }, { "SCMP_CMP_LT", SECCOMP_OP_LT }, { "SCMP_CMP_LE", SECCOMP_OP_LE },
        { "SCMP_CMP_EQ", SECCOMP_OP_EQ }, { "SCMP_CMP_GE", SECCOMP_OP_GE }, { "SCMP_CMP_GT", SECCOMP_OP_GT },
        { "SCMP_CMP_MASKED_EQ", SECCOMP_OP_MASKED_EQ },
    };
    const char *name;

    if (hutch_json_string(node, MAX_NAME_LEN, &name, err) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
        if (strcmp(ops[i].name, name) == 0) {
            ((struct arg_reader *)context)->op = ops[i].op;
            return 0;
        }
    return hutch_json_expected(node, err, "SCMP_CMP_NE, _LT, _LE, _EQ, _GE, _GT or _MASKED_EQ");
}

static int read_arg(const struct json_node *node, void *context, struct hutch_err *err)
{
    static const struct json_field fields[] = {
        { "index", read_arg_index, true },
        { "value", read_arg_value, true },
        { "valueTwo", read_arg_value_two, false },
        { "op", read_arg_op, true },
    };
    struct rule_reader *reader = context;
    struct arg_reader arg = { 0 };
    struct seccomp_arg condition;

    if (hutch_json_object(node, fields, ARRAY_SIZE(fields), &arg, err) < 0)
        return -1;
    /* MASKED_EQ: "value" is the mask and "valueTwo" what must remain. All others ignore "valueTwo"; a number
     * there means that a mask was meant. */
    if (arg.op != SECCOMP_OP_MASKED_EQ && arg.value_two)
        return hutch_json_refuse(node, err, "valueTwo has a meaning with SCMP_CMP_MASKED_EQ only");
    condition = (struct seccomp_arg){
        .index = (unsigned)arg.index,
        .op = arg.op,
        .mask = arg.op == SECCOMP_OP_MASKED_EQ ? arg.value : UINT64_MAX,
        .value = arg.op == SECCOMP_OP_MASKED_EQ ? arg.value_two : arg.value,
    };
    return hutch_seccomp_rule_add_arg(&reader->rule, &condition, err);
}

static int read_args(const struct json_node *node, void *context, struct hutch_err *err)
{
    if (hutch_json_is_null(node))
        return 0;
    return hutch_json_array(node, SECCOMP_MAX_ARGS, read_arg, context, err);
}

static int read_condition_cap(const struct json_node *node, void *context, struct hutch_err *err)
{
    const char *name;

    if (hutch_json_string(node, MAX_NAME_LEN, &name, err) < 0)
        return -1;
    if (strncmp(name, "CAP_", 4) != 0)
        return hutch_json_expected(node, err, "the name of a capability such as \"CAP_SYS_ADMIN\"");
    ((struct condition *)context)->has_caps = true;
    return 0;
}

static int read_condition_caps(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_array(node, MAX_ARCHES, read_condition_cap, context, err);
}

static int read_condition_arch(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct condition *condition = context;
    const char *name;

    if (hutch_json_string(node, MAX_NAME_LEN, &name, err) < 0)
        return -1;
    condition->has_arches = true;
    if (strcmp(name, SECCOMP_NATIVE_GOARCH) == 0)
        condition->has_native = true;
    return 0;
}

static int read_condition_arches(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_array(node, MAX_ARCHES, read_condition_arch, context, err);
}

static int read_condition_kernel(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct condition *condition = context;
    unsigned want_major, want_minor, major = 0, minor = 0;
    struct utsname uts;
    const char *text;
    char rest;

    if (hutch_json_string(node, MAX_NAME_LEN, &text, err) < 0)
        return -1;
    if (sscanf(text, "%4u.%4u%c", &want_major, &want_minor, &rest) != 2)
        return hutch_json_expected(node, err, "a kernel version such as \"4.8\"");
    if (uname(&uts) < 0 || sscanf(uts.release, "%4u.%4u", &major, &minor) != 2)
        return hutch_json_refuse(node, err, "the version of the running kernel is not to be had");
    condition->has_kernel = true;
    condition->is_kernel_reached = major > want_major || (major == want_major && minor >= want_minor);
    return 0;
}

static int read_condition(const struct json_node *node, struct condition *condition, struct hutch_err *err)
{
    static const struct json_field fields[] = {
        { "caps", read_condition_caps, false },
        { "arches", read_condition_arches, false },
        { "minKernel", read_condition_kernel, false },
    };

    if (hutch_json_is_null(node))
        return 0;
    return hutch_json_object(node, fields, ARRAY_SIZE(fields), condition, err);
}

static int read_includes(const struct json_node *node, void *context, struct hutch_err *err)
{
    return read_condition(node, &((struct rule_reader *)context)->includes, err);
}

static int read_excludes(const struct json_node *node, void *context, struct hutch_err *err)
{
    return read_condition(node, &((struct rule_reader *)context)->excludes, err);
}

int hutch_seccomp_read_comment(const struct json_node *node, void *context, struct hutch_err *err)
{
    const char *text;

    (void)context;
    return hutch_json_string(node, MAX_COMMENT_LEN, &text, err);
}

/* "includes": every capability it names must be there, and none is. "excludes": any that is there excludes,
 * and none is. */
static bool applies_here(const struct rule_reader *reader)
{
    const struct condition *in = &reader->includes, *ex = &reader->excludes;

    if (in->has_caps || (in->has_arches && !in->has_native) || (in->has_kernel && !in->is_kernel_reached))
        return false;
    return !ex->has_native && !(ex->has_kernel && ex->is_kernel_reached);
}

static int keep_rule(struct seccomp_rules *rules, struct seccomp_rule *rule, struct hutch_err *err)
{
    struct seccomp_rule *bigger = reallocarray(rules->rules, rules->n_rules + 1, sizeof(*bigger));

    if (!bigger)
        return hutch_err_set(err, ENOMEM, "keep a seccomp rule");
    rules->rules = bigger;
    bigger[rules->n_rules++] = *rule;
    *rule = (struct seccomp_rule){ 0 };
    return 0;
}

int hutch_seccomp_read_rule(const struct json_node *node, void *context, struct hutch_err *err)
{
    static const struct json_field fields[] = {
        { "names", read_names, false },
        { "name", read_name, false }, /* docker before 2017 */
        { "action", read_rule_action, true },
        { "errnoRet", read_rule_errno, false },
        { "errno", read_rule_errno_name, false },
        { "args", read_args, false },
        { "comment", hutch_seccomp_read_comment, false },
        { "includes", read_includes, false },
        { "excludes", read_excludes, false },
    };
    struct rule_reader reader = { 0 };
    int rc = hutch_json_object(node, fields, ARRAY_SIZE(fields), &reader, err);

    if (rc == 0 && reader.n_names == 0)
        rc = hutch_json_refuse(node, err, "the rule names no system call");
    if (rc == 0 && reader.rule.verdict != SECCOMP_ERRNO && (reader.answer.number || reader.answer.by_name))
        rc = hutch_json_refuse(node, err, "an error number has a meaning with SCMP_ACT_ERRNO only");
    if (rc == 0)
        rc = hutch_seccomp_answer_errno(node, &reader.answer, reader.rule.verdict, &reader.rule.errnum, err);
    if (rc == 0 && applies_here(&reader))
        rc = keep_rule(context, &reader.rule, err);
    hutch_seccomp_rule_done(&reader.rule);
    return rc;
}

#include "runtime/config/seccomp_profile.h"

#include "sandbox/fd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#define MAX_FILE_BYTES (1u << 20)
#define MAX_DEPTH 8
#define MAX_RULES 4096
#define MAX_NAMES 2048     /* in one rule */
#define MAX_NAME_LEN 64
#define MAX_COMMENT_LEN 4096
#define MAX_ARCHES 64

/* The names of this machine: in the profile's "architectures" and "archMap", and in "includes" and "excludes". */
#if defined(__x86_64__)
#define NATIVE_SCMP "SCMP_ARCH_X86_64"
#define NATIVE_GOARCH "amd64"
#elif defined(__aarch64__)
#define NATIVE_SCMP "SCMP_ARCH_AARCH64"
#define NATIVE_GOARCH "arm64"
#elif defined(__riscv) && __riscv_xlen == 64
#define NATIVE_SCMP "SCMP_ARCH_RISCV64"
#define NATIVE_GOARCH "riscv64"
#else
#error "name this architecture here, and check the argument numbers of clone in policies/seccomp-*.json"
#endif

/* ---- numbers and names ---- */

/* "ENOSYS" to 38. */
static int errno_by_name(const char *name)
{
    for (int e = 1; e < 4096; e++) {
        const char *known = strerrorname_np(e);

        if (known && strcmp(known, name) == 0)
            return e;
    }
    return 0;
}

/* The errno of an action: a number, a name, both when they agree, or EPERM as the specification says. */
struct answer {
    int number;  /* 0: not given */
    int by_name; /* 0: not given */
};

static int read_errno_number(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct answer *answer = context;
    uint64_t value;

    if (hutch_json_is_null(node))
        return 0;
    if (hutch_json_u64(node, 1, 4095, &value, err) < 0)
        return -1;
    answer->number = (int)value;
    return 0;
}

static int read_errno_name(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct answer *answer = context;
    const char *name;

    if (hutch_json_string(node, MAX_NAME_LEN, &name, err) < 0)
        return -1;
    answer->by_name = errno_by_name(name);
    return answer->by_name ? 0 : hutch_json_expected(node, err, "the name of an error such as \"EPERM\"");
}

static int settle_answer(const struct json_node *node, const struct answer *answer, enum seccomp_verdict verdict,
                         int *ret, struct hutch_err *err)
{
    if (answer->number && answer->by_name && answer->number != answer->by_name)
        return hutch_json_refuse(node, err, "error %d and error %s differ", answer->number,
                                 strerrorname_np(answer->by_name));
    *ret = 0;
    if (verdict == SECCOMP_ERRNO)
        *ret = answer->number ? answer->number : answer->by_name ? answer->by_name : EPERM;
    return 0;
}

static int read_action(const struct json_node *node, enum seccomp_verdict *ret, struct hutch_err *err)
{
    static const struct {
        const char *name;
        enum seccomp_verdict verdict;
    } actions[] = {
        { "SCMP_ACT_ALLOW", SECCOMP_ALLOW },
        { "SCMP_ACT_ERRNO", SECCOMP_ERRNO },
        { "SCMP_ACT_LOG", SECCOMP_LOG },
        { "SCMP_ACT_KILL_PROCESS", SECCOMP_KILL_PROCESS },
        { "SCMP_ACT_KILL_THREAD", SECCOMP_KILL_PROCESS }, /* a process that lost one thread is of no use */
        { "SCMP_ACT_KILL", SECCOMP_KILL_PROCESS },
    };
    static const char *const refused[] = { "SCMP_ACT_TRAP", "SCMP_ACT_TRACE", "SCMP_ACT_NOTIFY" };
    const char *name;

    if (hutch_json_string(node, MAX_NAME_LEN, &name, err) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_SIZE(actions); i++)
        if (strcmp(actions[i].name, name) == 0) {
            *ret = actions[i].verdict;
            return 0;
        }
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
        if (strcmp(refused[i], name) == 0)
            return hutch_json_refuse(node, err, "%s is not supported: nobody would answer it", name);
    return hutch_json_expected(node, err, "SCMP_ACT_ALLOW, _ERRNO, _LOG, _KILL, _KILL_THREAD or _KILL_PROCESS");
}

/* ---- one rule ---- */

/* "includes" or "excludes". */
struct condition {
    bool has_caps, has_arches, has_native, has_kernel;
    bool is_kernel_reached;
};

struct rule_reader {
    struct seccomp_rule rule;
    size_t n_names;
    struct answer answer;
    struct condition includes, excludes;
};

static void free_names(char **names)
{
    for (size_t i = 0; names && names[i]; i++)
        free(names[i]);
    free(names);
}

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
    return read_action(node, &((struct rule_reader *)context)->rule.verdict, err);
}

static int read_rule_errno(const struct json_node *node, void *context, struct hutch_err *err)
{
    return read_errno_number(node, &((struct rule_reader *)context)->answer, err);
}

static int read_rule_errno_name(const struct json_node *node, void *context, struct hutch_err *err)
{
    return read_errno_name(node, &((struct rule_reader *)context)->answer, err);
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

    if (hutch_json_object(node, fields, ARRAY_SIZE(fields), &arg, err) < 0)
        return -1;
    /* MASKED_EQ: "value" is the mask and "valueTwo" what must remain. All others ignore "valueTwo"; a number
     * there means that a mask was meant. */
    if (arg.op != SECCOMP_OP_MASKED_EQ && arg.value_two)
        return hutch_json_refuse(node, err, "valueTwo has a meaning with SCMP_CMP_MASKED_EQ only");
    reader->rule.args[reader->rule.n_args++] = (struct seccomp_arg){
        .index = (unsigned)arg.index,
        .op = arg.op,
        .mask = arg.op == SECCOMP_OP_MASKED_EQ ? arg.value : UINT64_MAX,
        .value = arg.op == SECCOMP_OP_MASKED_EQ ? arg.value_two : arg.value,
    };
    return 0;
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
    if (strcmp(name, NATIVE_GOARCH) == 0)
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

static int read_comment(const struct json_node *node, void *context, struct hutch_err *err)
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

static int read_rule(const struct json_node *node, void *context, struct hutch_err *err)
{
    static const struct json_field fields[] = {
        { "names", read_names, false },
        { "name", read_name, false }, /* docker before 2017 */
        { "action", read_rule_action, true },
        { "errnoRet", read_rule_errno, false },
        { "errno", read_rule_errno_name, false },
        { "args", read_args, false },
        { "comment", read_comment, false },
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
        rc = settle_answer(node, &reader.answer, reader.rule.verdict, &reader.rule.errnum, err);
    if (rc == 0 && applies_here(&reader))
        rc = keep_rule(context, &reader.rule, err);
    free_names(reader.rule.names);
    return rc;
}

/* ---- the whole ---- */

struct profile_reader {
    struct seccomp_rules rules;
    struct answer answer;
    bool has_architectures, has_arch_map, has_native;
};

static int read_default_action(const struct json_node *node, void *context, struct hutch_err *err)
{
    return read_action(node, &((struct profile_reader *)context)->rules.default_verdict, err);
}

static int read_default_errno(const struct json_node *node, void *context, struct hutch_err *err)
{
    return read_errno_number(node, &((struct profile_reader *)context)->answer, err);
}

static int read_default_errno_name(const struct json_node *node, void *context, struct hutch_err *err)
{
    return read_errno_name(node, &((struct profile_reader *)context)->answer, err);
}

static int read_architecture(const struct json_node *node, void *context, struct hutch_err *err)
{
    const char *name;

    if (hutch_json_string(node, MAX_NAME_LEN, &name, err) < 0)
        return -1;
    if (strncmp(name, "SCMP_ARCH_", 10) != 0)
        return hutch_json_expected(node, err, "an architecture such as \"%s\"", NATIVE_SCMP);
    if (strcmp(name, NATIVE_SCMP) == 0)
        ((struct profile_reader *)context)->has_native = true;
    return 0;
}

static int read_architectures(const struct json_node *node, void *context, struct hutch_err *err)
{
    if (hutch_json_is_null(node))
        return 0;
    ((struct profile_reader *)context)->has_architectures = true;
    return hutch_json_array(node, MAX_ARCHES, read_architecture, context, err);
}

/* Calls of a sub-architecture (i386 on x86-64) are killed whatever the profile says: its names are only checked. */
static int read_sub_architecture(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct profile_reader ignored = { 0 };

    (void)context;
    return read_architecture(node, &ignored, err);
}

static int read_sub_architectures(const struct json_node *node, void *context, struct hutch_err *err)
{
    if (hutch_json_is_null(node))
        return 0;
    return hutch_json_array(node, MAX_ARCHES, read_sub_architecture, context, err);
}

static int read_arch_map_entry(const struct json_node *node, void *context, struct hutch_err *err)
{
    static const struct json_field fields[] = {
        { "architecture", read_architecture, true },
        { "subArchitectures", read_sub_architectures, false },
    };

    return hutch_json_object(node, fields, ARRAY_SIZE(fields), context, err);
}

static int read_arch_map(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct profile_reader *reader = context;

    if (hutch_json_is_null(node))
        return 0;
    if (reader->has_architectures)
        return hutch_json_refuse(node, err, "\"architectures\" is there as well; one of the two");
    reader->has_arch_map = true;
    return hutch_json_array(node, MAX_ARCHES, read_arch_map_entry, context, err);
}

/* None of them makes a filter stronger: SPEC_ALLOW gives a mitigation up, the others are about threads, logging
 * and the notifications that are not supported. So they are known, and not passed on. */
static int read_flag(const struct json_node *node, void *context, struct hutch_err *err)
{
    static const char *const known[] = {
        "SECCOMP_FILTER_FLAG_TSYNC",
        "SECCOMP_FILTER_FLAG_LOG",
        "SECCOMP_FILTER_FLAG_SPEC_ALLOW",
        "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV",
    };
    const char *name;

    (void)context;
    if (hutch_json_string(node, MAX_NAME_LEN, &name, err) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (strcmp(known[i], name) == 0)
            return 0;
    return hutch_json_expected(node, err, "a filter flag such as \"SECCOMP_FILTER_FLAG_LOG\"");
}

static int read_flags(const struct json_node *node, void *context, struct hutch_err *err)
{
    if (hutch_json_is_null(node))
        return 0;
    return hutch_json_array(node, MAX_ARCHES, read_flag, context, err);
}

static int refuse_listener(const struct json_node *node, void *context, struct hutch_err *err)
{
    (void)context;
    return hutch_json_refuse(node, err, "notifications are not supported");
}

static int read_rules(const struct json_node *node, void *context, struct hutch_err *err)
{
    if (hutch_json_is_null(node))
        return 0;
    return hutch_json_array(node, MAX_RULES, read_rule, &((struct profile_reader *)context)->rules, err);
}

int hutch_seccomp_profile_read(const struct json_node *node, struct seccomp_rules *ret, struct hutch_err *err)
{
    static const struct json_field fields[] = {
        { "comment", read_comment, false }, /* ours: neither OCI nor docker has it at the top */
        { "defaultAction", read_default_action, true },
        { "defaultErrnoRet", read_default_errno, false },
        { "defaultErrno", read_default_errno_name, false },
        { "architectures", read_architectures, false },
        { "archMap", read_arch_map, false },
        { "flags", read_flags, false },
        { "listenerPath", refuse_listener, false },
        { "listenerMetadata", refuse_listener, false },
        { "syscalls", read_rules, false },
    };
    struct profile_reader reader = { 0 };
    int rc = hutch_json_object(node, fields, ARRAY_SIZE(fields), &reader, err);

    if (rc == 0 && (reader.has_architectures || reader.has_arch_map) && !reader.has_native)
        rc = hutch_json_refuse(node, err, "the profile is not for this machine, %s", NATIVE_SCMP);
    if (rc == 0 && reader.rules.default_verdict != SECCOMP_ERRNO &&
        (reader.answer.number || reader.answer.by_name))
        rc = hutch_json_refuse(node, err, "a default error has a meaning with SCMP_ACT_ERRNO only");
    if (rc == 0)
        rc = settle_answer(node, &reader.answer, reader.rules.default_verdict, &reader.rules.default_errnum, err);
    if (rc == 0 && hutch_seccomp_check(&reader.rules, err) < 0)
        rc = hutch_err_wrap(err, "%s", node->what);
    if (rc < 0) {
        hutch_seccomp_rules_done(&reader.rules);
        return -1;
    }
    *ret = reader.rules;
    return 0;
}

int hutch_seccomp_profile_load(const char *path, struct seccomp_rules *ret, struct hutch_err *err)
{
    struct json_doc doc = JSON_DOC_INIT;
    struct json_node root;
    int rc;

    if (hutch_json_load("seccomp profile", path, MAX_FILE_BYTES, MAX_DEPTH, &doc, err) < 0)
        return -1;
    root = hutch_json_root(&doc);
    rc = hutch_seccomp_profile_read(&root, ret, err);
    hutch_json_done(&doc);
    return rc;
}

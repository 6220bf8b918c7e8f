#include "runtime/config/seccomp_profile.h"

#include "runtime/config/seccomp_action.h"
#include "runtime/config/seccomp_rule.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <string.h>

#define MAX_FILE_BYTES (1u << 20)
#define MAX_DEPTH 8
#define MAX_RULES 4096
#define MAX_NAME_LEN 64
#define MAX_ARCHES 64

struct profile_reader {
    struct seccomp_rules rules;
    struct seccomp_answer answer;
    bool has_architectures, has_arch_map, has_native;
};

static int read_default_action(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_seccomp_read_action(node, &((struct profile_reader *)context)->rules.default_verdict, err);
}

static int read_default_errno(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_seccomp_read_errno(node, &((struct profile_reader *)context)->answer, err);
}

static int read_default_errno_name(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_seccomp_read_errno_name(node, &((struct profile_reader *)context)->answer, err);
}

static int read_architecture(const struct json_node *node, void *context, struct hutch_err *err)
{
    const char *name;

    if (hutch_json_string(node, MAX_NAME_LEN, &name, err) < 0)
        return -1;
    if (strncmp(name, "SCMP_ARCH_", 10) != 0)
        return hutch_json_expected(node, err, "an architecture such as \"%s\"", SECCOMP_NATIVE_ARCH);
    if (strcmp(name, SECCOMP_NATIVE_ARCH) == 0)
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
    return hutch_json_array(node, MAX_RULES, hutch_seccomp_read_rule, &((struct profile_reader *)context)->rules, err);
}

int hutch_seccomp_profile_read(const struct json_node *node, struct seccomp_rules *ret, struct hutch_err *err)
{
    static const struct json_field fields[] = {
        { "comment", hutch_seccomp_read_comment, false }, /* ours: neither OCI nor docker has it at the top */
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
        rc = hutch_json_refuse(node, err, "the profile is not for this machine, %s", SECCOMP_NATIVE_ARCH);
    if (rc == 0 && reader.rules.default_verdict != SECCOMP_ERRNO &&
        (reader.answer.number || reader.answer.by_name))
        rc = hutch_json_refuse(node, err, "a default error has a meaning with SCMP_ACT_ERRNO only");
    if (rc == 0)
        rc = hutch_seccomp_answer_errno(node, &reader.answer, reader.rules.default_verdict,
                                        &reader.rules.default_errnum, err);
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

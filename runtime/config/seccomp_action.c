#include "runtime/config/seccomp_action.h"

#include "sandbox/fd.h"

#include <errno.h>
#include <string.h>

#define MAX_NAME_LEN 64

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

int hutch_seccomp_read_errno(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct seccomp_answer *answer = context;
    uint64_t value;

    if (hutch_json_is_null(node))
        return 0;
    if (hutch_json_u64(node, 1, 4095, &value, err) < 0)
        return -1;
    answer->number = (int)value;
    return 0;
}

int hutch_seccomp_read_errno_name(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct seccomp_answer *answer = context;
    const char *name;

    if (hutch_json_string(node, MAX_NAME_LEN, &name, err) < 0)
        return -1;
    answer->by_name = errno_by_name(name);
    return answer->by_name ? 0 : hutch_json_expected(node, err, "the name of an error such as \"EPERM\"");
}

int hutch_seccomp_answer_errno(const struct json_node *node, const struct seccomp_answer *answer,
                               enum seccomp_verdict verdict, int *ret, struct hutch_err *err)
{
    if (answer->number && answer->by_name && answer->number != answer->by_name)
        return hutch_json_refuse(node, err, "error %d and error %s differ", answer->number,
                                 strerrorname_np(answer->by_name));
    *ret = 0;
    if (verdict == SECCOMP_ERRNO)
        *ret = answer->number ? answer->number : answer->by_name ? answer->by_name : EPERM;
    return 0;
}

int hutch_seccomp_read_action(const struct json_node *node, enum seccomp_verdict *ret, struct hutch_err *err)
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

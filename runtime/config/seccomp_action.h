/* seccomp_action.h - what a seccomp profile does about a call: an action, and the errno of one that refuses. */
#ifndef HUTCH_CONFIG_SECCOMP_ACTION_H
#define HUTCH_CONFIG_SECCOMP_ACTION_H

#include "runtime/text/json.h"
#include "sandbox/err.h"
#include "sandbox/seccomp.h"

/* The errno of an action: a number, a name, both when they agree, or EPERM as the specification says. */
struct seccomp_answer {
    int number;  /* 0: not given */
    int by_name; /* 0: not given */
};

/* Readers of fields, as struct json_field has them; @context is a struct seccomp_answer. */
int hutch_seccomp_read_errno(const struct json_node *node, void *context, struct hutch_err *err);
int hutch_seccomp_read_errno_name(const struct json_node *node, void *context, struct hutch_err *err);

/* "SCMP_ACT_ALLOW" and the like. What a supervisor would have to answer is refused. */
int hutch_seccomp_read_action(const struct json_node *node, enum seccomp_verdict *ret, struct hutch_err *err);

/* *ret: 0 unless @verdict is SECCOMP_ERRNO. @node is what the error names. */
int hutch_seccomp_answer_errno(const struct json_node *node, const struct seccomp_answer *answer,
                               enum seccomp_verdict verdict, int *ret, struct hutch_err *err);

#endif

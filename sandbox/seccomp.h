/* seccomp.h - the system call filter: from a list of rules to a BPF program to a loaded filter.
 *
 * Rules have the shape of the OCI runtime specification's linux.seccomp, without its JSON. Compiling is
 * done once, before any process is made (1-2 ms); loading costs about 0.1 ms in the child.
 * Sources: seccomp(2), seccomp_rule_add(3), OCI runtime-spec config-linux.md. */
#ifndef HUTCH_SECCOMP_H
#define HUTCH_SECCOMP_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sock_filter;

/* One comparison: (argument & mask) op value, where mask is all ones unless op is MASKED_EQ. */
enum seccomp_op {
    SECCOMP_OP_NE,
    SECCOMP_OP_LT,
    SECCOMP_OP_LE,
    SECCOMP_OP_EQ,
    SECCOMP_OP_GE,
    SECCOMP_OP_GT,
    SECCOMP_OP_MASKED_EQ,
};

#define SECCOMP_MAX_ARGS 6
struct seccomp_arg {
    unsigned index; /* 0-5 */
    enum seccomp_op op;
    uint64_t mask;  /* MASKED_EQ only */
    uint64_t value;
};

enum seccomp_verdict { SECCOMP_ALLOW, SECCOMP_ERRNO, SECCOMP_KILL_PROCESS, SECCOMP_LOG };

/* One rule applies to every call in @names when all of @args hold. Names that the running libseccomp
 * does not know fall under the default action: a profile lists calls of many kernels and architectures.
 * Where that would let a forbidden call through, hutch_seccomp_check() refuses. */
struct seccomp_rule {
    char **names;     /* NULL-terminated, owned */
    enum seccomp_verdict verdict;
    int errnum;       /* ERRNO only */
    struct seccomp_arg *args; /* owned; NULL when the rule has no condition */
    size_t n_args;            /* at most SECCOMP_MAX_ARGS */
};

/* Appends a condition. -1: no memory. */
int hutch_seccomp_rule_add_arg(struct seccomp_rule *rule, const struct seccomp_arg *arg, struct hutch_err *err);
void hutch_seccomp_rule_done(struct seccomp_rule *rule);

struct seccomp_rules {
    enum seccomp_verdict default_verdict;
    int default_errnum;
    struct seccomp_rule *rules; /* owned */
    size_t n_rules;
    const char *const *withheld; /* NULL, or NULL-terminated: calls that answer ENOSYS whatever the rules say */
    const char *const *granted;  /* likewise: calls that are allowed whatever the rules say; none of those withheld */
    /* For programs that install: who asks is told to be root, and that giving files away and becoming another user have
     * succeeded. None of it is done. No rule counts for these calls then. */
    bool seems_root;
};

void hutch_seccomp_rules_done(struct seccomp_rules *rules);

/* Refuses rules that do not say one thing only: two that can both apply to a call and differ, a condition
 * beside an unconditional rule about the same call, two conditions on one argument, a mask that never holds,
 * or a forbidden call that is unknown here while the default allows. errnum is 0, or ENOMEM. */
int hutch_seccomp_check(const struct seccomp_rules *rules, struct hutch_err *err);

/* A program ready to load; native architecture (and on x86-64 nothing else: i386 and x32 calls are killed). */
struct seccomp_program {
    struct sock_filter *insns; /* owned */
    size_t n_insns;
};

/* Checks and compiles. Errors: as hutch_seccomp_check(); what libseccomp says, with the rule named; E2BIG
 * above the kernel's 4096 instructions. */
int hutch_seccomp_compile(const struct seccomp_rules *rules, struct seccomp_program *ret, struct hutch_err *err);
/* Loads it for the calling process, which has no_new_privs. No allocation. */
int hutch_seccomp_load(const struct seccomp_program *program, struct hutch_err *err);
void hutch_seccomp_program_done(struct seccomp_program *program);

#endif

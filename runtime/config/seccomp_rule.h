/* seccomp_rule.h - one rule of a seccomp profile: the calls it names, its action, and when it applies at all. */
#ifndef HUTCH_CONFIG_SECCOMP_RULE_H
#define HUTCH_CONFIG_SECCOMP_RULE_H

#include "runtime/text/json.h"
#include "sandbox/err.h"

/* The names of this machine: in the profile's "architectures" and "archMap", and in "includes" and "excludes". */
#if defined(__x86_64__)
#define SECCOMP_NATIVE_ARCH "SCMP_ARCH_X86_64"
#define SECCOMP_NATIVE_GOARCH "amd64"
#elif defined(__aarch64__)
#define SECCOMP_NATIVE_ARCH "SCMP_ARCH_AARCH64"
#define SECCOMP_NATIVE_GOARCH "arm64"
#elif defined(__riscv) && __riscv_xlen == 64
#define SECCOMP_NATIVE_ARCH "SCMP_ARCH_RISCV64"
#define SECCOMP_NATIVE_GOARCH "riscv64"
#else
#error "name this architecture here, and check the argument numbers of clone in policies/seccomp-*.json"
#endif

/* Readers, as hutch_json_array() and struct json_field have them. */

/* Adds a rule to the struct seccomp_rules @context, unless its "includes" and "excludes" leave it out here. */
int hutch_seccomp_read_rule(const struct json_node *node, void *context, struct hutch_err *err);
/* Any text. */
int hutch_seccomp_read_comment(const struct json_node *node, void *context, struct hutch_err *err);

#endif

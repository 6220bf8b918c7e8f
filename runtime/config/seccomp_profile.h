/* seccomp_profile.h - from a JSON seccomp profile to struct seccomp_rules.
 *
 * Two forms are read: linux.seccomp of the OCI runtime specification, and the superset of it in which docker
 * and podman ship their defaults ("archMap", "includes" and "excludes"), taken for a container without any
 * capability. What cannot be honoured and would make the filter weaker or different than written is an error:
 * see docs/policy.md. */
#ifndef HUTCH_CONFIG_SECCOMP_PROFILE_H
#define HUTCH_CONFIG_SECCOMP_PROFILE_H

#include "sandbox/err.h"
#include "runtime/text/json.h"
#include "sandbox/seccomp.h"

/* Reads and checks (hutch_seccomp_check) the profile in the file @path. @ret is untouched on failure. */
int hutch_seccomp_profile_load(const char *path, struct seccomp_rules *ret, struct hutch_err *err);

/* The same for a profile that is part of another document, such as linux.seccomp of an OCI config. */
int hutch_seccomp_profile_read(const struct json_node *node, struct seccomp_rules *ret, struct hutch_err *err);

#endif

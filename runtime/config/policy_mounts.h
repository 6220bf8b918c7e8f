/* policy_mounts.h - the keys of a policy that are about paths inside: "mounts", "masked_paths", "readonly_paths". */
#ifndef HUTCH_CONFIG_POLICY_MOUNTS_H
#define HUTCH_CONFIG_POLICY_MOUNTS_H

#include "runtime/text/json.h"
#include "sandbox/err.h"

struct sandbox_spec;

/* Adds them to those that @spec has. */
int hutch_policy_read_mounts(const struct json_node *node, struct sandbox_spec *spec, struct hutch_err *err);

/* Puts a list of paths inside in the place of the NULL-terminated list @field of a spec. */
int hutch_policy_read_paths(const struct json_node *node, char ***field, struct hutch_err *err);

#endif

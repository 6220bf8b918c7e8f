/* policy_limits.h - the key "limits" of a policy. */
#ifndef HUTCH_CONFIG_POLICY_LIMITS_H
#define HUTCH_CONFIG_POLICY_LIMITS_H

#include "runtime/text/json.h"
#include "sandbox/err.h"

struct sandbox_spec;

/* Sets those that @node names. */
int hutch_policy_read_limits(const struct json_node *node, struct sandbox_spec *spec, struct hutch_err *err);

#endif

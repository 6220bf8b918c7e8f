/* policy.h - from a policy file to a struct sandbox_spec.
 *
 * The schema is strict and described in docs/policy.md: an unknown key, a key twice, a wrong type or a value
 * out of range is an error that names its JSON path. A policy says nothing about the root tree, the program, or
 * the mounts that every sandbox has (/proc, /dev, /tmp, /run, /mnt/data): the caller adds those. */
#ifndef HUTCH_CONFIG_POLICY_H
#define HUTCH_CONFIG_POLICY_H

#include "sandbox/err.h"
#include "sandbox/spec.h"

/* Applies a policy to @spec, which hutch_spec_init() has filled: first the one that it extends, then its own
 * keys over that. @name_or_path without a '/' is @policy_dir/NAME.json, else a file. On failure @spec is half
 * changed and good for hutch_spec_done() only.
 *
 * With "network": "host" the layer net_namespace comes out as NEED_OFF, with "none" as NEED_REQUIRE: a
 * caller that changes one of the two later changes both. */
int hutch_policy_load(const char *name_or_path, const char *policy_dir, struct sandbox_spec *spec,
                      struct hutch_err *err);

#endif

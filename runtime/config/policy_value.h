/* policy_value.h - values that several keys of a policy have. */
#ifndef HUTCH_CONFIG_POLICY_VALUE_H
#define HUTCH_CONFIG_POLICY_VALUE_H

#include "runtime/config/limits.h"
#include "runtime/text/json.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POLICY_MAX_PATH_LEN 4000

/* A path inside the sandbox: absolute, and without components that mean something else than a name. */
int hutch_policy_read_path(const struct json_node *node, const char **ret, struct hutch_err *err);

/* One of a few words. The index into @words, or -1. */
int hutch_policy_read_word(const struct json_node *node, const char *const *words, size_t n_words,
                           struct hutch_err *err);

/* A duration as text, or a number of seconds; CPUs as text or a number; sizes as text or a number of bytes. False when
 * @node is nothing of that; the caller has the sentence. */
bool hutch_policy_read_quantity(const struct json_node *node, enum limit_unit unit, uint64_t *ret);

#endif

/* usual_env.h - variables of the environment that hutch sets where neither the policy, the image nor the caller does:
 * they follow from a limit, or from what a sandbox is like. */
#ifndef HUTCH_CONFIG_USUAL_ENV_H
#define HUTCH_CONFIG_USUAL_ENV_H

#include "sandbox/err.h"
#include "sandbox/spec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define USUAL_ENV_MAX  16  /* variables */
#define USUAL_ENV_SIZE 128 /* of NAME=VALUE, with its end */

/* Sets those that @spec does not have, and that no policy leaves out, by the limits of @spec, and adds the file that
 * one of them names. Errors: ENOMEM. */
int hutch_usual_env_add(struct sandbox_spec *spec, struct hutch_err *err);

/* Whether the value of @name in @spec is the one that hutch_usual_env_add() sets: nobody has said otherwise. */
bool hutch_usual_env_is_own(const struct sandbox_spec *spec, const char *name);

/* A run in a sandbox of @spec has other @limits: writes NAME=VALUE of each variable that hutch has set and that is
 * another one by them. The number of them. */
size_t hutch_usual_env_follow(const struct sandbox_spec *spec, const uint64_t limits[LIMIT_COUNT],
                              char ret[USUAL_ENV_MAX][USUAL_ENV_SIZE]);

#endif

/* run_env.h - the environment of one run: the policy's and the image's, what follows from its limits, and its own. */
#ifndef HUTCH_LIB_RUN_ENV_H
#define HUTCH_LIB_RUN_ENV_H

#include "runtime/config/usual_env.h"
#include "sandbox/err.h"

#include <stddef.h>

struct run_env {
    char followed[USUAL_ENV_MAX][USUAL_ENV_SIZE]; /* what follows from the limits of the run, and not of its sandbox */
    const char **list; /* owned; NULL-terminated pointers: into the spec, the array above and the request */
    size_t n;
};
#define auto_run_env __attribute__((cleanup(hutch_run_env_done))) struct run_env

/* The environment of @spec, with what follows from @limits over it and @more over both; NULL: nothing more. Each entry
 * is NAME=VALUE. A variable keeps the place at which its name came first. Errors: ENOMEM. */
int hutch_run_env_merge(const struct sandbox_spec *spec, const uint64_t limits[LIMIT_COUNT], const char *const *more,
                        struct run_env *ret, struct hutch_err *err);
void hutch_run_env_done(struct run_env *env);

#endif

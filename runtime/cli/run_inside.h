/* run_inside.h - hutch run --image X [--entrypoint P] -- PROGRAM ARGS: what is in the image, run as the image wants it.
 *
 * Entrypoint, Cmd and WorkingDir are obeyed as docker run has them: words take the place of Cmd, --entrypoint that of
 * both, and --workdir that of WorkingDir. Env is every run's: runtime/config/image_env.h. The image's user never
 * counts: a sandbox has one. */
#ifndef HUTCH_CLI_RUN_INSIDE_H
#define HUTCH_CLI_RUN_INSIDE_H

#include "runtime/cli/commands.h"
#include "sandbox/err.h"

struct sandbox_spec;

/* What is asked for has to make sense with it. */
int hutch_run_inside_check(const struct run_opts *opts, struct hutch_err *err);
/* Sets argv and directory of @spec, whose policy and root are set. Errors: 0 (the image names no program
 * and @words is empty); those of hutch_image_config_read(). */
int hutch_run_inside_set(const struct run_opts *opts, char *const *words, struct sandbox_spec *spec,
                         struct hutch_err *err);

#endif

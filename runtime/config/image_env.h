/* image_env.h - the environment that an image wants for its programs, in that of a sandbox. */
#ifndef HUTCH_CONFIG_IMAGE_ENV_H
#define HUTCH_CONFIG_IMAGE_ENV_H

#include "sandbox/err.h"

struct profile;
struct sandbox_spec;

/* The variables of the image whose tree is @root: *@ret is as .env of struct image_config, the caller's. Errors: those
 * of hutch_image_config_read(). */
int hutch_image_env_read(const char *root, char ***ret, struct hutch_err *err);

/* Adds them to @spec. What it has, of the policy and of @profile's own, wins, but for a PATH that @profile does not
 * name, as only the image knows where its programs are, and for what hutch_usual_env_add() has set. Errors: ENOMEM. */
int hutch_image_env_add(const struct profile *profile, char *const *env, struct sandbox_spec *spec,
                        struct hutch_err *err);

#endif

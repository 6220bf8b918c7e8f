/* image_config.h - how an image wants to be run: Env, WorkingDir, Entrypoint, Cmd and User of its configuration.
 * Source: OCI image-spec 1.1, config.md.
 *
 * It is the archive's word: bounded and checked when it is unpacked, and again when it is read from the store, where it
 * is trees/DIGEST/config.json. Whether any of it is obeyed is another's to decide. */
#ifndef HUTCH_IMAGE_CONFIG_H
#define HUTCH_IMAGE_CONFIG_H

#include "sandbox/err.h"

#include <cjson/cJSON.h>

#define IMAGE_CONFIG_MAX_TEXTS 1024           /* in each list */
#define IMAGE_CONFIG_MAX_BYTES (256u << 10)   /* of all texts together */

struct image_config {
    char **env;        /* owned, as the other lists; NULL-terminated, or NULL: none. "NAME=VALUE", not checked */
    char **entrypoint;
    char **cmd;
    char *workdir;     /* owned; an absolute path; NULL: none is asked for */
    char *user;        /* owned; NULL: none is asked for */
};
#define IMAGE_CONFIG_INIT { .env = NULL }

/* @config is the object "config" of an image's configuration; NULL and JSON's null mean that nothing is asked for.
 * Errors: a sentence that says which key is not what it should be, or too long. */
int hutch_image_config_take(const cJSON *config, struct image_config *ret, struct hutch_err *err);
void hutch_image_config_done(struct image_config *config);

/* Makes config.json in the directory @dirfd. */
int hutch_image_config_write(const struct image_config *config, int dirfd, struct hutch_err *err);
/* Of the image whose root tree is @root, as hutch_store_find() gives it. Images that were unpacked before hutch kept
 * it, and directories that are in no store, have none: everything is NULL. */
int hutch_image_config_read(const char *root, struct image_config *ret, struct hutch_err *err);

#endif

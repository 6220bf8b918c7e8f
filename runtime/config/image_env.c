#include "runtime/config/image_env.h"

#include "rootfs/image_config.h"
#include "runtime/config/profile.h"
#include "runtime/config/usual_env.h"
#include "runtime/gpu/gpu.h"
#include "sandbox/fd.h"
#include "sandbox/log.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool is_asked_for(const struct profile *profile, const char *name)
{
    const size_t len = strlen(name);

    for (const char *const *e = profile->env; e && *e; e++)
        if (strncmp(*e, name, len) == 0 && (*e)[len] == '=')
            return true;
    return false;
}

/* What hutch has set, and no policy's or caller's wish. */
static bool is_images_to_say(const struct profile *profile, const struct sandbox_spec *spec, const char *name)
{
    if (is_asked_for(profile, name))
        return false;
    return strcmp(name, "PATH") == 0 || hutch_usual_env_is_own(spec, name) ||
           (strcmp(name, "LD_LIBRARY_PATH") == 0 && strcmp(hutch_spec_get_env(spec, name), GPU_DIR) == 0);
}

int hutch_image_env_read(const char *root, char ***ret, struct hutch_err *err)
{
    struct image_config config;

    if (hutch_image_config_read(root, &config, err) < 0)
        return -1;
    *ret = config.env;
    config.env = NULL;
    hutch_image_config_done(&config);
    return 0;
}

int hutch_image_env_add(const struct profile *profile, char *const *env, struct sandbox_spec *spec,
                        struct hutch_err *err)
{
    for (size_t i = 0; env && env[i]; i++) {
        const char *text = env[i], *equals = strchr(text, '=');
        auto_free char *name = equals && equals > text ? strndup(text, (size_t)(equals - text)) : NULL;

        if (!name) {
            hutch_log_debug("the image's environment has '%s', which is passed over: it is not NAME=VALUE", text);
            continue;
        }
        if (hutch_spec_get_env(spec, name) && !is_images_to_say(profile, spec, name))
            continue;
        if (hutch_spec_set_env(spec, name, equals + 1, err) < 0)
            return -1;
    }
    return 0;
}

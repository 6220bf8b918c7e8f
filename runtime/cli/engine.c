#include "runtime/cli/engine.h"

#include "runtime/engine/engine_priv.h"
#include "sandbox/fd.h"
#include "runtime/cli/places.h"

#include <stdio.h>

static int open_engine(const struct hutch_zygote *zygote, const struct profile *profile, struct hutch_engine **ret, struct hutch_err *err)
{
    struct hutch_engine_options options;
    auto_free char *launcher = NULL;

    hutch_engine_options_init(&options);
    options.zygotes = zygote;
    options.n_zygotes = options.max_running = 1;
    if (!getenv("HUTCH_LAUNCHER") && hutch_places_launcher(&launcher, err) < 0)
        return -1;
    options.launcher = launcher;
    return hutch_engine_open_profile(&options, profile, ret, err);
}

int hutch_cli_engine_open(const struct profile *profile, const char *const *modules, struct hutch_engine **ret,
                          struct hutch_err *err)
{
    const char *words[CLI_ENGINE_MAX_MODULES + 3] = { "IPython", "ipykernel" };
    const struct hutch_zygote zygote = { .name = "shell", .modules = words, .min = 1, .max = 1 };
    size_t n = 2;

    for (; modules && *modules && n < ARRAY_SIZE(words) - 1; modules++)
        words[n++] = *modules;
    return open_engine(&zygote, profile, ret, err);
}

int hutch_cli_engine_open_bare(const struct profile *profile, struct hutch_engine **ret, struct hutch_err *err)
{
    const struct hutch_zygote zygote = { .name = "bare", .min = 1, .max = 1 };

    return open_engine(&zygote, profile, ret, err);
}

int hutch_cli_engine_fail(struct hutch_err *err, const struct hutch_error *error)
{
    *err = (struct hutch_err){ .errnum = error->code }; /* the message has the text of that already */
    snprintf(err->msg, sizeof(err->msg), "%.*s", (int)sizeof(err->msg) - 1, error->message);
    return -1;
}

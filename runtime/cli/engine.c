#include "runtime/cli/engine.h"

#include "runtime/cli/places.h"
#include "runtime/cli/run_options.h"
#include "runtime/config/policy_find.h"
#include "sandbox/fd.h"

#include <stdlib.h>

int hutch_cli_engine_options(const struct run_opts *opts, const char *home, struct cli_engine_options *ret,
                             struct hutch_err *err)
{
    struct hutch_engine_options *options = &ret->options;

    *ret = (struct cli_engine_options){ .launcher = NULL };
    if (hutch_run_options_limits(opts, &ret->limits, err) < 0 || hutch_policy_dir(&ret->policy_dir, err) < 0 ||
        (!getenv("HUTCH_LAUNCHER") && hutch_places_launcher(&ret->launcher, err) < 0))
        return -1;
    hutch_engine_options_init(options);
    options->home = home;
    options->launcher = ret->launcher;
    options->image = opts->image;
    options->policy = opts->policy;
    options->policy_dir = ret->policy_dir;
    options->max_running = 1;
    options->layouts = 1; /* all that runs in it is one user's */
    options->rootfs = opts->rootfs;
    options->limits = &ret->limits;
    options->network = opts->network;
    options->gpu = opts->gpu ? "compute" : NULL;
    options->workdir = opts->workdir;
    options->env = opts->env.values;
    options->volumes = opts->volumes.values;
    options->tmpfs = opts->tmpfs.values;
    return 0;
}

void hutch_cli_engine_done(struct cli_engine_options *options)
{
    free(options->launcher);
    free(options->policy_dir);
    options->launcher = options->policy_dir = NULL;
}

static int open_engine(const struct cli_engine_options *options, const struct hutch_zygote *zygote,
                       struct hutch_engine **ret, struct hutch_err *err)
{
    struct hutch_engine_options all = options->options;
    struct hutch_error error;

    all.zygotes = zygote;
    all.n_zygotes = 1;
    return hutch_engine_open(&all, ret, &error) < 0 ? hutch_err_set(err, 0, "%s", error.message) : 0;
}

int hutch_cli_engine_open(const struct cli_engine_options *options, struct hutch_engine **ret, struct hutch_err *err)
{
    static const char *const modules[] = { "IPython", "ipykernel", NULL };
    static const struct hutch_zygote zygote = { .name = "shell", .modules = modules, .min = 1, .max = 1 };

    return open_engine(options, &zygote, ret, err);
}

int hutch_cli_engine_open_bare(const struct cli_engine_options *options, struct hutch_engine **ret,
                               struct hutch_err *err)
{
    static const struct hutch_zygote zygote = { .name = "bare", .min = 1, .max = 1 };

    return open_engine(options, &zygote, ret, err);
}

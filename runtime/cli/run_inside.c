#include "runtime/cli/run_inside.h"

#include "rootfs/image_config.h"
#include "runtime/cli/run_options.h"
#include "runtime/cli/say.h"
#include "sandbox/fd.h"
#include "sandbox/log.h"
#include "sandbox/spec.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int hutch_run_inside_check(const struct run_opts *opts, struct hutch_err *err)
{
    const char *other = hutch_run_options_from_outside(opts);

    if (!other)
        return 0;
    return hutch_err_set(err, 0, "option '%s' is for what is brought into an image, and --entrypoint runs what is in "
                         "it", other);
}

/* Docker makes the directory where it is missing; an image is not written here. */
static int set_workdir(const struct run_opts *opts, const char *workdir, struct sandbox_spec *spec,
                       struct hutch_err *err)
{
    struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                            .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
    auto_fd root = -1, fd = -1;

    if (!workdir || opts->workdir)
        return 0;
    root = open(spec->rootfs_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    fd = root < 0 ? -1 : (int)syscall(SYS_openat2, root, workdir, &how, sizeof(how));
    if (fd >= 0)
        return hutch_spec_set_string(&spec->cwd, workdir, err);
    if (!opts->quiet)
        hutch_say("the image's working directory '%s' is not in it: the program starts in '%s'", workdir, spec->cwd);
    return 0;
}

static size_t append(const char **argv, size_t n, char *const *list)
{
    for (size_t i = 0; list && list[i]; i++)
        argv[n++] = list[i];
    return n;
}

static size_t length(char *const *list)
{
    size_t n = 0;

    while (list && list[n])
        n++;
    return n;
}

static int set_argv(const struct run_opts *opts, const struct image_config *config, char *const *words,
                    struct sandbox_spec *spec, struct hutch_err *err)
{
    auto_free const char **argv =
        calloc(length(words) + length(config->entrypoint) + length(config->cmd) + 2, sizeof(*argv));
    size_t n = 0;

    if (!argv)
        return hutch_err_set(err, ENOMEM, "set the program's arguments");
    if (opts->entrypoint)
        argv[n++] = opts->entrypoint;
    else
        n = append(argv, n, config->entrypoint);
    n = append(argv, n, words[0] || opts->entrypoint ? words : config->cmd);
    if (n == 0 || !argv[0][0])
        return hutch_err_set(err, 0, "there is nothing to run: the image '%s' names no program; which of it is to run "
                             "comes after '--'", opts->image ? opts->image : "python");
    return hutch_spec_set_list(&spec->argv, argv, n, err);
}

int hutch_run_inside_set(const struct run_opts *opts, char *const *words, struct sandbox_spec *spec,
                         struct hutch_err *err)
{
    struct image_config config;
    int rc;

    if (hutch_image_config_read(spec->rootfs_path, &config, err) < 0)
        return -1;
    if (config.user)
        hutch_log_debug("the image's user '%s' is not obeyed: programs run as the sandbox's own", config.user);
    rc = set_workdir(opts, config.workdir, spec, err) < 0 ? -1 : set_argv(opts, &config, words, spec, err);
    hutch_image_config_done(&config);
    return rc;
}

#include "runtime/cli/run_options.h"

#include "runtime/config/limits.h"
#include "runtime/text/quantity.h"
#include "sandbox/fd.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>

#define LLM_MAX_BUDGET 1000000

bool hutch_run_options_is_notebook(const struct run_opts *opts, const char *word)
{
    size_t len = word ? strlen(word) : 0, ending = strlen(RUN_NOTEBOOK_ENDING);

    return !opts->code && !opts->module && !opts->is_inside && len > ending &&
           strcmp(word + len - ending, RUN_NOTEBOOK_ENDING) == 0;
}

const char *hutch_run_options_from_outside(const struct run_opts *opts)
{
    return opts->rootfs ? "--rootfs" : opts->code ? "-c" : opts->module ? "-m" : opts->project ? "--project"
           : opts->writable ? "--writable" : opts->language ? "--language" : opts->warm ? "--warm"
           : opts->rich ? "--rich" : opts->llm ? "--llm" : opts->output ? "-o" : opts->params.n ? "--param"
           : opts->cell_timeout ? "--cell-timeout" : opts->allow_errors ? "--allow-errors"
           : opts->interrupt_on_timeout ? "--interrupt-on-timeout" : NULL;
}

int hutch_run_options_parse(enum command_id command, int argc, char **argv, struct run_opts *ret, int *ret_first,
                            struct hutch_err *err)
{
    int i = 1, is_over;

    *ret = (struct run_opts){ 0 };
    is_over = hutch_option_take(&hutch_commands[command], ret, argc, argv, &i, err);
    if (is_over < 0)
        return -1;
    ret->is_inside = ret->entrypoint || (is_over && ret->image && !hutch_run_options_from_outside(ret));
    if (command == COMMAND_RUN && i < argc && hutch_run_options_is_notebook(ret, argv[i])) {
        char *notebook = argv[i++];

        if (hutch_option_take(&hutch_commands[command], ret, argc, argv, &i, err) < 0)
            return -1;
        argv[--i] = notebook; /* in the place of what was read */
    }
    *ret_first = i;
    return 0;
}

static int read_limit(const struct limit *row, const char *text, uint64_t *ret, struct hutch_err *err)
{
    uint64_t value;

    if (hutch_limit_parse_option(row, text, &value, err) < 0)
        return -1;
    *ret = value ? value : HUTCH_NO_LIMIT;
    return 0;
}

int hutch_run_options_limits(const struct run_opts *opts, struct hutch_limits *ret, struct hutch_err *err)
{
    struct hutch_limits limits = { .size = sizeof(limits) };

    for (size_t i = 0; i < LIMIT_COUNT; i++) {
        const struct limit *row = &hutch_limit_rows[i];

        if (opts->limits[i] &&
            read_limit(row, opts->limits[i], (uint64_t *)((char *)&limits + row->limits_at), err) < 0)
            return -1;
    }
    *ret = limits;
    return 0;
}

int hutch_run_options_profile(const struct run_opts *opts, const char *home, const char *data, struct profile *ret,
                              struct hutch_err *err)
{
    struct profile profile = {
        .home = home,             .policy = opts->policy,   .image = opts->image,         .rootfs = opts->rootfs,
        .workdir = opts->workdir, .network = opts->network, .data = data,                 .env = opts->env.values,
        .tmpfs = opts->tmpfs.values,                        .volumes = opts->volumes.values,
        .gpu = opts->gpu ? "compute" : NULL,
    };

    for (size_t i = 0; i < LIMIT_COUNT; i++)
        if (opts->limits[i] && read_limit(&hutch_limit_rows[i], opts->limits[i], &profile.limits[i], err) < 0)
            return -1;
    *ret = profile;
    return 0;
}

int hutch_run_options_data(const struct run_opts *opts, char **ret, struct hutch_err *err)
{
    *ret = NULL;
    if (!opts->data)
        return 0;
    *ret = realpath(opts->data, NULL);
    return *ret ? 0 : hutch_err_set(err, errno, "option '--data': look at '%s'", opts->data);
}

int hutch_run_options_budget(const struct run_opts *opts, const char *name, size_t *ret, struct hutch_err *err)
{
    uint64_t budget;

    *ret = 0;
    if (!opts->llm_budget)
        return 0;
    if (hutch_parse_u64(opts->llm_budget, &budget, err) < 0)
        return hutch_err_wrap(err, "option '%s'", name);
    if (budget == 0 || budget > LLM_MAX_BUDGET)
        return hutch_err_set(err, 0, "option '%s': a budget is 1 to %d tokens, not '%s'", name, LLM_MAX_BUDGET,
                             opts->llm_budget);
    *ret = budget;
    return 0;
}

int hutch_run_watch_signals(int *ret_fd, struct hutch_err *err)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGQUIT);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTTIN, SIG_IGN); /* in the background, a terminal as standard input reads as its end */
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return hutch_err_set(err, errno, "block signals");
    *ret_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (*ret_fd < 0)
        return hutch_err_set(err, errno, "watch for signals");
    return 0;
}

#include "runtime/cli/run_options.h"

#include "sandbox/fd.h"
#include "sandbox/inside.h"
#include "runtime/text/quantity.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>

#define LLM_MAX_BUDGET 1000000

enum option_kind { OPT_TEXT, OPT_REPEATED, OPT_FLAG, OPT_V, OPT_FLAG_OR_VALUE };
enum { RUN = 1u << RUN_COMMAND_RUN, REPL = 1u << RUN_COMMAND_REPL, BOTH = RUN | REPL };

#define AT(field) offsetof(struct run_opts, field)

static const struct {
    unsigned commands;
    char letter;
    const char *name, *value;
    enum option_kind kind;
    size_t offset;
    const char *help;
    size_t value_offset; /* OPT_FLAG_OR_VALUE */
} options[] = {
    { RUN, 'c', NULL, "CODE", OPT_TEXT, AT(code), "run this Python text instead of a file", 0 },
    { BOTH, 0, "--image", "NAME", OPT_TEXT, AT(image), "image to run in (default: python)", 0 },
    { BOTH, 0, "--rootfs", "host|DIR", OPT_TEXT, AT(rootfs), "the host's own /usr, or a root tree, instead of an image", 0 },
    { BOTH, 0, "--policy", "NAME|FILE", OPT_TEXT, AT(policy), "isolation and limits (default: default)", 0 },
    { BOTH, 0, "--memory", "SIZE", OPT_TEXT, AT(memory), "memory limit, e.g. 512m; 0 for none", 0 },
    { BOTH, 0, "--cpus", "NUMBER", OPT_TEXT, AT(cpus), "CPUs, e.g. 1 or 0.5; 0 for all", 0 },
    { BOTH, 0, "--pids-limit", "NUMBER", OPT_TEXT, AT(pids), "processes and threads at once; 0 for no limit", 0 },
    { RUN, 0, "--timeout", "TIME", OPT_TEXT, AT(timeout), "wall clock limit, e.g. 30s; 0 for none", 0 },
    { REPL, 0, "--timeout", "TIME", OPT_TEXT, AT(timeout), "wall clock limit of each cell, e.g. 30s (default: none)", 0 },
    { BOTH, 0, "--cpu-time", "TIME", OPT_TEXT, AT(cpu_time), "CPU time limit of all processes together; 0 for none", 0 },
    { BOTH, 0, "--network", "none|host", OPT_TEXT, AT(network), "loopback only, or the host's network", 0 },
    { BOTH, 'e', "--env", "NAME=VALUE", OPT_REPEATED, AT(env), "set an environment variable", 0 },
    { BOTH, 'v', "--volume", "SRC:DST[:ro]", OPT_V, AT(volumes), "make a host path visible inside", 0 },
    { BOTH, 0, "--tmpfs", "DST[:SIZE]", OPT_REPEATED, AT(tmpfs), "an empty, private, writable directory", 0 },
    { BOTH, 'w', "--workdir", "DIR", OPT_TEXT, AT(workdir), "working directory inside (default: " INSIDE_DATA_DIR ")", 0 },
    { BOTH, 0, "--data", "DIR", OPT_TEXT, AT(data), "host directory for " INSIDE_DATA_DIR " (default: a fresh one)", 0 },
    { REPL, 0, "--context", "NAME", OPT_TEXT, AT(context), "whose variables cells have (default: main)", 0 },
    { REPL, 0, "--images", "WAY", OPT_TEXT, AT(images), "how the terminal shows images: kitty, sixel or none", 0 },
    { RUN, 0, "--json", NULL, OPT_FLAG, AT(json), "print one JSON object as the result", 0 },
    { RUN, 0, "--rich", NULL, OPT_FLAG, AT(rich), "run in IPython's shell: with the last value, figures and displays", 0 },
    { RUN, 0, "--llm", "BUDGET", OPT_FLAG_OR_VALUE, AT(llm), "likewise, and print the result as text for a language model",
      AT(llm_budget) },
    { RUN, 'o', NULL, "FILE", OPT_TEXT, AT(output), "where an executed notebook is written (default: NAME.out.ipynb)", 0 },
    { RUN, 0, "--param", "NAME=VALUE", OPT_REPEATED, AT(params), "a parameter of a notebook", 0 },
    { RUN, 0, "--cell-timeout", "TIME", OPT_TEXT, AT(cell_timeout), "wall clock limit of each cell of a notebook", 0 },
    { RUN, 0, "--allow-errors", NULL, OPT_FLAG, AT(allow_errors), "a notebook goes on after an exception", 0 },
    { RUN, 0, "--warm", NULL, OPT_FLAG, AT(warm), "by way of an engine, for comparing: slow to start, then fast", 0 },
    { BOTH, 'q', "--quiet", NULL, OPT_FLAG, AT(quiet), "print nothing but what the program prints", 0 },
    { BOTH, 0, "--verbose", NULL, OPT_FLAG, AT(verbose), "say on stderr what is done (also -v, before anything but SRC:DST)", 0 },
    { BOTH, 'h', "--help", NULL, OPT_FLAG, AT(help), "this list", 0 },
};

static const char *const command_names[] = { [RUN_COMMAND_RUN] = "run", [RUN_COMMAND_REPL] = "repl" };

void hutch_run_options_print(enum run_command command)
{
    for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
        bool is_optional = options[i].kind == OPT_FLAG_OR_VALUE;
        char left[48], letter[] = { options[i].letter, '\0' };

        if (!(options[i].commands & 1u << command))
            continue;
        snprintf(left, sizeof(left), "%s%s%s%s%s%s%s", options[i].letter ? "-" : "    ", letter,
                 options[i].letter && options[i].name ? ", " : "", options[i].name ? options[i].name : "",
                 is_optional ? "[=" : options[i].value ? " " : "", options[i].value ? options[i].value : "", is_optional ? "]" : "");
        printf("  %-26s %s\n", left, options[i].help);
    }
}

/* docker's -v takes SRC:DST, everybody else's -v means verbose. What follows tells: DST is absolute. */
static bool is_volume(const char *next)
{
    return next && strstr(next, ":/");
}

static int take_value(struct run_opts *opts, size_t row, const char *value, struct hutch_err *err)
{
    void *field = (char *)opts + options[row].offset;

    if (options[row].kind == OPT_TEXT) {
        *(const char **)field = value;
    } else {
        struct run_repeated *r = field;

        if (r->n == RUN_MAX_REPEATED)
            return hutch_err_set(err, 0, "option '%s' is given more than %d times", options[row].name, RUN_MAX_REPEATED);
        r->values[r->n++] = value;
    }
    return 0;
}

static int take_option(enum run_command command, struct run_opts *opts, int argc, char **argv, int *i, struct hutch_err *err)
{
    const char *arg = argv[*i], *equals = strchr(arg, '=');
    size_t name_len = equals ? (size_t)(equals - arg) : strlen(arg);

    for (size_t row = 0; row < ARRAY_SIZE(options); row++) {
        bool is_long = options[row].name && strlen(options[row].name) == name_len && strncmp(arg, options[row].name, name_len) == 0;
        bool is_short = options[row].letter && arg[0] == '-' && arg[1] == options[row].letter;
        const char *value = NULL;

        if ((!is_long && !is_short) || !(options[row].commands & 1u << command))
            continue;
        if (options[row].kind == OPT_V && is_short && !arg[2] && !is_volume(*i + 1 < argc ? argv[*i + 1] : NULL)) {
            opts->verbose = true;
            return 0;
        }
        if (options[row].kind == OPT_FLAG || options[row].kind == OPT_FLAG_OR_VALUE) {
            if (is_long && equals && options[row].kind == OPT_FLAG)
                return hutch_err_set(err, 0, "option '%s' takes no value", options[row].name);
            if (is_short && !is_long && arg[2])
                break;
            *(bool *)((char *)opts + options[row].offset) = true;
            if (options[row].kind == OPT_FLAG_OR_VALUE && equals)
                *(const char **)((char *)opts + options[row].value_offset) = equals + 1;
            return 0;
        }
        if (is_long && equals)
            value = equals + 1;
        else if (is_short && !is_long && arg[2])
            value = arg + 2; /* -eA=1 */
        else if (*i + 1 < argc)
            value = argv[++*i];
        if (!value)
            return hutch_err_set(err, 0, "option '%s' needs a value: %s", arg, options[row].value);
        return take_value(opts, row, value, err);
    }
    return hutch_err_set(err, 0, "there is no option '%s' (see: hutch %s --help)", arg, command_names[command]);
}

/* From @*i on, which is left at the first word that is none. */
static int take_options(enum run_command command, struct run_opts *opts, int argc, char **argv, int *i, struct hutch_err *err)
{
    for (; *i < argc; ++*i) {
        if (strcmp(argv[*i], "--") == 0) {
            ++*i;
            break;
        }
        if (argv[*i][0] != '-' || argv[*i][1] == '\0')
            break;
        if (take_option(command, opts, argc, argv, i, err) < 0)
            return -1;
    }
    return 0;
}

bool hutch_run_options_is_notebook(const struct run_opts *opts, const char *word)
{
    size_t len = word ? strlen(word) : 0, ending = strlen(RUN_NOTEBOOK_ENDING);

    return !opts->code && len > ending && strcmp(word + len - ending, RUN_NOTEBOOK_ENDING) == 0;
}

int hutch_run_options_parse(enum run_command command, int argc, char **argv, struct run_opts *ret, int *ret_first,
                            struct hutch_err *err)
{
    int i = 1;

    *ret = (struct run_opts){ 0 };
    if (take_options(command, ret, argc, argv, &i, err) < 0)
        return -1;
    if (command == RUN_COMMAND_RUN && i < argc && hutch_run_options_is_notebook(ret, argv[i])) {
        char *notebook = argv[i++];

        if (take_options(command, ret, argc, argv, &i, err) < 0)
            return -1;
        argv[--i] = notebook; /* in the place of what was read */
    }
    *ret_first = i;
    return 0;
}

int hutch_run_options_limits(const struct run_opts *opts, struct hutch_limits *ret, struct hutch_err *err)
{
    struct hutch_limits limits = { .size = sizeof(limits) };
    const struct {
        const char *option, *text;
        int (*parse)(const char *, uint64_t *, struct hutch_err *);
        uint64_t *value;
    } rows[] = {
        { "--memory", opts->memory, hutch_parse_bytes, &limits.memory_bytes },
        { "--cpus", opts->cpus, hutch_parse_cpus, &limits.cpus },
        { "--pids-limit", opts->pids, hutch_parse_u64, &limits.pids },
        { "--timeout", opts->timeout, hutch_parse_duration_ms, &limits.wall_ms },
        { "--cpu-time", opts->cpu_time, hutch_parse_duration_ms, &limits.cpu_ms },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        if (!rows[i].text)
            continue;
        if (rows[i].parse(rows[i].text, rows[i].value, err) < 0)
            return hutch_err_wrap(err, "option '%s'", rows[i].option);
        if (*rows[i].value == 0)
            *rows[i].value = HUTCH_NO_LIMIT;
        else if (*rows[i].value == HUTCH_NO_LIMIT)
            --*rows[i].value; /* too large all the same */
    }
    *ret = limits;
    return 0;
}

int hutch_run_options_profile(const struct run_opts *opts, const char *home, const char *data, struct profile *ret,
                              struct hutch_err *err)
{
    struct hutch_limits limits;

    if (hutch_run_options_limits(opts, &limits, err) < 0)
        return -1;
    *ret = (struct profile){
        .home = home,           .policy = opts->policy,   .image = opts->image,     .rootfs = opts->rootfs,
        .workdir = opts->workdir, .network = opts->network, .data = data,
        .limits = { [LIMIT_MEMORY] = limits.memory_bytes, [LIMIT_CPUS] = limits.cpus, [LIMIT_PIDS] = limits.pids,
                    [LIMIT_WALL] = limits.wall_ms, [LIMIT_CPU_TIME] = limits.cpu_ms },
        .env = opts->env.values, .volumes = opts->volumes.values, .tmpfs = opts->tmpfs.values,
    };
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

int hutch_run_options_budget(const struct run_opts *opts, size_t *ret, struct hutch_err *err)
{
    uint64_t budget;

    *ret = 0;
    if (!opts->llm_budget)
        return 0;
    if (hutch_parse_u64(opts->llm_budget, &budget, err) < 0)
        return hutch_err_wrap(err, "option '--llm'");
    if (budget == 0 || budget > LLM_MAX_BUDGET)
        return hutch_err_set(err, 0, "option '--llm': a budget is 1 to %d tokens, not '%s'", LLM_MAX_BUDGET, opts->llm_budget);
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

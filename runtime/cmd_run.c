#include "cmd_run.h"

#include "fd.h"
#include "home.h"
#include "log.h"
#include "profile.h"
#include "program.h"
#include "run.h"
#include "run_warm.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>

/* As docker run and timeout(1) have them. */
enum { EXIT_TIMEOUT = 124, EXIT_HUTCH = 125, EXIT_SIGNAL_BASE = 128 };

#define MAX_REPEATED 256 /* -e, -v, --tmpfs each */

struct repeated {
    const char *values[MAX_REPEATED];
    size_t n;
};

struct run_opts {
    const char *image, *rootfs, *policy, *code, *data, *workdir, *network, *memory, *cpus, *pids, *timeout, *cpu_time;
    struct repeated env, volumes, tmpfs;
    bool json, quiet, verbose, help, warm;
};

enum option_kind { OPT_TEXT, OPT_REPEATED, OPT_FLAG, OPT_V };

static const struct {
    char letter;
    const char *name, *value;
    enum option_kind kind;
    size_t offset;
    const char *help;
} options[] = {
    { 'c', NULL, "CODE", OPT_TEXT, offsetof(struct run_opts, code), "run this Python text instead of a file" },
    { 0, "--image", "NAME", OPT_TEXT, offsetof(struct run_opts, image), "image to run in (default: python)" },
    { 0, "--rootfs", "host|DIR", OPT_TEXT, offsetof(struct run_opts, rootfs), "the host's own /usr, or a root tree, instead of an image" },
    { 0, "--policy", "NAME|FILE", OPT_TEXT, offsetof(struct run_opts, policy), "isolation and limits (default: default)" },
    { 0, "--memory", "SIZE", OPT_TEXT, offsetof(struct run_opts, memory), "memory limit, e.g. 512m; 0 for none" },
    { 0, "--cpus", "NUMBER", OPT_TEXT, offsetof(struct run_opts, cpus), "CPUs, e.g. 1 or 0.5; 0 for all" },
    { 0, "--pids-limit", "NUMBER", OPT_TEXT, offsetof(struct run_opts, pids), "processes and threads at once; 0 for no limit" },
    { 0, "--timeout", "TIME", OPT_TEXT, offsetof(struct run_opts, timeout), "wall clock limit, e.g. 30s; 0 for none" },
    { 0, "--cpu-time", "TIME", OPT_TEXT, offsetof(struct run_opts, cpu_time), "CPU time limit of all processes together; 0 for none" },
    { 0, "--network", "none|host", OPT_TEXT, offsetof(struct run_opts, network), "loopback only, or the host's network" },
    { 'e', "--env", "NAME=VALUE", OPT_REPEATED, offsetof(struct run_opts, env), "set an environment variable" },
    { 'v', "--volume", "SRC:DST[:ro]", OPT_V, offsetof(struct run_opts, volumes), "make a host path visible inside" },
    { 0, "--tmpfs", "DST[:SIZE]", OPT_REPEATED, offsetof(struct run_opts, tmpfs), "an empty, private, writable directory" },
    { 'w', "--workdir", "DIR", OPT_TEXT, offsetof(struct run_opts, workdir), "working directory inside (default: /mnt/data)" },
    { 0, "--data", "DIR", OPT_TEXT, offsetof(struct run_opts, data), "host directory for /mnt/data (default: a fresh one)" },
    { 0, "--json", NULL, OPT_FLAG, offsetof(struct run_opts, json), "print one JSON object as the result" },
    { 0, "--warm", NULL, OPT_FLAG, offsetof(struct run_opts, warm), "by way of an engine, for comparing: slow to start, then fast" },
    { 'q', "--quiet", NULL, OPT_FLAG, offsetof(struct run_opts, quiet), "print nothing but what the program prints" },
    { 0, "--verbose", NULL, OPT_FLAG, offsetof(struct run_opts, verbose), "say on stderr what is done (also -v, before anything but SRC:DST)" },
    { 'h', "--help", NULL, OPT_FLAG, offsetof(struct run_opts, help), "this list" },
};

static void print_help(void)
{
    printf("usage: hutch run [options] FILE [ARGS...]\n"
           "       hutch run [options] -c CODE [ARGS...]\n"
           "       hutch run [options] - [ARGS...]\n\n"
           "Runs a program in a sandbox of its own. Exit status: the program's; 128+N when signal N ended it; 124 on a\n"
           "timeout; 125 when hutch failed; 126, 127 when the program cannot be executed or is not there.\n\n");
    for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
        char left[48];

        snprintf(left, sizeof(left), "%s%.1s%s%s%s%s", options[i].letter ? "-" : "    ", options[i].letter ? &options[i].letter : "",
                 options[i].letter && options[i].name ? ", " : "", options[i].name ? options[i].name : "",
                 options[i].value ? " " : "", options[i].value ? options[i].value : "");
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
        struct repeated *r = field;

        if (r->n == MAX_REPEATED)
            return hutch_err_set(err, 0, "option '%s' is given more than %d times", options[row].name, MAX_REPEATED);
        r->values[r->n++] = value;
    }
    return 0;
}

static int take_option(struct run_opts *opts, int argc, char **argv, int *i, struct hutch_err *err)
{
    const char *arg = argv[*i], *equals = strchr(arg, '=');
    size_t name_len = equals ? (size_t)(equals - arg) : strlen(arg);

    for (size_t row = 0; row < ARRAY_SIZE(options); row++) {
        bool is_long = options[row].name && strlen(options[row].name) == name_len && strncmp(arg, options[row].name, name_len) == 0;
        bool is_short = options[row].letter && arg[0] == '-' && arg[1] == options[row].letter;
        const char *value = NULL;

        if (!is_long && !is_short)
            continue;
        if (options[row].kind == OPT_V && is_short && !arg[2] && !is_volume(*i + 1 < argc ? argv[*i + 1] : NULL)) {
            opts->verbose = true;
            return 0;
        }
        if (options[row].kind == OPT_FLAG) {
            if (is_long && equals)
                return hutch_err_set(err, 0, "option '%s' takes no value", options[row].name);
            if (is_short && !is_long && arg[2])
                break;
            *(bool *)((char *)opts + options[row].offset) = true;
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
    return hutch_err_set(err, 0, "there is no option '%s' (see: hutch run --help)", arg);
}

/* Options end at the first word that is none, so that the program's own options stay its own. *ret_first: that word. */
static int parse_options(int argc, char **argv, struct run_opts *opts, int *ret_first, struct hutch_err *err)
{
    int i;

    for (i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            i++;
            break;
        }
        if (argv[i][0] != '-' || argv[i][1] == '\0')
            break;
        if (take_option(opts, argc, argv, &i, err) < 0)
            return -1;
    }
    *ret_first = i;
    return 0;
}

static void fill_profile(const struct run_opts *opts, const char *home, const char *data, struct profile *ret)
{
    *ret = (struct profile){
        .home = home,           .policy = opts->policy,   .image = opts->image,     .rootfs = opts->rootfs,
        .workdir = opts->workdir, .network = opts->network, .memory = opts->memory, .cpus = opts->cpus,
        .pids = opts->pids,     .timeout = opts->timeout, .cpu_time = opts->cpu_time, .data = data,
        .env = opts->env.values, .n_env = opts->env.n,    .volumes = opts->volumes.values, .n_volumes = opts->volumes.n,
        .tmpfs = opts->tmpfs.values, .n_tmpfs = opts->tmpfs.n,
    };
}

static int set_program(const struct run_opts *opts, char **words, struct sandbox_spec *spec, struct hutch_err *err)
{
    if (opts->code)
        return hutch_program_set_code(spec, opts->code, words, err);
    if (!words[0])
        return hutch_err_set(err, 0, "there is nothing to run: expected FILE, '-c CODE' or '-' (see: hutch run --help)");
    if (strcmp(words[0], "-") == 0)
        return hutch_program_set_stdin(spec, words + 1, err);
    if (hutch_program_set_file(spec, words[0], words + 1, err) < 0) {
        if (opts->verbose && strchr(words[0], ':'))
            hutch_err_wrap(err, "-v takes SRC:DST with an absolute DST, and is --verbose before anything else");
        return -1;
    }
    return 0;
}

static int watch_signals(int *ret_fd, struct hutch_err *err)
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

static int exit_status(const struct run_result *r)
{
    if (r->verdict == VERDICT_TIMEOUT)
        return EXIT_TIMEOUT;
    if (r->signal)
        return EXIT_SIGNAL_BASE + r->signal;
    return r->exit_code >= 0 ? r->exit_code : EXIT_HUTCH;
}

static void print_enforcement(const struct run_result *r)
{
    for (size_t i = 0; i < LAYER_COUNT; i++)
        fprintf(stderr, "hutch: layer %-16s %s%s%s\n", hutch_layer_name(i), r->layers[i].is_active ? "active" : "absent",
                r->layers[i].detail[0] ? ": " : "", r->layers[i].detail);
    for (size_t i = 0; i < LIMIT_COUNT; i++) {
        if (!r->limits[i].asked)
            continue;
        fprintf(stderr, "hutch: limit %-16s %" PRIu64 ", enforced by", hutch_limit_name(i), r->limits[i].asked);
        for (size_t e = 0; e < ENFORCER_COUNT; e++)
            if (r->limits[i].enforcers & 1u << e)
                fprintf(stderr, " %s", hutch_enforcer_name(e));
        fputc('\n', stderr);
    }
    fprintf(stderr, "hutch: prepared in %.1f ms, ran %.1f ms, %.1f ms in all\n", r->prepared_ms, r->run_ms, r->total_ms);
}

/* A Python that could not get memory ends with its own words; who said no is worth knowing where no cgroup did. */
static void explain_memory_error(const struct run_result *r)
{
    if (r->verdict == VERDICT_ERROR && r->error.name && strcmp(r->error.name, "MemoryError") == 0 &&
        r->limits[LIMIT_MEMORY].asked && !(r->limits[LIMIT_MEMORY].enforcers & 1u << ENFORCER_CGROUP))
        fprintf(stderr, "hutch: the memory limit of %" PRIu64 " bytes is enforced by rlimit and supervisor here, not by a cgroup: %s\n",
                r->limits[LIMIT_MEMORY].asked, r->layers[LAYER_CGROUP].detail);
}

static int print_json(const struct run_result *r, struct hutch_err *err)
{
    auto_free char *json = NULL;
    size_t len;

    if (hutch_result_json(r, &json, &len, err) < 0)
        return -1;
    json[len] = '\n'; /* in place of its terminator */
    if (hutch_fd_write_all(STDOUT_FILENO, json, len + 1) < 0)
        return hutch_err_set(err, errno, "print the result");
    return 0;
}

static int report(const struct run_opts *opts, const struct run_result *r, struct hutch_err *err)
{
    if (opts->json)
        return print_json(r, err) < 0 ? -1 : exit_status(r);
    if (opts->verbose)
        print_enforcement(r);
    if (r->message[0])
        fprintf(stderr, "hutch: %s\n", r->message);
    else if (!opts->quiet)
        explain_memory_error(r);
    if (r->lost_output) {
        fprintf(stderr, "hutch: pass on the program's output: %s\n", strerror(r->lost_output));
        return EXIT_HUTCH;
    }
    if (!opts->quiet && !opts->data && r->directory)
        fprintf(stderr, "hutch: files written to /mnt/data are in %s\n", r->directory);
    return exit_status(r);
}

static int run_warm(const struct run_opts *opts, const struct profile *profile, char **words, const struct run_request *request,
                    struct run_result *ret, struct hutch_err *err)
{
    const struct warm_run_request warm = {
        .profile = profile,
        .program = request->spec,
        .args = opts->code ? words : words + 1,
        .code = opts->code,
        .stdin_fd = request->stdin_fd,
        .stdout_fd = request->stdout_fd,
        .stderr_fd = request->stderr_fd,
        .signal_fd = request->signal_fd,
    };

    return hutch_run_warm(&warm, ret, err);
}

int hutch_cmd_run(int argc, char **argv)
{
    struct run_opts opts = { 0 };
    struct run_request request = { .stdin_fd = STDIN_FILENO, .stdout_fd = -1, .stderr_fd = -1, .signal_fd = -1 };
    struct sandbox_spec spec = { 0 };
    struct profile profile;
    struct run_result result;
    struct hutch_err err = { 0 };
    auto_free char *home = NULL, *data = NULL;
    auto_fd lockfd = -1, signal_fd = -1;
    int first, status = -1;

    hutch_result_init(&result);
    if (parse_options(argc, argv, &opts, &first, &err) < 0)
        goto out;
    if (opts.help) {
        print_help();
        return 0;
    }
    hutch_log_set_verbose(opts.verbose);
    if (opts.data) {
        data = realpath(opts.data, NULL);
        if (!data) {
            hutch_err_set(&err, errno, "option '--data': look at '%s'", opts.data);
            goto out;
        }
    }
    if (hutch_home_path(&home, &err) < 0 || hutch_spec_init(&spec, &err) < 0)
        goto out;
    fill_profile(&opts, home, data, &profile);
    if (hutch_profile_build(&profile, &spec, &err) < 0 ||
        set_program(&opts, argv + first, &spec, &err) < 0 || hutch_profile_set_root(&profile, &spec, &lockfd, &err) < 0 ||
        watch_signals(&signal_fd, &err) < 0)
        goto out;
    request.spec = &spec;
    request.home = home;
    request.data_dir = data;
    request.signal_fd = signal_fd;
    if (!opts.json) {
        request.stdout_fd = STDOUT_FILENO;
        request.stderr_fd = STDERR_FILENO;
    }
    if (opts.warm ? run_warm(&opts, &profile, argv + first, &request, &result, &err) == 0 : hutch_run(&request, &result, &err) == 0)
        status = report(&opts, &result, &err);
out:
    if (status < 0) {
        fprintf(stderr, "hutch: %s\n", err.msg);
        status = EXIT_HUTCH;
    }
    hutch_result_done(&result);
    hutch_spec_done(&spec);
    return status;
}

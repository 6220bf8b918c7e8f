#include "runtime/cli/batch.h"

#include "rootfs/home.h"
#include "runtime/batch/judge.h"
#include "runtime/batch/output.h"
#include "runtime/batch/plan.h"
#include "runtime/batch/progress.h"
#include "runtime/batch/schedule.h"
#include "runtime/batch/score.h"
#include "runtime/batch/scratch.h"
#include "runtime/cli/commands.h"
#include "runtime/cli/exits.h"
#include "runtime/cli/say.h"
#include "runtime/cli/with_packages.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "sandbox/rlimits.h"
#include "runtime/hutch.h"
#include "runtime/text/buffer.h"
#include "runtime/text/json_write.h"
#include "runtime/text/quantity.h"
#include "runtime/cli/places.h"
#include "runtime/config/limits.h"
#include "runtime/config/policy_find.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

enum { EXIT_NOT_JUDGED = 1 };

/* Several times what the slowest solution of the usual sets computes: 0.3 s in HumanEval, 5 s in MBPP (task 123). */
#define CPU_MS 6000
#define MBPP_CPU_MS 15000
#define MAX_JOBS 1024
#define MAX_KS 16

static void print_help(void)
{
    printf("usage: hutch batch [options] TASKS\n\n"
           "Runs every program of a task file in a sandbox of its own and judges it. TASKS holds JSON lines or a\n"
           "JSON array, plain or gzipped; '-' is standard input. One line of JSON for each program goes to the\n"
           "output, a summary to standard error. Exit status: 0 when everything was judged, whatever the verdicts;\n"
           "1 when something could not be; 125 when hutch failed; 128+N after signal N.\n\n");
    hutch_option_print(&hutch_commands[COMMAND_BATCH]);
}

static int parse_options(int argc, char **argv, struct batch_opts *opts, struct hutch_err *err)
{
    int i = 1, is_over = 0;

    while (true) {
        if (!is_over)
            is_over = hutch_option_take(&hutch_commands[COMMAND_BATCH], opts, argc, argv, &i, err);
        if (is_over < 0)
            return -1;
        if (i == argc)
            break;
        if (opts->tasks)
            return hutch_err_set(err, 0, "there is one task file, '%s'; what is '%s'?", opts->tasks, argv[i]);
        opts->tasks = argv[i++];
    }
    if (!opts->help && !opts->tasks)
        return hutch_err_set(err, 0, "which tasks? (see: hutch batch --help)");
    return 0;
}

/* ---- what the options mean ---- */

struct batch {
    struct batch_opts opts;
    struct with_packages with;  /* what opts.image may point to */
    struct batch_task_options task_options;
    struct batch_settings settings;
    bool in_order;
    bool has_memory;
    uint64_t memory_bytes;
    unsigned ks[MAX_KS];
    size_t n_ks;
    struct batch_scratch scratch; /* of tasks that may have files */
};

static unsigned usable_cpus(void)
{
    cpu_set_t set;
    long n = sysconf(_SC_NPROCESSORS_ONLN);

    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        return (unsigned)CPU_COUNT(&set);
    return n > 0 ? (unsigned)n : 1;
}

static int read_ks(const char *text, struct batch *b, struct hutch_err *err)
{
    auto_free char *copy = strdup(text);

    if (!copy)
        return hutch_err_set(err, ENOMEM, "option '--k'");
    for (char *save = NULL, *word = strtok_r(copy, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
        uint64_t k;

        if (hutch_parse_u64(word, &k, err) < 0)
            return hutch_err_wrap(err, "option '--k'");
        if (k == 0 || k > 1000000 || b->n_ks == MAX_KS)
            return hutch_err_set(err, 0, "option '--k': expected at most %d numbers from 1 to 1000000", MAX_KS);
        b->ks[b->n_ks++] = (unsigned)k;
    }
    return b->n_ks ? 0 : hutch_err_set(err, 0, "option '--k': expected numbers as in 1,10,100");
}

static int read_time(const char *option, const char *text, uint64_t *ret, struct hutch_err *err)
{
    if (!text)
        return 0;
    if (hutch_parse_duration_ms(text, ret, err) < 0)
        return hutch_err_wrap(err, "option '%s'", option);
    return *ret ? 0 : hutch_err_set(err, 0, "option '%s': a batch with an endless run never ends", option);
}

static int read_choice(const char *option, const char *text, const char *first, const char *second, bool *ret_is_second,
                       struct hutch_err *err)
{
    *ret_is_second = text && strcmp(text, second) == 0;
    if (!text || *ret_is_second || strcmp(text, first) == 0)
        return 0;
    return hutch_err_set(err, 0, "option '%s': expected '%s' or '%s', got '%s'", option, first, second, text);
}

static int read_settings(struct batch *b, struct hutch_err *err)
{
    const struct batch_opts *opts = &b->opts;
    struct batch_limits *limits = &b->settings.manner.limits;
    uint64_t jobs = usable_cpus();
    bool by_finish;

    if (opts->format && hutch_batch_format_parse(opts->format, &b->task_options.format, err) < 0)
        return hutch_err_wrap(err, "option '--format'");
    if (opts->compare && hutch_batch_compare_parse(opts->compare, &b->task_options.compare, err) < 0)
        return hutch_err_wrap(err, "option '--compare'");
    if (opts->jobs && hutch_parse_u64(opts->jobs, &jobs, err) < 0)
        return hutch_err_wrap(err, "option '--jobs'");
    if (jobs == 0 || jobs > MAX_JOBS)
        return hutch_err_set(err, 0, "option '--jobs': expected 1 to %d, got '%s'", MAX_JOBS,
                             opts->jobs ? opts->jobs : "0");
    if (opts->memory &&
        hutch_limit_parse_option(&hutch_limit_rows[LIMIT_MEMORY], opts->memory, &b->memory_bytes, err) < 0)
        return -1;
    if (read_time("--cpu-time", opts->cpu_time, &limits->cpu_ms, err) < 0 ||
        read_time("--timeout", opts->timeout, &limits->wall_ms, err) < 0 ||
        read_choice("--order", opts->order, "input", "finish", &by_finish, err) < 0 ||
        read_choice("--judge", opts->judge, "apart", "together", &b->settings.manner.is_together, err) < 0 ||
        read_ks(opts->k ? opts->k : "1,10,100", b, err) < 0)
        return -1;
    b->task_options.has_compare = opts->compare != NULL;
    b->task_options.with_challenge = opts->challenge;
    b->has_memory = opts->memory != NULL;
    b->in_order = !by_finish;
    b->settings.jobs = (unsigned)jobs;
    b->settings.all_cases = opts->all_cases;
    b->settings.stop_fd = -1;
    b->settings.manner.files_fd = -1;
    b->settings.proc = "/proc";
    return 0;
}

/* What is laid over the image belongs to it: verdicts depend on it. */
static int add_packages(struct batch *b, struct hutch_err *err)
{
    struct run_opts asked = { .image = b->opts.image, .with = b->opts.with, .index = b->opts.index,
                              .wheels = b->opts.wheels, .quiet = b->opts.quiet };
    auto_free char *home = NULL;

    if (hutch_home_path(&home, err) < 0 || hutch_with_packages(&asked, home, NULL, NULL, &b->with, err) < 0)
        return -1;
    b->opts.image = asked.image;
    return 0;
}

/* All that a verdict depends on and that is not in the files; a result under other settings is not taken over by
 * --resume. */
static uint64_t salt_of(const struct batch *b)
{
    const struct batch_limits *limits = &b->settings.manner.limits;
    uint64_t parts[] = { limits->cpu_ms,
                         limits->wall_ms,
                         b->has_memory,
                         b->memory_bytes,
                         b->settings.manner.is_together,
                         b->settings.all_cases,
                         b->task_options.with_challenge,
                         b->task_options.has_compare ? 1 + (uint64_t)b->task_options.compare : 0 };
    const char *const names[] = { b->opts.image ? b->opts.image : "", b->opts.policy ? b->opts.policy : "" };
    uint64_t salt = 0xcbf29ce484222325; /* FNV-1a, over numbers in place of bytes */

    for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
        salt = (salt ^ parts[i]) * 0x100000001b3;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        for (const char *p = names[i];; p++) {
            salt = (salt ^ (unsigned char)*p) * 0x100000001b3;
            if (!*p)
                break; /* the end counts, so that the two do not run together */
        }
    return salt;
}

/* ---- signals ---- */

static int stop_pipe[2] = { -1, -1 };
static volatile sig_atomic_t signal_caught;

/* The second one ends hutch at once: its default action is back. */
static void on_signal(int number)
{
    int e = errno;

    signal_caught = number;
    if (write(stop_pipe[1], "", 1) < 0)
        signal_caught = number; /* the pipe is full: it is readable already */
    errno = e;
}

static int catch_signals(struct batch *b, struct hutch_err *err)
{
    static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };

    if (pipe2(stop_pipe, O_CLOEXEC | O_NONBLOCK) < 0)
        return hutch_err_set(err, errno, "make a pipe");
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        struct sigaction old, action = { .sa_handler = on_signal, .sa_flags = SA_RESETHAND };

        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler == SIG_IGN) /* nohup */
            continue;
        sigaction(numbers[i], &action, NULL);
    }
    signal(SIGPIPE, SIG_IGN); /* a reader of our output that went away is an error of write(2) */
    b->settings.stop_fd = stop_pipe[0];
    return 0;
}

/* ---- the engine ---- */

/* What programs of the usual sets import, besides what runtime/batch/judge/ does. */
static const char *const usual_modules[] = {
    "bisect",    "cmath",     "collections", "copy",   "ctypes", "datetime",  "decimal", "errno",
    "fractions", "functools", "hashlib",     "heapq",  "io",     "itertools", "json",    "math",
    "operator",  "os",        "queue",       "random", "re",     "select",    "signal",  "statistics",
    "string",    "struct",    "sys",         "time",   "types",  "typing",    NULL,
};
static const char *const data_modules[] = { "numpy", "pandas", NULL };

/* The policy as asked for, but for times, which each run has of its own, and memory, which prepared sandboxes are to
 * have from the start. It is a file without a name: nothing to clean up. */
static int write_policy(const struct batch *b, int *ret_fd, struct hutch_err *err)
{
    const char *base = b->opts.policy ? b->opts.policy : "default";
    struct text_buffer t = TEXT_BUFFER_INIT;
    auto_free char *text = NULL, *path = NULL;
    auto_fd fd = -1;

    if (strchr(base, '/')) {
        path = realpath(base, NULL); /* "extends" would be relative to the file that we write */
        if (!path)
            return hutch_err_set(err, errno, "open policy '%s'", base);
        base = path;
    }
    hutch_text_addf(&t, "{\"schema\": 1, \"extends\": ");
    hutch_json_quote(&t, base, strlen(base));
    hutch_text_addf(&t, ", \"limits\": {\"cpu_time\": null, \"wall\": null");
    if (b->has_memory && b->memory_bytes)
        hutch_text_addf(&t, ", \"memory\": %" PRIu64, b->memory_bytes);
    else if (b->has_memory)
        hutch_text_addf(&t, ", \"memory\": null");
    hutch_text_addf(&t, "}}\n");
    text = hutch_text_take(&t, NULL);
    fd = memfd_create("hutch-batch-policy", MFD_CLOEXEC);
    if (!text || fd < 0 || hutch_fd_write_all(fd, text, strlen(text)) < 0)
        return hutch_err_set(err, text ? errno : ENOMEM, "write a policy for the batch");
    *ret_fd = hutch_fd_take(&fd);
    return 0;
}

static int open_engine(const struct batch *b, bool wants_data, int policy_fd, struct hutch_engine **ret,
                       struct hutch_err *err)
{
    auto_free char *warm_up = hutch_batch_judge_warm_up();
    unsigned jobs = b->settings.jobs;
    struct hutch_zygote zygotes[] = {
        { .name = "judge", .modules = usual_modules, .warm_up = warm_up, .min = jobs + 2, .max = 2 * jobs + 4 },
        { .name = "data", .parent = "judge", .modules = data_modules, .min = jobs, .max = 2 * jobs + 2 },
    };
    struct hutch_engine_options o;
    struct hutch_error why;
    auto_free char *launcher = NULL, *policies = NULL;
    char policy[64];

    if (!warm_up)
        return hutch_err_set(err, ENOMEM, "start the engine");
    snprintf(policy, sizeof(policy), "/proc/self/fd/%d", policy_fd);
    hutch_engine_options_init(&o);
    if (!getenv("HUTCH_LAUNCHER") && hutch_places_launcher(&launcher, err) < 0)
        return -1;
    if (hutch_policy_dir(&policies, err) < 0)
        return -1;
    o.launcher = launcher;
    o.policy_dir = policies;
    o.image = b->opts.image;
    o.policy = policy;
    o.zygotes = zygotes;
    o.n_zygotes = wants_data ? 2 : 1;
    o.max_running = jobs;
    o.max_queued = 2 * jobs + 16;
    hutch_rlimits_raise_open_files(); /* the tasks are read: gzip has been executed */
    if (hutch_engine_open(&o, ret, &why) < 0)
        return hutch_err_set(err, 0, "%s", why.message);
    return 0;
}

/* ---- the end ---- */

/* pass@k, for each k of which every task has enough samples. */
static void print_scores(const struct batch *b, const struct batch_plan *plan, const struct batch_tally *tally)
{
    uint32_t fewest = UINT32_MAX;
    size_t n = 0;

    for (size_t i = 0; i < plan->n_groups; i++)
        if (plan->groups[i].n_samples) {
            fewest = tally->judged[i] < fewest ? tally->judged[i] : fewest;
            n++;
        }
    for (size_t k = 0; k < b->n_ks; k++) {
        double sum = 0;

        if (b->ks[k] > fewest || n == 0)
            continue;
        for (size_t i = 0; i < plan->n_groups; i++)
            if (plan->groups[i].n_samples)
                sum += hutch_batch_pass_at_k(tally->judged[i], tally->passed[i], b->ks[k]);
        hutch_say("pass@%u %.6f (%zu tasks)", b->ks[k], sum / (double)n, n);
    }
}

static void print_summary(const struct batch *b, const struct batch_plan *plan, const struct batch_output *output,
                          const struct batch_tally *tally, double seconds)
{
    fprintf(stderr, "hutch: %zu of %zu passed", tally->verdicts[BATCH_PASS], plan->n_items);
    for (size_t i = BATCH_PASS + 1; i < BATCH_VERDICT_COUNT; i++)
        if (tally->verdicts[i])
            fprintf(stderr, ", %zu %s", tally->verdicts[i], hutch_batch_verdict_name((enum batch_verdict)i));
    fprintf(stderr, "\n");
    if (!tally->is_interrupted)
        print_scores(b, plan, tally);
    fprintf(stderr, "hutch: %" PRIu64 " runs in %.2f s, %.1f/s, %u at a time", tally->n_runs, seconds,
            seconds > 0 ? (double)tally->n_runs / seconds : 0.0, b->settings.jobs);
    if (tally->n_retried)
        fprintf(stderr, ", %" PRIu64 " of them again", tally->n_retried);
    if (output->n_kept)
        fprintf(stderr, "; %zu results were there already", output->n_kept);
    fprintf(stderr, "\n");
}

static void print_resumed(const struct batch *b, const struct batch_output *output)
{
    if (b->opts.quiet || !b->opts.resume)
        return;
    if (output->is_torn)
        hutch_say("the last line of '%s' was not complete and is cut", output->path);
    if (output->n_dropped)
        hutch_say("%zu results in '%s' are run again: no verdict, or of another program or other settings",
                  output->n_dropped, output->path);
}

static void print_interrupted(const struct batch *b, const struct batch_plan *plan, const struct batch_output *output,
                              const struct batch_tally *tally)
{
    size_t done = tally->n_done + output->n_kept;

    if (!output->path)
        hutch_say("interrupted, %zu of %zu done; with -o FILE it could be resumed", done, plan->n_items);
    else
        hutch_say("interrupted, %zu of %zu done; to go on: the same command%s", done, plan->n_items,
                  b->opts.resume ? "" : " with --resume");
}

static int make_scratch(struct batch *b, struct hutch_err *err)
{
    if (hutch_batch_scratch_make(&b->scratch, err) < 0)
        return -1;
    b->settings.manner.files_fd = b->scratch.dirfd;
    b->settings.manner.files_path = b->scratch.path;
    return 0;
}

static void remove_scratch(struct batch *b)
{
    struct hutch_err err;

    if (hutch_batch_scratch_remove(&b->scratch, &err) < 0)
        hutch_say("%s", err.msg);
}

static int run_plan(struct batch *b, struct batch_plan *plan, struct batch_output *output, struct batch_tally *tally,
                    struct hutch_err *err)
{
    struct batch_engine engine = { NULL, hutch_engine_submit, hutch_engine_cancel, hutch_engine_fd,
                                   hutch_engine_dispatch };
    struct batch_progress progress;
    auto_fd policy_fd = -1; /* to the end: the engine reads it again for a run that differs from the prepared ones */
    int rc;

    if (plan->options.format == BATCH_GENERIC && make_scratch(b, err) < 0)
        return -1;
    if (write_policy(b, &policy_fd, err) < 0 || open_engine(b, plan->wants_data, policy_fd, &engine.engine, err) < 0)
        return -1;
    hutch_batch_progress_start(&progress, STDERR_FILENO, !b->opts.quiet);
    b->settings.progress = &progress;
    rc = hutch_batch_schedule(plan, output, &engine, &b->settings, tally, err);
    hutch_batch_progress_end(&progress);
    hutch_engine_free(engine.engine);
    return rc;
}

/* Exit status; 0 and 1 as the tally has it. -1 with *err. */
static int run_batch(struct batch *b, struct hutch_err *err)
{
    struct batch_plan plan = BATCH_PLAN_INIT;
    struct batch_output output = BATCH_OUTPUT_INIT;
    struct batch_tally tally = { .n_done = 0 };
    double start_ms = hutch_clock_ms();
    int rc;

    rc = hutch_batch_plan_make(b->opts.tasks, b->opts.samples, &b->task_options, salt_of(b), b->opts.partial, &plan,
                               err);
    if (rc == 0 && !b->settings.manner.limits.cpu_ms)
        b->settings.manner.limits.cpu_ms = plan.options.format == BATCH_MBPP ? MBPP_CPU_MS : CPU_MS;
    if (rc == 0)
        rc = hutch_batch_output_open(b->opts.output, b->opts.resume, b->in_order, &plan, &output, err);
    if (rc == 0) {
        print_resumed(b, &output);
        rc = catch_signals(b, err);
    }
    if (rc == 0)
        rc = run_plan(b, &plan, &output, &tally, err);
    if (rc == 0 && !b->opts.quiet)
        print_summary(b, &plan, &output, &tally, (hutch_clock_ms() - start_ms) / 1e3);
    if (rc == 0 && tally.n_exposed)
        hutch_say("nothing on this kernel kept %" PRIu64 " runs from looking into their judge", tally.n_exposed);
    if (rc == 0 && tally.verdicts[BATCH_INTERNAL]) {
        hutch_say("%zu programs were not judged and count for nothing: %s", tally.verdicts[BATCH_INTERNAL],
                  tally.internal);
        rc = EXIT_NOT_JUDGED;
    }
    if (rc >= 0 && tally.is_interrupted) {
        print_interrupted(b, &plan, &output, &tally);
        rc = EXIT_SIGNAL_BASE + signal_caught;
    }
    remove_scratch(b);
    hutch_batch_tally_done(&tally);
    hutch_batch_output_done(&output);
    hutch_batch_plan_done(&plan);
    return rc;
}

int hutch_cmd_batch(int argc, char **argv, struct hutch_err *err)
{
    struct batch b = { .scratch = BATCH_SCRATCH_INIT };

    if (parse_options(argc, argv, &b.opts, err) < 0)
        return -1;
    if (b.opts.help) {
        print_help();
        return 0;
    }
    return read_settings(&b, err) < 0 || add_packages(&b, err) < 0 ? -1 : run_batch(&b, err);
}

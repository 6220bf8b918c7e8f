#include "runtime/cli/run.h"

#include "rootfs/home.h"
#include "rootfs/image_root.h"
#include "runtime/cli/engine.h"
#include "runtime/cli/exits.h"
#include "runtime/cli/first_image.h"
#include "runtime/cli/notebook.h"
#include "runtime/cli/run_inside.h"
#include "runtime/cli/run_options.h"
#include "runtime/cli/run_project.h"
#include "runtime/cli/run_report.h"
#include "runtime/cli/run_rich.h"
#include "runtime/cli/run_server.h"
#include "runtime/cli/run_warm.h"
#include "runtime/cli/say.h"
#include "runtime/cli/shaper.h"
#include "runtime/cli/with_packages.h"
#include "runtime/config/profile.h"
#include "runtime/gpu/gpu.h"
#include "runtime/lang/program.h"
#include "runtime/notebook/params.h"
#include "runtime/run/run.h"
#include "runtime/text/quantity.h"
#include "sandbox/fd.h"
#include "sandbox/log.h"
#include "sandbox/rlimits.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void print_help(void)
{
    printf("usage: hutch run [options] FILE [ARGS...]\n"
           "       hutch run [options] -c CODE [ARGS...]\n"
           "       hutch run [options] - [ARGS...]\n"
           "       hutch run [options] DIR [ARGS...]\n"
           "       hutch run [options] --project DIR FILE|-m MODULE [ARGS...]\n"
           "       hutch run [options] NOTEBOOK.ipynb [options]\n"
           "       hutch run [options] --image NAME [--entrypoint PROGRAM] -- [PROGRAM] [ARGS...]\n\n"
           "Runs a program, or the cells of a notebook, in a sandbox of its own. Exit status: the program's;\n"
           "128+N when signal N ended it; 124 when a time limit did; 125 when hutch failed; 126, 127 when the\n"
           "program cannot be executed or is not there.\n\n");
    hutch_option_print(&hutch_commands[COMMAND_RUN]);
}

/* One that is not Python, which is what -c and '-' are otherwise. */
static bool is_own_language(const struct run_opts *opts)
{
    return opts->language && strcmp(opts->language, "python") != 0;
}

/* A text of another language than Python is a file inside: its interpreters have no common option for a text. */
static int set_code(const struct run_opts *opts, char **words, struct sandbox_spec *spec, struct hutch_err *err)
{
    const char *ending = hutch_program_ending(opts->language);
    char name[32];

    snprintf(name, sizeof(name), "code%s", ending ? ending : "");
    return hutch_program_set_text(spec, opts->language, name, opts->code, strlen(opts->code), words, err);
}

static int set_program(const struct run_opts *opts, char **words, struct sandbox_spec *spec, struct hutch_err *err)
{
    if (is_own_language(opts) && opts->code)
        return set_code(opts, words, spec, err);
    if (opts->code)
        return hutch_program_set_code(spec, opts->code, words, err);
    if (opts->module)
        return hutch_program_set_module(spec, opts->module, words, err);
    if (!words[0])
        return hutch_err_set(err, 0,
                             "there is nothing to run: expected FILE, DIR, '-m MODULE', '-c CODE' or '-' "
                             "(see: hutch run --help)");
    if (strcmp(words[0], "-") == 0 && is_own_language(opts))
        return hutch_err_set(err, 0,
                             "option '--language': '-' is Python from standard input; for '%s' give a file or -c",
                             opts->language);
    if (strcmp(words[0], "-") == 0)
        return hutch_program_set_stdin(spec, words + 1, err);
    return hutch_program_set_file(spec, opts->language, words[0], words + 1, err);
}

/* Goes by way of what hutch.h says of a result, as the warm way does. */
static int report(const struct run_opts *opts, const struct run_result *r, struct hutch_err *err)
{
    struct run_report made = RUN_REPORT_INIT;
    struct hutch_run_details details;
    struct hutch_result result;
    int status = -1;

    hutch_result_publish(r, &details, &result);
    if (hutch_run_report_make(opts, &result, &made, err) == 0)
        status = hutch_run_report_print(&made, r->lost_output, err);
    hutch_run_report_done(&made);
    return status;
}

/* --- notebooks, and programs that run as a cell ----------------------------------------------------------------- */

/* What is asked for has to make sense for what is run: nothing is ignored in silence. */
static int check_kind(const struct run_opts *opts, char **words, struct hutch_err *err)
{
    const char *notebook_only = opts->output ? "-o" : opts->params.n ? "--param" : opts->cell_timeout ? "--cell-timeout"
                                : opts->allow_errors ? "--allow-errors"
                                : opts->interrupt_on_timeout ? "--interrupt-on-timeout" : NULL;
    const char *rich = opts->rich ? "--rich" : "--llm";

    if (opts->raw && (opts->json || opts->rich || opts->llm || hutch_run_options_is_notebook(opts, words[0])))
        return hutch_err_set(err, 0, "option '--raw' is for a program whose own bytes go to the terminal");
    if (opts->json && opts->llm)
        return hutch_err_set(err, 0, "options '--json' and '--llm': the result has one form or the other");
    if (hutch_run_options_is_notebook(opts, words[0])) {
        if (opts->rich || opts->warm)
            return hutch_err_set(err, 0, "option '%s' is for programs; a notebook's cells run like that anyway",
                                 opts->rich ? rich : "--warm");
        if (opts->language)
            return hutch_err_set(err, 0, "option '--language' is for programs; what '%s' is in, it says itself",
                                 words[0]);
        if (opts->project)
            return hutch_err_set(err, 0, "option '--project' is for programs, and '%s' is a notebook (-v shows it a "
                                         "directory)", words[0]);
        if (opts->writable)
            return hutch_err_set(err, 0, "option '--writable' is for a project, and '%s' is a notebook", words[0]);
        if (words[1])
            return hutch_err_set(err, 0, "a notebook takes no arguments, but '%s' (parameters: --param NAME=VALUE)",
                                 words[1]);
        return 0;
    }
    if (notebook_only)
        return hutch_err_set(err, 0,
                             "option '%s' is for notebooks, and '%s' is none: the name of a notebook ends in %s",
                             notebook_only, opts->code ? "-c" : words[0] ? words[0] : "", RUN_NOTEBOOK_ENDING);
    if ((opts->rich || opts->llm) && words[0] && (opts->code || words[1]))
        return hutch_err_set(err, 0, "option '%s': the program runs as a cell, which takes no arguments, but '%s'",
                             rich, opts->code ? words[0] : words[1]);
    return 0;
}

static int run_notebook(const struct run_opts *opts, const char *home, const char *data, const char *path,
                        size_t llm_budget, struct hutch_err *err)
{
    struct cli_engine_options engine;
    struct notebook_opts notebook = {
        .path = path,
        .output = opts->output,
        .engine = &engine,
        .data = data,
        .params = opts->params.values,
        .n_params = opts->params.n,
        .llm_budget = llm_budget,
        .allow_errors = opts->allow_errors,
        .interrupt_on_timeout = opts->interrupt_on_timeout,
        .json = opts->json,
        .llm = opts->llm,
        .quiet = opts->quiet,
        .verbose = opts->verbose,
    };
    auto_fd signal_fd = -1;
    int status = -1;

    for (size_t i = 0; i < opts->params.n; i++)
        if (hutch_notebook_check_param(opts->params.values[i], err) < 0)
            return -1;
    if (opts->cell_timeout && hutch_parse_duration_ms(opts->cell_timeout, &notebook.cell_timeout_ms, err) < 0)
        return hutch_err_wrap(err, "option '--cell-timeout'");
    if (hutch_cli_engine_options(opts, home, &engine, err) == 0 && hutch_run_watch_signals(&signal_fd, err) == 0) {
        /* The limit of cells that is asked for is that of the policy then, which is the most that a cell may have. */
        if (!engine.limits.wall_ms)
            engine.limits.wall_ms = notebook.cell_timeout_ms;
        notebook.signal_fd = signal_fd;
        status = hutch_cmd_notebook(&notebook, err);
    }
    hutch_cli_engine_done(&engine);
    return status;
}

/* The text that is to be the cell, and the block that holds it, if one does. */
static int read_cell(const struct run_opts *opts, char **words, const char **ret, size_t *ret_len, char **ret_block,
                     struct hutch_err *err)
{
    struct sandbox_spec program = { 0 };
    int rc = 0;

    *ret_block = NULL;
    if (is_own_language(opts))
        return hutch_err_set(err, 0, "option '%s' is for Python, and '--language %s' says something else",
                             opts->rich ? "--rich" : "--llm", opts->language);
    if (opts->code) {
        *ret = opts->code;
        *ret_len = strlen(opts->code);
        return 0;
    }
    if (words[0] && strcmp(words[0], "-") == 0) {
        rc = hutch_fd_slurp(STDIN_FILENO, PROGRAM_MAX_BYTES, "standard input", ret_block, ret_len, err);
        *ret = *ret_block;
        return rc;
    }
    rc = set_program(opts, words, &program, err);
    if (rc == 0 && strcmp(program.argv[0], "python3") != 0) {
        rc = hutch_err_set(err, 0, "option '%s' is for Python, and '%s' is something else",
                           opts->rich ? "--rich" : "--llm", words[0]);
    } else if (rc == 0) {
        *ret = *ret_block = program.files[0].data;
        *ret_len = program.files[0].len;
        program.files[0].data = NULL;
    }
    hutch_spec_done(&program);
    return rc;
}

static int run_rich(const struct run_opts *opts, const char *home, const char *data, char **words, size_t llm_budget,
                    struct hutch_err *err)
{
    struct cli_engine_options engine;
    struct rich_run_request request = {
        .engine = &engine,
        .data = data,
        .form = opts->json ? RICH_JSON : opts->llm ? RICH_LLM : RICH_SHOWN,
        .llm_budget = llm_budget,
        .quiet = opts->quiet,
    };
    auto_free char *block = NULL;
    auto_fd signal_fd = -1;
    int status = -1;

    /* Signals are ours only when nothing is left to wait for here, such as standard input. */
    if (read_cell(opts, words, &request.code, &request.code_len, &block, err) < 0 ||
        hutch_run_watch_signals(&signal_fd, err) < 0)
        return -1;
    request.code = hutch_program_skip_mark(request.code, &request.code_len);
    request.signal_fd = signal_fd;
    if (hutch_cli_engine_options(opts, home, &engine, err) == 0)
        status = hutch_run_rich(&request, err);
    hutch_cli_engine_done(&engine);
    return status;
}

/* --- a program -------------------------------------------------------------------------------------------------- */

static int run_warm(const struct run_opts *opts, const char *home, const char *data, char **words,
                    struct hutch_err *err)
{
    struct cli_engine_options engine;
    struct sandbox_spec program = { 0 };
    struct run_report made = RUN_REPORT_INIT;
    struct warm_run_request request = {
        .engine = &engine, .opts = opts, .data = data, .program = &program, .args = opts->code ? words : words + 1,
    };
    auto_fd signal_fd = -1;
    int lost_output, status = -1;

    if (set_program(opts, words, &program, err) == 0 && hutch_run_watch_signals(&signal_fd, err) == 0) {
        request.signal_fd = signal_fd;
        if (hutch_cli_engine_options(opts, home, &engine, err) == 0 &&
            hutch_run_warm(&request, &made, &lost_output, err) == 0)
            status = hutch_run_report_print(&made, lost_output, err);
        hutch_cli_engine_done(&engine);
    }
    hutch_run_report_done(&made);
    hutch_spec_done(&program);
    return status;
}

/* 1: the server has done it, and *@ret_status is the exit status. */
static int run_by_server(const struct run_opts *opts, const char *home, const char *data, char **words,
                         int *ret_status, struct hutch_err *err)
{
    struct sandbox_spec program = { 0 };
    struct run_report made = RUN_REPORT_INIT;
    struct server_run_request request = {
        .opts = opts, .home = home, .data = data, .program = &program, .args = opts->code ? words : words + 1,
    };
    auto_fd signal_fd = -1;
    int lost_output = 0, rc = -1;

    if (set_program(opts, words, &program, err) == 0 && hutch_run_watch_signals(&signal_fd, err) == 0) {
        request.signal_fd = signal_fd;
        rc = hutch_run_by_server(&request, &made, &lost_output, err);
        if (rc > 0)
            hutch_log_debug("the run was done by the server on the default socket");
        if (rc > 0)
            *ret_status = hutch_run_report_print(&made, lost_output, err);
        else if (rc == 0)
            hutch_log_debug("without a server: %s", err->msg);
    }
    hutch_run_report_done(&made);
    hutch_spec_done(&program);
    return rc;
}

/* What a server cannot be asked for is not prepared for it: a FIFO could be read once only. */
static bool may_be_by_server(const struct run_opts *opts, char **words)
{
    struct stat st;

    return !opts->no_server && !opts->module && (opts->code || (words[0] && stat(words[0], &st) == 0 &&
                                                              S_ISREG(st.st_mode)));
}

static int set_program_or_project(const struct run_opts *opts, const struct run_project *project, char **words,
                                  struct sandbox_spec *spec, struct project_copy *ret_copy, struct hutch_err *err)
{
    if (project->dir && hutch_run_project_set(project, opts, spec, ret_copy, err) < 0)
        return -1;
    return project->entry ? 0 : set_program(opts, words, spec, err);
}

static int run_cold(const struct run_opts *opts, const struct run_project *project, const char *home, const char *data,
                    char **words, struct hutch_err *err)
{
    struct run_request request = {
        .stdin_fd = STDIN_FILENO, .stdout_fd = -1, .stderr_fd = -1, .home = home, .data_dir = data, .may_unshare = true
    };
    struct project_copy copy = { .dir = NULL };
    struct sandbox_spec spec = { 0 };
    struct shaper out, err_out;
    struct run_result result;
    struct profile profile;
    auto_image_root image = IMAGE_ROOT_INIT;
    auto_fd signal_fd = -1;
    int status = -1;

    hutch_result_init(&result);
    if (hutch_run_options_profile(opts, home, data, &profile, err) < 0 || hutch_spec_init(&spec, err) < 0 ||
        hutch_profile_build(&profile, &spec, err) < 0 ||
        (!opts->is_inside && set_program_or_project(opts, project, words, &spec, &copy, err) < 0) ||
        hutch_profile_set_root(&profile, &spec, &image, err) < 0 ||
        (opts->is_inside && hutch_run_inside_set(opts, words, &spec, err) < 0) ||
        hutch_gpu_set_environment(&spec, err) < 0 ||
        hutch_run_watch_signals(&signal_fd, err) < 0)
        goto out;
    request.spec = &spec;
    request.project = copy.dir ? &copy : NULL;
    request.signal_fd = signal_fd;
    if (!opts->json) {
        request.stdout_fd = STDOUT_FILENO;
        request.stderr_fd = STDERR_FILENO;
        request.stdout_shaper = hutch_shaper_init(&out, STDOUT_FILENO, opts->raw);
        request.stderr_shaper = hutch_shaper_init(&err_out, STDERR_FILENO, opts->raw);
    }
    if (hutch_run(&request, &result, err) == 0)
        status = report(opts, &result, err);
out:
    hutch_result_done(&result);
    hutch_spec_done(&spec);
    return status;
}

/* "-v" without SRC:DST is --verbose, and what follows it the program. */
static bool is_volume_meant(const struct run_opts *opts, char **words, struct hutch_err *err)
{
    const char *path = words[0];
    struct stat st;

    if (!opts->verbose || !path || !(strchr(path, ':') || (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) ||
                                     (words[1] && strcmp(words[1], "-c") == 0)))
        return false;
    hutch_err_set(err, 0, "'-v %s' makes nothing visible: -v takes SRC:DST with an absolute DST, such as "
                          "/tmp:/mnt/tmp (before anything else it is --verbose)", path);
    return true;
}

/* Where there is no such program, or it cannot be read: 127 or 126, as shells have it. Looked at without being opened,
 * as a pipe with one reader less would end its writer. 0: it can be. */
static int check_script(const struct run_opts *opts, char **words, struct hutch_err *err)
{
    const char *path = words[0];
    struct stat st = { 0 };

    if (opts->code || opts->module || !path || !*path || strcmp(path, "-") == 0)
        return 0;
    if (stat(path, &st) < 0)
        hutch_err_set(err, errno, "open the program '%s'", path);
    else if (faccessat(AT_FDCWD, path, R_OK, AT_EACCESS) < 0)
        hutch_err_set(err, errno, "open the program '%s'", path);
    else
        return 0;
    if (is_volume_meant(opts, words, err))
        return EXIT_HUTCH;
    return err->errnum == ENOENT || err->errnum == ENOTDIR ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
}

/* What runs is there, so only the image can be missing, or what @script and the options want over it. */
static int prepare_image(struct run_opts *opts, const char *home, const char *script, const char *project,
                         struct with_packages *ret, struct hutch_err *err)
{
    if (!opts->rootfs && (!opts->quiet || opts->yes) &&
        hutch_first_image(home, opts->image ? opts->image : PROFILE_IMAGE, opts->yes, err) < 0)
        return -1;
    return hutch_with_packages(opts, home, script, project, ret, err);
}

/* The file that the program is in, the caller's to free; NULL: it is in none. */
static char *find_script(const struct run_opts *opts, const struct run_project *project, char **words)
{
    char *path = NULL;

    if (project->entry && asprintf(&path, "%s/%s", project->dir, project->entry) < 0)
        path = NULL;
    if (project->dir || opts->code || opts->module || !words[0])
        return path;
    return strdup(words[0]);
}

static int run(struct run_opts *opts, char **words, struct hutch_err *err)
{
    __attribute__((cleanup(hutch_run_project_done))) struct run_project project = RUN_PROJECT_INIT;
    auto_free char *script = NULL;
    struct with_packages with;
    auto_free char *home = NULL, *data = NULL;
    size_t llm_budget;
    int status;

    hutch_say_verbosely(opts->verbose);
    if (hutch_run_options_data(opts, &data, err) < 0 || hutch_run_options_budget(opts, "--llm", &llm_budget, err) < 0 ||
        check_kind(opts, words, err) < 0 || hutch_home_path(&home, err) < 0)
        return -1;
    if (opts->is_inside) {
        if (hutch_run_inside_check(opts, err) < 0 || prepare_image(opts, home, NULL, NULL, &with, err) < 0)
            return -1;
        return run_cold(opts, &project, home, data, words, err);
    }
    if (hutch_run_options_is_notebook(opts, words[0])) {
        if (access(words[0], R_OK) == 0 && prepare_image(opts, home, NULL, NULL, &with, err) < 0)
            return -1;
        return run_notebook(opts, home, data, words[0], llm_budget, err);
    }
    status = hutch_run_project_find(opts, words, &project, err);
    if (status < 0)
        return !opts->project && is_volume_meant(opts, words, err) ? -EXIT_HUTCH : status;
    status = project.dir ? 0 : check_script(opts, words, err);
    if (status)
        return -status;
    script = find_script(opts, &project, words);
    if (prepare_image(opts, home, script, project.dir, &with, err) < 0)
        return -1;
    if (project.dir)
        return run_cold(opts, &project, home, data, words, err);
    if (opts->rich || opts->llm)
        return run_rich(opts, home, data, words, llm_budget, err);
    if (opts->warm)
        return run_warm(opts, home, data, words, err);
    if (may_be_by_server(opts, words)) {
        int rc = run_by_server(opts, home, data, words, &status, err);

        if (rc != 0)
            return rc < 0 ? -1 : status;
    }
    return run_cold(opts, &project, home, data, words, err);
}

/* In a command line that could not be read as a whole. */
static bool has_json_option(int argc, char **argv)
{
    int i = 1;

    while (i < argc && strcmp(argv[i], "--") != 0 && strcmp(argv[i], "--json") != 0)
        i++;
    return i < argc && strcmp(argv[i], "--json") == 0;
}

int hutch_cmd_run(int argc, char **argv, struct hutch_err *err)
{
    struct run_opts opts;
    int first, status;

    if (hutch_run_options_parse(COMMAND_RUN, argc, argv, &opts, &first, err) < 0) {
        if (has_json_option(argc, argv))
            hutch_run_report_print_failure(EXIT_HUTCH, err);
        return -1;
    }
    if (opts.help) {
        print_help();
        return 0;
    }
    hutch_rlimits_raise_open_files();
    if (!opts.is_inside && !opts.project && !opts.code && !opts.module)
        opts.file = argv[first];
    status = run(&opts, argv + first, err);
    if (status < 0 && opts.json && hutch_run_options_is_notebook(&opts, argv[first]))
        hutch_notebook_print_failure(err);
    else if (status < 0 && opts.json)
        hutch_run_report_print_failure(status == -1 ? EXIT_HUTCH : -status, err);
    return status;
}

#include "runtime/cli/serve.h"

#include "rootfs/home.h"
#include "runtime/azure/format.h"
#include "runtime/cli/commands.h"
#include "runtime/cli/engine.h"
#include "runtime/cli/serve_config.h"
#include "runtime/cli/settings.h"
#include "runtime/cli/version.h"
#include "runtime/e2b/format.h"
#include "runtime/fusion/format.h"
#include "runtime/gateway/listen.h"
#include "runtime/gateway/place.h"
#include "runtime/gateway/server.h"
#include "runtime/gateway/token.h"
#include "runtime/mcp_http/format.h"
#include "runtime/text/quantity.h"
#include "runtime/tools/format.h"
#include "runtime/ui/page.h"
#include "sandbox/fd.h"
#include "sandbox/rlimits.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Besides the native one. */
static const struct format *const known_formats[] = {
    &hutch_e2b_format, &hutch_mcp_format, &hutch_fusion_format, &hutch_tools_format, &hutch_azure_format, NULL
};

static void print_help(void)
{
    printf("usage: hutch serve [options]\n\n"
           "Answers requests over HTTP: POST /v1/run runs a program in a sandbox of its own, with an interpreter\n"
           "already in it. Without --listen, on the socket $XDG_RUNTIME_DIR/hutch/hutch.sock, for its owner only.\n"
           "SIGTERM stops accepting, lets what runs end, and ends.\n\n");
    hutch_option_print(&hutch_commands[COMMAND_SERVE]);
}

static int read_number(const char *option, const char *text, uint64_t min, uint64_t max, unsigned *ret,
                       struct hutch_err *err)
{
    uint64_t value;

    if (!text)
        return 0;
    if (hutch_parse_u64(text, &value, err) < 0)
        return hutch_err_wrap(err, "option '%s'", option);
    if (value < min || value > max)
        return hutch_err_set(err, 0, "option '%s': '%s' is not %llu to %llu", option, text, (unsigned long long)min,
                             (unsigned long long)max);
    *ret = (unsigned)value;
    return 0;
}

static int read_time(const char *option, const char *text, uint64_t *ret, struct hutch_err *err)
{
    if (text && hutch_parse_duration_ms(text, ret, err) < 0)
        return hutch_err_wrap(err, "option '%s'", option);
    return 0;
}

static int read_options(const struct serve_setting *setting, struct server_options *ret, struct hutch_err *err)
{
    const struct serve_opts *opts = &setting->opts;
    struct server_options o = {
        .listen = opts->listen.values,
        .known_formats = known_formats,
        .version = HUTCH_VERSION,
        .formats = opts->formats.values,
        .page = opts->ui ? &hutch_ui_page : NULL,
        .tokens = opts->tokens,
        .is_insecure = opts->insecure,
        .hosts = opts->hosts.values,
        .origins = opts->origins.values,
        .id_header = opts->id_header,
        .max_body = SERVER_BODY_USUAL,
        .max_connections = SERVER_MAX_CONNECTIONS,
        .request_ms = SERVER_REQUEST_MS,
        .idle_ms = SERVER_IDLE_MS,
        .drain_ms = SERVER_DRAIN_MS,
        .is_quiet = opts->quiet,
        .logs_code = opts->log_code,
        .functions = setting->config.functions.list,
        .n_functions = setting->config.functions.n,
        .policies = setting->config.engine.policies,
        .n_policies = setting->config.engine.n_policies,
    };

    if (opts->max_body && hutch_parse_bytes(opts->max_body, &o.max_body, err) < 0)
        return hutch_err_wrap(err, "option '--max-body'");
    if (o.max_body == 0 || o.max_body > SERVER_BODY_LARGEST)
        return hutch_err_set(err, 0, "option '--max-body': '%s' is not 1 to %u bytes", opts->max_body,
                             SERVER_BODY_LARGEST);
    if (read_number("--max-connections", opts->max_connections, 1, 65536, &o.max_connections, err) < 0 ||
        read_number("--workers", opts->workers, 1, WORKERS_MAX, &o.n_workers, err) < 0 ||
        read_time("--request-timeout", opts->request_timeout, &o.request_ms, err) < 0 ||
        read_time("--idle-timeout", opts->idle_timeout, &o.idle_ms, err) < 0 ||
        read_time("--drain", opts->drain, &o.drain_ms, err) < 0)
        return -1;
    *ret = o;
    return 0;
}

/* Whether --format chooses this one. */
static bool has_format(const struct serve_opts *opts, const char *name)
{
    size_t len = strlen(name);

    for (const char *const *word = opts->formats.values; *word; word++)
        if (strncmp(*word, name, len) == 0 && ((*word)[len] == '\0' || (*word)[len] == '='))
            return true;
    return !opts->formats.values[0];
}

/* Whether who asks has to say a token, where it listens on TCP. */
static int check_tokens(const struct server_options *options, struct hutch_err *err)
{
    struct tokens tokens = TOKENS_INIT;
    int rc = options->tokens ? hutch_tokens_load(options->tokens, &tokens, err) : 0;

    if (rc == 0)
        rc = hutch_listeners_may_name(options->listen, tokens.n > 0 || options->is_insecure, err);
    hutch_tokens_done(&tokens);
    return rc;
}

static int check_policies(const struct server_options *options, struct hutch_engine *engine, struct hutch_err *err)
{
    struct policies policies = POLICIES_INIT;
    struct tokens tokens = TOKENS_INIT;
    struct formats formats;
    int rc = -1;

    if (hutch_formats_choose(options->known_formats, options->formats, &formats, err) == 0 &&
        (!options->tokens || hutch_tokens_load(options->tokens, &tokens, err) == 0))
        rc = hutch_policies_set(&policies, options->policies, options->n_policies, engine, &tokens, &formats, err);
    hutch_policies_done(&policies);
    hutch_tokens_done(&tokens);
    return rc;
}

/* What a start would find wrong, as far as it can be told without listening. */
static int check(const struct serve_setting *setting, const struct server_options *options, struct hutch_err *err)
{
    struct gateway_functions functions;
    struct hutch_engine *engine;
    struct hutch_error error;
    int rc;

    if (check_tokens(options, err) < 0)
        return -1;
    if (hutch_engine_open(options->engine, &engine, &error) < 0)
        return hutch_err_set(err, 0, "%s", error.message);
    hutch_gateway_functions_init(&functions, engine, NULL);
    rc = check_policies(options, engine, err);
    if (rc == 0)
        rc = hutch_gateway_functions_set(&functions, options->functions, options->n_functions, err);
    if (rc == 0)
        rc = hutch_gateway_functions_await(&functions, err);
    hutch_engine_free(engine);
    hutch_gateway_functions_done(&functions);
    if (rc == 0)
        hutch_serve_config_print(stdout, &setting->config, &setting->opts);
    return rc;
}

/* ---- what is said, now and after a reload ---- */

static void free_setting(struct serve_setting *setting)
{
    if (setting)
        hutch_serve_config_done(&setting->config);
    free(setting);
}

/* The command line, and the file that it names. NULL: @err, or a word that is none. */
static struct serve_setting *read_setting(int argc, char **argv, struct hutch_err *err)
{
    struct serve_setting *setting = calloc(1, sizeof(*setting));
    int i = 1;

    if (!setting) {
        hutch_err_set(err, ENOMEM, "read the options");
        return NULL;
    }
    setting->config = (struct serve_config)SERVE_CONFIG_INIT;
    if (hutch_option_take(&hutch_commands[COMMAND_SERVE], &setting->opts, argc, argv, &i, err) < 0)
        goto fail;
    if (setting->opts.help)
        return setting;
    if (i < argc) {
        hutch_err_set(err, 0, "hutch serve takes no arguments, but '%s' (see: hutch serve --help)", argv[i]);
        goto fail;
    }
    if (hutch_serve_config_read(&setting->config, &setting->opts, err) < 0)
        goto fail;
    return setting;
fail:
    free_setting(setting);
    return NULL;
}

struct serving {
    int argc;
    char **argv;
    struct serve_setting *first; /* owned; the engine, and all that cannot be changed, is by this one */
    struct serve_setting *now;   /* owned; NULL: it is the first */
    struct serve_setting *next;  /* owned; between read_again() and settle() */
};

static int read_again(void *context, struct server_options *ret, char *ret_restart, size_t restart_size,
                      struct hutch_err *err)
{
    struct serving *serving = context;
    struct serve_setting *setting = read_setting(serving->argc, serving->argv, err);
    struct server_options options;

    if (!setting)
        return -1;
    if (read_options(setting, &options, err) < 0) {
        free_setting(setting);
        return -1;
    }
    hutch_serve_config_compare(serving->first, setting, ret_restart, restart_size);
    if (!ret->tokens == !options.tokens)
        ret->tokens = options.tokens;
    else if (ret->tokens)
        ret->tokens = serving->first->opts.tokens;
    ret->hosts = options.hosts;
    ret->origins = options.origins;
    ret->max_body = options.max_body;
    ret->drain_ms = options.drain_ms;
    ret->is_quiet = options.is_quiet;
    ret->logs_code = options.logs_code;
    ret->functions = options.functions;
    ret->n_functions = options.n_functions;
    ret->policies = options.policies;
    ret->n_policies = options.n_policies;
    serving->next = setting;
    return 0;
}

static void settle(void *context, bool is_taken)
{
    struct serving *serving = context;

    free_setting(is_taken ? serving->now : serving->next);
    if (is_taken)
        serving->now = serving->next;
    serving->next = NULL;
}

static int run_server(struct serving *serving, struct hutch_err *err)
{
    const struct serve_opts *opts = &serving->first->opts;
    struct cli_engine_options engine;
    struct server_options options;
    auto_free char *home = NULL, *settings = NULL;
    int rc = -1;

    if (read_options(serving->first, &options, err) < 0 || hutch_home_path(&home, err) < 0)
        return -1;
    if (hutch_cli_engine_options(&opts->sandbox, home, &engine, err) < 0)
        goto out;
    hutch_serve_engine_set(&serving->first->config.engine, &engine.options); /* layouts: others than one user's */
    engine.options.max_running = 0;
    if (opts->data_targets.values[0])
        engine.options.data_targets = opts->data_targets.values;
    else if (has_format(opts, hutch_e2b_format.name))
        engine.options.data_targets = hutch_e2b_data_targets;
    if (read_number("--jobs", opts->jobs, 1, 4096, &engine.options.max_running, err) < 0 ||
        read_number("--queue", opts->queue, 1, 65536, &engine.options.max_queued, err) < 0)
        goto out;
    options.engine = &engine.options;
    options.read_again = read_again;
    options.settle = settle;
    options.context = serving;
    if (!opts->data_targets.values[0])
        settings = hutch_settings_line(&opts->sandbox, home, true);
    options.settings = settings;
    hutch_rlimits_raise_open_files();
    rc = opts->check ? check(serving->first, &options, err) : hutch_server_run(&options, err);
out:
    hutch_cli_engine_done(&engine);
    return rc;
}

int hutch_cmd_serve(int argc, char **argv, struct hutch_err *err)
{
    struct serving serving = { .argc = argc, .argv = argv };
    int rc = 0;

    serving.first = read_setting(argc, argv, err);
    if (!serving.first)
        return -1;
    if (serving.first->opts.help)
        print_help();
    else
        rc = run_server(&serving, err);
    free_setting(serving.now);
    free_setting(serving.first);
    return rc;
}

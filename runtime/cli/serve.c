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
#include "runtime/gateway/server.h"
#include "runtime/gateway/token.h"
#include "runtime/mcp_http/format.h"
#include "runtime/text/quantity.h"
#include "runtime/tools/format.h"
#include "sandbox/fd.h"
#include "sandbox/rlimits.h"

#include <limits.h>
#include <stdio.h>
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

static int read_options(const struct serve_opts *opts, struct server_options *ret, struct hutch_err *err)
{
    struct server_options o = {
        .listen = opts->listen.values,
        .known_formats = known_formats,
        .version = HUTCH_VERSION,
        .formats = opts->formats.values,
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
    };

    if (opts->max_body && hutch_parse_bytes(opts->max_body, &o.max_body, err) < 0)
        return hutch_err_wrap(err, "option '--max-body'");
    if (o.max_body == 0 || o.max_body > SERVER_BODY_LARGEST)
        return hutch_err_set(err, 0, "option '--max-body': '%s' is not 1 to %u bytes", opts->max_body,
                             SERVER_BODY_LARGEST);
    if (read_number("--max-connections", opts->max_connections, 1, 65536, &o.max_connections, err) < 0 ||
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

/* What a start would find wrong, as far as it can be told without listening. */
static int check(const struct serve_opts *opts, const struct server_options *options, struct hutch_err *err)
{
    struct tokens tokens = TOKENS_INIT;
    struct hutch_engine *engine;
    struct hutch_error error;

    if (options->tokens && hutch_tokens_load(options->tokens, &tokens, err) < 0)
        return -1;
    hutch_tokens_done(&tokens);
    if (hutch_engine_open(options->engine, &engine, &error) < 0)
        return hutch_err_set(err, 0, "%s", error.message);
    hutch_engine_free(engine);
    hutch_serve_config_print(stdout, opts);
    return 0;
}

static int run_server(const struct serve_opts *opts, struct hutch_err *err)
{
    struct cli_engine_options engine;
    struct server_options options;
    auto_free char *home = NULL, *settings = NULL;
    int rc = -1;

    if (read_options(opts, &options, err) < 0 || hutch_home_path(&home, err) < 0)
        return -1;
    if (hutch_cli_engine_options(&opts->sandbox, home, &engine, err) < 0)
        goto out;
    engine.options.layouts = 0; /* others than one user's */
    engine.options.max_running = 0;
    if (opts->data_targets.values[0])
        engine.options.data_targets = opts->data_targets.values;
    else if (has_format(opts, hutch_e2b_format.name))
        engine.options.data_targets = hutch_e2b_data_targets;
    if (read_number("--jobs", opts->jobs, 1, 4096, &engine.options.max_running, err) < 0 ||
        read_number("--queue", opts->queue, 1, 65536, &engine.options.max_queued, err) < 0)
        goto out;
    options.engine = &engine.options;
    if (!opts->data_targets.values[0])
        settings = hutch_settings_line(&opts->sandbox, home, true);
    options.settings = settings;
    hutch_rlimits_raise_open_files();
    rc = opts->check ? check(opts, &options, err) : hutch_server_run(&options, err);
out:
    hutch_cli_engine_done(&engine);
    return rc;
}

int hutch_cmd_serve(int argc, char **argv, struct hutch_err *err)
{
    struct serve_opts opts = { .tokens = NULL };
    struct serve_config config = SERVE_CONFIG_INIT;
    int i = 1, rc = 0;

    if (hutch_option_take(&hutch_commands[COMMAND_SERVE], &opts, argc, argv, &i, err) < 0)
        return -1;
    if (opts.help) {
        print_help();
        return 0;
    }
    if (i < argc)
        return hutch_err_set(err, 0, "hutch serve takes no arguments, but '%s' (see: hutch serve --help)", argv[i]);
    if (opts.config)
        rc = hutch_serve_config_read(&config, opts.config, &opts, err);
    if (rc == 0)
        rc = run_server(&opts, err);
    hutch_serve_config_done(&config);
    return rc;
}

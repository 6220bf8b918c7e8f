/* commands.h - every command of hutch with its options: what it takes, and what fills its struct. */
#ifndef HUTCH_CLI_COMMANDS_H
#define HUTCH_CLI_COMMANDS_H

#include "runtime/cli/option.h"
#include "sandbox/spec.h"

#include <stdbool.h>
#include <stddef.h>

enum command_id {
    COMMAND_RUN,
    COMMAND_REPL,
    COMMAND_BATCH,
    COMMAND_SERVE,
    COMMAND_MCP,
    COMMAND_TOOLS,
    COMMAND_ROOTFS_BUILD,
    COMMAND_ROOTFS_UNPACK,
    COMMAND_ROOTFS_PULL,
    COMMAND_ROOTFS_EXTEND,
    COMMAND_ROOTFS_LIST,
    COMMAND_ROOTFS_VERIFY,
    COMMAND_ROOTFS_REMOVE,
    COMMAND_ROOTFS_SHARE,
    COMMAND_ROOTFS_PRUNE,
    COMMAND_BUNDLE,
    COMMAND_DOCTOR,
    COMMAND_COMPLETION,
    COMMAND_COUNT
};
extern const struct command hutch_commands[COMMAND_COUNT];

/* Of the first word of a command: "run", "rootfs". */
const char *hutch_command_summary(const char *word);

/* Each struct holds what the command line says, NULL and false for what it does not. Nothing is owned. */

/* hutch run, hutch repl and hutch mcp. */
struct run_opts {
    const char *image, *rootfs, *policy, *code, *module, *project, *language, *data, *workdir, *network;
    const char *limits[LIMIT_COUNT];
    const char *output, *cell_timeout, *context, *images, *llm_budget, *entrypoint, *index, *wheels;
    struct option_list env, volumes, tmpfs, params, with;
    bool json, quiet, verbose, help, warm, rich, llm, allow_errors, interrupt_on_timeout, raw, no_server, writable, yes,
        gpu;
    bool is_inside; /* what runs is in the image: --entrypoint, or --image with a "--" after the options
                     * and no option that speaks of a program from outside */
    const char *file; /* the program's own, where it is a file by itself; set when all options are known */
};

struct batch_opts {
    const char *tasks, *samples, *format, *output, *order, *image, *policy, *timeout, *cpu_time, *memory, *k, *compare,
        *judge, *jobs, *index, *wheels;
    struct option_list with;
    bool resume, all_cases, partial, challenge, quiet, help;
};

struct serve_opts {
    struct run_opts sandbox; /* image, rootfs, policy and limits of all runs */
    struct option_list listen, hosts, origins, formats, data_targets, functions;
    const char *config, *tokens, *id_header, *jobs, *workers, *queue, *max_body, *max_connections, *request_timeout,
        *idle_timeout, *drain;
    bool insecure, ui, check, quiet, log_code, help;
};

struct tools_opts {
    const char *format;
    bool help;
};

#define ROOTFS_MAX_ARGS 64

struct rootfs_opts {
    const char *name, *select, *platform, *max_size, *max_entries, *suite, *output, *timeout, *authfile;
    const char *as, *index, *wheels;
    struct option_list pip, npm, apt;
    bool json, quiet, dry_run, insecure, allow_build, help;
    const char *args[ROOTFS_MAX_ARGS]; /* what is not an option */
    size_t n_args;
};

struct bundle_opts {
    struct run_opts sandbox; /* policy, limits, network, environment, directory and entry point of the container */
    bool copy, help;
};

struct doctor_opts {
    bool json, help;
};

struct completion_opts {
    bool help;
};

#endif

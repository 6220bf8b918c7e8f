/* run_rich.h - one program as one cell: what `hutch run --rich` and `hutch run --llm` do. */
#ifndef HUTCH_CLI_RUN_RICH_H
#define HUTCH_CLI_RUN_RICH_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>

struct cli_engine_options;

enum rich_form {
    RICH_SHOWN, /* streams as they come, then the value, and images as files */
    RICH_LLM,   /* hutch_cell_result_to_text() */
    RICH_JSON   /* hutch_result_to_json(), which has a key "cell" */
};

struct rich_run_request {
    const struct cli_engine_options *engine;
    const char *data; /* the real path of --data; NULL: none */
    const char *code; /* Python */
    size_t code_len;
    enum rich_form form;
    size_t llm_budget; /* tokens; 0: the default */
    int signal_fd;     /* of SIGINT, SIGTERM, …: passed on */
    bool quiet;
};

/* Returns the exit status of `hutch run`; -1 for what is not a result, with @err. */
int hutch_run_rich(const struct rich_run_request *request, struct hutch_err *err);

#endif

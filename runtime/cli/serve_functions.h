/* serve_functions.h - the functions of `hutch serve`: --function NAME=FILE, and "functions" in the configuration. */
#ifndef HUTCH_CLI_SERVE_FUNCTIONS_H
#define HUTCH_CLI_SERVE_FUNCTIONS_H

#include "runtime/cli/option.h"
#include "runtime/gateway/functions.h"
#include "runtime/text/json.h"
#include "sandbox/err.h"

#include <stddef.h>

struct serve_functions {
    struct function_source list[FUNCTIONS_MAX]; /* with their texts, owned */
    size_t n;
};

/* Adds those of the command line. Errors: no NAME=FILE, a name that is none or is there twice, too many. */
int hutch_serve_functions_take(struct serve_functions *f, const struct option_list *words, struct hutch_err *err);
/* Adds those of an object: {"NAME": "FILE"} or {"NAME": {"file": "FILE", "min": 1, "max": 4}}. */
int hutch_serve_functions_read(struct serve_functions *f, const struct json_node *node, struct hutch_err *err);
void hutch_serve_functions_done(struct serve_functions *f);

#endif

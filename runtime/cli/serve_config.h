/* serve_config.h - the file of `hutch serve --config`: a JSON object whose keys are the command's options, and some
 * more for what is said better in JSON. */
#ifndef HUTCH_CLI_SERVE_CONFIG_H
#define HUTCH_CLI_SERVE_CONFIG_H

#include "runtime/cli/commands.h"
#include "runtime/cli/serve_engine.h"
#include "runtime/cli/serve_functions.h"
#include "runtime/text/json.h"
#include "sandbox/err.h"

#include <stdio.h>

#define SERVE_CONFIG_MAX_NUMBERS 64

/* What the options of a file point to. */
struct serve_config {
    struct json_doc doc;                    /* owned */
    char *numbers[SERVE_CONFIG_MAX_NUMBERS]; /* owned; as the command line has them */
    size_t n_numbers;
    struct serve_functions functions;        /* owned; those of the command line, or else of the file */
    struct serve_engine engine;              /* owned */
};
#define SERVE_CONFIG_INIT { .doc = JSON_DOC_INIT }

/* Reads the file that @opts name, if they do, and sets what they have not got from the command line. Errors, with the
 * place: no JSON, a key that is not known, a value of another kind. hutch_serve_config_done() in any case, when @opts
 * is not used any more. */
int hutch_serve_config_read(struct serve_config *c, struct serve_opts *opts, struct hutch_err *err);
void hutch_serve_config_done(struct serve_config *c);

/* What is set, a line each: "max-body: 4m". */
void hutch_serve_config_print(FILE *to, const struct serve_config *c, const struct serve_opts *opts);

/* What is said, by the command line and the file. */
struct serve_setting {
    struct serve_opts opts;
    struct serve_config config;
};

/* Puts the names of those options into @ret, with ", " between them, in which @now differs from @before and which a
 * server that runs cannot change. */
void hutch_serve_config_compare(const struct serve_setting *before, const struct serve_setting *now, char *ret,
                                size_t size);

#endif

/* functions.h - the operator's functions of a server: which files they are read from, and what became of each. */
#ifndef HUTCH_GATEWAY_FUNCTIONS_H
#define HUTCH_GATEWAY_FUNCTIONS_H

#include "runtime/hutch.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>

#define FUNCTIONS_MAX 32            /* a reload may have as many again on their way */
#define FUNCTION_MAX_BYTES (127u << 10)

struct gateway_log;

/* What the operator says. */
struct function_source {
    const char *name, *path;
    unsigned min, max; /* prepared sandboxes, as in hutch_function */
};

struct gateway_function {
    struct gateway_functions *functions;
    char *name, *text;  /* owned; the text that the engine has, or is importing */
    size_t text_len;
    unsigned min, max;
    bool is_pending;    /* it is being imported … */
    char *next_path;    /* owned; … and was asked for again meanwhile: NULL: it was not */
    unsigned next_min, next_max;
    bool is_dropped;    /* the operator has it no more */
    struct hutch_err why; /* why the last file was not taken; "": it was */
};

struct gateway_functions {
    struct hutch_engine *engine; /* not owned */
    struct gateway_log *log;     /* not owned; NULL: nothing is told */
    struct gateway_function *rows[2 * FUNCTIONS_MAX]; /* owned */
    size_t n;
};

void hutch_gateway_functions_init(struct gateway_functions *fs, struct hutch_engine *engine, struct gateway_log *log);
void hutch_gateway_functions_done(struct gateway_functions *fs); /* the engine is gone, or going */

/* Reads the files, and has the engine import those that are new or have changed; one that is not in @sources any more
 * is dropped. A file that cannot be read leaves what was there, as one that cannot be imported: both are noted and
 * logged. The first of the former is the error; the others are taken all the same. */
int hutch_gateway_functions_set(struct gateway_functions *fs, const struct function_source *sources, size_t n,
                                struct hutch_err *err);
/* Turns the engine until all have been imported. Errors: the first that cannot be. A signal that ends the server, and
 * is blocked and pending, ends the wait, too. */
int hutch_gateway_functions_await(struct gateway_functions *fs, struct hutch_err *err);

/* NULL: there is none of that name. */
struct gateway_function *hutch_gateway_functions_find(struct gateway_functions *fs, const char *name);

#endif

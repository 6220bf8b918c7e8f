/* limits.h - each limit once: its unit and range, the option and the request's field that set it, what may enforce it.
 *
 * Policies, the command line, requests of hutch.h and the checks of the documentation read these rows. What the kernel
 * side needs, the enum and the names, is in sandbox/spec.h. */
#ifndef HUTCH_CONFIG_LIMITS_H
#define HUTCH_CONFIG_LIMITS_H

#include "sandbox/err.h"
#include "sandbox/spec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum limit_unit { UNIT_BYTES, UNIT_COUNT, UNIT_CPUS /* thousandths of one */, UNIT_TIME /* milliseconds */ };

struct limit {
    enum limit_unit unit;
    uint64_t min, max;          /* of a limit that is set at all */
    const char *example;        /* as a policy has it: "512M" */
    const char *option, *help;  /* of hutch run and hutch repl; NULL: only a policy sets it */
    const char *field;          /* of struct hutch_request, which can only lower it; NULL: none does */
    size_t request_at;          /* offset of that field */
    size_t limits_at;           /* … and of the same in struct hutch_limits */
    size_t session_at;          /* … and of the same in struct hutch_session_options; 0: sessions have none */
    /* A prepared sandbox was built with it. A lower value is set when the run starts, or takes a sandbox of its own. */
    bool is_built_in;
    unsigned enforcers;         /* 1u << enum sandbox_enforcer each; ENFORCER_NONE: on some hosts nothing does */
};

extern const struct limit hutch_limit_rows[LIMIT_COUNT];

#define LIMIT_TEXT_SIZE 96

/* What the row accepts: "size 4M..1024T", "whole number 1..4194304", "duration 1ms..365d". */
const char *hutch_limit_describe(const struct limit *row, char text[LIMIT_TEXT_SIZE]);

/* @text in the spelling of the command line ("512m", "1.5", "30s") as a number in @unit. */
int hutch_limit_parse(enum limit_unit unit, const char *text, uint64_t *ret, struct hutch_err *err);
/* What stands for a value in a list of options: "SIZE", "NUMBER", "TIME". */
const char *hutch_limit_argument(enum limit_unit unit);

/* What the row's option was given; 0 asks for no limit. Errors: cannot be read, out of the row's range. */
int hutch_limit_parse_option(const struct limit *row, const char *text, uint64_t *ret, struct hutch_err *err);

/* "small" or "large" when @value is out of the row's range, else NULL. */
const char *hutch_limit_refuses(const struct limit *row, uint64_t value);

#endif

/* task.h - a task of any format as what is to be run, and how it is judged.
 *
 * Texts stay in the record, in its own spelling: a completion that is no valid
 * text (a NUL byte, half a surrogate pair) then reaches Python as the model wrote it. */
#ifndef HUTCH_BATCH_TASK_H
#define HUTCH_BATCH_TASK_H

#include "runtime/batch/compare.h"
#include "runtime/batch/format.h"
#include "runtime/text/json_view.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum batch_judging {
    BATCH_BY_TESTS,  /* Python tests call it: runtime/batch/judge/ */
    BATCH_BY_OUTPUT, /* each case has an input and what is to be printed */
    BATCH_BY_EXIT,   /* one run, its exit code (and what it prints, where that is given) */
};

struct batch_case {
    struct json_view input, output; /* none: empty, not looked at */
};

/* 0: not given. */
struct batch_limits {
    uint64_t cpu_ms, wall_ms, memory_bytes, pids, output_bytes;
};

#define BATCH_MAX_WORDS 256 /* args, env each */
#define BATCH_MAX_FILES 1000

struct batch_task {
    char *text;     /* owned: the record */
    char *inner[3]; /* owned: JSON that the record holds as text */
    char *id;       /* owned; numbers as they are written */
    struct json_view id_json;
    enum batch_format format;
    enum batch_judging judging;
    char *language;            /* owned */
    struct json_view prompt;  /* what a completion continues; none when completions are whole programs */
    struct json_view program; /* the task's own solution; none */
    bool with_prelude;         /* star imports before the program, as LiveCodeBench has them */

    /* BATCH_BY_TESTS */
    struct json_view before;      /* text or array of lines: imports, set-up, before program and tests */
    struct json_view before_more; /* the same, behind it */
    struct json_view tests;       /* text, or array of texts */
    struct json_view more_tests;
    struct json_view entry;       /* name of the function; none */
    bool is_checked;               /* the tests define check(), which is given that function */
    bool calls_tests;              /* functions test_...() in the tests are called */
    bool is_together;              /* the task wants its tests run in the program's own process */
    bool is_function;              /* @cases are arguments and a value, each as JSON */

    struct batch_case *cases; /* owned */
    size_t n_cases;
    enum batch_compare compare;
    int64_t exit_code;

    struct json_view args, env, files;
    struct batch_limits limits;
};
#define BATCH_TASK_INIT { .text = NULL }

struct batch_task_options {
    enum batch_format format;   /* not BATCH_AUTO */
    bool has_compare;           /* @compare replaces what the format says */
    enum batch_compare compare;
    bool with_challenge;        /* MBPP's challenge_test_list too */
};

/* @text holds @record and is the task's from here on, also on failure. Errors name @where and the key. */
int hutch_batch_task_read(const struct batch_task_options *options, const char *where, char *text,
                          struct json_view record, struct batch_task *ret, struct hutch_err *err);
void hutch_batch_task_done(struct batch_task *task);

#endif

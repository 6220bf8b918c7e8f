/* result.h - the one result of a run, and its JSON. docs/results.md describes every key. */
#ifndef HUTCH_RUN_RESULT_H
#define HUTCH_RUN_RESULT_H

#include "runtime/data/changes.h"
#include "runtime/hutch.h"
#include "sandbox/err.h"
#include "runtime/lang/python_error.h"
#include "sandbox/spec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a stream of the sandbox said; any bytes. */
struct run_output {
    char  *data; /* owned; NULL when len is 0 */
    size_t len;
    bool   truncated;
};

struct run_limit_report {
    uint64_t asked;     /* in the units of enum sandbox_limit; 0: no limit */
    unsigned enforcers; /* 1u << enum sandbox_enforcer each; ENFORCER_NONE alone when asked and not enforced */
};

struct run_layer_report {
    enum sandbox_need asked;
    bool is_active;
    char detail[96]; /* "ABI 6", "not delegated", …; may be empty */
};

struct run_result {
    enum hutch_verdict verdict;
    int  exit_code;    /* -1 when there is none */
    int  signal;       /* 0 when there is none */
    char message[512]; /* one sentence for a human when the verdict is neither ok nor error, else empty */

    struct run_output out, err_out; /* stdout, stderr */
    int lost_output;                /* errno of a write that lost output on its way out, 0 for none; not in the JSON */
    struct error_report error;
    bool is_call;                   /* of a function: the result has a value … */
    char *value;                    /* … which is JSON text, owned; NULL: it has not got one */

    char *directory;           /* owned; the host's path of /mnt/data, NULL when there is none */
    struct file_changes files;
    bool has_project;            /* it had a copy of a project to write to, with … */
    struct file_changes project; /* … these changes, which are not kept */

    char *gpu; /* owned; JSON: what GPUs were handed in; NULL: none */

    double queued_ms, prepared_ms, run_ms, total_ms;

    uint64_t cpu_user_ms, cpu_system_ms, memory_peak_bytes, pids_peak; /* HUTCH_UNKNOWN where nobody counted */
    bool is_cpu_lower_bound; /* they used that much at least */
    bool has_hutch_failed;   /* HUTCH_KILLED, which is no doing of the program's */

    struct run_limit_report limits[LIMIT_COUNT];
    struct run_layer_report layers[LAYER_COUNT];
};

/* What the sandbox was, by its layers; NULL where no program ran. */
const char *hutch_result_level(const struct run_result *r);

/* An empty result: ok, no exit code, usage unknown. */
void hutch_result_init(struct run_result *r);
void hutch_result_done(struct run_result *r);

/* What struct hutch_result of hutch.h has no field for. */
struct hutch_run_details {
    const struct run_result *result;
};
/* @r as hutch.h has it, which then points into @r and @details. */
void hutch_result_publish(const struct run_result *r, struct hutch_run_details *details, struct hutch_result *ret);

/* One object on one line, without a newline, NUL-terminated; the caller frees it. Always valid JSON and valid UTF-8,
 * whatever bytes are in @r. Errors: ENOMEM. */
int hutch_result_json(const struct run_result *r, char **ret_json, size_t *ret_len, struct hutch_err *err);

#endif

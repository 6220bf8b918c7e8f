/* job.h - what a prepared worker is sent: see enum worker_job_field in sandbox/zygote_wire.h. */
#ifndef HUTCH_ENGINE_JOB_H
#define HUTCH_ENGINE_JOB_H

#include "sandbox/err.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

struct job {
    const char *mode; /* "file", "code", "stdin" */
    const char *name; /* absolute path of the program, "" without a file */
    const char *code;
    size_t code_len;
    const char *const *args; /* NULL-terminated, or NULL */
    const char *const *env;  /* NULL-terminated, or NULL */
    const char *cwd;
    struct {
        int resource;
        rlim_t soft, hard;
    } rlimits[4];
    size_t n_rlimits;
};

/* All of it in one block, which the caller frees. Errors: ENOMEM. */
int hutch_job_encode(const struct job *job, char **ret, size_t *ret_len, struct hutch_err *err);

#endif

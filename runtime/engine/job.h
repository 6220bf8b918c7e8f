/* job.h - what a prepared worker is sent: see enum worker_job_field in sandbox/zygote_wire.h. */
#ifndef HUTCH_ENGINE_JOB_H
#define HUTCH_ENGINE_JOB_H

#include "sandbox/err.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#define JOB_MAX_RLIMITS 8

struct job_rlimits { /* to be lowered before the program starts */
    struct {
        int resource;
        rlim_t soft, hard;
    } list[JOB_MAX_RLIMITS];
    size_t n;
};

struct job {
    const char *mode; /* "file", "code", "stdin" */
    const char *name; /* absolute path of the program, "" without a file */
    const char *code;
    size_t code_len;
    const char *const *args; /* NULL-terminated, or NULL */
    const char *const *env;  /* NULL-terminated, or NULL */
    const char *cwd;
    struct job_rlimits rlimits;
};

/* All of it in one block, which the caller frees. Errors: ENOMEM. */
int hutch_job_encode(const struct job *job, char **ret, size_t *ret_len, struct hutch_err *err);

/* One more. @rlimits has room. */
void hutch_job_add_rlimit(struct job_rlimits *rlimits, int resource, rlim_t soft, rlim_t hard);
/* Changes those of a job that is encoded already; the block may move. Errors: ENOMEM, and all is as it was. */
int hutch_job_set_rlimits(char **job, size_t *len, const struct job_rlimits *rlimits, struct hutch_err *err);

#endif

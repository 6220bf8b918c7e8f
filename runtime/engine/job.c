#include "runtime/engine/job.h"

#include "sandbox/fd.h"
#include "sandbox/zygote_wire.h"

#include <stdio.h>
#include <string.h>

#define RLIMIT_TEXT_MAX 64 /* of one line */

static size_t list_len(const char *const *list)
{
    size_t len = 0;

    for (; list && *list; list++)
        len += strlen(*list) + 1;
    return len;
}

static char *put_head(char *to, size_t len)
{
    for (int i = 0; i < 4; i++)
        *to++ = (char)(uint8_t)(len >> 8 * i);
    return to;
}

static char *put(char *to, const char *data, size_t len)
{
    to = put_head(to, len);
    if (len)
        memcpy(to, data, len);
    return to + len;
}

static char *put_list(char *to, const char *const *list)
{
    to = put_head(to, list_len(list));
    for (; list && *list; list++)
        to = stpcpy(to, *list) + 1;
    return to;
}

int hutch_job_encode(const struct job *job, char **ret, size_t *ret_len, struct hutch_err *err)
{
    struct worker_job head = { .magic = WORKER_JOB_MAGIC };
    char rlimits[ARRAY_SIZE(job->rlimits) * RLIMIT_TEXT_MAX];
    size_t rlimits_len = 0, len;
    char *text, *to;

    for (size_t i = 0; i < job->n_rlimits; i++)
        rlimits_len += (size_t)snprintf(rlimits + rlimits_len, sizeof(rlimits) - rlimits_len, "%d %ju %ju\n",
                                        job->rlimits[i].resource, (uintmax_t)job->rlimits[i].soft,
                                        (uintmax_t)job->rlimits[i].hard);
    len = JOB_FIELDS * sizeof(uint32_t) + strlen(job->mode) + strlen(job->name) + job->code_len + list_len(job->args) +
          list_len(job->env) + strlen(job->cwd) + rlimits_len;
    if (len > UINT32_MAX)
        return hutch_err_set(err, E2BIG, "describe a run to its worker");
    text = malloc(sizeof(head) + len);
    if (!text)
        return hutch_err_set(err, ENOMEM, "describe a run to its worker");
    head.len = (uint32_t)len;
    to = text;
    memcpy(to, &head, sizeof(head));
    to += sizeof(head);
    to = put(to, job->mode, strlen(job->mode)); /* in the order of enum worker_job_field */
    to = put(to, job->name, strlen(job->name));
    to = put(to, job->code, job->code_len);
    to = put_list(to, job->args);
    to = put_list(to, job->env);
    to = put(to, job->cwd, strlen(job->cwd));
    to = put(to, rlimits, rlimits_len);
    *ret = text;
    *ret_len = (size_t)(to - text);
    return 0;
}

#include "runtime/engine/job.h"

#include "sandbox/fd.h"
#include "sandbox/zygote_wire.h"

#include <stdio.h>
#include <string.h>

#define RLIMITS_TEXT_MAX (JOB_MAX_RLIMITS * 64) /* a line is shorter than that */

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

void hutch_job_add_rlimit(struct job_rlimits *rlimits, int resource, rlim_t soft, rlim_t hard)
{
    rlimits->list[rlimits->n].resource = resource;
    rlimits->list[rlimits->n].soft = soft;
    rlimits->list[rlimits->n++].hard = hard;
}

static size_t print_rlimits(const struct job_rlimits *rlimits, char text[RLIMITS_TEXT_MAX])
{
    size_t len = 0;

    for (size_t i = 0; i < rlimits->n; i++)
        len += (size_t)snprintf(text + len, RLIMITS_TEXT_MAX - len, "%d %ju %ju\n", rlimits->list[i].resource,
                                (uintmax_t)rlimits->list[i].soft, (uintmax_t)rlimits->list[i].hard);
    return len;
}

int hutch_job_encode(const struct job *job, char **ret, size_t *ret_len, struct hutch_err *err)
{
    struct worker_job head = { .magic = WORKER_JOB_MAGIC };
    char rlimits[RLIMITS_TEXT_MAX];
    size_t rlimits_len = print_rlimits(&job->rlimits, rlimits), len;
    char *text, *to;

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

int hutch_job_set_rlimits(char **job, size_t *len, const struct job_rlimits *rlimits, struct hutch_err *err)
{
    char text[RLIMITS_TEXT_MAX];
    size_t text_len = print_rlimits(rlimits, text), at = sizeof(struct worker_job);
    struct worker_job head;
    char *grown;

    for (int field = 0; field < JOB_RLIMITS; field++) { /* the last one */
        uint32_t n;

        memcpy(&n, *job + at, sizeof(n));
        at += sizeof(n) + n;
    }
    grown = realloc(*job, at + sizeof(uint32_t) + text_len);
    if (!grown)
        return hutch_err_set(err, ENOMEM, "describe a run to its worker");
    *job = grown;
    *len = (size_t)(put(grown + at, text, text_len) - grown);
    memcpy(&head, grown, sizeof(head));
    head.len = (uint32_t)(*len - sizeof(head));
    memcpy(grown, &head, sizeof(head));
    return 0;
}

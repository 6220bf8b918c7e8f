#include "runtime/batch/attempt.h"

#include "runtime/batch/load.h"
#include "runtime/batch/verdict.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define TRIES 3 /* of a run that fails for no fault of its program */

int hutch_batch_attempt_create(struct batch_attempts *all, size_t item, struct batch_attempt **ret,
                               struct hutch_err *err)
{
    struct batch_attempt *a = calloc(1, sizeof(*a));

    if (!a)
        return hutch_err_set(err, ENOMEM, "run a batch");
    *a = (struct batch_attempt){ .all = all, .item = item, .run = BATCH_RUN_INIT };
    if (hutch_batch_plan_load(all->plan, &all->plan->items[item], &a->loaded, err) < 0) {
        free(a);
        return -1;
    }
    a->outcome.cases = calloc(a->loaded.task->n_cases + 1, 1);
    if (!a->outcome.cases) {
        hutch_batch_attempt_free(a);
        return hutch_err_set(err, ENOMEM, "run a batch");
    }
    *ret = a;
    return 0;
}

void hutch_batch_attempt_free(struct batch_attempt *a)
{
    if (!a)
        return;
    hutch_batch_run_done(&a->run);
    hutch_batch_plan_release(a->all->plan, &a->all->plan->items[a->item], &a->loaded);
    free(a->outcome.cases);
    free(a->outcome.details);
    free(a);
}

/* ---- verdicts ---- */

static void conclude(struct batch_attempt *a)
{
    a->all->events->on_concluded(a->all->owner, a);
}

/* Ends a case with a verdict, and the sample with it if there is nothing more to find out. */
static void conclude_case(struct batch_attempt *a, const struct batch_run_verdict *verdict)
{
    const struct batch_task *task = a->loaded.task;
    struct batch_outcome *o = &a->outcome;
    bool has_cases = task->judging == BATCH_BY_OUTPUT;

    if (has_cases)
        o->cases[o->n_run] = (uint8_t)verdict->kind;
    o->n_run++;
    o->n_passed += verdict->kind == BATCH_PASS;
    if (verdict->kind != BATCH_PASS && (o->verdict == BATCH_PASS || verdict->kind == BATCH_INTERNAL)) {
        o->verdict = verdict->kind;
        if (has_cases && verdict->text[0])
            snprintf(o->text, sizeof(o->text), "case %zu: %.3900s", a->index, verdict->text);
        else
            snprintf(o->text, sizeof(o->text), "%s", verdict->text);
    }
    if (has_cases && a->index + 1 < task->n_cases && verdict->kind != BATCH_INTERNAL &&
        (verdict->kind == BATCH_PASS || a->all->all_cases)) {
        a->index++;
        a->tries = 0;
        hutch_batch_attempt_start(a);
        return;
    }
    conclude(a);
}

static void conclude_with(struct batch_attempt *a, enum batch_verdict kind, const char *why)
{
    struct batch_run_verdict verdict = { .kind = kind };

    snprintf(verdict.text, sizeof(verdict.text), "%s", why);
    conclude_case(a, &verdict);
}

/* ---- results ---- */

/* Did the wall clock end something that was kept from computing, rather than something that waited? */
static bool was_held_up(const struct batch_attempt *a, const struct batch_run_verdict *verdict)
{
    return verdict->cpu_ms < a->run.request.wall_ms / 2 && hutch_batch_load_is_high(a->all->proc);
}

static bool wants_again(struct batch_attempt *a, const struct batch_run_verdict *verdict)
{
    struct batch_attempts *all = a->all;

    if (verdict->wants_judge && !all->manner.carries_judge) {
        all->manner.carries_judge = true;
        return true;
    }
    if (verdict->wants_judge) /* of those that were submitted before that was known, one after the other */
        return a->tries++ < TRIES;
    if (verdict->wants_together && !a->is_together) {
        a->is_together = a->outcome.is_together = true;
        return true;
    }
    if (verdict->kind == BATCH_INTERNAL)
        return ++a->tries < TRIES;
    if (a->outcome.is_retried || !(verdict->is_killed || (verdict->is_backstop && was_held_up(a, verdict))))
        return false;
    a->outcome.is_retried = true;
    all->n_retried++;
    return true;
}

static void on_result(void *user, uint64_t id, const struct hutch_result *r)
{
    struct batch_attempt *a = user;
    struct batch_attempts *all = a->all;
    struct batch_run_verdict verdict;

    (void)id;
    a->id = 0;
    if (all->is_stopping) {
        all->events->on_dropped(all->owner, a);
        return;
    }
    hutch_batch_verdict_reach(&a->run, a->loaded.task, a->index, r, &verdict);
    all->n_runs++;
    all->n_exposed += verdict.is_exposed;
    a->outcome.wall_ms += r->run_ms;
    a->outcome.cpu_ms += verdict.cpu_ms;
    if (wants_again(a, &verdict)) {
        hutch_batch_attempt_start(a);
        return;
    }
    if (verdict.wants_judge || verdict.wants_together) {
        conclude_with(a, BATCH_INTERNAL, "the judge is not in the sandbox");
        return;
    }
    if (a->loaded.task->judging == BATCH_BY_EXIT) {
        free(a->outcome.details);
        a->outcome.details = hutch_batch_record_details(r);
        if (!a->outcome.details)
            all->events->on_no_memory(all->owner);
    }
    conclude_case(a, &verdict);
}

/* ---- submitting ---- */

bool hutch_batch_attempt_submit(struct batch_attempt *a)
{
    struct batch_attempts *all = a->all;
    struct hutch_error why;

    if (all->engine->submit(all->engine->engine, &a->run.request, &a->id, &why) == 0)
        return true;
    a->id = 0;
    if (why.code == EAGAIN && all->events->on_queue_full(all->owner, a))
        return false;
    conclude_with(a, BATCH_INTERNAL, why.message);
    return true;
}

void hutch_batch_attempt_start(struct batch_attempt *a)
{
    struct batch_attempts *all = a->all;
    struct batch_manner manner = all->manner;
    struct hutch_err err;

    manner.is_together = manner.is_together || a->is_together;
    a->outcome.is_together = manner.is_together || a->loaded.task->is_together;
    hutch_batch_run_done(&a->run);
    if (hutch_batch_run_make(&manner, a->loaded.task, &a->loaded.sample, a->index, all->n_made++, &a->run, &err) < 0) {
        conclude_with(a, BATCH_INTERNAL, err.msg);
        return;
    }
    if (memchr(a->run.code, '\0', a->run.request.code_len)) {
        a->outcome.verdict = BATCH_COMPILE_ERROR;
        snprintf(a->outcome.text, sizeof(a->outcome.text), "source code string cannot contain null bytes");
        conclude(a);
        return;
    }
    a->run.request.on_result = on_result;
    a->run.request.user = a;
    hutch_batch_attempt_submit(a);
}

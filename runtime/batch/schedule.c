#include "runtime/batch/schedule.h"

#include "runtime/batch/load.h"
#include "runtime/batch/record.h"
#include "runtime/batch/verdict.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define TRIES 3               /* of a run that fails for no fault of its program */
#define GIVE_UP_AFTER 8       /* samples, when all of them failed so */
#define WINDOW 16384          /* samples that may be ahead of the first that is not done, when order is kept */
#define REDRAW_MS 200
#define STOP_MS 5000          /* how long cancelled runs may take to say so */

/* A sample on its way. */
struct attempt {
    struct attempt *next, *previous; /* all that are on their way */
    struct attempt *next_waiting;
    struct schedule *schedule;
    size_t item;
    struct batch_loaded loaded;
    struct batch_run run;
    uint64_t id;                    /* 0: not submitted */
    size_t index;                   /* its case */
    unsigned tries;
    bool is_together;
    struct batch_outcome outcome;
};

struct schedule {
    struct batch_plan *plan;
    struct batch_output *output;
    const struct batch_engine *engine;
    struct batch_settings settings;
    struct batch_tally *tally;
    struct attempt *attempts, *waiting; /* waiting: the engine's queue was full */
    size_t n_attempts, next_item, n_total;
    uint64_t numbers;
    struct hutch_err err;             /* the first, which ends it all */
    bool is_failed;
};

static void note_failure(struct schedule *s, const struct hutch_err *err)
{
    if (!s->is_failed)
        s->err = *err;
    s->is_failed = true;
}

static void note_memory_failure(struct schedule *s)
{
    struct hutch_err err;

    hutch_err_set(&err, ENOMEM, "run a batch");
    note_failure(s, &err);
}

static bool is_stopping(const struct schedule *s)
{
    return s->is_failed || s->tally->is_interrupted;
}

/* ---- attempts ---- */

static void end_attempt(struct attempt *a)
{
    struct schedule *s = a->schedule;

    *(a->previous ? &a->previous->next : &s->attempts) = a->next;
    if (a->next)
        a->next->previous = a->previous;
    s->n_attempts--;
    hutch_batch_run_done(&a->run);
    hutch_batch_plan_release(s->plan, &s->plan->items[a->item], &a->loaded);
    free(a->outcome.cases);
    free(a->outcome.details);
    free(a);
}

/* The verdict is final: writes it down. */
static void conclude(struct attempt *a)
{
    struct schedule *s = a->schedule;
    struct batch_item *item = &s->plan->items[a->item];
    struct batch_tally *tally = s->tally;
    struct batch_outcome *o = &a->outcome;
    struct hutch_err err;
    size_t len;
    char *record = hutch_batch_record_make(s->plan, item, &a->loaded, o, &len);

    if (!record)
        note_memory_failure(s);
    else if (hutch_batch_output_add(s->output, a->item, record, len, &err) < 0)
        note_failure(s, &err);
    item->is_done = 1;
    item->verdict = (uint8_t)o->verdict;
    tally->verdicts[o->verdict]++;
    tally->n_done++;
    if (o->verdict != BATCH_INTERNAL) {
        tally->judged[item->group]++;
        tally->passed[item->group] += o->verdict == BATCH_PASS;
    } else if (!tally->internal[0]) {
        snprintf(tally->internal, sizeof(tally->internal), "task '%.100s': %.380s", a->loaded.task->id, o->text);
    }
    if (tally->verdicts[BATCH_INTERNAL] == GIVE_UP_AFTER && tally->n_done == GIVE_UP_AFTER) {
        hutch_err_set(&err, 0, "nothing can be run: %s", tally->internal);
        note_failure(s, &err);
    }
    end_attempt(a);
}

static void submit(struct attempt *a);

/* Ends a case with a verdict, and the sample with it if there is nothing more to find out. */
static void conclude_case(struct attempt *a, const struct batch_run_verdict *verdict)
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
        (verdict->kind == BATCH_PASS || a->schedule->settings.all_cases)) {
        a->index++;
        a->tries = 0;
        submit(a);
        return;
    }
    conclude(a);
}

static void conclude_with(struct attempt *a, enum batch_verdict kind, const char *why)
{
    struct batch_run_verdict verdict = { .kind = kind };

    snprintf(verdict.text, sizeof(verdict.text), "%s", why);
    conclude_case(a, &verdict);
}

/* ---- results ---- */

/* Did the wall clock end something that was kept from computing, rather than something that waited? */
static bool was_held_up(const struct attempt *a, const struct batch_run_verdict *verdict)
{
    return verdict->cpu_ms < a->run.request.wall_ms / 2 && hutch_batch_load_is_high(a->schedule->settings.proc);
}

static bool wants_again(struct attempt *a, const struct batch_run_verdict *verdict)
{
    struct schedule *s = a->schedule;

    if (verdict->wants_judge && !s->settings.manner.carries_judge) {
        s->settings.manner.carries_judge = true;
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
    s->tally->n_retried++;
    return true;
}

static void on_result(void *user, uint64_t id, const struct hutch_result *r)
{
    struct attempt *a = user;
    struct schedule *s = a->schedule;
    struct batch_run_verdict verdict;

    (void)id;
    a->id = 0;
    if (is_stopping(s)) {
        end_attempt(a);
        return;
    }
    hutch_batch_verdict_reach(&a->run, a->loaded.task, a->index, r, &verdict);
    s->tally->n_runs++;
    s->tally->n_exposed += verdict.is_exposed;
    a->outcome.wall_ms += r->run_ms;
    a->outcome.cpu_ms += verdict.cpu_ms;
    if (wants_again(a, &verdict)) {
        submit(a);
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
            note_memory_failure(s);
    }
    conclude_case(a, &verdict);
}

/* ---- submitting ---- */

/* False when the engine's queue is full; then the attempt waits. */
static bool submit_made(struct attempt *a)
{
    struct schedule *s = a->schedule;
    struct hutch_error why;

    if (s->engine->submit(s->engine->engine, &a->run.request, &a->id, &why) == 0)
        return true;
    a->id = 0;
    if (why.code == EAGAIN && s->n_attempts > 1) {
        a->next_waiting = s->waiting;
        s->waiting = a;
        return false;
    }
    conclude_with(a, BATCH_INTERNAL, why.message);
    return true;
}

static void submit(struct attempt *a)
{
    struct schedule *s = a->schedule;
    struct batch_manner manner = s->settings.manner;
    struct hutch_err err;

    manner.is_together = manner.is_together || a->is_together;
    a->outcome.is_together = manner.is_together || a->loaded.task->is_together;
    hutch_batch_run_done(&a->run);
    if (hutch_batch_run_make(&manner, a->loaded.task, &a->loaded.sample, a->index, s->numbers++, &a->run, &err) < 0) {
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
    submit_made(a);
}

static void begin_attempt(struct schedule *s, size_t item)
{
    struct attempt *a = calloc(1, sizeof(*a));
    struct hutch_err err;

    if (!a) {
        note_memory_failure(s);
        return;
    }
    *a = (struct attempt){ .schedule = s, .item = item, .run = BATCH_RUN_INIT, .next = s->attempts };
    if (hutch_batch_plan_load(s->plan, &s->plan->items[item], &a->loaded, &err) < 0) {
        note_failure(s, &err);
        free(a);
        return;
    }
    if (s->attempts)
        s->attempts->previous = a;
    s->attempts = a;
    s->n_attempts++;
    a->outcome.cases = calloc(a->loaded.task->n_cases + 1, 1);
    if (!a->outcome.cases) {
        note_memory_failure(s);
        end_attempt(a);
        return;
    }
    submit(a);
}

/* One more than run at once for each, so that the engine never waits for us. */
static void fill_up(struct schedule *s)
{
    size_t wanted = (size_t)s->settings.jobs * 2;

    while (s->waiting) {
        struct attempt *a = s->waiting;

        s->waiting = a->next_waiting;
        a->next_waiting = NULL;
        if (!submit_made(a))
            return;
    }
    while (!is_stopping(s) && s->n_attempts < wanted && s->next_item < s->plan->n_items) {
        if (s->plan->items[s->next_item].is_done) {
            s->next_item++;
            continue;
        }
        if (s->output->in_order && s->next_item - s->output->next > WINDOW)
            return;
        begin_attempt(s, s->next_item++);
    }
}

/* ---- the loop ---- */

static void draw(struct schedule *s)
{
    struct batch_progress_state state = { .done = s->tally->n_done, .total = s->n_total, .runs = s->tally->n_runs };

    for (size_t i = 0; i < BATCH_VERDICT_COUNT; i++)
        state.failed += i == BATCH_PASS ? 0 : s->tally->verdicts[i];
    hutch_batch_progress_update(s->settings.progress, &state);
}

static void wait_and_dispatch(struct schedule *s, int timeout_ms)
{
    struct pollfd fds[2] = { { .fd = s->engine->fd(s->engine->engine), .events = POLLIN },
                             { .fd = s->tally->is_interrupted ? -1 : s->settings.stop_fd, .events = POLLIN } };
    struct hutch_error why;
    struct hutch_err err;

    if (poll(fds, 2, timeout_ms) < 0 && errno != EINTR) {
        hutch_err_set(&err, errno, "wait for the engine");
        note_failure(s, &err);
        return;
    }
    if (fds[1].revents)
        s->tally->is_interrupted = true;
    if (s->engine->dispatch(s->engine->engine, &why) < 0) {
        hutch_err_set(&err, 0, "%s", why.message);
        note_failure(s, &err);
    }
}

/* Ends what runs, so that nothing calls back into what is about to go. */
static void stop(struct schedule *s)
{
    double deadline = hutch_clock_ms() + STOP_MS;

    while (s->waiting) {
        struct attempt *a = s->waiting;

        s->waiting = a->next_waiting;
        end_attempt(a);
    }
    for (struct attempt *a = s->attempts; a; a = a->next)
        s->engine->cancel(s->engine->engine, a->id);
    while (s->n_attempts && hutch_clock_ms() < deadline)
        wait_and_dispatch(s, 50);
    while (s->attempts) /* hutch_engine_free(), which follows, calls back no more */
        end_attempt(s->attempts);
}

/* What an earlier run has found out. */
static int begin_tally(struct schedule *s, struct hutch_err *err)
{
    struct batch_plan *plan = s->plan;
    struct batch_tally *tally = s->tally;

    tally->judged = calloc(plan->n_groups + 1, sizeof(*tally->judged));
    tally->passed = calloc(plan->n_groups + 1, sizeof(*tally->passed));
    if (!tally->judged || !tally->passed)
        return hutch_err_set(err, ENOMEM, "count the results of %zu tasks", plan->n_groups);
    for (size_t i = 0; i < plan->n_items; i++) {
        const struct batch_item *item = &plan->items[i];

        if (!item->is_done) {
            s->n_total++;
            continue;
        }
        tally->verdicts[item->verdict]++;
        tally->judged[item->group]++;
        tally->passed[item->group] += item->verdict == BATCH_PASS;
    }
    return 0;
}

int hutch_batch_schedule(struct batch_plan *plan, struct batch_output *output, const struct batch_engine *engine,
                         const struct batch_settings *settings, struct batch_tally *ret, struct hutch_err *err)
{
    struct batch_tally tally = { .n_done = 0 };
    struct schedule s = { .plan = plan, .output = output, .engine = engine, .settings = *settings, .tally = &tally };
    bool draws = settings->progress->is_terminal;

    if (begin_tally(&s, err) < 0) {
        hutch_batch_tally_done(&tally);
        return -1;
    }
    for (fill_up(&s); s.n_attempts && !is_stopping(&s); fill_up(&s)) {
        draw(&s);
        wait_and_dispatch(&s, draws ? REDRAW_MS : -1);
    }
    if (s.n_attempts)
        stop(&s);
    *ret = tally;
    if (hutch_batch_output_finish(output, !is_stopping(&s), err) < 0 && !s.is_failed)
        return -1;
    if (s.is_failed) {
        *err = s.err;
        return -1;
    }
    return 0;
}

void hutch_batch_tally_done(struct batch_tally *tally)
{
    free(tally->judged);
    free(tally->passed);
    tally->judged = tally->passed = NULL;
}

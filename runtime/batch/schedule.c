#include "runtime/batch/schedule.h"

#include "runtime/batch/load.h"
#include "runtime/batch/record.h"
#include "runtime/batch/verdict.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define ATTEMPTS 3            /* of a run that fails for no fault of its program */
#define GIVE_UP_AFTER 8       /* samples, when all of them failed so */
#define WINDOW 16384          /* samples that may be ahead of the first that is not done, when order is kept */
#define REDRAW_MS 200
#define STOP_MS 5000          /* how long cancelled runs may take to say so */

/* A sample on its way. */
struct flight {
    struct flight *next, *previous; /* all that are on their way */
    struct flight *next_waiting;
    struct schedule *schedule;
    size_t item;
    struct batch_loaded loaded;
    struct batch_run run;
    uint64_t id;                    /* 0: not submitted */
    size_t index;                   /* its case */
    unsigned attempts;
    bool is_together;
    struct batch_outcome outcome;
};

struct schedule {
    struct batch_plan *plan;
    struct batch_output *output;
    const struct batch_engine *engine;
    struct batch_settings settings;
    struct batch_tally *tally;
    struct flight *flights, *waiting; /* waiting: the engine's queue was full */
    size_t n_flights, next_item, n_total;
    uint64_t numbers;
    struct hutch_err err;             /* the first, which ends it all */
    bool is_failed;
};

static uint64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void fail(struct schedule *s, const struct hutch_err *err)
{
    if (!s->is_failed)
        s->err = *err;
    s->is_failed = true;
}

static void fail_for_memory(struct schedule *s)
{
    struct hutch_err err;

    hutch_err_set(&err, ENOMEM, "run a batch");
    fail(s, &err);
}

static bool is_stopping(const struct schedule *s)
{
    return s->is_failed || s->tally->is_interrupted;
}

/* ---- flights ---- */

static void land(struct flight *f)
{
    struct schedule *s = f->schedule;

    *(f->previous ? &f->previous->next : &s->flights) = f->next;
    if (f->next)
        f->next->previous = f->previous;
    s->n_flights--;
    hutch_batch_run_done(&f->run);
    hutch_batch_plan_release(s->plan, &s->plan->items[f->item], &f->loaded);
    free(f->outcome.cases);
    free(f->outcome.details);
    free(f);
}

/* The verdict is final: writes it down. */
static void conclude(struct flight *f)
{
    struct schedule *s = f->schedule;
    struct batch_item *item = &s->plan->items[f->item];
    struct batch_tally *tally = s->tally;
    struct batch_outcome *o = &f->outcome;
    struct hutch_err err;
    size_t len;
    char *record = hutch_batch_record_make(s->plan, item, &f->loaded, o, &len);

    if (!record)
        fail_for_memory(s);
    else if (hutch_batch_output_add(s->output, f->item, record, len, &err) < 0)
        fail(s, &err);
    item->is_done = 1;
    item->verdict = (uint8_t)o->verdict;
    tally->verdicts[o->verdict]++;
    tally->n_done++;
    if (o->verdict != BATCH_INTERNAL) {
        tally->judged[item->group]++;
        tally->passed[item->group] += o->verdict == BATCH_PASS;
    } else if (!tally->internal[0]) {
        snprintf(tally->internal, sizeof(tally->internal), "task '%.100s': %.380s", f->loaded.task->id, o->text);
    }
    if (tally->verdicts[BATCH_INTERNAL] == GIVE_UP_AFTER && tally->n_done == GIVE_UP_AFTER) {
        hutch_err_set(&err, 0, "nothing can be run: %s", tally->internal);
        fail(s, &err);
    }
    land(f);
}

static void submit(struct flight *f);

/* Ends a case with a verdict, and the sample with it if there is nothing more to find out. */
static void conclude_case(struct flight *f, const struct batch_run_verdict *verdict)
{
    const struct batch_task *task = f->loaded.task;
    struct batch_outcome *o = &f->outcome;
    bool has_cases = task->judging == BATCH_BY_OUTPUT;

    if (has_cases)
        o->cases[o->n_run] = (uint8_t)verdict->kind;
    o->n_run++;
    o->n_passed += verdict->kind == BATCH_PASS;
    if (verdict->kind != BATCH_PASS && (o->verdict == BATCH_PASS || verdict->kind == BATCH_INTERNAL)) {
        o->verdict = verdict->kind;
        if (has_cases && verdict->text[0])
            snprintf(o->text, sizeof(o->text), "case %zu: %.3900s", f->index, verdict->text);
        else
            snprintf(o->text, sizeof(o->text), "%s", verdict->text);
    }
    if (has_cases && f->index + 1 < task->n_cases && verdict->kind != BATCH_INTERNAL &&
        (verdict->kind == BATCH_PASS || f->schedule->settings.all_cases)) {
        f->index++;
        f->attempts = 0;
        submit(f);
        return;
    }
    conclude(f);
}

static void give_up(struct flight *f, enum batch_verdict kind, const char *why)
{
    struct batch_run_verdict verdict = { .kind = kind };

    snprintf(verdict.text, sizeof(verdict.text), "%s", why);
    conclude_case(f, &verdict);
}

/* ---- results ---- */

/* Did the wall clock end something that was kept from computing, rather than something that waited? */
static bool was_held_up(const struct flight *f, const struct batch_run_verdict *verdict)
{
    return verdict->cpu_ms < f->run.request.wall_ms / 2 && hutch_batch_load_is_high(f->schedule->settings.proc);
}

static bool wants_again(struct flight *f, const struct batch_run_verdict *verdict)
{
    struct schedule *s = f->schedule;

    if (verdict->wants_judge && !s->settings.manner.carries_judge) {
        s->settings.manner.carries_judge = true;
        return true;
    }
    if (verdict->wants_judge) /* of those that were submitted before that was known, one after the other */
        return f->attempts++ < ATTEMPTS;
    if (verdict->wants_together && !f->is_together) {
        f->is_together = f->outcome.is_together = true;
        return true;
    }
    if (verdict->kind == BATCH_INTERNAL)
        return ++f->attempts < ATTEMPTS;
    if (f->outcome.is_retried || !(verdict->is_killed || (verdict->is_backstop && was_held_up(f, verdict))))
        return false;
    f->outcome.is_retried = true;
    s->tally->n_retried++;
    return true;
}

static void on_result(void *user, uint64_t id, const struct hutch_result *r)
{
    struct flight *f = user;
    struct schedule *s = f->schedule;
    struct batch_run_verdict verdict;

    (void)id;
    f->id = 0;
    if (is_stopping(s)) {
        land(f);
        return;
    }
    hutch_batch_verdict_reach(&f->run, f->loaded.task, f->index, r, &verdict);
    s->tally->n_runs++;
    s->tally->n_exposed += verdict.is_exposed;
    f->outcome.wall_ms += r->run_ms;
    f->outcome.cpu_ms += verdict.cpu_ms;
    if (wants_again(f, &verdict)) {
        submit(f);
        return;
    }
    if (verdict.wants_judge || verdict.wants_together) {
        give_up(f, BATCH_INTERNAL, "the judge is not in the sandbox");
        return;
    }
    if (f->loaded.task->judging == BATCH_BY_EXIT) {
        free(f->outcome.details);
        f->outcome.details = hutch_batch_record_details(r);
        if (!f->outcome.details)
            fail_for_memory(s);
    }
    conclude_case(f, &verdict);
}

/* ---- submitting ---- */

/* False when the engine's queue is full; then the flight waits. */
static bool submit_made(struct flight *f)
{
    struct schedule *s = f->schedule;
    struct hutch_error why;

    if (s->engine->submit(s->engine->engine, &f->run.request, &f->id, &why) == 0)
        return true;
    f->id = 0;
    if (why.code == EAGAIN && s->n_flights > 1) {
        f->next_waiting = s->waiting;
        s->waiting = f;
        return false;
    }
    give_up(f, BATCH_INTERNAL, why.message);
    return true;
}

static void submit(struct flight *f)
{
    struct schedule *s = f->schedule;
    struct batch_manner manner = s->settings.manner;
    struct hutch_err err;

    manner.is_together = manner.is_together || f->is_together;
    f->outcome.is_together = manner.is_together || f->loaded.task->is_together;
    hutch_batch_run_done(&f->run);
    if (hutch_batch_run_make(&manner, f->loaded.task, &f->loaded.sample, f->index, s->numbers++, &f->run, &err) < 0) {
        give_up(f, BATCH_INTERNAL, err.msg);
        return;
    }
    if (memchr(f->run.code, '\0', f->run.request.code_len)) {
        f->outcome.verdict = BATCH_COMPILE_ERROR;
        snprintf(f->outcome.text, sizeof(f->outcome.text), "source code string cannot contain null bytes");
        conclude(f);
        return;
    }
    f->run.request.on_result = on_result;
    f->run.request.user = f;
    submit_made(f);
}

static void take_off(struct schedule *s, size_t item)
{
    struct flight *f = calloc(1, sizeof(*f));
    struct hutch_err err;

    if (!f) {
        fail_for_memory(s);
        return;
    }
    *f = (struct flight){ .schedule = s, .item = item, .run = BATCH_RUN_INIT, .next = s->flights };
    if (hutch_batch_plan_load(s->plan, &s->plan->items[item], &f->loaded, &err) < 0) {
        fail(s, &err);
        free(f);
        return;
    }
    if (s->flights)
        s->flights->previous = f;
    s->flights = f;
    s->n_flights++;
    f->outcome.cases = calloc(f->loaded.task->n_cases + 1, 1);
    if (!f->outcome.cases) {
        fail_for_memory(s);
        land(f);
        return;
    }
    submit(f);
}

/* One more than run at once for each, so that the engine never waits for us. */
static void fill_up(struct schedule *s)
{
    size_t wanted = (size_t)s->settings.jobs * 2;

    while (s->waiting) {
        struct flight *f = s->waiting;

        s->waiting = f->next_waiting;
        f->next_waiting = NULL;
        if (!submit_made(f))
            return;
    }
    while (!is_stopping(s) && s->n_flights < wanted && s->next_item < s->plan->n_items) {
        if (s->plan->items[s->next_item].is_done) {
            s->next_item++;
            continue;
        }
        if (s->output->in_order && s->next_item - s->output->next > WINDOW)
            return;
        take_off(s, s->next_item++);
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
        fail(s, &err);
        return;
    }
    if (fds[1].revents)
        s->tally->is_interrupted = true;
    if (s->engine->dispatch(s->engine->engine, &why) < 0) {
        hutch_err_set(&err, 0, "%s", why.message);
        fail(s, &err);
    }
}

/* Ends what runs, so that nothing calls back into what is about to go. */
static void stop(struct schedule *s)
{
    uint64_t deadline = now_ms() + STOP_MS;

    while (s->waiting) {
        struct flight *f = s->waiting;

        s->waiting = f->next_waiting;
        land(f);
    }
    for (struct flight *f = s->flights; f; f = f->next)
        s->engine->cancel(s->engine->engine, f->id);
    while (s->n_flights && now_ms() < deadline)
        wait_and_dispatch(s, 50);
    while (s->flights) /* whoever frees the engine hears no more of them */
        land(s->flights);
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
    for (fill_up(&s); s.n_flights && !is_stopping(&s); fill_up(&s)) {
        draw(&s);
        wait_and_dispatch(&s, draws ? REDRAW_MS : -1);
    }
    if (s.n_flights)
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

#include "runtime/batch/schedule.h"

#include "runtime/batch/attempt.h"
#include "runtime/batch/record.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <poll.h>

#define GIVE_UP_AFTER 8 /* samples, when all of them failed for no fault of theirs */
#define WINDOW 16384    /* samples that may be ahead of the first that is not done, when order is kept */
#define REDRAW_MS 200
#define STOP_MS 5000    /* how long cancelled runs may take to say so */
#define STOP_POLL_MS 50

struct schedule {
    struct batch_output *output;
    const struct batch_settings *settings;
    struct batch_tally *tally;
    struct batch_attempts attempts;
    struct batch_attempt *first, *waiting; /* waiting: the engine's queue was full */
    size_t n_attempts, next_item;
    struct hutch_err err; /* the first, which ends it all */
    bool is_failed;
};

static void note_failure(struct schedule *s, const struct hutch_err *err)
{
    if (!s->is_failed)
        s->err = *err;
    s->is_failed = s->attempts.is_stopping = true;
}

/* ---- attempts ---- */

static void end_attempt(struct schedule *s, struct batch_attempt *a)
{
    *(a->previous ? &a->previous->next : &s->first) = a->next;
    if (a->next)
        a->next->previous = a->previous;
    s->n_attempts--;
    hutch_batch_attempt_free(a);
}

static void begin_attempt(struct schedule *s, size_t item)
{
    struct batch_attempt *a;
    struct hutch_err err;

    if (hutch_batch_attempt_create(&s->attempts, item, &a, &err) < 0) {
        note_failure(s, &err);
        return;
    }
    a->next = s->first;
    if (s->first)
        s->first->previous = a;
    s->first = a;
    s->n_attempts++;
    hutch_batch_attempt_start(a);
}

static void on_no_memory(void *owner)
{
    struct hutch_err err;

    hutch_err_set(&err, ENOMEM, "run a batch");
    note_failure(owner, &err);
}

/* Writes the outcome down. */
static void on_concluded(void *owner, struct batch_attempt *a)
{
    struct schedule *s = owner;
    struct batch_plan *plan = s->attempts.plan;
    struct batch_item *item = &plan->items[a->item];
    struct batch_tally *tally = s->tally;
    struct hutch_err err;
    size_t len;
    char *record = hutch_batch_record_make(plan, item, &a->loaded, &a->outcome, &len);

    if (!record)
        on_no_memory(s);
    else if (hutch_batch_output_add(s->output, a->item, record, len, &err) < 0)
        note_failure(s, &err);
    item->is_done = 1;
    item->verdict = (uint8_t)a->outcome.verdict;
    hutch_batch_tally_add(tally, item, a->loaded.task, &a->outcome);
    if (tally->verdicts[BATCH_INTERNAL] == GIVE_UP_AFTER && tally->n_done == GIVE_UP_AFTER) {
        hutch_err_set(&err, 0, "nothing can be run: %s", tally->internal);
        note_failure(s, &err);
    }
    end_attempt(s, a);
}

static void on_dropped(void *owner, struct batch_attempt *a)
{
    end_attempt(owner, a);
}

static bool on_queue_full(void *owner, struct batch_attempt *a)
{
    struct schedule *s = owner;

    if (s->n_attempts == 1)
        return false;
    a->next_waiting = s->waiting;
    s->waiting = a;
    return true;
}

static struct batch_attempt *take_waiting(struct schedule *s)
{
    struct batch_attempt *a = s->waiting;

    if (a)
        s->waiting = a->next_waiting;
    return a;
}

/* One more than run at once for each, so that the engine always has work. */
static void fill_up(struct schedule *s)
{
    const struct batch_plan *plan = s->attempts.plan;
    size_t wanted = (size_t)s->settings->jobs * 2;
    struct batch_attempt *a;

    while ((a = take_waiting(s)))
        if (!hutch_batch_attempt_submit(a))
            return;
    while (!s->attempts.is_stopping && s->n_attempts < wanted && s->next_item < plan->n_items) {
        if (plan->items[s->next_item].is_done) {
            s->next_item++;
            continue;
        }
        if (s->output->in_order && s->next_item - s->output->next > WINDOW)
            return;
        begin_attempt(s, s->next_item++);
    }
}

/* ---- the loop ---- */

static void draw_progress(struct schedule *s)
{
    struct batch_progress_state state = {
        .done = s->tally->n_done, .total = s->tally->n_left, .runs = s->attempts.n_runs,
    };

    for (size_t i = 0; i < BATCH_VERDICT_COUNT; i++)
        state.failed += i == BATCH_PASS ? 0 : s->tally->verdicts[i];
    hutch_batch_progress_update(s->settings->progress, &state);
}

static void wait_and_dispatch(struct schedule *s, int timeout_ms)
{
    const struct batch_engine *engine = s->attempts.engine;
    struct pollfd fds[2] = { { .fd = engine->fd(engine->engine), .events = POLLIN },
                             { .fd = s->tally->is_interrupted ? -1 : s->settings->stop_fd, .events = POLLIN } };
    struct hutch_error why;
    struct hutch_err err;

    if (poll(fds, ARRAY_SIZE(fds), timeout_ms) < 0 && errno != EINTR) {
        hutch_err_set(&err, errno, "wait for the engine");
        note_failure(s, &err);
        return;
    }
    if (fds[1].revents)
        s->tally->is_interrupted = s->attempts.is_stopping = true;
    if (engine->dispatch(engine->engine, &why) < 0) {
        hutch_err_set(&err, 0, "%s", why.message);
        note_failure(s, &err);
    }
}

/* Ends what runs, so that nothing calls back into what is about to go. */
static void stop(struct schedule *s)
{
    const struct batch_engine *engine = s->attempts.engine;
    double deadline = hutch_clock_ms() + STOP_MS;
    struct batch_attempt *a;

    while ((a = take_waiting(s)))
        end_attempt(s, a);
    for (a = s->first; a; a = a->next)
        engine->cancel(engine->engine, a->id);
    while (s->n_attempts && hutch_clock_ms() < deadline)
        wait_and_dispatch(s, STOP_POLL_MS);
    while (s->first) /* hutch_engine_free(), which follows, calls back no more */
        end_attempt(s, s->first);
}

int hutch_batch_schedule(struct batch_plan *plan, struct batch_output *output, const struct batch_engine *engine,
                         const struct batch_settings *settings, struct batch_tally *ret_tally, struct hutch_err *err)
{
    static const struct batch_attempt_events events = {
        .on_concluded = on_concluded,
        .on_dropped = on_dropped,
        .on_queue_full = on_queue_full,
        .on_no_memory = on_no_memory,
    };
    struct batch_tally tally;
    struct schedule s = { .output = output, .settings = settings, .tally = &tally };
    bool draws = settings->progress->is_terminal;

    s.attempts = (struct batch_attempts){
        .plan = plan, .engine = engine, .events = &events, .owner = &s, .manner = settings->manner,
        .all_cases = settings->all_cases, .proc = settings->proc,
    };
    if (hutch_batch_tally_begin(plan, &tally, err) < 0)
        return -1;
    for (fill_up(&s); s.n_attempts && !s.attempts.is_stopping; fill_up(&s)) {
        draw_progress(&s);
        wait_and_dispatch(&s, draws ? REDRAW_MS : -1);
    }
    if (s.n_attempts)
        stop(&s);
    tally.n_runs = s.attempts.n_runs;
    tally.n_retried = s.attempts.n_retried;
    tally.n_exposed = s.attempts.n_exposed;
    *ret_tally = tally;
    if (hutch_batch_output_finish(output, !s.attempts.is_stopping, err) < 0 && !s.is_failed)
        return -1;
    if (s.is_failed) {
        *err = s.err;
        return -1;
    }
    return 0;
}

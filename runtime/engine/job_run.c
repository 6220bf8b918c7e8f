#include "runtime/engine/job_run.h"

#include "runtime/engine/run.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* As much as the worker's socket takes. The rest goes when it takes more. */
static void send_job(struct engine_run *run)
{
    struct slot *slot = run->slot;

    while (run->job_sent < run->job_len && slot->supervisor->report_fd >= 0) {
        ssize_t n = TEMP_FAILURE_RETRY(send(slot->supervisor->report_fd, run->job + run->job_sent,
                                            run->job_len - run->job_sent, MSG_NOSIGNAL | MSG_DONTWAIT));

        if (n < 0 && errno == EAGAIN) {
            hutch_watch_change(&slot->job, EPOLLIN | EPOLLOUT | EPOLLET);
            return;
        }
        if (n < 0) { /* it is dead: init tells */
            run->lost_job = true;
            break;
        }
        run->job_sent += (size_t)n;
    }
}

static void on_writable(struct engine_run *run)
{
    send_job(run);
    if (run->lost_job || run->job_sent == run->job_len)
        hutch_watch_change(&run->slot->job, EPOLLIN | EPOLLET);
}

static int start(struct engine_run *run, struct hutch_err *err)
{
    (void)err; /* the reason is not known: the worker is gone */
    send_job(run);
    return run->lost_job ? -1 : 0;
}

static bool wants_output(const struct engine_run *run)
{
    return run->on_output;
}

static void hear(struct engine_run *run, int stream, const char *data, size_t len)
{
    run->on_output(run->user, run->id, stream, data, len);
}

static enum run_outcome conclude(struct engine_run *run, struct hutch_err *why)
{
    (void)run;
    (void)why;
    return OUTCOME_JUDGE;
}

const struct run_kind hutch_job_run = {
    .start = start,
    .wants_output = wants_output,
    .hear = hear,
    .on_writable = on_writable,
    .conclude = conclude,
    .refuse = hutch_run_fail,
    .die = hutch_run_deliver,
};

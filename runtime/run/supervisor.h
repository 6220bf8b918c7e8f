/* supervisor.h - watches one live run from outside: its streams, clocks and limits, what its init says, the error
 * report, and how much lies in its data directory. Ends the run where a limit is reached, and notes what verdict.h
 * decides by.
 *
 * The owner has the event loop. It sets the fields of the first part, then turns: wait for what
 * hutch_supervisor_poll() names, at most as long as hutch_supervisor_clocks() says, and hand it to
 * hutch_supervisor_turn(), until hutch_supervisor_is_over(). Then hutch_supervisor_drain(), turn until
 * hutch_supervisor_is_drained(), and hutch_verdict_decide(). */
#ifndef HUTCH_RUN_SUPERVISOR_H
#define HUTCH_RUN_SUPERVISOR_H

#include "runtime/data/changes.h"
#include "runtime/data/watch.h"
#include "sandbox/err.h"
#include "runtime/run/result.h"
#include "sandbox/sandbox.h"
#include "runtime/run/stream.h"

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

/* Why the supervisor ended a run; the first reason stands. */
enum end_reason {
    END_OWN,
    END_TIMEOUT,
    END_CPU_TIME,
    END_MEMORY,
    END_HIDDEN,    /* a process made itself unreadable */
    END_UNCOUNTED, /* there is too much to count */
    END_IN_FLIGHT, /* it sent more descriptors than the kernel's check was to let through */
    END_INPUT,
    END_OUTPUT,
    END_DATA,
    END_FILES_IN_MEMORY, /* those of all sandboxes take too much of the host's memory, and its own are the most */
    END_SIGNAL,
    END_CANCELLED,
    END_HOST,      /* hutch itself could not go on: host_err */
    END_SETUP,
    END_COUNT
};

struct supervisor {
    /* The owner's to set. */
    uint64_t limits[LIMIT_COUNT]; /* these two by hutch_supervisor_set_limits() */
    uint64_t grace_ms;
    int timeout_signal;        /* what asks the program to end when its time is over; 0: SIGTERM */
    struct sandbox *sandbox;   /* not owned */
    struct run_result *result; /* not owned */
    const char *tree;          /* not owned; of the image. NULL: it has none */
    int data_dirfd;            /* not owned; -1: it is not checked */
    bool is_data_bounded;      /* its file system has the limits itself: sandbox/volume.h */
    int report_fd;             /* owned; a pipe or a socket that is only read */
    bool (*on_close)(void *user, int fd); /* instead of closing report_fd, as the streams have it. NULL: none */
    /* Counts what lies in the data directory, @bounds at most, without this process waiting:
     * hutch_supervisor_take_count() follows, or hutch_supervisor_lose_count(). False when that cannot be had. NULL: it
     * is counted here. */
    bool (*order_count)(void *user, const struct collect_bounds *bounds);
    uint64_t max_counted;      /* with order_count: entries that are counted here nevertheless, in one go */
    /* INIT_WATCHED and INIT_PROCESS_ENDED. NULL: no process is watched. */
    void (*on_process)(void *user, const struct init_msg *msg);
    void *user;
    double t0;                 /* when the run began, hutch_clock_ms(); timings count from here */
    /* … and of out, err_out and in below: their descriptors, sinks and sources. */

    double t_started, t_ended; /* 0: not yet */
    enum end_reason reason;
    int passed_signal;         /* END_SIGNAL: which */
    bool has_ended;            /* INIT_ENDED came: status and usage hold */
    bool is_init_gone;         /* the control socket closed */
    int status;
    struct rusage usage;
    bool has_followed;         /* INIT_FOLLOWED came, since the owner last checked */
    pid_t followed;
    unsigned n_signalled;      /* INIT_SIGNALLED that came in all, of the sandbox's n_signals */
    bool was_signalled;        /* one came since the owner last checked */
    bool is_still;             /* INIT_PAUSED: what it said last, */
    unsigned n_pauses;         /* and how many of them answered an INIT_PAUSE */
    bool was_outlived;         /* INIT_OUTLIVED came, since the owner last checked: status and usage hold */
    uint64_t told_oom_kills;   /* of the cgroup's, those that workers ended by that were outlived */
    bool is_built;             /* INIT_BUILT came */
    bool setup_failed, exec_failed;
    struct hutch_err setup_err;
    struct hutch_err host_err; /* END_HOST */

    double kill_at;            /* after SIGTERM; 0: not set */
    double killed_at;          /* when SIGKILL was sent first; 0: it was not */
    bool is_hung;              /* no SIGKILL ended it: it counts as gone, which is_init_gone says, and may be alive */
    double next_data, next_cpu; /* when the next checks are due */
    double idle_ms;            /* interval of checks while idle, hutch_supervisor_set_idle(); 0: not idle */
    uint64_t n_samples;        /* that came */
    bool has_changed;          /* a sample came while it was idle */
    uint64_t checked_cpu_us;   /* what the sandbox had used at the last check while idle */
    struct data_watch data_watch;
    unsigned hidden_in_a_row;  /* samples in which a process was unreadable */
    unsigned cut_in_a_row;     /* samples that took too long */
    bool has_kept_data;        /* what is over its limit stays where it is: the directory is the caller's */
    bool is_data_over;         /* the last count of the data directory was over a limit */
    bool is_data_full;         /* is_data_bounded: nothing more fitted in at the end */
    bool is_counting;          /* order_count() was called, and nothing has followed yet … */
    double count_begun_ms;     /* … since then */
    unsigned data_failures;    /* checks of the data directory in a row that failed */
    struct init_sample peak, last;
    size_t report_len, report_max; /* the most that is taken; 0: PYREPORT_MAX */
    int report_errno;          /* why the report could not be read: ECONNRESET when its writer left orders unread */

    /* What follows is large, and kept for the next run. */
    char *report;              /* owned */
    size_t report_size;        /* that it has room for */
    struct out_stream out, err_out;
    struct in_stream in;
};

/* One that watches nothing yet. NULL on ENOMEM. */
struct supervisor *hutch_supervisor_create(struct hutch_err *err);
/* Makes it as good as new, but for its memory: a supervisor can watch one run after the other. */
void hutch_supervisor_reset(struct supervisor *s);
void hutch_supervisor_free(struct supervisor *s); /* NULL is fine */

/* Where the limits are known: those of the streams follow from them and from where the streams go. */
void hutch_supervisor_set_limits(struct supervisor *s, const uint64_t limits[LIMIT_COUNT], uint64_t grace_ms);

/* What is asked for and what makes it real, for the result. Without a sandbox: only what is asked for. */
void hutch_supervisor_note_limits(struct supervisor *s, const struct sandbox_spec *spec);

enum {
    SUPERVISOR_CONTROL,
    SUPERVISOR_OUT,
    SUPERVISOR_OUT_SINK,
    SUPERVISOR_ERR,
    SUPERVISOR_ERR_SINK,
    SUPERVISOR_IN_SOURCE,
    SUPERVISOR_IN,
    SUPERVISOR_REPORT,
    SUPERVISOR_FDS
};
/* Fills @p for poll(2): fd -1 where there is nothing to wait for. */
void hutch_supervisor_poll(const struct supervisor *s, struct pollfd p[SUPERVISOR_FDS]);
/* Does what @p says can be done, without blocking. -1 when there is no memory for the output. */
int hutch_supervisor_turn(struct supervisor *s, const struct pollfd p[SUPERVISOR_FDS], struct hutch_err *err);
/* Does what is due, and returns how many milliseconds may pass until the next. */
int hutch_supervisor_clocks(struct supervisor *s);

/* The program runs from now on: what init's INIT_STARTED says when it executes one. */
void hutch_supervisor_started(struct supervisor *s);

/* No code runs in it that was asked for, until this is called with 0: every @idle_ms its CPU time is checked, and the
 * data directory only when that has grown. */
void hutch_supervisor_set_idle(struct supervisor *s, double idle_ms);

/* Ends the run for @reason, unless it is ending already. */
void hutch_supervisor_end(struct supervisor *s, enum end_reason reason);
/* The same, because hutch itself cannot go on, which is not the program's doing. */
void hutch_supervisor_fail(struct supervisor *s, const struct hutch_err *why);
/* An order to signal is not carried out yet: the signal may still come to code that runs later. */
bool hutch_supervisor_is_signalling(const struct supervisor *s);
/* Passes a signal on; the kill follows some time after the first, at once after the second. */
void hutch_supervisor_pass_signal(struct supervisor *s, int sig);

bool hutch_supervisor_is_over(const struct supervisor *s);

/* Everything in the sandbox is dead, or dies and does not count any more: what the pipes hold now is all there is. A
 * write end may have left the sandbox through a socket in a shared directory, so no end of file is waited for. */
void hutch_supervisor_drain(struct supervisor *s);
/* All output is delivered. */
bool hutch_supervisor_is_drained(const struct supervisor *s);

/* What order_count() came to, in @took_ms without waiting: @why NULL, or it could not be counted. One that comes too
 * late is not taken. */
void hutch_supervisor_take_count(struct supervisor *s, uint64_t bytes, uint64_t entries, double took_ms,
                                 const struct hutch_err *why);
/* The process that was to count is gone: it is ordered again. */
void hutch_supervisor_lose_count(struct supervisor *s);

/* Counts what lies in the data directory when no process is left: before the verdict, which it may change. False when
 * there are @max_walked entries or more, of which nothing is noted; 0 for no such bound. */
bool hutch_supervisor_count_last(struct supervisor *s, uint64_t max_walked);
/* The same, counted elsewhere. */
void hutch_supervisor_take_last(struct supervisor *s, uint64_t bytes, uint64_t entries);
/* What bounds that count. */
struct collect_bounds hutch_supervisor_last_bounds(const struct supervisor *s);
/* What the run did to the files in its data directory, which held @before. What goes wrong is told in the result. */
void hutch_supervisor_collect(struct supervisor *s, int data_dirfd, const struct file_list *before);
/* A result without its list of files is still a result. */
void hutch_supervisor_admit_loss(struct supervisor *s, const struct hutch_err *err);
/* The files that were to be kept are not: after the verdict, which cannot be "ok" then. */
void hutch_supervisor_admit_lost_files(struct supervisor *s, const struct hutch_err *err);

#endif

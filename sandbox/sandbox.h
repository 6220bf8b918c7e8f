/* sandbox.h - one sandbox from outside: start it, hear from its init, signal it, end it.
 *
 * The caller owns the event loop: control_fd becomes readable when init has something to say. No threads may run in
 * the calling process while hutch_sandbox_start() is at work (it clones). */
#ifndef HUTCH_SANDBOX_H
#define HUTCH_SANDBOX_H

#include "sandbox/cgroup.h"
#include "sandbox/err.h"
#include "sandbox/init.h"
#include "sandbox/spec.h"

/* What makes each limit and layer real in this sandbox. Bits are 1u << enum sandbox_enforcer. */
struct sandbox_enforcement {
    unsigned limits[LIMIT_COUNT];
    bool layer_active[LAYER_COUNT];
    char layer_detail[LAYER_COUNT][96]; /* in words, "" when there is nothing to add */
};

struct sandbox {
    pid_t pid;        /* of init, as the caller sees it; -1 when unset */
    int   pidfd;      /* owned */
    int   control_fd; /* owned */
    int   mnt_ns_fd;  /* owned; of a waiting sandbox: its mount namespace, see attach.h */
    int   id_fd;      /* owned; holds the host id that it has borrowed, see ids.h; -1: the caller has, or it has none */
    struct sandbox_cgroup cgroup;
    struct sandbox_enforcement enforcement;
    unsigned n_signals;  /* orders to signal that were sent */
    bool  wants_samples; /* INIT_SAMPLE messages will come: memory and processes are not counted by a cgroup */
    struct worker_plan plan; /* of a waiting sandbox: what its worker has to take on */
};
#define SANDBOX_INIT \
    { .pid = -1, .pidfd = -1, .control_fd = -1, .mnt_ns_fd = -1, .id_fd = -1, .cgroup = CGROUP_INIT }

/* Descriptors that the worker gets; the caller keeps its own copies and closes them. */
struct sandbox_io {
    int stdin_r, stdout_w, stderr_w;
    int report_w; /* becomes descriptor 3 (INIT_REPORT_FD); -1 for none */
    uid_t own_uid; /* host ids that the caller has borrowed for it; 0: one is borrowed here, or it shares one */
    gid_t own_gid;
    const char *why_shared; /* why the caller could borrow none; NULL: it has not tried */
    bool is_waiting; /* no program: the sandbox is built and waits for a worker from outside, see init.h. The streams
                      * are not its */
};

/* Clones init, which builds the sandbox in parallel from here on: INIT_STARTED, INIT_SETUP_FAILED or INIT_EXEC_FAILED
 * comes over control_fd. @name names the cgroup. Fails, with everything undone, when a required layer or limit cannot
 * be had; no foreign code has run then. @base may have no directory (dirfd -1). */
int hutch_sandbox_start(const struct sandbox_spec *spec, const struct cgroup_base *base, const char *name,
                        const struct sandbox_io *io, struct sandbox *ret, struct hutch_err *err);

/* Before INIT_START: gives a waiting sandbox those of the @limits (by enum sandbox_limit) that are less than the ones
 * that it was made with, @built: of memory, processes and, as long as they round up to the same number, CPUs. They are
 * set in its cgroup, and in sb->plan.rlimits, which its worker has still to take on. 0; or 1 where init was told, too,
 * and INIT_LIMITED follows: nothing may run before. After -1 the sandbox is of no use. */
int hutch_sandbox_lower(struct sandbox *sb, const uint64_t *built, const uint64_t *limits, struct hutch_err *err);

/* Calls that make memory which belongs to no process until it is mapped: only a cgroup counts it, so where none does
 * they answer ENOSYS. Ends with NULL. */
extern const char *const hutch_sandbox_uncounted[];

/* The system call filter for a sandbox whose cgroup has these @controllers. Errors: as hutch_seccomp_compile(). */
int hutch_sandbox_compile(const struct sandbox_spec *spec, unsigned controllers, struct seccomp_program *ret,
                          struct hutch_err *err);

/* Takes one message, blocking unless control_fd is set not to. 1, 0 when init is gone, or when nothing is there: -1
 * with EAGAIN. The second form also takes the descriptor that INIT_READY brings, -1 when there is none; the caller owns
 * it. */
int hutch_sandbox_receive(struct sandbox *sb, struct init_msg *ret, struct hutch_err *err);
int hutch_sandbox_receive_fd(struct sandbox *sb, struct init_msg *ret, int *ret_fd, struct hutch_err *err);

/* Sends an order. Never blocks. -1 with errno when init is gone or does not listen. */
int hutch_sandbox_order(struct sandbox *sb, enum init_order_kind what, int value);

/* Asks init to signal the worker's process group. Nothing happens when init is gone. */
void hutch_sandbox_signal(struct sandbox *sb, int sig);

/* To the group of a process that init watches. -1 as hutch_sandbox_order(). */
int hutch_sandbox_signal_process(struct sandbox *sb, pid_t pid, int sig);

/* Kills everything inside, now. Safe to call again. */
void hutch_sandbox_kill(struct sandbox *sb);

/* How it ended and what it used. */
struct sandbox_end {
    int init_status;             /* wait status of init: 0 after a normal end */
    struct rusage usage;         /* init and all that it and the kernel reaped */
    struct cgroup_usage cgroup;  /* UINT64_MAX where unknown */
};
/* Kills what is left, reaps init, reads the cgroup's last numbers, removes it and frees everything; at most some
 * seconds. A cgroup that does not empty is left to the next start's sweep and reported in @err with -1. */
int hutch_sandbox_finish(struct sandbox *sb, struct sandbox_end *ret, struct hutch_err *err);

#endif

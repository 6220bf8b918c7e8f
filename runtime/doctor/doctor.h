/* doctor.h - trying out what this host offers: one table of checks, each tried in a child of its own.
 *
 * Nothing is concluded from a version number. A check forks, uses the feature as the sandbox would, and says what it
 * found in a struct of fixed size that crosses a pipe; whatever it made dies with it. */
#ifndef HUTCH_DOCTOR_DOCTOR_H
#define HUTCH_DOCTOR_DOCTOR_H

#include "sandbox/cgroup.h"
#include "runtime/doctor/denial.h"
#include "sandbox/err.h"
#include "sandbox/spec.h"
#include "sandbox/userns.h"

#include <stdbool.h>
#include <sys/utsname.h>

enum doctor_status {
    DOCTOR_OK,
    DOCTOR_DEGRADED,   /* there, but less than it could be; everything still runs */
    DOCTOR_MISSING,
    DOCTOR_NOT_NEEDED, /* by this caller on this host */
    DOCTOR_STATUS_COUNT
};

struct doctor_finding {
    enum doctor_status status;
    bool is_consequence; /* only follows from an earlier finding, where costs and fix are told */
    char detail[508];    /* what was found, one line; as long as an error's message */
    char costs[240];     /* "" while nothing is missing */
    char fix[1024];      /* the exact command, or in words what only a human can do; "" likewise */
};

/* What is asked once and what every check may look at. */
struct doctor_host {
    struct utsname uts;
    char distribution[96];   /* "" when unknown */
    char user[64];           /* "" when the uid has no name */
    uid_t uid;
    struct denial_facts facts;
    struct sandbox_spec ids; /* the identity inside; nothing else in it is meant */
    struct id_plan plan;
    bool has_plan;
    struct hutch_err plan_err;   /* when not has_plan */
    char *home, *policy_dir;     /* owned; NULL: see the errors */
    struct hutch_err home_err, policy_err;
    struct cgroup_base cgroup;
    char scratch_name[40];       /* of what checks make; two doctors may have the same pid, in pid namespaces */
    bool has_user_ns;            /* as far as is known: false once a check that others stand on has failed */
};

/* Finds the cgroup base as a run does, which may move the calling process into a leaf of its own group. */
int hutch_doctor_look(struct doctor_host *ret, struct hutch_err *err);
void hutch_doctor_host_done(struct doctor_host *host);

typedef void doctor_probe_fn(const struct doctor_host *host, struct doctor_finding *ret);

enum doctor_place {
    DOCTOR_HERE,      /* in a plain child */
    DOCTOR_IN_USERNS, /* in a fresh user namespace, with the sandbox's identity and all capabilities over it */
};

struct doctor_check {
    const char *group, *name;
    enum doctor_place place;
    unsigned long namespaces; /* CLONE_NEW* besides the user namespace */
    doctor_probe_fn *probe;
    bool is_basis;            /* without it, nothing is tried in a user namespace */
    const char *costs, *fix;  /* what is said unless the probe knows better */
};

extern const struct doctor_check hutch_doctor_checks[];
extern const size_t hutch_doctor_n_checks;

#define DOCTOR_TIMEOUT_MS 10000

/* Tries one check; a child that hangs, crashes or is killed is a finding, too. Never fails. */
void hutch_doctor_try(struct doctor_host *host, const struct doctor_check *check, unsigned timeout_ms,
                      struct doctor_finding *ret);

/* Really starts a sandbox: the host's own root, its program `true`, under the policy @name. */
struct doctor_trial {
    bool runs;
    char reason[508]; /* why it does not; "" when it runs */
    char weaker[508]; /* what a run gets less than asked for; "" when nothing */
    char level[16];   /* of such a run, as results have it; "refused" when it does not run */
};
void hutch_doctor_try_policy(struct doctor_host *host, const char *name, struct doctor_trial *ret);

const char *hutch_doctor_status_name(enum doctor_status status);

/* For probes. */
void hutch_doctor_found(struct doctor_finding *ret, enum doctor_status status, const char *fmt, ...) HUTCH_PRINTF(3, 4);
/* Missing, since a call failed with @errnum; a cause that the host's settings explain brings its own fix. */
void hutch_doctor_failed(const struct doctor_host *host, struct doctor_finding *ret, int errnum, const char *fmt, ...)
    HUTCH_PRINTF(4, 5);
void hutch_doctor_fix(struct doctor_finding *ret, const char *fmt, ...) HUTCH_PRINTF(2, 3);
/* The same for a user without subordinate ids; nothing where the user has no name. */
void hutch_doctor_give_subids(const struct doctor_host *host, struct doctor_finding *ret);
void hutch_doctor_costs(struct doctor_finding *ret, const char *fmt, ...) HUTCH_PRINTF(2, 3);

#endif

/* steps.h - what a fresh child of clone(2) does to become the first process of a sandbox, or a zygote: one function a
 * step. Their order is the security argument; it stands in the tables of init.c and zygote.c. */
#ifndef HUTCH_STEPS_H
#define HUTCH_STEPS_H

#include "sandbox/init.h"

/* The numbers of what is kept open, so that everything above can be closed at once. */
enum { KEEP_STDIN = 0, KEEP_STDOUT, KEEP_STDERR, KEEP_CONTROL, KEEP_REPORT, KEEP_MEMINFO, KEEP_MEMORY_CURRENT,
       KEEP_MEMORY_STAT, KEEP_OUTER_PROC, KEEP_COUNT };

int hutch_step_die_with_supervisor(struct init_job *job, struct hutch_err *err);
int hutch_step_start_session(struct init_job *job, struct hutch_err *err);
int hutch_step_wait_for_maps(struct init_job *job, struct hutch_err *err);
int hutch_step_forget_command_line(struct init_job *job, struct hutch_err *err);
int hutch_step_enter_identity(struct init_job *job, struct hutch_err *err);
int hutch_step_enter_cgroup_ns(struct init_job *job, struct hutch_err *err);
int hutch_step_build_mounts(struct init_job *job, struct hutch_err *err);
int hutch_step_show_memory(struct init_job *job, struct hutch_err *err);
int hutch_step_find_data(struct init_job *job, struct hutch_err *err);
int hutch_step_shed_scheduling(struct init_job *job, struct hutch_err *err);
int hutch_step_name_host(struct init_job *job, struct hutch_err *err);
int hutch_step_bound_buffers(struct init_job *job, struct hutch_err *err);
int hutch_step_raise_loopback(struct init_job *job, struct hutch_err *err);
int hutch_step_close_inherited(struct init_job *job, struct hutch_err *err);
int hutch_step_take_seccomp(struct init_job *job, struct hutch_err *err);
int hutch_step_find_processes(struct init_job *job, struct hutch_err *err);
int hutch_step_make_ruleset(struct init_job *job, struct hutch_err *err);
int hutch_step_drop_caps(struct init_job *job, struct hutch_err *err);
int hutch_step_set_no_new_privs(struct init_job *job, struct hutch_err *err);
int hutch_step_shield_self(struct init_job *job, struct hutch_err *err);
int hutch_step_filter_self(struct init_job *job, struct hutch_err *err);

#endif

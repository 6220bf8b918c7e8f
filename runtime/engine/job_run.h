/* job_run.h - the kind of run that is one program: its worker is sent the whole job, and its output goes to the
 * caller. */
#ifndef HUTCH_ENGINE_JOB_RUN_H
#define HUTCH_ENGINE_JOB_RUN_H

struct run_kind;

/* kind_data: none. With is_exec there is no job: init executes the program. */
extern const struct run_kind hutch_job_run;
/* A call of a function, which is its kind_data: its result has a value. */
extern const struct run_kind hutch_call_run;

#endif

/* exec.h - the worker that is a program of the image: confined, then executed. */
#ifndef HUTCH_EXEC_H
#define HUTCH_EXEC_H

struct init_job;

/* In a fresh child of init: gives up everything, then executes spec->argv. When that fails, an
 * init_msg (INIT_SETUP_FAILED or INIT_EXEC_FAILED) goes to @errpipe_w, which execve(2) closes otherwise. */
_Noreturn void hutch_exec_main(const struct init_job *job, int errpipe_w);

#endif

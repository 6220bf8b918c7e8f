/* worker.h - the last steps of a process that is about to become foreign code. */
#ifndef HUTCH_WORKER_H
#define HUTCH_WORKER_H

struct init_job;

/* In a fresh child inside the finished sandbox: gives up everything, then executes spec->argv. When that fails, an
 * init_msg (INIT_SETUP_FAILED or INIT_EXEC_FAILED) goes to @errpipe_w, which execve(2) closes otherwise. */
_Noreturn void hutch_worker_main(const struct init_job *job, int errpipe_w);

#endif

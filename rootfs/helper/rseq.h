/* rseq.h - restartable sequences, rseq(2), of the thread that fork(2) has left in a new process.
 *
 * The kernel writes the number of its processor into an area of each thread that libc has registered, and
 * sched_getcpu(3) reads it there. A process that shares memory with its parent, as after vfork(2), begins without a
 * registration, and so do those that it forks: in these the number would be that of the zygote for ever. */
#ifndef HUTCH_HELPER_RSEQ_H
#define HUTCH_HELPER_RSEQ_H

/* Registers the area of the calling thread again, where libc had registered one. */
void hutch_rseq_renew(void);

#endif

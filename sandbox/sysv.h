/* sysv.h - what System V IPC holds in the caller's ipc namespace. It belongs to no process, and stays when all who used
 * it have ended. Source: shmctl(2), msgctl(2), semctl(2), with SHM_INFO, MSG_INFO and SEM_INFO, which all may ask. */
#ifndef HUTCH_SYSV_H
#define HUTCH_SYSV_H

#include <stdint.h>

/* In bytes: pages of shared memory in use or swapped out, messages that wait, and what the kernel itself holds for
 * each segment, queue and set. @n_threads: of the namespace; each may have a place in each set to undo what it did
 * (SEM_UNDO). */
uint64_t hutch_sysv_memory(uint64_t n_threads);

#endif

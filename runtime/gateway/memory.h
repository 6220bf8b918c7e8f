/* memory.h - what a process has in memory. */
#ifndef HUTCH_GATEWAY_MEMORY_H
#define HUTCH_GATEWAY_MEMORY_H

#include <stdint.h>
#include <sys/types.h>

/* Its resident pages in bytes, of /proc; 0: not known. @pid 0: the caller. */
uint64_t hutch_memory_of(pid_t pid);

#endif

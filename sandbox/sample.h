/* sample.h - counting what a sandbox uses, from inside, where no cgroup counts: memory, processes, and files that are
 * open without a name. */
#ifndef HUTCH_SAMPLE_H
#define HUTCH_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct init_sample;

/* Counts what every process in /proc holds, which shows only the sandbox's own, except init. A process that ends
 * meanwhile is skipped. @data_dev: where unlinked files are looked for, 0 for nowhere. @counts_shared: shared anonymous
 * memory counts by its size. Above @memory_limit (bytes, 0 for none) memory is counted exactly: by proportional shares,
 * and memory that several processes have together, as after vfork(2), once. Takes a quarter of a second of CPU at most,
 * beyond which ->is_cut_short is set, and is taken once more where an upper bound alone is above the limit. @holder, 0
 * for none: the memory holder, whose memory is the worker's and counts there. No allocation; one caller in a
 * process. */
void hutch_sample_take(dev_t data_dev, bool counts_shared, uint64_t memory_limit, pid_t holder,
                       struct init_sample *ret);

/* Samples that count shared memory count the buffers of sockets, too. @fd: of hutch_sockets_open(), or -1. @few: as of
 * hutch_sockets_memory(). */
void hutch_sample_count_sockets(int fd, uint64_t few);

/* Cheaper than a sample, for short intervals. Fills in ->cpu_ms and ->is_cpu_lower_bound, and with @wants_memory
 * ->memory_bytes: an upper bound, as what several processes share counts for each, but without objects that none has
 * mapped in. */
void hutch_sample_look(bool wants_memory, pid_t holder, struct init_sample *ret);

/* Whether the CPU time of children is being lost since the last call, as their parents ignore SIGCHLD: then the shorter
 * the intervals, the less. */
bool hutch_sample_loses_cpu(void);

/* The number that the sandbox's newest process or thread was given; 0: not known. The same as before: there is no new
 * one. */
pid_t hutch_sample_last_born(void);

/* Whether no process of the last sample has used CPU time since the last call; the kernel counts nanoseconds. Then
 * there is no new process either, as one of them would have made it, and none holds more than it did. A system call for
 * each process. False when there are too many. */
bool hutch_sample_is_idle(void);

/* Whether two processes have the same memory, CLONE_VM: that of one that has executed another program since differs. */
bool hutch_sample_share_memory(pid_t a, pid_t b);

#endif

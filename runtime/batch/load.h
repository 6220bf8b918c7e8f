/* load.h - whether this machine has more to do than its CPUs can. */
#ifndef HUTCH_BATCH_LOAD_H
#define HUTCH_BATCH_LOAD_H

#include <stdbool.h>

/* By the pressure that the kernel measured over the last minute, else by the load average. @proc is "/proc". */
bool hutch_batch_load_is_high(const char *proc);

#endif

/* busy.h - has this machine more to do than it can? */
#ifndef HUTCH_BATCH_BUSY_H
#define HUTCH_BATCH_BUSY_H

#include <stdbool.h>

/* By the pressure that the kernel measured over the last minute, else by the load average. @proc is "/proc". */
bool hutch_batch_is_busy(const char *proc);

#endif

/* pause.h - all processes of a pid namespace stand still, for its init where no control group can freeze them.
 *
 * What is sent is SIGSTOP. kill(2) with -1 reaches every process, and every child that is being forked meanwhile. It is
 * no wall: a process that has not stopped yet can continue another one, and the kernel continues one whose own timer,
 * descriptor or parent's death was set to send SIGCONT. So init looks again and again, stops what runs, and says that
 * something did. */
#ifndef HUTCH_PAUSE_H
#define HUTCH_PAUSE_H

#include <stdbool.h>

/* Stops all and waits until they stand still, a twentieth of a second at most. False when something still runs then. */
bool hutch_pause_begin(void);
bool hutch_pause_is_on(void);
/* Milliseconds until the next look is due; what was found to run is looked at again soon. */
int hutch_pause_wait_ms(void);
/* Looks, and stops what runs again. False when there was something. */
bool hutch_pause_check(void);
/* They go on, but for those that had been stopped before, of which the first PAUSE_MAX_BEFORE are known. */
void hutch_pause_end(void);
#define PAUSE_MAX_BEFORE 256

#endif

/* guards.h - the stack guard and the pointer guard of a worker: its own, and not its zygote's.
 *
 * libc draws two random words when a program is executed. One stands between the buffers of a function and its return
 * address; with the other libc mixes the addresses of code that it keeps in writable memory. A fork inherits both, so
 * each worker of a zygote would know those of all others. */
#ifndef HUTCH_HELPER_GUARDS_H
#define HUTCH_HELPER_GUARDS_H

#include <stdbool.h>

/* In a zygote that is one thread: looks for what was made with the present guards and may be used in a worker. To be
 * called before the zygote's memory is moved into a file (freeze.c), where it is not looked for, and again, as the last
 * time, when nothing is left to do but fork. */
void hutch_guards_note(bool is_last);

/* In a fresh worker. The caller and the functions above it may not return afterwards: their frames have the old stack
 * guard. What cannot be changed safely stays: both guards on other processors than x86-64, the pointer guard without
 * GNU's libc, or where a fork starts threads. -1 when there are no random numbers. */
int hutch_guards_renew(void);

#endif

/* seccomp_shrink.h - the same filter in fewer instructions.
 *
 * The kernel checks, translates and compiles a filter anew for each process that loads it: 0.2 ms for the thousand
 * instructions that libseccomp makes of the default policy, of which a sandbox has two milliseconds in all. */
#ifndef HUTCH_SECCOMP_SHRINK_H
#define HUTCH_SECCOMP_SHRINK_H

struct seccomp_program;

/* Puts a program in its place that gives the same answer to every system call. One that it does not understand
 * completely, or that would not get shorter, stays as it is. */
void hutch_seccomp_shrink(struct seccomp_program *program);

#endif

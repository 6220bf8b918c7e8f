/* sample.h - counting what a sandbox uses, from inside, where no cgroup counts. */
#ifndef HUTCH_SAMPLE_H
#define HUTCH_SAMPLE_H

struct init_sample;

/* Looks at every process in /proc, which shows only the sandbox's own, except init. A process that ends meanwhile is
 * skipped. No allocation. */
void hutch_sample_take(struct init_sample *ret);

#endif

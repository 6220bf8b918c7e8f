/* prelude.h - what LiveCodeBench puts before every program. */
#ifndef HUTCH_BATCH_PRELUDE_H
#define HUTCH_BATCH_PRELUDE_H

struct batch_sample;
struct batch_task;

/* The text that goes before this program, "" for none. Static. */
const char *hutch_batch_prelude(const struct batch_task *task, const struct batch_sample *sample);

#endif

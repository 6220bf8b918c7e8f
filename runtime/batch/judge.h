/* judge.h - the judge, which runs programs that tests call: its text, and the code that starts it.
 *
 * It is the Python in runtime/batch/judge and works inside the sandbox. It keeps the tests in a process of their own,
 * and reports on standard output, behind a token that only it knows. */
#ifndef HUTCH_BATCH_JUDGE_H
#define HUTCH_BATCH_JUDGE_H

struct batch_sample;
struct text_buffer;

/* The line that the code prints where the judge is not there. */
#define BATCH_JUDGE_MISSING "hutch-batch-judge-is-missing"

/* What a zygote of a batch runs once, after its imports: it keeps the judge ready. The caller frees it.
 * NULL: ENOMEM. */
char *hutch_batch_judge_warm_up(void);
/* The same for a run that carries it along, before the code. */
void hutch_batch_judge_add_modules(struct text_buffer *t);

/* The code of a run. */
void hutch_batch_judge_add_code(struct text_buffer *t, const struct batch_sample *sample);

#endif

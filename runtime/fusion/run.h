/* run.h - POST /run_code. */
#ifndef HUTCH_FUSION_RUN_H
#define HUTCH_FUSION_RUN_H

struct exchange;

void hutch_fusion_run(struct exchange *x);

#endif

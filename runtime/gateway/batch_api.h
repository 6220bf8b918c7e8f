/* batch_api.h - POST /v1/batch: a run for each line of the body, and a line for each result, in order of finishing. */
#ifndef HUTCH_GATEWAY_BATCH_API_H
#define HUTCH_GATEWAY_BATCH_API_H

struct exchange;

void hutch_batch_api_run(struct exchange *x);

#endif

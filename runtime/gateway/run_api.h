/* run_api.h - POST /v1/run: one program, one answer, at once or as it comes. */
#ifndef HUTCH_GATEWAY_RUN_API_H
#define HUTCH_GATEWAY_RUN_API_H

struct exchange;

void hutch_run_api_run(struct exchange *x);

#endif

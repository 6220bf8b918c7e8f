/* run_api.h - POST /v1/run: one program, one answer, at once or as it comes. */
#ifndef HUTCH_GATEWAY_RUN_API_H
#define HUTCH_GATEWAY_RUN_API_H

#include <stddef.h>

struct exchange;

/* A form with files: its parts as they come. */
void hutch_run_api_begin(struct exchange *x);
void hutch_run_api_take(struct exchange *x, const char *data, size_t len);

void hutch_run_api_run(struct exchange *x);

#endif

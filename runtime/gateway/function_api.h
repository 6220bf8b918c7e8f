/* function_api.h - /v1/functions: the operator's functions, and calls of them. */
#ifndef HUTCH_GATEWAY_FUNCTION_API_H
#define HUTCH_GATEWAY_FUNCTION_API_H

struct exchange;

void hutch_function_api_list(struct exchange *x);
void hutch_function_api_call(struct exchange *x);

#endif

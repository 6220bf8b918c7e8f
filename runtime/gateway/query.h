/* query.h - the values of a request's query: what stands behind '?' in its path, one by one. */
#ifndef HUTCH_GATEWAY_QUERY_H
#define HUTCH_GATEWAY_QUERY_H

#include "sandbox/err.h"

#include <stdint.h>

/* @text as its client meant it: '+' is a blank, and then as hutch_uri_decode(). For the caller to free. */
char *hutch_query_decode(const char *text, struct hutch_err *err);

/* @text is decoded. -1: it is none of these, and *ret stays as it is. */
int hutch_query_flag(const char *text, int *ret);                       /* "true" or "false" */
int hutch_query_number(const char *text, uint64_t max, unsigned *ret);  /* 1 to @max, in decimal digits */
int hutch_query_mode(const char *text, unsigned *ret);                  /* 1 to 777, as chmod(1) has it */

#endif

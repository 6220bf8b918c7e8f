/* keyed_run.h - runs with an Idempotency-Key, and calls of functions: what is asked for twice runs once. */
#ifndef HUTCH_GATEWAY_KEYED_RUN_H
#define HUTCH_GATEWAY_KEYED_RUN_H

struct exchange;
struct hutch_request;
struct server;

/* The key of a request that has a valid one. NULL: it has none, or was refused. */
const char *hutch_keyed_run_key(struct exchange *x);
/* Answers, or has wait, a request whose key is known, or refuses it. 0: it is not, so it is to be submitted. @what:
 * whom its body is for, as in hutch_idempotency_hash(). */
int hutch_keyed_run_join(struct exchange *x, const char *key, const char *what);
/* Submits a run whose answer is kept under the key. */
void hutch_keyed_run_submit(struct exchange *x, struct hutch_request *request, const char *key, const char *what);

/* Ends all of them: who has asked may have left long ago. */
void hutch_keyed_runs_cancel(struct server *s);

#endif

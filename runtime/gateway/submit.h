/* submit.h - a run on behalf of an exchange: whether there may be one more, whose share it counts for, and its end when
 * the client leaves. What becomes of its result is the format's own. */
#ifndef HUTCH_GATEWAY_SUBMIT_H
#define HUTCH_GATEWAY_SUBMIT_H

#include <stdbool.h>
#include <stdint.h>

struct exchange;
struct hutch_error;
struct hutch_request;
struct hutch_result;
struct token;

/* What the work of an exchange begins with that waits for a run. */
struct submitted {
    uint64_t id;
    struct token *token; /* whose share it counts for */
};

/* Whether the exchange may have one more run. Refuses it if not. */
bool hutch_submit_is_allowed(struct exchange *x);

/* Hands @request in for the token of @x, under the policy that its client asked for. hutch_engine_submit() has the
 * rest. */
int hutch_submit_for(struct exchange *x, struct hutch_request *request, uint64_t *ret_id, struct hutch_error *err);

/* Hands @request in, whose user becomes @x; x->work begins with a struct submitted, all zeros. The exchange waits from
 * here on. False: it was refused, and there is no run. */
bool hutch_submit_run(struct exchange *x, struct hutch_request *request);

/* First of all in on_result: the run is over. */
void hutch_submit_conclude(struct exchange *x, const struct hutch_result *result);

#endif

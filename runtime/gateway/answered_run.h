/* answered_run.h - a run whose result is the answer of its exchange: in one piece, or after its output as that comes,
 * as the client's Accept has it. */
#ifndef HUTCH_GATEWAY_ANSWERED_RUN_H
#define HUTCH_GATEWAY_ANSWERED_RUN_H

struct exchange;
struct hutch_request;

/* Hands @request in, which hutch_submit_is_allowed() has allowed; its callbacks and user are set here. The exchange has
 * no work before, and was refused if there is no run. */
void hutch_answered_run_submit(struct exchange *x, struct hutch_request *request);

#endif

/* order_api.h - what a session is told and asked besides its cells, each in its turn: checkpoints, branches, contexts,
 * questions to its shell. */
#ifndef HUTCH_GATEWAY_ORDER_API_H
#define HUTCH_GATEWAY_ORDER_API_H

struct exchange;

void hutch_order_api_checkpoint(struct exchange *x);
void hutch_order_api_rollback(struct exchange *x);
void hutch_order_api_fork(struct exchange *x);
void hutch_order_api_switch(struct exchange *x);
void hutch_order_api_drop(struct exchange *x);
void hutch_order_api_reset_context(struct exchange *x);
void hutch_order_api_drop_context(struct exchange *x);
void hutch_order_api_complete(struct exchange *x);
void hutch_order_api_inspect(struct exchange *x);
void hutch_order_api_is_complete(struct exchange *x);

#endif

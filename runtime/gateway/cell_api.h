/* cell_api.h - what waits its turn in a session: cells, and orders about checkpoints and branches. */
#ifndef HUTCH_GATEWAY_CELL_API_H
#define HUTCH_GATEWAY_CELL_API_H

struct exchange;

void hutch_cell_api_execute(struct exchange *x);
void hutch_cell_api_checkpoint(struct exchange *x);
void hutch_cell_api_rollback(struct exchange *x);
void hutch_cell_api_fork(struct exchange *x);
void hutch_cell_api_switch(struct exchange *x);
void hutch_cell_api_drop(struct exchange *x);

#endif

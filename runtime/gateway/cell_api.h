/* cell_api.h - the cells of a session. */
#ifndef HUTCH_GATEWAY_CELL_API_H
#define HUTCH_GATEWAY_CELL_API_H

struct exchange;

void hutch_cell_api_execute(struct exchange *x);

#endif

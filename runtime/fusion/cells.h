/* cells.h - POST /run_jupyter: cells in a session of their own, one after the other, and it is over. */
#ifndef HUTCH_FUSION_CELLS_H
#define HUTCH_FUSION_CELLS_H

struct exchange;

void hutch_fusion_run_cells(struct exchange *x);

#endif

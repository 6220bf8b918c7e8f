/* control.h - sandboxes as a whole: made, listed, told of, paused, ended. */
#ifndef HUTCH_E2B_CONTROL_H
#define HUTCH_E2B_CONTROL_H

struct exchange;

void hutch_e2b_control_create(struct exchange *x);
void hutch_e2b_control_list(struct exchange *x);
void hutch_e2b_control_get(struct exchange *x);
void hutch_e2b_control_metrics(struct exchange *x);
void hutch_e2b_control_timeout(struct exchange *x);
void hutch_e2b_control_pause(struct exchange *x);
void hutch_e2b_control_connect(struct exchange *x);
void hutch_e2b_control_kill(struct exchange *x);
/* fork(), snapshots and networks. */
void hutch_e2b_control_refuse(struct exchange *x);
/* The same where no sandbox is asked about. */
void hutch_e2b_control_refuse_absent(struct exchange *x);

#endif

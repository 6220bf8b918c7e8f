/* process.h - processes of a sandbox: begun, listened to, written to, ended. */
#ifndef HUTCH_E2B_PROCESS_H
#define HUTCH_E2B_PROCESS_H

struct e2b_sandbox;
struct exchange;

/* Streams: whoever begins one and whoever connects to it hear it until it ends. It goes on without them. */
void hutch_e2b_process_start(struct exchange *x);
void hutch_e2b_process_connect(struct exchange *x);

void hutch_e2b_process_list(struct exchange *x);
void hutch_e2b_process_input(struct exchange *x);
void hutch_e2b_process_close_stdin(struct exchange *x);
void hutch_e2b_process_signal(struct exchange *x);
void hutch_e2b_process_update(struct exchange *x);

/* When the sandbox is gone. */
void hutch_e2b_processes_free(struct e2b_sandbox *sandbox);

#endif

/* code.h - the code interpreter of a sandbox: code is executed, contexts are made, told of, emptied and removed. */
#ifndef HUTCH_E2B_CODE_H
#define HUTCH_E2B_CODE_H

struct exchange;

void hutch_e2b_code_execute(struct exchange *x);
void hutch_e2b_code_create_context(struct exchange *x);
void hutch_e2b_code_list_contexts(struct exchange *x);
void hutch_e2b_code_restart_context(struct exchange *x);
void hutch_e2b_code_remove_context(struct exchange *x);
/* 200 and "OK" of the interpreter, 204 of envd; 502 is a client's word for a sandbox that is gone. */
void hutch_e2b_code_health(struct exchange *x);

#endif

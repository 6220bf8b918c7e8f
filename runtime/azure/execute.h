/* execute.h - executions: code, commands, and what became of them. */
#ifndef HUTCH_AZURE_EXECUTE_H
#define HUTCH_AZURE_EXECUTE_H

struct exchange;

void hutch_azure_execute(struct exchange *x);
void hutch_azure_get_execution(struct exchange *x);

#endif

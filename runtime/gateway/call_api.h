/* call_api.h - answers to what the code of a cell asks its caller while the cell runs: its calls, and input(). The
 * cell's own answer is a stream, whose events 'call' and 'input' ask. */
#ifndef HUTCH_GATEWAY_CALL_API_H
#define HUTCH_GATEWAY_CALL_API_H

struct exchange;

void hutch_call_api_answer(struct exchange *x);
void hutch_call_api_input(struct exchange *x);

#endif

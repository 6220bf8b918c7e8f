/* terminal_api.h - a process of a session over a WebSocket: one that runs already, or a shell at a terminal of its own.
 *
 * Binary messages are its output, and its input; text messages are JSON: what it is told (process_request.h), and what
 * is told of it, {"event": …, "data": {…}} as in events.h. */
#ifndef HUTCH_GATEWAY_TERMINAL_API_H
#define HUTCH_GATEWAY_TERMINAL_API_H

struct exchange;

void hutch_terminal_api_attach(struct exchange *x);
void hutch_terminal_api_open(struct exchange *x);

#endif

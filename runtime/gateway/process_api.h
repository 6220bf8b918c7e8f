/* process_api.h - processes of a session: begin, list, listen, and what is sent to one. */
#ifndef HUTCH_GATEWAY_PROCESS_API_H
#define HUTCH_GATEWAY_PROCESS_API_H

struct exchange;
struct gateway_process;
struct hutch_error;
struct hutch_process_end;
struct text_buffer;

void hutch_process_api_spawn(struct exchange *x);
void hutch_process_api_list(struct exchange *x);
void hutch_process_api_output(struct exchange *x);
void hutch_process_api_stdin(struct exchange *x);
void hutch_process_api_close_stdin(struct exchange *x);
void hutch_process_api_signal(struct exchange *x);
void hutch_process_api_resize(struct exchange *x);

/* The process that the path names, if it is the asker's; else the exchange is refused, and NULL. */
struct gateway_process *hutch_process_api_find(struct exchange *x);
/* It could not be begun, or cannot do what it is asked for. */
void hutch_process_api_refuse(struct exchange *x, const struct hutch_error *error);
/* "exit_code":…, without braces. */
void hutch_process_api_add_end(struct text_buffer *t, const struct hutch_process_end *end);

#endif
